"""local_map drops the gradient of a DTensor that an asynchronous redistribution made. It waits for the tensor, and what it then has is not part of the graph.

`local_map` calls `wait()` on an AsyncCollectiveTensor behind `to_local()` (tensor/experimental/_func_map.py, line 229). A gather along
dimension 1 leaves such a tensor where there is one row. With two rows the pieces are copied, and the gradient is there.
Run it with python: it needs torch alone (2.13.0 shows it) and starts two ranks. Exit code 1: a gradient is missing or wrong.
"""
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.experimental import local_map

RANKS = 2


def run(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29623", GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    square = local_map(lambda x: x * x, out_placements=[Replicate()], in_placements=([Replicate()],), in_grad_placements=([Replicate()],), device_mesh=mesh)
    wrong = False
    for rows in (2, 1):
        torch.manual_seed(rank)
        x = DTensor.from_local(torch.randn(rows, 4, 8), mesh, [Shard(1)]).requires_grad_()
        whole = x.redistribute(placements=[Replicate()], async_op=True)
        (square(whole).sum() + whole.sum()).backward()           # the gradient of x is 2 x + 1
        got, want = x.grad.to_local(), 2 * x.to_local() + 1
        if rank == 0:
            print(f"{rows} row(s): gradient of x\n  got  {got.flatten()[:4].tolist()}\n  want {want.flatten()[:4].tolist()}", flush=True)
        wrong = wrong or not torch.allclose(got, want)
    dist.barrier()
    os._exit(1 if wrong else 0)


if __name__ == "__main__":
    context = mp.get_context("spawn")
    ranks = [context.Process(target=run, args=(rank,)) for rank in range(RANKS)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()
    sys.exit(1 if any(one.exitcode for one in ranks) else 0)
