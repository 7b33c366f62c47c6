"""Records what a run shows, in execution order, under the names of targets/trace_format.md."""
import contextlib
from typing import NamedTuple

import torch
from megatron.core.transformer.identity_op import IdentityFuncOp, IdentityOp
from shardfuzz.megatron.places import Places, kinds_of, without_sums
from shardfuzz.perturb import unseen

from .given import Border, Given


class _Tap(torch.autograd.Function):
    """Hands its input on, and the gradient that comes back to `record`, which gives what goes on: that of one module's input alone, whoever else
    reads the tensor."""

    @staticmethod
    def forward(context, tensor, record):
        context.record = record
        return tensor.view_as(tensor)

    @staticmethod
    def backward(context, gradient):
        return context.record(gradient), None


class _Point(NamedTuple):
    """One tensor that passes a module's border. where: pass; name: of the module; number: of the input tensor."""
    step: int
    microbatch: int
    where: str
    name: str
    number: int
    call: int
    place: dict

    def path(self, where, kind, side=""):
        """As Recorder.add wants it. side: of what came to the border from outside, .input or .output."""
        number = f":{self.number}" if self.number else ""
        return f"mb{self.microbatch}/{where}/{kind}/{self.name}{side}{number}/{self.call}"

    def key(self, what):
        """Name of a given tensor: a recomputation gets what the first pass got."""
        return f"s{self.step}/mb{self.microbatch}/{self.name}/{self.number}/{self.call}/{what}"


class Recorder:
    """Hooks of one rank's model chunks. `records`: (name, tensor, place) in execution order; tensors are copies.

    Gradients of activations are the loss's of the whole step: what the package divides by later, once gradients are reduced, is divided here.

    Isolated, each tensor that passes into a traced module or out of it is recorded as it came (NAME.input forward, NAME.output backward) and then replaced
    by a given one, so that modules, and what the modules around them do between their calls, are judged each by itself.

    Anchored, the candidate's own tensor goes on in place of each that is recorded, so that what comes after is made of what the candidate had.
    """

    def __init__(self, model):
        self.model = model
        self.places = Places(model.config, model.layout, model.case["microbatch_size"])
        n = model.layout.n
        divided = 1 if model.config.calculate_per_token_loss else n["dp"] * n["cp"]
        self.gradient_scale = 1.0 / divided
        self.given = Given(model.case, model.config, model.layout.at["tp"] == 0, divided) if model.case["mode"] == "isolated" else None
        self.reset()
        for chunk, names in zip(model.chunks, model.names):
            for local, module in chunk.named_modules():
                name = names.of(local)
                kinds = None if isinstance(module, (IdentityOp, IdentityFuncOp)) else kinds_of(name)
                if kinds is not None:
                    # A stage that embeds for its MTP layers only makes what is the second call on one device.
                    first = 1 if name.startswith("embedding") and not chunk.pre_process else 0
                    self._hook(name, module, *kinds, first)

    def reset(self, anchors=None, operations=None):
        """As before the first step. anchors: a shardfuzz.anchors.Anchors, of a reference on one device. operations: a shardfuzz.blame.Recording."""
        self.anchors, self.operations = anchors, operations
        self.records = []
        self.step, self.forward_number, self.backward_number, self.calls = 0, 0, 0, {}
        self.last_call = (0, 0, 0)     # step, microbatch and call of the module that ran last

    def _hook(self, name, module, inputs, output, first):
        module.register_forward_pre_hook(lambda module, args, options: self._before(name, module, inputs, args, options), with_kwargs=True)
        module.register_forward_hook(lambda module, args, result: self._after(name, module, output, result, first))

    def begin_step(self, step):
        self.step, self.calls = step, {}

    def begin_microbatch(self, number):
        """The forward pass that follows is that of global microbatch `number`."""
        self.forward_number = number

    def watch_backward(self, output, number):
        """`output`: what a chunk returned for a microbatch; its gradient comes first in that microbatch's backward pass."""
        def begins(gradient):
            self.backward_number = number
        if output.requires_grad:
            output.register_hook(begins)

    def add(self, path, tensor, place, scale=1.0):
        """path: microbatch/pass/kind/subject/call. The tensor is copied, times scale."""
        if self.operations is not None:
            self.operations.passes(f"s{self.step}/{path}", tensor)
        if scale == 1.0:
            with self._copying():
                tensor = tensor.detach().clone()
        else:
            tensor = tensor.detach() * scale
        self.records.append((f"s{self.step}/{path}", tensor, place))

    def _copying(self):
        return unseen() if self.operations is None else contextlib.nullcontext()

    def anchored(self, path, tensor):
        """What goes on in place of a tensor that was recorded under the path."""
        if self.anchors is None:
            return tensor
        with self.operations.reading() if self.operations is not None else unseen():
            value = self.anchors.of(f"s{self.step}/{path}", tensor)
        return tensor if value is None else value

    def scalar(self, microbatch, where, name, tensor, summand=0):
        """A number; with `summand` above 0 this rank's share of it."""
        run = [0, 1, summand] if summand else [0, 1]
        self.add(f"mb{microbatch}/{where}/scalar/{name}/0", tensor.reshape(1), {"shape": [1], "index": [[run]]})

    def _now(self):
        """(microbatch, pass): a forward pass inside a backward pass is a recomputation."""
        if torch._C._current_graph_task_id() != -1:
            return self.backward_number, "recompute"
        return self.forward_number, "fwd"

    def _call(self, *key):
        number = self.calls.get(key, 0)
        self.calls[key] = number + 1
        return number

    def _before(self, name, module, inputs, args, options):
        """Puts a tap or a border on each input that the table knows: floating, with a gradient unless isolated, and no parameter."""
        microbatch, where = self._now()
        call, seen = self._call(microbatch, where, "in", name), [0]
        self.last_call = (self.step, microbatch, call)

        def tapped(value):
            usable = isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter) and (
                value.is_floating_point() if self.given else value.requires_grad)
            if not usable or seen[0] >= len(inputs):
                return value
            number = seen[0]
            seen[0] += 1
            place = self.places.of(name, self.places.input_kinds(name, inputs[number]), value.shape)
            return self._input(_Point(self.step, microbatch, where, name or "model", number, call, place), value, module)
        return tuple(tapped(value) for value in args), {key: tapped(value) for key, value in options.items()}

    def _input(self, point, value, module):
        """What a module reads in place of `value`; the gradient that it gives back is recorded."""
        path = point.path("bwd", "act_grad")

        def record(gradient):
            self.add(path, gradient, point.place, self.gradient_scale)
            return self.anchored(path, gradient)
        if self.given is None:
            return _Tap.apply(value, record)

        whole = without_sums(point.place)

        def replace(tensor):
            self.add(point.path(point.where, "act", ".input"), tensor, whole)
            return self.given.value(point.key("input"), tensor, whole, module if point.name.endswith("router") else None)

        def replace_gradient(gradient):
            record(gradient)
            return self.given.gradient(point.key("input gradient"), gradient, point.place)
        return Border.apply(value, replace, replace_gradient)

    def _after(self, name, module, kinds, result, first):
        """Records the first tensor of a module's output. Of the whole model that is a loss on the last stage only. Isolated, what is returned takes
        the result's place."""
        tensor = result[0] if isinstance(result, tuple) else result
        if not isinstance(tensor, torch.Tensor) or (name == "" and not module.post_process):
            return None
        kinds = self.places.output_kinds(name, module, kinds)
        # The package's word embeddings have the batch first; what the table says is the order after the embedding has turned it.
        turned = name.endswith(("word_embeddings", "position_embeddings")) and not getattr(module, "reduce_scatter_embeddings", False)
        shape = tensor.transpose(0, 1).shape if turned else tensor.shape
        microbatch, where = self._now()
        call = self._call(microbatch, where, "out", name) + first
        point = _Point(self.step, microbatch, where, name or "model", 0, call, self.places.of(name, kinds, shape))
        if self.given is None and self.anchors is None:
            self.add(point.path(where, "act"), tensor.transpose(0, 1) if turned else tensor, point.place)
            return None
        replaced = self._output(point, tensor, turned)
        return (replaced, *result[1:]) if isinstance(result, tuple) else replaced

    def _output(self, point, tensor, turned):
        """What others read in place of a module's output. Isolated, the gradient that they give back is recorded, and the module gets a given one."""
        whole = without_sums(point.place)

        def turn(one):
            return one.transpose(0, 1) if turned else one

        def replace(made):
            made = turn(made)
            self.add(point.path(point.where, "act"), made, point.place)
            if self.given is None:
                return turn(self.anchored(point.path(point.where, "act"), made)).contiguous()
            value = self.given.value(point.key("output"), made, point.place)
            # Experts that a token does not go to have probability zero.
            value = torch.where(made == 0, made, value) if point.name.endswith("router") else value
            return turn(value).contiguous()

        def replace_gradient(gradient):
            if self.given is None:
                return gradient
            gradient = turn(gradient)
            self.add(point.path("bwd", "act_grad", ".output"), gradient, whole, self.gradient_scale)
            return turn(self.given.gradient(point.key("output gradient"), gradient, whole)).contiguous()
        return Border.apply(tensor, replace, replace_gradient)
