"""The gradient norm is too small with GQAQKVColumnParallelLinear(fuse_qkv=True), its default, under tensor parallelism, and so gradients are clipped too little.

The layer marks the views of its weight as cut over the ranks, and then puts a new parameter without a mark in its place (modules/qkv_linear.py,
initialize_weight_biases). get_grad_norm (parallel_layers/grads.py) takes a parameter without a mark for a copy on each rank, and counts the mean of the ranks' squares
where it should count their sum.
Run it with python: it needs neuronx_distributed (0.13.0 to 0.18.0 show it) on PYTHONPATH. Exit code 1: the norm is not that of the whole gradient.
"""
import torch
from gloo import run, say


def main(rank):
    from neuronx_distributed.modules.qkv_linear import GQAQKVColumnParallelLinear
    from neuronx_distributed.parallel_layers import initialize_model_parallel
    from neuronx_distributed.parallel_layers.grads import get_grad_norm
    initialize_model_parallel(tensor_model_parallel_size=2)
    layer = GQAQKVColumnParallelLinear(8, [8, 8], bias=False, gather_output=False)
    whole = torch.randn(24, 8)
    layer.weight_qkv.grad = torch.cat([part.chunk(2)[rank] for part in whole.chunk(3)])
    got, want = get_grad_norm(list(layer.parameters())).item(), whole.norm().item()
    say(f"rank {rank}: gradient norm\n  got  {got:.4f}\n  want {want:.4f}")
    return abs(got - want) < 1e-3 * want


run(main, 2)
