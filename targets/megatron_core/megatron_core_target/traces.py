"""Runs and their traces: the reference with its perturbed runs on one rank, the candidate on all ranks of a layout."""
import os

import torch.distributed as dist
from shardfuzz import writer
from shardfuzz.perturb import KINDS, Perturbation
from shardfuzz.places import place_from_user

from .training import run_case


def write_reference(case, layout, folder, draws):
    """FOLDER/reference and FOLDER/draw-0 ... of the case on one rank. Draw k perturbs in the k-th way of shardfuzz.perturb, in turn."""
    _write(os.path.join(folder, "reference"), run_case(case, layout), 0, 1)
    for draw in range(draws):
        perturbation = Perturbation(KINDS[draw % len(KINDS)], case["seed"] * 1000 + draw)
        _write(os.path.join(folder, f"draw-{draw}"), run_case(case, layout, perturbation), 0, 1)


def write_candidate(case, layout, folder, ranks):
    """This rank's file of FOLDER/candidate. All ranks of the layout call it; an older trace there is replaced as a whole."""
    _write(os.path.join(folder, "candidate"), run_case(case, layout), dist.get_rank(), ranks)


def _write(folder, records, rank, ranks):
    entries = [(name, tensor, place_from_user(place, tensor.shape, name)) for name, tensor, place in records]
    path = writer.write_partial(folder, entries, rank, ranks)
    dist.barrier()
    if rank == 0:
        writer.clear(folder)
    dist.barrier()
    writer.publish(folder, path, rank)
