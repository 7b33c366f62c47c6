"""DTensors from logical tensors, and back to each rank's piece with its place: for simulated ranks in this process, and for one real rank."""
import contextlib
import functools
import itertools
import random

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed._local_tensor import LocalTensor, LocalTensorMode
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from shardfuzz.chains.exact import STEP
from shardfuzz.places import is_sum, length_of, place_in_mesh, whole

from .fields import AXES, PARTIAL
from .operations import WAYS


def placements_of(names, dims: int):
    """From names of fields.PLACEMENTS, for a tensor with that many dimensions. Where two dimensions of the mesh make other values of what their ranks have, the
    tensor is replicated along both: the result would depend on their order."""
    can_wait = len({name for name in names if name in PARTIAL}) < 2

    def placement(name):
        if name in PARTIAL and can_wait:
            return Partial(PARTIAL[name])
        return Shard(int(name[1]) % dims) if name[0] == "S" and dims else Replicate()
    return [placement(name) for name in names]


def without_sums(placements):
    """The same placements, replicated in place of what ranks would have to add up or compare."""
    return [Replicate() if one.is_partial() else one for one in placements]


class Ranks:
    """The ranks of a mesh of tp x dp, the second dimension left out where it is 1. mine: all of them where this process simulates them, else this one."""

    def __init__(self, tp: int, dp: int, mine):
        self.sizes = (tp,) if dp == 1 else (tp, dp)
        self.count, self.mine = tp * dp, tuple(mine)
        self.simulated = len(self.mine) > 1
        self.mode = LocalTensorMode(frozenset(range(self.count))) if self.simulated else None
        self.ranks = torch.arange(self.count).reshape(self.sizes)
        with self.entered():
            self.mesh = DeviceMesh("cpu", self.ranks)
        self.coordinates = list(itertools.product(*map(range, self.sizes)))

    def entered(self):
        return self.mode if self.simulated else contextlib.nullcontext()

    def outside(self):
        """A context in which tensors are plain, and not one for each simulated rank."""
        return self.mode.disable() if self.simulated else contextlib.nullcontext()

    def groups(self, rank):
        """{axis: ranks that differ from this one along it alone}."""
        at = self.coordinates[rank]
        return {axis: self.ranks[tuple(slice(None) if d == dim else c for d, c in enumerate(at))].tolist()
                for dim, axis in enumerate(AXES[:len(self.sizes)])}

    def placements(self, names, dims: int):
        """From names of fields.PLACEMENTS, for a tensor with that many dimensions."""
        return placements_of(names[:len(self.sizes)], dims)

    def ways(self, names):
        """The functions of operations.WAYS. names: of the operands, as for placements()."""
        def way(text):
            run = eval(f"lambda one, placements: {text}", {"DTensor": DTensor, "Replicate": Replicate, "Shard": Shard})
            return lambda one: run(one, without_sums(self.placements(names, one.ndim)))
        return {name: way(text) for name, text in WAYS.items()}

    def make(self, full: torch.Tensor, placements, key: str) -> DTensor:
        """A DTensor whose pieces we cut ourselves. Summands are multiples of STEP, so their sum is exact. Whole numbers and truth values are replicated where
        floating-point numbers would be summands."""
        if not full.dtype.is_floating_point:
            placements = without_sums(placements)
        with self.outside():
            locals_ = {rank: self._cut(full, placements, rank, key) for rank in self.mine}
        local = LocalTensor(locals_) if self.simulated else locals_[self.mine[0]]
        return DTensor.from_local(local, self.mesh, placements, run_check=False, shape=full.shape, stride=full.stride())

    def _cut(self, full, placements, rank, key):
        place = place_in_mesh(full.shape, without_sums(placements), self.ranks, self.coordinates[rank])
        local = full
        for dim, runs in enumerate(place.index if full.ndim else ()):
            if length_of(runs) != full.shape[dim]:
                local = local.index_select(dim, torch.tensor([i for start, length, _ in runs for i in range(start, start + length)], dtype=torch.int64))
        for mesh_dim, placement in enumerate(placements):
            if placement.is_partial():
                local = self._part(placement.reduce_op, local, mesh_dim, rank, key)
        return local.clone(memory_format=torch.contiguous_format)

    def _part(self, kind, local, mesh_dim, rank, key):
        """What this rank has of values that a mesh dimension's ranks add up, average, or take the largest or smallest of. All are multiples of STEP, and random
        but for one rank's: of sums rank 0's, of the others that which a random number names. Ranks that differ in later dimensions of the mesh alone have the same."""
        def random_of(other, lowest, end):
            at = [*self.coordinates[rank][:mesh_dim], other]
            generator = torch.Generator().manual_seed(random.Random(f"{key}/{mesh_dim}/{at}").getrandbits(60))
            return torch.randint(lowest, end, local.shape, generator=generator).to(local.dtype)
        own, size = self.coordinates[rank][mesh_dim], self.sizes[mesh_dim]
        if kind in ("max", "min"):
            holder, off = random_of(0, 0, size), random_of(own, 1, 1 << 10).mul_(STEP)
            return torch.where(holder == own, local, local - off if kind == "max" else local + off)
        part = functools.partial(random_of, lowest=1, end=1 << 10)
        if own:
            return part(own).mul_(STEP)
        return (local * size if kind == "avg" else local) - sum(part(other) for other in range(1, size)) * STEP

    def pieces(self, tensor):
        """[(rank, local tensor, Place)] of a DTensor, or of a plain tensor that each rank has. A DTensor is recorded as full_tensor() gives it where its placements
        are of no sum of numbers, or say another shape than a piece has."""
        if isinstance(tensor, DTensor):
            if all(not placement.is_partial() or (is_sum(placement) and tensor.dtype.is_floating_point) for placement in tensor.placements):
                found = [(rank, local, place_in_mesh(tensor.shape, tensor._spec, self.ranks, self.coordinates[rank]))
                         for rank, local in self._locals(tensor._local_tensor).items()]
                if self._on_all_ranks(all((tuple(local.shape) or (1,)) == place.local_shape() for _, local, place in found)):
                    return found
            tensor = tensor.full_tensor()
        return [(rank, local, whole(local.shape)) for rank, local in self._locals(tensor).items()]

    def _on_all_ranks(self, right: bool) -> bool:
        """Whether all ranks say so. They decide together, since full_tensor() needs all of them."""
        if not self.simulated and self.count > 1:
            said = torch.tensor(int(right))
            dist.all_reduce(said, dist.ReduceOp.MIN)
            return bool(said)
        return right

    def _locals(self, tensor):
        if isinstance(tensor, AsyncCollectiveTensor):
            tensor = tensor.wait()
        if self.simulated:
            return tensor._local_tensors if isinstance(tensor, LocalTensor) else {rank: tensor for rank in self.mine}
        return {self.mine[0]: tensor}
