"""Training of a small language model with neuronx-distributed in its CPU mode, on Gloo, and the same on one device in plain PyTorch."""
import contextlib
import shutil
import tempfile

import torch
import torch.distributed as dist
from torch import nn

from .cuts import parts_of
from .model import IGNORED, Layer, Library, Model, OneDevice
from .standins import Platform, stand_in


def batches_of(case, step, rank, ranks):
    """(tokens, labels) [b / ranks, s] of each microbatch of a step: a data-parallel rank's rows."""
    d, generator = case["data"], torch.Generator().manual_seed(case["seed"] * 100 + step)
    shape, rows = (d["rows"], d["length"]), slice(rank * d["rows"] // ranks, (rank + 1) * d["rows"] // ranks)
    found = []
    for _ in range(d["microbatches"]):
        tokens, labels = (torch.randint(0, case["model"]["vocabulary"], shape, generator=generator) for _ in range(2))
        ignored = torch.rand(shape, generator=generator) < (0.3 if d["ignored"] else 0)
        found.append((tokens[rows].contiguous(), labels.masked_fill(ignored, IGNORED)[rows].contiguous()))
    return found


def optimizer_of(t, parameters, make=None):
    """torch's own, or what `make` makes of its class and options."""
    kind, options = {"adamw": (torch.optim.AdamW, {"weight_decay": 0.1}), "sgd": (torch.optim.SGD, {"momentum": 0.9})}[t["optimizer"]]
    return (make or (lambda kind, parameters, **options: kind(parameters, **options)))(kind, parameters, lr=0.02, **options)


class Alone:
    """On one device: parameters in fp32, of which the model uses rounded ones where the library has master weights."""

    def __init__(self, case, fill):
        self.case, self.model = case, whole_model(case, fill)
        self.optimizer = optimizer_of(case["train"], [one for one in self.model.parameters() if one.requires_grad])

    def __call__(self, number, trace):
        batches = batches_of(self.case, number, 0, 1)
        for k, batch in enumerate(batches):
            trace.microbatch(k)
            (self._forward(batch) / len(batches)).backward()
        trace.gradients()
        if self.case["train"]["max_norm"]:
            trace.scalar("grad_norm", nn.utils.clip_grad_norm_(self.model.parameters(), self.case["train"]["max_norm"]))
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _forward(self, batch):
        if self.case["train"]["precision"] == "float32":
            return self.model(*batch)
        rounded = {name: parameter.bfloat16() for name, parameter in self.model.named_parameters()}
        return torch.func.functional_call(self.model, rounded, batch)


def whole_model(case, fill):
    model = Model(OneDevice(case), case["model"])
    fill(model)
    if case["train"]["precision"] == "bfloat16":
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(parameter.bfloat16())
    return model


class OnRanks:
    """On the ranks, with the library's model and optimizer wrappers."""

    optimizer = ()    # the library's makes the update, and says nothing to torch's hooks in between

    def __init__(self, case, fill):
        stand_in()
        self.case = case
        self._build(fill)

    def _build(self, fill):
        import neuronx_distributed as nxd
        from neuronx_distributed.parallel_layers import parallel_state
        case, self.state = self.case, parallel_state
        layout, t = case["layout"], case["train"]
        parallel_state.destroy_model_parallel()
        parallel_state.destroy_kv_group()
        Platform.name = layout["platform"]
        zero = t["zero"]
        self.config = nxd.neuronx_distributed_config(
            tensor_parallel_size=layout["tp"], pipeline_parallel_size=layout["pp"], expert_parallel_size=layout["ep"], sequence_parallel=layout["sequence_parallel"],
            pipeline_config=pipeline_of(case) if layout["pp"] > 1 else None,
            optimizer_config={"zero_one_enabled": zero, "grad_clipping": t["max_norm"] > 0, "max_grad_norm": t["max_norm"]},
            mixed_precision_config={"use_master_weights": zero, "use_fp32_grad_acc": zero and t["wide_gradients"], "use_master_weights_in_ckpt": zero},
            activation_checkpoint_config=Layer if t["recompute"] else None)
        self.wrapped = nxd.initialize_parallel_model(self.config, lambda: Model(Library(case), case["model"]))
        load(self.wrapped, whole_model(case, fill), case, self.ranks())
        parameters = [parameter for _, parameter in self.wrapped.named_parameters() if parameter.requires_grad]
        self.updates = optimizer_of(t, parameters, lambda *given, **options: nxd.initialize_parallel_optimizer(self.config, *given, **options))
        self.model = self._stages() if layout["pp"] > 1 else self.wrapped.original_module()

    def ranks(self):
        return {"tp": self.state.get_tensor_model_parallel_rank(), "ep": self.state.get_expert_model_parallel_rank()}

    def _stages(self):
        """This rank's parts of the model. In its first pass a pipeline also runs them to learn the shapes of their outputs."""
        pipeline = self.wrapped.module
        stages = [Stage(graph, pipeline.original_torch_module) for graph in pipeline.local_stage_modules]
        pipeline.local_stage_modules[:] = stages
        pipeline.original_name_to_local_name = {name: name for name in pipeline.original_name_to_local_name}
        pipeline.local_name_to_original_name = pipeline.original_name_to_local_name
        self._forward_backward(batches_of(self.case, 0, self.state.get_data_parallel_rank(), self.state.get_data_parallel_size()), None)
        self.updates.zero_grad()
        return stages

    def _reload(self, number):
        """Saves a checkpoint, and loads it into a model and an optimizer of other values."""
        import neuronx_distributed as nxd
        folder = [tempfile.mkdtemp(prefix="sf-neuronx-") if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(folder)
        try:
            nxd.save_checkpoint(folder[0], str(number), model=self.wrapped, optimizer=self.updates)
            dist.barrier()
            self._build(lambda model: [nn.init.constant_(one, 0.5) for one in model.parameters()])
            nxd.load_checkpoint(folder[0], str(number), model=self.wrapped, optimizer=self.updates)
            dist.barrier()
        finally:
            if dist.get_rank() == 0:
                shutil.rmtree(folder[0])

    def __call__(self, number, trace):
        if number > 0 and number == self.case["checkpoint"]["before"]:
            self._reload(number)
            trace.replace(self.model, ())
        self._forward_backward(batches_of(self.case, number, self.state.get_data_parallel_rank(), self.state.get_data_parallel_size()), trace)
        with self._watched(trace):
            self.updates.step()
        if self.case["train"]["max_norm"]:
            trace.scalar("grad_norm", self.updates.grad_norm)
        self.updates.zero_grad()

    def _forward_backward(self, batches, trace):
        if self.case["layout"]["pp"] > 1:
            tokens, labels = (torch.cat(parts) for parts in zip(*batches))
            self.wrapped.run_train(tokens=tokens, labels=labels)
            return
        for k, batch in enumerate(batches):
            trace.microbatch(k)
            (self.wrapped(*batch) / len(batches)).backward()

    @contextlib.contextmanager
    def _watched(self, trace):
        """Tells the trace when gradients are reduced and not yet clipped, and when parameters change."""
        from neuronx_distributed.parallel_layers import grads
        optimizer, zero = self.updates.optimizer, self.case["train"]["zero"]
        clipping = before(optimizer, "_clip_grad_norm", trace.gradients) if zero else before(grads, "clip_grad_norm", trace.gradients)
        with clipping, around(optimizer, "_update_parameters" if zero else "step", trace.update):
            yield


def pipeline_of(case):
    layout, m = case["layout"], case["model"]
    stages = layout["pp"] * layout["virtual"]
    return {"transformer_layer_cls": Layer, "num_microbatches": case["data"]["microbatches"], "virtual_pipeline_size": layout["virtual"],
            "output_loss_value_spec": True, "input_names": ["tokens", "labels"], "pipeline_cuts": [f"layers.{k * m['layers'] // stages - 1}" for k in range(1, stages)],
            "leaf_module_cls": ["Embed", "Head", "Loss", "RMSNorm", "LayerNorm"], "use_zero1_optimizer": case["train"]["zero"]}


class Stage(nn.Module):
    """A stage that the library has traced, whose modules have the names that they have in the model."""

    def __init__(self, graph, model):
        super().__init__()
        self.graph = [graph]                 # a list, so that its modules are not this one's under other names
        mine = {id(module) for module in graph.modules()}
        for name, module in model.named_modules():
            *path, last = name.split(".")
            if id(module) in mine and name and not any(id(model.get_submodule(".".join(path[:k]))) in mine for k in range(1, len(path) + 1)):
                at = self
                for part in path:
                    if part not in at._modules:
                        at.add_module(part, nn.Module())
                    at = at._modules[part]
                at.add_module(last, module)

    def forward(self, *inputs):
        return self.graph[0](*inputs)


@contextlib.contextmanager
def around(owner, name, context):
    """Within it owner.name() runs in a context of its own."""
    sound = getattr(owner, name)

    def changed(*given, **options):
        with context():
            return sound(*given, **options)
    setattr(owner, name, changed)
    try:
        yield
    finally:
        setattr(owner, name, sound)


def before(owner, name, action):
    """Within it owner.name() does action() first."""
    @contextlib.contextmanager
    def first():
        action()
        yield
    return around(owner, name, first)


def load(wrapped, whole, case, ranks):
    """Gives a rank its parts of a whole model."""
    values = dict(whole.named_parameters(remove_duplicate=False))
    for name, parameter in wrapped.named_parameters():
        name = name.replace("_checkpoint_wrapped_module.", "")
        if not parameter.is_floating_point():
            continue
        value = values[name].detach()
        for dim, _, parts in parts_of(name, case, ranks):
            value = torch.cat([value.narrow(dim, first, count) for first, count in parts], dim)
        with torch.no_grad():
            parameter.copy_(value)


def shard_of(parameter):
    """What this rank's ZeRO-1 optimizer has of a parameter, or None."""
    zero = run.updates.optimizer if run is not None else None
    for one in (getattr(zero, "ep_zero_optimizer", None), getattr(zero, "non_ep_zero_optimizer", zero)):
        if hasattr(one, "base_optimizer"):
            for group, shards in zip(one.param_groups, one.base_optimizer.param_groups):
                for whole, shard in zip(group["params"], shards["params"]):
                    if whole is parameter:
                        return shard
    return None


def joined(parameter, shard):
    """A parameter's rows from all data-parallel ranks' shards."""
    own = getattr(parameter, "expert_model_parallel", False)
    group = run.state.get_expert_data_parallel_group() if own else run.state.get_data_parallel_group()
    parts = [torch.empty_like(shard) for _ in range(group.size())]
    dist.all_gather(parts, shard.detach().contiguous(), group)
    return torch.cat(parts)[:len(parameter)]


def value(name, parameter):
    """The parameter's master weight where there is one, else the parameter. None for the ranks' own numbers, which the library keeps as parameters."""
    if not parameter.is_floating_point():
        return None
    shard = shard_of(parameter)
    return parameter.float() if shard is None else joined(parameter, shard)    # a frozen one has none


def gradient(name, parameter):
    """The gradient, reduced."""
    shard = shard_of(parameter)
    if shard is None:
        return parameter.grad
    return None if shard.grad is None else joined(parameter, shard.grad)


run = None       # the training on the ranks


def make(case, mesh, fill):
    global run
    run = None
    if mesh is None:
        alone = Alone(case, fill)
        return alone.model, alone.optimizer, alone
    run = OnRanks(case, fill)
    return run.model, run.optimizer, run
