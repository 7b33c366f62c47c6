"""With spmd_backend="full_dtensor" torchtitan's Trainer logs a mean loss that is too large, by the number of data-parallel ranks.

The loss is a DTensor: a partial sum over these ranks. The Trainer keeps a clone of it (trainer.py, train_step). In torch 2.13.0 the clone of a partial sum is summed over
the ranks. `dist_sum` takes what each rank holds, and sums it over the ranks once more (distributed/utils.py).
Run it with python: it needs torchtitan (0.3.0 with torch 2.13.0 shows it) and starts two ranks. Exit code 1: the logged loss is not the mean.
"""
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torchtitan.tools.utils as titan

if not torch.cuda.is_available():
    titan.device_type, titan.device_module = "cpu", torch.cpu

from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import DTensor, Shard  # noqa: E402
from torchtitan.components.loss import CrossEntropyLoss  # noqa: E402
from torchtitan.distributed.utils import dist_sum  # noqa: E402

RANKS, ROWS, LENGTH, WORDS = 2, 4, 8, 16


def run(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29622", RANK=str(rank), WORLD_SIZE=str(RANKS), GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("dp_shard",))
    torch.manual_seed(0)
    logits, labels = torch.randn(ROWS, LENGTH, WORDS), torch.randint(0, WORDS, (ROWS, LENGTH))
    mine = slice(rank * ROWS // RANKS, (rank + 1) * ROWS // RANKS)
    loss_fn = CrossEntropyLoss.Config(global_vocab_size=WORDS).build(compile_config=None)
    loss, _ = loss_fn(DTensor.from_local(logits[mine], mesh, [Shard(0)]), DTensor.from_local(labels[mine], mesh, [Shard(0)]), torch.tensor(labels.numel()))
    accumulated_loss = loss.detach().clone()                     # as train_step does before it logs
    got = dist_sum(accumulated_loss, mesh)
    want = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()).item()
    if rank == 0:
        print(f"placements of the loss {loss.placements}, of its clone {accumulated_loss.placements}\nmean loss\n  got  {got}\n  want {want}", flush=True)
    dist.barrier()
    os._exit(1 if abs(got - want) > 1e-4 * want else 0)


if __name__ == "__main__":
    context = mp.get_context("spawn")
    ranks = [context.Process(target=run, args=(rank,)) for rank in range(RANKS)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()
    sys.exit(1 if any(one.exitcode for one in ranks) else 0)
