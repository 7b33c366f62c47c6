"""In stage 3 a universal checkpoint gives all sub-groups of weights one tensor as their count of steps.

load_hp_checkpoint_state_from_checkpoint_dir_stage3 does so (runtime/zero/stage3.py, line 3681). The update of each sub-group adds 1 to it, and torch's Adam
corrects its averages as if so many steps had been made.
Run it with python: it needs DeepSpeed 0.19.8 and torch alone. Exit code 1: the step after loading is not the one that Adam makes.
"""
import contextlib
import os
import sys
import tempfile
import types

import torch

os.environ.update(DS_ACCELERATOR="cpu", MASTER_ADDR="127.0.0.1", MASTER_PORT="29643", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", GLOO_SOCKET_IFNAME="lo")
import deepspeed
import deepspeed.ops
from deepspeed.checkpoint import ds_to_universal

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False     # which would be compiled for minutes
ROWS = [torch.ones(2, 4), torch.tensor([[1.0, 2.0, -1.0, 0.5], [0.5, -2.0, 1.0, 1.0]])]


def model_and_optimizer():
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(4, 4, bias=False) for _ in range(3)))
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def start(universal):
    """An engine whose weights have a sub-group each."""
    model, optimizer = model_and_optimizer()
    config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3, "sub_group_size": 16}, "zero_allow_untested_optimizer": True,
              "checkpoint": {"load_universal": universal}}
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config, dist_init_required=False)[0]


def step(engine, rows):
    engine.backward(engine(rows).square().mean())
    engine.step()


def weights(engine):
    with deepspeed.zero.GatheredParameters(list(engine.module.parameters())):
        return [one.detach().clone() for one in engine.module.parameters()]


model, optimizer = model_and_optimizer()
want = []
for rows in ROWS:
    optimizer.zero_grad()
    model(rows).square().mean().backward()
    optimizer.step()
    want.append([one.detach().clone() for one in model.parameters()])
with contextlib.redirect_stdout(None), tempfile.TemporaryDirectory() as folder:
    deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
    engine = start(False)
    step(engine, ROWS[0])
    engine.save_checkpoint(folder, tag="saved")
    ds_to_universal.main(types.SimpleNamespace(input_folder=f"{folder}/saved", output_folder=f"{folder}/universal", num_extract_workers=1,
                                               num_merge_workers=1, keep_temp_folder=False, strict=True, inject_missing_state=True))
    engine.destroy()
    engine = start(True)
    engine.load_checkpoint(folder, tag="universal")
    loaded = weights(engine)
    step(engine, ROWS[1])
    got = weights(engine)
wrong = 0
for number, (before, after) in enumerate(zip(loaded, got)):
    change, right = (after - before).norm().item(), (want[1][number] - want[0][number]).norm().item()
    wrong += abs(change - right) > 0.01 * right
    print(f"norm of the second step of weight {number}\n  got  {change:.5f}\n  want {right:.5f}")
sys.exit(1 if wrong else 0)
