"""The tracer of a Megatron script: what shardfuzz.Tracer records, with the places that names and the package's groups of ranks give."""
import re
from typing import Dict, List, Optional

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.transformer.identity_op import IdentityFuncOp, IdentityOp

from .. import tracer
from ..errors import ShardfuzzError
from ..layout import ACTIVATIONS
from ..layout import Layout as AnyLayout
from ..parameters import fill_named
from ..places import Place, place_from_user, whole
from ..records import Recorder
from .layout import Layout
from .names import Names, parameter_place
from .places import Places, kinds_of

MODEL = "model"  # the name of the whole model's output
WORD_EMBEDDINGS = "embedding.word_embeddings"
GROUPS = {"tp": "tensor_model_parallel", "cp": "context_parallel", "dp": "data_parallel", "pp": "pipeline_model_parallel", "ep": "expert_model_parallel",
          "etp": "expert_tensor_parallel", "edp": "expert_data_parallel"}


def inside(chunk: torch.nn.Module) -> torch.nn.Module:
    """The GPTModel in its wrappers (DistributedDataParallel, Float16Module)."""
    while hasattr(chunk, "module"):
        chunk = chunk.module
    return chunk


def chunks_of(model) -> list:
    return list(model) if isinstance(model, (list, tuple)) else [model]


def groups() -> Dict[str, List[int]]:
    """This rank's groups, by axis: global ranks. A rank's coordinate on an axis is its index."""
    return {axis: dist.get_process_group_ranks(getattr(parallel_state, f"get_{name}_group")()) for axis, name in GROUPS.items()}


def running_layout(config) -> Layout:
    of_axis = groups()
    sizes = {axis: len(ranks) for axis, ranks in of_axis.items()}
    sizes["vpp"] = parallel_state.get_virtual_pipeline_model_parallel_world_size() or 1
    return Layout(sizes, {axis: ranks.index(dist.get_rank()) for axis, ranks in of_axis.items()}, {"sp": config.sequence_parallel})


def owned_ranges(chunks) -> dict:
    """With the distributed optimizer: for each parameter the elements [first, last) of its shard whose gradient this rank's optimizer gets.
    chunks: the package's DistributedDataParallel."""
    ranges = {}
    for chunk in chunks:
        for buffer in chunk.buffers + chunk.expert_parallel_buffers:
            for parameter, (start, end, number) in buffer.param_index_map.items():
                bucket = buffer.buckets[number]
                share = bucket.grad_data.numel() // buffer.data_parallel_group.size()
                low = bucket.offset + share * buffer.data_parallel_group.rank()
                ranges[parameter] = (max(start, low) - start, min(end, low + share) - start)
    return ranges


class _State(tracer.State):
    """Gradients as the optimizer gets them: the buffers of the package's DistributedDataParallel, or this rank's share of them."""

    def __init__(self, chunks):
        shares = [chunk for chunk in chunks if getattr(getattr(chunk, "ddp_config", None), "use_distributed_optimizer", False)]
        self.ranges = owned_ranges(shares)

    def gradient(self, name, parameter):
        gradient = getattr(parameter, "main_grad", None)
        gradient = parameter.grad if gradient is None else gradient
        first, last = self.ranges.get(parameter, (0, parameter.numel()))
        if gradient is None or first >= last:
            return None
        return gradient.reshape(-1)[first:last] if parameter in self.ranges else gradient


class _Places(AnyLayout):
    """Where tensors lie, by their names. kinds: of each traced module, (those of its inputs, those of its output)."""

    def __init__(self, config, layout: Layout, parameters: dict, ranges: dict, kinds: dict, modules: dict):
        super().__init__("same", 0, True, None)
        self.config, self.layout, self.parameters, self.ranges, self.kinds, self.modules = config, layout, parameters, ranges, kinds, modules
        self.of_activations = Places(config, layout, microbatch_size=1)
        self.act_grad_scale = 1.0 if config.calculate_per_token_loss else 1.0 / (layout.n["dp"] * layout.n["cp"])

    def groups(self):
        return {axis: ranks for axis, ranks in groups().items() if len(ranks) > 1}

    def knows(self, kind: str, subject: str) -> bool:
        """Whether it is an activation that the tables know: of several outputs the first."""
        module, _, number = subject.partition(":")
        return not number if kind == "act" else int(number or 0) < len(self.kinds[module][0])

    def place_now(self, name: str, kind: str, tensor: torch.Tensor) -> Place:
        subject = name.split("/")[4]
        if kind in ACTIVATIONS:
            return place_from_user(self._activation(kind, subject, tensor), tensor.shape, name)
        if subject not in self.parameters:
            return whole(tensor.shape)
        parameter = self.parameters[subject]
        place = parameter_place(subject, parameter.shape, self.config, self.layout)
        first, last = self.ranges.get(parameter, (0, 0))
        if kind == "main_grad" and parameter in self.ranges:
            place = dict(place, flat=[first, last - first])
        return place_from_user(place, tensor.shape, name)

    def _activation(self, kind: str, subject: str, tensor: torch.Tensor) -> dict:
        module, _, number = subject.partition(":")
        inputs, output = self.kinds[module]
        try:
            if kind == "act_grad":
                kinds = self.of_activations.input_kinds(module, inputs[int(number or 0)])
                return dict(self.of_activations.of(module, kinds, tensor.shape), scale=self.act_grad_scale)
            return self.of_activations.of(module, self._output_kinds(module, output, tensor), tensor.shape)
        except ValueError as error:
            raise ShardfuzzError(f"{module}: {error}; leave it out with skip=[{module!r}]") from None

    def _output_kinds(self, module: str, kinds: tuple, tensor: torch.Tensor) -> tuple:
        if module == MODEL and len(tensor.shape) == 3:
            return ("all", "ctx", "tp")  # logits
        if module != WORD_EMBEDDINGS:
            return self.of_activations.output_kinds(module, self.modules[module], kinds)
        batch_first = self.of_activations.output_kinds(module, self.modules[module], kinds)
        return (batch_first[1], batch_first[0], batch_first[2])


class Tracer(tracer.Tracer):
    """A trace of what runs inside `with`, written when it ends without an exception: parameters, outputs of modules, gradients of their inputs, the
    gradients that the optimizer gets, what it changes, and the gradient norm.

    directory: a trace that is there is replaced. model: a chunk, wrapped or not, or the list of this rank's chunks. optimizer: the package's; a step ends
    with its step(). skip: patterns (fnmatch) of modules and parameters to leave out. Every rank enters and leaves together. Modules that no table
    knows are left out; rank 0 names them. Raises ShardfuzzError."""

    def __init__(self, directory: str, model, optimizer, *, skip=(), quiet: bool = False):
        super().__init__(directory, model, optimizer, batch="same", skip=skip, quiet=quiet, state=_State(chunks_of(model)))
        self.layout = _Places(self.config, self.ranks, self.parameters, self.state.ranges, self.kinds, self.modules)
        self.recorder = Recorder(self.layout)

    def _take(self, model, optimizer) -> None:
        self.parts = [inside(chunk) for chunk in chunks_of(model)]
        self.config, self.optimizers, self.optimizer = self.parts[0].config, [], optimizer
        self.ranks = running_layout(self.config)
        self.modules, self.part_of, self.parameters, self.kinds, self.unknown = {}, {}, {}, {}, set()
        for number, part in enumerate(self.parts):
            names = Names(part, self.config, self.ranks)
            for local, module in part.named_modules():
                self._take_module(number, names.of(local), module)
            self.parameters.update((names.of(local), parameter) for local, parameter in part.named_parameters())

    def _take_module(self, number: int, name: str, module: torch.nn.Module) -> None:
        part = self.parts[number]
        if isinstance(module, (IdentityOp, IdentityFuncOp)) or (not name and not part.post_process):
            return
        try:
            kinds = kinds_of(name)
        except KeyError:
            self.unknown.add(re.sub(r"\.\d+", "", name))
            return
        name = name or MODEL
        if kinds is not None:
            self.modules[name], self.part_of[name], self.kinds[name] = module, number, kinds
            if name.startswith("embedding") and not part.pre_process:
                self.first_calls[name] = 1  # a stage that embeds for its MTP layers alone makes what is the second call on one device

    def _attach(self) -> None:
        super()._attach()
        step = self.optimizer.step

        def traced(*args, **kwargs):
            with self.update():
                result = step(*args, **kwargs)
            norm = result[1] if isinstance(result, tuple) and len(result) > 1 else None
            if norm is not None:
                self.scalar("grad_norm", float(norm))
            return result
        self.optimizer.step = traced

    def _detach(self) -> None:
        super()._detach()
        del self.optimizer.step

    def _begin_microbatch(self, part: int):
        """Microbatches are numbered as the package's data loaders deal them out: in turn to the data-parallel ranks."""
        def hook(module, args, kwargs):
            self._open_step()
            if not tracer.in_backward():
                self.mbs[part] = self.ranks.at["dp"] if self.mbs[part] < 0 else self.mbs[part] + self.ranks.n["dp"]
            ids = args[0] if args else kwargs.get("input_ids")
            if isinstance(ids, torch.Tensor):
                self.layout.of_activations.microbatch_size = ids.shape[0]
        return hook

    def _record(self, mb, direction, kind, name, call, tensor, mark=None, place_of=None, step=None) -> Optional[torch.Tensor]:
        if kind in ACTIVATIONS and not self.layout.knows(kind, name):
            return None
        return super()._record(mb, direction, kind, name, call, tensor, mark, place_of, step)

    def say(self, more: str) -> None:
        if self.unknown:
            more = f"not traced, since no table knows them: {', '.join(sorted(self.unknown))}; {more}"
        super().say(more)


def fill(model, optimizer=None, seed: int = 0) -> None:
    """Overwrites every parameter by a function of seed, name and place in the whole tensor, so that all layouts start alike. optimizer: the package's,
    which then takes its own copies anew. Raises ShardfuzzError."""
    for chunk in map(inside, chunks_of(model)):
        ranks = running_layout(chunk.config)
        names = Names(chunk, chunk.config, ranks)
        parameters = {names.of(local): parameter for local, parameter in chunk.named_parameters()}
        fill_named(parameters, seed, lambda name, parameter: parameter_place(name, parameter.shape, chunk.config, ranks))
    if optimizer is not None:
        optimizer.reload_model_params()
