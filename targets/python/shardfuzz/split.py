"""Products and sums in parts: the same operation with another order of additions, each part rounded to the result's type (runs E5)."""
from typing import Callable, Dict, List, Optional, Tuple

import torch

aten = torch.ops.aten


class Cutter:
    """Cuts one operation, and keeps what was added up: sums, a list of (total, its summands)."""

    def __init__(self, generator: torch.Generator):
        self.generator, self.sums = generator, []

    def parts(self, count: int, device) -> List[torch.Tensor]:
        """A random permutation of range(count) in 2, 4 or 8 parts, fewer where there are fewer elements."""
        parts = min(count, 2 << int(torch.randint(3, (1,), generator=self.generator)))
        order = torch.randperm(count, generator=self.generator)
        return [part.to(device) for part in order.chunk(max(parts, 1))]

    def add_up(self, pieces: List[torch.Tensor]) -> torch.Tensor:
        total = add_up(pieces)
        self.sums.append((total, pieces))
        return total


def add_up(pieces: List[torch.Tensor]) -> torch.Tensor:
    total = pieces[0]
    for piece in pieces[1:]:
        total = total + piece
    return total


def product(operation, a, b, cutter):
    """a @ b in parts of the last dimension of a and the last but one of b."""
    parts = cutter.parts(a.shape[-1], a.device)
    return cutter.add_up([operation(a.index_select(-1, part), b.index_select(-2, part)) for part in parts])


def _mm(cutter, a, b):
    return product(aten.mm.default, a, b, cutter)


def _bmm(cutter, a, b):
    return product(aten.bmm.default, a, b, cutter)


def _with_bias(operation):
    def split(cutter, bias, a, b, *, beta=1, alpha=1):
        total = product(operation, a, b, cutter)
        total = total if alpha == 1 else total * alpha
        return total if beta == 0 else total + (bias if beta == 1 else bias * beta)
    return split


def _mv(cutter, a, b):
    return _mm(cutter, a, b.unsqueeze(-1)).squeeze(-1)


def _dot(cutter, a, b):
    return _mm(cutter, a.unsqueeze(0), b.unsqueeze(-1)).reshape(())


def _sum(cutter, values, dims=None, keepdim=False, *, dtype=None):
    """Moves the summed dimensions to the end, joins them, and cuts the result."""
    dims = [d % values.dim() for d in (dims if dims else range(values.dim()))]
    kept = [d for d in range(values.dim()) if d not in dims]
    shape = [values.shape[d] for d in kept]
    flat = values.permute(kept + dims).reshape(shape + [-1])
    pieces = [flat.index_select(-1, part).sum(-1, dtype=dtype) for part in cutter.parts(flat.shape[-1], values.device)]
    total = cutter.add_up(pieces)
    return total.reshape([1 if d in dims else n for d, n in enumerate(values.shape)]) if keepdim else total


def _sum_all(cutter, values, *, dtype=None):
    return _sum(cutter, values, None, False, dtype=dtype)


def _mean(cutter, values, dims=None, keepdim=False, *, dtype=None):
    total = _sum(cutter, values, dims, keepdim, dtype=dtype)
    return total / (values.numel() // max(total.numel(), 1))


def _mean_all(cutter, values, *, dtype=None):
    return _mean(cutter, values, None, False, dtype=dtype)


def _embedding_gradient(cutter, gradient, indices, rows, padding, by_frequency):
    if by_frequency:
        return aten.embedding_dense_backward.default(gradient, indices, rows, padding, by_frequency)
    gradient, indices = gradient.reshape(-1, gradient.shape[-1]), indices.reshape(-1)
    return cutter.add_up([aten.embedding_dense_backward.default(gradient[part], indices[part], rows, padding, False)
                          for part in cutter.parts(len(indices), gradient.device)])


def _norm_gradient(operation, row_numbers):
    """Rows in parts: each row's own gradient as it is, those of weight and bias as sums over the parts. row_numbers: how many arguments behind the
    shape have a number for each row."""
    def split(cutter, gradient, values, shape, *others):
        of_rows, (*parameters, mask) = others[:row_numbers], others[row_numbers:]
        kept, rows = list(shape), of_rows[0].numel()
        flat = [one.reshape([rows] + kept) for one in (gradient, values)] + [one.reshape([rows] + [1] * len(kept)) for one in of_rows]
        own = torch.empty_like(flat[1]) if mask[0] else None
        sums: List[list] = [[] for _ in mask[1:]]
        for part in cutter.parts(rows, values.device):
            given, *totals = operation(flat[0][part], flat[1][part], shape, *(one[part] for one in flat[2:]), *parameters, mask)
            if mask[0]:
                own[part] = given
            for store, total in zip(sums, totals):
                store.append(total)
        return (own if own is None else own.reshape(values.shape), *(cutter.add_up(store) if wanted else None for store, wanted in zip(sums, mask[1:])))
    return split


SPLITS: Dict[object, Callable] = {
    aten.mm.default: _mm, aten.bmm.default: _bmm, aten.mv.default: _mv, aten.dot.default: _dot,
    aten.addmm.default: _with_bias(aten.mm.default), aten.baddbmm.default: _with_bias(aten.bmm.default),
    aten.sum.dim_IntList: _sum, aten.sum.default: _sum_all,
    aten.mean.dim: _mean, aten.mean.default: _mean_all,
    aten.embedding_dense_backward.default: _embedding_gradient,
    aten.native_layer_norm_backward.default: _norm_gradient(aten.native_layer_norm_backward.default, 2),
}
if hasattr(aten, "_fused_rms_norm_backward"):  # of newer versions, on CUDA alone
    SPLITS[aten._fused_rms_norm_backward.default] = _norm_gradient(aten._fused_rms_norm_backward.default, 1)


def split_operation(function, args, kwargs, generator) -> Optional[Tuple]:
    """(result, its sums as Cutter keeps them) of an operation in parts, or None where it is none that is split: another one, one of numbers that do not
    round, an empty one."""
    split = SPLITS.get(function)
    if split is None or not args[0].is_floating_point() or any(isinstance(one, torch.Tensor) and one.numel() == 0 for one in args):
        return None
    cutter = Cutter(generator)
    return split(cutter, *args, **kwargs), cutter.sums
