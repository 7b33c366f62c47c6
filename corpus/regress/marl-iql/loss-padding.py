"""torchrl's losses divide by the number of a rank's real transitions, so ranks with more padding count more.

Collectors and slice samplers mark padding. DistributedDataParallel takes the mean of means of unlike numbers of transitions.
Run it with python: it needs torch, tensordict and torchrl (0.14.1 shows it) and starts two ranks. Exit code 1: a gradient
is not what one device gives.
"""
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from tensordict import TensorDict
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torchrl.modules import QValueActor
from torchrl.objectives import DQNLoss, SoftUpdate

RANKS, ROWS, FEATURES, ACTIONS = 2, 8, 4, 3


def learner():
    torch.manual_seed(0)
    actor = QValueActor(nn.Linear(FEATURES, ACTIONS), in_keys=["observation"], action_space="categorical")
    loss = DQNLoss(actor, action_space="categorical")
    loss.make_value_estimator(gamma=0.9)
    SoftUpdate(loss, tau=0.1)
    return loss


def batch(rank, ranks):
    torch.manual_seed(1)
    after = {"observation": torch.randn(ROWS, FEATURES), "reward": torch.randn(ROWS, 1), "done": torch.zeros(ROWS, 1, dtype=torch.bool),
             "terminated": torch.zeros(ROWS, 1, dtype=torch.bool)}
    rows = TensorDict({"observation": torch.randn(ROWS, FEATURES), "action": torch.randint(ACTIONS, (ROWS, 1)), "next": after}, [ROWS])
    rows["collector", "mask"] = torch.arange(ROWS)[:, None] < 5
    return rows[rank * ROWS // ranks:(rank + 1) * ROWS // ranks].contiguous()


def run(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29642", RANK=str(rank), WORLD_SIZE=str(RANKS),
                      GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    whole, part = learner(), DistributedDataParallel(learner())
    whole(batch(0, 1))["loss"].backward()
    part(batch(rank, RANKS))["loss"].backward()
    wrong = 0
    for (name, got), want in zip(part.module.named_parameters(), whole.parameters()):
        off = (got.grad - want.grad).norm() > 1e-4 * want.grad.norm()
        wrong += int(off)
        if rank == 0:
            norms = f"norm {got.grad.norm().item():.6f}, on one device {want.grad.norm().item():.6f}"
            print(f"gradient of {name}: {norms}" + " <- wrong" * int(off), flush=True)
    dist.barrier()
    os._exit(int(wrong > 0))


if __name__ == "__main__":
    processes = [mp.get_context("spawn").Process(target=run, args=(rank,)) for rank in range(RANKS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(int(any(process.exitcode for process in processes)))
