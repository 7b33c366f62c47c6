"""The worker of targets/worker.md: runs what program.py makes, and says where its tensors lie."""
import importlib.metadata
import logging
import math
import warnings

from shardfuzz import scripts, training, worker
from shardfuzz.parameters import fill

from .fields import AXES, DESCRIBE

# Modules that are not compared: each rank has its own heads there, or the tokens of its own experts. (model): a pipeline's rank has a part of it.
SKIP = ("(model)", "*.attention.inner_attention", "*.moe.routed_experts.inner_experts")
DEGREES = tuple(f"{axis}_parallel_{part}" for axis, part in (("data", "replicate_degree"), ("data", "shard_degree"), ("context", "degree"), ("tensor", "degree"),
                                                             ("pipeline", "degree"), ("expert", "degree")))
_dims, _last = {}, {}


def preload():
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    from . import program  # noqa: F401: first, since it says which device torchtitan takes
    from torchtitan.distributed import ParallelDims
    make = ParallelDims.from_config.__func__

    def kept(kind, config, ranks):
        """The same meshes for the same degrees: their groups of processes are kept from case to case."""
        key = ranks, config.spmd_backend, *(getattr(config, name) for name in DEGREES)
        if key not in _dims:
            _dims[key] = make(kind, config, ranks)
        _forget_where_new("meshes", key)
        return _dims[key]
    ParallelDims.from_config = classmethod(kept)


def _forget_where_new(what, value):
    """Empties DTensor's caches if `value` is another one than in the last case. The caches confuse two things: meshes that are equal but not the same object, which
    fully_shard refuses, and calls of topk with different k (corpus/regress/torch-dtensor/topk-shape.py)."""
    if _last.setdefault(what, value) != value:
        from torch.distributed.tensor import debug
        debug._clear_sharding_prop_cache()
        _last[what] = value


def forget():
    _dims.clear()


def build(case, world):
    """The training of a case on this rank. What torchtitan says that it does not support, on all ranks, is refused."""
    from . import program
    if case["model"]["experts"]:
        _forget_where_new("active", case["model"]["active"])
    try:
        model, optimizer, step = program.make(case, None if world is None else world.mesh, lambda model: fill(model, case["seed"]))
    except (ValueError, NotImplementedError) as error:
        raise worker.Refused(f"{type(error).__name__}: {error}") from None
    skip = SKIP + (("lm_head",) if case["train"]["chunks"] else ())
    mesh = world and world.mesh(**{axis: case["layout"][axis] for axis in AXES})
    return training.Training(model, optimizer, step, case["train"]["steps"], batch=mesh and mesh["replicate", "shard"], mean=False, mesh=mesh, skip=skip)


def script(case, first):
    from . import program
    ranks = math.prod(case["layout"][axis] for axis in AXES)
    return scripts.compose(program, "torchtitan", importlib.metadata.version("torchtitan"), case, first, ranks, case["train"]["steps"])


def serve():
    """Answers requests until the harness has no more. RuntimeError: not started by shardfuzz."""
    training.serve(DESCRIBE, build, preload, script, forget)
