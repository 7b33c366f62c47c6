"""The worker of targets/worker.md: what a case builds, and which of its tensors are traced."""
import functools
import warnings

import torch
from shardfuzz import fill, training
from shardfuzz.worker import Refused

from .fields import DESCRIBE
from .types import OTHER_ROWS, OVERRIDES

LARGEST = 3_000_000           # parameters: a type whose small model is larger has a setting that the rules do not know
LOCAL = ("colwise", "packed_colwise", "rowwise", "packed_rowwise", "local_params", "moe_tp_experts", "grouped_gemm", "ep_dispatch_experts",
         "replicated_with_grad_allreduce", "mla_kv_a_proj")


def preload():
    warnings.filterwarnings("ignore")
    from . import program, shapes  # noqa: F401
    from transformers import modeling_utils, core_model_loading  # noqa: F401


def complete(case):
    """The case with the settings of its model's configuration. Raises Refused."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from . import shapes
    kind = case["model"]["type"]
    if kind not in CONFIG_MAPPING:
        raise Refused(f"this version of transformers has no model type {kind}")
    return {**case, "settings": shapes.settings(CONFIG_MAPPING[kind], case["model"], OVERRIDES.get(kind, {}))}


def skipped(model, extra):
    """Modules whose outputs are left out in all layouts. Those that work on a rank's own heads, features or experts say nothing of it: all below a
    module that has a part of the plan, but for the parts themselves; outputs of a module beside its first (attention weights) are the rank's own too.
    Rotations have one row for all of the batch. extra: modules of this type whose first dimension is not the batch."""
    from transformers.distributed.parallel_utils import replace_layer_number_by_wildcard as generic
    plan = {**(model._ep_plan or {}), **(model._tp_plan or {})}
    names = {generic(name) for name, _ in model.named_modules()}
    regions = {name if style in ("moe_tp_experts", "ep_dispatch_experts") else name.rpartition(".")[0] for name, style in plan.items() if style in LOCAL and name in names}
    inside = {name for name in names for region in regions if region and name.startswith(region + ".")}
    own = {name for name in inside if name not in plan or plan[name].startswith("packed") or plan[name] == "replicated_with_grad_allreduce"}
    own |= {name for name in names if "rotary_emb" in name} | set(extra)
    named = [(name, generic(name)) for name, _ in model.named_modules()]
    return [name for name, kind in named if kind in own] + [f"{name}:*" for name, kind in named if kind in inside | regions | own or kind + ":*" in extra]


def build(case, world):
    from . import program
    case, layout = complete(case), case["layout"]
    mesh = None
    if world is not None:
        mesh = world.mesh
        world.keep_meshes()
    try:
        model, optimizer, step = program.make(case, mesh, functools.partial(fill, seed=case["seed"]))
    except (ValueError, NotImplementedError) as error:    # on all ranks: what transformers checks, it checks of the configuration
        raise Refused(f"{type(error).__name__}: {error}") from None
    batch = mesh and mesh(replicas=layout["replicas"], dp=layout["dp"], tp=layout["tp"])
    return training.Training(model, optimizer, step, steps=case["train"]["steps"], batch=batch and rows_of(batch), mesh=batch, skip=skipped(model, OTHER_ROWS.get(case["model"]["type"], ())) + (["(model)", "(model):*"] if case["train"]["loss"] == "labels" else []))


def rows_of(mesh):
    """The ranks that have this rank's place in tp and other rows, or None where one has all rows."""
    ranks = mesh.mesh[..., mesh.get_coordinate()[2]].flatten().tolist()
    return ranks if len(ranks) > 1 else None


def script(case, first):
    import transformers
    from shardfuzz import scripts
    from . import program
    layout = case["layout"]
    ranks = layout["dp"] * layout["replicas"] * layout["tp"]
    return scripts.compose(program, "transformers", transformers.__version__, complete(case), first, ranks, case["train"]["steps"])


def serve():
    """Answers requests until the harness has no more. RuntimeError: not started by shardfuzz."""
    training.serve(DESCRIBE, build, preload, script)
