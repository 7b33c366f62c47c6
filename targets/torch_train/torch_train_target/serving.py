"""The worker of targets/worker.md: builds what program.py makes, and says where its tensors lie."""
import importlib.metadata
import logging
import re
import warnings

from shardfuzz import devices, scripts, training, worker
from shardfuzz.parameters import fill
from shardfuzz.places import cut, summed, zigzag

from .fields import AXES, DESCRIBE

SKIP = ("(model)",          # a pipeline's rank has a part of it
        "blocks.*.mix")     # zero-bubble schedules go backward through the second use of a weight once more, in vain


def preload():
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    from . import program  # noqa: F401


def build(case, world):
    """The training of a case on this rank. What torch says that it does not support, on all ranks, is refused."""
    from . import program
    try:
        model, optimizer, step = program.make(case, None if world is None else world.mesh, lambda model: fill(model, case["seed"]), devices.device())
    except (ValueError, NotImplementedError) as error:
        raise worker.Refused(str(error)) from None
    if world is None:
        return training.Training(model, optimizer, step, case["steps"], skip=SKIP)
    mesh = world.mesh(**{axis: case["layout"][axis] for axis in AXES})
    after = 1 / case["data"]["microbatches"] if case["layout"]["pp"] > 1 else 1.0  # a schedule divides gradients of parameters when all are there
    places = _places_of_parts(case, mesh, after) if case["layout"]["cp"] > 1 else _places(case, mesh, after)
    return training.Training(model, optimizer, step, case["steps"], batch=mesh["dp", "fsdp"], places=places, act_grad_scale=after, mesh=mesh, skip=SKIP)


def _places(case, mesh, after):
    """Where outputs of blocks lie: with sequence parallel norms, plain tensors that each rank has some positions of. Other tensors have marks."""
    if case["layout"]["tp"] == 1 or not case["parallel"]["sequence"]:
        return None

    def places(name, tensor):
        kind, subject = name.split("/")[3:5]
        if kind not in ("act", "act_grad") or not re.fullmatch(r"blocks\.\d+", subject):
            return None
        data = mesh["dp", "fsdp"]
        return {**cut(cut(tensor, 1, mesh["tp"]), 0, data), "scale": after / data.size() if kind == "act_grad" else 1.0}
    return places


def _places_of_parts(case, mesh, after):
    """With context parallelism: a rank has its part of the length, or two parts, as far from the beginning as from the end; with tensor parallelism too, its
    own features behind layers that are cut by columns, and before those that are cut by rows."""
    part = zigzag if case["parallel"]["cp_balance"] else cut
    everyone = mesh["dp", "fsdp", "cp"]
    features = {"act": ("q", "k", "v", "up"), "act_grad": ("o", "down")} if case["layout"]["tp"] > 1 else {}

    def places(name, tensor):
        kind, subject = name.split("/")[3:5]
        if kind in ("act", "act_grad"):
            place = cut(part(tensor, 1, mesh["cp"]), 0, mesh["dp", "fsdp"])
            if subject.split(":")[0].rsplit(".", 1)[-1] in features.get(kind, ()):
                place = cut(place, 2, mesh["tp"])
            return {**place, "scale": after / everyone.size() if kind == "act_grad" else 1.0}
        return {**summed(tensor, everyone), "scale": 1 / everyone.size()} if kind == "scalar" and subject == "loss" else None
    return places


def script(case, first):
    from . import kernels, program
    ranks = 1
    for axis in AXES:
        ranks *= case["layout"][axis]
    return scripts.compose([kernels, program], "torch", importlib.metadata.version("torch").split("+")[0], case, first, ranks, case["steps"])


def serve():
    """Answers requests until the harness has no more. RuntimeError: not started by shardfuzz."""
    training.serve(DESCRIBE, build, preload, script)
