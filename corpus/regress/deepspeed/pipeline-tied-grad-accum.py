"""The gradients of a pipeline's tied layer are not summed over its stages where ZeRO-1 keeps gradients in `grad_accum`: `_exec_reduce_tied_grads`
(runtime/pipe/engine.py, line 283) sums `weight.grad`, which is None then. The copies of the weight drift apart.

Run it with python: it needs DeepSpeed 0.19.8 and torch alone, and starts 2 ranks. Exit code 1: the copies differ.
"""
import contextlib
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

os.environ["DS_ACCELERATOR"] = "cpu"
TYPE = torch.float16


def make(deepspeed):
    from deepspeed.pipe import PipelineModule, TiedLayerSpec
    torch.manual_seed(0)
    model = PipelineModule([TiedLayerSpec("shared", torch.nn.Linear, 4, 4, bias=False), TiedLayerSpec("shared", torch.nn.Linear, 4, 4, bias=False)],
                           num_stages=2, loss_fn=lambda got, want: (got - want).float().square().sum(), partition_method="uniform")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    config = {"train_micro_batch_size_per_gpu": 2, "zero_allow_untested_optimizer": True, "zero_optimization": {"stage": 1},
              "data_types": {"grad_accum_dtype": "fp32"}, "fp16": {"enabled": True, "loss_scale": 1}}
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config, dist_init_required=False)[0]


def weights(engine):
    return torch.cat([one.detach().float().flatten() for one in engine.module.parameters()])


def run(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29632", RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", GLOO_SOCKET_IFNAME="lo")
    import deepspeed
    import deepspeed.ops
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False     # which would be compiled
    with contextlib.redirect_stdout(None):
        deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
        engine = make(deepspeed)
        before = weights(engine)
        engine.train_batch(iter([(torch.linspace(-1, 1, 8).reshape(2, 4).to(TYPE), torch.zeros(2, 4).to(TYPE))]))
    after = weights(engine)
    copies = [torch.empty_like(after) for _ in range(2)]
    dist.all_gather(copies, after)
    wrong = not torch.equal(*copies)
    shown = [[round(value, 4) for value in one[:4].tolist()] for one in (after, before)]
    print(f"rank {rank}: the tied weight begins with {shown[0]}, before the step with {shown[1]}; it must be the same on both ranks\n", end="", flush=True)
    os._exit(1 if wrong else 0)


if __name__ == "__main__":
    mp.set_start_method("spawn")
    ranks = [mp.Process(target=run, args=(rank,)) for rank in range(2)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()
    sys.exit(1 if any(one.exitcode for one in ranks) else 0)
