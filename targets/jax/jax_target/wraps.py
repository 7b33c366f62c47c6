"""What an operation can be wrapped in. Each takes f(x, operands), which gives a tuple, and gives such a function. Stand-alone scripts have these sources."""
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


def goes_on(f, x, o):
    """Whether f can take its own first result."""
    result = jax.eval_shape(f, x, o)[0]
    return (result.shape, result.dtype) == (x.shape, x.dtype)


def carry(f, **_):
    """f(f(x)) as a loop, or f(x) twice in one where f cannot take its result."""
    def run(x, o):
        if goes_on(f, x, o):
            return (lax.scan(lambda c, _: (f(c, o)[0], None), x, length=2)[0],)
        return lax.scan(lambda c, _: (c, f(c, o)), x, length=2)[1]
    return run


def twice(f, **_):
    return lambda x, o: (f(f(x, o)[0], o)[0],) if goes_on(f, x, o) else tuple(jnp.stack([one, one]) for one in f(x, o))


def cond(f, **_):
    """f behind a condition that holds."""
    return lambda x, o: lax.cond(jnp.ravel(x)[0] > -1e30, f, lambda x, o: jax.tree.map(jnp.zeros_like, f(x, o)), x, o)


# How the reference computes the same.
PLAIN = {"none": none, "checkpoint": none, "jit": none, "cond": none, "scan": vmap, "vmap": scan, "carry": twice}
WRAPS = {"none": none, "checkpoint": checkpoint, "jit": jit, "cond": cond, "scan": scan, "vmap": vmap, "carry": carry}
