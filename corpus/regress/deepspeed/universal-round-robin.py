"""With round_robin_gradients a universal checkpoint exchanges weights when another number of ranks loads it.

_link_all_hp_params assumes that the flat buffer has the parameters in their original order (runtime/zero/stage_1_and_2.py, line 835). round_robin_gradients deals
them out to the ranks in turn. Two ranks save and load under the same wrong names, so nothing shows. One rank has another order.
Run it with python: it needs DeepSpeed 0.19.8 and torch alone. Exit code 1: a loaded weight is not the saved one.
"""
import contextlib
import logging
import os
import sys
import tempfile
import types

import torch
import torch.multiprocessing as mp

LAYERS = 4
os.environ.update(DS_ACCELERATOR="cpu", MASTER_ADDR="127.0.0.1", GLOO_SOCKET_IFNAME="lo")
logging.disable(logging.WARNING)


def start(rank, ranks, value, universal):
    """An engine of four layers; the weights of layer n are value + n."""
    os.environ.update(MASTER_PORT=str(29650 + ranks), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks))
    import deepspeed
    import deepspeed.ops
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False     # which would be compiled for minutes
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
    model = torch.nn.Sequential(*(torch.nn.Linear(4, 4, bias=False) for _ in range(LAYERS)))
    for n, one in enumerate(model.parameters()):
        torch.nn.init.constant_(one, value + n)
    config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 1, "round_robin_gradients": True}, "zero_allow_untested_optimizer": True,
              "checkpoint": {"load_universal": universal}}
    return deepspeed.initialize(model=model, optimizer=torch.optim.Adam(model.parameters(), lr=0.0), config=config, dist_init_required=False)[0]


def save(rank, ranks, folder):
    with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
        engine = start(rank, ranks, 1.0, False)
        engine.backward(engine(torch.ones(2, 4)).square().mean())
        engine.step()
        engine.save_checkpoint(folder, tag="saved")
        torch.distributed.barrier()
        os._exit(0)


def convert_and_load(folder):
    from deepspeed.checkpoint import ds_to_universal
    with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
        ds_to_universal.main(types.SimpleNamespace(input_folder=f"{folder}/saved", output_folder=f"{folder}/universal", num_extract_workers=1,
                                                   num_merge_workers=1, keep_temp_folder=False, strict=True, inject_missing_state=True))
        engine = start(0, 1, 0.5, True)
        engine.load_checkpoint(folder, tag="universal")
    return [one.detach().flatten()[0].item() for one in engine.module.parameters()]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(save, args=(2, folder), nprocs=2)
        got, want = convert_and_load(folder), [1.0 + n for n in range(LAYERS)]
    print(f"first element of each layer's weight, saved by 2 ranks and loaded by 1\n  got  {got}\n  want {want}")
    sys.exit(1 if got != want else 0)
