#!/usr/bin/env python3
"""Writes consistent.csv: values of harness/tensor/consistent.h from a second implementation in plain Python integers.

Every draw is an exact integer multiple of a power of two; scaling and adding round once each to fp32 (struct does the
rounding: a double holds every product and sum here exactly, or is asserted to). Run in this folder: python3 make_consistent.py
"""
import struct
from fractions import Fraction

from golden_hashes import MASK, element_bits, fill_key, mix64

EXTRA = 0xD1B54A32D192ED03
DISTS = ["normal", "uniform", "heavy", "outliers", "offset", "sparse"]


def bits_of(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def to_f32(exact):
    """Nearest fp32, ties to even, of a Fraction that fp64 holds exactly."""
    assert Fraction(float(exact)) == exact
    return Fraction(struct.unpack("<f", struct.pack("<f", float(exact)))[0])


def to_bf16(value):
    bits = bits_of(float(value))
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return Fraction(struct.unpack("<f", struct.pack("<I", bits))[0])


def draw(key, dist, index):
    bits = element_bits(key, index)
    total = sum(bits >> 16 * lane & 0xFFFF for lane in range(4)) - 131070
    extra = mix64(bits ^ EXTRA)
    normal = Fraction(total * 111, 1 << 22)
    if dist == "normal":
        return normal
    if dist == "uniform":
        return Fraction(((bits >> 47) * 2 - 131071) * 111, 1 << 23)
    if dist == "heavy":
        k = next((bit for bit in range(6) if extra >> bit & 1), 6)
        return Fraction(total * 91 << k, 1 << 25)
    if dist == "outliers":
        return normal * (32 if extra & 255 == 0 else 1)
    if dist == "offset":
        return to_f32(normal + 8)
    return Fraction(total * 83, 1 << 20) if extra & 0xFFFF < 6554 else Fraction(0)


def fill(key, dist, scale, offset, dtype, index):
    value = to_f32(offset + to_f32(scale * draw(key, dist, index)))
    return to_bf16(value) if dtype == "bf16" else value


def main():
    indices = [0, 1, 2, 3, 15, 16, 17, 63, 64, 1000, 4095, 4096, 65537, (1 << 31) + 5, (1 << 40) + 1]
    with open("consistent.csv", "w") as out:
        for seed, tensor, salt in [(0, 0, 0), (1, 2, 3), (12345, MASK, 7), ((1 << 63) - 1, 0x0123456789ABCDEF, 2)]:
            out.write(f"key,{seed},{tensor},{salt},{fill_key(seed, tensor, salt)}\n")
        for key in [0, 1, fill_key(42, 7, 1)]:
            for number, dist in enumerate(DISTS):
                for index in indices + list(range(100, 130)):
                    out.write(f"draw,{key},{number},{index},{bits_of(float(draw(key, dist, index))):08x}\n")
        fills = [(Fraction(1, 8), Fraction(1), "fp32"), (Fraction(1, 8), Fraction(1), "bf16"), (Fraction(1), Fraction(0), "bf16")]
        fills += [(Fraction(1, 64), Fraction(0), "fp32"), (Fraction(3, 4), Fraction(1, 8), "fp32"), (Fraction(5, 16), Fraction(0), "bf16")]
        key = fill_key(3, 1, 4)
        for number, dist in enumerate(DISTS):
            for scale, offset, dtype in fills:
                for index in range(40):
                    value = bits_of(float(fill(key, dist, scale, offset, dtype, index)))
                    out.write(f"fill,{key},{number},{bits_of(float(scale)):08x},{bits_of(float(offset)):08x},{dtype},{index},{value:08x}\n")


if __name__ == "__main__":
    main()
