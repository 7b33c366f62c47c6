"""A training step in a parallel layout, judged by the same step on one device, in one call. For tests and scripts: the caller is no rank itself."""
import contextlib
import math
import os
import pickle
import shutil
import tempfile
from typing import Callable, Dict, Optional

from . import ranks
from .verdict import Result, check

REFERENCE_S = 3600  # of a reference with its perturbed runs


class References:
    """Reference traces by what they were made of: layouts of one training step share one. directory: where they are made."""

    def __init__(self, directory: str):
        self.directory, self.made = directory, {}

    def get(self, build: Callable, train_step: Callable, options: dict) -> str:
        """The folder of the reference, which is made when it is asked for first."""
        key = pickle.dumps((ranks.by_name(build), ranks.by_name(train_step), sorted(options.items())))
        if key not in self.made:
            folder = os.path.join(self.directory, f"reference-{len(self.made)}")
            ranks.run(1, _reference, folder, build, train_step, options, timeout_s=REFERENCE_S)
            self.made[key] = folder
        return self.made[key]


def compare(build: Callable, train_step: Callable, sizes: Dict[str, int], *, steps: int = 1, seed: int = 0, batch: Optional[str] = None,
            anchored: bool = False, timeout_s: float = ranks.TIMEOUT_S, directory: Optional[str] = None, references: Optional[References] = None,
            **options) -> Result:
    """Trains on one device and on the product of `sizes` Gloo ranks, compares every tensor and returns the verdict.

    build(mesh) gives (model, optimizer), train_step(model, optimizer, mesh) does forward, backward and optimizer.step() and may return the loss. mesh is
    None on one device, else a DeviceMesh of the CPU with a dimension for each of `sizes`, such as {"dp": 2, "tp": 2}. Both functions stand at the top level of
    a module. batch: the dimension whose ranks split the batch; default: "dp" where there is one, else each rank has the whole batch. build may give the group
    as a third value instead. anchored: each module of the reference gets what the parallel run's module had, as bf16 needs; the reference is then made anew for
    each layout. directory: an existing folder where the traces stay; default: a temporary one, which goes. references: to share between calls.
    timeout_s: for a run on ranks. options: those of Tracer.
    Raises RankError when a rank fails, ShardfuzzError for bad use."""
    with contextlib.ExitStack() as stack:
        if directory is None:
            directory = tempfile.mkdtemp(prefix="shardfuzz-compare-")
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
        both = {"steps": steps, "seed": seed, "skip": tuple(options.get("skip", ()))}
        candidate = os.path.join(directory, "parallel")
        ranks.run(math.prod(sizes.values()), _trace, candidate, dict(sizes), build, train_step, batch, {**options, **both}, timeout_s=timeout_s)
        if anchored:
            reference = os.path.join(directory, "anchored")
            ranks.run(1, _reference, reference, build, train_step, {**both, "candidate": candidate}, timeout_s=REFERENCE_S)
        else:
            reference = (references or References(directory)).get(build, train_step, both)
        return check(reference, candidate)


def _reference(rank, folder, build, train_step, options):
    from .runs import reference
    reference(folder, lambda: build(None), lambda model, optimizer: train_step(model, optimizer, None), quiet=True, **options)


def _trace(rank, folder, sizes, build, train_step, batch, options):
    from torch.distributed.device_mesh import init_device_mesh

    from .runs import trace
    mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    name = batch or ("dp" if "dp" in sizes else None)
    group = mesh[name] if name in sizes else name or "same"

    def make():
        built = build(mesh)
        return (*built, group) if isinstance(built, (tuple, list)) and len(built) == 2 else built
    trace(folder, make, lambda model, optimizer: train_step(model, optimizer, mesh), quiet=True, **options)
