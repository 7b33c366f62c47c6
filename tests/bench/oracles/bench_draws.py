#!/usr/bin/env python3
"""How wide noise levels of few draws must be: clean candidates against noise levels of 1 to 9 of their reference's draws.

    shardfuzz worker CMD CASES.jsonl --draws 18 --traces DIR
    tests/bench/oracles/bench_draws.py DIR                   needs NumPy; prints lines of the table, then all as one JSON object

For each case that passes by 9 draws (a known bug of the framework is no clean case) and for each run of n draws that follow each other in the
circle of all: A, the largest error of a tensor or row over its bound, measured distances having been multiplied by g and floors not. Printed for each n, over
all runs and over those with an E3 draw (draws are E1, E3, E5 in turn): the share of A > 1 and the largest A, with g = 1 and with the widening of
oracles/judge/compare.c; and the least g with which no larger share of A is beyond some thresholds than with 9 draws.
"""
import json
import pathlib
import struct
import sys

import numpy as np

DRAWS = (1, 2, 3, 4, 6, 9)
WIDENING = {1: 16, 2: 4, 3: 1.75, 4: 1.5, 6: 1.25, 9: 1}  # oracles/judge/compare.c
THRESHOLDS = (0.35, 0.4, 0.45, 0.5, 0.55, 0.6)
UNIT = {"F64": 2.0**-53, "F32": 2.0**-24, "BF16": 2.0**-8, "F16": 2.0**-11}
FRO, ROW, ROW_ISOLATED, ILL_CONDITIONED = 3, 4, 6, 0.3  # oracles/judge/judge.c
GRID = np.concatenate([np.arange(1, 2, 0.05), np.arange(2, 4, 0.1), np.arange(4, 16, 0.5), np.arange(16, 65, 4)])
IGNORED, BUG = 0.2, 1  # of A: what needs no look; what no noise explains


def values_of(data, dtype):
    if dtype == "BF16":
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return np.frombuffer(data, {"F64": np.float64, "F32": np.float32, "F16": np.float16}[dtype]).astype(np.float64)


def read(path):
    """{name: (type, place, values)} of a file, and what it says of itself."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    about = json.loads(header.pop("__metadata__")["shardfuzz"])
    tensors = {}
    for name, place in about["tensors"].items():
        begin, end = header[name]["data_offsets"]
        tensors[name] = (header[name]["dtype"], place, values_of(data[8 + size + begin:8 + size + end], header[name]["dtype"]))
    return about, tensors


def indices_of(place):
    """Logical indices of a piece, and the number of its sum."""
    shape, sums = place["shape"] or [1], {0}
    index = place.get("index") or [[[0, n]] for n in shape]
    flat = np.zeros((1,) * len(shape), np.int64)
    for d, runs in enumerate(index):
        sums |= {run[2] for run in runs if len(run) > 2}
        along = np.concatenate([np.arange(run[0], run[0] + run[1]) for run in runs] or [np.zeros(0, np.int64)]) * int(np.prod(shape[d + 1:]))
        flat = flat + along.reshape([-1 if i == d else 1 for i in range(len(shape))])
    flat = flat.reshape(-1)
    if place.get("flat"):
        flat = flat[place["flat"][0]:place["flat"][0] + place["flat"][1]]
    return flat, max(sums)


def merged(pieces):
    """The logical tensor: of replicas the lowest rank's, of summands the sum over the lowest group."""
    count = int(np.prod(pieces[0][1]["shape"] or [1]))
    out, owner = np.zeros(count), np.full(count, -1)
    for _, place, values in pieces:
        at, group = indices_of(place)
        fresh = owner[at] == -1
        add = fresh | (owner[at] == group) & (group > 0)
        out[at[add]] += values[add]
        owner[at[fresh]] = group
    return out


def rows_of(values, shape):
    return np.sqrt(np.square(values.reshape(-1, shape[-1] if len(shape) > 1 else values.size)).sum(1))


class Distances:
    """Of one tensor: errors of the candidate, distances of each draw, floors; of the whole and of rows."""

    def __init__(self, x, draws, candidate, dtype, shape, row_factor):
        self.unit, self.norm, self.factor = UNIT[dtype], np.linalg.norm(x), row_factor
        self.error, self.row_errors = np.linalg.norm(candidate - x), rows_of(candidate - x, shape)
        self.rows = np.stack([rows_of(d - x, shape) for d in draws])
        self.whole = np.sqrt(np.square(self.rows).sum(1))
        self.row_floors = self.unit * rows_of(x, shape)
        self.least = self.unit * self.norm / np.sqrt(len(self.row_floors))

    def worst(self, n, g):
        """Error over bound for each run of n draws; 0 where the tensor is too noisy to judge."""
        level = np.maximum(g * most(self.whole, n), self.unit * self.norm)
        w = np.maximum(g * most(self.rows, n), self.row_floors)
        e = np.maximum(w + 0.5 * np.sqrt(np.square(w).mean(1, keepdims=True)), self.least)
        ratio = np.maximum(self.error / level / FRO, (self.row_errors / e).max(1) / self.factor)
        return np.where(level <= ILL_CONDITIONED * self.norm, ratio, 0)

    def over_grid(self, n):
        """worst() for each g of the grid, [runs, grid]; where it is small with g = 1 it is not computed for others, which are smaller."""
        first = self.worst(n, 1.0)
        if first.max() < IGNORED:
            return np.repeat(first[:, None], len(GRID), 1)
        return np.stack([first] + [self.worst(n, g) for g in GRID[1:]], 1)


def most(distances, n):
    """The largest of each n draws that follow each other in the circle."""
    return np.max([np.roll(distances, -i, 0) for i in range(n)], 0)


def tensors_of(case, reference):
    about, x = read(reference / "rank-00000.safetensors")
    draws = [read(path / "rank-00000.safetensors")[1] for path in sorted(reference.parent.glob("draw-*"), key=lambda p: int(p.name[5:]))]
    ranks = [read(path) for path in sorted((case / "candidate").glob("rank-*"))]
    for name, (dtype, place, values) in x.items():
        pieces = [tensors[name] for _, tensors in ranks if name in tensors]
        if "/grad_norm/" in name or not pieces or pieces[0][1]["shape"] != place["shape"] or values.size == 0 or not np.isfinite(values).all():
            continue
        row_factor = ROW_ISOLATED if about["mode"] == "isolated" else ROW
        one = Distances(values, [d[name][2] for d in draws], merged(pieces), dtype, place["shape"] or [1], row_factor)
        if one.error > 0 and one.norm > 0:
            yield one


def measure(folder):
    """{n: A, [case and run of draws, grid]} over the cases that pass by 9 draws, how many do not, and how many draws there are."""
    found, reference, dropped, count = {n: [] for n in DRAWS}, None, 0, 0
    for case in sorted(folder.glob("case-*")):
        reference = case / "reference" if (case / "reference").is_dir() else reference
        if not (case / "candidate" / "rank-00000.safetensors").exists():
            continue
        tensors = list(tensors_of(case, reference))
        if not tensors or max(t.worst(9, 1.0).min() for t in tensors) > BUG:
            dropped += 1
            continue
        count = len(tensors[0].whole)
        for n in DRAWS:
            found[n].append(np.max([t.over_grid(n) for t in tensors], 0))
    return {n: np.concatenate(rows) for n, rows in found.items()}, dropped, count


def summary(beyond, nine, g):
    """Of A [runs, grid]: before and after widening by g, and the g of the same shares as `nine` has."""
    at = int(np.argmin(abs(GRID - g)))
    needed = {t: next((float(x) for x, a in zip(GRID, beyond.T) if (a > t).mean() <= (nine > t).mean()), None) for t in THRESHOLDS}
    return {"runs": len(beyond), "alarms": float((beyond[:, 0] > 1).mean()), "largest": float(beyond[:, 0].max()), "g": g,
            "alarms_widened": float((beyond[:, at] > 1).mean()), "largest_widened": float(beyond[:, at].max()), "g_of_same_share": needed}


def main():
    found, dropped, count = measure(pathlib.Path(sys.argv[1]))
    table = {"dropped": dropped}
    for n in DRAWS:
        has_e3 = [any((first + i) % 3 == 1 for i in range(n)) for first in range(count)]
        some = np.tile(has_e3, len(found[n]) // count)
        for name, rows in (("all", found[n]), ("with E3", found[n][some])):
            table[f"{n} {name}"] = summary(rows, found[9][:, 0], WIDENING[n])
            print(n, name, json.dumps(table[f"{n} {name}"]), flush=True)
    print(json.dumps(table))


if __name__ == "__main__":
    main()
