"""A stand-alone program for a finding: torch alone, the wrong number beside the right one."""
import contextlib

import torch

from shardfuzz.chains import act, gradient_of
from shardfuzz.chains.exact import STEP

from .fields import AXES
from .operations import OPERATIONS, is_parallel_loss, ways_in
from .program import first_tensor, gradient_for, is_differentiable, operations_of, shape_of
from .ranks import placements_of, without_sums

_TEMPLATE = '''"""Found by shardfuzz: {summary}

Run it with python. It needs torch alone; 2.13.0 shows the bug. Exit code 1: the DTensor's value is not the plain tensor's.
"""
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
{imports}
SIZES, RANKS = {sizes}, {ranks}


def tensors_of(result):
    return [one for one in (result if isinstance(result, (tuple, list)) else [result]) if isinstance(one, torch.Tensor)]


{helpers}def chain(make):
    """make(whole tensor, placements): a plain tensor or a DTensor. Returns what is wrong."""
{body}


def part_of(kind, whole, size, own):
    """What rank `own` of `size` has of a pending sum, average, maximum or minimum."""
    off = size - 1 - 2 * own
    return {{"sum": whole / size + off, "avg": whole + off, "max": whole - own, "min": whole + own}}[kind]


def plain(whole, placements):
    return whole.clone().requires_grad_({grads} and whole.is_floating_point())


def run(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getppid() % 12000), RANK=str(rank), WORLD_SIZE=str(RANKS), GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", SIZES)

    def sharded(whole, placements):
        if not whole.is_floating_point():
            placements = [Replicate() if one.is_partial() else one for one in placements]
        local = distribute_tensor(whole, mesh, [Replicate() if one.is_partial() else one for one in placements]).to_local()
        for one, size, own in zip(placements, SIZES, mesh.get_coordinate()):
            local = part_of(one.reduce_op, local, size, own) if one.is_partial() else local
        made = DTensor.from_local(local, mesh, placements, shape=whole.shape, stride=whole.stride())
        return made.detach().requires_grad_({grads} and whole.is_floating_point())
    try:
        {context}got = chain(sharded)
    except Exception as error:
        print(f"rank {{rank}}: {{type(error).__name__}}: {{error}}")
        raise
    claims = getattr(got, "placements", "a plain tensor")
    got, want = got.full_tensor() if isinstance(got, DTensor) else got, chain(plain)
    if rank == 0:
        print("{what}; placements:", claims)
        print("DTensor:", got.detach(), "plain tensor:", want.detach(), sep="\\n")
    same = got.shape == want.shape and torch.allclose(got.detach().double(), want.detach().double(), rtol=1e-5, atol=1e-8, equal_nan=True)
    dist.barrier()
    dist.destroy_process_group()
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    torch.set_printoptions(precision=6)
    context = mp.get_context("spawn" if torch.cuda.is_available() else "fork")  # a fork need not import everything again
    processes = [context.Process(target=run, args=(rank,)) for rank in range(RANKS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(max(abs(process.exitcode) for process in processes))
'''


def _text(tensor):
    """The tensor as an expression: values of operands are small multiples of STEP."""
    if not tensor.dtype.is_floating_point:
        return f"torch.tensor({tensor.tolist()})"
    steps = (tensor.double() / STEP).round().to(torch.int64)
    return f"torch.tensor({steps.tolist()}, dtype={tensor.dtype}) / {round(1 / STEP)}"


def _text_of(placement):
    return f"Partial({placement.reduce_op!r})" if placement.is_partial() else f"Shard({placement.dim})" if hasattr(placement, "dim") else "Replicate()"


def _placements(case, tensor, dims, change=list):
    names = [case[tensor][axis] for axis in AXES][:1 if case["layout"]["dp"] == 1 else 2]
    return f"[{', '.join(map(_text_of, change(placements_of(names, dims))))}]"


def _ways(case, operation, x):
    """The lines that define what the operation uses of operations.WAYS."""
    ways = ways_in(operation.kind)
    placements = [f"placements = {_placements(case, 'y', x.ndim, without_sums)}"] if "placements=placements" in str(ways) else []
    return placements + [f"{name} = lambda one: {text} if isinstance(one, DTensor) else one" for name, text in ways.items()]


def _call_before(case, operation, x):
    """The lines of the call with another argument, if the case has one."""
    other, lines = operation.before(case), []
    if other is None:
        return lines

    def make(name, whole):
        full = whole()
        lines.append(f"{name.rsplit('.', 1)[1]} = make({_text(full)}, {_placements(case, 'y', full.ndim)})")
        return full
    with contextlib.suppress(Exception):
        other.run(x.detach(), make)
    return [*lines, *_ways(case, other, x), f"d, k, keep = {other.dim_of(x)}, {other.k}, {other.keepdim}", "try:", f"    tensors_of({OPERATIONS[other.kind]})",
            "except Exception:", "    pass"]


def script(case, first):
    """The program that shows the tensor `first` of a complete case. ValueError: the case has no such tensor."""
    lines, known, grads = [], {}, case["backward"]
    x = first_tensor(case).requires_grad_(grads)
    lines.append(f"x = x1 = make({_text(x.detach())}, {_placements(case, 'x', x.ndim)})")
    for operation in operations_of(case):
        number, made = operation.number, []
        lines += _call_before(case, operation, x)

        def make(name, whole):
            full = whole()
            made.append((name.rsplit(".", 1)[1], full.clone()))
            return full.requires_grad_(grads and full.dtype.is_floating_point)
        results, operands = operation.run(x, make)
        if number > 1:
            lines.append(f"x{number} = x")
        known[gradient_of(operation)] = f"x{number}"
        for name, full in made:
            lines.append(f"{name} = {name}{number} = make({_text(full)}, {_placements(case, 'y', full.ndim)})")
            known[gradient_of(operation, name)] = f"{name}{number}"
        lines.append(f"d, k, keep = {operation.dim_of(x)}, {operation.k}, {operation.keepdim}")
        lines += _ways(case, operation, x)
        lines.append(f"out{number} = tensors_of({OPERATIONS[operation.kind]})")
        for place, one in enumerate(results):
            known[act(operation, place)] = f"out{number}[{place}]"
            known[shape_of(operation, place, one)[0]] = f"torch.tensor([out{number}[{place}].ndim, *out{number}[{place}].shape])"
        cast = "" if results[0].dtype.is_floating_point else f".to(torch.{case['dtype']})"
        known[act(operation, 0, "to")] = "x"
        lines.append(f"x = out{number}[0]{cast}")
        if first in known and first.startswith("s0/mb0/fwd"):
            break
        x = results[0] if results[0].dtype.is_floating_point else results[0].to(getattr(torch, case["dtype"]))
    if first not in known:
        raise ValueError(f"{first} is no tensor of this case")
    if first.startswith("s0/mb0/bwd"):
        last = [(place, one) for place, one in enumerate(results) if is_differentiable(one)]
        given = [f"make({_text(gradient_for(case, operation, place, one))}, [Replicate()] * len(SIZES)).detach()" for place, one in last]
        lines.append(f"return torch.autograd.grad([{', '.join(f'out{number}[{place}]' for place, _ in last)}], [{known[first]}], [{', '.join(given)}])[0]")
    else:
        lines.append(f"return {known[first]}")
    sizes = tuple(case["layout"][axis] for axis in AXES)[:1 if case["layout"]["dp"] == 1 else 2]
    ranks = case["layout"]["tp"] * case["layout"]["dp"]
    chain = ", then ".join(OPERATIONS[one.kind] for one in operations_of(case))
    what = f"gradient of {known[first]}" if first.startswith("s0/mb0/bwd") else f"value of {known[first]}"
    imports, context = "", ""
    if any(is_parallel_loss(one.kind) for one in operations_of(case)):
        imports, context = "from torch.distributed.tensor.parallel import loss_parallel\n", f"with loss_parallel():\n{12 * ' '}"
    helpers = "def changed(x, place, value):\n    x[place] = value\n    return x\n\n\n" if "changed(" in chain else ""
    return _TEMPLATE.format(imports=imports, helpers=helpers, context=context, summary=f"{chain} on DTensors, the {what}", sizes=sizes, ranks=ranks, body="\n".join("    " + line for line in lines), grads=grads, what=what)
