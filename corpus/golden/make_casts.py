"""Writes bf16_casts.csv and f16_casts.csv: what PyTorch's casts from float32 to bfloat16 and float16 do.

    python3 corpus/golden/make_casts.py

Rows `value,BITS,BITS`: a float32 bit pattern and that of its cast; every NaN is written 7fc0 (7e00), because only being NaN is promised.
Rows `digest,LOW,HASH`: FNV-1a over the 2^16 results (two bytes each, little-endian) of all float32 patterns whose low half is LOW.
Together the low halves stand for exact values, just above, just below and at a tie, just above a tie, and the last before the next value;
of fp16 ties lie at 1000 and 3000.
Read by tests/unit/spec/test_spec_dtype.c.
"""

import pathlib

import torch

LOWS = [0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF]
F16_LOWS = [0x0000, 0x0001, 0x0FFF, 0x1000, 0x1001, 0x2FFF, 0x3000, 0x3001, 0x8000, 0xFFFF]
HIGHS = [0x0000, 0x0001, 0x0002, 0x007E, 0x007F, 0x0080, 0x0081, 0x3F7F, 0x3F80, 0x3F81]
HIGHS += [0x7F7E, 0x7F7F, 0x7F80, 0x7F81, 0x7FA5, 0x7FC0, 0x7FFF]
# Around fp16's smallest subnormal, smallest normal and largest number.
F16_HIGHS = [0x32FF, 0x3300, 0x337F, 0x3380, 0x33C0, 0x3800, 0x387F, 0x3880, 0x3881, 0x3F80, 0x477E, 0x477F, 0x4780, 0x7F80, 0x7FA5]


def cast(patterns, dtype):
    """Bit patterns of the casts of float32 bit patterns."""
    signed = torch.tensor(patterns, dtype=torch.int64).to(torch.int32)
    result = signed.view(torch.float32).to(dtype)
    bits = result.view(torch.int16).to(torch.int64) & 0xFFFF
    return torch.where(result.isnan(), torch.tensor(0x7FC0 if dtype == torch.bfloat16 else 0x7E00), bits).tolist()


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def write(name, dtype, highs, lows):
    lines = ["row,from,to"]
    chosen = [sign << 31 | high << 16 | low for sign in (0, 1) for high in highs for low in lows]
    lines += [f"value,{source:08x},{result:04x}" for source, result in zip(chosen, cast(chosen, dtype))]
    for low in lows:
        results = cast([high << 16 | low for high in range(1 << 16)], dtype)
        data = b"".join(result.to_bytes(2, "little") for result in results)
        lines.append(f"digest,{low:04x},{fnv1a(data):016x}")
    pathlib.Path(__file__).with_name(name).write_text("\n".join(lines) + "\n")


write("bf16_casts.csv", torch.bfloat16, HIGHS, LOWS)
write("f16_casts.csv", torch.float16, F16_HIGHS, F16_LOWS)
