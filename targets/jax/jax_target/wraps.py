"""What an operation can be wrapped in. Each takes f(x, operands), which gives a tuple, and gives such a function. Stand-alone scripts have the source of this file."""
import jax
import jax.numpy as jnp
from jax import lax


def none(f, **_):
    return f


def checkpoint(f, **_):
    return jax.checkpoint(f)


def jit(f, **_):
    return jax.jit(f)


def scan(f, **_):
    """f for each part of x along its first dimension."""
    return lambda x, o: lax.scan(lambda _, one: (None, f(one, o)), None, x)[1]


def vmap(f, spmd_axis_name=None):
    """The same at once."""
    return lambda x, o: jax.vmap(lambda one: f(one, o), spmd_axis_name=spmd_axis_name)(x)


def carry(f, **_):
    """f(f(x)), as a loop."""
    return lambda x, o: (lax.scan(lambda c, _: (f(c, o)[0], None), x, length=2)[0],)


def twice(f, **_):
    return lambda x, o: (f(f(x, o)[0], o)[0],)


def cond(f, **_):
    """f behind a condition that holds."""
    return lambda x, o: lax.cond(jnp.ravel(x)[0] > -1e30, f, lambda x, o: jax.tree.map(jnp.zeros_like, f(x, o)), x, o)


# How the reference computes the same.
PLAIN = {"none": none, "checkpoint": none, "jit": none, "cond": none, "scan": vmap, "vmap": scan, "carry": twice}
WRAPS = {"none": none, "checkpoint": checkpoint, "jit": jit, "cond": cond, "scan": scan, "vmap": vmap, "carry": carry}
