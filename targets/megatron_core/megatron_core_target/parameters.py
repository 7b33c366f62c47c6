"""Values of parameters: a function of (seed, global name, index in the logical tensor), the same whatever rank holds the element."""
import hashlib

import numpy as np
import torch

GOLDEN, MIX1, MIX2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def logical_indices(place):
    """Row-major logical index of each element of a shard, int64 [shard's shape]."""
    total = np.zeros((1,) * len(place["shape"]), np.int64)
    stride = 1
    for dimension in reversed(range(len(place["shape"]))):
        along = np.concatenate([np.arange(start, start + length) for start, length in place["index"][dimension]])
        total = total + (along * stride).reshape((-1,) + (1,) * (len(place["shape"]) - 1 - dimension))
        stride *= place["shape"][dimension]
    return total


def uniform(seed, name, indices):
    """Numbers in (-1, 1), float64, multiples of 2^-24: SplitMix64 of a key of seed and name plus the index (Steele, Lea, Flood 2014)."""
    key = np.frombuffer(hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest(), "<u8")[0]
    with np.errstate(over="ignore"):
        bits = key + (indices.astype(np.uint64) + np.uint64(1)) * GOLDEN
        bits = (bits ^ bits >> np.uint64(30)) * MIX1
        bits = (bits ^ bits >> np.uint64(27)) * MIX2
        bits = bits ^ bits >> np.uint64(31)
    return ((bits >> np.uint64(40)).astype(np.int64) * 2 - (2**24 - 1)) / 2.0**24


def scale_and_offset(name, shape):
    """Spread and mean that keep activations of order one: weights by their fan-in, norms around 1, decay rates around 0."""
    if name.endswith("norm.weight"):
        return 0.2, 1.0
    if name.endswith("bias") or name.endswith("A_log") or len(shape) < 2:
        return 0.2, 0.0
    if "embeddings" in name:
        return 0.9, 0.0
    return 1.2 / np.sqrt(np.prod(shape[1:])), 0.0


def fill(parameter, name, place, seed, zero_centered):
    """Fills one shard. zero_centered: norms hold their weight less one."""
    spread, mean = scale_and_offset(name, place["shape"])
    if zero_centered:
        mean = 0.0
    values = mean + spread * uniform(seed, name, logical_indices(place))
    with torch.no_grad():
        parameter.copy_(torch.from_numpy(values.astype(np.float32)))
