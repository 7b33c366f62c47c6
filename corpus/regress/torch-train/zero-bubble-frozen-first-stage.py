"""A zero-bubble schedule gives a stage no gradients where all stages before it are frozen.

The stage's input needs no gradient then. The pass for inputs finds nothing to do and leaves nothing for the pass for weights: the stage does not train, and no error says so.
Run it with python: it needs torch alone (2.13.0 shows it) and starts two ranks. Exit code 1: a gradient is not what one device gives.
"""
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import ScheduleInterleavedZeroBubble

RANKS, MICROBATCHES = 2, 2


def frozen():
    part = nn.Linear(4, 4)
    part.requires_grad_(False)
    return part



def parts():
    torch.manual_seed(0)
    return [frozen()] + [nn.Linear(4, 4) for _ in range(2 * RANKS - 1)]


def loss(output, target):
    return (output - target).square().mean()


def run(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29617", RANK=str(rank), WORLD_SIZE=str(RANKS), GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    x, target = torch.ones(4, 4), torch.zeros(4, 4)
    mine = {number: parts()[number] for number in (rank, rank + RANKS)}
    stages = [PipelineStage(part, number, 2 * RANKS, torch.device("cpu")) for number, part in mine.items()]
    schedule = ScheduleInterleavedZeroBubble(stages, MICROBATCHES, loss_fn=loss)
    schedule.step(*([x] if rank == 0 else []), **({"target": target} if rank == RANKS - 1 else {}))
    whole = parts()
    loss(nn.Sequential(*whole)(x), target).backward()
    wrong = 0
    for number, part in mine.items():
        for (name, got), want in zip(part.named_parameters(), whole[number].parameters()):
            if want.grad is None:
                continue
            norm = 0.0 if got.grad is None else got.grad.norm().item()
            if abs(norm - want.grad.norm().item()) > 1e-4 * want.grad.norm().item():
                wrong += 1
                print(f"rank {rank}, stage {number}, gradient of {name}: norm {norm:.6f}, want {want.grad.norm().item():.6f}" + " (None)" * (got.grad is None), flush=True)
    dist.barrier()
    os._exit(int(wrong > 0))


if __name__ == "__main__":
    processes = [mp.get_context("spawn").Process(target=run, args=(rank,)) for rank in range(RANKS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(int(any(process.exitcode for process in processes)))
