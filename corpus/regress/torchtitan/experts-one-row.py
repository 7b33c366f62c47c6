"""Experts under tensor and sequence parallelism lose the gradient of what comes before them, where a rank has one row.

torchtitan gathers the sequence for the experts asynchronously. With one row the gather needs no copy, so local_map gets a tensor whose gather has not ended. torch's
local_map waits for it outside of the graph (../torch-dtensor/local-map-async.py). So the gradient through the experts is lost; that through the router is there.
Run it with python: it needs torchtitan (0.3.0 with torch 2.13.0 shows it) and starts two ranks. Exit code 1: a gradient is not what one device gives.
"""
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torchtitan.tools.utils as titan

if not torch.cuda.is_available():
    titan.device_type, titan.device_module = "cpu", torch.cpu

import spmd_types as spmd  # noqa: E402
from torch.distributed.tensor import Shard, distribute_tensor  # noqa: E402
from torchtitan.distributed import ParallelDims, utils  # noqa: E402
from torchtitan.models.common.config_utils import make_moe_config, make_routed_experts_config, make_router_config  # noqa: E402
from torchtitan.models.common.moe_sharding import set_moe_sharding_config  # noqa: E402

RANKS, EXPERTS, WIDTH, LENGTH = 2, 4, 32, 8


def experts(sharded):
    """A layer of experts, with the same parameters each time. sharded: as torchtitan's models have it under sequence parallelism."""
    small = {name: lambda tensor: torch.nn.init.normal_(tensor, std=0.2) for name in ("weight", "w1_EFD", "w2_EDF", "w3_EFD")}
    config = make_moe_config(
        num_experts=EXPERTS, load_balance_coeff=None, router=make_router_config(dim=WIDTH, num_experts=EXPERTS, gate_param_init=small, top_k=2),
        routed_experts=make_routed_experts_config(dim=WIDTH, hidden_dim=WIDTH, num_experts=EXPERTS, top_k=2, param_init=small, comm_backend="standard"))
    if sharded:
        set_moe_sharding_config(config, enable_ep=False, enable_sp=True,
                                expert_param_layout={"w1_EFD": spmd.S(1), "w2_EDF": spmd.S(2), "w3_EFD": spmd.S(1)})
    torch.manual_seed(0)
    layer = config.build()
    layer.init_states(buffer_device=torch.device("cpu"))
    return layer


def run(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29624", RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_RANK=str(rank), GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    utils.set_spmd_backend("partial_dtensor")
    dims = ParallelDims(dp_replicate=1, dp_shard=1, cp=1, tp=RANKS, pp=1, ep=1, world_size=RANKS, spmd_backend="partial_dtensor")
    alone, parallel = experts(False), experts(True)
    parallel.parallelize(dims)
    wrong = False
    for rows in (2, 1):
        torch.manual_seed(1)
        whole = torch.randn(rows, LENGTH, WIDTH).requires_grad_()
        alone(whole).square().sum().backward()
        cut = distribute_tensor(whole.detach(), dims.get_mesh("tp"), [Shard(1)]).requires_grad_()
        parallel(cut).square().sum().backward()
        got, want = cut.grad.full_tensor(), whole.grad
        share = 100 * (got - want).norm() / want.norm()
        if rank == 0:
            print(f"{rows} row(s): gradient of what the experts get: off by {share:.1f} %\n  got  {got.flatten()[:4].tolist()}\n  want {want.flatten()[:4].tolist()}", flush=True)
        wrong = wrong or share > 5                               # experts compute in bf16
    dist.barrier()
    os._exit(1 if wrong else 0)


if __name__ == "__main__":
    context = mp.get_context("spawn")
    ranks = [context.Process(target=run, args=(rank,)) for rank in range(RANKS)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()
    sys.exit(1 if any(one.exitcode for one in ranks) else 0)
