"""Consistent tensors: values that are a function of (seed, name, logical index) alone, the same bits as in C.

Every rank fills only what it holds, and every layout sees the same logical tensor:

    from shardfuzz import consistent
    key = consistent.key(seed=1, name="decoder.layers.0.mlp.linear_fc1.weight")
    half = consistent.fill(key, shape=[64, 32], index=[[[0, 32]], [[0, 32]]], scale=0.05)
    parameter.copy_(torch.frombuffer(half, dtype=torch.float32).view(32, 32))

The library libshardfuzz.so is looked for where SHARDFUZZ_LIBRARY says, and beside the program: the one that SHARDFUZZ names, the one that was installed
with this package, or shardfuzz of the PATH. NumPy and torch are not needed.
"""
import contextlib
import ctypes
import functools
import os

from .errors import ShardfuzzError
from .program import find_program

VERSION = 1
DISTS = ("normal", "uniform", "heavy", "outliers", "offset", "sparse")
DTYPES = {"F32": 0, "BF16": 1, "F16": 2, "F8_E4M3": 4, "F8_E5M2": 5}


class _Fill(ctypes.Structure):
    _fields_ = [("key", ctypes.c_uint64), ("dist", ctypes.c_int32), ("dtype", ctypes.c_int32), ("scale", ctypes.c_float),
                ("offset", ctypes.c_float)]


class _Box(ctypes.Structure):
    _fields_ = [("dim_count", ctypes.c_int32), ("shape", ctypes.POINTER(ctypes.c_int64)), ("run_counts", ctypes.POINTER(ctypes.c_int64)),
                ("runs", ctypes.POINTER(ctypes.c_int64))]


def _library_path():
    named = os.environ.get("SHARDFUZZ_LIBRARY")
    if named:
        return named
    with contextlib.suppress(ShardfuzzError):
        beside = os.path.join(os.path.dirname(os.path.realpath(find_program())), "libshardfuzz.so")
        if os.path.exists(beside):
            return beside
    return "libshardfuzz.so"


@functools.lru_cache(maxsize=None)
def _library():
    path = _library_path()
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise RuntimeError(f"{path} cannot be loaded (SHARDFUZZ_LIBRARY may name libshardfuzz.so): {error}") from error
    if library.sf_library_version() != VERSION:
        raise RuntimeError(f"{path} is version {library.sf_library_version()}, not {VERSION}")
    library.sf_library_key.restype = ctypes.c_uint64
    library.sf_library_key.argtypes = [ctypes.c_int64, ctypes.c_char_p, ctypes.c_uint64]
    library.sf_library_fill_box.restype = ctypes.c_char_p
    library.sf_library_fill_box.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Fill), ctypes.POINTER(_Box)]
    return library


def key(seed: int, name: str, salt: int = 0) -> int:
    """Key of the logical tensor `name` of a case; salt (0 to 2^64 - 1) tells uses of one tensor apart. seed: 0 to 2^63 - 1."""
    if not 0 <= seed < 1 << 63 or not 0 <= salt < 1 << 64:
        raise ValueError("seed has 63 bits and salt 64")
    return _library().sf_library_key(seed, name.encode(), salt)


def _int64s(values):
    return (ctypes.c_int64 * max(1, len(values)))(*values)


def _box(shape, index):
    """The C box, and how many elements it has."""
    if index is None:
        index = [[[0, size]] for size in shape]
    if len(index) != len(shape):
        raise ValueError(f"{len(index)} lists of runs for {len(shape)} dimensions")
    count = 1
    for runs in index:
        count *= sum(run[1] for run in runs)
    flat = [number for runs in index for run in runs for number in run[:2]]
    return _Box(len(shape), _int64s(list(shape)), _int64s([len(runs) for runs in index]), _int64s(flat)), count


def fill(key: int, shape, index=None, *, flat=None, dist="normal", scale=1.0, offset=0.0, dtype="F32") -> bytearray:
    """Values of the elements that `index` and `flat` name, as fp32 numbers in local order.

    shape: of the logical tensor, 0 to 8 dimensions. index, flat: as in the trace format (a run's third number is ignored); None is all.
    Computes round(offset + round(scale * draw)); draws have mean 0 and variance about 1 (offset: mean 8; outliers: variance 5).
    Formats: fp32 arithmetic, rounded to the grid of `dtype` in the end; the bytes are fp32 in any case.
    ValueError: what the arguments say is no part of a tensor.
    """
    if dist not in DISTS or dtype not in DTYPES:
        raise ValueError(f"dist is one of {', '.join(DISTS)}, dtype one of {', '.join(DTYPES)}")
    box, count = _box(shape, index)
    if count < 0:
        raise ValueError("a run does not lie within its dimension")
    values = bytearray(4 * count)
    memory = (ctypes.c_char * len(values)).from_buffer(values) if values else None
    wanted = _Fill(key, DISTS.index(dist), DTYPES[dtype], scale, offset)
    wrong = _library().sf_library_fill_box(memory, ctypes.byref(wanted), ctypes.byref(box))
    del memory  # a bytearray that something points into cannot be cut
    if wrong:
        raise ValueError(wrong.decode())
    if flat is None:
        return values
    first, length = flat
    if first < 0 or length < 0 or first + length > count:
        raise ValueError("flat does not lie within its box")
    return values[4 * first:4 * (first + length)]
