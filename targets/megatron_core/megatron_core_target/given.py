"""Isolated mode: the tensors that modules are given in place of each other's, the same on every layout.

A value is a function of (seed, name, logical index) alone (shardfuzz.consistent), so each rank makes its own part. Gradients are about as large as the
loss's own, so that what losses inside of modules add stays visible.
"""
import math

import torch
from shardfuzz import consistent

from shardfuzz.megatron.places import has_sums

FORMATS = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}     # of others: fp32 values, which they hold as they are
TRIES = 32          # rows drawn for one token whose experts are too near to each other
LOGIT_GAP = 1 / 16  # between any two experts of a token: in bf16 four units of the last place of a logit of 2 to 4
GROUP_GAP = 1 / 16  # between the scores of any two groups, in parts of the largest


def require_library(case):
    """Raises RuntimeError, one line, if an isolated case cannot be run: the tensors come from libshardfuzz.so."""
    if case["mode"] == "isolated":
        try:
            consistent.key(case["seed"], "")
        except RuntimeError as error:
            raise RuntimeError(f"isolated mode: {error}") from None


class Given:
    """Given tensors of one rank. case: complete; config: the package's; first: whether the rank is the first of its tp group; divided: what the
    package divides gradients of activations by later."""

    def __init__(self, case, config, first, divided):
        self.seed, self.config, self.first = case["seed"], config, first
        tokens = case["microbatches"] * case["microbatch_size"] * case["sequence_length"]
        self.gradient_scale = divided * (1.0 if config.calculate_per_token_loss else 2.0 ** -round(math.log2(tokens)))

    def value(self, name, like, place, router=None):
        """What stands in place of the activation `like`: its shape and type, mean 0 and variance 1. router: the module that reads it to choose
        experts; then no token is near a tie."""
        if router is None:
            return self._fill(name, like, place, 1.0)
        values = self._fill(name, like, place, 1.0)
        for salt in range(1, TRIES):
            near = self._near_ties(values, router)
            if not near.any():
                break
            values = torch.where(near[..., None], self._fill(name, like, place, 1.0, salt), values)
        return values

    def gradient(self, name, like, place):
        """What stands in place of the gradient `like`."""
        return self._fill(name, like, place, self.gradient_scale)

    def _fill(self, name, like, place, scale, salt=0):
        """Memory of its own, which recomputation may free. Of summands the first rank of tp has all, the others have zeros."""
        if not self.first and has_sums(place):
            return torch.zeros(like.shape, dtype=like.dtype, device=like.device)
        key = consistent.key(self.seed, name, salt)
        numbers = consistent.fill(key, place["shape"], place["index"], scale=scale, dtype=FORMATS.get(like.dtype, "F32"))
        filled = torch.empty(like.shape, dtype=like.dtype, device=like.device)
        if filled.numel():
            filled.copy_(torch.frombuffer(numbers, dtype=torch.float32).view(like.shape))
        return filled

    def _near_ties(self, values, router):
        """Tokens [s, b] whose choice of experts rounding could change, from logits in fp64: the same answer on every rank that has the token."""
        logits = values.double() @ router.weight.detach().double().T
        near = _least_gap(logits) < LOGIT_GAP
        if self.config.moe_router_group_topk:
            scores = logits.sigmoid() if self.config.moe_router_score_function == "sigmoid" else logits.softmax(-1)
            each = self.config.moe_router_topk // self.config.moe_router_group_topk
            totals = scores.unflatten(-1, (self.config.moe_router_num_groups, -1)).topk(each, -1).values.sum(-1)
            near = near | (_least_gap(totals) < GROUP_GAP * totals.amax(-1))
        return near


def _least_gap(numbers):
    """The smallest distance of two numbers of a row, [..., n] to [...]."""
    return numbers.sort(-1).values.diff(dim=-1).amin(-1)


class Border(torch.autograd.Function):
    """Where a tensor passes into a module or out of it: hands on another one in its place, and backward another gradient.

    replace(tensor) and replace_gradient(gradient) record what came and give what goes on."""

    @staticmethod
    def forward(context, tensor, replace, replace_gradient):
        context.replace_gradient = replace_gradient
        return replace(tensor)

    @staticmethod
    def backward(context, gradient):
        return context.replace_gradient(gradient), None, None
