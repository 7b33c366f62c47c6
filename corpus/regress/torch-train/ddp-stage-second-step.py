"""A pipeline's stage in DistributedDataParallel fails in the second step: `params_.size() == rebuilt_param_indices_.size() INTERNAL ASSERT FAILED`.

In the first step the schedule runs each stage forward and backward once more, to learn shapes. The reducer counts the gradients of that pass too.
Run it with python: it needs torch alone (2.13.0 shows it) and starts four ranks. Exit code 1: it fails.
"""
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.nn.parallel import DistributedDataParallel

RANKS = 4


def run(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29614", RANK=str(rank), WORLD_SIZE=str(RANKS), GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp"))
    number = mesh["pp"].get_local_rank()
    part = DistributedDataParallel(nn.Linear(4, 4), process_group=mesh["dp"].get_group())
    stage = PipelineStage(part, number, 2, torch.device("cpu"), group=mesh["pp"].get_group())
    schedule = ScheduleGPipe(stage, 2, loss_fn=lambda output, target: (output - target).square().mean())
    for step in range(2):
        part.zero_grad()
        schedule.step(*([torch.ones(4, 4)] if number == 0 else []), **({"target": torch.zeros(4, 4)} if number else {}))
        print(f"rank {rank}: step {step} is done", flush=True)
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    processes = [mp.get_context("spawn").Process(target=run, args=(rank,)) for rank in range(RANKS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(int(any(process.exitcode for process in processes)))
