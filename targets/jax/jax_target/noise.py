"""Perturbed runs of an operation: its primitives one by one, each with errors as large as rounding may make them.

What a primitive stores is multiplied by 1 + 2 h v, v uniform in (-1, 1), h the machine epsilon of its type. What adds up m numbers gets arguments times
1 + sqrt(m) h v, and its result is multiplied by 1 + (2 + sqrt(m) / 2) h v: that far another order moves a sum of terms that cancel, and one of terms that do
not, since the roundings of m partial sums add up like a random walk. Primitives that only move data are exact.
"""
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

POOL = 1 << 17                 # numbers in (-1, 1), of which each array takes a piece that begins at random
MOVES = frozenset("""reshape transpose broadcast_in_dim slice dynamic_slice dynamic_update_slice gather concatenate pad rev select_n squeeze expand_dims
copy iota sort argmax argmin top_k approx_top_k stop_gradient optimization_barrier neg abs sign max min clamp reduce_max reduce_min cummax cummin
reduce_window_max reduce_window_min split select_and_gather_add select_and_scatter_add scatter reduce_precision bitcast_convert_type real imag complex conj
is_finite floor ceil round nextafter copysign device_put reduce_or reduce_and""".split())
SUMS = frozenset("""reduce_sum reduce_prod dot_general conv_general_dilated cumsum cumprod cumlogsumexp reduce_window_sum reduce_window add_any scatter-add
scatter-mul fft triangular_solve cholesky lu qr householder_product geqrf svd eigh tridiagonal_solve custom_linear_solve reduce""".split())
LOOPS = ("scan", "while", "cond")


def pool(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, POOL)


class _Noise:
    """Within a trace. offset: a traced whole number."""

    def __init__(self, numbers, offset):
        self.numbers, self.offset, self.count = numbers, offset, 0

    def __call__(self, value, roundings):
        dtype = jnp.result_type(value)
        if not jnp.issubdtype(dtype, jnp.inexact) or not np.size(value):
            return value
        if jnp.issubdtype(dtype, jnp.complexfloating):
            return lax.complex(self(value.real, roundings), self(value.imag, roundings))
        self.count += 1
        size = min(np.size(value), POOL // 2)
        piece = lax.dynamic_slice_in_dim(self.numbers, (self.offset + 7919 * self.count) % (POOL // 2), size)
        piece = jnp.resize(piece, np.shape(value)).astype(dtype)
        moved = value + value * piece * np.asarray(roundings * jnp.finfo(dtype).eps, dtype)
        return jnp.where(jnp.isfinite(moved), moved, value)


def _terms(equation) -> int:
    """How many numbers one of the results is a sum of, or more."""
    shapes = [variable.aval.shape for variable in equation.invars]
    if equation.primitive.name == "dot_general":
        (over, _), _ = equation.params["dimension_numbers"]
        return math.prod(shapes[0][d] for d in over)
    if equation.primitive.name == "conv_general_dilated":
        return math.prod(shapes[1])
    if "axes" in equation.params and equation.primitive.name.startswith("reduce"):
        return math.prod(shapes[0][d] for d in equation.params["axes"])
    return max([max(shape, default=1) for shape in shapes], default=1)


def _inner(equation):
    """(jaxpr, constants) of a primitive that only calls others; None for one that computes."""
    if equation.primitive.name in SUMS:
        return None
    for key in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        inner = equation.params.get(key)
        if inner is not None:
            return (inner.jaxpr, inner.consts) if hasattr(inner, "consts") else (inner, ())
    return None


def _loop(equation, given, noise):
    """The results of a primitive that runs others several times, or one of several. All rounds have the same errors."""
    of = equation.params

    def inner(closed, arguments):
        return _run(closed.jaxpr, closed.consts, arguments, noise)
    if equation.primitive.name == "cond":
        return lax.switch(given[0], [lambda *arguments, branch=branch: inner(branch, arguments) for branch in of["branches"]], *given[1:])
    if equation.primitive.name == "while":
        first, second = of["cond_nconsts"], of["cond_nconsts"] + of["body_nconsts"]
        tests, constants, state = given[:first], given[first:second], given[second:]
        return lax.while_loop(lambda state: inner(of["cond_jaxpr"], [*tests, *state])[0], lambda state: inner(of["body_jaxpr"], [*constants, *state]), state)
    first, second = of["num_consts"], of["num_consts"] + of["num_carry"]
    constants, carry, parts = given[:first], given[first:second], given[second:]

    def body(carry, parts):
        made = inner(of["jaxpr"], [*constants, *carry, *parts])
        return made[:len(carry)], made[len(carry):]
    carry, made = lax.scan(body, carry, parts, length=of["length"], reverse=of["reverse"])
    return [*carry, *made]


def _run(jaxpr, constants, arguments, noise):
    known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *arguments]))
    for equation in jaxpr.eqns:
        given = [variable.val if hasattr(variable, "val") else known[variable] for variable in equation.invars]
        inner = None if equation.primitive.name in LOOPS else _inner(equation)
        if equation.primitive.name in LOOPS:
            made = _loop(equation, given, noise)
        elif inner is not None:
            made = _run(*inner, given, noise)
        else:
            name = equation.primitive.name
            spread = math.sqrt(_terms(equation)) if name in SUMS else 0
            if spread:
                given = [noise(one, max(1, spread)) for one in given]
            made = equation.primitive.bind(*given, **equation.primitive.get_bind_params(equation.params))
            made = list(made) if equation.primitive.multiple_results else [made]
            made = made if name in MOVES else [noise(one, 2 + spread / 2) for one in made]
        known.update(zip(equation.outvars, made))
    return [variable.val if hasattr(variable, "val") else known[variable] for variable in jaxpr.outvars]


def perturbed(function):
    """A compiled function of (numbers of pool(), offset, *arguments of the function, as pytrees): what the function gives, with errors."""
    def run(numbers, offset, *arguments):
        closed, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
        made = _run(closed.jaxpr, closed.consts, jax.tree.leaves(arguments), _Noise(numbers, offset))
        return jax.tree.unflatten(jax.tree.structure(shape), made)
    return jax.jit(run)
