"""The model as DeepSpeed's PipelineModule."""
import torch

from .model import VOCAB, Block, Embedding, Linear, loss_of
from .values import state


def pipeline_settings(case):
    """What a config says of a pipeline."""
    return {name: case["pipeline"][name] for name in ("activation_checkpoint_interval", "use_reentrant")}


def pipeline_of(case, whole):
    """This rank's stage, with the weights of a model on one device, and the names that they have there."""
    from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec
    m, size = case["model"], case["model"]["hidden"]
    head = Linear(size, VOCAB, False)

    def tied_head(embedding, x):
        head.weight = embedding.weight
        return head(x)

    def loss_fn(logits, labels):
        state.losses.append(loss_of(logits, labels, labels.numel()))
        return state.losses[-1]

    embedding, parameters = (Embedding, size, case["train"]["precision"]), [name for name, _ in Block(m, size).named_parameters()]
    blocks = [TiedLayerSpec(f"layer_{n}", Block, m, size, tied_weight_attr=parameters) if m["uses"] > 1 else LayerSpec(Block, m, size)
              for n in whole.order]
    if m["tied"]:
        specs = [TiedLayerSpec("embedding", *embedding), *blocks, TiedLayerSpec("embedding", *embedding, forward_fn=tied_head)]
    else:
        specs = [LayerSpec(*embedding), *blocks, LayerSpec(Linear, size, VOCAB, m["bias"])]
    pipeline = PipelineModule(specs, num_stages=case["layout"]["pp"], loss_fn=loss_fn, partition_method=case["pipeline"]["partition_method"],
                              checkpointable_layers=["Block"] if case["pipeline"]["use_reentrant"] else None)   # a reentrant checkpoint needs an input with a gradient
    rename(pipeline, ["embedding", *(f"layers.{n}" for n in whole.order), "head"], head if m["tied"] else None)
    before = whole.order[:max(pipeline._local_start - 1, 0)]
    state.first_calls.clear()
    state.first_calls.update({name: before.count(int(name.split(".")[1])) for name, _ in pipeline.named_modules() if name.startswith("layers.")})
    values = dict(whole.named_parameters(remove_duplicate=False))
    for name, parameter in pipeline.named_parameters():
        parameter.data.copy_(values[name])
        parameter.requires_grad_(values[name].requires_grad)
    return pipeline


def rename(pipeline, names, head):
    """Gives a stage's modules the names of the model on one device: DeepSpeed names them by number, and does not call them by name. head: a tied one."""
    mine = dict(zip(names[pipeline._local_start:pipeline._local_stop], pipeline.forward_funcs))
    tied = pipeline._modules.pop("tied_modules")
    pipeline._modules.clear()
    pipeline.__dict__["tied_modules"] = tied
    if head is not None and "head" in mine:
        mine["embedding"], mine["head"] = tied["embedding"], head
        head.weight = tied["embedding"].weight
    for name in sorted(mine):      # the embedding comes before a head with its weight
        *path, last = name.split(".")
        for part in path:
            if part not in pipeline._modules:
                pipeline.add_module(part, torch.nn.Module())
        (pipeline._modules[path[0]] if path else pipeline).add_module(last, mine[name])
