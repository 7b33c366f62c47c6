"""Files of a trace (targets/trace_format.md): written beside their final name first, so that a trace is there whole or not at all."""
import json
import os
import struct
from typing import Callable, Dict, List, Optional, Tuple

import torch

from .errors import ShardfuzzError
from .places import Place
from .world import together

TYPES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
         torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2"}

Entry = Tuple[str, torch.Tensor, Place]
Groups = Optional[Dict[str, List[int]]]  # {"tp": [0, 1]}: the ranks of each group that this rank is in


def file_name(rank: int) -> str:
    return f"rank-{rank:05d}.safetensors"


def _header(entries: List[Entry], rank: int, ranks: int, mode: str, groups: Groups, replicas: str) -> bytes:
    tensors: Dict[str, dict] = {}
    header: Dict[str, dict] = {}
    offset = 0
    for name, data, place in entries:
        end = offset + data.numel() * data.element_size()
        header[name] = {"dtype": TYPES[data.dtype], "shape": list(data.shape), "data_offsets": [offset, end]}
        tensors[name] = place.to_json()
        offset = end
    about = {"format": 1, "rank": rank, "ranks": ranks, "mode": mode, "replicas": replicas, "groups": groups or {}, "tensors": tensors}
    text = json.dumps({"__metadata__": {"shardfuzz": json.dumps(about)}, **header}).encode()
    return text + b" " * (-len(text) % 8)


def write_file(path: str, entries: List[Entry], rank: int, ranks: int, mode: str = "e2e", groups: Groups = None, replicas: str = "equal") -> None:
    """Writes one rank's file; for a worker, whose folder is empty and whose answer says when the file is complete. Data: contiguous
    tensors with at least one dimension. mode: e2e, isolated or anchored. replicas: equal or close. Raises OSError."""
    header = _header(entries, rank, ranks, mode, groups, replicas)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)))
        file.write(header)
        for _, data, _ in entries:
            flat = data.detach().cpu().reshape(-1)
            flat = flat if flat.stride() == (1,) else flat.clone(memory_format=torch.contiguous_format)  # one element may have any stride
            file.write(memoryview(flat.view(torch.uint8).numpy()))


def write_partial(directory: str, entries: List[Entry], rank: int, ranks: int, mode: str = "e2e", groups: Groups = None) -> str:
    """As write_file, under a name of the file's own beside its final one. Returns the path.
    Raises ShardfuzzError (no space, no permission) and leaves nothing behind."""
    path = os.path.join(directory, f".{file_name(rank)}.partial")
    try:
        os.makedirs(directory, exist_ok=True)
        write_file(path, entries, rank, ranks, mode, groups)
    except OSError as error:
        remove(path)
        raise ShardfuzzError(f"{path}: {error.strerror or error}") from None
    return path


def remove(path: str) -> None:
    try:
        os.remove(path)
    except OSError:
        pass


def clear(directory: str) -> None:
    """Removes an earlier trace's files and its noise levels, and nothing else. Raises ShardfuzzError."""
    try:
        for name in os.listdir(directory):
            if name == "noise.safetensors" or (name.startswith("rank-") and name.endswith(".safetensors")):
                os.remove(os.path.join(directory, name))
    except OSError as error:
        raise ShardfuzzError(f"{directory}: {error.strerror or error}") from None


def publish(directory: str, path: str, rank: int) -> None:
    """Gives the rank's file its final name. Raises ShardfuzzError."""
    try:
        os.replace(path, os.path.join(directory, file_name(rank)))
    except OSError as error:
        raise ShardfuzzError(f"{path}: {error.strerror or error}") from None


def write_together(directory: str, entries: Callable[[], List[Entry]], rank: int, ranks: int, groups: Groups = None, mode: str = "e2e") -> None:
    """Every rank writes its file; what was there is replaced when all have theirs. entries may raise ShardfuzzError too: then all ranks raise
    it, and an earlier trace stays as it was."""
    path = os.path.join(directory, f".{file_name(rank)}.partial")
    try:
        together(lambda: write_partial(directory, entries(), rank, ranks, mode, groups))
        together(lambda: clear(directory) if rank == 0 else None)
        together(lambda: publish(directory, path, rank))
    finally:
        remove(path)
