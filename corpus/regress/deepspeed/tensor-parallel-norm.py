"""The gradient norm under tensor parallelism (AutoTP) counts the first rank's shards alone: the optimizer for 16 bits in stage 0
(runtime/fp16/unfused_optimizer.py, line 214) gives `get_weight_norm` gradients, which lack the mark of a shard (runtime/utils.py, line 575).
Clipping uses that norm.

Run it with python: it needs DeepSpeed 0.19.8 and torch alone, and starts 2 ranks. Exit code 1: the norm is not that of the gradients.
"""
import contextlib
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

os.environ["DS_ACCELERATOR"] = "cpu"
TYPE = torch.float16


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(4, 8, bias=False), torch.nn.Linear(8, 4, bias=False)

    def forward(self, x):
        return self.down(self.up(x))


def make(deepspeed):
    torch.manual_seed(0)
    model = Model()
    specs = [{"patterns": [r"up\.weight$"], "partition_type": "column"}, {"patterns": [r"down\.weight$"], "partition_type": "row"}]
    config = {"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0.0, "fp16": {"enabled": True, "loss_scale": 1},
              "tensor_parallel": {"autotp_size": 2, "partition_config": {"use_default_specs": False, "layer_specs": specs}}}
    return deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0), config=config, dist_init_required=False)[0]


def weights(engine):
    return torch.cat([one.detach().float().flatten() for one in engine.module.parameters()])


def run(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29634", RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", GLOO_SOCKET_IFNAME="lo")
    import deepspeed
    import deepspeed.ops
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False     # which would be compiled
    with contextlib.redirect_stdout(None):
        deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
        engine = make(deepspeed)
        before = weights(engine)
        engine.backward(engine(torch.linspace(-1, 1, 8).reshape(2, 4).to(TYPE)).float().square().sum())
        engine.step()
    after = weights(engine)
    squares = (after - before).square().sum()      # of this rank's shards; the learning rate is 1
    dist.all_reduce(squares)
    got, want = float(engine.get_global_grad_norm()), squares.sqrt().item()
    wrong = abs(got - want) > 0.05 * want
    print(f"rank {rank}: get_global_grad_norm() is {got:.4f}, the norm of the gradients of both ranks' shards {want:.4f}\n", end="", flush=True)
    os._exit(1 if wrong else 0)


if __name__ == "__main__":
    mp.set_start_method("spawn")
    ranks = [mp.Process(target=run, args=(rank,)) for rank in range(2)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()
    sys.exit(1 if any(one.exitcode for one in ranks) else 0)
