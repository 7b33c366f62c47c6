"""With expert parallelism a rank that trains no experts does not average its gradients over the data-parallel ranks, whose weights then drift apart.

NxDOptimizer.step (trainer/optimizer.py) averages over the ranks that have the same experts first, and over the others `if len(ep_gradients) > 0`. A rank without
trained experts leaves the second part out: experts are frozen, or its pipeline stage has none.
Run it with python: it needs neuronx_distributed (0.13.0 to 0.18.0 show it) on PYTHONPATH. Exit code 1: the update is not that of the mean gradient.
"""
import torch
from gloo import run, say


def main(rank):
    import neuronx_distributed as nxd
    config = nxd.neuronx_distributed_config(expert_parallel_size=2, optimizer_config={"zero_one_enabled": False, "grad_clipping": False})
    weight, gradients = torch.nn.Parameter(torch.zeros(4)), torch.randn(2, 4)
    optimizer = nxd.initialize_parallel_optimizer(config, torch.optim.SGD, [weight], lr=1.0)
    weight.grad = gradients[rank].clone()
    optimizer.step()
    got, want = weight.detach(), -gradients.mean(0)
    say(f"rank {rank}: weight after a step\n  got  {got.tolist()}\n  want {want.tolist()}")
    return torch.allclose(got, want, atol=1e-6)


run(main, 2)
