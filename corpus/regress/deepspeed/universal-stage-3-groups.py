"""In stage 3 a universal checkpoint gives every group of the optimizer the settings of the first group.

load_hp_checkpoint_state_from_checkpoint_dir_stage3 copies param_groups[0] into all groups (runtime/zero/stage3.py, line 3687).
Run it with python: it needs DeepSpeed 0.19.8 and torch alone. Exit code 1: a group has another learning rate than before.
"""
import contextlib
import os
import sys
import tempfile
import types

import torch

os.environ.update(DS_ACCELERATOR="cpu", MASTER_ADDR="127.0.0.1", MASTER_PORT="29642", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", GLOO_SOCKET_IFNAME="lo")
import deepspeed
import deepspeed.ops
from deepspeed.checkpoint import ds_to_universal

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False     # which would be compiled for minutes


def start(universal):
    """An engine of two layers; each has a group and a learning rate of its own."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False))
    groups = [{"params": [model[0].weight], "lr": 0.01}, {"params": [model[1].weight], "lr": 0.02}]
    config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3}, "zero_allow_untested_optimizer": True,
              "checkpoint": {"load_universal": universal}}
    return deepspeed.initialize(model=model, optimizer=torch.optim.Adam(groups), config=config, dist_init_required=False)[0]


def rates(engine):
    return [group["lr"] for group in engine.optimizer.param_groups]


with contextlib.redirect_stdout(None), tempfile.TemporaryDirectory() as folder:
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
    engine = start(False)
    engine.backward(engine(torch.ones(2, 4)).square().mean())
    engine.step()
    engine.save_checkpoint(folder, tag="saved")
    ds_to_universal.main(types.SimpleNamespace(input_folder=f"{folder}/saved", output_folder=f"{folder}/universal", num_extract_workers=1,
                                               num_merge_workers=1, keep_temp_folder=False, strict=True, inject_missing_state=True))
    want = rates(engine)
    engine.destroy()
    engine = start(True)
    engine.load_checkpoint(folder, tag="universal")
    got = rates(engine)
print(f"learning rates of the groups\n  got  {got}\n  want {want}")
sys.exit(1 if got != want else 0)
