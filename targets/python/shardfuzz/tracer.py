"""Hooks modules, parameters and the optimizer of a training loop and writes what passes in the format of targets/trace_format.md.

    with shardfuzz.Tracer("trace", model, optimizer):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()

What is recorded, in execution order: param at the beginning of a step; act, the output of a module behind the module's own forward hooks;
act_grad, the gradient of a module's input before its own pre-hooks, of this call of the module alone; main_grad where the loop says
gradients(), else as optimizer.step() finds it; param_delta behind it; scalars that the loop hands over. Of a call's floating-point tensors the k-th has
the subject `name:k` where k > 0.
"""
import contextlib
import fnmatch
from typing import Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from . import rerun, writer
from .anchors import Anchored
from .blame import Recording
from .errors import ShardfuzzError
from .layout import Layout, change_of, local_of
from .names import ROOT, module_names, parameter_names, subject, tensor_name, unwrap
from .places import is_dtensor
from .program import program_in_texts
from .records import Recorder

_active: List["Tracer"] = []


def scalar(name: str, value) -> None:
    """Records a number of the running step (grad_norm, aux_loss) if a trace is being taken, else does nothing."""
    if _active:
        _active[-1].scalar(name, value)


def microbatch(number: int) -> None:
    """Says which microbatch the following forward passes belong to, counted over all data-parallel ranks. Without it each forward pass of the
    model begins the next one. Does nothing when no trace is being taken."""
    if _active:
        _active[-1].microbatch(number)


def gradients() -> None:
    """Says that gradients are complete and reduced, before they are clipped: main_grad is taken here and not when the optimizer steps. Does
    nothing when no trace is being taken."""
    if _active:
        _active[-1].gradients()


def floating(value) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in writer.TYPES


def in_backward() -> bool:
    """Whether autograd is running: a forward pass inside is a recomputation."""
    return torch._C._current_graph_task_id() != -1


class State:
    """Reads what a framework keeps of a parameter: where it lies itself, and its gradient in .grad. Frameworks that keep them elsewhere (shards, flat buffers)
    have a subclass. What a method gives is a tensor in the parameter's shape, a DTensor, or one whose place `places` knows; None: this rank has none.
    Every rank asks for the parameters in the same order, so a method may communicate."""

    def value(self, name: str, parameter: torch.nn.Parameter) -> Optional[torch.Tensor]:
        return parameter

    def gradient(self, name: str, parameter: torch.nn.Parameter) -> Optional[torch.Tensor]:
        return parameter.grad


class Tracer:
    """A trace of what runs inside `with`, written when it ends without an exception.

    directory: a trace that is there is replaced as a whole. model: a module, or the parts of one that this rank has (a pipeline's stages), whose modules have
    the names that they have in the model; DistributedDataParallel and other wrappers do not show in names.
    optimizer: one or a sequence; a step ends when each has stepped. An empty sequence: the loop says when it steps, with `update`. batch, batch_dim, mean,
    places, act_grad_scale: see layout.Layout. skip: patterns
    (fnmatch) of subjects that are left out. perturbation: see perturb.py. anchors: see anchors.py; on one rank, each tensor that is recorded is then
    replaced by the candidate's, so that the next module gets what the candidate's did. state: how parameters and gradients are read. quiet: without the
    line on stdout that says where the trace is. operations: records inside `with` what leads to its tensor. at: see layout.Layout. Every rank of
    torch.distributed enters and leaves together. Raises ShardfuzzError."""

    def __init__(self, directory: str, model, optimizer, *, batch=None, batch_dim: int = 0, mean: bool = True, places: Optional[Callable] = None,
                 act_grad_scale: float = 1.0, skip: Sequence[str] = (), perturbation=None, anchors=None, state: Optional[State] = None, quiet: bool = False,
                 operations: Optional[Recording] = None, at: Optional[Tuple[int, int]] = None):
        told = rerun.told() if perturbation is None and anchors is None else {}
        self.directory = told.get("directory", directory)
        self.first_calls: Dict[str, int] = {}  # of modules whose first call has another number than 0
        self._take(model, optimizer)
        self.state = state or State()
        self.layout = Layout(batch, batch_dim, mean, places, act_grad_scale, at)
        self.recorder = Recorder(self.layout)
        self.skip, self.quiet = tuple(skip), quiet
        self.perturbation, self.anchors = told.get("perturbation", perturbation), told.get("anchors", anchors)
        self.operations, self.notes = operations, ""
        if operations is None and rerun.noting()[0]:
            tensor, self.notes = rerun.noting()
            self.operations = Recording(tensor)
        self.handles: list = []
        self.step = -1

    def _take(self, model, optimizer) -> None:
        """Looks at a model and its optimizers."""
        in_parts = isinstance(model, (list, tuple))
        self.parts = [unwrap(part) for part in (model if in_parts else [model])]
        self.modules = {name: module for part in self.parts for name, module in module_names(part).items() if name != ROOT or not in_parts}
        self.part_of = {name: number for number, part in enumerate(self.parts) for name in module_names(part)}
        self.parameters = parameter_names(*self.parts)
        self.optimizers = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
        for one in self.optimizers:
            if not hasattr(one, "register_step_pre_hook"):
                raise ShardfuzzError(f"{type(one).__name__} has no step hooks: it must be a torch.optim.Optimizer")

    # --- what the loop says ---

    def scalar(self, name: str, value) -> None:
        """A tensor of one element or a number. A loss belongs to its microbatch, other scalars to the step."""
        if not isinstance(value, torch.Tensor):
            value = torch.tensor(float(value), dtype=torch.float64)
        loss = name == "loss"
        self.losses += loss
        self._record(max(self.mbs[-1], 0) if loss else 0, "fwd" if loss else "step", "scalar", name, 0, value.reshape(1))

    def microbatch(self, number: int) -> None:
        self._open_step()
        self.numbered, self.mbs = True, [int(number)] * len(self.parts)

    def gradients(self) -> None:
        self._pause(True)
        self._take_gradients(self.parameters)
        self._pause(False)

    def replace(self, model, optimizer) -> None:
        """Between two steps: goes on with another model and optimizer, for example what a checkpoint was loaded into."""
        self._detach()
        self._take(model, optimizer)
        self._attach()
        self.stepped = {id(one) for one in self.optimizers or [None]}

    @contextlib.contextmanager
    def update(self):
        """Around the update of all parameters, where no torch optimizer makes it."""
        self._open_step()
        self.gradients()
        self._pause(True)
        yield
        self._take_changes(self.parameters)
        self._pause(False)
        self.stepped.add(None)

    # --- with ---

    def _attach(self) -> None:
        for name, module in self.modules.items():
            self.handles.append(module.register_forward_pre_hook(self._before_forward(name), prepend=True, with_kwargs=True))
            self.handles.append(module.register_forward_hook(self._after_forward(name)))
        for number, part in enumerate(self.parts):
            self.handles.append(part.register_forward_pre_hook(self._begin_microbatch(number), prepend=True, with_kwargs=True))
            self.handles.append(part.register_forward_hook(self._watch_backward(number)))
        for optimizer in self.optimizers:
            self.handles.append(optimizer.register_step_pre_hook(self._before_optimizer))
            self.handles.append(optimizer.register_step_post_hook(self._after_optimizer))

    def _detach(self) -> None:
        for handle in self.handles:
            handle.remove()
        self.handles.clear()

    def __enter__(self) -> "Tracer":
        self.layout.marks.start()
        self._attach()
        if self.perturbation is not None:
            self.perturbation.choose_first(self.modules.values())
            self.perturbation.__enter__()
        if self.operations is not None:
            self.operations.__enter__()
        _active.append(self)
        self.stepped = {id(one) for one in self.optimizers or [None]}
        self._open_step()
        return self

    def __exit__(self, kind, value, trace) -> None:
        _active.remove(self)
        if self.operations is not None:
            self.operations.__exit__(kind, value, trace)
        if self.notes and kind is None:
            self.operations.write(self.notes, self.layout.rank, self.layout.groups())
        if self.perturbation is not None:
            self.perturbation.__exit__(kind, value, trace)
        self._detach()
        self.layout.marks.stop()
        if kind is None:
            self.write()

    def write(self) -> None:
        """Writes the trace, when it is complete. Raises ShardfuzzError."""
        writer.write_together(self.directory, self.recorder.entries, self.layout.rank, self.layout.ranks, self.layout.groups(), self.mode)
        if not self.quiet:
            self.say(f"next: {program_in_texts()} check REFERENCE {self.directory}")

    @property
    def mode(self) -> str:
        return "anchored" if self.anchors else "e2e"

    def say(self, more: str) -> None:
        """One line on rank 0's stdout: what was written where, and what to do next."""
        if self.layout.rank == 0:
            steps, ranks = self.step + 1, self.layout.ranks
            print(f"shardfuzz: {self.directory} has {len(self.recorder.records)} tensors of {steps} step{'s'[:steps > 1]} on "
                  f"{ranks} rank{'s'[:ranks > 1]}; {more}", flush=True)

    # --- steps ---

    def _open_step(self) -> None:
        """Begins the next step if all optimizers have stepped: records the parameters that it starts from."""
        if len(self.stepped) < max(len(self.optimizers), 1):
            return
        self.step, self.mbs, self.numbered = self.step + 1, [-1] * len(self.parts), False
        self.backward_mbs = [0] * len(self.parts)
        self.stepped, self.losses, self.taken = set(), 0, set()
        self.calls: Dict[tuple, int] = {}
        self.open_calls: Dict[str, List[Tuple[int, int, str]]] = {}
        self.before = {name: self._record(0, "step", "param", name, 0, self._read("value", name, parameter)) for name, parameter in self.parameters.items()}
        if self.anchors is not None:
            for name, parameter in self.parameters.items():
                self._anchor_in_place("param", name, parameter)
                self.before[name] = None if self.before[name] is None else local_of(parameter)

    def _anchor(self, name: str, tensor: torch.Tensor) -> Optional[torch.Tensor]:
        """What takes the place of a tensor that was recorded under the name; None: nothing does."""
        if self.anchors is None or name not in self.recorder.records:
            return None
        with self.operations.reading() if self.operations is not None else contextlib.nullcontext():
            return self.anchors.of(name, tensor)

    def _anchor_in_place(self, kind: str, name: str, tensor: torch.Tensor) -> None:
        value = self._anchor(tensor_name(self.step, 0, "step", kind, name, 0), tensor)
        if value is not None:
            with torch.no_grad():
                tensor.copy_(value)

    def _read(self, what: str, name: str, parameter: torch.nn.Parameter) -> Optional[torch.Tensor]:
        """The parameter's value or gradient, as its state says."""
        if self.operations is None:
            return getattr(self.state, what)(name, parameter)
        self.operations.know(name, parameter)
        with self.operations.reading():
            return getattr(self.state, what)(name, parameter)

    def _owned(self, optimizer) -> Dict[str, torch.nn.Parameter]:
        mine = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        return {name: parameter for name, parameter in self.parameters.items() if id(parameter) in mine}

    def _take_gradients(self, parameters: Dict[str, torch.nn.Parameter]) -> None:
        for name, parameter in parameters.items():
            gradient = self._read("gradient", name, parameter) if name not in self.taken else None
            if gradient is not None:
                self.taken.add(name)
                self._record(0, "step", "main_grad", name, 0, gradient)
                self._anchor_in_place("main_grad", name, gradient)

    def _before_optimizer(self, optimizer, *_) -> None:
        self._pause(True)
        self._take_gradients(self._owned(optimizer))

    def _take_changes(self, parameters: Dict[str, torch.nn.Parameter]) -> None:
        for name, parameter in parameters.items():
            if self.perturbation is not None:
                self.perturbation.store(parameter)
            before, after = self.before[name], self._read("value", name, parameter)
            if before is not None:
                self._record(0, "step", "param_delta", name, 0, change_of(after, before), place_of=after)

    def _after_optimizer(self, optimizer, *_) -> None:
        self._take_changes(self._owned(optimizer))
        self._pause(False)
        self.stepped.add(id(optimizer))

    # --- modules ---

    def _begin_microbatch(self, part: int):
        def hook(*_):
            self._open_step()
            if not in_backward() and not self.numbered:
                self.mbs[part] += 1
        return hook

    def _watch_backward(self, part: int):
        """Notes whose backward pass begins, by its output's gradient: what is recomputed belongs to that microbatch, not to the last one forward."""
        def hook(module, args, output):
            mb = max(self.mbs[part], 0)

            def begin(_, mb=mb):
                self.backward_mbs[part] = mb
            for leaf in tree_flatten(output)[0]:
                if floating(leaf) and leaf.requires_grad:
                    leaf.register_hook(begin)
        return hook

    def _before_forward(self, name: str):
        part = self.part_of[name]

        def hook(module, args, kwargs):
            self._pause(True)
            self._open_step()
            direction = "recompute" if in_backward() else "fwd"
            mb = self.backward_mbs[part] if direction == "recompute" else max(self.mbs[part], 0)
            call = self.calls.get((mb, direction, name), self.first_calls.get(name, 0))
            self.calls[mb, direction, name] = call + 1
            self.open_calls.setdefault(name, []).append((mb, call, direction))
            changed = self._watch_inputs(module, name, mb, call, (args, kwargs)) if torch.is_grad_enabled() else None
            self._pause(False)
            return changed
        return hook

    def _watch_inputs(self, module, name: str, mb: int, call: int, inputs):
        """The inputs with aliases in place of tensors that need gradients: an alias's gradient is this call's alone. A module that works in place
        gets the tensor itself: a view that is overwritten has no gradient of what it was."""
        args, kwargs = inputs
        plain = not kwargs and all(isinstance(one, torch.Tensor) for one in args)  # most modules': nothing to take apart
        leaves, form = (list(args), None) if plain else tree_flatten(inputs)
        aliases: Dict[int, torch.Tensor] = {}
        number, step = -1, self.step
        for i, leaf in enumerate(leaves):
            if not floating(leaf) or id(leaf) in aliases:
                leaves[i] = aliases.get(id(leaf), leaf)
                continue
            number += 1
            if not leaf.requires_grad or isinstance(leaf, torch.nn.Parameter):
                continue
            alias = leaf if getattr(module, "inplace", False) is True else leaf.view_as(leaf)
            mark = None if self.layout.ranks == 1 or is_dtensor(leaf) else self.layout.marks.of(leaf)
            alias.register_hook(self._take_gradient(step, mb, subject(name, number), call, mark))
            aliases[id(leaf)] = leaves[i] = alias
        if not aliases:
            return None
        return (tuple(leaves), kwargs) if plain else tree_unflatten(leaves, form)

    def _take_gradient(self, step: int, mb: int, name: str, call: int, mark):
        def hook(gradient):
            self._pause(True)
            full_name = tensor_name(step, mb, "bwd", "act_grad", name, call)
            is_part = full_name in self.recorder.records  # of a gradient that comes in parts: the first has brought all
            self._record(mb, "bwd", "act_grad", name, call, gradient, mark, step=step)
            anchor = self._anchor(full_name, gradient)
            self._pause(False)
            return anchor if anchor is None or not is_part else torch.zeros_like(anchor)
        return hook

    def _after_forward(self, name: str):
        def hook(module, args, output):
            mb, call, direction = self.open_calls[name].pop()
            if self.perturbation is not None:
                output = self.perturbation.output(module, (self.step, mb, call), output)
            self._pause(True)
            leaves, form = ([output], None) if isinstance(output, torch.Tensor) else tree_flatten(output)
            places = [i for i, leaf in enumerate(leaves) if floating(leaf)]
            if direction == "recompute" and self.calls.get((mb, "fwd", name), 0) > 1:
                places = []  # of a module's several calls the last one is recomputed first, or not: nothing says which one this is
            for number, i in enumerate(places):
                self._record(mb, direction, "act", subject(name, number), call, leaves[i])
                # What is recomputed was made of the first pass's tensors, and is made of them again.
                anchor = self._anchor(tensor_name(self.step, mb, "fwd", "act", subject(name, number), call), leaves[i])
                leaves[i] = leaves[i] if anchor is None else Anchored.apply(leaves[i], lambda value=anchor: value)
            self._pause(False)
            if self.anchors is not None:
                return leaves[0] if form is None else tree_unflatten(leaves, form)
            return output if self.perturbation is not None else None
        return hook

    def _pause(self, paused: bool) -> None:
        if self.perturbation is not None:
            self.perturbation.paused = paused

    def _record(self, mb, direction, kind, name, call, tensor, mark=None, place_of=None, step=None) -> Optional[torch.Tensor]:
        if tensor is None or any(fnmatch.fnmatch(name, pattern) for pattern in self.skip):
            return None
        full_name = tensor_name(self.step if step is None else step, mb, direction, kind, name, call)
        if self.operations is not None:
            self.operations.passes(full_name, tensor)
        return self.recorder.add(full_name, kind, tensor, mark, place_of)
