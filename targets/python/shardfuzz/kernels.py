"""Perturbs the results of Transformer Engine's kernels in the runs of perturb.py, which does not see them: they bypass PyTorch's dispatcher.

E3 and E5 do what they do in perturb.py: E3 jitters each rounded result, E5 adds up products in parts. In both, a product of fp8 operands also moves as if its
operands had been rounded to fp8 anew. Each rank scales its shard by the shard's own largest value, so it rounds a number differently than one device does.
"""
import contextlib
import re
import sys
from typing import Callable, List, Tuple

import torch
from torch.utils._pytree import tree_flatten

from .split import Cutter, product

LIBRARY = "transformer_engine_torch"   # all kernels are its functions
PRODUCTS = {"generic_gemm", "te_general_grouped_gemm"}
ROUNDING = re.compile(r"(norm_(fwd|bwd)(_add)?|softmax_(forward|backward)|fused_attn_(fwd|bwd)|rope_(forward|backward)|unpermute_(fwd|bwd)|[dl]?(gelu|relu|silu|glu))$")
UNITS = {"E4M3": 2.0**-4, "E5M2": 2.0**-3}   # largest relative change when a number is rounded
FORMATS = {"E4M3": torch.float8_e4m3fn, "E5M2": torch.float8_e5m2}


@contextlib.contextmanager
def perturbed(owner):
    """Inside this context the kernels' results are perturbed as owner, a Perturbation, says. Without the library it does nothing."""
    changed = []
    library = sys.modules.get(LIBRARY)
    for name, kernel in list(vars(library).items()) if library is not None else ():
        if callable(kernel) and (name in PRODUCTS or ROUNDING.search(name)):
            wrapped = _wrapped(owner, name, kernel)
            for module in [module for key, module in list(sys.modules.items()) if key.startswith("transformer_engine")]:
                if getattr(module, name, None) is kernel:  # modules of the package have the names, too
                    setattr(module, name, wrapped)
                    changed.append((module, name, kernel))
    try:
        yield
    finally:
        for module, name, kernel in changed:
            setattr(module, name, kernel)


def _wrapped(owner, name: str, kernel: Callable) -> Callable:
    def call(*args, **kwargs):
        if owner.paused:
            return kernel(*args, **kwargs)
        owner.paused = True
        try:
            result = kernel(*args, **kwargs)
            for a, transposed_a, b, transposed_b, out in _products(owner, name, args, result):
                _change_product(owner, a, transposed_a, b, transposed_b, out)
            if owner.kind == "E3":
                for value in _results(owner, name, args, result):
                    value.copy_(owner.jittered(value))
            return result
        finally:
            owner.paused = False
    return call


def _is_plain(owner, value) -> bool:
    """Whether it is a tensor of PyTorch with values, and none of the library's own classes."""
    return type(value) in (torch.Tensor, torch.nn.Parameter) and owner.perturbable(value) and value.numel() > 0


def _results(owner, name: str, args, result) -> List[torch.Tensor]:
    """The stored results that rounding may change. The grouped product stores them in an argument."""
    return [value for value in tree_flatten(args[4] if name == "te_general_grouped_gemm" else result)[0] if _is_plain(owner, value)]


def _products(owner, name: str, args, result) -> List[Tuple]:
    """The products op(A) op(B) of a call, as (A, is A transposed, B, is B transposed, stored product). The library counts in columns: the product's rows are those of B."""
    if name == "generic_gemm":
        found = [(args[0], args[1], args[2], args[3], result[0])]
    elif name == "te_general_grouped_gemm":
        outs, rows = args[4], args[6]
        outs = outs[0].split(list(rows)) if args[9] else outs  # one result holds all
        found = [(a, args[1], b, args[3], out) for a, b, out in zip(args[0], args[2], outs)]
    else:
        found = []
    return [one for one in found if _is_plain(owner, one[4])]


def _change_product(owner, a, transposed_a, b, transposed_b, out) -> None:
    right, unit_right = _values(a)
    left, unit_left = _values(b)
    right = right.t() if transposed_a else right    # [inner, columns]
    left = left.t() if transposed_b else left       # [rows, inner]
    if unit_right or unit_left:
        other = _redrawn(owner, left, unit_left) @ _redrawn(owner, right, unit_right)
    elif owner.kind == "E5":
        other = product(lambda a, b: (a @ b).to(out.dtype), left, right, Cutter(owner.generator)).float()
    else:
        return
    stored = out.view(other.shape)
    stored.copy_(stored.float() + (other - left @ right))


def _redrawn(owner, values, unit):
    return owner.jitter(values, unit).float() if unit else values


def _values(operand) -> Tuple[torch.Tensor, float]:
    """Its values [rows, columns] in fp32, and the largest relative change by rounding to fp8; 0 for an operand that is not in fp8."""
    if isinstance(operand, torch.Tensor) and not hasattr(operand, "_quantizer"):
        return operand.detach().reshape(-1, operand.shape[-1]).float(), 0.0
    kind = "E5M2" if "E5M2" in str(operand._fp8_dtype) else "E4M3"
    if hasattr(operand, "_scale_inv"):  # one scale for all of it; the library may have dropped the values and kept their transpose
        if operand._data is not None:
            values = operand._data.reshape(-1, operand._data.shape[-1])
        else:
            values = operand._transpose.reshape(operand._transpose.shape[0], -1).t()
        return values.view(FORMATS[kind]).float() * operand._scale_inv, UNITS[kind]
    values = operand.dequantize(dtype=torch.float32)
    return values.reshape(-1, values.shape[-1]), UNITS[kind]
