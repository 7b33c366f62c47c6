"""Kernels of Transformer Engine, which PyTorch's dispatcher does not see: in a perturbed run (perturb.py) their results are perturbed, too.

E3 and E5 as in perturb.py: a result is rounded by chance, a product is added up in parts. A product of operands in fp8 gets in both what another rounding of the
operands to fp8 would change: ranks scale their shards by the shards' own largest values, so they round what they have in common otherwise than one device does.
"""
import contextlib
import re
import sys
from typing import Callable, List, Tuple

import torch
from torch.utils._pytree import tree_flatten

from .split import Cutter, add_up

LIBRARY = "transformer_engine_torch"   # all kernels are its functions
PRODUCTS = {"generic_gemm", "te_general_grouped_gemm"}
ROUNDING = re.compile(r"(norm_(fwd|bwd)(_add)?|softmax_(forward|backward)|fused_attn_(fwd|bwd)|rope_(forward|backward)|unpermute_(fwd|bwd)|[dl]?(gelu|relu|silu|glu))$")
UNITS = {"E4M3": 2.0**-4, "E5M2": 2.0**-3}   # largest relative change when a number is rounded
FORMATS = {"E4M3": torch.float8_e4m3fn, "E5M2": torch.float8_e5m2}


@contextlib.contextmanager
def perturbed(owner):
    """While it is entered, the kernels' results are perturbed as owner, a Perturbation, says. Does nothing where the library is not loaded."""
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
            for a, transposed_a, b, transposed_b, out in _products(name, args, result):
                _change_product(owner, a, transposed_a, b, transposed_b, out)
            if owner.kind == "E3":
                for value in _results(name, args, result):
                    value.copy_(owner.jittered(value))
            return result
        finally:
            owner.paused = False
    return call


def _is_plain(value) -> bool:
    return type(value) in (torch.Tensor, torch.nn.Parameter) and value.dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16) and value.numel() > 0


def _results(name: str, args, result) -> List[torch.Tensor]:
    """Stored results that rounding may change; the grouped product's are an argument."""
    return [value for value in tree_flatten(args[4] if name == "te_general_grouped_gemm" else result)[0] if _is_plain(value)]


def _products(name: str, args, result) -> List[Tuple]:
    """(A, whether it is transposed, B, whether it is transposed, the stored product) of a call, as the library has them: by columns, op(A) op(B)."""
    if name == "generic_gemm":
        found = [(args[0], args[1], args[2], args[3], result[0])]
    elif name == "te_general_grouped_gemm":
        outs, rows = args[4], args[6]
        outs = outs[0].split(list(rows)) if args[9] else outs  # one result holds all
        found = [(a, args[1], b, args[3], out) for a, b, out in zip(args[0], args[2], outs)]
    else:
        found = []
    return [one for one in found if _is_plain(one[4])]


def _change_product(owner, a, transposed_a, b, transposed_b, out) -> None:
    right, unit_right = _values(a)
    left, unit_left = _values(b)
    right = right.t() if transposed_a else right    # [inner, columns]
    left = left.t() if transposed_b else left       # [rows, inner]
    if unit_right or unit_left:
        other = _redrawn(owner, left, unit_left) @ _redrawn(owner, right, unit_right)
    elif owner.kind == "E5":
        parts = Cutter(owner.generator).parts(right.shape[0], right.device)
        other = add_up([(left[:, part] @ right[part]).to(out.dtype) for part in parts]).float()
    else:
        return
    stored = out.view(other.shape)
    stored.copy_(stored.float() + (other - left @ right))


def _redrawn(owner, values, unit):
    return owner.jitter(values, unit).float() if unit else values


def _values(operand) -> Tuple[torch.Tensor, float]:
    """([rows, columns] in fp32, the unit of its rounding to fp8, or 0 for a plain tensor)."""
    if isinstance(operand, torch.Tensor) and not hasattr(operand, "_quantizer"):
        return operand.detach().reshape(-1, operand.shape[-1]).float(), 0.0
    kind = "E5M2" if "E5M2" in str(operand._fp8_dtype) else "E4M3"
    if hasattr(operand, "_scale_inv"):  # one scale; it may hold its transpose alone
        if operand._data is not None:
            values = operand._data.reshape(-1, operand._data.shape[-1])
        else:
            values = operand._transpose.reshape(operand._transpose.shape[0], -1).t()
        return values.view(FORMATS[kind]).float() * operand._scale_inv, UNITS[kind]
    values = operand.dequantize(dtype=torch.float32)
    return values.reshape(-1, values.shape[-1]), UNITS[kind]
