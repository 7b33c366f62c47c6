"""The worker of targets/worker.md: what one rank trains in a case, and where its tensors lie."""
import importlib.metadata
import logging
import os
import warnings

from shardfuzz import scripts, training
from shardfuzz.parameters import fill

from .fields import DESCRIBE


def preload():
    os.environ.setdefault("RL_LOGGING_LEVEL", "ERROR")
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    from . import program  # noqa: F401


def build(case, world):
    """The training of a case on this rank."""
    from . import program
    model, optimizer, step = program.make(case, None if world is None else world.mesh, lambda model: fill(model, case["seed"]))
    if world is None:
        return training.Training(model, optimizer, step, case["steps"])
    mesh = world.mesh(dp=case["layout"]["dp"])
    return training.Training(model, optimizer, step, case["steps"], batch=mesh["dp"], mesh=mesh)


def script(case, first):
    from . import program
    return scripts.compose(program, "torchrl", importlib.metadata.version("torchrl"), case, first, case["layout"]["dp"], case["steps"])


def serve():
    """Answers requests until the harness has no more. RuntimeError: not started by shardfuzz."""
    training.serve(DESCRIBE, build, preload, script)
