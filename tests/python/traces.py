"""Reads a trace's files with nothing but Python and torch."""
import json
import struct
from pathlib import Path

import torch

TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def read_file(path):
    """(about, {name: tensor}) in the order of the metadata."""
    data = Path(path).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    about = json.loads(header.pop("__metadata__")["shardfuzz"])
    assert set(about["tensors"]) == set(header), path
    tensors = {}
    for name in about["tensors"]:
        begin, end = header[name]["data_offsets"]
        tensors[name] = torch.frombuffer(bytearray(data[8 + size + begin:8 + size + end]), dtype=TYPES[header[name]["dtype"]]).reshape(header[name]["shape"])
    return about, tensors


def read(folder, rank=0):
    return read_file(Path(folder) / f"rank-{rank:05d}.safetensors")
