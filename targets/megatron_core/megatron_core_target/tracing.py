"""Records what a run shows, in execution order, under the names of targets/trace_format.md."""
import torch
from megatron.core.transformer.identity_op import IdentityFuncOp, IdentityOp

from .places import Places, kinds_of


class _Tap(torch.autograd.Function):
    """Hands its input on, and the gradient that comes back to `record`: that of one module's input alone, whoever else reads the tensor."""

    @staticmethod
    def forward(context, tensor, record):
        context.record = record
        return tensor.view_as(tensor)

    @staticmethod
    def backward(context, gradient):
        context.record(gradient)
        return gradient, None


class Recorder:
    """Hooks of one rank's model chunks. `records`: (name, tensor, place) in execution order; tensors are copies.

    Gradients of activations are the loss's of the whole step: what the package divides by later, once gradients are reduced, is divided here.
    """

    def __init__(self, model):
        self.model = model
        self.places = Places(model.case, model.config, model.layout)
        n = model.layout.n
        self.gradient_scale = 1.0 if model.config.calculate_per_token_loss else 1.0 / (n["dp"] * n["cp"])
        self.reset()
        for chunk, names in zip(model.chunks, model.names):
            for local, module in chunk.named_modules():
                name = names.of(local)
                kinds = None if isinstance(module, (IdentityOp, IdentityFuncOp)) else kinds_of(name)
                if kinds is not None:
                    # A stage that embeds for its MTP layers only makes what is the second call on one device.
                    first = 1 if name.startswith("embedding") and not chunk.pre_process else 0
                    self._hook(name, module, *kinds, first)

    def reset(self):
        """As before the first step."""
        self.records = []
        self.step, self.forward_number, self.backward_number, self.calls = 0, 0, 0, {}
        self.last_call = (0, 0, 0)     # step, microbatch and call of the module that ran last

    def _hook(self, name, module, inputs, output, first):
        module.register_forward_pre_hook(lambda module, args, options: self._before(name, inputs, args, options), with_kwargs=True)
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
        tensor = tensor.detach().clone() if scale == 1.0 else tensor.detach() * scale
        self.records.append((f"s{self.step}/{path}", tensor, place))

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

    def _before(self, name, inputs, args, options):
        """Puts a tap on each input that the table knows: floating, with a gradient, and no parameter."""
        microbatch, where = self._now()
        call, seen = self._call(microbatch, where, "in", name), [0]
        self.last_call = (self.step, microbatch, call)

        def tapped(value):
            usable = isinstance(value, torch.Tensor) and value.requires_grad and not isinstance(value, torch.nn.Parameter)
            if not usable or seen[0] >= len(inputs):
                return value
            place_in_call = seen[0]
            seen[0] += 1
            subject = f"{name or 'model'}:{place_in_call}" if place_in_call else name or "model"

            def record(gradient):
                place = self.places.of(name, self.places.input_kinds(name, inputs[place_in_call]), gradient.shape)
                self.add(f"mb{microbatch}/bwd/act_grad/{subject}/{call}", gradient, place, self.gradient_scale)
            return _Tap.apply(value, record)
        return tuple(tapped(value) for value in args), {key: tapped(value) for key, value in options.items()}

    def _after(self, name, module, kinds, result, first):
        """Records the first tensor of a module's output. Of the whole model that is a loss on the last stage only."""
        tensor = result[0] if isinstance(result, tuple) else result
        if not isinstance(tensor, torch.Tensor) or (name == "" and not module.post_process):
            return
        kinds = self.places.output_kinds(name, module, kinds)
        if name.endswith(("word_embeddings", "position_embeddings")) and not getattr(module, "reduce_scatter_embeddings", False):
            tensor = tensor.transpose(0, 1)
        microbatch, where = self._now()
        call = self._call(microbatch, where, "out", name) + first
        self.add(f"mb{microbatch}/{where}/act/{name or 'model'}/{call}", tensor, self.places.of(name, kinds, tensor.shape))
