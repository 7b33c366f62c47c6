"""Logical tensors of a case: whole, exact, and the same for the reference and every rank."""
import random

import torch

STEP = 2.0**-14                # values are multiples of it, so that sums of a few of them are exact in fp32 too
FIRST, COUNT = 1 << 10, 1 << 13


def values(key: str, shape, dtype) -> torch.Tensor:
    """Numbers between 0.06 and 0.57, a function of the key; up to COUNT of them are distinct."""
    generator = torch.Generator().manual_seed(random.Random(key).getrandbits(60))
    count = 1
    for size in shape:
        count *= size
    drawn = torch.randperm(COUNT, generator=generator)[:count] if count <= COUNT else torch.randint(COUNT, (count,), generator=generator)
    return drawn.add_(FIRST).to(dtype).mul_(STEP).reshape(shape)


def whole_numbers(key: str, shape, below: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(random.Random(key).getrandbits(60))
    return torch.randint(max(1, below), tuple(shape), generator=generator)


def broadcast_shape(shape, other: str):
    """The shape of a second operand that broadcasts to `shape`."""
    shape = list(shape)
    if other == "row":
        return shape[-1:]
    if other == "column":
        return [*shape[:-1], 1]
    return [] if other == "scalar" else shape


def operand(name: str, key: str, x, d: int, other: str) -> torch.Tensor:
    """An operand of operations.py for x's shape. KeyError: there is none of that name."""
    shape = list(x.shape)
    columns, classes = shape[-1] if shape else 1, shape[1] if len(shape) > 1 else 1
    real = {"y": lambda: broadcast_shape(shape, other), "z": lambda: shape, "m": lambda: [columns, 3], "mm": lambda: [*shape[:-2], columns, 3],
            "v": lambda: [columns], "c": lambda: [classes], "c2": lambda: [classes], "table": lambda: [7, 3]}
    if name in real:
        dtype = x.dtype if x.dtype.is_floating_point else torch.float64
        return values(f"{key}.{name}", real[name](), dtype)
    size = shape[d] if shape else 1
    whole = {"i": (shape, size), "j": ([3], size), "mask": (shape, 2), "ids": (shape, 7), "target": ([*shape[:1], *shape[2:]], classes)}
    drawn = whole_numbers(f"{key}.{name}", *whole[name])
    return drawn.bool() if name == "mask" else drawn
