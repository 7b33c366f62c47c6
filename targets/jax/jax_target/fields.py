"""What a case has: paths and what a field may be, the plainest first (targets/worker.md)."""
from shardfuzz.chains import CHAIN, OTHERS, fields

from .operations import MANUAL, NAMES

AXES = ("tp", "dp")                                      # of the mesh; without the second where that is 1
CUTS = ["R", "S0", "S1", "S2", "S3"]                     # along a mesh axis: replicated, or a dimension that it cuts, taken modulo the tensor's
FREE = "free"                                            # no constraint
ARGUMENTS = {"dim": [0, -1, 1, -2, 2], "k": [1, 0, 2, 3, -1], "keepdim": [False, True], "other": OTHERS,
             "wrap": ["none", "checkpoint", "scan", "vmap", "carry", "cond", "jit"]}
TWO = {"layout.dp": [2]}


def _constraints(number):
    """Where the operation's argument is put before the operation, by with_sharding_constraint."""
    there = {f"op.{number}.name": NAMES} if number > 1 else {}
    at = f"op.{number}.place"
    return {f"{at}.tp": {"choices": [FREE, *CUTS], "layout": True, "one_in": 2, "needs": {"layout.tp": [2, 4, 3, 8], **there}},
            f"{at}.dp": {"choices": CUTS, "layout": True, "one_in": 2, "needs": {f"{at}.tp": CUTS, **TWO, **there}},
            f"{at}.rest": {"choices": ["replicated", "open"], "layout": True, "one_in": 3, "needs": {f"{at}.tp": CUTS, **there}}}


FIELDS = {
    "shape.dims": {"choices": [2, 1, 3, 4], "one_in": 2},
    **{f"shape.{d}": {"choices": [4, 1, 2, 3, 5, 6, 7, 8, 9, 12, 16], "one_in": 2,
                      **({"needs": {"shape.dims": [n for n in (2, 1, 3, 4) if n > d]}} if d else {})} for d in range(4)},
    "dtype": {"choices": ["float64", "float32"]},
    "backward": {"choices": [True, False]},
    **fields(NAMES, ARGUMENTS),
    "layout.tp": {"choices": [1, 2, 4, 3, 8], "layout": True, "one_in": 1},
    "layout.dp": {"choices": [1, 2], "layout": True, "one_in": 3, "needs": {"layout.tp": [2, 4]}},
    "layout.devices": {"choices": ["in_order", "reversed", "odd_first"], "layout": True, "one_in": 4, "needs": {"layout.tp": [2, 4, 3, 8]}},
    **{f"{tensor}.{axis}": {"choices": CUTS, "layout": True, "one_in": 1 if tensor == "x" else 2,
                            "needs": {f"layout.{axis}": [2, 4, 3, 8] if axis == "tp" else [2]}} for tensor in ("x", "y") for axis in AXES},
    "layout.outer": {"choices": list(AXES), "layout": True, "one_in": 3, "needs": TWO},        # where both axes cut one dimension: the one that cuts first
    **{path: field for number in range(1, CHAIN + 1) for path, field in _constraints(number).items()},
    "jit.partitioner": {"choices": ["shardy", "gspmd"], "layout": True, "one_in": 2, "needs": {"layout.tp": [2, 4, 3, 8]}},
    "jit.donate": {"choices": [False, True], "layout": True, "one_in": 8, "needs": {"layout.tp": [2, 4, 3, 8]}},
    "vmap.spmd_axis_name": {"choices": [False, True], "layout": True, "one_in": 3, "needs": {"op.1.wrap": ["vmap"], "layout.tp": [2, 4, 3, 8]}},
    "shard_map.check_vma": {"choices": [True, False], "layout": True, "one_in": 3, "needs": {"op.1.name": list(MANUAL), "layout.tp": [2, 4, 3, 8]}},
    "shard_map.axis_names": {"choices": ["all", "tp"], "layout": True, "one_in": 3, "needs": {"op.1.name": list(MANUAL), **TWO}},
    "seed": {"min": 0, "max": 1000000},
}
DESCRIBE = {"name": "jax", "ranks": [f"layout.{axis}" for axis in AXES], "anchored": True, "simulates": True, "fields": FIELDS}
