"""The gradient norm counts keys and values once for each of their copies (kv_size_multiplier > 1), and so gradients are clipped too much.

GQAQKVColumnParallelLinear puts a head of keys on several ranks and gives each copy the whole gradient. get_grad_norm (parallel_layers/grads.py) adds up the squares of
all of them: the weights are marked as cut over the ranks, and nothing says that they are copies.
Run it with python: it needs neuronx_distributed (0.13.0 to 0.18.0 show it) on PYTHONPATH. Exit code 1: the norm is not that of the whole gradient.
"""
import torch
from gloo import run, say


def main(rank):
    from neuronx_distributed.modules.qkv_linear import GQAQKVColumnParallelLinear
    from neuronx_distributed.parallel_layers import initialize_model_parallel
    from neuronx_distributed.parallel_layers.grads import get_grad_norm
    initialize_model_parallel(tensor_model_parallel_size=2)
    layer = GQAQKVColumnParallelLinear(8, [8, 4], bias=False, gather_output=False, fuse_qkv=False, kv_size_multiplier=2)
    queries, keys, values = torch.randn(8, 8), torch.randn(4, 8), torch.randn(4, 8)
    layer.weight_q.grad, layer.weight_k.grad, layer.weight_v.grad = queries.chunk(2)[rank].clone(), keys, values
    got, want = get_grad_norm(list(layer.parameters())).item(), torch.cat([queries, keys, values]).norm().item()
    say(f"rank {rank}: gradient norm\n  got  {got:.4f}\n  want {want:.4f}")
    return abs(got - want) < 1e-3 * want


run(main, 2)
