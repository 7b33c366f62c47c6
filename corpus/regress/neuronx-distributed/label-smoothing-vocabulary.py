"""parallel_cross_entropy with label_smoothing gives each tensor-parallel rank another loss: it smooths over the rank's own part of the vocabulary.

`vocab_size` is the size of the part, and the mean of the log-probabilities is taken over it (parallel_layers/loss_functions.py). Megatron-LM #737 is about the same
lines there.
Run it with python: it needs neuronx_distributed (0.13.0 to 0.18.0 show it) on PYTHONPATH. Exit code 1: a rank's loss is not the one over the whole vocabulary.
"""
import torch
from gloo import run, say

SMOOTHING, CLASSES = 0.1, 8


def main(rank):
    from neuronx_distributed.parallel_layers import initialize_model_parallel, parallel_cross_entropy
    initialize_model_parallel(tensor_model_parallel_size=2)
    logits, labels = torch.randn(2, 3, CLASSES), torch.randint(0, CLASSES, (2, 3))
    got = parallel_cross_entropy(logits.chunk(2, -1)[rank].contiguous(), labels, SMOOTHING).sum().item()
    scores = logits.log_softmax(-1)
    chosen = scores.gather(-1, labels[..., None])[..., 0]
    want = -((1 - SMOOTHING) * chosen + SMOOTHING * (scores.sum(-1) - chosen) / (CLASSES - 1)).sum().item()
    say(f"rank {rank}: loss\n  got  {got:.6f}\n  want {want:.6f}")
    return abs(got - want) < 1e-4


run(main, 2)
