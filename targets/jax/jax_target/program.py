"""A case as a chain of operations: one compiled program on a mesh of devices, or operation by operation on one device, from arrays that the candidate had."""
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardfuzz import chains
from shardfuzz.chains import INPUT, act, gradient_of
from shardfuzz.chains.limited import line_of
from shardfuzz.worker import Refused

from . import noise, operands
from .fields import FREE
from .operations import MANUAL, OPERATIONS, STEPS, picks
from .ranks import is_even
from .wraps import PLAIN, WRAPS

ELEMENTS_MAX = 1 << 16
_compiled = {name: compile(text, name, "eval") for name, text in OPERATIONS.items()}


def c3(x):
    return x.reshape(operands.seen_as(3, x.shape))


def c4(x):
    return x.reshape(operands.seen_as(4, x.shape))


def _named(code):
    """The names that an expression uses, also within its lambdas."""
    return set(code.co_names).union(*(_named(one) for one in code.co_consts if hasattr(one, "co_names")))


class Operation:
    """One operation of the chain. name: as traces have it."""

    def __init__(self, case, number):
        fields = case["op"][str(number)]
        self.kind, self.number, self.seed = fields["name"], number, case["seed"]
        self.dim, self.k, self.keepdim, self.other, self.wrap = (fields[part] for part in ("dim", "k", "keepdim", "other", "wrap"))
        self.name = chains.name_of(number, self.kind)


def place_of(case, operation):
    """Where its argument is put: an axis over which vmap goes cuts nothing within."""
    place = case["op"][str(operation.number)]["place"]
    return {**place, "tp": "R"} if operation.wrap == "vmap" and case["vmap"]["spmd_axis_name"] and place["tp"] != FREE else place


def is_by_hand(case, step):
    """Whether the mesh runs the operation by hand: shard_map takes even parts alone."""
    return step.operation.kind in MANUAL and bool(step.part) and step.part[step.d] % case["layout"]["tp"] == 0


def is_float(one):
    return jnp.issubdtype(one.dtype, jnp.floating)


class Step:
    """An operation for an argument of a shape and type. operands: {name: whole array}. results: shapes and types. Raises what JAX raises, and Refused."""

    def __init__(self, operation, shape, dtype):
        self.operation, self.shape, self.dtype = operation, tuple(shape), np.dtype(dtype)
        self.part = self.shape[1:] if operation.wrap in ("scan", "vmap") else self.shape    # what the expression sees
        self.d = operation.dim % len(self.part) if self.part else 0
        if not self.part and "reduce_window" in OPERATIONS[operation.kind]:
            raise Refused(f"{operation.kind}: XLA aborts over the gradient of a window without dimensions, also on one device")
        key = f"{operation.seed}.{operation.number}"
        wanted = sorted(_named(_compiled[operation.kind]) & operands.NAMES)
        kind = "float64" if self.dtype == np.float64 else "float32"
        self.operands = {name: operands.operand(name, key, self.part, kind, self.d, operation.other) for name in wanted}
        self.operands = {name: one.astype(self.dtype) if is_float(one) else one for name, one in self.operands.items()}
        self.key = (operation.kind, operation.wrap, operation.k, operation.keepdim, operation.dim, operation.other, self.shape, str(self.dtype))
        self.results = jax.eval_shape(self.plain(), jax.ShapeDtypeStruct(self.shape, self.dtype), self.operands)
        if not self.results:
            raise Refused(f"{operation.kind}: no result")
        for one in self.results:
            if not 0 < math.prod(one.shape) <= ELEMENTS_MAX or len(one.shape) > 8 or jnp.issubdtype(one.dtype, jnp.complexfloating):
                raise Refused(f"{operation.kind}: a result of shape {one.shape} and type {one.dtype}")
        self.is_smooth = operation.kind not in STEPS and not picks(operation.kind)

    def inner(self, x, given):
        """The expression's results."""
        operation = self.operation
        result = eval(_compiled[operation.kind], {"jax": jax, "jnp": jnp, "lax": lax, "np": np, "c3": c3, "c4": c4, "x": x, "d": self.d, "k": operation.k,
                                                  "keep": operation.keepdim, "n": x.shape[self.d] if x.ndim else 1, **given})
        return tuple(one for one in (result if isinstance(result, (tuple, list)) else [result]) if hasattr(one, "dtype"))

    def plain(self):
        return PLAIN[self.operation.wrap](self.inner)

    def sharded(self, ranks, case):
        """The same on a mesh."""
        operation = self.operation
        of = functools.partial(ranks.by_hand, self, case) if is_by_hand(case, self) else self.inner
        wrap = functools.partial(WRAPS[operation.wrap], spmd_axis_name="tp" if case["vmap"]["spmd_axis_name"] else None)
        return wrap(lambda x, given: of(ranks.constrained(x, place_of(case, operation), case), given))


def continued(case, result):
    """What the next operation gets: numbers, also where the last one gave truth values or indices."""
    return result if is_float(result) else result.astype(case["dtype"])


def plan(case):
    """(the chain's first array, [Step]). Raises Refused for what JAX refuses with an error."""
    shape, dtype, steps = [case["shape"][str(d)] for d in range(case["shape"]["dims"])], case["dtype"], []
    x = operands.first(f"{case['seed']}.x", shape, dtype)
    try:
        for operation in chains.operations_of(case, Operation):
            if picks(operation.kind) and operation.wrap == "carry":
                raise Refused(f"{operation.kind}: equal elements in the second round")
            step = Step(operation, shape, dtype)
            steps.append(step)
            shape, dtype = step.results[0].shape, step.results[0].dtype if is_float(step.results[0]) else case["dtype"]
    except Refused:
        raise
    except Exception as error:  # noqa: BLE001
        raise Refused(f"no operation: {line_of(error)}") from None
    return x, steps


def last_gradients(case, step):
    """{place: logical gradient} of the chain's last results."""
    return {place: operands.first(f"{case['seed']}.g{place}", one.shape, "float64").astype(one.dtype)
            for place, one in enumerate(step.results) if is_float(one)}


def pulled(function, x, given):
    """(results, pull): pull({place: gradient of a result}) gives {"": gradient of x, name: gradient of an operand}."""
    smooth = {"": x, **{name: one for name, one in given.items() if is_float(one)}}
    kinds = []

    def of(smooth):
        results = function(smooth[""], {**given, **{name: one for name, one in smooth.items() if name}})
        kinds[:] = [is_float(one) for one in results]
        return [one for one in results if is_float(one)], [one for one in results if not is_float(one)]
    floats, back, others = jax.vjp(of, smooth, has_aux=True)
    places = [place for place, kind in enumerate(kinds) if kind]
    left, right = iter(floats), iter(others)
    results = tuple(next(left) if kind else next(right) for kind in kinds)
    return results, lambda gradients: back([gradients[place] if place in gradients else jnp.zeros_like(results[place]) for place in places])[0]


def backwards(steps, given, pull, anchored=lambda name, gradient: gradient):
    """[(name, gradient)] of the arguments of all operations, in the order of the chain. pull(step, {place: gradient}): as in pulled."""
    found = []
    for step in reversed(steps):
        given = {place: gradient for place, gradient in given.items() if is_float(step.results[place])}
        if not given:
            break
        made = pull(step, given)
        found = [(gradient_of(step.operation, name), made[name]) for name in ["", *sorted(name for name in made if name)]] + found
        given = {0: anchored(*found[0])}
    return found


def run_candidate(case, ranks):
    """[(name, array)]: what the chain makes on the mesh, in one compiled program, forwards and backwards. Raises what JAX raises."""
    first, steps = plan(case)
    x = ranks.put(first, case["x"], case)
    given = [{name: ranks.put(one, case["y"], case) for name, one in step.operands.items()} for step in steps]
    last = {place: ranks.put(one, {}, case) for place, one in last_gradients(case, steps[-1]).items()}
    found, names = [(INPUT, ranks.pieces(x))], []

    def program(x, given, last):
        made, back = [], {}
        x = ranks.constrained(x, case["x"], case)
        given = [{name: one if is_even(case, case["y"], one.shape) else ranks.constrained(one, case["y"], case) for name, one in of.items()} for of in given]
        for step, of in zip(steps, given):
            function = step.sharded(ranks, case)
            results, back[step] = pulled(function, x, of) if case["backward"] else (function(x, of), None)
            made += [(act(step.operation, place), one) for place, one in enumerate(results)]
            x = continued(case, results[0])
            if x is not results[0]:
                made.append((act(step.operation, 0, "to"), x))
        if case["backward"]:
            made += backwards(steps, last, lambda step, gradients: back[step](gradients))
        names[:] = [name for name, _ in made]
        return [one for _, one in made]
    compiled = jax.jit(program, donate_argnums=(0,) if case["jit"]["donate"] else (), compiler_options={"xla_backend_optimization_level": 0})
    jax.config.update("jax_use_shardy_partitioner", case["jit"]["partitioner"] == "shardy")
    made = jax.block_until_ready(compiled(x, given, last))
    return found + [(name, ranks.pieces(one)) for name, one in zip(names, made)]


@functools.lru_cache(maxsize=64)
def _functions(key):
    """A place for the compiled functions of a step."""
    return {}


def forget():
    _functions.cache_clear()


def _call(step, perturb, direction, *arguments):
    """NumPy results of the step's plain function ("forward"), or its gradients ("backward"). perturb: (numbers, offset), or None."""
    functions, plain = _functions(step.key), step.plain()
    key = direction, perturb is not None, tuple(sorted(arguments[2])) if direction == "backward" else ()
    if key not in functions:
        function = plain if direction == "forward" else lambda x, given, gradients: pulled(plain, x, given)[1](gradients)
        functions[key] = noise.perturbed(function) if perturb else jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})
    return jax.tree.map(np.asarray, functions[key](*(perturb or ()), *arguments))


def run_reference(case, anchored, draw=None):
    """[(name, NumPy array)] of one device. anchored(name, array): the candidate's array of that name, or the array where the candidate has none. draw: numbers
    of noise.pool() for a perturbed run. Raises what JAX raises, and Refused."""
    x, steps = plan(case)
    moved = x if draw is None else x + x * (2 * np.finfo(x.dtype).eps * draw[:x.size].reshape(x.shape)).astype(x.dtype)
    found, arguments = [(INPUT, moved)], {}
    for number, step in enumerate(steps):
        if picks(step.operation.kind) and np.unique(x).size < x.size:
            raise Refused(f"{step.operation.kind}: equal elements, among which it may pick any")
        arguments[step] = x
        results = _call(step, None if draw is None else (draw, 7 * number), "forward", x, step.operands)
        found += [(act(step.operation, place), one) for place, one in enumerate(results)]
        x = continued(case, results[0])
        if x is not results[0]:
            found.append((act(step.operation, 0, "to"), x))
        x = anchored(act(step.operation, 0, "" if x is results[0] else "to"), x)
    if case["backward"]:
        found += backwards(steps, last_gradients(case, steps[-1]), anchored=anchored, pull=lambda step, gradients: _call(
            step, None if draw is None else (draw, 7919 * step.operation.number), "backward", arguments[step], step.operands, gradients))
    for name, one in found:
        if not np.isfinite(one).all():
            raise Refused(f"{name}: not finite")
    return found
