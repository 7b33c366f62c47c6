"""ClipLoss with local_loss=True and gather_with_grad=False loses the gradient that the losses of other ranks make.

A rank's features are compared with all others, but what the others make of them is not sent back.
Run it with python: it needs torch and open_clip_torch (3.3.0 shows it) and starts two ranks. Exit code 1: a gradient
is not what one device gives.
"""
import importlib.util
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.nn
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RANKS, ROWS = 2, 4


def losses():
    """open_clip/loss.py alone: the whole package needs torchvision."""
    folder = importlib.util.find_spec("open_clip").submodule_search_locations[0]
    spec = importlib.util.spec_from_file_location("open_clip_loss", os.path.join(folder, "loss.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text, self.logit_scale = nn.Linear(3, 3), nn.Linear(3, 3), nn.Parameter(torch.ones(()))

    def forward(self, images, texts):
        image, text = nn.functional.normalize(self.image(images), dim=-1), nn.functional.normalize(self.text(texts), dim=-1)
        return image, text, self.logit_scale.exp()


def loss_of(model, rank, ranks):
    generator = torch.Generator().manual_seed(1)
    mine = slice(rank * ROWS // ranks, (rank + 1) * ROWS // ranks)
    images, texts = (torch.randn(ROWS, 3, generator=generator)[mine] for _ in range(2))
    return losses().ClipLoss(local_loss=True, gather_with_grad=False, rank=rank, world_size=ranks)(*model(images, texts))


def run(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29632", RANK=str(rank), WORLD_SIZE=str(RANKS),
                      GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    torch.manual_seed(0)
    whole = Model()
    part = DistributedDataParallel(Model())
    part.module.load_state_dict(whole.state_dict())
    loss_of(whole, 0, 1).backward()
    loss_of(part, rank, RANKS).backward()
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
