"""Found by shardfuzz: x.at[i].set(value), where x is cut within the program: devices that do not have element i get a wrong element elsewhere

Run it with python. It needs jax and NumPy alone; jax 0.10.2 shows the bug, with both partitioners. Exit code 1: the sharded program's value is not that of one
device.
"""
import os
import sys

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_use_shardy_partitioner", "gspmd" not in sys.argv)
MESH = Mesh(np.array(jax.devices()), ("tp",))
wrong = 0


def on(*spec):
    return NamedSharding(MESH, P(*spec))


def show(what, got, want):
    global wrong
    got, want = np.asarray(got), np.asarray(want)
    same = got.shape == want.shape and np.allclose(got, want, rtol=1e-4)
    wrong += not same
    print(what, "sharded:", got, "one device:", want, "" if same else "WRONG", sep="\n")


def set_one(x, i):
    if isinstance(x, jax.core.Tracer):
        x = lax.with_sharding_constraint(x, on("tp"))
    return x.at[i].set(0)


def shift(x):
    return jnp.roll(x, 1).at[0].set(0)


x = np.arange(1, 9, dtype=np.float32)
show("x.at[2].set(0)", jax.jit(set_one)(jax.device_put(x, on()), 2), set_one(jnp.asarray(x), 2))
show("a shift", jax.jit(shift, out_shardings=on("tp"))(jax.device_put(x, on())), shift(jnp.asarray(x)))

sys.exit(1 if wrong else 0)
