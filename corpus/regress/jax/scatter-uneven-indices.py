"""Found by shardfuzz: x.at[j].add(value), where j is cut unevenly along one of two axes of a mesh: what fills up the last part of j counts as index 0

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


def count(x, j):
    return x.at[lax.with_sharding_constraint(j, on("dp"))].add(1)


x, j = np.zeros(4, np.float32), np.array([1, 1, 2], np.int32)
show("counts", jax.jit(count)(jax.device_put(x, on()), jax.device_put(j, on())), jnp.asarray(x).at[j].add(1))


sys.exit(1 if wrong else 0)
