"""The formula of shardfuzz.fill, in plain integers, and that layouts agree."""
import unittest

import numpy as np
import torch
from torch import nn

import models
import worlds
from shardfuzz import consistent, parameters
from shardfuzz.places import place_of_dtensor

MASK = (1 << 64) - 1


def mix(x):
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def join(h, value):
    return mix(h ^ (value + 0x9E3779B97F4A7C15 + (h << 6) + (h >> 2) & MASK))


def draw(seed, name, index):
    fnv = 0xCBF29CE484222325
    for byte in name.encode():
        fnv = (fnv ^ byte) * 0x100000001B3 & MASK
    key = join(join(join(0, seed), join(0, fnv)), 1)
    bits = mix(key + index * 0x9E3779B97F4A7C15 & MASK)
    return np.float32(sum(bits >> shift & 0xFFFF for shift in (0, 16, 32, 48)) * 111 - 131070 * 111) * np.float32(2.0**-22)


def plain_parameters(rank, seed):
    torch.manual_seed(3)
    model = models.Transformer()
    parameters.fill(model, seed)
    return {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}


def parallel_parameters(rank):
    """Names of parameters whose shards are not those of the plain model."""
    build, _, _ = models.build_parallel({"dp": 2, "tp": 2}, sequence_parallel=True)
    plain = plain_parameters(rank, 0)
    wrong = []
    for name, parameter in build()[0].named_parameters():
        at = parameters.indices_of(place_of_dtensor(parameter, name)).astype("int64")
        if not np.array_equal(plain[name].reshape(-1)[at], parameter._local_tensor.detach().numpy()):
            wrong.append(name)
    return wrong


class Fill(unittest.TestCase):
    def test_fill_has_the_values_of_its_formula(self):
        filled = plain_parameters(0, 5)
        for name, scale, offset in [("layers.0.fc1.weight", 2.0**-2, 0), ("layers.1.fc2.weight", 2.0**-4, 0), ("norm.weight", 0.125, 1),
                                    ("layers.0.fc1.bias", 0.125, 0)]:
            flat = filled[name].reshape(-1)
            for index in (0, 1, 17, len(flat) - 1):
                self.assertEqual(flat[index], np.float32(offset) + np.float32(scale) * draw(5, name, index), (name, index))

    def test_fill_has_the_bits_of_the_library(self):
        filled = plain_parameters(0, 7)
        for name in ("embedding.weight", "norm.bias"):
            scale, offset = parameters.scale_and_offset(name, filled[name].shape)
            values = consistent.fill(consistent.key(7, name, parameters.PARAMETERS), filled[name].shape, scale=scale, offset=offset)
            self.assertEqual(bytes(values), filled[name].tobytes(), name)

    def test_fill_of_bf16_rounds_the_fp32_value(self):
        one, other = nn.Linear(4, 3), nn.Linear(4, 3).bfloat16()
        parameters.fill(one), parameters.fill(other)
        self.assertTrue(torch.equal(one.weight.bfloat16(), other.weight))

    def test_fill_in_a_parallel_layout_gives_each_rank_its_part(self):
        self.assertEqual(worlds.run(4, parallel_parameters), [[]] * 4)


if __name__ == "__main__":
    unittest.main()
