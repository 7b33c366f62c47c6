"""A layout as one rank sees it, and index lists of the cuts that the package makes.

Pure integers: nothing here asks the package, so that a mistake of its groups is not repeated.
"""
from dataclasses import dataclass

ORDER = ("tp", "cp", "dp", "pp")       # fastest first: the package's order "tp-cp-ep-dp-pp" with ep inside of dp
EXPERT_ORDER = ("etp", "ep", "edp", "pp")


@dataclass(frozen=True)
class Layout:
    """Sizes of the axes of a case and this rank's coordinate on each: `n["tp"]`, `at["tp"]`. `flags` holds what is no axis."""
    n: dict
    at: dict
    flags: dict

    @property
    def ranks(self):
        return self.n["tp"] * self.n["cp"] * self.n["dp"] * self.n["pp"]

    @property
    def sp(self):
        return bool(self.flags["sp"])

    def summand(self, *partial_axes):
        """The number that tells apart sums over `partial_axes`: ranks that differ on other axes hold replicas of the sum."""
        number = 0
        for axis in ORDER:
            if axis not in partial_axes:
                number = number * self.n[axis] + self.at[axis]
        return 1 + number


def layout_of(fields, rank):
    """The layout of a case's object `layout`, for one rank."""
    sizes = {axis: fields[axis] for axis in ("tp", "cp", "dp", "pp", "ep", "etp", "vpp")}
    stage_ranks = sizes["tp"] * sizes["cp"] * sizes["dp"]
    sizes["edp"] = stage_ranks // (sizes["ep"] * sizes["etp"])
    at = {}
    for order in (ORDER, EXPERT_ORDER):
        rest = rank
        for axis in order:
            at[axis] = rest % sizes[axis]
            rest //= sizes[axis]
    return Layout(sizes, at, {key: value for key, value in fields.items() if key not in sizes})


def groups_of(fields, rank):
    """{axis: ranks that differ from `rank` on it alone} for each axis that has several."""
    own = layout_of(fields, rank)
    others = [layout_of(fields, other).at for other in range(own.ranks)]
    return {axis: [other for other, at in enumerate(others) if all(at[a] == own.at[a] for a in order if a != axis)]
            for order in (ORDER, EXPERT_ORDER) for axis in order if own.n[axis] > 1}


def runs_of(start, length):
    """One run, or none."""
    return [[start, length]] if length else []


def part_of_runs(runs, parts, which):
    """The `which`-th of `parts` equal pieces of what the runs list, in their order."""
    total = sum(length for _, length in runs)
    first, last = total * which // parts, total * (which + 1) // parts
    pieces, seen = [], 0
    for start, length in runs:
        low, high = max(first, seen), min(last, seen + length)
        pieces += runs_of(start + low - seen, high - low)
        seen += length
    return pieces


def contiguous(size, parts, which):
    """The usual cut: the `which`-th of equal pieces."""
    return part_of_runs([[0, size]], parts, which)


def packed(sizes, parts, which):
    """Several logical tensors lie one after the other, and each is cut by itself."""
    pieces, start = [], 0
    for size in sizes:
        pieces += [[start + low, length] for low, length in contiguous(size, parts, which)]
        start += size
    return merged(pieces)


def zig_zag(size, layout):
    """Context parallelism: of 2 cp chunks a rank holds its own and the one that mirrors it, which evens out causal attention."""
    parts, which = layout.n["cp"], layout.at["cp"]
    if parts == 1:
        return [[0, size]]
    chunk = size // (2 * parts)
    return merged([[which * chunk, chunk], [(2 * parts - 1 - which) * chunk, chunk]])


def sequence(size, layout, sequence_parallel):
    """Positions of the sequence that a rank holds, of its context parallel piece's tp pieces if `sequence_parallel`."""
    runs = zig_zag(size, layout)
    return part_of_runs(runs, layout.n["tp"], layout.at["tp"]) if sequence_parallel else runs


def merged(runs):
    """The same elements in as few runs as possible."""
    result = []
    for start, length in runs:
        if result and result[-1][0] + result[-1][1] == start:
            result[-1][1] += length
        else:
            result.append([start, length])
    return result
