"""Operands of operations.py, as logical tensors."""
import torch

from shardfuzz.chains.exact import broadcast_shape, values, whole_numbers


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
