"""The files of golden runs, beside this script: NAME.json (the case) and NAME.safetensors (its tensors, float64)."""
import json
import pathlib
import struct

FOLDER = pathlib.Path(__file__).parent


def write_safetensors(path, tensors):
    """tensors: name -> numpy array, float64."""
    header, at = {}, 0
    for name, value in tensors.items():
        header[name] = dict(dtype="F64", shape=list(value.shape), data_offsets=[at, at + value.nbytes])
        at += value.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(value.astype("<f8").tobytes() for value in tensors.values()))


def write_golden(name, case, tensors):
    """Returns the size of the tensors' file in bytes."""
    path = FOLDER / f"{name}.safetensors"
    path.with_suffix(".json").write_text(json.dumps({"schema": 1, **case}, indent=2) + "\n")
    write_safetensors(path, tensors)
    size = path.stat().st_size
    print(f"{name}: {size} bytes")
    return size
