"""Found by shardfuzz: cumsum under jax.shard_map that is manual along one of two axes, with the partitioner GSPMD: the compiler ends the process with
`Check failed: sharding.IsManualSubgroup()`. The exit code is that of the signal SIGABRT.

Run it with python. It needs jax and NumPy alone; jax 0.10.2 shows the bug.
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
jax.config.update("jax_use_shardy_partitioner", False)
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


def local(x):
    """The sums within this device's rows, and the total of the devices in front of it."""
    totals = lax.all_gather(jnp.sum(x, 0, keepdims=True), "tp", axis=0, tiled=True)
    return jnp.cumsum(x, 0) + lax.dynamic_index_in_dim(jnp.cumsum(totals, 0) - totals, lax.axis_index("tp"), axis=0)


x = np.arange(16, dtype=np.float32).reshape(4, 4)
by_hand = jax.shard_map(local, mesh=MESH, in_specs=P("tp"), out_specs=P("tp"), axis_names={"tp"})
show("cumsum", jax.jit(by_hand)(jax.device_put(x, on())), np.cumsum(x, axis=0))

sys.exit(1 if wrong else 0)
