"""Perturbed runs: what each kind moves, by how much, and what it leaves alone."""
import unittest

import torch
from torch import nn

from shardfuzz.perturb import EPSILON, Jitter, Perturbation
from shardfuzz.split import SPLITS, split_operation
import worlds

aten = torch.ops.aten


def integers(*shape):
    return torch.randint(-4, 5, shape).float()


def rms_norm_backward(gradient, values, shape, inverse, weight, mask):
    """The gradient of the weight, as PyTorch has it on CUDA alone."""
    return None, (gradient * values * inverse).flatten(0, -2).sum(0)


FOR_CPU = torch.library.Library("aten", "IMPL")
if hasattr(aten, "_fused_rms_norm_backward"):
    FOR_CPU.impl("_fused_rms_norm_backward", rms_norm_backward, "CPU")


def operations():
    """(operation, arguments, keywords) for each entry of the table; integers, whose sums are exact in any order."""
    mean, inverse = torch.zeros(6, 1), torch.ones(6, 1)
    return [
        (aten.mm.default, (integers(5, 24), integers(24, 7)), {}), (aten.bmm.default, (integers(3, 5, 24), integers(3, 24, 7)), {}),
        (aten.mv.default, (integers(5, 24), integers(24)), {}), (aten.dot.default, (integers(24), integers(24)), {}),
        (aten.addmm.default, (integers(7), integers(5, 24), integers(24, 7)), {}),
        (aten.addmm.default, (integers(7), integers(5, 24), integers(24, 7)), {"beta": 2, "alpha": 3}),
        (aten.baddbmm.default, (integers(3, 5, 7), integers(3, 5, 24), integers(3, 24, 7)), {"beta": 0}),
        (aten.sum.default, (integers(3, 5),), {}), (aten.sum.dim_IntList, (integers(3, 8, 5), [0, -1]), {}),
        (aten.sum.dim_IntList, (integers(3, 8, 5), [1], True), {}), (aten.sum.dim_IntList, (integers(3, 8), None), {}),
        (aten.mean.default, (integers(4, 8),), {}), (aten.mean.dim, (integers(4, 8, 5), [1], True), {}),
        (aten.embedding_dense_backward.default, (integers(2, 6, 3), torch.randint(9, (2, 6)), 9, -1, False), {}),
        (aten.native_layer_norm_backward.default, (integers(2, 3, 8), integers(2, 3, 8), [8], mean.reshape(2, 3, 1), inverse.reshape(2, 3, 1),
                                                   torch.ones(8), torch.zeros(8), [False, True, True]), {}),
    ] + [(aten._fused_rms_norm_backward.default, (integers(2, 3, 8), integers(2, 3, 8), [8], inverse.reshape(2, 3, 1), torch.ones(8), [False, True]), {})
         for _ in range(hasattr(aten, "_fused_rms_norm_backward"))]


class StoredSums(unittest.TestCase):
    def test_parts_of_a_sum_that_is_stored_in_fewer_bits_are_rounded_to_them(self):
        """Ranks that each have a part of the rows store its sum in bf16. Large parts that cancel leave the rounding of both."""
        large = torch.linspace(1, 2, 64).reshape(32, 2)
        values = torch.cat([large, -large + 2.0**-12])
        exact = values.sum(0).bfloat16()
        seen = set()
        for seed in range(8):
            with Perturbation("E5", seed):
                seen.add(tuple(values.sum([0]).view(1, 2).t().to(torch.bfloat16).flatten().tolist()))
                untouched = values.sum([0])
        self.assertGreater(len(seen), 4)
        for one in seen:
            self.assertLess((torch.tensor(one) - exact.float()).abs().max(), 64 * 2.0**-8)
        self.assertGreater(max((torch.tensor(one) - exact.float()).abs().max() for one in seen), 100 * (untouched - values.sum(0)).abs().max())


class Split(unittest.TestCase):
    def test_split_operation_of_integers_is_exact(self):
        torch.manual_seed(1)
        generator, seen = torch.Generator().manual_seed(2), set()
        for function, args, kwargs in operations():
            expected = function(*args, **kwargs)
            for _ in range(4):
                got = split_operation(function, args, kwargs, generator)[0]
                for one, other in zip(*[x if isinstance(x, tuple) else (x,) for x in (expected, got)]):
                    self.assertTrue(one is None and other is None or one is not None and torch.equal(one, other) and one.dtype == other.dtype,
                                    (function, args, kwargs))
            seen.add(function)
        self.assertEqual(seen, set(SPLITS))

    def test_split_operation_of_a_norm_gives_each_row_its_gradient(self):
        values, gradient, weight = torch.randn(6, 8), torch.randn(6, 8), torch.randn(8)
        _, mean, inverse = aten.native_layer_norm.default(values, [8], weight, None, 1e-5)
        args = (gradient, values, [8], mean, inverse, weight, torch.zeros(8), [True, True, True])
        expected = aten.native_layer_norm_backward.default(*args)
        got = split_operation(aten.native_layer_norm_backward.default, args, {}, torch.Generator())[0]
        torch.testing.assert_close(got[0], expected[0], rtol=1e-6, atol=1e-6)

    def test_split_operation_rounds_otherwise(self):
        a, b = torch.randn(20, 300), torch.randn(300, 20)
        got = split_operation(aten.mm.default, (a, b), {}, torch.Generator())[0]
        self.assertFalse(torch.equal(got, a @ b))
        torch.testing.assert_close(got, a @ b, rtol=1e-4, atol=1e-4)


class Stored(unittest.TestCase):
    def test_jitter_stays_within_its_size(self):
        jitter = Jitter(3)
        for dtype, relative in [(torch.float32, 2.0**-23), (torch.float64, 2.0**-52), (torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-11)]:
            values = torch.randn(4096, dtype=torch.float64).to(dtype)
            moved = ((jitter(values, relative).to(dtype).double() - values.double()) / values.double()).abs()
            self.assertGreater(moved.max(), relative / 2)
            self.assertLessEqual(moved.max(), 2 * EPSILON[dtype])
            self.assertGreater((moved > 0).double().mean(), 0.2)

    def test_tensors_that_draw_together_and_alone_are_alike(self):
        jitter, factors = Jitter(3), []
        for count in (64, Jitter.POOL):
            values = torch.ones(count, dtype=torch.float64)
            factors += [torch.stack([jitter(values, 0.5) for _ in range(4 * Jitter.POOL // count)])]
        for drawn in factors:
            self.assertLess((drawn.mean() - 1).abs(), 0.01)
            self.assertLess((drawn.std() - 0.5 / 3**0.5).abs(), 0.01)
            self.assertFalse(torch.equal(drawn[0], drawn[1]))

    def test_jitter_leaves_infinities_and_zeros(self):
        for dtype in (torch.bfloat16, torch.float32):
            values = torch.tensor([float("inf"), float("-inf"), 0.0] * 8, dtype=dtype)
            self.assertTrue(torch.equal(Jitter(1)(values, 2.0**-8).to(dtype), values))

    def test_zeros_without_storage_stay(self):
        x = torch.rand(4, 8).requires_grad_()
        with Perturbation("E3", 1):
            zeros, = torch.autograd.grad(torch.sgn(x), [x], torch.ones(4, 8))
            after, = torch.autograd.grad(torch.atan(x), [x], zeros)
        self.assertEqual(float(after.abs().sum()), 0)

    def test_stored_results_move_once_and_moved_data_not_at_all(self):
        x = torch.rand(64) + 1
        before = x.clone()
        with Perturbation("E3", 1):
            copies = [x.view(8, 8).t().clone().contiguous().reshape(64), x[x > 0], x.where(x > 0, x), torch.cat([x[:3], x[3:]]), x.view(64, 1).amax(1)]
            total = x + 1
            part = total[:32]
            seen = total.clone()
            part.mul_(2)
        self.assertTrue(torch.equal(x, before))
        self.assertTrue(torch.equal(copies[0].reshape(8, 8).t().reshape(64), x) and all(torch.equal(one, x) for one in copies[1:]))
        self.assertFalse(torch.equal(seen, before + 1))
        torch.testing.assert_close(seen, before + 1, rtol=2.0**-22, atol=0)
        self.assertTrue(torch.equal(total[32:], seen[32:]))
        self.assertFalse(torch.equal(total[:32], seen[:32] * 2))
        torch.testing.assert_close(total[:32], seen[:32] * 2, rtol=2.0**-22, atol=0)


    def test_cast_to_less_precision_moves_within_two_units_and_back_not_at_all(self):
        x = torch.rand(4096) + 1
        with Perturbation("E3", 1):
            down, up = x.bfloat16(), x.bfloat16().double()
        plain = x.bfloat16()
        moved = (down.double() - plain.double()).abs() / plain.double()
        self.assertGreater((moved > 0).double().mean(), 0.2)
        self.assertLessEqual(moved.max(), 2 * EPSILON[torch.bfloat16])
        self.assertTrue(torch.equal(up.bfloat16().double(), up))


def moved_gradients(rank, kind):
    """Which gradients of two linear layers a kind moves, when only the backward pass runs under it; and the optimizer's change of a fixed one."""
    torch.manual_seed(4)
    model, x = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)), torch.randn(50, 64)
    plain = torch.autograd.grad(model(x).square().sum(), model.parameters())
    loss = model(x).square().sum()
    with Perturbation(kind, 5):
        loss.backward()
    return [not torch.equal(one, parameter.grad) for one, parameter in zip(plain, model.parameters())]


class Backward(unittest.TestCase):
    def test_perturbation_reaches_the_backward_pass(self):
        for kind in ("E3", "E5"):
            self.assertEqual(worlds.run(1, moved_gradients, kind), [[True] * 4], kind)
        self.assertEqual(worlds.run(1, moved_gradients, "E1"), [[False] * 4])


if __name__ == "__main__":
    unittest.main()
