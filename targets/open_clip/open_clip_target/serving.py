"""The worker of targets/worker.md: what one rank trains in a case, and where its tensors lie."""
import importlib.metadata
import logging
import warnings

from shardfuzz import scripts, training
from shardfuzz.parameters import fill
from shardfuzz.places import summed

from .fields import DESCRIBE

SKIP = ("(model)*",)   # its outputs are rows, class features and numbers, each of which a module before has


def preload():
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    from . import program  # noqa: F401


def places_of(ranks):
    """All ranks encode all prompts, in the text encoder's second call, and each has the part of their gradient that its own rows make."""
    def places(name, tensor):
        kind, subject, call = name.split("/")[3:6]
        prompts = subject == "pool:1" or call == "1" and subject.startswith("text")
        if not prompts or kind not in ("act", "act_grad"):
            return None
        return {**summed(tensor, list(range(ranks))), "scale": 1 / ranks} if kind == "act_grad" else {}
    return places


def build(case, world):
    """The training of a case on this rank."""
    from . import program
    model, optimizer, step = program.make(case, None if world is None else world.mesh, lambda model: fill(model, case["seed"]))
    if world is None:
        return training.Training(model, optimizer, step, case["steps"], skip=SKIP)
    mesh = world.mesh(dp=case["layout"]["dp"])
    return training.Training(model, optimizer, step, case["steps"], batch=mesh["dp"], places=places_of(mesh.size()), mesh=mesh, skip=SKIP)


def script(case, first):
    from . import program
    version = importlib.metadata.version("open_clip_torch")
    return scripts.compose(program, "open_clip_torch", version, case, first, case["layout"]["dp"], case["steps"])


def serve():
    """Answers requests until the harness has no more. RuntimeError: not started by shardfuzz."""
    training.serve(DESCRIBE, build, preload, script)
