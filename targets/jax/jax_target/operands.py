"""Operands of operations.py as whole NumPy arrays: exact, and the same for the reference and every device."""
import torch

from shardfuzz.chains.exact import broadcast_shape, values, whole_numbers

NAMES = frozenset("y z m mm v u w w4 wg wg4 i j j2 mask ids table seg spot".split())


def seen_as(dims, shape):
    """The shape with that many dimensions: ones in front, or the first dimensions merged into one."""
    shape = list(shape)
    if len(shape) <= dims:
        return [1] * (dims - len(shape)) + shape
    merged = 1
    for size in shape[:len(shape) - dims + 1]:
        merged *= size
    return [merged, *shape[len(shape) - dims + 1:]]


def first(key, shape, dtype):
    """An array of exact values. dtype: float64 or float32."""
    return values(key, shape, getattr(torch, dtype)).numpy()


def operand(name: str, key: str, shape, dtype: str, d: int, other: str):
    """An operand for x's shape; whole numbers are int32."""
    shape = list(shape)
    columns, size = shape[-1] if shape else 1, shape[d] if shape else 1
    channels, channels4 = seen_as(3, shape)[1], seen_as(4, shape)[1]
    real = {"y": broadcast_shape(shape, other), "z": shape, "m": [columns, 3], "mm": [*shape[:-2], columns, 3], "v": [columns], "u": [size], "table": [7, 3],
            "w": [4, channels, 3], "w4": [4, channels4, 3, 3], "wg": [channels, 1, 3], "wg4": [channels4, 1, 3, 3]}
    if name in real:
        return first(f"{key}.{name}", real[name], dtype)
    whole = {"i": (shape, size), "j": ([3], size), "j2": ([3], size), "mask": (shape, 2), "ids": (shape, 7), "seg": ([size], 4), "spot": ([], size)}
    drawn = whole_numbers(f"{key}.{name}", *whole[name])
    return (drawn.bool() if name == "mask" else drawn.int()).numpy()
