"""Flash attention for CPUs, in plain torch. torch's context parallelism calls attention kernels that only GPUs have; this one lets its own code run on a CPU."""
import contextlib

import torch
import torch.nn.functional as F

flash = torch.ops.aten._scaled_dot_product_flash_attention


def _shares(query, key, is_causal, scale, lse=None):
    """Shares [rows, heads, queries, keys] of a softmax, and the logarithms of its sums. lse: these logarithms, if the softmax has more keys than `key`."""
    scores = query.double() @ key.double().mT * scale
    if is_causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1), float("-inf"))
    lse = scores.logsumexp(-1) if lse is None else lse
    return (scores - lse.unsqueeze(-1)).exp(), lse


def _forward(query, key, value, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    shares, lse = _shares(query, key, is_causal, scale or query.shape[-1] ** -0.5)
    nothing = torch.tensor(0)     # lengths, states of random numbers, and what is there to debug
    return (shares @ value.double()).to(query.dtype), lse.float(), nothing, nothing, query.shape[2], key.shape[2], nothing, nothing, nothing


def _backward(grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, philox_seed, philox_offset, *, scale=None):
    scale = scale or query.shape[-1] ** -0.5
    shares, _ = _shares(query, key, is_causal, scale, logsumexp.double())
    grad_out, own = grad_out.double(), (grad_out.double() * out.double()).sum(-1, keepdim=True)
    grad_scores = shares * (grad_out @ value.double().mT - own) * scale
    return (grad_scores @ key.double()).to(query.dtype), (grad_scores.mT @ query.double()).to(key.dtype), (shares.mT @ grad_out).to(value.dtype)


LIBRARY = torch.library.Library("aten", "IMPL")
LIBRARY.impl("_scaled_dot_product_flash_attention", _forward, "CPU")
LIBRARY.impl("_scaled_dot_product_flash_attention_backward", _backward, "CPU")


def scaled_dot_product_attention(query, key, value, is_causal=False):
    """context_parallel replaces the attribute of torch.nn.functional that has this function's name."""
    return flash(query, key, value, 0.0, is_causal)[0]


@contextlib.contextmanager
def flash_on_cpu():
    """Inside, torch.nn.functional.scaled_dot_product_attention calls the kernel above. With a GPU torch chooses a kernel itself."""
    sound = F.scaled_dot_product_attention
    if not torch.accelerator.is_available():
        F.scaled_dot_product_attention = scaled_dot_product_attention
    try:
        yield
    finally:
        F.scaled_dot_product_attention = sound
