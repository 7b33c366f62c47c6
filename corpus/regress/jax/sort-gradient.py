"""Found by shardfuzz: the gradient of jnp.sort of an array that is cut unevenly: the compiler ends the process with
`Check failed: ShapeUtil::IsScalarWithElementType`. The exit code is that of the signal SIGABRT.

Run it with python. It needs jax and NumPy alone; jax 0.10.2 shows the bug, with both partitioners.
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


def gradient(x):
    x = lax.with_sharding_constraint(x, on("tp"))
    return jax.grad(lambda x: jnp.sum(jnp.sort(x, axis=1) * jnp.arange(4)))(x)


x = np.random.default_rng(0).permutation(12).astype(np.float32).reshape(3, 4)
want = jax.grad(lambda x: jnp.sum(jnp.sort(x, axis=1) * jnp.arange(4)))(x)
show("gradient", jax.jit(gradient)(jax.device_put(x, on())), want)

sys.exit(1 if wrong else 0)
