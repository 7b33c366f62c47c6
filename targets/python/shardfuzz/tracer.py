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
import fnmatch
import os
from typing import Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from . import writer
from .anchors import Anchored
from .errors import ShardfuzzError
from .layout import Layout, change_of, local_of
from .names import ROOT, module_names, parameter_names, subject, tensor_name
from .places import is_dtensor
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


class Tracer:
    """A trace of what runs inside `with`, written when it ends without an exception.

    directory: a trace that is there is replaced as a whole. model: a module; DistributedDataParallel and other wrappers do not show in names.
    optimizer: one or a sequence; a step ends when each has stepped. batch, batch_dim, mean, places: see layout.Layout. skip: patterns
    (fnmatch) of subjects that are left out. perturbation: see perturb.py. anchors: see anchors.py; on one rank, each tensor that is recorded is then
    replaced by the candidate's, so that the next module gets what the candidate's did. quiet: without the line on stdout that says where the trace is.
    Every rank of torch.distributed enters and leaves together. Raises ShardfuzzError."""

    def __init__(self, directory: str, model: torch.nn.Module, optimizer, *, batch=None, batch_dim: int = 0, mean: bool = True,
                 places: Optional[Callable] = None, skip: Sequence[str] = (), perturbation=None, anchors=None, quiet: bool = False):
        self.directory = directory
        self.modules = module_names(model)
        self.parameters = parameter_names(model)
        self.optimizers = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
        for one in self.optimizers:
            if not hasattr(one, "register_step_pre_hook"):
                raise ShardfuzzError(f"{type(one).__name__} has no step hooks: it must be a torch.optim.Optimizer")
        self.layout = Layout(batch, batch_dim, mean, places)
        self.recorder = Recorder(self.layout)
        self.skip, self.perturbation, self.anchors, self.quiet = tuple(skip), perturbation, anchors, quiet
        self.handles: list = []
        self.step = -1

    # --- what the loop says ---

    def scalar(self, name: str, value) -> None:
        """A tensor of one element or a number. A loss belongs to its microbatch, other scalars to the step."""
        if not isinstance(value, torch.Tensor):
            value = torch.tensor(float(value), dtype=torch.float64)
        loss = name == "loss"
        self.losses += loss
        self._record(max(self.mb, 0) if loss else 0, "fwd" if loss else "step", "scalar", name, 0, value.reshape(1))

    def microbatch(self, number: int) -> None:
        self._open_step()
        self.numbered, self.mb = True, int(number)

    def gradients(self) -> None:
        self._pause(True)
        self._take_gradients(self.parameters)
        self._pause(False)

    # --- with ---

    def __enter__(self) -> "Tracer":
        self.layout.marks.start()
        for name, module in self.modules.items():
            self.handles.append(module.register_forward_pre_hook(self._before_forward(name), prepend=True, with_kwargs=True))
            self.handles.append(module.register_forward_hook(self._after_forward(name)))
        for optimizer in self.optimizers:
            self.handles.append(optimizer.register_step_pre_hook(self._before_optimizer))
            self.handles.append(optimizer.register_step_post_hook(self._after_optimizer))
        if self.perturbation is not None:
            self.perturbation.choose_first(self.modules.values())
            self.perturbation.__enter__()
        _active.append(self)
        self.stepped = {id(one) for one in self.optimizers}
        self._open_step()
        return self

    def __exit__(self, kind, value, trace) -> None:
        _active.remove(self)
        if self.perturbation is not None:
            self.perturbation.__exit__(kind, value, trace)
        for handle in self.handles:
            handle.remove()
        self.layout.marks.stop()
        if kind is None:
            writer.write_together(self.directory, self.recorder.entries, self.layout.rank, self.layout.ranks, self.layout.groups(),
                                  "anchored" if self.anchors else "e2e")
            if not self.quiet:
                self.say(f"next: {os.environ.get('SHARDFUZZ', 'shardfuzz')} check REFERENCE {self.directory}")

    def say(self, more: str) -> None:
        """One line on rank 0's stdout: what was written where, and what to do next."""
        if self.layout.rank == 0:
            steps, ranks = self.step + 1, self.layout.ranks
            print(f"shardfuzz: {self.directory} has {len(self.recorder.records)} tensors of {steps} step{'s'[:steps > 1]} on "
                  f"{ranks} rank{'s'[:ranks > 1]}; {more}", flush=True)

    # --- steps ---

    def _open_step(self) -> None:
        """Begins the next step if all optimizers have stepped: records the parameters that it starts from."""
        if len(self.stepped) < len(self.optimizers):
            return
        self.step, self.mb, self.numbered = self.step + 1, -1, False
        self.stepped, self.losses, self.taken = set(), 0, set()
        self.calls: Dict[tuple, int] = {}
        self.open_calls: Dict[str, List[Tuple[int, int, str]]] = {}
        self.before = {name: self._record(0, "step", "param", name, 0, parameter) for name, parameter in self.parameters.items()}
        if self.anchors is not None:
            for name, parameter in self.parameters.items():
                self._anchor_in_place("param", name, parameter)
                self.before[name] = None if self.before[name] is None else local_of(parameter)

    def _anchor(self, name: str, tensor: torch.Tensor) -> Optional[torch.Tensor]:
        """What takes the place of a tensor that was recorded under the name; None: nothing does."""
        return None if self.anchors is None or name not in self.recorder.records else self.anchors.of(name, tensor)

    def _anchor_in_place(self, kind: str, name: str, tensor: torch.Tensor) -> None:
        value = self._anchor(tensor_name(self.step, 0, "step", kind, name, 0), tensor)
        if value is not None:
            with torch.no_grad():
                tensor.copy_(value)

    def _owned(self, optimizer) -> Dict[str, torch.nn.Parameter]:
        mine = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        return {name: parameter for name, parameter in self.parameters.items() if id(parameter) in mine}

    def _take_gradients(self, parameters: Dict[str, torch.nn.Parameter]) -> None:
        for name, parameter in parameters.items():
            if parameter.grad is not None and name not in self.taken:
                self.taken.add(name)
                self._record(0, "step", "main_grad", name, 0, parameter.grad)
                self._anchor_in_place("main_grad", name, parameter.grad)

    def _before_optimizer(self, optimizer, *_) -> None:
        self._pause(True)
        self._take_gradients(self._owned(optimizer))

    def _after_optimizer(self, optimizer, *_) -> None:
        for name, parameter in self._owned(optimizer).items():
            if self.perturbation is not None:
                self.perturbation.store(parameter)
            before = self.before[name]
            if before is not None:
                self._record(0, "step", "param_delta", name, 0, change_of(parameter, before), place_of=parameter)
        self._pause(False)
        self.stepped.add(id(optimizer))

    # --- modules ---

    def _before_forward(self, name: str):
        def hook(module, args, kwargs):
            self._pause(True)
            self._open_step()
            direction = "recompute" if in_backward() else "fwd"
            if module is self.modules[ROOT] and direction == "fwd" and not self.numbered:
                self.mb += 1
            mb = max(self.mb, 0)
            call = self.calls.get((mb, direction, name), 0)
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
        if any(fnmatch.fnmatch(name, pattern) for pattern in self.skip):
            return None
        full_name = tensor_name(self.step if step is None else step, mb, direction, kind, name, call)
        return self.recorder.add(full_name, kind, tensor, mark, place_of)
