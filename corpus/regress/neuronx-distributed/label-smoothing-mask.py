"""parallel_cross_entropy with label_smoothing has a gradient that lacks the label, on one rank as on several.

Its backward pass multiplies by `1 - target_mask` (parallel_layers/loss_functions.py). In Megatron-LM, where that comes from, the mask is true where a label lies on
another rank; here it is true where it lies on this one. So the label's own term is left out, and a label of another rank counts as this rank's first class.
Run it with python: it needs neuronx_distributed (0.13.0 to 0.18.0 show it) on PYTHONPATH. Exit code 1: the gradient is not that of the loss.
"""
import torch
from gloo import run, say


def main(rank):
    from neuronx_distributed.parallel_layers import initialize_model_parallel, parallel_cross_entropy
    initialize_model_parallel(tensor_model_parallel_size=1)
    logits, labels = torch.randn(2, 3, 8, dtype=torch.float64).requires_grad_(), torch.randint(0, 8, (2, 3))
    parallel_cross_entropy(logits.clone(), labels, 0.1).sum().backward()
    step = torch.zeros_like(logits)
    step[0, 0, labels[0, 0]] = 1e-6         # a difference of the loss itself, along the first label
    up, down = (parallel_cross_entropy(logits.detach() + way * step, labels, 0.1).sum() for way in (1, -1))
    got, want = logits.grad[0, 0, labels[0, 0]].item(), ((up - down) / 2e-6).item()
    say(f"gradient of the first label's logit\n  got  {got:.6f}\n  want {want:.6f} by differences of the same loss")
    return abs(got - want) < 1e-4


run(main, 1)
