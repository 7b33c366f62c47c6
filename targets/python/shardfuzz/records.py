"""The trace so far: values in execution order, each with its place or the mark that will give it."""
import hashlib
import weakref
from typing import Dict, List, Optional

import torch

from .errors import ShardfuzzError
from .layout import Layout, local_of
from .marks import Mark
from .places import Place, is_dtensor
from .writer import TYPES, Entry


class Record:
    def __init__(self, kind: str, data: torch.Tensor, place: Optional[Place], mark: Optional[Mark]):
        self.kind, self.data, self.place, self.mark = kind, data, place, mark


class Recorder:
    def __init__(self, layout: Layout):
        self.layout = layout
        self.records: Dict[str, Record] = {}
        self.last = None  # (tensor weakly, its version, values) of the last copy: a module often gives what its last child gave
        self.error: Optional[ShardfuzzError] = None  # the first; raised by entries, since one rank alone must not leave the step

    def add(self, name: str, kind: str, tensor: torch.Tensor, mark: Optional[Mark] = None, place_of=None) -> torch.Tensor:
        """Copies the tensor's local values. What comes a second time under a name is added: a gradient in parts. place_of: the tensor whose
        place it has; then `tensor` is the recorder's own to keep."""
        data = self._copy(tensor) if place_of is None else tensor
        if name in self.records:
            self.records[name].data = self.records[name].data + data
            return data
        place = None
        try:
            place = self.layout.place_now(name, kind, tensor if place_of is None else place_of)
        except ShardfuzzError as error:
            self.error = self.error or error
        if place is None and mark is None:
            mark = self.layout.marks.of(tensor)
        self.records[name] = Record(kind, data, place, mark)
        return data

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        if is_dtensor(tensor) or tensor.is_inference():  # their versions do not tell of changes
            return local_of(tensor)
        if self.last is not None and self.last[0]() is tensor and self.last[1] == tensor._version:
            return self.last[2]
        data = local_of(tensor)
        self.last = (weakref.ref(tensor), tensor._version, data)
        return data

    def digest(self) -> bytes:
        """The same for the same values, bit for bit."""
        digest = hashlib.blake2b()
        for record in self.records.values():
            digest.update(record.data.contiguous().view(-1).view(torch.uint8).numpy())
        return digest.digest()

    def entries(self) -> List[Entry]:
        """All entries, ready to be written. A rank that holds no part of a tensor does not name it. Raises ShardfuzzError."""
        if self.error is not None:
            raise self.error
        entries = []
        for name, record in self.records.items():
            if record.data.dtype not in TYPES:
                raise ShardfuzzError(f"{name}: type {record.data.dtype} cannot be traced")
            place = record.place or self.layout.place_later(name, record.kind, record.data, record.mark)
            if record.data.numel() == 0:
                continue
            if place.local_shape() != tuple(record.data.shape):
                raise ShardfuzzError(f"{name}: has shape {list(record.data.shape)}, its place says {list(place.local_shape())}")
            data = record.data if place.scale == 1.0 else (record.data.double() * place.scale).to(record.data.dtype)
            entries.append((name, data, place))
        return entries
