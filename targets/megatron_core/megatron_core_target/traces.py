"""Runs and their traces: the reference with its perturbed runs on one rank, the candidate on all ranks of a layout."""
import os

import torch.distributed as dist
from shardfuzz import writer
from shardfuzz.megatron.layout import groups_of
from shardfuzz.perturb import KINDS, Perturbation
from shardfuzz.places import place_from_user

from .fields import on_one_device


def perturbation_of(case, draw, anchored=False):
    """Draw k perturbs in the k-th way of shardfuzz.perturb, in turn. Isolated and anchored there is no E1: inputs are equal by construction."""
    kinds = [kind for kind in KINDS if kind != "E1" or case["mode"] == "e2e" and not anchored]
    return Perturbation(kinds[draw % len(kinds)], case["seed"] * 1000 + draw)


def write_reference(session, case, folder, draws):
    """FOLDER/reference and FOLDER/draw-0 ... of the case on one rank."""
    case = on_one_device(case)
    _replace(os.path.join(folder, "reference"), session.run(case), 0, 1, case["mode"])
    for draw in range(draws):
        _replace(os.path.join(folder, f"draw-{draw}"), session.run(case, perturbation_of(case, draw)), 0, 1, case["mode"])


def write_candidate(session, case, folder, ranks):
    """This rank's file of FOLDER/candidate. All ranks of the layout call it; an older trace there is replaced as a whole."""
    _replace(os.path.join(folder, "candidate"), session.run(case), dist.get_rank(), ranks, case["mode"], groups_of(case["layout"], dist.get_rank()))


def entries_of(records):
    """Records as shardfuzz.writer takes them."""
    places = {}
    return [(name, tensor, _place(places, name, tensor, place)) for name, tensor, place in records]


def _place(known, name, tensor, place):
    """A place is an object that many tensors of a module share."""
    key = (id(place), tensor.shape)
    if key not in known:
        known[key] = place_from_user(place, tensor.shape, name)
    return known[key]


def _replace(folder, records, rank, ranks, mode, groups=None):
    path = writer.write_partial(folder, entries_of(records), rank, ranks, mode, groups)
    dist.barrier()
    if rank == 0:
        writer.clear(folder)
    dist.barrier()
    writer.publish(folder, path, rank)
