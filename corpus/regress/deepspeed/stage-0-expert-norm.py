"""Without ZeRO, DeepSpeed clips a model with expert parallelism by the mean of the ranks' gradient norms, each of which has that rank's experts alone.

clip_grad_norm_ (runtime/utils.py), which the engine calls for fp32 and stage 0, adds up the squares of this rank's parameters, takes the root, and averages the roots
over the data-parallel ranks. The norm of all gradients counts each expert once: stages 1 and 2 do.
Run it with python: it needs deepspeed (0.19.8 shows it) and torch alone, and starts two ranks. Exit code 1: the norm is not that of the whole gradient.
"""
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WIDTH, EXPERTS, RANKS = 4, 4, 2


def run(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29637", RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), GLOO_SOCKET_IFNAME="lo")
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed
    import deepspeed.ops
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False     # which would be compiled for minutes
    from deepspeed.moe.layer import MoE
    from deepspeed.runtime.utils import clip_grad_norm_
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
    layer = MoE(WIDTH, torch.nn.Linear(WIDTH, WIDTH, bias=False), EXPERTS, ep_size=RANKS, drop_tokens=False, use_rts=False)
    layer.set_deepspeed_parallelism()
    torch.manual_seed(0)
    gate, experts = torch.randn(EXPERTS, WIDTH), torch.randn(EXPERTS, WIDTH, WIDTH) * torch.arange(1, EXPERTS + 1)[:, None, None]
    layer.deepspeed_moe.gate.wg.weight.grad = gate.clone()             # the same on all ranks, as after a backward pass
    for one, gradient in zip(layer.deepspeed_moe.experts.deepspeed_experts, experts.chunk(RANKS)[rank]):
        one.weight.grad = gradient.clone()
    got, want = float(clip_grad_norm_(layer.parameters(), 1.0)), float(torch.cat([gate.flatten(), experts.flatten()]).norm())
    if rank == 0:
        print(f"gradient norm\n  got  {got:.4f}\n  want {want:.4f}", flush=True)
    dist.barrier()
    os._exit(1 if abs(got - want) > 1e-3 * want else 0)


if __name__ == "__main__":
    context = mp.get_context("spawn")
    ranks = [context.Process(target=run, args=(rank,)) for rank in range(RANKS)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()
    sys.exit(0 if not any(one.exitcode for one in ranks) else 1)
