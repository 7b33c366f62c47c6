"""Runs a case: the package's schedule, gradients and optimizer, step by step, with everything recorded."""
import contextlib
from functools import partial

import torch
from megatron.core.pipeline_parallel import get_forward_backward_func
from shardfuzz.megatron.tracing import owned_ranges

from .data import Batches, loss_function


def run_steps(model, recorder, perturbation=None):
    """All steps of the model's case on this rank's part of the layout. perturbation: a shardfuzz.perturb.Perturbation of forward and backward
    passes, or None. Raises what the package raises."""
    hook = None
    if perturbation is not None:
        perturbation.first = model.chunks[0].embedding.word_embeddings
        hook = perturbation.first.register_forward_hook(lambda module, args, output: perturbation.output(module, recorder.last_call, output))
    for step in range(model.case["steps"]):
        _run_step(model, recorder, Batches(model.case, model.layout, step), step, perturbation)
    if hook is not None:
        hook.remove()


def _run_step(model, recorder, batches, step, perturbation):
    recorder.begin_step(step)
    for name, parameter, place in model.parameters:
        if recorder.operations is not None:
            recorder.operations.know(name, parameter)
        _add_once(recorder, "param", name, parameter, place)
    if step > 0 and model.case["mode"] == "isolated":
        model.reload()
    if recorder.anchors is not None:
        _anchor(recorder, "param", [(name, parameter) for name, parameter, _ in model.parameters])
    before = {name: parameter.detach().clone() for name, parameter, _ in model.parameters}
    for chunk in model.wrapped:
        chunk.zero_grad_buffer()
    model.optimizer.zero_grad()
    with perturbation or contextlib.nullcontext():
        _forward_backward(model, recorder, batches)
    _record_main_gradients(model, recorder)
    if recorder.anchors is not None:
        _anchor(recorder, "main_grad", [(name, parameter.main_grad) for name, parameter, _ in model.parameters])
    succeeded, norm, _ = model.optimizer.step()
    if not succeeded:
        raise RuntimeError("the optimizer skipped a step")
    if perturbation is not None:
        for _, parameter, _ in model.parameters:
            perturbation.store(parameter)
    if norm is not None:
        recorder.scalar(0, "step", "grad_norm", torch.tensor(float(norm), dtype=torch.float64))
    for name, parameter, place in model.parameters:
        _add_once(recorder, "param_delta", name, parameter.detach() - before[name], place)


def _add_once(recorder, kind, name, tensor, place):
    """A tied parameter that two chunks of a rank share is one."""
    if recorder._call(kind, name) == 0:
        recorder.add(f"mb0/step/{kind}/{name}/0", tensor, place)


def _anchor(recorder, kind, tensors):
    """Replaces what was recorded of parameters by the candidate's. The optimizer's own copies in fp32 follow from its gradients."""
    with torch.no_grad():
        for name, tensor in tensors:
            tensor.copy_(recorder.anchored(f"mb0/step/{kind}/{name}/0", tensor))


def _forward_backward(model, recorder, batches):
    case, layout = model.case, model.layout
    summand = layout.summand("cp")

    def forward_step(iterator, chunk):
        number, tokens, labels, mask, positions, attention, padding, counts = next(iterator)
        recorder.begin_microbatch(number)
        options = {"loss_mask": mask} if model.config.mtp_num_layers else {}
        if padding is not None:
            options["padding_mask"] = padding
        output = chunk(tokens, positions, attention, labels=labels, **options)
        recorder.watch_backward(output, number)
        record = partial(recorder.scalar, number, "fwd", "loss", summand=summand)
        return output, loss_function(case["loss"], mask, counts, record)

    several = len(model.wrapped) > 1
    get_forward_backward_func()(
        forward_step_func=forward_step, data_iterator=[iter(batches) for _ in model.wrapped] if several else iter(batches),
        model=model.wrapped if several else model.wrapped[0], num_microbatches=len(batches.numbers), seq_length=case["sequence_length"],
        micro_batch_size=case["microbatch_size"], forward_only=False)


def _record_main_gradients(model, recorder):
    """What the optimizer gets: whole buffers, or with the distributed optimizer the rank's share of each bucket."""
    owned = owned_ranges(model.wrapped) if model.layout.flags["distributed_optimizer"] else None
    for name, parameter, place in model.parameters:
        gradient = parameter.main_grad
        if owned is not None:
            first, last = owned[parameter]
            if first >= last:
                continue
            gradient = gradient.reshape(-1)[first:last]
            place = dict(place, flat=[first, last - first])
        _add_once(recorder, "main_grad", name, gradient, place)
