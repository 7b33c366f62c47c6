"""ParallelEmbedding(padding_idx=0) trains the embedding of the padding token.

It keeps `padding_idx if padding_idx else None` and asks `if padding_idx and ..` (parallel_layers/layers.py): token 0 counts as none. torch.nn.Embedding gives it no
gradient.
Run it with python: it needs neuronx_distributed (0.13.0 to 0.18.0 show it) on PYTHONPATH. Exit code 1: token 0 has a gradient.
"""
import torch
from gloo import run, say


def main(rank):
    from neuronx_distributed.parallel_layers import ParallelEmbedding, initialize_model_parallel
    initialize_model_parallel(tensor_model_parallel_size=1)
    tokens, weight = torch.tensor([[0, 3, 0, 5]]), torch.randn(8, 4)
    grads = []
    for layer in (ParallelEmbedding(8, 4, padding_idx=0), torch.nn.Embedding(8, 4, padding_idx=0)):
        layer.weight.data.copy_(weight)
        layer(tokens).sum().backward()
        grads.append(layer.weight.grad)
    say(f"gradient of token 0\n  got  {grads[0][0].tolist()}\n  want {grads[1][0].tolist()}")
    return torch.equal(*grads)


run(main, 1)
