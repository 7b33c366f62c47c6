"""Writes bf16_casts.csv: what PyTorch's float32 -> bfloat16 cast does.

    python3 corpus/golden/make_casts.py

Rows `value,BITS,BITS`: a float32 bit pattern and its bfloat16 bit pattern; every NaN is written 7fc0, because only being NaN is promised.
Rows `digest,LOW,HASH`: FNV-1a over the 2^16 results (two bytes each, little-endian) of all float32 patterns whose low half is LOW.
Together the low halves stand for exact values, just above, just below and at a tie, just above a tie, and the last before the next value.
Read by tests/unit/spec/test_spec_dtype.c.
"""

import pathlib

import torch

LOWS = [0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF]
HIGHS = [0x0000, 0x0001, 0x0002, 0x007E, 0x007F, 0x0080, 0x0081, 0x3F7F, 0x3F80, 0x3F81]
HIGHS += [0x7F7E, 0x7F7F, 0x7F80, 0x7F81, 0x7FA5, 0x7FC0, 0x7FFF]


def cast(patterns):
    """bfloat16 bit patterns of float32 bit patterns."""
    signed = torch.tensor(patterns, dtype=torch.int64).to(torch.int32)
    result = signed.view(torch.float32).to(torch.bfloat16)
    bits = result.view(torch.int16).to(torch.int64) & 0xFFFF
    return torch.where(result.isnan(), torch.tensor(0x7FC0), bits).tolist()


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def main():
    lines = ["row,from,to"]
    chosen = [sign << 31 | high << 16 | low for sign in (0, 1) for high in HIGHS for low in LOWS]
    lines += [f"value,{source:08x},{result:04x}" for source, result in zip(chosen, cast(chosen))]
    for low in LOWS:
        results = cast([high << 16 | low for high in range(1 << 16)])
        data = b"".join(result.to_bytes(2, "little") for result in results)
        lines.append(f"digest,{low:04x},{fnv1a(data):016x}")
    pathlib.Path(__file__).with_name("bf16_casts.csv").write_text("\n".join(lines) + "\n")


main()
