"""A universal checkpoint does not give frozen weights back.

load_checkpoint with load_universal loads no module (runtime/engine.py, line 4660). It leaves the weights to the optimizer, which has no frozen ones.
Run it with python: it needs DeepSpeed 0.19.8 and torch alone. Exit code 1: the loaded weight is not the saved one.
"""
import contextlib
import os
import sys
import tempfile
import types

import torch

os.environ.update(DS_ACCELERATOR="cpu", MASTER_ADDR="127.0.0.1", MASTER_PORT="29641", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", GLOO_SOCKET_IFNAME="lo")
import deepspeed
import deepspeed.ops
from deepspeed.checkpoint import ds_to_universal

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False     # which would be compiled for minutes


def start(value, universal):
    """An engine of two layers with weights of that value; the first layer is frozen."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False))
    for one in model.parameters():
        torch.nn.init.constant_(one, value)
    model[0].weight.requires_grad_(False)
    config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True,
              "checkpoint": {"load_universal": universal}}
    return deepspeed.initialize(model=model, optimizer=torch.optim.Adam([model[1].weight], lr=0.01), config=config, dist_init_required=False)[0]


def weights(engine):
    return [one.detach().flatten()[0].item() for one in engine.module.parameters()]


with contextlib.redirect_stdout(None), tempfile.TemporaryDirectory() as folder:
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
    engine = start(1.0, False)
    engine.backward(engine(torch.ones(2, 4)).square().mean())
    engine.step()
    engine.save_checkpoint(folder, tag="saved")
    ds_to_universal.main(types.SimpleNamespace(input_folder=f"{folder}/saved", output_folder=f"{folder}/universal", num_extract_workers=1,
                                               num_merge_workers=1, keep_temp_folder=False, strict=True, inject_missing_state=True))
    want = weights(engine)
    engine.destroy()
    engine = start(0.5, True)
    engine.load_checkpoint(folder, tag="universal")
    got = weights(engine)
print(f"first element of the frozen weight and of the trained one\n  got  {got}\n  want {want}")
sys.exit(1 if got != want else 0)
