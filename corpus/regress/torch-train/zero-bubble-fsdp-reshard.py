"""Stages in FSDP2 get wrong gradients, or none, under a zero-bubble schedule, unless `reshard_after_forward=False`.

A stage's layers are resharded after the forward pass, so `stage.submod.parameters()` gives the sharded parameters when the pass for inputs asks for the weights.
The graph is of the unsharded ones: no weight is found in it, and microbatches are left out.
Run it with python: it needs torch alone (2.13.0 shows it) and starts four ranks. Exit code 1: a gradient is not what one device gives.
"""
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import ScheduleInterleavedZeroBubble

RANKS, STAGES, MICROBATCHES = 4, 4, 2


def parts():
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)) for _ in range(STAGES)]


def loss(output, target):
    return (output - target).square().mean()


def run(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29618", RANK=str(rank), WORLD_SIZE=str(RANKS), GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp"))
    at = mesh["pp"].get_local_rank()
    mine = {number: parts()[number] for number in (at, at + 2)}
    for part in mine.values():
        for layer in part:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh["dp"])        # resharded after the forward pass, as is the default of what is no root
        fully_shard(part, mesh=mesh["dp"])
        part.set_force_sum_reduction_for_comms(True)   # what Gloo can do
    x, target = torch.ones(4, 4), torch.zeros(4, 4)    # the same on both data-parallel ranks
    stages = [PipelineStage(part, number, STAGES, torch.device("cpu"), group=mesh["pp"].get_group()) for number, part in mine.items()]
    schedule = ScheduleInterleavedZeroBubble(stages, MICROBATCHES, loss_fn=loss)
    schedule.step(*([x] if at == 0 else []), **({"target": target} if at == 1 else {}))
    whole = parts()
    loss(nn.Sequential(*whole)(x), target).backward()
    wrong = 0
    for number, part in mine.items():
        for (name, got), want in zip(part.named_parameters(), whole[number].parameters()):
            norm = 0.0 if got.grad is None else got.grad.full_tensor().norm().item()
            if abs(norm - want.grad.norm().item()) > 1e-4 * want.grad.norm().item():
                wrong += 1
                if mesh["dp"].get_local_rank() == 0:
                    print(f"stage {number}, gradient of {name}: norm {norm:.6f}, want {want.grad.norm().item():.6f}" + " (None)" * (got.grad is None), flush=True)
    dist.barrier()
    os._exit(int(wrong > 0))


if __name__ == "__main__":
    processes = [mp.get_context("spawn").Process(target=run, args=(rank,)) for rank in range(RANKS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(int(any(process.exitcode for process in processes)))
