"""The gradient norm counts a pipeline's tied weight once for each stage that has it: the optimizer for 16 bits in stage 0
(runtime/fp16/unfused_optimizer.py, line 214) gives `get_weight_norm` gradients, which lack the mark of a copy (runtime/utils.py, line 570).

Run it with python: it needs DeepSpeed 0.19.8 and torch alone, and starts 2 ranks. Exit code 1: the norm is not that of the gradient.
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
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0.0, "fp16": {"enabled": True, "loss_scale": 1}}
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config, dist_init_required=False)[0]


def weights(engine):
    return torch.cat([one.detach().float().flatten() for one in engine.module.parameters()])


def run(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29633", RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", GLOO_SOCKET_IFNAME="lo")
    import deepspeed
    import deepspeed.ops
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False     # which would be compiled
    with contextlib.redirect_stdout(None):
        deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
        engine = make(deepspeed)
        before = weights(engine)
        engine.train_batch(iter([(torch.linspace(-1, 1, 8).reshape(2, 4).to(TYPE), torch.zeros(2, 4).to(TYPE))]))
    after = weights(engine)
    got, want = float(engine.get_global_grad_norm()), (after - before).norm().item()      # the learning rate is 1
    wrong = abs(got - want) > 0.05 * want
    print(f"rank {rank}: get_global_grad_norm() is {got:.4f}, the norm of the tied weight's gradient {want:.4f}\n", end="", flush=True)
    os._exit(1 if wrong else 0)


if __name__ == "__main__":
    mp.set_start_method("spawn")
    ranks = [mp.Process(target=run, args=(rank,)) for rank in range(2)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()
    sys.exit(1 if any(one.exitcode for one in ranks) else 0)
