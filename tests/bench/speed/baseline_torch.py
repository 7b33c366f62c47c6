#!/usr/bin/env python3
"""The script a careful user would write in place of shardfuzz, to measure shardfuzz against.

It compares tensor- (with and without sequence), data- and pipeline-parallel runs of the model of preset gpt2-small-tiny on four Gloo ranks with a
single-device run of the same model, in PyTorch on CPUs. What makes such a script fast is done: rank processes and process groups live for the
whole run, each has one thread, the reference and the noise levels (from perturbed reruns) are made once for several layouts and lie in shared
memory, every rank compares its own shards, reductions of gradients are flat. Compared per tensor and row, each microbatch: activations,
gradients of module inputs, weight gradients; after the step: main gradients and parameters.

Prints one JSON line. --check 1 also asserts that everything agrees (fp32: 1e-4 relative).
"""
import argparse
import collections
import datetime
import json
import os
import random
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F

LAYERS, HIDDEN, HEADS, HEAD_DIM, FFN, VOCAB, VOCAB_PADDED, SEQ = 2, 64, 4, 16, 256, 125, 128, 32
RANKS = 4
LR, BETA1, BETA2, EPS, DECAY = 1e-3, 0.9, 0.999, 1e-8, 0.01
Layout = collections.namedtuple("Layout", "tp dp pp sp")
LAYOUTS = [Layout(4, 1, 1, False), Layout(4, 1, 1, True), Layout(2, 2, 1, False), Layout(2, 2, 1, True), Layout(2, 1, 2, False),
           Layout(2, 1, 2, True), Layout(1, 2, 2, False)]

# Parameters: name -> (shape, how tp cuts it). Row 0 is the output dimension; QKV is interleaved per head as in Megatron-LM.
PARAMS = {"word": ((VOCAB_PADDED, HIDDEN), "row"), "position": ((SEQ, HIDDEN), "none")}
for _i in range(LAYERS):
    PARAMS.update({
        f"{_i}.ln1.w": ((HIDDEN,), "none"), f"{_i}.ln1.b": ((HIDDEN,), "none"),
        f"{_i}.qkv.w": ((3 * HEADS * HEAD_DIM, HIDDEN), "row"), f"{_i}.qkv.b": ((3 * HEADS * HEAD_DIM,), "row"),
        f"{_i}.proj.w": ((HIDDEN, HEADS * HEAD_DIM), "col"), f"{_i}.proj.b": ((HIDDEN,), "none"),
        f"{_i}.ln2.w": ((HIDDEN,), "none"), f"{_i}.ln2.b": ((HIDDEN,), "none"),
        f"{_i}.fc1.w": ((FFN, HIDDEN), "row"), f"{_i}.fc1.b": ((FFN,), "row"),
        f"{_i}.fc2.w": ((HIDDEN, FFN), "col"), f"{_i}.fc2.b": ((HIDDEN,), "none")})
PARAMS.update({"ln.w": ((HIDDEN,), "none"), "ln.b": ((HIDDEN,), "none")})

ALL_GATHER = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # renamed in PyTorch 2.13


def cut(tensor, how, tp, index):
    """The part of a logical tensor that a tp rank holds."""
    if how == "none" or tp == 1:
        return tensor
    dim = 0 if how == "row" else tensor.dim() - 1
    size = tensor.shape[dim] // tp
    return tensor.narrow(dim, index * size, size)


def draw_case(seed, microbatches, batch):
    """Parameters (fp32 masters), tokens, labels, masks of a logical function."""
    gen = torch.Generator().manual_seed(seed)
    params = {}
    for name, (shape, _) in PARAMS.items():
        value = torch.randn(shape, generator=gen)
        is_norm_weight = name.endswith(("ln1.w", "ln2.w", "ln.w"))
        scale = 0.125 if len(shape) == 1 else shape[1] ** -0.5
        params[name] = value.mul_(scale).add_(1.0 if is_norm_weight else 0.0)
    tokens = torch.randint(VOCAB, (microbatches, SEQ, batch), generator=gen)
    labels = torch.randint(VOCAB, (microbatches, SEQ, batch), generator=gen)
    mask = (torch.rand((microbatches, SEQ, batch), generator=gen) < 0.7).float()
    mask[:, 0, 0] = 1
    return params, tokens, labels, mask


# --- the single-device reference -----------------------------------------------------------------------------------------


class Recorder:
    """Keeps what passes: activations as they are made, gradients of module inputs when backward reaches them."""

    def __init__(self):
        self.tensors = {}

    def act(self, name, x, how="none"):
        self.tensors["act/" + name] = (x.detach(), how)
        return x

    def into(self, name, x, how="none"):
        """x as the module `name` takes it in: a view of its own, so that its gradient is this branch's alone."""
        if not x.requires_grad:
            return x
        x = x.view_as(x)
        x.register_hook(lambda grad: self.tensors.__setitem__("grad/" + name, (grad, how)))
        return x


def attention(qkv, heads):
    """Causal self-attention; qkv [s, b, heads * 3 * d], interleaved per head."""
    s, b, _ = qkv.shape
    q, k, v = qkv.view(s, b, heads, 3, HEAD_DIM).permute(3, 1, 2, 0, 4)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return out.permute(2, 0, 1, 3).reshape(s, b, heads * HEAD_DIM)


def reference_microbatch(w, tokens, labels, mask, rec, perturb, prefix):
    x = F.embedding(tokens, w["word"]) + w["position"][:, None]
    if perturb is not None:
        x = x * perturb
    x = rec.act(prefix + "embedding", x)
    for i in range(LAYERS):
        p = f"{prefix}{i}."
        a = rec.act(p + "ln1", F.layer_norm(rec.into(p + "ln1", x), (HIDDEN,), w[f"{i}.ln1.w"], w[f"{i}.ln1.b"]))
        qkv = rec.act(p + "qkv", F.linear(rec.into(p + "qkv", a), w[f"{i}.qkv.w"], w[f"{i}.qkv.b"]))
        o = rec.act(p + "attention", attention(rec.into(p + "attention", qkv), HEADS))
        y = rec.act(p + "proj", F.linear(rec.into(p + "proj", o), w[f"{i}.proj.w"]) + w[f"{i}.proj.b"])
        x = rec.act(p + "bda1", rec.into(p + "bda1", x) + y)
        a = rec.act(p + "ln2", F.layer_norm(rec.into(p + "ln2", x), (HIDDEN,), w[f"{i}.ln2.w"], w[f"{i}.ln2.b"]))
        h = rec.act(p + "fc1", F.linear(rec.into(p + "fc1", a), w[f"{i}.fc1.w"], w[f"{i}.fc1.b"]))
        h = rec.act(p + "gelu", F.gelu(rec.into(p + "gelu", h)))
        y = rec.act(p + "fc2", F.linear(rec.into(p + "fc2", h), w[f"{i}.fc2.w"]) + w[f"{i}.fc2.b"])
        x = rec.act(p + "bda2", rec.into(p + "bda2", x) + y)
    x = rec.act(prefix + "ln", F.layer_norm(rec.into(prefix + "ln", x), (HIDDEN,), w["ln.w"], w["ln.b"]))
    logits = rec.act(prefix + "logits", F.linear(rec.into(prefix + "logits", x), w["word"]))
    logits = rec.into(prefix + "loss", logits)
    loss = F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), reduction="none").view_as(labels)
    rec.act(prefix + "loss", loss)
    (loss * mask).sum().backward()


def adam(names, masters, grads):
    """First step of AdamW; decays matrices. Returns the new masters."""
    g = [grads[n] for n in names]
    m = torch._foreach_mul(g, 1 - BETA1)
    v = torch._foreach_mul(torch._foreach_mul(g, g), 1 - BETA2)
    step = torch._foreach_div(m, 1 - BETA1)
    torch._foreach_div_(v, 1 - BETA2)
    torch._foreach_sqrt_(v)
    torch._foreach_add_(v, EPS)
    torch._foreach_div_(step, v)
    new = {}
    for name, update in zip(names, step):
        if masters[name].dim() > 1:
            update.add_(masters[name], alpha=DECAY)
        new[name] = masters[name] - LR * update
    return new


def reference_run(case, dtype, perturb_seed):
    params, tokens, labels, mask = case
    rec = Recorder()
    w = {name: value.to(dtype, copy=True).requires_grad_() for name, value in params.items()}
    main = {name: torch.zeros_like(value) for name, value in params.items()}
    gen = torch.Generator().manual_seed(perturb_seed) if perturb_seed else None
    eps = torch.finfo(dtype).eps
    for m in range(tokens.shape[0]):
        perturb = None
        if gen is not None:
            perturb = torch.rand((SEQ, tokens.shape[2], HIDDEN), generator=gen).mul_(2).sub_(1).mul_(eps).add_(1).to(dtype)
            if dtype == torch.bfloat16:  # the grid is coarser than the perturbation: step up or down by one place
                perturb = torch.where(torch.rand(perturb.shape, generator=gen) < 0.5, 1 - eps, 1 + eps).to(dtype)
        reference_microbatch(w, tokens[m], labels[m], mask[m], rec, perturb, f"{m}/")
        for name, value in w.items():
            rec.tensors[f"wgrad/{m}/{name}"] = (value.grad, PARAMS[name][1])
            main[name] += value.grad
            value.grad = None
    kept = mask.sum()
    for name in main:
        main[name] /= kept
        rec.tensors[f"main/{name}"] = (main[name], PARAMS[name][1])
    for name, value in adam(list(PARAMS), params, main).items():
        rec.tensors[f"param/{name}"] = (value, PARAMS[name][1])
    return rec.tensors


def rows_of(x):
    return x.reshape(1, -1) if x.dim() == 1 else x.flatten(0, -2)


def reference_fill(shared, case, dtype, reruns):
    """The plain run into shared['x'], row noise levels of the reruns into shared['noise']."""
    plain = reference_run(case, dtype, 0)
    unit = torch.finfo(dtype).eps / 2
    for name, (x, _) in plain.items():
        shared["x"][name].copy_(x)
        torch.linalg.vector_norm(rows_of(shared["x"][name]), dim=1, out=shared["noise"][name]).mul_(unit)
    for draw in range(1, reruns + 1):
        for name, (x, _) in reference_run(case, dtype, draw).items():
            distance = torch.linalg.vector_norm(rows_of(x.float() - shared["x"][name]), dim=1)
            torch.maximum(shared["noise"][name], distance, out=shared["noise"][name])


# --- parallel layers -----------------------------------------------------------------------------------------------------


class Clock:
    """Seconds by what they were spent on."""

    def __init__(self):
        self.seconds = collections.Counter()

    def timed(self, what, function, *args, **kwargs):
        start = time.perf_counter()
        result = function(*args, **kwargs)
        self.seconds[what] += time.perf_counter() - start
        return result


class World:
    """This rank's place in a layout: order tp, dp, pp as in Megatron-LM's default."""

    def __init__(self, layout, groups, rank, clock):
        tp, dp = layout.tp, layout.dp
        self.layout, self.rank, self.clock, self.sends = layout, rank, clock, []
        self.tp, self.sp = tp, layout.sp
        self.tp_index, self.dp_index, self.stage = rank % tp, rank // tp % dp, rank // (tp * dp)
        base = rank - self.tp_index
        self.tp_group = groups[tuple(range(base, base + tp))] if tp > 1 else None
        same_dp = tuple(self.tp_index + tp * d + tp * dp * self.stage for d in range(dp))
        self.dp_group = groups[same_dp] if dp > 1 else None
        across = tp * dp
        self.previous, self.next = rank - across, rank + across
        ends = (rank % across, rank % across + across * (layout.pp - 1))
        self.ends_group = groups[ends] if layout.pp > 1 else None
        self.first, self.last = self.stage == 0, self.stage == layout.pp - 1

    def all_reduce(self, x, group, op=dist.ReduceOp.SUM):
        if group is not None:
            self.clock.timed("comm", dist.all_reduce, x, op=op, group=group)
        return x

    def send(self, x, peer):
        """Asynchronous: both stages may be sending at once. wait_for_sends ends the case."""
        x = x.contiguous()
        self.sends.append((self.clock.timed("comm", dist.isend, x, peer), x))

    def wait_for_sends(self):
        for handle, _ in self.sends:
            self.clock.timed("comm", handle.wait)

    def gather_sequence(self, x):
        out = x.new_empty((x.shape[0] * self.tp, *x.shape[1:]))
        self.clock.timed("comm", ALL_GATHER, out, x.contiguous(), group=self.tp_group)
        return out

    def scatter_sequence(self, x):
        """Reduce-scatter over the sequence. Gloo's own goes through more copies than this."""
        x = self.all_reduce(x.contiguous(), self.tp_group)
        return x.narrow(0, self.tp_index * (x.shape[0] // self.tp), x.shape[0] // self.tp)


class EnterParallel(torch.autograd.Function):
    """Ahead of a column-parallel linear: gathers the sequence (sp) or passes on; backward reduces."""

    @staticmethod
    def forward(ctx, x, world):
        ctx.world = world
        return world.gather_sequence(x) if world.sp else x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        world = ctx.world
        return (world.scatter_sequence(grad.clone()) if world.sp else world.all_reduce(grad.clone(), world.tp_group)), None


class LeaveParallel(torch.autograd.Function):
    """Behind a row-parallel linear: sums the partial outputs, and scatters the sequence (sp)."""

    @staticmethod
    def forward(ctx, x, world):
        ctx.world = world
        return world.scatter_sequence(x) if world.sp else world.all_reduce(x, world.tp_group)

    @staticmethod
    def backward(ctx, grad):
        return (ctx.world.gather_sequence(grad) if ctx.world.sp else grad), None


class VocabParallelCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, labels, world):
        logits = logits.float()
        top = world.all_reduce(logits.amax(-1), world.tp_group, dist.ReduceOp.MAX)
        exps = torch.exp(logits - top.unsqueeze(-1))
        first = world.tp_index * logits.shape[-1]
        mine = (labels >= first) & (labels < first + logits.shape[-1])
        local = torch.where(mine, labels - first, 0)
        target = torch.where(mine, logits.gather(-1, local.unsqueeze(-1)).squeeze(-1) - top, 0.0)
        sums = world.all_reduce(torch.stack((exps.sum(-1), target)), world.tp_group)
        ctx.save_for_backward(exps.div_(sums[0].unsqueeze(-1)), local, mine)
        return sums[0].log() - sums[1]

    @staticmethod
    def backward(ctx, grad):
        p, local, mine = ctx.saved_tensors
        p = p.scatter_add(-1, local.unsqueeze(-1), -mine.float().unsqueeze(-1))
        return p.mul_(grad.unsqueeze(-1)), None, None


def embed(world, w, tokens):
    first = world.tp_index * w["word"].shape[0]
    mine = (tokens >= first) & (tokens < first + w["word"].shape[0])
    x = F.embedding(torch.where(mine, tokens - first, 0), w["word"]) * mine.unsqueeze(-1)
    if world.tp > 1:
        x = LeaveParallel.apply(x, world)
    position = cut(w["position"], "row", world.tp, world.tp_index) if world.sp else w["position"]
    return x + position[:, None]


def layer(world, w, i, x, rec, prefix):
    p, seq = f"{prefix}{i}.", "row" if world.sp else "none"
    enter = (lambda t: EnterParallel.apply(t, world)) if world.tp > 1 else (lambda t: t)
    leave = (lambda t: LeaveParallel.apply(t, world)) if world.tp > 1 else (lambda t: t)
    a = rec.act(p + "ln1", F.layer_norm(rec.into(p + "ln1", x, seq), (HIDDEN,), w[f"{i}.ln1.w"], w[f"{i}.ln1.b"]), seq)
    qkv = rec.act(p + "qkv", F.linear(enter(rec.into(p + "qkv", a, seq)), w[f"{i}.qkv.w"], w[f"{i}.qkv.b"]), "col")
    o = rec.act(p + "attention", attention(rec.into(p + "attention", qkv, "col"), HEADS // world.tp), "col")
    y = rec.act(p + "proj", leave(F.linear(rec.into(p + "proj", o, "col"), w[f"{i}.proj.w"])) + w[f"{i}.proj.b"], seq)
    x = rec.act(p + "bda1", rec.into(p + "bda1", x, seq) + y, seq)
    a = rec.act(p + "ln2", F.layer_norm(rec.into(p + "ln2", x, seq), (HIDDEN,), w[f"{i}.ln2.w"], w[f"{i}.ln2.b"]), seq)
    h = rec.act(p + "fc1", F.linear(enter(rec.into(p + "fc1", a, seq)), w[f"{i}.fc1.w"], w[f"{i}.fc1.b"]), "col")
    h = rec.act(p + "gelu", F.gelu(rec.into(p + "gelu", h, "col")), "col")
    y = rec.act(p + "fc2", leave(F.linear(rec.into(p + "fc2", h, "col"), w[f"{i}.fc2.w"])) + w[f"{i}.fc2.b"], seq)
    return rec.act(p + "bda2", rec.into(p + "bda2", x, seq) + y, seq)


def head(world, w, x, labels, mask, rec, prefix):
    seq = "row" if world.sp else "none"
    x = rec.act(prefix + "ln", F.layer_norm(rec.into(prefix + "ln", x, seq), (HIDDEN,), w["ln.w"], w["ln.b"]), seq)
    x = rec.into(prefix + "logits", x, seq)
    logits = rec.act(prefix + "logits", F.linear(EnterParallel.apply(x, world) if world.tp > 1 else x, w["word"]), "col")
    loss = VocabParallelCrossEntropy.apply(rec.into(prefix + "loss", logits, "col"), labels, world)
    rec.act(prefix + "loss", loss)
    return (loss * mask).sum()


# --- one candidate run ---------------------------------------------------------------------------------------------------


def layers_of(world):
    per_stage = LAYERS // world.layout.pp
    return range(world.stage * per_stage, (world.stage + 1) * per_stage)


def own_names(world):
    names = [n for n in PARAMS if n[0].isdigit() and int(n.split(".")[0]) in layers_of(world)]
    if world.first:
        names = ["word", "position"] + names
    if world.last:
        names += ["ln.w", "ln.b"] + ([] if world.first else ["word"])
    return names


def candidate_forward(world, w, data, m, rec, dtype):
    """Returns (what the stage took in, what it put out)."""
    tokens, labels, mask = (t[m] for t in data)
    prefix = f"{m}/"
    if world.first:
        taken = None
        x = rec.act(prefix + "embedding", embed(world, w, tokens), "row" if world.sp else "none")
    else:
        rows = SEQ // world.tp if world.sp else SEQ
        taken = torch.empty((rows, tokens.shape[1], HIDDEN), dtype=dtype)
        world.clock.timed("comm", dist.recv, taken, world.previous)
        x = taken.requires_grad_()
    for i in layers_of(world):
        x = layer(world, w, i, x, rec, prefix)
    if world.last:
        return taken, head(world, w, x, labels, mask, rec, prefix)
    world.send(x.detach(), world.next)
    return taken, x


def candidate_backward(world, taken, out):
    if world.last:
        out.backward()
    else:
        grad = torch.empty_like(out)
        world.clock.timed("comm", dist.recv, grad, world.next)
        out.backward(grad)
    if taken is not None:
        world.send(taken.grad, world.previous)


def is_partial(world, name):
    """Gradients that a tp rank has for its tokens only."""
    return world.sp and (name == "position" or ".ln" in name or name in ("ln.w", "ln.b") or name.endswith(("proj.b", "fc2.b")))


def reduce_flat(world, grads, group):
    if group is None or not grads:
        return
    flat = torch.cat([g.flatten() for g in grads])
    world.all_reduce(flat, group)
    torch._foreach_copy_(grads, [part.view_as(g) for part, g in zip(flat.split([g.numel() for g in grads]), grads)])


def candidate_run(world, shared, dtype, microbatches):
    """Runs this rank's part of the step; returns its tensors with how they are cut."""
    params, data = shared["params"], (shared["tokens"], shared["labels"], shared["mask"])
    names = own_names(world)
    masters = {n: cut(params[n], PARAMS[n][1], world.tp, world.tp_index) for n in names}
    w = {n: masters[n].to(dtype, copy=True).requires_grad_() for n in names}
    main = {n: torch.zeros_like(masters[n], memory_format=torch.contiguous_format) for n in names}
    rec, pending = Recorder(), []

    def finish(m, taken, out):
        candidate_backward(world, taken, out)
        for n in names:
            if not is_partial(world, n) and not (n == "word" and world.layout.pp > 1):
                rec.tensors[f"wgrad/{m}/{n}"] = (w[n].grad, PARAMS[n][1])
            main[n] += w[n].grad
            w[n].grad = None

    for m in range(world.dp_index, microbatches, world.layout.dp):  # 1F1B: as many warm-up microbatches as stages follow
        pending.append((m, *candidate_forward(world, w, data, m, rec, dtype)))
        if len(pending) > world.layout.pp - 1 - world.stage:
            finish(*pending.pop(0))
    while pending:
        finish(*pending.pop(0))
    world.wait_for_sends()
    reduce_flat(world, list(main.values()), world.dp_group)
    reduce_flat(world, [main[n] for n in names if is_partial(world, n)], world.tp_group)
    if world.ends_group is not None and (world.first or world.last):
        world.all_reduce(main["word"], world.ends_group)
    torch._foreach_div_(list(main.values()), shared["mask"].sum().item())
    for n, value in main.items():
        rec.tensors[f"main/{n}"] = (value, PARAMS[n][1])
    for n, value in adam(names, masters, main).items():
        rec.tensors[f"param/{n}"] = (value, PARAMS[n][1])
    return rec.tensors


def compare(world, tensors, shared):
    """Worst of row error over row noise; worst relative error; worst error of a parameter in learning rates; tensors. Parameters are apart: Adam's
    first step is about LR * sign(gradient), so a gradient that is nothing but rounding (a key's bias) moves them by up to 2 LR."""
    ratio = relative = step = 0.0
    for name, (mine, how) in tensors.items():
        x = cut(shared["x"][name], how, world.tp, world.tp_index)
        rows = rows_of(x)
        distance = torch.linalg.vector_norm(rows_of(mine.float() - x), dim=1)
        noise = shared["noise"][name]
        if how == "row" and noise.numel() > 1:
            noise = cut(noise, "row", world.tp, world.tp_index)
        if name.startswith("param/"):
            step = max(step, (mine - x).abs().max().item() / LR)
            continue
        size = torch.linalg.vector_norm(rows)
        floor = noise.mean() + 1e-30
        ratio = max(ratio, (distance / (noise + floor)).max().item())
        relative = max(relative, (torch.linalg.vector_norm(distance) / (size + 1e-30)).item())
    return ratio, relative, step, len(tensors)


# --- the run -------------------------------------------------------------------------------------------------------------


def serve(rank, args, shared, port):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS, timeout=datetime.timedelta(seconds=120))
    groups = {}
    for members in [(0, 1), (2, 3), (0, 2), (1, 3), (0, 1, 2, 3)]:
        groups[members] = dist.new_group(list(members))
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[args.dtype]
    clock, order = Clock(), random.Random(args.seed)
    totals = {"ratio": 0.0, "relative": 0.0, "step": 0.0, "tensors": 0}
    start = cpu_start = 0.0
    for index in range(-len(LAYOUTS), args.cases):  # every layout once before the clock starts
        if index == 0:
            dist.barrier()
            clock.seconds.clear()
            start, cpu_start = time.perf_counter(), time.process_time()
        layout = LAYOUTS[index] if index < 0 else order.choice(LAYOUTS)
        if index == -len(LAYOUTS) or (index >= 0 and index % args.layouts == 0):
            if rank == 0:
                clock.timed("reference", next_function, shared, args, dtype, args.seed + max(index, 0))
            clock.timed("wait", dist.barrier)
        world = World(layout, groups, rank, clock)
        tensors = clock.timed("candidate", candidate_run, world, shared, dtype, args.microbatches)
        *worst, count = clock.timed("compare", compare, world, tensors, shared)
        verdict = torch.tensor(worst, dtype=torch.float64)
        clock.timed("wait", dist.all_reduce, verdict, op=dist.ReduceOp.MAX)
        for what, value in zip(("ratio", "relative", "step"), verdict.tolist()):
            totals[what] = max(totals[what], value)
        totals["tensors"] += count if index >= 0 else 0
        if args.check and args.dtype == "fp32" and not (verdict[1].item() <= 1e-4 and verdict[2].item() <= 2.01):
            raise AssertionError(f"case {index} {layout}: relative error {verdict[1].item()}, parameters off by {verdict[2].item()} LR")
    dist.barrier()
    shared["seconds"][rank] = time.perf_counter() - start
    shared["cpu_seconds"][rank] = time.process_time() - cpu_start
    if rank == 0:
        report(args, shared, clock, totals, start)
    dist.barrier()
    dist.destroy_process_group()


def next_function(shared, args, dtype, seed):
    case = draw_case(seed, args.microbatches, args.microbatch_size)
    for name, value in case[0].items():
        shared["params"][name].copy_(value)
    for name, value in zip(("tokens", "labels", "mask"), case[1:]):
        shared[name].copy_(value)
    reference_fill(shared, case, dtype, args.reruns)


def report(args, shared, clock, totals, start):
    with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
        model = next((line.split(":", 1)[1].strip() for line in cpuinfo if line.startswith("model name")), "")
    while (shared["cpu_seconds"] == 0).any():
        time.sleep(0.001)
    seconds, s = shared["seconds"][0].item(), clock.seconds
    cpu = shared["cpu_seconds"].sum().item()
    print(json.dumps({
        "bench": "baseline_torch", "command": " ".join(["baseline_torch.py", *sys.argv[1:]]),
        "machine": {"cpu": model, "cores": os.cpu_count(), "load": os.getloadavg()[0]}, "torch": torch.__version__,
        "dtype": args.dtype, "cases": args.cases, "layouts_per_reference": args.layouts, "reference_runs": args.reruns + 1, "seconds": seconds,
        "cases_per_s": args.cases / seconds, "cases_per_cpu_s": args.cases / cpu, "cpu_ms_per_case": 1000 * cpu / args.cases,
        "split_of_rank_0": {"reference_and_noise": s["reference"] / seconds, "candidate_compute": (s["candidate"] - s["comm"]) / seconds,
                            "candidate_comm_and_waiting": s["comm"] / seconds, "compare": s["compare"] / seconds, "waiting": s["wait"] / seconds},
        "tensors_compared_per_case_on_rank_0": totals["tensors"] / args.cases, "worst_row_error_over_noise": totals["ratio"],
        "worst_relative_error": totals["relative"], "worst_parameter_error_in_lr": totals["step"]}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layouts", type=int, default=8, help="cases per logical function")
    parser.add_argument("--reruns", type=int, default=3, help="perturbed reruns of the reference")
    parser.add_argument("--microbatches", type=int, default=2)
    parser.add_argument("--microbatch-size", type=int, default=1)
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="bf16")
    parser.add_argument("--check", type=int, default=0)
    parser.add_argument("--port", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    case = draw_case(args.seed, args.microbatches, args.microbatch_size)
    plain = reference_run(case, torch.float32, 0)
    shared = {"x": {n: torch.zeros(x.shape).share_memory_() for n, (x, _) in plain.items()},
              "noise": {n: torch.zeros(rows_of(x).shape[0]).share_memory_() for n, (x, _) in plain.items()},
              "params": {n: v.share_memory_() for n, v in case[0].items()}, "tokens": case[1].share_memory_(),
              "labels": case[2].share_memory_(), "mask": case[3].share_memory_(), "seconds": torch.zeros(RANKS, dtype=torch.float64).share_memory_(),
              "cpu_seconds": torch.zeros(RANKS, dtype=torch.float64).share_memory_()}
    port = args.port or 20000 + os.getpid() % 20000
    mp.spawn(serve, args=(args, shared, port), nprocs=RANKS)


if __name__ == "__main__":
    main()
