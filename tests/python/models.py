"""A small transformer, its layouts in PyTorch's own parallelism, and two mistakes to plant in them."""
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, parallelize_module)

import shardfuzz

HIDDEN, HEADS, VOCAB, LAYERS, SEQUENCES, LENGTH = 32, 4, 48, 2, 4, 8


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(4))

    def forward(self, x):
        heads = [one(x).unflatten(-1, (-1, HIDDEN // HEADS)).transpose(1, 2) for one in (self.q, self.k, self.v)]
        return self.o(nn.functional.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.attention = Attention()
        self.fc1, self.act, self.fc2 = nn.Linear(HIDDEN, 4 * HIDDEN), nn.GELU(), nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.fc2(self.act(self.fc1(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def data():
    """Tokens and labels of the whole batch, [sequences, length] both; drawn from torch's generator, which each step seeds anew."""
    tokens = torch.randint(VOCAB, (SEQUENCES, LENGTH + 1))
    return tokens[:, :-1], tokens[:, 1:]


def rows(tensor, group):
    """A data-parallel rank's part of the batch."""
    return tensor if group is None else tensor.chunk(group.size())[group.get_local_rank()]


def train_step(model, optimizer, group=None):
    tokens, labels = (rows(one, group) for one in data())
    loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())
    loss.backward()
    optimizer.step()
    return loss


def accumulating_step(model, optimizer, group=None):
    """Two microbatches, gradients clipped; no loss is returned, the norm is handed over."""
    for _ in range(2):
        tokens, labels = (rows(one, group) for one in data())
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())
        shardfuzz.scalar("loss", loss)
        (loss / 2).backward()
    shardfuzz.gradients()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    shardfuzz.scalar("grad_norm", norm.full_tensor() if isinstance(norm, DTensor) else norm)
    optimizer.step()
    optimizer.zero_grad()


def optimizer_of(model, name):
    return torch.optim.SGD(model.parameters(), 0.1) if name == "sgd" else torch.optim.AdamW(model.parameters(), 1e-3)


def build(name="sgd", data_type=torch.float32, seed=0):
    model = Transformer().to(data_type)
    shardfuzz.fill(model, seed)
    return model, optimizer_of(model, name)


class LocalOutput(RowwiseParallel):
    """The mistake: what a rank has is handed on as if it were the sum over ranks."""

    @staticmethod
    def _prepare_output_fn(output_layouts, use_local_output, module, outputs, device_mesh):
        return outputs.to_local()


def plan(sequence_parallel, fault):
    """Of a block."""
    row = (LocalOutput if fault == "partial-output" else RowwiseParallel)
    if not sequence_parallel:
        return {"attention.q": ColwiseParallel(), "attention.k": ColwiseParallel(), "attention.v": ColwiseParallel(),
                "attention.o": RowwiseParallel(), "fc1": ColwiseParallel(), "fc2": row()}
    return {"norm1": SequenceParallel(), "norm2": SequenceParallel(),
            "attention": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            "attention.q": ColwiseParallel(), "attention.k": ColwiseParallel(), "attention.v": ColwiseParallel(),
            "attention.o": RowwiseParallel(output_layouts=Shard(1)),
            "fc1": ColwiseParallel(input_layouts=Shard(1)), "fc2": RowwiseParallel(output_layouts=Shard(1))}


def tensor_parallel(model, mesh, sequence_parallel, fault=None):
    for number, layer in enumerate(model.layers):
        parallelize_module(layer, mesh, plan(sequence_parallel, fault if number == LAYERS - 1 else None))
    if sequence_parallel:
        parallelize_module(model, mesh, {"embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
                                         "norm": SequenceParallel(),
                                         "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())})


def build_parallel(sizes, sequence_parallel=False, fault=None, optimizer="sgd", step=train_step, data_type=torch.float32, seed=0):
    """sizes: {"dp": n, "tp": n}, what is missing is 1. Returns (build, train_step, mesh of the data-parallel ranks or None)."""
    names = tuple(name for name in ("dp", "tp") if sizes.get(name, 1) > 1)
    mesh = init_device_mesh("cpu", tuple(sizes[name] for name in names), mesh_dim_names=names)

    def make():
        model = Transformer()
        if "tp" in names:
            tensor_parallel(model, mesh["tp"], sequence_parallel, fault)
        if "dp" in names:
            for layer in model.layers:
                fully_shard(layer, mesh=mesh["dp"])
            fully_shard(model, mesh=mesh["dp"])
        model = model.to(data_type)
        shardfuzz.fill(model, seed)
        return model, optimizer_of(model, optimizer)

    group = mesh["dp"] if "dp" in names else None
    return make, lambda model, one: step(model, one, group), group
