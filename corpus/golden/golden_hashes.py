"""Hashes of harness/base/hash.h and keys and random bits of harness/tensor/consistent.h, in plain Python integers: all are 64 bits wide.

Shared by the scripts of this folder; needs nothing but Python.
"""
MASK = (1 << 64) - 1
STRIDE = 0x9E3779B97F4A7C15
SALT_PARAM, SALT_TRACE, SALT_TOKENS, SALT_LABELS, SALT_FEW, SALT_MASK, SALT_DROPOUT, SALT_DOCUMENTS, SALT_MEMORY = range(1, 10)


def mix64(x):
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def hash_u64(h, value):
    return mix64(h ^ (value + STRIDE + (h << 6) + (h >> 2) & MASK))


def hash_string(h, text):
    """FNV-1a over the bytes, then mixed into h."""
    fnv = 0xCBF29CE484222325
    for byte in text.encode():
        fnv = (fnv ^ byte) * 0x100000001B3 & MASK
    return hash_u64(h, fnv)


def fill_key(seed, tensor, salt):
    """Key of a stream: the case's seed, a hash that says which tensor it is, and what it is drawn for."""
    return hash_u64(hash_u64(hash_u64(0, seed), tensor), salt)


def element_bits(key, index):
    return mix64(key + index * STRIDE & MASK)


def below(bits, bound):
    """An integer of [0, bound), bound < 2^32, from the upper 32 bits."""
    return (bits >> 32) * bound >> 32
