#!/usr/bin/env python3
"""Writes rounding_bits.csv: the random bits of stochastic rounding (harness/tensor/rounding_bits.h) from a second implementation in plain
Python integers. Run in this folder: python3 make_rounding_bits.py
"""
from make_consistent import M, STRIDE, fill_key, hash_u64, mix64


def hash_string(h, text):
    """FNV-1a over the bytes, then mixed into h, as harness/base/hash.h says."""
    fnv = 0xCBF29CE484222325
    for byte in text.encode():
        fnv = (fnv ^ byte) * 0x100000001B3 & M
    return hash_u64(h, fnv)


def bits(seed, step, name, index):
    key = fill_key(seed, hash_string(step, name), hash_string(0, "stochastic rounding"))
    return mix64((key + index * STRIDE) & M) >> 48


def main():
    names = ["embedding.word_embeddings.weight", "decoder.layers.0.self_attention.linear_qkv.weight", "decoder.final_layernorm.weight"]
    with open("rounding_bits.csv", "w") as out:
        for seed in (0, 1, 2**62 + 5):
            for step in (0, 1, 2):
                for name in names:
                    for index in (0, 1, 15, 63):
                        out.write(f"{seed},{step},{name},{index},{bits(seed, step, name, index):04x}\n")


if __name__ == "__main__":
    main()
