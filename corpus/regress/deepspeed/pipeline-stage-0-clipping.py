"""A pipeline in fp32 and stage 0 clips gradients by the norm of the first stage's: `clip_grad_norm_` (runtime/utils.py, line 394) counts a
parameter on the first rank of model parallelism alone, and each stage is a rank of it.

Run it with python: it needs DeepSpeed 0.19.8 and torch alone, and starts 2 ranks. Exit code 1: the update has another norm than it is clipped to.
"""
import contextlib
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

os.environ["DS_ACCELERATOR"] = "cpu"
TYPE = torch.float32


def make(deepspeed):
    from deepspeed.pipe import LayerSpec, PipelineModule
    torch.manual_seed(0)
    model = PipelineModule([LayerSpec(torch.nn.Linear, 4, 4), LayerSpec(torch.nn.Linear, 4, 4)],
                           num_stages=2, loss_fn=lambda got, want: (got - want).float().square().sum(), partition_method="uniform")
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    config = {"train_micro_batch_size_per_gpu": 2, "zero_allow_untested_optimizer": True, "gradient_clipping": 0.1}
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config, dist_init_required=False)[0]


def weights(engine):
    return torch.cat([one.detach().float().flatten() for one in engine.module.parameters()])


def run(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29631", RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", GLOO_SOCKET_IFNAME="lo")
    import deepspeed
    import deepspeed.ops
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False     # which would be compiled
    with contextlib.redirect_stdout(None):
        deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
        engine = make(deepspeed)
        before = weights(engine)
        engine.train_batch(iter([(torch.linspace(-1, 1, 8).reshape(2, 4).to(TYPE), torch.zeros(2, 4).to(TYPE))]))
    after = weights(engine)
    squares = (after - before).square().sum()
    dist.all_reduce(squares)
    wrong = abs(squares.sqrt().item() - 0.1) > 1e-3
    print(f"rank {rank}: the update has norm {squares.sqrt():.4f}; want 0.1, to which gradients are clipped (learning rate 1)\n", end="", flush=True)
    os._exit(1 if wrong else 0)


if __name__ == "__main__":
    mp.set_start_method("spawn")
    ranks = [mp.Process(target=run, args=(rank,)) for rank in range(2)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()
    sys.exit(1 if any(one.exitcode for one in ranks) else 0)
