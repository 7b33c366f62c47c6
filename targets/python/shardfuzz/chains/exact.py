"""Logical tensors of a case whose values are exact: whole, and the same for the reference and every rank."""
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
    """The shape of a second operand that broadcasts to `shape`. other: same, row, column or scalar."""
    shape = list(shape)
    if other == "row":
        return shape[-1:]
    if other == "column":
        return [*shape[:-1], 1]
    return [] if other == "scalar" else shape
