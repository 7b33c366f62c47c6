"""Found by shardfuzz: the gradient of a convolution with a stride, whose input is cut unevenly

Run it with python. It needs jax and NumPy alone; jax 0.10.2 shows the bug, with both partitioners. Exit code 1: the sharded program's value is not that of one
device.
"""
import os
import sys

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=3"

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


def gradient(x, w, g):
    def conv(x):
        x = lax.with_sharding_constraint(x, on(None, None, "tp")) if isinstance(x, jax.core.Tracer) and sharded else x
        return lax.conv_general_dilated(x, w, (2,), "SAME", dimension_numbers=("NCH", "OIH", "NCH"))
    return jax.vjp(conv, x)[1](g)[0]


x, w, g = np.arange(1, 3, dtype=np.float32).reshape(1, 1, 2), np.arange(1, 4, dtype=np.float32).reshape(1, 1, 3), np.ones((1, 1, 1), np.float32)
sharded = False
want = gradient(x, w, g)
sharded = True
show("gradient", jax.jit(gradient)(*(jax.device_put(one, on()) for one in (x, w, g))), want)

sys.exit(1 if wrong else 0)
