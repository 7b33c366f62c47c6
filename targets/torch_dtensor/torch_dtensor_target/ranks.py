"""DTensors from logical tensors, and back to each rank's piece with its place: for simulated ranks in this process, and for one real rank."""
import contextlib
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

from .fields import AXES


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
        made = []
        for name in names[:len(self.sizes)]:
            if name == "R" or (name[0] == "S" and dims == 0):
                made.append(Replicate())
            else:
                made.append(Partial() if name == "P" else Shard(int(name[1]) % dims))
        return made

    def make(self, full: torch.Tensor, placements, key: str) -> DTensor:
        """A DTensor whose pieces we cut ourselves. Summands are multiples of STEP, so their sum is exact. Whole numbers and truth values are replicated where
        floating-point numbers would be summands."""
        if not full.dtype.is_floating_point:
            placements = [Replicate() if placement.is_partial() else placement for placement in placements]
        with self.outside():
            locals_ = {rank: self._cut(full, placements, rank, key) for rank in self.mine}
        local = LocalTensor(locals_) if self.simulated else locals_[self.mine[0]]
        return DTensor.from_local(local, self.mesh, placements, run_check=False, shape=full.shape, stride=full.stride())

    def _cut(self, full, placements, rank, key):
        place = place_in_mesh(full.shape, placements, self.ranks, self.coordinates[rank])
        local = full
        for dim, runs in enumerate(place.index if full.ndim else ()):
            if length_of(runs) != full.shape[dim]:
                local = local.index_select(dim, torch.tensor([i for start, length, _ in runs for i in range(start, start + length)], dtype=torch.int64))
        for mesh_dim, placement in enumerate(placements):
            if placement.is_partial():
                local = self._summand(local, mesh_dim, rank, key)
        return local.clone(memory_format=torch.contiguous_format)

    def _summand(self, local, mesh_dim, rank, key):
        """This rank's part of a sum along a mesh dimension. Ranks above 0 have random multiples of STEP; rank 0 has the tensor less all of these."""
        def part(other):
            at = [*self.coordinates[rank]]
            at[mesh_dim] = other
            generator = torch.Generator().manual_seed(random.Random(f"{key}/{mesh_dim}/{at}").getrandbits(60))
            return torch.randint(1, 1 << 10, local.shape, generator=generator).to(local.dtype).mul_(STEP)
        own = self.coordinates[rank][mesh_dim]
        if own:
            return part(own)
        return local - sum(part(other) for other in range(1, self.sizes[mesh_dim]))

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
