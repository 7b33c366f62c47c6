"""The worker of targets/worker.md: what one rank trains in a case, and where its tensors lie."""
import contextlib
import logging
import math
import warnings

import torch

from shardfuzz import worker
from shardfuzz.places import cut, summed, whole

from .fields import AXES, DESCRIBE, FIELDS


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
    from . import model, pipeline, program, tensor, values
    ranks = math.prod(case["layout"][axis] for axis in AXES)
    axes = [part for axis, part in (("pp", pipeline), ("tp", tensor)) if case["layout"][axis] > 1]
    return scripts.compose([model, values, *axes, program], "deepspeed", version("deepspeed"), shortened(case), first, ranks, case["train"]["steps"])


def groups_of(layout, me):
    """{axes: global ranks}: the groups of rank `me` in a layout. None if the layout has fewer ranks."""
    from .program import ORDER
    ranks = torch.arange(math.prod(layout[axis] for axis in ORDER)).view([layout[axis] for axis in ORDER])
    if me >= ranks.numel():
        return None
    at = (ranks == me).nonzero()[0].tolist()

    def along(*axes):
        return ranks[tuple(slice(None) if axis in axes else place for axis, place in zip(ORDER, at))].flatten().tolist()
    return {"dp": along("dp"), "cp": along("cp"), ("dp", "cp"): along("dp", "cp")}


def places_of(case, mesh):
    """None if only rows are cut, in the same way in all steps: the tracer knows that by itself. The ranks of a sequence have their own tokens of its rows, but all tokens of
    their own heads inside attention. Those of tensor parallelism have their own features."""
    from .program import at_step, changes_ranks
    layout = case["layout"]
    if layout["cp"] == layout["tp"] == 1 and not changes_ranks(case):
        return None
    from .tensor import cut_of_activation, cut_of_parameter
    me, rank = mesh.get_rank(), mesh.get_local_rank("tp")
    by_step = [groups_of(at_step(case, number)["layout"], me) for number in range(case["train"]["steps"])]

    def features(place, cut):
        if cut is None or layout["tp"] == 1:
            return place
        dim, size, runs = cut
        shape, index = list(place["shape"]), list(place["index"])
        shape[dim], index[dim] = size, runs
        return {**place, "shape": shape, "index": index}

    def places(name, tensor):
        step, kind, subject = (name.split("/")[part] for part in (0, 3, 4))
        layer = subject.split(":")[0].rsplit(".", 1)[-1]
        groups = by_step[int(step[1:])]
        if kind == "scalar" and subject == "loss":
            return {**summed(tensor, groups["dp", "cp"]), "scale": 1 / len(groups["dp"])}
        if kind in ("act", "act_grad"):
            place = cut(cut(tensor, 0, groups["dp"]), 2 if layer == "core" else 1, groups["cp"])
            return {**features(place, cut_of_activation(kind, layer, case, rank)), "scale": 1 / len(groups["dp"]) if kind == "act_grad" else 1}
        if kind in ("param", "main_grad", "param_delta"):
            return features(whole(tensor.shape).to_json(), cut_of_parameter(subject, case, rank))
        return None
    return places


def close():
    """Ends the engine: its hooks would keep it as long as the process lives, and its groups would be the next case's."""
    from deepspeed.utils import groups
    from .values import state
    state.losses, state.first_calls = [], {}
    if state.engine is not None:
        state.engine.destroy()
        state.engine = None
        for name in ("ZERO_PARAM_INTRA", "TENSOR_MODEL", "MODEL", "DATA"):
            setattr(groups, f"_{name}_PARALLEL_GROUP", None)


@contextlib.contextmanager
def refusals(anything=False):
    """Skips a case that DeepSpeed says it does not support. anything: one that it refuses for any reason, as while the engine is made."""
    try:
        yield
    except (AssertionError, NotImplementedError, ValueError) as refusal:
        if str(refusal) if anything else "not supported" in str(refusal):
            from .program import tell_ranks_outside
            tell_ranks_outside(str(refusal) if "not supported" in str(refusal) else f"not supported: {refusal}")
            raise worker.Refused(" ".join(str(refusal).split())) from None
        raise


# The first is a stage of a pipeline. Inside of a layer of experts a rank has the tokens of its own experts.
INSIDE = ":* .deepspeed_moe .deepspeed_moe:* *.gate *.gate:* *.wg *.experts *.deepspeed_experts.? *.up *.down"
SKIP = ("(model)", *(f"*.moe{name}" for name in INSIDE.split()))


def build(case, world):
    import shardfuzz
    from shardfuzz.training import Training
    from . import program, values
    train, layout = case["train"], case["layout"]
    if world is not None:
        world.keep_groups()
        world.keep_meshes()
        mesh = program.mesh_of(layout, world.mesh)
        known = {"batch": mesh["dp"].mesh.tolist(), "places": places_of(case, mesh), "mesh": mesh}     # before a smaller world takes its place
    with refusals(anything=True):
        model, optimizer, step = program.make(shortened(case), world and world.mesh, lambda model: shardfuzz.fill(model, case["seed"]))
    if world is None:
        return Training(model, optimizer, step, train["steps"], skip=SKIP)

    def refusing(number, trace):
        with refusals():
            step(number, trace)
            if number == train["steps"] - 1 and program.changes_ranks(case):
                program.tell_ranks_outside("")
                program.wait_for_first("end")
    return Training(model, optimizer, refusing, train["steps"], state=values, close=close, skip=SKIP, first_calls=values.state.first_calls, **known)


def serve():
    """Answers requests until the harness has no more. RuntimeError: not started by shardfuzz."""
    from shardfuzz import training
    from .program import forget
    training.serve(DESCRIBE, build, preload, script, forget)
