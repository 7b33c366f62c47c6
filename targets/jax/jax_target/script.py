"""A stand-alone program for a finding: jax and NumPy alone, the wrong number beside the right one."""
import inspect

import jax
import numpy as np

from shardfuzz.chains import INPUT, act, gradient_of
from shardfuzz.chains.exact import STEP

from . import wraps
from .fields import AXES, FREE
from .operations import MANUAL, OPERATIONS
from .program import is_by_hand, is_float, last_gradients, place_of, plan
from .ranks import device_order, is_even, spec_of

_TEMPLATE = '''"""Found by shardfuzz: {summary}

Run it with python. It needs jax and NumPy alone; jax {version} shows the bug. Exit code 1: the sharded program's value is not that of one device.
"""
import os
import sys

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count={count}"

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_use_shardy_partitioner", {shardy})
MESH = Mesh(np.array(jax.devices())[np.array({order})].reshape({sizes}), {axes})


def tensors_of(result):
    return tuple(one for one in (result if isinstance(result, (tuple, list)) else [result]) if hasattr(one, "dtype"))


def on_mesh(x, spec):
    return lax.with_sharding_constraint(x, NamedSharding(MESH, spec))


def as_it_is(x, spec):
    return x


def put(x, spec):
    return jax.device_put(x, NamedSharding(MESH, spec))
{helpers}

{operations}


def program(x, operands, gradients, at):
    """at: on_mesh for a sharded program, as_it_is for one device. Returns what is wrong, and the rest, which the compiler must not leave out."""
{body}


x = {x}
operands = [{operands}]
gradients = {gradients}
want, _ = program(x, operands, gradients, as_it_is)
inputs = put(x, {even}), [{put_operands}], [put(one, P()) for one in gradients]
got, _ = jax.jit(lambda x, operands, gradients: program(x, operands, gradients, on_mesh){donate})(*inputs)
print("{what}; sharding:", got.sharding)
print("sharded:", np.asarray(got), "one device:", np.asarray(want), sep="\\n")
same = got.shape == want.shape and np.allclose(np.asarray(got, np.float64), np.asarray(want, np.float64), rtol=1e-4, atol=1e-6, equal_nan=True)
sys.exit(0 if same else 1)
'''


def _text(array):
    """The array as an expression: floating-point numbers are small multiples of STEP."""
    if not is_float(array):
        return f"np.array({array.tolist()}, np.{'bool_' if array.dtype == bool else array.dtype})"
    steps = np.round(array.astype(np.float64) / STEP).astype(np.int64)
    return f"(np.array({steps.tolist()}) / {round(1 / STEP)}).astype(np.{array.dtype})"


def _spec(case, cuts, dims):
    if cuts["tp"] == FREE:
        return None
    spec = spec_of(case, cuts, dims)
    return "P(" + ", ".join("P.UNCONSTRAINED" if one is jax.sharding.PartitionSpec.UNCONSTRAINED else repr(one) for one in spec) + ")"


def _even(case, cuts, array):
    """Where an array is put before the program begins."""
    return _spec(case, cuts, array.ndim) if is_even(case, cuts, array.shape) else "P()"


def _constraint(case, cuts, dims, name):
    spec = _spec(case, cuts, dims)
    return [f"{name} = at({name}, {spec})"] if spec else []


def _by_hand(case, step):
    _, result, text = MANUAL[step.operation.kind]
    along = tuple("tp" if dim == step.d else None for dim in range(len(step.part)))
    to = {"=": f"P{along!r}", "*": "P()", "+": "P('tp')"}[result]
    axes = {"tp"} if case["shard_map"]["axis_names"] == "tp" else set(_axes(case))
    return ["if at is on_mesh:", "    def local(x):", f"        s, r, ax = {case['layout']['tp']}, lax.axis_index('tp'), 'tp'", f"        return {text}",
            f"    run = jax.shard_map(local, mesh=MESH, in_specs=P{along!r}, out_specs={to}, axis_names={axes!r}, check_vma={case['shard_map']['check_vma']})",
            "    return (run(x),)"]


def _axes(case):
    return AXES[:1 if case["layout"]["dp"] == 1 else 2]


def _operation(case, step):
    """The definition of the operation as a function of (x, o, at)."""
    operation, number = step.operation, step.operation.number
    lines = _constraint(case, place_of(case, operation), len(step.part), "x")
    lines += [f"{name} = o[{name!r}]" for name in step.operands]
    lines.append(f"d, k, keep, n = {step.d}, {operation.k}, {operation.keepdim}, {step.part[step.d] if step.part else 1}")
    lines += _by_hand(case, step) if is_by_hand(case, step) else []
    lines.append(f"return tensors_of({OPERATIONS[operation.kind]})")
    plain, wrapped = wraps.PLAIN[operation.wrap].__name__, wraps.WRAPS[operation.wrap].__name__
    text = [f"def op{number}(x, o, at):", "    def f(x, o):", *("        " + line for line in lines)]
    if plain == wrapped == "none":
        return "\n".join([*text, "    return f(x, o)"])
    axis = ", spmd_axis_name='tp'" if operation.wrap == "vmap" and case["vmap"]["spmd_axis_name"] else ""
    return "\n".join([*text, f"    return ({wrapped}(f{axis}) if at is on_mesh else {plain}(f))(x, o)"])


def _helpers(steps):
    used = {text for step in steps for text in (wraps.PLAIN[step.operation.wrap].__name__, wraps.WRAPS[step.operation.wrap].__name__)} - {"none"}
    used |= {"goes_on"} if used & {"carry", "twice"} else set()
    sources = [inspect.getsource(getattr(wraps, name)) for name in sorted(used)]
    dims = [number for number in (3, 4) if any(f"c{number}(" in OPERATIONS[step.operation.kind] for step in steps)]
    for number in dims:
        sources.append(f"def c{number}(x):\n    return x.reshape([1] * ({number} - x.ndim) + [*x.shape]) if x.ndim < {number} else "
                       f"x.reshape(-1, *x.shape[{1 - number}:])\n")
    return "".join("\n\n" + source.rstrip("\n") + "\n" for source in sources).rstrip("\n")


def _forward(case, steps, first, last):
    """Lines of the program from step `first` to step `last`, and the names of traces as expressions."""
    lines, known = [], {}
    for step in steps[first:last]:
        number = step.operation.number
        lines.append(f"out{number} = op{number}(x, operands[{number - 1}], at)")
        known.update({act(step.operation, place): f"out{number}[{place}]" for place in range(len(step.results))})
        cast = "" if is_float(step.results[0]) else f".astype(np.{case['dtype']})"
        lines.append(f"x = out{number}[0]{cast}")
        known[act(step.operation, 0, "to")] = f"out{number}[0]{cast}"
    return lines, known


def _body(case, steps, wanted):
    """(the lines of the program, a name of the first value that they return). ValueError: the case has no such tensor."""
    gradients = {gradient_of(step.operation, name): (number, name) for number, step in enumerate(steps)
                 for name in ["", *(name for name, one in step.operands.items() if is_float(one))]}
    if wanted not in gradients:
        lines, known = _forward(case, steps, 0, len(steps))
        if wanted not in known:
            raise ValueError(f"{wanted} is no tensor of this case")
        return [*lines, f"return {known[wanted]}, x"], f"{known[wanted]}"
    number, name = gradients[wanted]
    lines, _ = _forward(case, steps, 0, number)
    inner, _ = _forward(case, steps, number, len(steps))
    last = steps[-1].operation.number
    other = f"[{{**operands[{number}], {name!r}: one}}]"
    head = ["def rest(x):"] if not name else ["def rest(one):", f"    here = operands[:{number}] + {other} + operands[{number + 1}:]"]
    inner = inner if not name else [line.replace("operands[", "here[") for line in inner]
    if name:
        lines.append("x0 = x")
        head.append("    x = x0")
    places = [place for place, one in enumerate(steps[-1].results) if is_float(one)]
    lines += [*head, *("    " + line for line in inner), "    return [" + ", ".join(f"out{last}[{place}]" for place in places) + "]"]
    at = "x" if not name else f"operands[{number}][{name!r}]"
    return [*lines, f"results, back = jax.vjp(rest, {at})", "return back(gradients)[0], results"], f"the gradient of {name or 'x'} of operation {number + 1}"


def _put(case, number, step):
    """A step's operands where they lie, as an expression."""
    return "{" + ", ".join(f"{name!r}: put(operands[{number}][{name!r}], {_even(case, case['y'], one)})" for name, one in step.operands.items()) + "}"


def script(case, first):
    """The program that shows the tensor `first` of a complete case. ValueError: the case has no such tensor."""
    x, steps = plan(case)
    if first == INPUT:
        raise ValueError("the input is what it is given")
    body, what = _body(case, steps, first)
    place = [f"x = at(x, {_spec(case, case['x'], x.ndim)})"]
    uneven = [(number, name, one.ndim) for number, step in enumerate(steps) for name, one in step.operands.items() if not is_even(case, case["y"], one.shape)]
    place += ["operands = [dict(one) for one in operands]"] if uneven else []
    place += [f"operands[{number}][{name!r}] = at(operands[{number}][{name!r}], {_spec(case, case['y'], dims)})" for number, name, dims in uneven]
    operands = ",\n            ".join("{" + ", ".join(f"{name!r}: {_text(one)}" for name, one in step.operands.items()) + "}" for step in steps)
    gradients = [_text(one) for one in last_gradients(case, steps[-1]).values()] if "/bwd/" in first else []
    sizes = (case["layout"]["tp"],) if case["layout"]["dp"] == 1 else (case["layout"]["tp"], case["layout"]["dp"])
    parts = {
        "summary": ", then ".join(step.operation.kind.lstrip("~") for step in steps) + " on a mesh, " + what, "what": what, "version": jax.__version__,
        "shardy": case["jit"]["partitioner"] == "shardy", "count": int(np.prod(sizes)), "sizes": sizes, "axes": _axes(case), "order": device_order(case),
        "helpers": _helpers(steps), "operations": "\n\n\n".join(_operation(case, step) for step in steps), "x": _text(x), "operands": operands,
        "body": "\n".join("    " + line for line in [*place, *body]), "gradients": "[" + ", ".join(gradients) + "]", "even": _even(case, case["x"], x),
        "put_operands": ", ".join(_put(case, number, step) for number, step in enumerate(steps)),
        "donate": ", donate_argnums=0" if case["jit"]["donate"] else ""}
    return _TEMPLATE.format(**parts)
