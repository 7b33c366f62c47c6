"""Which part of the logical tensor a rank's tensor is: asks the user's function, DTensor, what DTensors left behind, the batch, in this order."""
from dataclasses import replace
from typing import Callable, Optional

import torch

from .errors import ShardfuzzError
from .marks import Mark, Marks
from .places import Place, group_of, is_dtensor, place_from_user, place_of_dtensor, replicas, summands, whole, widen
from .world import rank_and_count

ACTIVATIONS = ("act", "act_grad")
HOW = 'say batch="same" if each rank has the whole batch, batch=GROUP of the data-parallel ranks if not, or its place by places='


def local_of(tensor: torch.Tensor) -> torch.Tensor:
    """The values that this rank holds, in the CPU's memory and apart from the tensor; no dimensions become one."""
    local = tensor._local_tensor if is_dtensor(tensor) else tensor
    local = local.detach()
    local = local.clone(memory_format=torch.contiguous_format) if local.device.type == "cpu" else local.cpu().contiguous()
    return local.reshape(1) if local.dim() == 0 else local


def change_of(tensor: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """local_of(tensor) - before, which an earlier local_of gave."""
    local = (tensor._local_tensor if is_dtensor(tensor) else tensor).detach()
    return torch.sub(local.cpu().reshape(before.shape), before)


class Layout:
    """batch: who holds which rows of activations. "same": every rank has all of them. A data-parallel group (DeviceMesh, ProcessGroup, list of
    ranks): each of its ranks has an equal part along batch_dim, in the group's order, and with mean=True a loss that is the mean over its own
    part, so that losses and gradients of activations are divided by the group's size. None: nothing is known.
    places(name, tensor): a dictionary as in the metadata of targets/trace_format.md (and `scale`, by which the values are multiplied), or
    None where the rules hold; then a tensor that no rule knows is whole.
    at: (rank, ranks), if torch.distributed may run with fewer ranks meanwhile."""

    def __init__(self, batch, batch_dim: int, mean: bool, places: Optional[Callable], act_grad_scale: float = 1.0, at=None):
        self.rank, self.ranks = at or rank_and_count()
        self.known = self.ranks == 1 or batch is not None or places is not None
        self.group = None if batch is None or batch == "same" else group_of(batch, self.rank)
        self.batch_ranks = set() if self.group is None else set(self.group.ranks)
        self.batch_dim, self.mean, self.places, self.act_grad_scale = batch_dim, mean, places, act_grad_scale
        self.marks = Marks(self._describe_mark)
        self.meshes = []

    def groups(self) -> dict:
        """This rank's groups that are known, as a trace names them: those of the batch, and of the named dimensions of DTensors' meshes."""
        groups = {"dp": list(self.group.ranks)} if self.group is not None else {}
        for mesh in self.meshes:
            for axis, name in enumerate(mesh.mesh_dim_names or ()):
                place = list(mesh.get_coordinate())
                place[axis] = slice(None)
                groups.setdefault(name, mesh.mesh[tuple(place)].tolist())
        return {name: ranks for name, ranks in groups.items() if len(ranks) > 1}

    def place_now(self, name: str, kind: str, tensor: torch.Tensor) -> Optional[Place]:
        """What is known when the tensor passes, or None for a plain activation on several ranks. Raises ShardfuzzError."""
        answer = self.places(name, tensor) if self.places is not None else None
        if answer is not None:
            return place_from_user(answer, tensor.shape, name)
        if is_dtensor(tensor):
            if tensor.device_mesh not in self.meshes and tensor.device_mesh.get_coordinate() is not None:
                self.meshes.append(tensor.device_mesh)
            place = place_of_dtensor(tensor, name)
            return self._over_batch(place, kind, self._need_batch(name, tensor.device_mesh)) if kind in ACTIVATIONS else place
        if kind in ACTIVATIONS and self.ranks > 1:
            return None
        place = whole(tensor.shape)
        return self._over_batch(place, kind, True) if kind == "scalar" and "/scalar/loss/" in name else place

    def place_later(self, name: str, kind: str, local: torch.Tensor, mark: Mark) -> Place:
        """Of a plain activation, when all marks are made. Raises ShardfuzzError where nothing says where it lies."""
        if mark.place is not None and mark.place.local_shape() == tuple(local.shape):
            # A gradient of summands is the gradient of their sum, the same for each.
            place = replicas(mark.place) if kind == "act_grad" else mark.place
            return self._over_batch(place, kind, self._need_batch(name, mark.mesh))
        if not self.known:
            raise ShardfuzzError(f"{name}: a plain tensor on {self.ranks} ranks: {HOW}")
        return self._over_batch(whole(local.shape), kind, True)

    def _need_batch(self, name: str, mesh) -> bool:
        """Whether rows that are whole on the mesh are a part of the batch: the mesh does not span the data-parallel ranks."""
        ranks = set(mesh.mesh.flatten().tolist())
        if not self.known and len(ranks) < self.ranks:
            raise ShardfuzzError(f"{name}: a DTensor on {len(ranks)} of {self.ranks} ranks: {HOW}")
        return not self.batch_ranks <= ranks

    @staticmethod
    def _describe_mark(dtensor, leaving: bool) -> Optional[Place]:
        """What to_local leaves of a Partial has no place: code that goes on with a plain tensor takes it for the whole value, so the trace says
        that too, and a missing reduction shows where it is missing."""
        try:
            place = place_of_dtensor(dtensor, "")
        except ShardfuzzError:
            return None
        return None if leaving and place != replicas(place) else place

    def _over_batch(self, place: Place, kind: str, part: bool) -> Place:
        """The data-parallel part: rows of the batch, and what a mean over a rank's own rows does to losses and gradients. part: whether what is
        whole in `place` is a part of the batch."""
        if kind == "act_grad":
            place = replace(place, scale=place.scale * self.act_grad_scale)
        if self.group is None or not part:
            return place
        single = place.shape == (1,)
        if single:
            place = summands(place, self.group.sum)
        elif len(place.shape) > self.batch_dim:
            place = widen(place, self.batch_dim, self.group)
        if self.mean and (kind == "act_grad" or single):
            place = replace(place, scale=place.scale / self.group.count)
        return place
