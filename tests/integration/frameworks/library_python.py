"""Checks of shardfuzz.consistent, in the package below a folder, against the golden file that the C generator is tested with.

    python3 library_python.py targets/python corpus/golden/consistent.csv
"""
import importlib
import random
import struct
import sys


def load(folder):
    """The module. Its package imports neither torch nor NumPy before they are used."""
    sys.path.insert(0, folder)
    module = importlib.import_module("shardfuzz.consistent")
    assert not {"torch", "numpy"} & set(sys.modules)
    return module


def float_of(text):
    return struct.unpack("<f", bytes.fromhex(text)[::-1])[0]


def check_goldens(consistent, path):
    """Every `fill` and `draw` line, byte for byte."""
    lines = 0
    for line in open(path):
        kind, *fields = line.strip().split(",")
        if kind == "fill":
            key, dist, scale, offset, dtype, index, want = fields
            options = {"scale": float_of(scale), "offset": float_of(offset), "dtype": {"fp32": "F32", "bf16": "BF16"}[dtype]}
        elif kind == "draw":
            (key, dist, index, want), options = fields, {}
        else:
            continue
        got = consistent.fill(int(key), [1 << 41], [[[int(index), 1]]], dist=consistent.DISTS[int(dist)], **options)
        assert got == bytes.fromhex(want)[::-1], (line, got.hex())
        lines += 1
    assert lines == 2250, lines


def check_boxes(consistent):
    """Pieces of a tensor are pieces of the whole."""
    rng = random.Random(3)
    key = consistent.key(5, "decoder.layers.0.mlp.linear_fc1.weight")
    shape = [4, 6, 10]
    whole = struct.unpack("<240f", consistent.fill(key, shape, scale=0.05))
    for _ in range(100):
        index = []
        for size in shape:
            starts = [rng.randrange(size) for _ in range(rng.randrange(1, 4))]
            index.append([[start, rng.randrange(size - start + 1)] for start in starts])
        lists = [[start + k for start, length in runs for k in range(length)] for runs in index]
        want = [whole[(a * 6 + b) * 10 + c] for a in lists[0] for b in lists[1] for c in lists[2]]
        got = consistent.fill(key, shape, index, scale=0.05)
        assert got == struct.pack(f"<{len(want)}f", *want)
        first = rng.randrange(len(want) + 1)
        part = consistent.fill(key, shape, index, flat=[first, (len(want) - first) // 2], scale=0.05)
        assert part == got[4 * first:4 * (first + (len(want) - first) // 2)]
    half = struct.unpack("<240f", consistent.fill(key, shape, scale=0.05, dtype="F16"))
    assert list(half) == [struct.unpack("<e", struct.pack("<e", value))[0] for value in whole]


def check_refusals(consistent):
    bad = [dict(shape=[4], index=[[[0, 5]]]), dict(shape=[4], index=[[[-1, 2]]]), dict(shape=[4], index=[[[2, -1]]]), dict(shape=[4], index=[]),
           dict(shape=[1] * 9), dict(shape=[4], dist="cauchy"), dict(shape=[4], dtype="F64"), dict(shape=[4], flat=[2, 3]),
           dict(shape=[4, 4], index=[[[3, -2]], [[3, -2]]])]
    for arguments in bad:
        try:
            consistent.fill(1, **arguments)
        except ValueError:
            continue
        raise AssertionError(f"not refused: {arguments}")


def main():
    consistent = load(sys.argv[1])
    check_goldens(consistent, sys.argv[2])
    check_boxes(consistent)
    check_refusals(consistent)


main()
