"""Training of a small language model with neuronx-distributed in its CPU mode, on Gloo, and the same on one device in plain PyTorch.

The library imports torch_xla, torch_neuronx and neuronxcc, which need AWS's hardware. What stands in for them here computes on the CPU: torch_xla's
collectives by torch.distributed, and its ZeRO-1 optimizer as it is in the package.
"""
import contextlib
import importlib.abc
import importlib.machinery
import inspect
import math
import os
import shutil
import sys
import tempfile
import types

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

IGNORED = -100


# --- what stands in for the packages of the hardware ---

class Any(type):
    """Of classes that have every attribute, each a class of the same kind."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Any(name, (cls,), {})


class Nothing(metaclass=Any):
    """What is imported of the hardware's packages and never used."""

    def __init__(self, *_, **__):
        pass

    def __call__(self, *_, **__):
        return Nothing()


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes modules of these packages, whose attributes are classes of nothing."""

    def __init__(self, *packages):
        self.packages = packages

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.split(".")[0] in self.packages else None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = lambda name: self.attribute(module, name)
        return module

    def exec_module(self, module):
        module.__path__ = []

    @staticmethod
    def attribute(module, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return sys.modules.get(f"{module.__name__}.{name}") or getattr(Nothing, name)


class Platform:
    name = "trn1"


class Collectives:
    """torch_xla.core.xla_model, as far as training uses it. groups: of all ranks, lists of ranks."""

    REDUCE_SUM, REDUCE_MAX, REDUCE_MIN = "sum", "max", "min"
    OPERATIONS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}
    kept = {}

    @classmethod
    def group(cls, groups):
        if groups is None:
            return dist.group.WORLD
        for ranks in groups:
            if tuple(ranks) not in cls.kept:
                cls.kept[tuple(ranks)] = dist.new_group(list(ranks))
        return cls.kept[next(tuple(ranks) for ranks in groups if dist.get_rank() in ranks)]

    @classmethod
    def all_reduce(cls, kind, inputs, scale=1.0, groups=None, pin_layout=True):
        """In place where a list is given, as in torch_xla."""
        found = []
        for one in inputs if isinstance(inputs, list) else [inputs.clone()]:
            dist.all_reduce(one, cls.OPERATIONS[kind], cls.group(groups))
            found.append(one.mul_(scale) if scale != 1 else one)
        return found if isinstance(inputs, list) else found[0]

    @classmethod
    def all_gather(cls, value, dim=0, groups=None, output=None, pin_layout=True):
        group = cls.group(groups)
        parts = [torch.empty_like(value, memory_format=torch.contiguous_format) for _ in range(group.size())]
        dist.all_gather(parts, value.contiguous(), group)
        return torch.cat(parts, dim)

    @classmethod
    def reduce_scatter(cls, kind, value, scale, scatter_dim, shard_count, groups=None, output=None, pin_layout=True):
        value, group = value.clone(memory_format=torch.contiguous_format), cls.group(groups)
        dist.all_reduce(value, cls.OPERATIONS[kind], group)
        part = value.chunk(shard_count, scatter_dim)[group.rank()] * scale
        return part if output is None else output.copy_(part)

    @classmethod
    def all_gather_bucketized(cls, values, dim=0, groups=None, output=None, pin_layout=False, bucket_cap_mb=160):
        return [cls.all_gather(value, dim, groups) for value in values]

    @classmethod
    def reduce_scatter_bucketized(cls, kind, values, scale, scatter_dim, shard_count, groups=None, output=None, pin_layout=False, bucket_cap_mb=160):
        return [cls.reduce_scatter(kind, value, scale, scatter_dim, shard_count, groups) for value in values]

    @classmethod
    def all_to_all(cls, value, split_dimension, concat_dimension, split_count, groups=None, pin_layout=True):
        group = cls.group(groups)
        parts = [one.contiguous() for one in value.chunk(split_count, split_dimension)]
        found = [torch.empty_like(one) for one in parts]
        for to in range(group.size()):      # Gloo has no all_to_all
            dist.scatter(found[to], parts if to == group.rank() else None, group=group, group_src=to)
        return torch.cat(found, concat_dimension)


class Arena:
    """torch_xla's ToXlaTensorArena: convert(tensors) takes the place of those that select(tensor) chooses, in dictionaries and lists of any depth."""

    def __init__(self, convert, select):
        self.convert, self.select = convert, select

    def transform(self, data):
        if isinstance(data, dict):
            return type(data)((key, self.transform(value)) for key, value in data.items())
        if isinstance(data, (list, tuple)):
            return type(data)(self.transform(value) for value in data)
        return self.convert([data])[0] if self.select(data) else data


def stand_in():
    """Lets the library be imported."""
    if "torch_xla" in sys.modules:
        return
    os.environ.update(NXD_CPU_MODE="1", PJRT_DEVICE="NEURON", NXD_LOG_LEVEL="error")
    sys.meta_path.insert(0, Absent("torch_xla", "torch_neuronx", "neuronxcc", "libneuronxla", "nki", "nkilib"))
    sys.meta_path.append(Absent("requests", "tenacity", "boto3", "botocore"))     # of checkpoints in Amazon's storage
    torch.classes.neuron = Nothing
    import torch_neuronx.utils
    import torch_xla.core.xla_model as model
    import torch_xla.runtime as runtime
    import torch_xla.utils.checkpoint as checkpoint
    import neuronxcc.nki._pre_prod_kernels.collectives as pairs
    for name in ("REDUCE_SUM", "REDUCE_MAX", "REDUCE_MIN", "all_reduce", "all_gather", "reduce_scatter", "all_gather_bucketized", "reduce_scatter_bucketized",
                 "all_to_all"):
        setattr(model, name, getattr(Collectives, name))
    model.rendezvous, model.ToXlaTensorArena = lambda *_: dist.barrier(), Arena
    for name in ("mark_step", "unlazy", "add_step_closure"):
        setattr(model, name, lambda *_, **__: None)
    model.xla_device, model.is_master_ordinal = lambda *_: torch.device("cpu"), lambda *_: dist.get_rank() == 0
    runtime.global_ordinal, runtime.global_device_count, runtime.local_ordinal = dist.get_rank, dist.get_world_size, dist.get_rank
    runtime.world_size = runtime.local_process_count = dist.get_world_size
    checkpoint.checkpoint = torch.utils.checkpoint.checkpoint
    torch_neuronx.utils.get_platform_target = lambda: Platform.name
    pairs.CollectivesConfig = lambda replica_groups: types.SimpleNamespace(rank_src_tgt_pairs={rank: [] for ranks in replica_groups for rank in ranks})
    zero_one()
    from neuronx_distributed.parallel_layers import comm, grads
    # In its CPU mode the library's all_reduce takes no lists of ranks, which clipping under ZeRO-1 gives it.
    grads.all_reduce = lambda kind, inputs, groups, pin_layout=True: comm.all_reduce(
        kind, inputs, Collectives.group(groups) if isinstance(groups, list) else groups, pin_layout)


def zero_one():
    """torch_xla's ZeRO-1 optimizer from its package, on the CPU."""
    import torch_xla.distributed
    name = "torch_xla.distributed.zero_redundancy_optimizer"
    path = next((found for found in (os.path.join(folder, *name.split(".")) + ".py" for folder in sys.path) if os.path.exists(found)), None)
    if path is None:
        raise ImportError("torch-xla is not installed: its ZeRO-1 optimizer is needed")
    module = types.ModuleType(name)
    with open(path, encoding="utf-8") as file:
        exec(compile(file.read().replace("assert self.device.type == 'xla'", ""), path, "exec"), module.__dict__)
    sys.modules[name] = torch_xla.distributed.zero_redundancy_optimizer = module


# --- the model, made of one device's layers or of the library's ---

class OneDevice:
    """Layers in plain PyTorch. Those of Library have the same parameters, cut over its ranks."""

    tp = 1

    def __init__(self, case):
        self.model, self.loss_options, self.dtype = case["model"], case["loss"], torch.float32

    def embedding(self, rows, width, padding):
        return nn.Embedding(rows, width, padding_idx=padding, dtype=self.dtype)

    def column(self, width, out, bias, halves=1):
        return nn.Linear(width, out, bias=bias, dtype=self.dtype)

    def row(self, width, out, bias):
        return nn.Linear(width, out, bias=bias, dtype=self.dtype)

    def head(self, width, out):
        return nn.Linear(width, out, bias=False, dtype=self.dtype)

    def norm(self, width):
        return nn.LayerNorm(width, dtype=self.dtype) if self.model["norm"] == "layer" else RootMeanSquare(width, self.dtype)

    def joint(self, width, queries, keys, bias, fused):
        return Joint(width, queries, keys, bias, fused, self.dtype)

    def experts(self):
        return Experts(self.model, self.dtype)

    def sequence_first(self, hidden):
        return hidden.transpose(0, 1).contiguous()

    def whole_sequence(self, hidden):
        return hidden

    def loss(self, logits, labels):
        """Of each token. With smoothing the true class has 1 - smoothing, and every other an equal share of it, as the library documents."""
        scores, smoothing = F.log_softmax(logits, -1), self.loss_options["smoothing"]
        chosen = scores.gather(-1, labels[..., None])[..., 0]
        others = (scores.sum(-1) - chosen) / (scores.shape[-1] - 1)
        return -(1 - smoothing) * chosen - smoothing * others


class RootMeanSquare(nn.Module):
    def __init__(self, width, dtype):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width, dtype=dtype))

    def forward(self, x):
        wide = x.float()
        return (self.weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5))).to(x.dtype)


class Joint(nn.Module):
    """Queries, keys and values from one input, in one weight or in three."""

    def __init__(self, width, queries, keys, bias, fused, dtype):
        super().__init__()
        self.sizes, self.fused = (queries, keys, keys), fused
        for name, rows in (("qkv", queries + 2 * keys),) if fused else zip("qkv", self.sizes):
            setattr(self, f"weight_{name}", nn.Parameter(torch.empty(rows, width, dtype=dtype)))
            setattr(self, f"bias_{name}", nn.Parameter(torch.empty(rows, dtype=dtype)) if bias else None)

    def forward(self, x):
        if self.fused:
            return F.linear(x, self.weight_qkv, self.bias_qkv).split(self.sizes, -1)
        return tuple(F.linear(x, getattr(self, f"weight_{name}"), getattr(self, f"bias_{name}")) for name in "qkv")


class Experts(nn.Module):
    """Experts [s, b, width] to [s, b, width], each of which computes every token. Its modules have the names of the library's MoE."""

    def __init__(self, m, dtype):
        super().__init__()
        count, width, inner = m["experts"], m["width"], m["inner"]
        self.m, self.router, self.expert_mlps = m, nn.Module(), nn.Module()
        self.router.linear_router, self.expert_mlps.mlp_op = nn.Linear(width, count, bias=False, dtype=dtype), nn.Module()
        self.up, self.down = nn.Module(), nn.Module()
        self.up.weight = nn.Parameter(torch.empty(count, width, inner * (2 if m["gated"] else 1), dtype=dtype))
        self.down.weight = nn.Parameter(torch.empty(count, inner, width, dtype=dtype))
        setattr(self.expert_mlps.mlp_op, "gate_up_proj" if m["gated"] else "up_proj", self.up)
        self.expert_mlps.mlp_op.down_proj = self.down
        del self.up, self.down

    def forward(self, x):
        m, operations = self.m, self.expert_mlps.mlp_op
        scores = self.router.linear_router(x)
        chosen = torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, scores.topk(m["active"]).indices, True)
        shares = scores.double().softmax(-1) if m["router"] == "softmax" else scores.double().sigmoid()
        shares = shares.to(x.dtype).masked_fill(~chosen, 0)
        if m["normalized"] and m["active"] > 1:
            shares = F.normalize(shares, p=1.0, dim=-1)
        hidden = torch.einsum("sbh,ehi->esbi", x, (operations.gate_up_proj if m["gated"] else operations.up_proj).weight)
        gate, *value = hidden.chunk(2 if m["gated"] else 1, -1)
        hidden = F.silu(gate) * value[0] if m["gated"] else F.gelu(gate)
        return torch.einsum("esbi,eih,sbe->sbh", hidden, operations.down_proj.weight, shares),


class Library(OneDevice):
    """The same layers of neuronx-distributed. Activations are [sequence, batch, width], as sequence parallelism wants them."""

    def __init__(self, case):
        super().__init__(case)
        from neuronx_distributed.modules import qkv_linear, rms_norm
        from neuronx_distributed.parallel_layers import layer_norm, layers, loss_functions, mappings
        self.layers, self.norms, self.qkv, self.mappings = layers, (layer_norm.LayerNorm, rms_norm.RMSNorm), qkv_linear, mappings
        self.cross_entropy = loss_functions.parallel_cross_entropy
        self.dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}[case["train"]["precision"]]
        self.tp, self.ep, self.split = case["layout"]["tp"], case["layout"]["ep"], case["layout"]["sequence_parallel"]
        self.options = {"dtype": self.dtype, "sequence_parallel_enabled": self.split, "sequence_dimension": 0}

    def embedding(self, rows, width, padding):
        across = self.model["embedding"] == "columns"
        return self.layers.ParallelEmbedding(rows, width, padding_idx=padding, dtype=self.dtype, shard_across_embedding=across,
                                             sequence_parallel_enabled=self.split and not across)

    def column(self, width, out, bias, halves=1):
        return self.layers.ColumnParallelLinear(width, out, bias=bias, gather_output=False, stride=halves, **self.options)

    def row(self, width, out, bias):
        return self.layers.RowParallelLinear(width, out, bias=bias, input_is_parallel=True, **self.options)

    def head(self, width, out):
        if self.model["gathered"]:
            return self.layers.ColumnParallelLinear(width, out, bias=False, gather_output=True, dtype=self.dtype)
        return self.column(width, out, False)

    def norm(self, width):
        layer, root = self.norms
        if self.model["norm"] == "layer":
            return layer(width, dtype=self.dtype, sequence_parallel_enabled=self.split)
        return root(width, sequence_parallel_enabled=self.split).to(self.dtype)

    def joint(self, width, queries, keys, bias, fused):
        return self.qkv.GQAQKVColumnParallelLinear(width, [queries, keys], bias=bias, gather_output=False, dtype=self.dtype, fuse_qkv=fused,
                                                   sequence_parallel_enabled=self.split, kv_size_multiplier=copies_of_keys(self.model, self.tp))

    def experts(self):
        from neuronx_distributed.modules.moe import expert_mlps, model, routing
        m = self.model
        tokens = {"sequence_parallel_enabled": self.split, "sequence_dimension": 0}
        router = routing.RouterTopK(m["experts"], m["active"], m["width"], act_fn=m["router"], dtype=self.dtype,
                                    **(tokens if m["router_tokens"] == "own" else {}))
        # Just below what the library takes for no capacity at all, and rounded up to all tokens.
        capacity = {"none": None, "all": 0.999 * m["experts"] / m["active"]}[m["capacity"]]
        options = {"sequence_parallel_enabled": self.split, "enable_spmd_rank": self.ep > 1}      # which releases up to 2.24 do not know
        known = inspect.signature(expert_mlps.ExpertMLPs).parameters
        mlps = expert_mlps.ExpertMLPs(m["experts"], m["active"], m["width"], m["inner"], hidden_act="silu" if m["gated"] else "gelu", glu_mlp=m["gated"],
                                      capacity_factor=capacity, normalize_top_k_affinities=m["normalized"] and m["active"] > 1, dtype=self.dtype,
                                      **{name: value for name, value in options.items() if name in known})
        return model.MoE(router, mlps, **tokens)

    def sequence_first(self, hidden):
        if not self.split:
            return super().sequence_first(hidden)
        # Cut by its rows the library's embedding puts the sequence first itself.
        return hidden if self.model["embedding"] == "rows" else self.mappings.scatter_to_sequence_parallel_region(hidden.transpose(0, 1), 0)

    def whole_sequence(self, hidden):
        return self.mappings.gather_from_sequence_parallel_region(hidden, 0, to_model_parallel=False) if self.split else hidden

    def loss(self, logits, labels):
        if self.model["gathered"]:
            return super().loss(logits, labels)
        return self.cross_entropy(logits, labels, self.loss_options["smoothing"])


def copies_of_keys(m, tp):
    """On how many ranks each head of keys and values lies, where there are fewer of them than ranks."""
    return max(1, tp // m["kv_heads"])


class Core(nn.Module):
    """Causal attention of this rank's heads: queries [s, b, heads, size], keys and values [s, b, kv heads, size] to [s, b, heads x size]."""

    def forward(self, q, k, v):
        q, k, v = (one.permute(1, 2, 0, 3) for one in (q, k.repeat_interleave(q.shape[2] // k.shape[2], 2), v.repeat_interleave(q.shape[2] // v.shape[2], 2)))
        scores = (q @ k.mT / math.sqrt(q.shape[-1])).float()
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return (scores.masked_fill(later, -1e9).softmax(-1).to(v.dtype) @ v).permute(2, 0, 1, 3).flatten(2).contiguous()


class Dense(torch.autograd.Function):
    """Nothing, with a gradient whose elements lie in order: the library's layers view it, and the hardware has no other."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.contiguous()


class Attention(nn.Module):
    def __init__(self, make, m):
        super().__init__()
        size, keys = m["head_size"], m["kv_heads"] * m["head_size"]
        self.size, self.joint = size, None
        if m["attention"] == "separate":
            # A bias of keys changes nothing: its gradient is rounding alone.
            self.q, self.k, self.v = (make.column(m["width"], out, bias) for out, bias in ((m["heads"] * size, m["bias"]), (keys, False), (keys, m["bias"])))
        else:
            self.joint = make.joint(m["width"], m["heads"] * size, keys, m["bias"], m["attention"] == "fused")
        self.core, self.out = Core(), make.row(m["heads"] * size, m["width"], m["bias"])

    def forward(self, x):
        parts = (self.q(x), self.k(x), self.v(x)) if self.joint is None else self.joint(x)
        return self.out(self.core(*(Dense.apply(one).unflatten(-1, (-1, self.size)) for one in parts)))


class Gate(nn.Module):
    """Halves [gate, value] of the last dimension to their product."""

    def forward(self, x):
        gate, value = x.chunk(2, -1)
        return F.silu(gate) * value


class Feed(nn.Module):
    def __init__(self, make, m):
        super().__init__()
        self.up = make.column(m["width"], m["inner"] * (2 if m["gated"] else 1), m["bias"], halves=2 if m["gated"] else 1)
        self.act = Gate() if m["gated"] else nn.GELU()
        self.down = make.row(m["inner"], m["width"], m["bias"])

    def forward(self, x):
        return self.down(self.act(self.up(x)))


class Sparse(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.moe = make.experts()

    def forward(self, x):
        return self.moe(x)[0]


class Layer(nn.Module):
    def __init__(self, make, m):
        super().__init__()
        self.norm1, self.attention = make.norm(m["width"]), Attention(make, m)
        self.norm2, self.feed = make.norm(m["width"]), Sparse(make) if m["experts"] else Feed(make, m)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.feed(self.norm2(x))


class Loss(nn.Module):
    """The mean over all tokens of a batch [b, s], of which ignored ones have none."""

    def __init__(self, of_tokens):
        super().__init__()
        self.of_tokens = of_tokens

    def forward(self, logits, labels):
        losses = self.of_tokens(logits.float(), labels.clamp(min=0).T.contiguous())
        return (losses * (labels != IGNORED).T).sum() / labels.numel()


class Head(nn.Module):
    """[s, b, width] to logits [s, b, vocabulary], of the whole sequence."""

    def __init__(self, make, m):
        super().__init__()
        self.project, self.whole = make.head(m["width"], m["vocabulary"]), make.whole_sequence if m["gathered"] else None

    def forward(self, x):
        return self.project(x if self.whole is None else self.whole(x))


class Embed(nn.Module):
    """Tokens [b, s] to [s, b, width]."""

    def __init__(self, make, m):
        super().__init__()
        self.table = make.embedding(m["vocabulary"], m["width"], m["padding"] if m["padding"] >= 0 else None)
        self.turn = make.sequence_first

    def forward(self, tokens):
        return self.turn(self.table(tokens))


class Model(nn.Module):
    """A language model: tokens and labels [b, s] to the loss. frozen: modules whose parameters are not trained."""

    def __init__(self, make, m):
        super().__init__()
        self.embed, self.layers = Embed(make, m), nn.ModuleList(Layer(make, m) for _ in range(m["layers"]))
        self.norm, self.head, self.loss = make.norm(m["width"]), Head(make, m), Loss(make.loss)
        if m["tied"]:
            self.head.project.weight = self.embed.table.weight
        for name, parameter in self.named_parameters():
            if f".{m['frozen']}." in f".{name}":
                parameter.requires_grad_(False)

    def forward(self, tokens, labels):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.loss(self.head(self.norm(x)), labels)


# --- the training ---

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
        inner = self.updates.optimizer
        clip, change = (inner, "_clip_grad_norm") if self.case["train"]["zero"] else (grads, "clip_grad_norm"), "_update_parameters"
        with before(*clip, trace.gradients), around(inner, change if self.case["train"]["zero"] else "step", trace.update):
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
    @contextlib.contextmanager
    def first():
        action()
        yield
    return around(owner, name, first)


# --- which part of a tensor a rank has ---

def parts_of(name, case, ranks):
    """[(dimension, its size, [(first, count) ..]) ..] of a parameter's dimensions that are cut. ranks: this one's, {"tp", "ep"}."""
    layer, kind = name.rsplit(".", 2)[-2:]
    kind, _, of = kind.partition("_")
    found, count, ep = features_of(of or layer, case, ranks["tp"]), case["model"]["experts"], case["layout"]["ep"]
    if found is None or kind == "bias" and layer in ROWS:
        return []
    if layer.endswith("_proj"):
        return [(0, count, [(ranks["ep"] * count // ep, count // ep)]), (1 if layer == "down_proj" else 2, *found)]
    return [(int(layer in ROWS or layer == "table" and case["model"]["embedding"] == "columns"), *found)]


ROWS = ("out", "down")


def features_of(layer, case, rank):
    """(size, [(first, count) ..]) of the features that a layer has cut over the ranks: of rows' layers their inputs."""
    m, tp = case["model"], case["layout"]["tp"]

    def part(size, begin=0):
        return begin + rank * size // tp, size // tp
    queries, keys, copies = m["heads"] * m["head_size"], m["kv_heads"] * m["head_size"], copies_of_keys(m, tp)
    groups = tp // copies     # of ranks, each with its own heads of keys; on trn1 copies of one are not on neighbours
    group, copy = (rank % groups, rank // groups) if case["layout"]["platform"] == "trn1" else (rank // copies, rank % copies)
    heads, mine = (group * queries // groups + copy * queries // tp, queries // tp), (group * keys // groups, keys // groups)
    inner, across = part(m["inner"]), m["embedding"] == "columns"
    sizes = {"q": (queries, [heads]), "k": (keys, [mine]), "v": (keys, [mine]), "core": (queries, [heads]), "out": (queries, [heads]),
             "qkv": (queries + 2 * keys, [heads, (queries + mine[0], mine[1]), (queries + keys + mine[0], mine[1])]),
             "up": (2 * m["inner"], [inner, part(m["inner"], m["inner"])]) if m["gated"] else (m["inner"], [inner]),
             "act": (m["inner"], [inner]), "down": (m["inner"], [inner]), "down_proj": (m["inner"], [inner]), "up_proj": (m["inner"], [inner]), "project": (m["vocabulary"], [part(m["vocabulary"])]),
             "table": (m["width"], [part(m["width"])]) if across else (m["vocabulary"], [part(m["vocabulary"])])}
    sizes["gate_up_proj"] = sizes["up"]
    return sizes.get(layer)


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
    """The parameter: its master weight where there is one. Not what the library keeps as one: a number of this rank or of its experts."""
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
