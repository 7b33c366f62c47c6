"""Perturbed runs see kernels that pass PyTorch's dispatcher by: a stand-in for Transformer Engine's library, on a CPU."""
import sys
import types
import unittest

import torch
from shardfuzz import kernels
from shardfuzz.perturb import EPSILON, Perturbation

DRAWS = 12


def generic_gemm(a, transposed_a, b, transposed_b, out=None, *more):
    """op(A) op(B) by columns: the rows of the result are those of B."""
    a, b = plain(a), plain(b)
    product = ((b.t() if transposed_b else b).double() @ (a.t() if transposed_a else a).double())
    if out is None:
        return product.to(torch.bfloat16), None, None, None
    out.add_(product)
    return out, None, None, None


def te_general_grouped_gemm(a, transposed_a, b, transposed_b, outs, kind, rows, bias, bias_kind, single, *more):
    for one, other, out in zip(a, b, outs[0].split(rows) if single else outs):
        out.copy_(generic_gemm(one, transposed_a, other, transposed_b)[0])
    return bias


def rmsnorm_fwd(x, weight):
    return [x * weight, None, x.float().mean(-1)]


def get_version():
    return torch.ones(3)


class Fp8:
    """A tensor with one scale, as the library keeps it; of_columns: its transpose alone."""

    def __init__(self, values, of_columns=False, kind="E4M3"):
        scale = 448.0 / values.abs().max()
        data = (values * scale).to(kernels.FORMATS[kind]).view(torch.uint8)
        self._data, self._transpose = (None, data.t().contiguous()) if of_columns else (data, None)
        self._scale_inv, self._fp8_dtype, self._quantizer = 1 / scale, f"DType.kFloat8{kind}", None
        self.kind = kernels.FORMATS[kind]


def plain(operand):
    if isinstance(operand, torch.Tensor):
        return operand
    data = operand._data if operand._data is not None else operand._transpose.t().contiguous()
    return data.view(operand.kind).float() * operand._scale_inv


class KernelsTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)
        self.library = types.ModuleType(kernels.LIBRARY)
        self.package = types.ModuleType("transformer_engine.pytorch.cpp_extensions")
        for function in (generic_gemm, te_general_grouped_gemm, rmsnorm_fwd, get_version):
            setattr(self.library, function.__name__, function)
            setattr(self.package, function.__name__, function)
        for module in (self.library, self.package):
            sys.modules[module.__name__] = module
            self.addCleanup(sys.modules.pop, module.__name__)

    def moved(self, kind, call):
        """How far each draw lies from the plain result, as a share of it: largest and mean norm."""
        want = call().double()
        found = []
        for draw in range(DRAWS):
            with Perturbation(kind, draw):
                found.append(call().double())
        self.assertTrue(torch.equal(want, call().double()), "the kernel is as it was")
        shares = [float((one - want).norm() / want.norm()) for one in found]
        return max(shares), sum(shares) / DRAWS

    def test_products_are_rounded_and_added_up_in_parts(self):
        x, w, dy = torch.randn(24, 64).bfloat16(), torch.randn(48, 64).bfloat16(), torch.randn(24, 48).bfloat16()
        calls = {"forward": lambda: self.library.generic_gemm(w, True, x, False)[0], "input": lambda: self.library.generic_gemm(w, False, dy, False)[0],
                 "weight": lambda: self.library.generic_gemm(x, False, dy, True, torch.ones(48, 64))[0],
                 "of the package": lambda: self.package.generic_gemm(w, True, x, False)[0]}
        for name, call in calls.items():
            unit = EPSILON[call().dtype]
            for kind in ("E3", "E5"):
                with self.subTest(name, kind=kind):
                    most, mean = self.moved(kind, call)
                    self.assertLess(most, 2 * unit)
                    self.assertGreater(mean, unit / 16)
        self.assertEqual(self.moved("E1", calls["forward"]), (0, 0))

    def test_products_of_fp8_move_as_if_their_operands_were_rounded_anew(self):
        x, w = torch.randn(24, 256), torch.randn(48, 256)
        exact = x.double() @ w.double().t()
        for kind, unit in kernels.UNITS.items():
            for of_columns in (False, True):
                def call():
                    return self.library.generic_gemm(Fp8(w, of_columns, kind), True, Fp8(x, of_columns, kind), False)[0]
                error = float((call().double() - exact).norm() / exact.norm())
                for draws in ("E3", "E5"):
                    with self.subTest(kind, of_columns=of_columns, draws=draws):
                        _, mean = self.moved(draws, call)
                        self.assertGreater(mean, error)
                        self.assertLess(mean, 3 * error)

    def test_grouped_products_are_changed_where_they_are_stored(self):
        x, w = torch.randn(5, 64).bfloat16(), [torch.randn(8, 64).bfloat16() for _ in range(2)]

        def call(single):
            outs = [torch.empty(5, 8, dtype=torch.bfloat16)] if single else [torch.empty(2, 8, dtype=torch.bfloat16), torch.empty(3, 8, dtype=torch.bfloat16)]
            self.library.te_general_grouped_gemm(w, True, [x[:2], x[2:]], False, outs, None, [2, 3], None, None, single)
            return torch.cat(outs)
        for single in (False, True):
            for kind in ("E3", "E5"):
                most, mean = self.moved(kind, lambda: call(single))
                self.assertGreater(mean, 2.0**-12)
                self.assertLess(most, 2.0**-6)

    def test_kernels_that_store_rounded_values_are_moved_by_e3_and_others_by_none(self):
        x, weight = torch.randn(8, 32).bfloat16(), torch.rand(32).bfloat16()
        self.assertGreater(self.moved("E3", lambda: self.library.rmsnorm_fwd(x, weight)[0])[1], 2.0**-10)
        self.assertEqual(self.moved("E3", lambda: self.library.get_version()), (0, 0))


if __name__ == "__main__":
    unittest.main()
