"""Writes bf16_casts.csv, f16_casts.csv, f8_e4m3_casts.csv and f8_e5m2_casts.csv: what PyTorch's casts from float32 do.

    python3 corpus/golden/make_casts.py

Rows `value,BITS,BITS`: a float32 bit pattern and that of its cast; every NaN is written 7fc0 (7e00, 7f), because only being NaN is promised.
fp8 is cast with saturation, which PyTorch's own cast does not do: infinity and all above the largest number are given to it as that number.
Rows `digest,LOW,HASH`: FNV-1a over the 2^16 results (two bytes each, little-endian; one byte for fp8) of all float32 patterns whose low half is LOW.
Together the low halves stand for exact values, just above, just below and at a tie, just above a tie, and the last before the next value;
of fp16 ties lie at 1000 and 3000; of fp8, whose bits all lie in the high half, ties are exact where LOW is 0.
Read by tests/unit/spec/test_spec_dtype.c.
"""

import math
import pathlib

import torch

LOWS = [0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF]
F16_LOWS = [0x0000, 0x0001, 0x0FFF, 0x1000, 0x1001, 0x2FFF, 0x3000, 0x3001, 0x8000, 0xFFFF]
HIGHS = [0x0000, 0x0001, 0x0002, 0x007E, 0x007F, 0x0080, 0x0081, 0x3F7F, 0x3F80, 0x3F81]
HIGHS += [0x7F7E, 0x7F7F, 0x7F80, 0x7F81, 0x7FA5, 0x7FC0, 0x7FFF]
# Around fp16's smallest subnormal, smallest normal and largest number.
F16_HIGHS = [0x32FF, 0x3300, 0x337F, 0x3380, 0x33C0, 0x3800, 0x387F, 0x3880, 0x3881, 0x3F80, 0x477E, 0x477F, 0x4780, 0x7F80, 0x7FA5]
# All 256 numbers of each fp8 format and what lies half way between two of them, in the high halves.
F8_LOWS = [0x0000, 0x0001, 0x7FFF, 0x8000, 0xFFFF]
F8 = (torch.float8_e4m3fn, torch.float8_e5m2)


def f8_highs(dtype):
    numbers = torch.arange(127 if dtype == torch.float8_e4m3fn else 124, dtype=torch.uint8).view(dtype).float()
    both = torch.cat([numbers, (numbers[1:] + numbers[:-1]) / 2, torch.tensor([math.inf, math.nan, 1e30, 1e-30])])
    return sorted({int(bits) >> 16 & 0x7FFF for bits in both.view(torch.int32)})


def cast(patterns, dtype):
    """Bit patterns of the casts of float32 bit patterns."""
    signed = torch.tensor(patterns, dtype=torch.int64).to(torch.int32)
    value = signed.view(torch.float32)
    if dtype in F8:
        largest = torch.finfo(dtype).max
        result = value.clamp(-largest, largest).to(dtype)
        bits = result.view(torch.uint8).to(torch.int64)
        return torch.where(value.isnan(), torch.tensor(0x7F), bits).tolist()
    result = value.to(dtype)
    bits = result.view(torch.int16).to(torch.int64) & 0xFFFF
    return torch.where(result.isnan(), torch.tensor(0x7FC0 if dtype == torch.bfloat16 else 0x7E00), bits).tolist()


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def write(name, dtype, highs, lows, digest_lows=None):
    lines = ["row,from,to"]
    chosen = [sign << 31 | high << 16 | low for sign in (0, 1) for high in highs for low in lows]
    lines += [f"value,{source:08x},{result:04x}" for source, result in zip(chosen, cast(chosen, dtype))]
    for low in digest_lows or lows:
        results = cast([high << 16 | low for high in range(1 << 16)], dtype)
        data = b"".join(result.to_bytes(1 if dtype in F8 else 2, "little") for result in results)
        lines.append(f"digest,{low:04x},{fnv1a(data):016x}")
    pathlib.Path(__file__).with_name(name).write_text("\n".join(lines) + "\n")


write("bf16_casts.csv", torch.bfloat16, HIGHS, LOWS)
write("f16_casts.csv", torch.float16, F16_HIGHS, F16_LOWS)
write("f8_e4m3_casts.csv", F8[0], f8_highs(F8[0]), [0], F8_LOWS)
write("f8_e5m2_casts.csv", F8[1], f8_highs(F8[1]), [0], F8_LOWS)
