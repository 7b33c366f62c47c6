"""A small language model, made of one device's layers in plain PyTorch or of neuronx_distributed's."""
import inspect
import math

import torch
import torch.nn.functional as F
from torch import nn

from .cuts import copies_of_keys

IGNORED = -100


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
