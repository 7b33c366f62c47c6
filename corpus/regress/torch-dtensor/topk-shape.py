"""The second topk of a DTensor has the shape of the first one: DTensor keeps what it worked out for an operation, and looks it up without k.

`topk` is registered with RuntimeSchemaInfo(2) (tensor/_ops/_math_ops.py, line 1354): arguments from the third on are part of the key, and k is the second. What depends on
`.shape` afterwards is wrong or fails. `histc` is registered alike and forgets its number of bins.
Run it with python: it needs torch alone (2.13.0 shows it); one rank is enough. Exit code 1: a shape is wrong.
"""
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, distribute_tensor

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29619", GLOO_SOCKET_IFNAME="lo")
dist.init_process_group("gloo", rank=0, world_size=1)
plain = torch.arange(8.0).reshape(2, 4)
x = distribute_tensor(plain, init_device_mesh("cpu", (1,)), [Replicate()])
wrong = False
for name, of in (("topk", lambda tensor, k: torch.topk(tensor, k)[0]), ("histc", lambda tensor, bins: torch.histc(tensor, bins, 0, 8))):
    for number in (2, 3):
        got, want = of(x, number), of(plain, number)
        print(f"{name} with {number}: shape {tuple(got.shape)}, of its local tensor {tuple(got.to_local().shape)}; want {tuple(want.shape)}")
        wrong = wrong or got.shape != want.shape
dist.destroy_process_group()
sys.exit(1 if wrong else 0)
