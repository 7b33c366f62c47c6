"""Perturbed runs: the training step again, with errors as large as rounding may make them. What they move is the noise of the comparison.

E1  the first embedding's output (the first module's where there is none) times (1 + h v), v uniform in (-1, 1), h the machine epsilon
E3  every stored floating-point result times (1 + h v) before it is rounded, h = 2^-23 in fp32, 2^-8 in bf16, 2^-11 in fp16, 2^-52 in fp64
E5  every product and every sum over several elements in 2, 4 or 8 randomly permuted parts, each rounded, added with rounding; what is added up in fp32 and then
    stored in fewer bits has its parts rounded to these, since ranks that each have a part store it so

A TorchDispatchMode sees the operations of forward and backward below autograd; kernels.py perturbs the kernels that bypass it. What only moves data (views, copies, gathers, masks) is not
perturbed unless it rounds (a cast to a type of less precision), nor what the optimizer does, nor anything while `paused`. Fused attention hides its products: E5 runs use the plain one.
"""
import contextlib
import functools
import os
import random
from typing import Callable, Dict, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from . import devices, kernels
from .split import SPLITS, add_up, split_operation

KINDS = ("E1", "E3", "E5")
LARGE = 2.0**127
EPSILON = {torch.float64: 2.0**-52, torch.float32: 2.0**-23, torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}
# The h of E3, which of types below fp32 comes after the value before rounding was drawn.
RELATIVE = {dtype: epsilon if dtype in (torch.float64, torch.float32) else epsilon / 2 for dtype, epsilon in EPSILON.items()}

# Operations that store no newly rounded values: they move data, or give integers.
MOVES = frozenset("""
_to_copy alias amax amin arange as_strided broadcast_to cat chunk clone constant_pad_nd contiguous copy copy_ detach detach_ diagonal
embedding empty empty_like empty_strided expand eye fill fill_ flip full full_like gather index index_select lift_fresh masked_fill
masked_fill_ max maximum min minimum narrow new_empty new_empty_strided new_full new_ones new_zeros ones ones_like pad permute relu relu_
repeat reshape resize_ roll rand rand_like randn randn_like bernoulli bernoulli_ uniform_ normal_ scalar_tensor select select_backward set_
slice slice_backward slice_scatter split split_with_sizes squeeze squeeze_ stack t t_ threshold_backward tile topk transpose transpose_ tril
tril_ triu triu_ unbind unfold unsafe_split unsqueeze unsqueeze_ unsafe_view _unsafe_view view view_as where zero_ zeros zeros_like neg neg_
abs sign clamp clamp_min clamp_max sort isfinite _local_scalar_dense histc floor ceil round trunc
""".split())


class Jitter:
    """Rounding by chance. The numbers for many small tensors are drawn at once: each takes a piece that begins at random."""

    POOL = 1 << 16  # numbers; larger tensors draw their own

    def __init__(self, seed: int):
        self.generator, self.offsets, self.pools = torch.Generator().manual_seed(seed), random.Random(seed), {}

    def __call__(self, values: torch.Tensor, relative: float) -> torch.Tensor:
        """values times (1 + relative v), v uniform in (-1, 1), rounded to their type. fp32 and fp64: the values as they are; the result is fp64. Below,
        what they were before they were rounded is drawn first, within half a unit in the last place; the result is fp32."""
        if values.dtype in (torch.float64, torch.float32):
            return self._factors(values, relative, torch.float64).mul(values)
        exact = values.float()
        power = exact.view(torch.int32).bitwise_and(0x7F800000).view(torch.float32).clamp_(max=LARGE)  # of two, at most the value; infinities stay
        moved = exact.addcmul_(power, self._factors(values, EPSILON[values.dtype] / 2, torch.float32, 0))
        return moved.mul_(self._factors(values, relative, torch.float32))

    def in_place(self, values: torch.Tensor, relative: float) -> None:
        """Puts what a call gives in place of the values."""
        if values.dtype in (torch.float64, torch.float32):
            values.mul_(self._factors(values, relative, torch.float64))  # is multiplied in fp64, then rounded
        else:
            values.copy_(self(values, relative))

    def _factors(self, values, relative, dtype, middle=1):
        """middle + relative v for each of the values, not to be written to."""
        count = values.numel()
        if 2 * count > self.POOL:
            return self._draw(values.shape, values.device, relative, dtype, middle)
        key = relative, dtype, middle, values.device
        pool = self.pools.get(key)
        if pool is None:
            pool = self.pools[key] = self._draw(self.POOL, values.device, relative, dtype, middle)
        begin = int(self.offsets.random() * (self.POOL - count))
        if values.is_contiguous():
            return pool.as_strided(values.shape, values.stride(), begin)
        return pool.narrow(0, begin, count).view(values.shape)

    def _draw(self, shape, device, relative, dtype, middle):
        return torch.rand(shape, generator=self.generator, dtype=dtype).to(device).mul_(2 * relative).add_(middle - relative)


class _About(NamedTuple):
    """What an operation is to perturbed runs; found once for each, since there are ten thousand in a run."""
    function: object   # kept, so that no other gets its id
    call: Callable     # runs it without a detour through Python
    moves: bool        # it stores no newly rounded values, but for copies to a type of less precision
    copies: bool       # it makes such copies
    is_new: bool       # its one result is a tensor of its own, no argument and no view of one
    splits: bool       # E5 cuts it


_known: Dict[int, _About] = {}


def _about(function) -> _About:
    about = _known.get(id(function))  # OpOverload.__hash__ is slow
    if about is None:
        schema = function._schema
        about = _known[id(function)] = _About(
            function, function._op if type(function) is torch._ops.OpOverload else function,
            function.namespace == "aten" and schema.name[6:] in MOVES, function is torch.ops.aten._to_copy.default,
            not schema.is_mutable and all(one.alias_info is None for one in schema.returns), function in SPLITS)
    return about


class _Mode(TorchDispatchMode):
    def __init__(self, owner: "Perturbation"):
        super().__init__()
        self.owner = owner

    @classmethod
    def _should_skip_dynamo(cls):
        """Keeping TorchDynamo off each operation takes longer than the operation: needless where it is switched off as a whole."""
        return not os.environ.get("TORCHDYNAMO_DISABLE")

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        owner, about = self.owner, _about(function)
        if owner.paused or (about.moves and not about.copies):
            return about.call(*args, **kwargs) if kwargs else about.call(*args)
        return owner.operation(about, args, kwargs or {})


def unseen():
    """A context whose operations no perturbed run sees: for those that only copy, since to look at one takes longer than to run it."""
    return torch._C._DisableTorchDispatch()


class Perturbation:
    """kind: of KINDS. seed: the draws are a function of it and of the order of operations. Use: as a context around one run."""

    def __init__(self, kind: str, seed: int):
        self.kind, self.seed = kind, seed
        self.generator, self.jitter = torch.Generator().manual_seed(seed), Jitter(seed)
        self.paused = False
        self.first = None
        self.sums = []  # E5: those of the last operation that was cut; kept, so that no other tensor gets their memory
        self.stack = contextlib.ExitStack()

    def __enter__(self) -> "Perturbation":
        if self.kind == "E5":
            self.stack.enter_context(torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH))
        if self.kind != "E1":
            self.stack.enter_context(_Mode(self))
            self.stack.enter_context(kernels.perturbed(self))
        return self

    def __exit__(self, *what) -> None:
        self.stack.close()

    def choose_first(self, modules) -> None:
        """modules in the order of the model: the one that E1 perturbs is the first embedding, else the first that runs and has no children."""
        self.first = next((one for one in modules if isinstance(one, torch.nn.Embedding)), None)

    def output(self, module, place, output):
        """What a module gives, perturbed if it is E1's. place (step, microbatch, call): a recomputation draws what the first pass drew."""
        if self.kind != "E1":
            return output
        if self.first is None and not any(True for _ in module.children()):
            self.first = module
        if module is not self.first:
            return output
        number = functools.reduce(lambda key, part: key * 1009 + part, place, self.seed)
        self.generator.manual_seed(number % (1 << 62))
        return tree_map(lambda leaf: self._perturb_output(leaf) if self.perturbable(leaf) else leaf, output)

    def _perturb_output(self, values: torch.Tensor) -> torch.Tensor:
        """Passes the gradient on unchanged."""
        plain = values.detach().double()
        draw = torch.rand(plain.shape, generator=self.generator, dtype=torch.float64).to(plain.device) * 2 - 1
        return values + ((plain * (1 + EPSILON[values.dtype] * draw)).to(values.dtype) - values.detach())

    @staticmethod
    def perturbable(value) -> bool:
        """Whether it is a floating-point tensor. Autograd's zeros without storage hold nothing to change."""
        return isinstance(value, torch.Tensor) and value.dtype in EPSILON and not value._is_zerotensor()

    def store(self, parameter) -> None:
        """Perturbs a parameter that the optimizer has changed: storing it rounds too, which E3 moves."""
        if self.kind == "E3" and self.perturbable(parameter):
            with torch.no_grad():
                self._jitter_in_place(parameter)

    def jittered(self, values: torch.Tensor) -> torch.Tensor:
        """Values of a type of EPSILON, rounded by chance."""
        return self.jitter(values, RELATIVE[values.dtype])

    def _jitter_in_place(self, values: torch.Tensor) -> None:
        self.jitter.in_place(values, RELATIVE[values.dtype])

    def operation(self, about: _About, args, kwargs):
        """One operation of forward or backward that may round."""
        if self.kind == "E5":
            return self._in_parts(about, args, kwargs)
        function = about.function
        result = about.call(*args, **kwargs)
        if function.namespace == "c10d":
            devices.settle()  # NCCL works beside the stream in which the result is changed
        if about.moves and not self._rounds(about, args, result):
            return result
        if about.is_new and isinstance(result, torch.Tensor):
            if self.perturbable(result):
                self._jitter_in_place(result)
            return result
        old = {id(leaf) for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, torch.Tensor)}
        for number, value in enumerate(tree_flatten(result)[0]):
            if self.perturbable(value) and not self._is_view(function, number) and (id(value) not in old or function._schema.is_mutable):
                self._jitter_in_place(value)
        return result

    def _in_parts(self, about: _About, args, kwargs):
        done = split_operation(about.function, args, kwargs, self.generator) if about.splits else None
        if done is not None:
            self.sums = done[1]
            return done[0]
        result = about.call(*args, **kwargs)
        if self.sums and self._rounds(about, args, result):
            source = args[0]
            for total, parts in self.sums:
                if source.data_ptr() == total.data_ptr() and source.numel() == total.numel() and total.is_contiguous():
                    stored = [part.contiguous().as_strided(source.shape, source.stride()).to(result.dtype) for part in parts]
                    return add_up(stored)
        return result

    @staticmethod
    def _rounds(about: _About, args, result) -> bool:
        """Whether a copy has less precision than its source."""
        return about.copies and EPSILON.get(result.dtype, 0) > EPSILON.get(args[0].dtype, 1)

    @staticmethod
    def _is_view(function, number: int) -> bool:
        """Whether a result aliases an argument without having been written."""
        returns = function._schema.returns
        alias = returns[min(number, len(returns) - 1)].alias_info if returns else None
        return alias is not None and not alias.is_write
