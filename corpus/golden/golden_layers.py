"""What every branch of a golden model is made of: taps and traced outputs, linears, norms, activations, dropout."""
import torch
import torch.nn.functional as F

from golden_data import memory
from golden_hashes import SALT_DROPOUT, below, element_bits, fill_key, hash_string


class Layers:
    """State of one microbatch. Keeps each module's output (acts) and the input whose gradient is the module's act_grad (inputs), under the
    modules' names. Streams are [T, columns], T = seq * microbatch_size rows in order position * microbatch_size + sequence."""

    def __init__(self, case, weights, place, documents):
        """weights: parameter's name -> [rows, columns]; place: hash_u64(step, number); documents: golden_data.documents."""
        self.case, self.model, self.w = case, case["model"], weights
        self.batch = case["train"]["microbatch_size"]
        self.acts, self.inputs, self.place = {}, {}, place
        self.documents, self.places, self.lengths = documents
        self.memory = memory(case, place).requires_grad_() if self.model.get("memory_seq") else None

    def tap(self, module, x):
        """This module's own use of x."""
        own = x * 1.0
        own.retain_grad()
        self.inputs[module] = own
        return own

    def put(self, module, value):
        self.acts[module] = value
        return value

    def normed(self, name, x):
        """Norm over the last axis of x [.., columns]; its weight and bias, called name, are [1, columns]."""
        weight, width = self.w[name + ".weight"][0], (x.shape[-1],)
        if self.model["norm"] == "layer":
            return F.layer_norm(x, width, weight, self.w[name + ".bias"][0], 1e-5)
        return F.rms_norm(x, width, weight, 1e-5)

    def norm(self, module, x):
        return self.put(module, self.normed(module, self.tap(module, x)))

    def linear(self, module, x, weight=None):
        """[T, columns] -> [T, rows] with a weight [rows, columns], the module's own unless one is given."""
        bias = self.w.get(module + ".bias")
        return self.put(module, F.linear(self.tap(module, x), self.w[module + ".weight"] if weight is None else weight,
                                         None if bias is None else bias[0]))

    def residual(self, module, x, branch):
        x = self.tap(module, x)
        return self.put(module, x + branch(x))

    def dropout(self, module, branch):
        milli = self.case["train"].get("dropout_milli", 0)
        if not milli:
            return branch
        key = fill_key(self.case["seed"], hash_string(self.place, module), SALT_DROPOUT)
        kept = [below(element_bits(key, i), 1000) >= milli for i in range(branch.numel())]
        return branch * torch.tensor(kept).reshape(branch.shape) / (1 - milli / 1000)

    def activated(self, x):
        """[.., ffn or 2 ffn: gate, up] -> [.., ffn]."""
        if self.model["activation"] == "gelu":
            return F.gelu(x)
        if self.model["activation"] == "relu2":
            return F.relu(x) ** 2
        gate, up = x.chunk(2, -1)
        return F.silu(gate) * up

    def activation(self, module, x):
        return self.put(module, self.activated(self.tap(module, x)))

    def end_branch(self, module, x):
        return self.norm(module, x) if self.model.get("post_norm") else x
