"""The worker of targets/worker.md: what a case builds, and which of its tensors are traced."""
import functools
import re
import warnings

from shardfuzz import fill, training
from shardfuzz.places import is_dtensor
from shardfuzz.worker import Refused

from .fields import DESCRIBE
from .types import OTHER_ROWS, OVERRIDES

# Styles of a plan that leave a rank with its own part of an output.
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
    """Modules whose outputs are left out in all layouts. Those that work on a rank's own heads, features or experts say nothing of it: all
    below a module that has a part of the plan, but for the parts themselves. Outputs beside the first (attention weights) are the rank's
    own too. Rotations have one row for all of the batch. extra: modules of this type whose first dimension is not the batch, as in a plan."""
    def generic(name):
        return re.sub(r"\.\d+(?=\.|$)", ".*", name)
    plan = {**(model._ep_plan or {}), **(model._tp_plan or {})}
    named = [(name, generic(name)) for name, _ in model.named_modules()]
    names = {kind for _, kind in named}
    cut = {name for name, style in plan.items() if style in LOCAL and name in names}
    regions = {name if plan[name] in ("moe_tp_experts", "ep_dispatch_experts") else name.rpartition(".")[0] for name in cut} - {""}
    inside = {name for name in names if any(name.startswith(region + ".") for region in regions)}
    own = {name for name in inside if plan.get(name, "packed").startswith("packed")} | set(extra)
    own |= {name for name, style in plan.items() if style in ("replicated_with_grad_allreduce", "ep_router")}
    own |= {name for name in names if "rotary_emb" in name}
    more = inside | regions | own
    return [name for name, kind in named if kind in own] + [f"{name}:*" for name, kind in named if kind in more or kind + ":*" in extra]


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
    if mesh and layout["tp"] > 1 and not any(is_dtensor(parameter) for parameter in model.parameters()):
        raise Refused("this version of transformers cuts parameters and does not say how: it takes 5.16 or newer")
    batch = mesh and mesh(replicas=layout["replicas"], dp=layout["dp"], tp=layout["tp"])
    skip = skipped(model, OTHER_ROWS.get(case["model"]["type"], ()))
    if case["train"]["loss"] == "labels":
        skip += ["(model)", "(model):*"]                     # the model's own loss is of the rank's rows
    return training.Training(model, optimizer, step, steps=case["train"]["steps"], batch=batch and rows_of(batch), mesh=batch, skip=skip)


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
