"""Runs a script's function on Gloo ranks, with neuronx_distributed in its CPU mode.

The scripts need torch, packaging, safetensors, and a checkout of neuronx_distributed on PYTHONPATH. zero-one-max-norm also needs an installed torch_xla, of which
it reads one file.
"""
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from .standins import stand_in


def _rank(rank, ranks, main):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29631", RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    stand_in()
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    right = main(rank)
    dist.barrier()
    os._exit(0 if right else 1)


def say(text):
    """Prints lines of one rank that stay together."""
    os.write(1, f"{text}\n".encode())


def run(main, ranks):
    """Runs main(rank), which says whether all is right. Ends the program: with 1 if a rank says no."""
    context = mp.get_context("fork")
    processes = [context.Process(target=_rank, args=(rank, ranks, main)) for rank in range(ranks)]
    for one in processes:
        one.start()
    for one in processes:
        one.join()
    sys.exit(0 if not any(one.exitcode for one in processes) else 1)
