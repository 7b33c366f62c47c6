"""A case as a chain of operations: run on DTensors, or operation by operation on plain tensors that the candidate had."""
import contextlib
import copy

import torch
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import loss_parallel

from shardfuzz import chains
from shardfuzz.chains import INPUT, NONE, act, gradient_of
from shardfuzz.chains.exact import values
from shardfuzz.worker import Refused

from .fields import ARGUMENTS, AXES
from .operands import operand
from .operations import OPERATIONS, STEPS, WAYS, is_parallel_loss, picks

_compiled = {name: compile(text, name, "eval") for name, text in OPERATIONS.items()}
ELEMENTS_MAX = 1 << 16
SHAPE = 9  # the numbers that say a shape; no operation makes more dimensions


def changed(x, place, value):
    """x after x[place] = value."""
    x[place] = value
    return x


_PLAIN = dict.fromkeys(WAYS, lambda x: x)


class Operation:
    """One operation of the chain. name: as traces have it, "2.cumsum"; a "~" of the table is left out."""

    def __init__(self, case, number):
        fields = case["op"][str(number)]
        self.kind, self.number, self.seed = fields["name"], number, case["seed"]
        self.dim, self.k, self.keepdim, self.other = fields["dim"], fields["k"], fields["keepdim"], fields["other"]
        self.name = chains.name_of(number, self.kind)

    def dim_of(self, x):
        """The dimension as the expression gets it: from the end where the case says so."""
        return self.dim if -x.ndim <= self.dim < x.ndim else self.dim % x.ndim if x.ndim else 0

    def before(self, case):
        """The same operation with another value of an argument, which is called before this one; None: there is no such call."""
        argument = case["before"]["call_with_other"]
        if argument == NONE:
            return None
        other, choices = copy.copy(self), ARGUMENTS[argument]
        setattr(other, argument, choices[(choices.index(getattr(self, argument)) + 1) % len(choices)])
        other.name += ".before"
        return other

    def run(self, x, make, ways=_PLAIN):
        """(resulting tensors, {name: operand}). make(name, whole): the operand as the expression gets it; whole() gives the logical tensor. ways: the functions
        that do something to DTensors alone. Raises what torch raises."""
        arguments = _Arguments(self, x, make)
        result = eval(_compiled[self.kind], {"torch": torch, "F": F, "changed": changed, **ways}, arguments)
        found = [one for one in (result if isinstance(result, (tuple, list)) else [result]) if isinstance(one, torch.Tensor)]
        for one in found:
            if one.numel() == 0 or one.numel() > ELEMENTS_MAX:
                raise Refused(f"{self.kind}: a result of {one.numel()} elements")
        return found, {name: value for name, value in arguments.items() if name in arguments.made}


class _Arguments(dict):
    """The names of an expression; operands are made when they are named."""

    def __init__(self, operation, x, make):
        super().__init__(x=x, d=operation.dim_of(x), k=operation.k, keep=operation.keepdim)
        self.operation, self.of, self.make, self.made = operation, x, make, []

    def __missing__(self, name):
        self.made.append(name)
        self[name] = self.make(f"{self.operation.name}.{name}",
                               lambda: operand(name, f"{self.operation.seed}.{self.operation.number}", self.of, self["d"], self.operation.other))
        return self[name]


def operations_of(case):
    return chains.operations_of(case, Operation)


def first_tensor(case):
    shape = [case["shape"][str(d)] for d in range(case["shape"]["dims"])]
    return values(f"{case['seed']}.x", shape, getattr(torch, case["dtype"]))


def gradient_for(case, operation, place, tensor):
    """The logical gradient of one of the chain's last results."""
    return values(f"{case['seed']}.g{place}", list(tensor.shape), tensor.dtype)


def is_differentiable(tensor):
    return tensor.requires_grad and tensor.dtype.is_floating_point


def shape_of(operation, place, one):
    """(name, tensor): the number of dimensions that a result says it has, and its sizes, filled up with zeros. A DTensor may claim other ones than its values
    have."""
    said = [one.ndim, *one.shape]
    return f"s0/mb0/fwd/scalar/{operation.name}.shape{f':{place}' if place else ''}/0", torch.tensor(said + (SHAPE - len(said)) * [0])


def run_candidate(case, ranks):
    """[(name, tensor)]: what the chain makes on the ranks' DTensors, forwards and backwards. Raises what torch raises."""
    with loss_parallel() if any(is_parallel_loss(one.kind) for one in operations_of(case)) else contextlib.nullcontext():
        return _run_candidate(case, ranks)


def _run_candidate(case, ranks):
    placements = {tensor: [case[tensor][axis] for axis in AXES] for tensor in ("x", "y")}
    grads, found, ways = case["backward"], [], ranks.ways(placements["y"])

    def make(name, whole):
        with ranks.outside():
            full = whole()
        one = ranks.make(full, ranks.placements(placements["x" if name == "x" else "y"], full.ndim), f"{case['seed']}.{name}")
        return _leaf(one, grads)
    x = make("x", lambda: first_tensor(case))
    steps, inputs = operations_of(case), []
    found.append((INPUT, x.detach()))
    for operation in steps:
        call_before(case, operation, x, make, ways)
        results, operands = operation.run(x, make, ways)
        inputs += [(gradient_of(operation), x)] + [(gradient_of(operation, name), one) for name, one in operands.items()]
        found += [(act(operation, place), one.detach()) for place, one in enumerate(results)]
        with ranks.outside():
            found += [shape_of(operation, place, one) for place, one in enumerate(results)]
        x = _continued(case, results[0])
        if x is not results[0]:
            found.append((act(operation, 0, "to"), x.detach()))
    if grads:
        last = [(place, one) for place, one in enumerate(results) if is_differentiable(one)]
        inputs = [(name, one) for name, one in inputs if is_differentiable(one)]
        if last and inputs:
            given = [_gradient(ranks, one, lambda: gradient_for(case, operation, place, one)) for place, one in last]
            made = torch.autograd.grad([one for _, one in last], [one for _, one in inputs], given, allow_unused=True)
            found += [(name, gradient) for (name, _), gradient in zip(inputs, made) if gradient is not None]
    return found


def call_before(case, operation, x, make, ways):
    """Calls the operation with another argument, and its backward; what that gives, also an error, does not count."""
    other = operation.before(case)
    if other is None:
        return
    with contextlib.suppress(Exception):
        x = x.detach().requires_grad_(x.requires_grad)
        results, operands = other.run(x, make, ways)
        last = [one for one in results if is_differentiable(one)]
        inputs = [one for one in (x, *operands.values()) if is_differentiable(one)]
        if last and inputs:
            torch.autograd.grad(last, inputs, [torch.ones_like(one) for one in last], allow_unused=True)


def _continued(case, result):
    """What the next operation gets: numbers, also where the last one gave truth values or indices."""
    return result if result.dtype.is_floating_point else result.to(getattr(torch, case["dtype"]))


def _gradient(ranks, of, whole):
    """A gradient has its tensor's placements, and is whole where these are other than cuts."""
    with ranks.outside():
        full = whole()
    if not isinstance(of, DTensor):
        return full
    plain = all(type(placement) in (Shard, Replicate) for placement in of.placements)
    return ranks.make(full, list(of.placements) if plain else [Replicate()] * len(of.placements), "g")


def run_reference(case, anchored, moved):
    """[(name, tensor)] of plain tensors. anchored(name, tensor): the candidate's tensor of that name, or the tensor where the candidate has none. moved(tensor):
    the tensor that an operation gets; a draw changes it by a rounding, since nothing can change the roundings inside a fused operation."""
    x, grads, done = first_tensor(case), case["backward"], []
    found = [(INPUT, moved(x))]
    for operation in operations_of(case):
        is_smooth = operation.kind not in STEPS and not picks(operation.kind)
        x = _leaf(moved(x.detach()) if is_smooth else x.detach(), grads and (not done or is_differentiable(done[-1][2][0])))
        if picks(operation.kind) and torch.unique(x).numel() < x.numel():
            raise Refused(f"{operation.kind}: equal elements, among which it may pick any")
        results, operands = operation.run(x, lambda name, whole: _leaf(moved(whole()) if is_smooth else whole(), grads))
        found += [(act(operation, place), one.detach()) for place, one in enumerate(results)]
        found += [shape_of(operation, place, one) for place, one in enumerate(results)]
        done.append((operation, x, results, operands))
        result = results[0].detach()
        x = _continued(case, result)
        if x is not result:
            found.append((act(operation, 0, "to"), x))
        x = anchored(act(operation, 0, "" if x is result else "to"), x)
    found += _backwards(case, done, anchored, moved) if grads else []
    refuse_what_is_not_finite(found)
    return found


def _leaf(tensor, grads):
    return tensor.requires_grad_(grads and tensor.dtype.is_floating_point)


def _backwards(case, done, anchored, moved):
    """Gradients of each operation, computed from the candidate's gradient of the operation's result."""
    found, given = [], None
    for operation, x, results, operands in reversed(done):
        inputs = [(gradient_of(operation), x)] + [(gradient_of(operation, name), one) for name, one in operands.items()]
        inputs = [(name, one) for name, one in inputs if is_differentiable(one)]
        outputs = [(place, one) for place, one in enumerate(results) if is_differentiable(one)]
        if given is None:
            given = {place: gradient_for(case, operation, place, one) for place, one in outputs}
        outputs = [(place, one) for place, one in outputs if place in given]
        if not inputs or not outputs:
            return found
        made = torch.autograd.grad([one for _, one in outputs], [one for _, one in inputs], [moved(given[place]) for place, _ in outputs],
                                   allow_unused=True)
        here = [(name, gradient) for (name, _), gradient in zip(inputs, made) if gradient is not None]
        found = here + found
        first = dict(here).get(gradient_of(operation))
        if first is None:
            return found
        given = {0: anchored(gradient_of(operation), first)}
    return found


def recordable(tensor):
    """A tensor as a trace can have it; None where it holds no numbers."""
    if tensor.dtype.is_complex:
        return None
    if tensor._is_zerotensor():
        return torch.zeros(tensor.shape, dtype=tensor.dtype)
    return tensor if tensor.dtype.is_floating_point else tensor.double()


def refuse_what_is_not_finite(found):
    """Plain tensors that give NaN or infinities do not say what a DTensor should give."""
    for name, tensor in found:
        if not bool(torch.isfinite(tensor).all()):
            raise Refused(f"{name}: not finite")
