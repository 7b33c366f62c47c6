"""Training steps of a PyTorch framework as the runs of a worker (targets/worker.md): a target says what a case builds, and this runs and traces it.

    def build(case, world):     # world: the ranks of a candidate; None for a reference, which is the same training on one device
        model, optimizer = ...
        return Training(model, optimizer, step)     # step(number, trace): forward, backward and update

    training.serve(DESCRIBE, build, preload)

A target of this kind has a model with the same parameters in each layout (shardfuzz.fill), a batch of which each data-parallel rank takes its rows, and perhaps
`places` and `state` (tracer.py) for tensors that are neither whole nor DTensors.
"""
import contextlib
import gc
import os
import tempfile
from dataclasses import dataclass, field
from typing import Any, Callable, Optional, Sequence

import torch

from . import blame, devices, gloo, worker, writer, zygote
from .anchors import Anchors
from .perturb import KINDS, Perturbation
from .tracer import State, Tracer


class Alone:
    """What a step says to the trace, where none is taken: a stand-alone script runs the same step."""

    def microbatch(self, number):
        """Which microbatch follows, counted over all data-parallel ranks."""

    def gradients(self):
        """Gradients are complete, and not yet clipped."""

    def scalar(self, name, value):
        """A number of the step: loss (of the microbatch), grad_norm."""

    def replace(self, model, optimizer):
        """Steps that follow are of another model and optimizer, which hold the same parameters."""

    def update(self):
        """The context of an update that no torch optimizer makes."""
        return contextlib.nullcontext()


@dataclass
class Training:
    """What one rank trains.

    model: a module, or the list of a pipeline's parts that this rank has. optimizer: of torch, or a sequence of them; empty, and step() says
    trace.update(). step(number, trace): one step, from 0; trace is a Tracer, of which it may use what `Alone` has. steps: how many. batch, batch_dim,
    mean, places, act_grad_scale: as of layout.Layout; in a reference they are not looked at. skip: patterns of subjects that are not traced, the same
    in each layout. mesh: whose dimensions name the groups of ranks. first_calls: {subject: number} of modules that other ranks call first. replicas:
    "close" where copies on several ranks need not have the same bits. close(): after the last step."""

    model: Any
    optimizer: Any
    step: Callable
    steps: int = 1
    batch: Any = None
    batch_dim: int = 0
    mean: bool = True
    places: Optional[Callable] = None
    act_grad_scale: float = 1.0
    state: Optional[State] = None
    skip: Sequence[str] = ()
    mesh: Any = None
    replicas: str = "equal"
    first_calls: dict = field(default_factory=dict)
    close: Callable = lambda: None


class _RunTracer(Tracer):
    """Writes one rank's file into the folder of a request."""

    def __init__(self, folder, training, world, **options):
        alone = world is None
        spread = {} if alone else {"batch": training.batch or "same", "batch_dim": training.batch_dim, "mean": training.mean, "places": training.places,
                                   "act_grad_scale": training.act_grad_scale, "at": (world.rank, world.ranks),
                                   "state": training.state}
        super().__init__(folder, training.model, training.optimizer, skip=training.skip, quiet=True, **spread, **options)
        self.groups = {} if alone or training.mesh is None else groups_of(training.mesh)
        self.replicas, self.first_calls = training.replicas, training.first_calls

    def all_groups(self) -> dict:
        return {**self.groups, **self.layout.groups()}

    def write(self):
        path = os.path.join(self.directory, writer.file_name(self.layout.rank))
        writer.write_file(path, self.recorder.entries(), self.layout.rank, self.layout.ranks, self.mode, self.all_groups(), self.replicas)


@contextlib.contextmanager
def _temporary_files_in(folder):
    """Within it temporary files and folders are made there: the harness removes the folder of a run whose ranks have ended before they could."""
    before, tempfile.tempdir = tempfile.tempdir, folder
    try:
        yield
    finally:
        tempfile.tempdir = before


def groups_of(mesh) -> dict:
    """{name: global ranks} of this rank's group along each dimension of a DeviceMesh that has more than one rank."""
    groups = {}
    for axis, name in enumerate(mesh.mesh_dim_names):
        place = list(mesh.get_coordinate())
        place[axis] = slice(None)
        groups[name] = mesh.mesh[tuple(place)].tolist()
    return {name: ranks for name, ranks in groups.items() if len(ranks) > 1}


class _Worker:
    """Answers run requests on this rank. forget(): drops what a framework keeps of a world that is joined again."""

    def __init__(self, build, preload, forget):
        with zygote.importing():
            preload()
        self.build, self.world = build, gloo.World(os.environ["SHARDFUZZ_SOCKET"], forget)
        gc.collect()
        gc.freeze()  # what was imported: models are cycles, and each search for them would go through all of it

    def run(self, request, beat):
        case, draw = request["case"], request.get("draw", -1)
        anchors = Anchors(request["anchors"]) if "anchors" in request else None
        with self.world.used(), _temporary_files_in(request["out"]):
            return self._train(case, draw, anchors, request, beat)

    def _train(self, case, draw, anchors, request, beat):
        world, seed = self.world if request["run"] == "candidate" else None, case.get("seed", 0)
        torch.manual_seed(seed)
        training = self.build(case, world)
        recording = blame.recording_of(request)
        try:
            kinds = [kind for kind in KINDS if anchors is None or kind != "E1"]  # anchored, inputs are equal by construction
            perturbation = Perturbation(kinds[draw % len(kinds)], seed * 1000 + draw) if draw >= 0 else None
            with _RunTracer(request["out"], training, world, perturbation=perturbation, anchors=anchors, operations=recording) as tracer:
                for step in range(training.steps):
                    torch.manual_seed(seed + 1 + step)
                    training.step(step, tracer)
                    beat()
        finally:
            training.close()
        return blame.answer(request, recording, tracer.layout.rank, tracer.all_groups())


def serve(describe: dict, build: Callable, preload: Callable, script: Optional[Callable] = None, forget: Callable = lambda: None) -> None:
    """Answers requests until the harness has no more. describe, preload, script: as of worker.serve; build(case, world) gives a Training, and raises
    worker.Refused for a case that is not supported. RuntimeError: not started by shardfuzz."""
    state = []

    def import_all():
        devices.require()
        os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
        import torch._dynamo  # noqa: F401: seconds, which each rank would spend when it makes its first optimizer
        import torch.distributed.tensor  # noqa: F401
        torch.set_num_threads(1)
        torch.backends.mkldnn.set_flags(False)   # oneDNN compiles a kernel for each shape of a bf16 product and keeps it, 1 MB a run
        preload()

    def run(request, beat):
        if not state:
            state.append(_Worker(build, import_all, forget))
        return state[0].run(request, beat)
    worker.serve({"anchored": True, "operations": True, **describe}, run, script, import_all)
