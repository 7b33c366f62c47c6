"""Found by shardfuzz: a convolution whose input is cut in space along one axis of a mesh, and whose kernel is cut along the other: the result is doubled

Run it with python. It needs jax and NumPy alone; jax 0.10.2 shows the bug, with both partitioners. Exit code 1: the sharded program's value is not that of one
device.
"""
import os
import sys

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_use_shardy_partitioner", "gspmd" not in sys.argv)
MESH = Mesh(np.array(jax.devices()).reshape(2, 2), ("dp", "tp"))
wrong = 0


def on(*spec):
    return NamedSharding(MESH, P(*spec))


def show(what, got, want):
    global wrong
    got, want = np.asarray(got), np.asarray(want)
    same = got.shape == want.shape and np.allclose(got, want, rtol=1e-4)
    wrong += not same
    print(what, "sharded:", got, "one device:", want, "" if same else "WRONG", sep="\n")


def conv(x, w):
    return lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=("NCH", "OIH", "NCH"))


x, w = np.arange(64, dtype=np.float32).reshape(2, 4, 8), np.ones((4, 4, 3), np.float32)
for of_x, of_w in ((("dp", None, "tp"), (None, None, None)), ((None, None, "tp"), (None, None, None)), ((None, None, "tp"), ("dp", None, None))):
    show(f"convolution of x{of_x} with a kernel{of_w}", jax.jit(conv)(jax.device_put(x, on(*of_x)), jax.device_put(w, on(*of_w)))[0], conv(x, w)[0])


sys.exit(1 if wrong else 0)
