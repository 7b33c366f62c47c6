"""What a case has: paths and what a field may be, the plainest first (targets/worker.md)."""
from shardfuzz.chains import NONE, OTHERS, fields

from .operations import NAMES

AXES = ("tp", "dp")                                      # dimensions of the mesh; without the second where that is 1
ARGUMENTS = {"dim": [0, -1, 1, -2, 2], "k": [1, 0, 2, 3, -1], "keepdim": [False, True]}   # that are no tensors
PARTIAL = {"P": "sum", "Pavg": "avg", "Pmax": "max", "Pmin": "min"}         # what the ranks' values have to become
PLACEMENTS = ["R", "S0", "S1", "S2", "S3", *PARTIAL]     # of a mesh dimension; a cut's dimension is taken modulo the tensor's


FIELDS = {
    "shape.dims": {"choices": [2, 1, 3, 4], "one_in": 2},
    **{f"shape.{d}": {"choices": [4, 1, 2, 3, 5, 6, 7, 8], "one_in": 2, **({"needs": {"shape.dims": [n for n in (2, 1, 3, 4) if n > d]}} if d else {})} for d in range(4)},
    "dtype": {"choices": ["float64", "float32"]},
    "backward": {"choices": [True, False]},
    **fields(NAMES, {**ARGUMENTS, "other": OTHERS}),
    "layout.tp": {"choices": [1, 2, 4, 3, 8], "layout": True, "one_in": 1},
    "layout.dp": {"choices": [1, 2], "layout": True, "one_in": 4, "needs": {"layout.tp": [2, 4]}},
    **{f"{tensor}.{axis}": {"choices": PLACEMENTS, "layout": True, "one_in": 1 if tensor == "x" else 2, "needs": {f"layout.{axis}": [2, 4, 3, 8] if axis == "tp" else [2]}}
       for tensor in ("x", "y") for axis in AXES},
    # Each operation is called once before it counts, with another value of this argument: DTensor keeps what it has worked out for a call.
    "before.call_with_other": {"choices": [NONE, *ARGUMENTS], "layout": True, "one_in": 3},
    "seed": {"min": 0, "max": 1000000},
}
DESCRIBE = {"name": "torch-dtensor", "ranks": [f"layout.{axis}" for axis in AXES], "anchored": True, "simulates": True, "fields": FIELDS}
