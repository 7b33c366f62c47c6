"""Where a rank's piece of a tensor lies in the logical tensor, in the terms of targets/trace_format.md.

A run is (start, length, sum); a dimension's index is a list of runs in local order. The sum of a group is one more than its lowest global
rank: the same on all its ranks, and another one for each group.
"""
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import List, Optional, Tuple

import torch
import torch.distributed as dist

from .errors import ShardfuzzError

Run = Tuple[int, int, int]


@dataclass(frozen=True)
class Place:
    """shape: of the logical tensor. index: for each dimension its runs. flat: (first, count) of the box in row-major order, or None. What
    is written is the local tensor times scale."""

    shape: Tuple[int, ...]
    index: Tuple[Tuple[Run, ...], ...]
    flat: Optional[Tuple[int, int]] = None
    scale: float = 1.0

    def local_shape(self) -> Tuple[int, ...]:
        if self.flat is not None:
            return (self.flat[1],)
        return tuple(sum(run[1] for run in runs) for runs in self.index)

    def to_json(self) -> dict:
        """What the metadata of a trace says of a tensor; runs that are no summands have two numbers."""
        index = [[list(run) if run[2] else list(run[:2]) for run in runs] for runs in self.index]
        known = {"shape": list(self.shape), "index": index}
        if self.flat is not None:
            known["flat"] = list(self.flat)
        return known


@dataclass(frozen=True)
class Group:
    """Global ranks that share something, and this rank's index among them. sum names them."""

    ranks: Tuple[int, ...]
    index: int

    @property
    def count(self) -> int:
        return len(self.ranks)

    @property
    def sum(self) -> int:
        return 1 + min(self.ranks)


def group_of(group, rank: Optional[int] = None) -> Group:
    """From a DeviceMesh (all its dimensions, in row-major order), a ProcessGroup or a list of global ranks. rank: this rank's number,
    if torch.distributed may run with fewer ranks. Raises ShardfuzzError."""
    if hasattr(group, "mesh"):
        ranks = group.mesh.flatten().tolist()
    elif isinstance(group, (list, tuple)):
        ranks = list(group)
    elif isinstance(group, dist.ProcessGroup):
        ranks = dist.get_process_group_ranks(group)
    else:
        raise ShardfuzzError(f"{group!r} is no group of ranks: give a DeviceMesh, a ProcessGroup or a list of global ranks; "
                             "where build() makes the mesh, let it return (model, optimizer, mesh)")
    rank = rank if rank is not None else dist.get_rank() if dist.is_initialized() else 0
    if rank not in ranks:
        raise ShardfuzzError(f"rank {rank} is not in the group of ranks {ranks}")
    return Group(tuple(ranks), ranks.index(rank))


def take(runs, first: int, count: int) -> Tuple[Run, ...]:
    """The elements [first, first + count) of the runs."""
    taken, place = [], 0
    for start, length, summed in runs:
        begin, end = max(first, place), min(first + count, place + length)
        if begin < end:
            taken.append((start + begin - place, end - begin, summed))
        place += length
    return tuple(taken)


def merge(runs) -> Tuple[Run, ...]:
    """The same elements in as few runs."""
    merged: List[Run] = []
    for start, length, summed in runs:
        if merged and merged[-1][2] == summed and merged[-1][0] + merged[-1][1] == start:
            merged[-1] = (merged[-1][0], merged[-1][1] + length, summed)
        else:
            merged.append((start, length, summed))
    return tuple(merged)


def length_of(runs) -> int:
    return sum(run[1] for run in runs)


def chunk(runs, index: int, count: int) -> Tuple[Run, ...]:
    """Part `index` of `count` as torch.chunk cuts: all of the first's size, the last ones smaller or empty."""
    total = length_of(runs)
    size = -(-total // count)
    return take(runs, index * size, size)


@lru_cache(maxsize=4096)
def whole(shape) -> Place:
    """The whole tensor, a replica where several ranks hold it. A tensor without dimensions is a vector of one element."""
    shape = tuple(shape) or (1,)
    return Place(shape, tuple(((0, size, 0),) for size in shape))


def place_from_user(answer: dict, local_shape, name: str) -> Place:
    """From what a `places` function returned: the keys of targets/trace_format.md, all optional, and `scale`."""
    unknown = set(answer) - {"shape", "index", "flat", "scale"}
    if unknown:
        raise ShardfuzzError(f"{name}: places gave unknown keys {sorted(unknown)}")
    shape = tuple(answer.get("shape") or local_shape) or (1,)
    index = answer.get("index") or [[[0, size]] for size in shape]
    if len(index) != len(shape):
        raise ShardfuzzError(f"{name}: places gave {len(index)} dimensions of index for a tensor of {len(shape)}")
    index = tuple(tuple((run[0], run[1], run[2] if len(run) > 2 else 0) for run in runs) for runs in index)
    flat = tuple(answer["flat"]) if answer.get("flat") else None
    return Place(shape, index, flat, float(answer.get("scale", 1.0)))


def summands(place: Place, summed: int) -> Place:
    """The same elements as summands of the group that `summed` names."""
    first = tuple((start, length, summed) for start, length, _ in place.index[0])
    return replace(place, index=(first,) + place.index[1:])


def replicas(place: Place) -> Place:
    """The same elements, none of them a summand."""
    return replace(place, index=tuple(tuple((start, length, 0) for start, length, _ in runs) for runs in place.index))


def widen(place: Place, dim: int, group: Group) -> Place:
    """The place of a tensor of which each of the group's ranks has an equal part along dim, in order."""
    size = place.shape[dim]
    shape = tuple(size * group.count if d == dim else n for d, n in enumerate(place.shape))
    moved = tuple((start + group.index * size, length, summed) for start, length, summed in place.index[dim])
    return replace(place, shape=shape, index=tuple(moved if d == dim else runs for d, runs in enumerate(place.index)))


# --- for `places` functions: cuts that compose, from a tensor or from another's answer ---------------------------------

def _start(of) -> Place:
    if isinstance(of, dict):
        return place_from_user(of, (), "a cut")
    return whole(of.shape)


def cut(of, dim: int, group) -> dict:
    """`of`: the local tensor, or what another cut gave. Each rank of the group has an equal part of dimension dim, in the group's order."""
    place = _start(of)
    return widen(place, dim % len(place.shape), group_of(group)).to_json()


def zigzag(of, dim: int, group) -> dict:
    """As cut, but of 2n equal parts rank i of n has parts i and 2n - 1 - i (causal context parallelism)."""
    place, ranks = _start(of), group_of(group)
    dim %= len(place.shape)
    if place.shape[dim] % 2:
        raise ShardfuzzError(f"zigzag: dimension {dim} has {place.shape[dim]} elements, which are no two equal parts")
    half, last = place.shape[dim] // 2, 2 * ranks.count - 1 - ranks.index
    runs = [(start + ranks.index * half, length, summed) for start, length, summed in take(place.index[dim], 0, half)]
    runs += [(start + (last - 1) * half, length, summed) for start, length, summed in take(place.index[dim], half, half)]
    shape = tuple(n * ranks.count if d == dim else n for d, n in enumerate(place.shape))
    index = tuple(merge(runs) if d == dim else old for d, old in enumerate(place.index))
    return replace(place, shape=shape, index=index).to_json()


def summed(of, group) -> dict:
    """The ranks of the group hold summands of the tensor."""
    return summands(_start(of), group_of(group).sum).to_json()


# --- DTensor ----------------------------------------------------------------------------------------------------------

def _cuts(spec):
    """(mesh dimension, placement) of every cut, in the order in which they are applied."""
    order = getattr(spec, "shard_order", None)
    if order is None:
        return list(enumerate(spec.placements))
    cuts = [(mesh_dim, spec.placements[mesh_dim]) for entry in order for mesh_dim in entry.mesh_dims]
    return cuts + [(d, p) for d, p in enumerate(spec.placements) if not any(d == done for done, _ in cuts)]


def _cut_runs(runs, placement, index: int, count: int) -> Tuple[Run, ...]:
    """One placement's cut. A strided one cuts each of split_factor parts, and the pieces lie one behind the other."""
    parts = getattr(placement, "split_factor", 1)
    pieces = [chunk(chunk(runs, part, parts), index, count) for part in range(parts)]
    return merge(run for piece in pieces for run in piece)


def is_sum(placement) -> bool:
    """Whether the ranks of a Partial hold summands, or values whose mean it is. Partials of other kinds transform what they add up."""
    return type(placement).__name__ == "Partial" and placement.reduce_op in ("sum", "avg")


def place_in_mesh(shape, spec, ranks: torch.Tensor, coordinate) -> Place:
    """What spec, a DTensorSpec or a list of placements, gives the rank at `coordinate` of a mesh. ranks: of the mesh, by coordinate. Shard (uneven too),
    Replicate, Partial of sums and averages, strided shards. ShardfuzzError for a Partial of another kind."""
    index = [list(runs) for runs in whole(shape).index]
    partial, scale = [], 1.0
    for mesh_dim, placement in list(enumerate(spec)) if isinstance(spec, (list, tuple)) else _cuts(spec):
        if placement.is_partial():
            if not is_sum(placement):
                raise ShardfuzzError(f"placement {placement} is no sum")
            partial.append(mesh_dim)
            scale /= ranks.shape[mesh_dim] if placement.reduce_op == "avg" else 1
        elif hasattr(placement, "dim"):
            index[placement.dim] = _cut_runs(index[placement.dim], placement, coordinate[mesh_dim], ranks.shape[mesh_dim])
    place = Place(tuple(shape) or (1,), tuple(tuple(runs) for runs in index), None, scale)
    if not partial:
        return place
    alike = ranks[tuple(slice(None) if d in partial else c for d, c in enumerate(coordinate))]  # ranks that differ from this one in these dimensions
    return summands(place, 1 + int(alike.min()))


def place_of_dtensor(tensor, name: str) -> Place:
    """From mesh and placements: Shard (uneven too), Replicate, Partial of sums and averages, strided shards, any number of mesh dimensions.
    Raises ShardfuzzError for a Partial of another kind and where the local tensor has another size than its placements say."""
    try:
        place = place_in_mesh(tensor.shape, tensor._spec, tensor.device_mesh.mesh, tensor.device_mesh.get_coordinate())
    except ShardfuzzError as error:
        raise ShardfuzzError(f"{name}: {error}") from None
    local = tuple(tensor._local_tensor.shape) or (1,)
    if place.local_shape() != local:
        raise ShardfuzzError(f"{name}: the local tensor has shape {list(local)}, its placements {tensor.placements} say {list(place.local_shape())}")
    return place


def is_dtensor(tensor) -> bool:
    return isinstance(tensor, torch.Tensor) and hasattr(tensor, "_spec") and hasattr(tensor, "_local_tensor")
