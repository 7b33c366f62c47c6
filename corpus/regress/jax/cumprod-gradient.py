"""Found by shardfuzz: the gradients of cumprod, cummax, cumlogsumexp and lax.associative_scan with a cut argument and a replicated gradient of the result

Run it with python. It needs jax and NumPy alone; jax 0.10.2 shows the bug, with both partitioners. Exit code 1: the sharded program's value is not that of one
device.
"""
import functools
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


def gradient(function, x, g):
    return jax.vjp(lambda x: function(x, axis=0), x)[1](g)[0]


x, g = np.linspace(0.5, 1.5, 16, dtype=np.float32).reshape(4, 4), np.linspace(1, 2, 16, dtype=np.float32).reshape(4, 4)
for name, function in (("cumprod", jnp.cumprod), ("cummax", lax.cummax), ("cumlogsumexp", lax.cumlogsumexp),
                       ("associative_scan", lambda x, axis: lax.associative_scan(jnp.multiply, x, axis=axis))):
    sharded = jax.jit(functools.partial(gradient, function))
    show(f"gradient of {name}", sharded(jax.device_put(x, on("tp")), jax.device_put(g, on())), gradient(function, x, g))

sys.exit(1 if wrong else 0)
