"""The final norm gets no gradient, or a part of it, where torchtitan's ChunkedLossWrapper meets a zero-bubble schedule.

torchtitan shards the norm and the head as one FSDP unit, which is not resharded after the forward pass. ChunkedLossWrapper reshards it when the loss is computed. So
`stage.submod.parameters()` gives the sharded weight when the schedule's pass for inputs asks for the weights. The graph is of the unsharded one: it finds no weight there.
Run it with python: it needs torchtitan (0.3.0 with torch 2.13.0 shows it) and starts two ranks. Exit code 1: a gradient is not what one device gives.
"""
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torchtitan.tools.utils as titan

if not torch.cuda.is_available():
    titan.device_type, titan.device_module = "cpu", torch.cpu

from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.pipelining import PipelineStage  # noqa: E402
from torch.distributed.pipelining.schedules import ScheduleInterleavedZeroBubble  # noqa: E402
from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss  # noqa: E402

RANKS, MICROBATCHES, WIDTH, LENGTH, WORDS = 2, 4, 8, 8, 16


class Last(nn.Module):
    """The last stage: a norm and a head, which the loss applies chunk by chunk."""

    def __init__(self):
        super().__init__()
        self.norm, self.lm_head, self.in_the_loss = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False), False

    def forward(self, x):
        x = self.norm(x)
        return x if self.in_the_loss else self.lm_head(x)


def parts():
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(2 * RANKS - 1)] + [Last()]


def one_device(x, labels):
    """The gradient of the norm's weight."""
    layers = parts()
    logits = nn.Sequential(*layers)(x)
    nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum").backward()
    return layers[-1].norm.weight.grad


def run(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29621", RANK=str(rank), WORLD_SIZE=str(RANKS), GLOO_SOCKET_IFNAME="lo")
    torch.autograd.set_multithreading_enabled(False)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS, 1), mesh_dim_names=("pp", "fsdp"))
    torch.manual_seed(1)
    x, labels = torch.randn(MICROBATCHES, LENGTH, WIDTH), torch.randint(0, WORDS, (MICROBATCHES, LENGTH))
    mine = {number: parts()[number] for number in (rank, rank + RANKS)}
    chunked = ChunkedLossWrapper.Config(num_chunks=2, loss_fn=CrossEntropyLoss.Config(global_vocab_size=WORDS)).build(compile_config=None)
    last = mine.get(2 * RANKS - 1)
    if last is not None:
        fully_shard([last.norm, last.lm_head], mesh=mesh["fsdp"], reshard_after_forward=False)       # as torchtitan does
        fully_shard(last, mesh=mesh["fsdp"], reshard_after_forward=False)
        for module in (last, last.norm):
            module.set_force_sum_reduction_for_comms(True)                                           # Gloo has no average
        last.in_the_loss = True
        chunked.set_lm_head(last.lm_head)
    stages = [PipelineStage(part, number, 2 * RANKS, torch.device("cpu"), group=mesh["pp"].get_group()) for number, part in mine.items()]
    schedule = ScheduleInterleavedZeroBubble(stages, MICROBATCHES, loss_fn=lambda hidden, wanted: chunked(hidden, wanted)[0], scale_grads=False)
    for _ in range(2):                                           # a schedule's first step also learns the shapes
        for part in mine.values():
            part.zero_grad()
        schedule.step(*([x] if rank == 0 else []), **({"target": labels} if rank == RANKS - 1 else {}))
    wrong = False
    if last is not None:
        want, got = one_device(x, labels), last.norm.weight.grad
        print("gradient of the final norm's weight\n  got ", None if got is None else got.full_tensor().tolist(), "\n  want", want.tolist(), flush=True)
        wrong = got is None or not torch.allclose(got.full_tensor(), want, rtol=1e-4, atol=1e-5)
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
