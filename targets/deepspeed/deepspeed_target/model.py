"""The small transformer that is trained: torch alone, but for what programs put in place of some of its modules."""
import torch
import torch.nn.functional as F
import torch.utils.checkpoint

VOCAB = 16
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Embedding(torch.nn.Embedding):
    """Weights may be kept in more precision than the model computes in: the reference trains what DeepSpeed calls master weights."""

    def __init__(self, size, precision):
        super().__init__(VOCAB, size)
        self.dtype = DTYPES[precision]

    def forward(self, ids):
        return F.embedding(ids, self.weight.to(self.dtype))


class Linear(torch.nn.Linear):
    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype), None if self.bias is None else self.bias.to(x.dtype))


class Norm(torch.nn.LayerNorm):
    def forward(self, x):
        return F.layer_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.bias.to(x.dtype))


class Core(torch.nn.Module):
    """Attention of (rows, tokens, heads, channels)."""

    def forward(self, query, key, value):
        query, key, value = (one.transpose(1, 2) for one in (query, key, value))
        scores = query @ key.transpose(2, 3) / query.shape[-1] ** 0.5
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return (scores.masked_fill(hidden, -10000.0).softmax(-1) @ value).transpose(1, 2)


class Attention(torch.nn.Module):
    def __init__(self, size, heads, bias, fused):
        super().__init__()
        self.num_heads, self.core, self.spread = heads, Core(), None     # tensor parallelism divides an attribute of that name
        if fused:
            self.qkv = Linear(size, 3 * size, False)
        else:
            self.query, self.value = (Linear(size, size, bias) for _ in range(2))
            self.key = Linear(size, size, False)  # the gradient of its bias would be rounding alone
        self.out = Linear(size, size, bias)

    def forward(self, x):
        parts = self.qkv(x).chunk(3, -1) if hasattr(self, "qkv") else [one(x) for one in (self.query, self.key, self.value)]
        parts = [one.unflatten(2, (self.num_heads, -1)) for one in parts]
        mixed = self.core(*parts) if self.spread is None else self.spread(*parts)
        return self.out(mixed.flatten(2))


class Feed(torch.nn.Module):
    def __init__(self, model, size):
        super().__init__()
        self.up, self.down = Linear(size, model["ffn"], model["bias"]), Linear(model["ffn"], size, model["bias"])

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Experts(torch.nn.Module):
    """Experts, of which each token uses some. The modules have the names that they have in DeepSpeed's MoE, and as its, the result is the first of several."""

    def __init__(self, model, size):
        super().__init__()
        self.active, self.deepspeed_moe = model["active"], torch.nn.Module()
        self.deepspeed_moe.gate, self.deepspeed_moe.experts = torch.nn.Module(), torch.nn.Module()
        self.deepspeed_moe.gate.wg = torch.nn.Linear(size, model["experts"], bias=False)
        self.deepspeed_moe.experts.deepspeed_experts = torch.nn.ModuleList(Feed(model, size) for _ in range(model["experts"]))

    def forward(self, x):
        shares = F.linear(x.float(), self.deepspeed_moe.gate.wg.weight.float()).softmax(-1)
        shares = shares * torch.zeros_like(shares).scatter(-1, shares.topk(self.active).indices, 1)
        if self.active > 1:
            shares = shares / shares.sum(-1, keepdim=True)
        return sum(shares[..., n, None].to(x.dtype) * expert(x) for n, expert in enumerate(self.deepspeed_moe.experts.deepspeed_experts)),


class Block(torch.nn.Module):
    def __init__(self, model, size):
        super().__init__()
        self.norm = Norm(size)
        self.attention = Attention(size, model["heads"], model["bias"], model["fused"]) if model["attention"] else None
        if model["experts"]:
            self.moe = Experts(model, size)
            return
        if model["fused"]:
            self.gate_up = Linear(size, 2 * model["ffn"], model["bias"])
        else:
            self.up = Linear(size, model["ffn"], model["bias"])
        self.down = Linear(model["ffn"], size, model["bias"])

    def forward(self, x):
        if self.attention is not None:
            x = x + self.attention(x)
        return x + self.feed(self.norm(x))

    def feed(self, x):
        if hasattr(self, "moe"):
            return self.moe(x)[0]
        if hasattr(self, "up"):
            return self.down(F.gelu(self.up(x)))
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)


class Model(torch.nn.Module):
    def __init__(self, case):
        super().__init__()
        model, size = case["model"], case["model"]["hidden"]
        self.order, self.recompute = list(range(model["layers"])) * model["uses"], model["recompute"]
        self.embedding = Embedding(size, case["train"]["precision"])
        self.layers = torch.nn.ModuleList(Block(model, size) for _ in range(model["layers"]))
        self.head = Linear(size, VOCAB, model["bias"])
        if model["tied"]:
            self.head.weight = self.embedding.weight
        self.extra = Linear(size, size, False) if model["extra"] != "none" else None
        frozen = {"none": [], "embedding": [self.embedding], "first_layer": [self.layers[0]], "norms": [one.norm for one in self.layers]}
        for module in frozen[model["frozen"]]:
            module.requires_grad_(False)

    def forward(self, ids, use_extra=False):
        x = self.embedding(ids)
        for number in self.order:
            if self.recompute == "none":
                x = self.layers[number](x)
            else:
                x = torch.utils.checkpoint.checkpoint(self.layers[number], x, use_reentrant=self.recompute == "reentrant")
        return self.head(x + self.extra(x) if use_extra else x)


def uses_extra(case, microbatch):
    """Whether a microbatch uses the extra layer; one that no microbatch uses has a gradient of zeros."""
    return case["model"]["extra"] == "odd" and microbatch % 2 == 1


def loss_of(logits, labels, tokens):
    return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), reduction="sum") / tokens
