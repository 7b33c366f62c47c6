"""SequenceParallel trains parameters that were frozen: it makes new ones without their `requires_grad`.

ColwiseParallel and RowwiseParallel keep `requires_grad` (pytorch/pytorch#171709); SequenceParallel does not.
Run it with python: it needs torch alone (2.13.0 shows it) and starts two ranks. Exit code 1: a frozen weight has changed.
"""
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import SequenceParallel, parallelize_module

RANKS = 2


def run(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29619", RANK=str(rank), WORLD_SIZE=str(RANKS), GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    torch.manual_seed(0)
    norm = nn.LayerNorm(4)
    norm.requires_grad_(False)
    norm = parallelize_module(norm, init_device_mesh("cpu", (RANKS,)), SequenceParallel(use_local_output=True))
    optimizer = torch.optim.SGD(norm.parameters(), lr=1.0)
    norm(torch.randn(2, 4, 4).requires_grad_()).square().sum().backward()
    optimizer.step()
    weight = norm.weight.to_local()
    if rank == 0:
        print(f"requires_grad of the frozen weight: {norm.weight.requires_grad}; after a step it is {weight.tolist()}, want {[1.0] * 4}", flush=True)
    wrong = not torch.equal(weight, torch.ones(4))
    dist.barrier()
    os._exit(int(wrong))


if __name__ == "__main__":
    processes = [mp.get_context("spawn").Process(target=run, args=(rank,)) for rank in range(RANKS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(int(any(process.exitcode for process in processes)))
