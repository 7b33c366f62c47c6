"""Whole runs: the reference with its perturbed runs and noise levels, and the trace of a parallel run."""
import os
import shutil
import tempfile
from typing import Callable, Optional

import torch

from .anchors import Anchors
from .errors import ShardfuzzError
from .perturb import KINDS, Perturbation
from .program import call, find_program, program_in_texts
from .rerun import noting
from .tracer import Tracer
from .world import rank_and_count


def _build(build: Callable, batch):
    """(model, optimizer, batch) from what build() gives; its third value, where it has one, is batch. Raises ShardfuzzError."""
    built = build()
    if not isinstance(built, (tuple, list)) or len(built) not in (2, 3):
        raise ShardfuzzError(f"build() gave {type(built).__name__}, want (model, optimizer) or (model, optimizer, batch)")
    if len(built) == 2:
        return built[0], built[1], batch
    if batch is not None:
        raise ShardfuzzError("build() gave a third value, the batch, and batch= is given too: say it in one place")
    return tuple(built)


def _run(directory: str, build: Callable, train_step: Callable, steps: int, seed: int, batch=None, **options) -> Tracer:
    """One traced run from a new model. The state of torch's generator is what it was, afterwards."""
    state = torch.get_rng_state()
    try:
        torch.manual_seed(seed)
        model, optimizer, batch = _build(build, batch)
        with Tracer(directory, model, optimizer, batch=batch, **options) as tracer:
            for step in range(steps):
                torch.manual_seed(seed + 1 + step)
                loss = train_step(model, optimizer)
                if loss is not None and not tracer.losses:
                    tracer.scalar("loss", loss)
        return tracer
    finally:
        torch.set_rng_state(state)


def trace(directory: str, build: Callable, train_step: Callable, *, steps: int = 1, seed: int = 0, **options) -> None:
    """Traces a parallel run; every rank calls it. build() gives (model, optimizer) in the layout under test, train_step(model, optimizer) does
    forward, backward and optimizer.step() and may return the loss. options: those of Tracer. Where build makes the mesh it may give
    (model, optimizer, mesh["dp"]): the third value takes the place of batch=. torch's generator is seeded alike before build and before each
    step, on all ranks. Rank 0 prints one line: where the trace is and what to run next. Raises ShardfuzzError."""
    _run(directory, build, train_step, steps, seed, **options)


def reference(directory: str, build: Callable, train_step: Callable, *, draws: int = 9, steps: int = 1, seed: int = 0,
              keep_draws: bool = False, skip=(), candidate: Optional[str] = None, quiet: bool = False) -> None:
    """Traces the same training on one device, then runs it `draws` times more with perturbations (E1, E3, E5 in turn, perturb.py) and lets
    `shardfuzz noise` make noise.safetensors from them. candidate: the folder of a parallel run's trace. Each module of the reference is then given what
    that run's modules had (anchors.py), so that only one module's rounding lies between the two; the reference is that candidate's alone. build must give the same parameters each time; a third value that it gives is not
    looked at. Prints one line, unless quiet: where the reference is and what to run next. Raises ShardfuzzError."""
    if rank_and_count()[1] > 1:
        raise ShardfuzzError(f"reference() runs on one device, not on {rank_and_count()[1]} ranks: call it in a process of its own")
    find_program()  # before minutes of work
    anchors = None if candidate is None else _anchors_of(candidate)
    kinds = KINDS if anchors is None else [kind for kind in KINDS if kind != "E1"]  # anchored, inputs are equal by construction

    def run_alone(to: str, **options) -> Tracer:
        return _run(to, lambda: _build(build, None)[:2], train_step, steps, seed, skip=skip, quiet=True, anchors=anchors, **options)
    plain = run_alone(directory)
    if noting()[0]:
        return
    folder = os.path.join(directory, "draws")
    shutil.rmtree(folder, ignore_errors=True)
    folders, seen = [], {plain.recorder.digest()}
    try:
        for draw in range(draws):
            kind, number = kinds[draw % len(kinds)], draw
            while True:
                at = os.path.join(folder, f"{draw}-{kind}")
                drawn = run_alone(at, perturbation=Perturbation(kind, seed * 1000 + number))
                _same_start(plain, drawn)
                digest = drawn.recorder.digest()
                if digest not in seen or number != draw:
                    break
                kind, number = "E3", draw + draws  # in a tiny model sums may come out alike in any order; this moves every number
            seen.add(digest)
            folders.append(at)
        call("noise", directory, *folders)
    finally:
        if not keep_draws:
            shutil.rmtree(folder, ignore_errors=True)
    if quiet:
        return
    plain.say(f"noise levels from {draws} perturbed runs; next: "
              + (f"trace a parallel run, then {program_in_texts()} check {directory} PARALLEL" if candidate is None
                 else f"{program_in_texts()} check {directory} {candidate}"))


def _same_start(plain: Tracer, drawn: Tracer) -> None:
    """Refuses a run whose model starts from other parameters: its distance would pass for noise."""
    for name, record in plain.recorder.records.items():
        if name.startswith("s0/") and record.kind == "param" and not torch.equal(record.data, drawn.recorder.records[name].data):
            raise ShardfuzzError(f"{name}: build() gave another value in its second call; seed it, or use shardfuzz.fill(model)")


def _anchors_of(candidate: str) -> Anchors:
    """The candidate's tensors, each of them whole. Their file needs no name any more once it is open."""
    with tempfile.TemporaryDirectory() as folder:
        call("anchors", candidate, folder)
        return Anchors(folder)

