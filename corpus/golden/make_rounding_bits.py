#!/usr/bin/env python3
"""Writes rounding_bits.csv: the random bits of stochastic rounding (harness/tensor/rounding_bits.h) from a second implementation in plain
Python integers. Run in this folder: python3 make_rounding_bits.py
"""
from golden_hashes import element_bits, fill_key, hash_string


def bits(seed, step, name, index):
    key = fill_key(seed, hash_string(step, name), hash_string(0, "stochastic rounding"))
    return element_bits(key, index) >> 48


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
