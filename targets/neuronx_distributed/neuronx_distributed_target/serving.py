"""The worker of targets/worker.md: runs what program.py makes, and says where its tensors lie."""
import importlib.util
import logging
import math
import warnings

from shardfuzz import scripts, training, worker
from shardfuzz.parameters import fill
from shardfuzz.places import cut, summed, whole

from .fields import AXES, DESCRIBE


def preload():
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    from . import program, standins  # noqa: F401
    standins.stand_in()


def forget():
    from .standins import Collectives
    Collectives.kept.clear()


TOKENS, WHOLE = "tokens", "whole"
# What a layer's inputs and outputs are cut by: tokens under sequence parallelism, else features of that name (cuts.features_of).
CUTS = {"q": ([TOKENS], ["q"]), "k": ([TOKENS], ["k"]), "v": ([TOKENS], ["v"]), "joint": ([TOKENS], ["q", "k", "v"]), "core": (["q", "k", "v"], ["core"]),
        "out": (["out"], [TOKENS]), "up": ([TOKENS], ["up"]), "act": (["up"], ["act"]), "down": (["down"], [TOKENS]),
        "project": ([TOKENS], ["project"]), "head": ([TOKENS], ["project"]), "loss": (["project"], [None])}

# The first puts the sequence first or not, the second is not there in a pipeline, and the third is the embedding's weight on a last stage.
SKIP = ("embed.table", "(model)", "head.project.weight")
EXPERTS = ("*.moe.router", "*.moe.router:*", "*.linear_router", "*.expert_mlps", "*.expert_mlps:*", "*.mlp_op", "*_proj")   # inside of a layer of experts


def places_of(case, state):
    """Where activations and parameters lie: rows are cut over dp, tokens and features over tp."""
    from . import cuts, program
    m, layout = case["model"], case["layout"]
    group, rows = state.get_tensor_model_parallel_group(), state.get_data_parallel_group()
    rank, copies = group.rank(), cuts.copies_of_keys(m, layout["tp"]) if m["attention"] != "separate" else 1

    def with_parts(of, dim, size, parts):
        shape, index = list(of["shape"]), list(of["index"])
        shape[dim], index[dim] = size, [list(one) for one in parts]
        return {"shape": shape, "index": index}

    def cut_by(kind, subject):
        layer, _, number = subject.partition(":")
        layer = layer.rsplit(".", 1)[-1]
        if m["gathered"] and (layer, kind) in (("project", "act"), ("project", "act_grad"), ("head", "act"), ("loss", "act_grad")):
            return WHOLE
        return CUTS.get(layer, ([TOKENS], [TOKENS]))[kind == "act"][int(number or 0)]

    def activation(kind, subject, tensor):
        by = cut_by(kind, subject)
        if by is None:
            return None
        place = cut(tensor, 1, rows)
        if by == TOKENS:
            return cut(place, 0, group) if layout["sequence_parallel"] else place
        if by == WHOLE:
            return place
        size, parts = cuts.features_of(by, case, rank)
        if tensor.dim() == 4:      # heads
            size, parts = size // m["head_size"], [(first // m["head_size"], count // m["head_size"]) for first, count in parts]
        place = with_parts(place, 2, size, parts)
        # Each copy of a head of keys has the gradient that its rank's queries make.
        return summed(place, state.get_kv_shared_group()) if kind == "act_grad" and by in "kv" and copies > 1 else place

    def places(name, tensor):
        kind, subject = name.split("/")[3:5]
        if kind in ("param", "main_grad", "param_delta"):
            place = whole(tensor.shape).to_json()
            for found in cuts.parts_of(subject, case, program.run.ranks()):
                place = with_parts(place, *found)
            return place
        place = activation(kind, subject, tensor) if kind in ("act", "act_grad") else None
        return place and {**place, "scale": 1 / rows.size() if kind == "act_grad" else 1}
    return places


def build(case, world):
    """The training of a case on this rank."""
    from . import program
    skip = EXPERTS + (SKIP if case["model"]["tied"] else SKIP[:2])
    if world is not None:
        world.keep_groups()
    try:
        model, optimizer, step = program.make(case, None if world is None else world.mesh, lambda model: fill(model, case["seed"]))
    except AssertionError as error:
        if "divisible" not in str(error):
            raise
        raise worker.Refused(str(error)) from None
    if world is None:
        return training.Training(model, optimizer, step, case["train"]["steps"], skip=skip)
    state = program.run.state
    return training.Training(model, optimizer, step, case["train"]["steps"], batch=state.get_data_parallel_group(), batch_dim=1, state=program,
                             places=places_of(case, state), skip=skip)


def script(case, first):
    from . import cuts, model, program, standins
    ranks = math.prod(case["layout"][axis] for axis in AXES)
    return scripts.compose([standins, cuts, model, program], "neuronx_distributed", "from a checkout on PYTHONPATH", case, first, ranks, case["train"]["steps"])


def serve():
    """Answers requests until the harness has no more. RuntimeError: not started by shardfuzz, or without the library."""
    if importlib.util.find_spec("neuronx_distributed") is None:
        raise RuntimeError("neuronx_distributed is not there: clone aws-neuron/neuronx-distributed, and give its folder src as --framework-path")
    training.serve(DESCRIBE, build, preload, script, forget)
