"""The worker of targets/worker.md: what one rank trains in a case, and where its tensors lie."""
import contextlib
import logging
import warnings

from shardfuzz import worker
from shardfuzz.places import cut, summed

from .fields import DESCRIBE, FIELDS


def preload():
    logging.disable(logging.ERROR)
    warnings.filterwarnings("ignore")
    from shardfuzz import parameters  # noqa: F401
    from . import program
    program.load()


def shortened(case):
    """Without settings of ZeRO that have their default: older versions know fewer of them. overlap_comm has none that all stages share."""
    zero = {name: value for name, value in case["zero"].items() if name == "overlap_comm" or value != FIELDS[f"zero.{name}"]["choices"][0]}
    return {**case, "zero": {"stage": 0, **zero}}


def script(case, first):
    from importlib.metadata import version
    from shardfuzz import scripts
    from . import program
    ranks = case["layout"]["dp"] * case["layout"]["cp"]
    return scripts.compose(program, "deepspeed", version("deepspeed"), shortened(case), first, ranks, case["train"]["steps"])


def forget():
    """Drops DeepSpeed's groups of a world that is joined again."""
    from deepspeed import comm
    from deepspeed.utils import groups
    comm.comm.cdb = None
    getattr(groups, "_release_process_group_references", lambda: None)()  # older versions keep less
    groups._WORLD_GROUP = None


def places_of(layout, mesh):
    """None without sequence parallelism: only rows are cut then, as the trace knows. The ranks of a sequence have their own tokens of its
    rows, but all tokens of their own heads inside attention."""
    if layout["cp"] == 1:
        return None

    def places(name, tensor):
        kind, subject = name.split("/")[3:5]
        if kind == "scalar" and subject == "loss":
            return {**summed(tensor, list(range(mesh.size()))), "scale": 1 / layout["dp"]}
        if kind not in ("act", "act_grad"):
            return None
        dim = 2 if subject.split(":")[0].endswith(".core") else 1
        return {**cut(cut(tensor, 0, mesh["dp"]), dim, mesh["cp"]), "scale": 1 / layout["dp"] if kind == "act_grad" else 1}
    return places


def close():
    """Ends the engine: its hooks would keep it as long as the process lives, and its groups would give the next case hierarchical partitions."""
    from deepspeed.utils import groups
    from . import program
    if program.state.engine is not None:
        program.state.engine.destroy()
        program.state.engine = None
        groups._ZERO_PARAM_INTRA_PARALLEL_GROUP = None


@contextlib.contextmanager
def refusals(anything=False):
    """Skips a case that DeepSpeed says it does not support. anything: one that it refuses for any reason, as while the engine is made."""
    try:
        yield
    except (AssertionError, NotImplementedError, ValueError) as refusal:
        if str(refusal) if anything else "not supported" in str(refusal):
            raise worker.Refused(" ".join(str(refusal).split())) from None
        raise


# Inside of a layer of experts a rank has the tokens of its own experts.
SKIP = tuple(f"*.moe{name}" for name in (":*", ".deepspeed_moe", ".deepspeed_moe:*", "*.gate", "*.gate:*", "*.wg", "*.experts", "*.deepspeed_experts.?", "*.up", "*.down"))


def build(case, world):
    import shardfuzz
    from shardfuzz.training import Training
    from . import program
    train, layout = case["train"], case["layout"]
    with refusals(anything=True):
        model, optimizer, step = program.make(shortened(case), world and world.mesh, lambda model: shardfuzz.fill(model, case["seed"]))
    if world is None:
        return Training(model, optimizer, step, train["steps"], skip=SKIP)

    def refusing(number, trace):
        with refusals():
            step(number, trace)
    mesh = world.mesh(dp=layout["dp"], cp=layout["cp"], one=1)
    return Training(model, optimizer, refusing, train["steps"], batch=mesh["dp"], places=places_of(layout, mesh), state=program, mesh=mesh,
                    close=close, skip=SKIP)


def serve():
    """Answers requests until the harness has no more. RuntimeError: not started by shardfuzz."""
    from shardfuzz import training
    training.serve(DESCRIBE, build, preload, script, forget)
