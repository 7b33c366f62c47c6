"""Found by shardfuzz: F.cross_entropy(by_class(x), target, reduction='sum') on DTensors, the gradient of x1

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
    x = x1 = make(torch.tensor([[[[2659, 4651, 2778, 1802], [6298, 3287, 5431, 5009], [1033, 5150, 7390, 1674], [1759, 5949, 6661, 6034]], [[8209, 1086, 7095, 9073], [4983, 4532, 4418, 6428], [8725, 3900, 8109, 8862], [8295, 8254, 2273, 5904]], [[8732, 7315, 1886, 7237], [8635, 3038, 7171, 8727], [8876, 4351, 3451, 1165], [3277, 6579, 2883, 6811]], [[6941, 1549, 8393, 1196], [7428, 8810, 2023, 3575], [8139, 8072, 4484, 7384], [2556, 5378, 5033, 5099]]], [[[7509, 4796, 1559, 1715], [4211, 4754, 2900, 7815], [4634, 5459, 7280, 4328], [1332, 7267, 3425, 3800]], [[3190, 6162, 1739, 4660], [6458, 5489, 6934, 7581], [1188, 7811, 1157, 2646], [1120, 8851, 5650, 7571]], [[9141, 2291, 3374, 8770], [2615, 8245, 4467, 8995], [7636, 6905, 1705, 5132], [2650, 2814, 5621, 7976]], [[2537, 6236, 9037, 4731], [1310, 2279, 7250, 4908], [4257, 7708, 5965, 2498], [9017, 3680, 5781, 2785]]], [[[5724, 7185, 7726, 2881], [6953, 5735, 2799, 5636], [5840, 7383, 3988, 7697], [2335, 7252, 3194, 2832]], [[5010, 1495, 4889, 8395], [7983, 6125, 2452, 2290], [1460, 4558, 1229, 4681], [9026, 3581, 4456, 2952]], [[9057, 4102, 1257, 3759], [5048, 6622, 8753, 7389], [8647, 3206, 5463, 1036], [6648, 4153, 8630, 2907]], [[8555, 4060, 3051, 3046], [5331, 3417, 7373, 3769], [7331, 7240, 2877, 1800], [6000, 8940, 4367, 8604]]], [[[1324, 4872, 7094, 8373], [8597, 1024, 4488, 9032], [4794, 9155, 2147, 6246], [5232, 1246, 5447, 3743]], [[7409, 8543, 1435, 8766], [6594, 7418, 7072, 4978], [9201, 2333, 3750, 4537], [3650, 4397, 6291, 6134]], [[1428, 1360, 2137, 6422], [7166, 8027, 3715, 4117], [3115, 3596, 1206, 5397], [3911, 8752, 8520, 7053]], [[3670, 6542, 6473, 2693], [5207, 2810, 8502, 6697], [5698, 9072, 5839, 3659], [2546, 4873, 4922, 6320]]]], dtype=torch.float64) / 16384, [Replicate()])
    target = target1 = make(torch.tensor([[[3, 0, 3, 1], [3, 0, 1, 1], [3, 3, 1, 2], [3, 1, 0, 3]], [[0, 1, 1, 2], [2, 2, 3, 2], [0, 1, 0, 1], [0, 2, 1, 1]], [[2, 0, 2, 1], [2, 0, 1, 0], [3, 3, 2, 1], [3, 0, 0, 0]], [[1, 2, 1, 0], [2, 0, 1, 2], [1, 2, 0, 1], [2, 3, 0, 1]]]), [Replicate()])
    d, k, keep = 0, 1, False
    by_class = lambda one: one.redistribute(placements=[Shard(1)] + [Replicate()] * (one.device_mesh.ndim - 1)) if isinstance(one, DTensor) else one
    out1 = tensors_of(F.cross_entropy(by_class(x), target, reduction='sum'))
    x = out1[0]
    return torch.autograd.grad([out1[0]], [x1], [make(torch.tensor(4610, dtype=torch.float64) / 16384, [Replicate()] * len(SIZES)).detach()])[0]


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
