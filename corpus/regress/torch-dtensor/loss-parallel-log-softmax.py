"""Found by shardfuzz: torch.log_softmax(by_class(x), dim=1) on DTensors, the gradient of x1

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
from torch.distributed.tensor.parallel import loss_parallel

SIZES, RANKS = (2,), 2


def tensors_of(result):
    return [one for one in (result if isinstance(result, (tuple, list)) else [result]) if isinstance(one, torch.Tensor)]


def chain(make):
    """make(whole tensor, placements): a plain tensor or a DTensor. Returns what is wrong."""
    x = x1 = make(torch.tensor([[2659, 4651, 2778, 1802], [6298, 3287, 5431, 5009], [1033, 5150, 7390, 1674], [1759, 5949, 6661, 6034]], dtype=torch.float64) / 16384, [Replicate()])
    d, k, keep = 0, 1, False
    by_class = lambda one: one.redistribute(placements=[Shard(1)] + [Replicate()] * (one.device_mesh.ndim - 1)) if isinstance(one, DTensor) else one
    out1 = tensors_of(torch.log_softmax(by_class(x), dim=1))
    x = out1[0]
    return torch.autograd.grad([out1[0]], [x1], [make(torch.tensor([[4610, 3128, 3093, 2475], [7373, 7584, 5796, 7656], [3921, 4389, 3740, 9143], [8755, 2363, 4658, 1494]], dtype=torch.float64) / 16384, [Replicate()] * len(SIZES)).detach()])[0]


def part_of(kind, whole, size, own):
    """What rank `own` of `size` has of a pending sum, average, maximum or minimum."""
    off = size - 1 - 2 * own
    return {"sum": whole / size + off, "avg": whole + off, "max": whole - own, "min": whole + own}[kind]


def plain(whole, placements):
    return whole.clone().requires_grad_(True and whole.is_floating_point())


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
        return made.detach().requires_grad_(True and whole.is_floating_point())
    try:
        with loss_parallel():
            got = chain(sharded)
    except Exception as error:
        print(f"rank {rank}: {type(error).__name__}: {error}")
        raise
    claims = getattr(got, "placements", "a plain tensor")
    got, want = got.full_tensor() if isinstance(got, DTensor) else got, chain(plain)
    if rank == 0:
        print("gradient of x1; placements:", claims)
        print("DTensor:", got.detach(), "plain tensor:", want.detach(), sep="\n")
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
