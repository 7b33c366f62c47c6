"""The candidate's own tensors, as an anchored reference is given them (targets/worker.md): the trace of one rank, each logical tensor whole."""
import json
import os
import struct
from typing import Optional

import torch

from .writer import TYPES, file_name

_OF_NAME = {name: dtype for dtype, name in TYPES.items()}


class Anchored(torch.autograd.Function):
    """Hands on another value in place of a tensor, whose gradient passes unchanged: what comes after is made of that value. value: a function that
    gives it; an argument that is handed on would count as a view, which nothing may overwrite."""

    @staticmethod
    def forward(context, tensor, value):
        return value()

    @staticmethod
    def backward(context, gradient):
        return gradient, None


class Anchors:
    """folder: of the trace. Values are read when they are asked for. Raises OSError."""

    def __init__(self, folder: str):
        path = os.path.join(folder, file_name(0))
        with open(path, "rb") as file:
            length, = struct.unpack("<Q", file.read(8))
            self._entries = json.loads(file.read(length))
        self._begin = 8 + length
        self._bytes = torch.from_file(path, shared=False, size=os.path.getsize(path), dtype=torch.uint8)

    def of(self, name: str, like: torch.Tensor) -> Optional[torch.Tensor]:
        """The candidate's tensor of that name, in memory of its own, in the type and on the device of `like`. None where it has none of that shape: the comparison
        says so, and what follows is made of the reference's own."""
        entry = self._entries.get(name)
        if entry is None or entry["shape"] != (list(like.shape) or [1]):
            return None
        first, last = entry["data_offsets"]
        values = self._bytes[self._begin + first:self._begin + last].clone().view(_OF_NAME[entry["dtype"]])
        # No view: what follows may work in place.
        return torch.empty(like.shape, dtype=like.dtype, device=like.device).copy_(values.view(like.shape))
