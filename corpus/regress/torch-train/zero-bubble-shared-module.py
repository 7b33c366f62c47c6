"""A zero-bubble schedule fails on a stage that uses a module twice: `Trying to backward through the graph a second time`.

These schedules compute gradients of weights after those of inputs. Of a weight that is used twice the second gradient needs what the first one has freed.
Run it with python: it needs torch alone (2.13.0 shows it) and starts two ranks. Exit code 1: it fails.
"""
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import ScheduleInterleavedZeroBubble

RANKS = 2


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))

    def forward(self, x):
        x = x + self.inner(x)
        return x + self.inner(x)


def run(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29615", RANK=str(rank), WORLD_SIZE=str(RANKS), GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    stages = [PipelineStage(Twice(), number, 2 * RANKS, torch.device("cpu")) for number in (rank, rank + RANKS)]
    schedule = ScheduleInterleavedZeroBubble(stages, 4, loss_fn=lambda output, target: (output - target).square().mean())
    schedule.step(*([torch.ones(4, 4)] if rank == 0 else []), **({"target": torch.zeros(4, 4)} if rank == RANKS - 1 else {}))
    print(f"rank {rank}: the step is done", flush=True)
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    processes = [mp.get_context("spawn").Process(target=run, args=(rank,)) for rank in range(RANKS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(int(any(process.exitcode for process in processes)))
