"""ColumnParallelLinear in bfloat16 loses the all-reduce of its input's gradient: each tensor-parallel rank goes on with its own part.

`_linear_autograd_bwd_grad_reduce` (parallel_layers/layers_utils.py) makes a copy of the gradient in reduce_dtype, fp32 by default, and reduces the copy. It returns the
handle alone; its caller goes on with the gradient of before. In fp32 the copy is the gradient itself, and all is right. So it is under sequence parallelism.
Run it with python: it needs neuronx_distributed (0.13.0 to 0.18.0 show it) on PYTHONPATH. Exit code 1: the ranks have different gradients.
"""
import torch
from gloo import run, say


def main(rank):
    from neuronx_distributed.parallel_layers import ColumnParallelLinear, initialize_model_parallel
    initialize_model_parallel(tensor_model_parallel_size=2)
    x, weight = torch.randn(4, 2, 8), torch.randn(6, 8)
    layer = ColumnParallelLinear(8, 6, bias=False, gather_output=False, dtype=torch.bfloat16)
    layer.weight.data.copy_(weight.chunk(2)[rank])
    given = x.bfloat16().requires_grad_()
    layer(given).sum().backward()
    plain = x.bfloat16().requires_grad_()
    torch.nn.functional.linear(plain, weight.bfloat16()).sum().backward()
    say(f"rank {rank}: gradient of the input\n  got  {given.grad[0, 0].tolist()}\n  want {plain.grad[0, 0].tolist()}")
    return (given.grad - plain.grad).norm() < 0.02 * plain.grad.norm()


run(main, 2)
