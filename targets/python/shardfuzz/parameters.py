"""Parameters that every layout fills alike: each element is a function of (seed, the parameter's name, the element's logical index).

    mix(x)    = x ^= x >> 30; x *= 0xBF58476D1CE4E5B9; x ^= x >> 27; x *= 0x94D049BB133111EB; x ^ x >> 31     (64 bits, unsigned)
    join(h,v) = mix(h ^ (v + G + (h << 6) + (h >> 2))),  G = 0x9E3779B97F4A7C15
    key       = join(join(join(0, seed), join(0, FNV-1a(name))), 1)
    bits(i)   = mix(key + i G),  i counts the logical tensor's elements in row-major order
    draw(i)   = (the sum of the four 16-bit parts of bits(i) - 131070) 111 / 2^22, near normal: mean 0, variance 1.003, at most 3.47
    value(i)  = offset + scale draw(i) in fp32, then rounded to the parameter's type

A parameter of two dimensions or more has offset 0 and as scale the power of two nearest to 1 / sqrt(elements behind its first dimension). A
vector has scale 1/8, and offset 0 if its name ends in "bias", else 1. harness/tensor/consistent.h has the same draws.
"""
import math
from typing import Callable, Dict, Optional

import numpy as np
import torch

from .errors import ShardfuzzError
from .names import parameter_names, tensor_name
from .places import Place, is_dtensor, place_from_user, place_of_dtensor, whole

GOLDEN = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1
PARAMETERS = 1  # what a stream is drawn for


def mix(bits: np.ndarray) -> np.ndarray:
    bits = (bits ^ bits >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ bits >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return bits ^ bits >> np.uint64(31)


def join(h: int, value: int) -> int:
    mixed = h ^ (value + GOLDEN + (h << 6) + (h >> 2) & MASK)
    return int(mix(np.array([mixed], np.uint64))[0])


def key_of(seed: int, name: str) -> int:
    fnv = 0xCBF29CE484222325
    for byte in name.encode():
        fnv = (fnv ^ byte) * 0x100000001B3 & MASK
    return join(join(join(0, seed & MASK), join(0, fnv)), PARAMETERS)


def draws(key: int, indices: np.ndarray) -> np.ndarray:
    """float32 of the shape of `indices` (uint64): draw(i) of each."""
    bits = mix(np.uint64(key) + indices * np.uint64(GOLDEN))
    total = sum((bits >> np.uint64(shift) & np.uint64(0xFFFF)).astype(np.int64) for shift in (0, 16, 32, 48)) - 131070
    return (total * 111).astype(np.float32) * np.float32(2.0**-22)


def indices_of(place: Place) -> np.ndarray:
    """uint64 of the local shape: each element's logical index in row-major order."""
    indices = np.zeros((1,) * len(place.shape), np.uint64)
    stride = 1
    for dim in reversed(range(len(place.shape))):
        runs = [np.arange(start, start + length, dtype=np.uint64) for start, length, _ in place.index[dim]]
        along = np.concatenate(runs) if runs else np.zeros(0, np.uint64)
        indices = indices + (along * np.uint64(stride)).reshape([-1 if d == dim else 1 for d in range(len(place.shape))])
        stride *= place.shape[dim]
    if place.flat is not None:
        indices = indices.reshape(-1)[place.flat[0]:place.flat[0] + place.flat[1]]
    return indices


def scale_and_offset(name: str, shape):
    if len(shape) < 2:
        return 0.125, 0.0 if name.endswith("bias") else 1.0
    return 2.0 ** -round(math.log2(max(math.prod(shape[1:]), 1)) / 2), 0.0


def fill(model: torch.nn.Module, seed: int = 0, places: Optional[Callable] = None) -> None:
    """Overwrites every parameter of the model: each rank's part, whatever the layout. places: as for Tracer, which calls it by the name of the
    traced parameter, s0/mb0/step/param/NAME/0; None means whole. Raises ShardfuzzError."""
    of_name = None if places is None else lambda name, parameter: places(tensor_name(0, 0, "step", "param", name, 0), parameter)
    fill_named(parameter_names(model), seed, of_name)


def fill_named(parameters: Dict[str, torch.nn.Parameter], seed: int, places: Optional[Callable]) -> None:
    """Overwrites parameters by their names. places: a function of the name and the parameter, as above."""
    for name, parameter in parameters.items():
        local = parameter._local_tensor if is_dtensor(parameter) else parameter.data
        answer = places(name, parameter) if places is not None else None
        if answer is not None:
            place = place_from_user(answer, parameter.shape, name)
        else:
            place = place_of_dtensor(parameter, name) if is_dtensor(parameter) else whole(parameter.shape)
        if math.prod(place.local_shape()) != local.numel():
            raise ShardfuzzError(f"{name}: has shape {list(local.shape)}, its place says {list(place.local_shape())}")
        scale, offset = scale_and_offset(name, place.shape)
        values = np.float32(offset) + np.float32(scale) * draws(key_of(seed, name), indices_of(place))
        with torch.no_grad():
            local.copy_(torch.from_numpy(values).reshape(local.shape))
