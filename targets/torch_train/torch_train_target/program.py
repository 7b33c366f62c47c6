"""A small language model and its training with torch's own parallelism: DDP, ZeroRedundancyOptimizer, FSDP2, pipeline schedules, tensor parallel styles,
context parallel attention."""
import contextlib
import shutil
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.checkpoint.state_dict import (StateDictOptions, get_model_state_dict, get_optimizer_state_dict, set_model_state_dict,
                                                     set_optimizer_state_dict)
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, schedules
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import _cp_options, set_rotate_method
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from .kernels import flash_on_cpu

ACTIVATIONS = {"gelu": F.gelu, "silu": F.silu, "tanh": torch.tanh}
SCHEDULES = {"gpipe": schedules.ScheduleGPipe, "1f1b": schedules.Schedule1F1B, "interleaved": schedules.ScheduleInterleaved1F1B,
             "looped-bfs": schedules.ScheduleLoopedBFS, "interleaved-zb": schedules.ScheduleInterleavedZeroBubble, "zbv": schedules.ScheduleZBVZeroBubble,
             "dualpipev": schedules.ScheduleDualPipeV}
SEVERAL = ("interleaved", "looped-bfs", "interleaved-zb", "zbv", "dualpipev")
V_SHAPED = ("zbv", "dualpipev")


class Attention(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.size = m["hidden"] // m["heads"]
        self.q, self.k, self.v, self.o = (nn.Linear(m["hidden"], m["hidden"], bias=m["bias"]) for _ in range(4))

    def forward(self, x):
        q, k, v = (one.unflatten(-1, (-1, self.size)).transpose(-3, -2) for one in (self.q(x), self.k(x), self.v(x)))
        return self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(-3, -2).flatten(-2))


class Mlp(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.up, self.down = nn.Linear(m["hidden"], 4 * m["hidden"], bias=m["bias"]), nn.Linear(4 * m["hidden"], m["hidden"], bias=m["bias"])
        self.activation = ACTIVATIONS[m["activation"]]

    def forward(self, x):
        return self.down(self.activation(self.up(x)))


def norm(m):
    return (nn.LayerNorm if m["norm"] == "layer" else nn.RMSNorm)(m["hidden"])


class Block(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.norm1, self.attention, self.norm2, self.mlp = norm(m), Attention(m), norm(m), Mlp(m)
        self.unused = nn.Linear(2, 2) if m["unused"] else None
        self.twice = m["twice"]
        self.mix = nn.Linear(m["hidden"], m["hidden"], bias=False) if self.twice == "linear" else None

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        x = x + self.mlp(self.norm2(x))
        if self.twice == "mlp":
            x = x + self.mlp(self.norm2(x))
        return x + self.mix(self.mix(x)) if self.twice == "linear" else x


class Model(nn.Module):
    """Tokens [rows, length] to logits [rows, length, vocabulary]. A pipeline's stage lacks some parts."""

    def __init__(self, m):
        super().__init__()
        self.embedding = nn.Embedding(m["vocabulary"], m["hidden"])
        self.blocks = nn.ModuleDict({str(n): Block(m) for n in range(m["layers"])})
        self.norm, self.head = norm(m), nn.Linear(m["hidden"], m["vocabulary"], bias=False)
        self.skip = m["skip"]
        if m["tied"]:
            self.head.weight = self.embedding.weight

    def forward(self, x, first=None):
        if self.embedding is not None:
            x = self.embedding(x)
            first = x if self.skip else None
        for block in self.blocks.values():
            x = block(x)
        if self.head is None:
            return (x, first) if self.skip else x
        return self.head(self.norm(x + first if self.skip else x))


def freeze(model, what):
    for name, parameter in model.named_parameters():
        if what == "embedding" and name.startswith("embedding") or what == "norms" and "norm" in name or what == "block" and name.startswith("blocks.0."):
            parameter.requires_grad_(False)


def loss_of(logits, labels, count):
    """Of logits [rows, length, vocabulary] and labels [rows, length], where -100 is no label. count: how many labels of the microbatch a rank has in the mean."""
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="sum", ignore_index=-100) / count


class Data:
    """Microbatches of a step: what all data-parallel ranks have of each together, and the rows of one of them."""

    def __init__(self, case, step, index, ranks, device, cp=1):
        self.step = step
        d, m = case["data"], case["model"]
        generator = torch.Generator().manual_seed(case["seed"] * 100 + step)
        shape = (d["microbatches"], d["rows"] * case["layout"]["dp"] * case["layout"]["fsdp"], d["length"])
        tokens, labels = (torch.randint(0, m["vocabulary"], shape, generator=generator) for _ in range(2))
        if d["ignored"]:
            ignored = torch.rand(shape, generator=generator) < 0.3
            ignored[:, :, 0] = False
            labels = labels.masked_fill(ignored, -100)
        rows = shape[1] // ranks
        self.counts = [int((one != -100).sum()) / ranks / cp for one in labels]
        self.tokens, self.labels = (one[:, index * rows:(index + 1) * rows].to(device) for one in (tokens, labels))


class Layout:
    """This rank's meshes. One device: none."""

    def __init__(self, case, mesh):
        self.mesh, sizes = None, case["layout"]
        self.pp = self.tp = self.dp = self.fsdp = self.cp = None
        self.data_index, self.data_ranks, self.parts = 0, 1, sizes["cp"] if mesh is not None else 1
        if mesh is not None:
            self.mesh = mesh(**{axis: sizes[axis] for axis in ("pp", "dp", "fsdp", "cp", "tp")})
            self.pp, self.dp, self.fsdp, self.cp, self.tp = (self.mesh[axis] if sizes[axis] > 1 else None for axis in ("pp", "dp", "fsdp", "cp", "tp"))
            self.shards = "fsdp"
            if self.cp is not None and self.fsdp is not None:     # ranks of a sequence have the same parameters, as data-parallel ranks do
                self.shards = "fsdp_cp"
                self.fsdp = self.mesh["fsdp", "cp"]._flatten(self.shards)
            elif self.cp is not None:
                self.dp = self.mesh["dp", "cp"]._flatten("dp_cp")
            self.data_ranks = sizes["dp"] * sizes["fsdp"]
            self.data_index = self.mesh["dp"].get_local_rank() * sizes["fsdp"] + self.mesh["fsdp"].get_local_rank()


def cut_tensors(model, case, tp):
    """Tensor parallelism as in torch's tutorials, with sequence parallel norms or without."""
    p = case["parallel"]
    sequence = p["sequence"]
    whole, rows = Replicate(), Shard(1)
    between = rows if sequence else whole
    plan = {"embedding": RowwiseParallel(input_layouts=whole, output_layouts=between), "head": ColwiseParallel(input_layouts=between, output_layouts=whole)}
    if sequence:
        plan["norm"] = SequenceParallel()
    parallelize_module(model, tp, {name: style for name, style in plan.items() if getattr(model, name) is not None})
    for block in model.blocks.values():
        styles = {**{f"attention.{name}": ColwiseParallel() for name in "qkv"}, "attention.o": RowwiseParallel(output_layouts=between),
                  "mlp.up": ColwiseParallel(), "mlp.down": RowwiseParallel(output_layouts=between)}
        if sequence:
            inputs = {"input_layouts": (rows,), "desired_input_layouts": (whole,)}
            styles.update({"norm1": SequenceParallel(), "norm2": SequenceParallel(), "attention": PrepareModuleInput(**inputs), "mlp": PrepareModuleInput(**inputs)})
        parallelize_module(block, tp, styles)


def wrap(part, case, layout):
    """The part with tensor parallelism, recomputation and data parallelism, in the order in which torch's tutorials apply them."""
    p = case["parallel"]
    if layout.tp is not None:
        cut_tensors(part, case, layout.tp)
    if case["recompute"] != "none":
        for name in part.blocks:
            part.blocks[name] = checkpoint_wrapper(part.blocks[name], **({"preserve_rng_state": False} if case["recompute"] == "block-without-rng" else {}))
    if layout.fsdp is not None:
        mesh = layout.mesh["dp", layout.shards] if layout.dp is not None else layout.fsdp
        policy = MixedPrecisionPolicy(**({"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32} if case["dtype"] == "bfloat16" else {}))
        cut = (lambda parameter: Shard(parameter.ndim - 1)) if p["fsdp_dim"] == "last" else None
        options = {"mesh": mesh, "reshard_after_forward": p["reshard"], "mp_policy": policy, "shard_placement_fn": cut}
        for block in part.blocks.values() if p["fsdp_units"] != "model" else ():
            if p["fsdp_units"] == "parts":
                for inner in (block.attention, block.mlp):
                    fully_shard(inner, **options)
            fully_shard(block, **options)
        fully_shard(part, **options)
        part.set_force_sum_reduction_for_comms(True)
        return part
    if layout.dp is not None and any(one.requires_grad for one in part.parameters()):
        unused = case["model"]["unused"] and not p["static_graph"]
        return DistributedDataParallel(part, process_group=layout.dp.get_group(), bucket_cap_mb=p["bucket_mb"], gradient_as_bucket_view=p["bucket_view"],
                                       static_graph=p["static_graph"], find_unused_parameters=unused)
    return part


def stages_of(case):
    """[stage numbers] of each pipeline rank, and how many stages there are."""
    ranks, schedule = case["layout"]["pp"], case["parallel"]["schedule"]
    if schedule not in SEVERAL:
        return [[rank] for rank in range(ranks)], ranks
    if schedule in V_SHAPED:
        return [[rank, 2 * ranks - 1 - rank] for rank in range(ranks)], 2 * ranks
    return [[rank, ranks + rank] for rank in range(ranks)], 2 * ranks


def stage(make, number, count, first_gets):
    """The whole model less what other stages have. first_gets: how many blocks more the first stage has than an even share."""
    part = make()
    layers = len(part.blocks)
    ends = [layers * (n + 1) // count for n in range(count)]
    ends = [min(end + first_gets, layers) for end in ends]
    begin, end = ends[number - 1] if number else 0, ends[number]
    for n in range(layers):
        if not begin <= n < end:
            del part.blocks[str(n)]
    if number > 0:
        part.embedding = None
    if number < count - 1:
        part.norm = part.head = None
    return part


def optimizer_of(case, parts, layout):
    o = case["optimizer"]
    kind = {"sgd": torch.optim.SGD, "momentum": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[o["name"]]
    options = {"lr": 0.01, "foreach": o["foreach"], **({"momentum": 0.9} if o["name"] == "momentum" else {}), **({"weight_decay": 0.1} if o["name"] == "adamw" else {})}
    parameters = [one for part in parts for one in part.parameters() if one.requires_grad] or [nn.Parameter(torch.zeros(1))]  # all of a stage may be frozen
    if case["parallel"]["zero1"] and layout.dp is not None and layout.fsdp is None:
        return ZeroRedundancyOptimizer(parameters, optimizer_class=kind, process_group=layout.dp.get_group(),
                                       parameters_as_bucket_view=case["parallel"]["zero_view"], **options)
    return kind(parameters, **options)


def clip(case, parts, layout, device):
    """Clips and returns the norm of all gradients, over a pipeline's stages too. torch puts the norm of no gradients on the CPU."""
    most = case["optimizer"]["clip"]
    parameters = [one for part in parts for one in part.parameters() if one.grad is not None]
    if layout.pp is None:
        total = nn.utils.clip_grad_norm_(parameters, most)
        return total.full_tensor() if isinstance(total, DTensor) else total
    total = nn.utils.get_total_norm([one.grad for one in parameters])
    total = (total.full_tensor() if isinstance(total, DTensor) else total).to(device) ** 2
    dist.all_reduce(total, group=layout.pp.get_group())
    total = total ** 0.5
    nn.utils.clip_grads_with_norm_(parameters, most, total)
    return total


def make(case, mesh, fill, device=torch.device("cpu")):
    run = _Run(case, mesh, fill, device)
    return run.model, run.optimizer, run.step


class _Run:
    """The training of this rank. Before step checkpoint.before it is saved, and loaded into a new model in the layout that checkpoint.into names."""

    def __init__(self, case, mesh, fill, device):
        self.case, self.mesh, self.fill, self.device = case, mesh, fill, device
        self._build(case)

    def _build(self, case):
        layout = self.layout = Layout(case, self.mesh)

        def whole():
            model = Model(case["model"])
            self.fill(model)
            freeze(model, case["model"]["frozen"])
            return model.to(self.device)
        if layout.pp is None:
            parts = [whole()]
        else:
            mine, count = stages_of(case)
            parts = [stage(whole, number, count, case["parallel"]["first_gets"]) for number in mine[layout.pp.get_local_rank()]]
        self.parts = parts if layout.mesh is None else [wrap(part, case, layout) for part in parts]
        self.model = self.parts if layout.pp is not None else self.parts[0]
        self.optimizer = optimizer_of(case, self.parts, layout)
        self.pass_ = _Pipeline(case, self.parts, layout, self.device) if layout.pp is not None else _Plain(case, self.parts[0], layout)
        if layout.pp is not None:
            self.pass_.prepare(self._data(0))

    def _data(self, number):
        return Data(self.case, number, self.layout.data_index, self.layout.data_ranks, self.device, self.layout.parts)

    def step(self, number, trace):
        if self.mesh is not None and number > 0 and number == self.case["checkpoint"]["before"]:
            self._reload()
            trace.replace(self.model, self.optimizer)
        self.optimizer.zero_grad()
        self.pass_(self._data(number), trace)
        trace.gradients()
        if self.case["optimizer"]["clip"]:
            trace.scalar("grad_norm", clip(self.case, self.parts, self.layout, self.device))
        self.optimizer.step()

    def _state(self):
        options = StateDictOptions(flatten_optimizer_state_dict=True)
        return {"model": get_model_state_dict(self.parts[0]), "optimizer": get_optimizer_state_dict(self.parts[0], self.optimizer, options=options)}

    def _reload(self):
        folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(folder)
        dcp.save(self._state(), checkpoint_id=folder[0])
        sizes = self.case["layout"]
        data, into = sizes["dp"] * sizes["fsdp"], self.case["checkpoint"]["into"]
        sizes = sizes if into == "same" else {**sizes, "dp": data if into == "dp" else 1, "fsdp": data if into == "fsdp" else 1}
        before, self.fill = self.fill, lambda model: [nn.init.constant_(one, 0.5) for one in model.parameters()]
        self._build({**self.case, "layout": sizes})
        self.fill = before
        state = self._state()
        dcp.load(state, checkpoint_id=folder[0])
        set_model_state_dict(self.parts[0], state["model"])
        set_optimizer_state_dict(self.parts[0], self.optimizer, state["optimizer"], options=StateDictOptions(flatten_optimizer_state_dict=True))
        dist.barrier()
        if dist.get_rank() == 0:
            shutil.rmtree(folder[0])


@contextlib.contextmanager
def own_part(case, layout, *tensors):
    """Gives this rank's part of the length of tensors [rows, length, ..]. Inside, attention sees the whole length."""
    if layout.cp is None:
        yield tensors
        return
    set_rotate_method(case["parallel"]["cp_rotate"])
    _cp_options.enable_load_balance = case["parallel"]["cp_balance"]
    tensors = [one.clone() for one in tensors]
    with flash_on_cpu(), context_parallel(layout.cp, buffers=tensors, buffer_seq_dims=[1] * len(tensors), no_restore_buffers=set(tensors)):
        yield tensors


class _Plain:
    """Microbatch after microbatch; data-parallel ranks communicate in the last one alone, if the case says so."""

    def __init__(self, case, model, layout):
        self.case, self.model, self.layout = case, model, layout

    def forward(self, tokens):
        """A reference in bf16 computes with parameters that were rounded, as FSDP does, and has gradients in fp32."""
        if self.case["dtype"] == "float32" or isinstance(self.model, FSDPModule):
            return self.model(tokens)
        rounded = {name: parameter.to(torch.bfloat16) for name, parameter in self.model.named_parameters()}
        return torch.func.functional_call(self.model, rounded, (tokens,))

    def __call__(self, data, trace):
        microbatches = len(data.tokens)
        for k in range(microbatches):
            trace.microbatch(k)
            last = k == microbatches - 1
            lazy = not last and (self.case["parallel"]["lazy_sync"] == "always" or self.case["parallel"]["lazy_sync"] == "later" and data.step > 0)
            if isinstance(self.model, FSDPModule):
                self.model.set_requires_gradient_sync(not lazy)
                self._run(data, k, trace)
            elif isinstance(self.model, DistributedDataParallel) and lazy:
                with self.model.no_sync():
                    self._run(data, k, trace)
            else:
                self._run(data, k, trace)

    def _run(self, data, k, trace):
        with own_part(self.case, self.layout, data.tokens[k], data.labels[k]) as (tokens, labels):
            loss = loss_of(self.forward(tokens), labels, data.counts[k])
            trace.scalar("loss", loss.detach())
            (loss / len(data.tokens)).backward()


class _Pipeline:
    """One of torch's schedules; it sends, receives, and divides gradients by the number of microbatches."""

    def __init__(self, case, parts, layout, device):
        self.case, self.layout, self.parts, self.microbatches = case, layout, parts, case["data"]["microbatches"]
        mine, count = stages_of(case)
        self.numbers = mine[layout.pp.get_local_rank()]
        self.first, self.last = 0 in self.numbers, count - 1 in self.numbers
        stages = [PipelineStage(part, number, count, device, group=layout.pp.get_group()) for part, number in zip(parts, self.numbers)]
        several = case["parallel"]["schedule"] in SEVERAL
        self.data = None
        self.schedule = SCHEDULES[case["parallel"]["schedule"]](stages if several else stages[0], self.microbatches, loss_fn=self._loss)

    @staticmethod
    def _loss(logits, labels):
        return loss_of(logits, labels[..., 0].long(), labels[0, 0, 1])

    def prepare(self, data):
        """A step for nothing: in its first one a schedule runs the stages on values of no meaning, to learn the shapes of their outputs."""
        self._run(data)
        for part in self.parts:
            part.zero_grad()

    def __call__(self, data, trace):
        for k, loss in enumerate(self._run(data)):
            trace.microbatch(k)
            trace.scalar("loss", loss.detach())

    def _run(self, data):
        counts = torch.tensor(data.counts, dtype=torch.float64, device=data.labels.device).reshape(-1, 1, 1)
        labels = torch.stack([data.labels.double(), counts.expand(data.labels.shape).double()], -1).flatten(0, 1)  # a loss knows its microbatch's count by it
        losses = []
        with own_part(self.case, self.layout, data.tokens.flatten(0, 1), labels) as (tokens, labels):
            targets = {"target": labels, "losses": losses} if self.last else {}
            self.schedule.step(*([tokens] if self.first else []), **targets)
        return losses
