"""With ZeRO-1 optimizer_config["max_grad_norm"] is ignored: gradients are clipped to a norm of 1.0, whatever it says.

initialize_optimizer_from_class (trainer/trainer.py) gives NeuronZero1Optimizer grad_clipping and no max_norm, whose default is 1.0. Without ZeRO-1 the setting counts.
Run it with python: it needs neuronx_distributed (0.13.0 to 0.18.0 show it) on PYTHONPATH, and an installed torch_xla. Exit code 1: the update is not that of clipped
gradients.
"""
import torch
from gloo import run, say

MAX_NORM, RATE = 0.1, 0.5


def main(rank):
    import neuronx_distributed as nxd
    config = nxd.neuronx_distributed_config(optimizer_config={"zero_one_enabled": True, "grad_clipping": True, "max_grad_norm": MAX_NORM},
                                            mixed_precision_config={"use_master_weights": True, "use_fp32_grad_acc": False})
    weight = torch.nn.Parameter(torch.zeros(4))
    optimizer = nxd.initialize_parallel_optimizer(config, torch.optim.SGD, [weight], lr=RATE)
    weight.grad = torch.tensor([3.0, 4.0, 0.0, 0.0])
    optimizer.step()
    got, want = weight.detach().norm().item(), RATE * MAX_NORM
    say(f"norm of the update with max_grad_norm {MAX_NORM} and a learning rate of {RATE}\n  got  {got:.4f}\n  want {want:.4f}")
    return abs(got - want) < 1e-3 * want


run(main, 1)
