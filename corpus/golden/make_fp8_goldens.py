"""Golden linear layers of fp8 cases: harness/docs/model.md, fp8, with PyTorch's own casts to float8_e4m3fn and float8_e5m2.

The cases are isolated, so that what a linear layer reads is known to the last bit without computing the model: every factor is a consistent
tensor, whatever was computed before it. Writes fp8_NAME.json (the case) and fp8_NAME.safetensors (ACT, ACT_GRAD and WGRAD of the four
linears of every layer, in place of the MLP's two those of the shared expert; layers that stay in bf16 too) beside this script. Products are
taken in float64 and rounded where that text says. Needs torch and numpy; run it by hand when the text changes:
python3 corpus/golden/make_fp8_goldens.py [NAME...]
"""
import sys

import torch

from golden_cases import complete
from golden_data import fill
from golden_files import write_golden
from golden_hashes import SALT_TRACE, fill_key, hash_string, hash_u64
from golden_params import Params

KIND_ACT, KIND_ACT_GRAD = 1, 2
DATA = dict(acts="normal", grads="normal")

CASES = {
    "current": dict(
        seed=41, mode="isolated",
        model=dict(layers=2, hidden=12, heads=2, kv_heads=1, head_dim=4, ffn=20, seq=5, activation="swiglu", positions="rotary", bias=True),
        precision=dict(compute="fp8"),
        train=dict(steps=2, microbatches=2, microbatch_size=2),
        data=dict(DATA, acts="heavy")),
    "exempt": dict(
        seed=42, mode="isolated",
        model=dict(layers=4, hidden=10, heads=2, kv_heads=2, head_dim=4, ffn=8, seq=6, norm="layer"),
        precision=dict(compute="fp8", fp8_bf16_first=1, fp8_bf16_last=2),
        train=dict(microbatches=2, frozen=["fc1"]),
        data=dict(DATA, weights="outliers", grads="outliers")),
    "delayed": dict(
        seed=43, mode="isolated",
        model=dict(layers=1, hidden=16, heads=4, kv_heads=4, head_dim=4, ffn=12, seq=6, bias=True),
        precision=dict(compute="fp8", fp8_recipe="delayed", fp8_history=1),
        train=dict(steps=3, microbatches=3),
        data=dict(DATA, acts="outliers", grads="heavy", weights="heavy")),
    "delayed_history": dict(
        seed=44, mode="isolated",
        model=dict(layers=2, hidden=8, heads=2, kv_heads=2, head_dim=4, ffn=16, seq=7, norm="layer", activation="relu2"),
        precision=dict(compute="fp8", fp8_recipe="delayed", fp8_history=2, fp8_bf16_first=1),
        train=dict(steps=3, microbatches=2, microbatch_size=2),
        data=dict(DATA, acts="sparse", grads="uniform")),
    "shared_expert": dict(
        seed=45, mode="isolated",
        model=dict(layers=2, hidden=8, heads=2, kv_heads=2, head_dim=4, seq=5, activation="swiglu", bias=True),
        moe=dict(experts=3, topk=2, shared_ffn=12),
        precision=dict(compute="fp8", fp8_recipe="delayed", fp8_history=1, fp8_bf16_last=1),
        train=dict(steps=2, microbatches=2, microbatch_size=2),
        data=dict(DATA, acts="outliers")),
}
FORMATS = {"input": torch.float8_e4m3fn, "weight": torch.float8_e4m3fn, "grad": torch.float8_e5m2}


class Casts:
    """What one operand of one linear layer is multiplied as. Keeps the sizes that delayed scaling goes by."""

    def __init__(self, case, operand):
        self.delayed = case["precision"].get("fp8_recipe") == "delayed"
        self.format, self.length = FORMATS[operand], case["precision"].get("fp8_history", 1)
        self.history, self.step_amax = [], 0.0

    def cast(self, x):
        """x [float32] -> (values of the fp8 grid, unit), both for products in float64."""
        amax = x.abs().max()
        self.step_amax = max(self.step_amax, float(amax))
        reach = torch.tensor(max(self.history)) if self.delayed and self.history else amax
        largest = torch.finfo(self.format).max
        scale = torch.tensor(largest) / reach if reach > 0 else torch.tensor(1.0)  # a number / a tensor would round twice
        assert scale.dtype == torch.float32 and torch.isfinite(scale)
        scaled = torch.clamp(x * scale, -largest, largest)
        return scaled.to(self.format).double(), 1 / scale

    def end_step(self):
        self.history = ([self.step_amax] + self.history)[:self.length]
        self.step_amax = 0.0


class Plain:
    def cast(self, x):
        return x.double(), torch.tensor(1.0)

    def end_step(self):
        pass


def bf16(x):
    return x.float().bfloat16().double()


class Run:
    def __init__(self, case):
        self.case, self.m, self.out, self.casts = case, case["model"], {}, {}
        self.tokens = self.m["seq"] * case["train"]["microbatch_size"]
        self.params = Params(case)
        for step in range(case["train"]["steps"]):
            for microbatch in range(case["train"]["microbatches"]):
                for layer in range(self.m["layers"]):
                    self.layer(step, microbatch, layer)
            for cast in self.casts.values():
                cast.end_step()

    def casts_of(self, layer, module, operand):
        p = self.case["precision"]
        is_cast = p.get("fp8_bf16_first", 0) <= layer < self.m["layers"] - p.get("fp8_bf16_last", 0)
        return self.casts.setdefault((layer, module, operand), Casts(self.case, operand) if is_cast else Plain())

    def traced(self, step, microbatch, kind, module, width):
        place = hash_u64(hash_u64(step, microbatch), kind << 8)
        key = fill_key(self.case["seed"], hash_string(place, module), SALT_TRACE)
        is_act = kind == KIND_ACT
        shape, dist = (self.tokens, width), self.case["data"]["acts" if is_act else "grads"]
        return fill(key, dist, shape, 1.0 if is_act else 2.0**-6).bfloat16().float()

    def param(self, step, name):
        """In bf16, as the model has it; None when there is none."""
        return self.params.values(name, step).bfloat16().float() if name in self.params.table else None

    def is_trained(self, name):
        return name in self.params.trained()

    def emit(self, at, what, subject, value):
        self.out[f"s{at[0]}/mb{at[1]}/{what}/{subject}/0"] = value.double().reshape(-1, value.shape[-1]).numpy()

    def linear(self, at, layer, module, a, g, bias_apart):
        """a: input, g: gradient of the output."""
        step, name = at[0], f"decoder.layers.{layer}.{module}"
        w, bias = self.param(step, name + ".weight"), self.param(step, name + ".bias")
        (a_cast, a_unit), (w_cast, w_unit), (g_cast, g_unit) = (
            self.casts_of(layer, module, operand).cast(x) for operand, x in (("input", a), ("weight", w), ("grad", g)))
        y = a_cast @ w_cast.T * (a_unit * w_unit).double()
        if bias is not None:
            y = (bf16(y) if bias_apart else y) + bias.double()
        self.emit(at, "fwd/act", name, bf16(y))
        self.emit(at, "bwd/act_grad", name, bf16(g_cast @ w_cast * (g_unit * w_unit).double()))
        if self.is_trained(name + ".weight"):
            self.emit(at, "bwd/wgrad", name + ".weight", g_cast.T @ a_cast * (g_unit * a_unit).double())
        if bias is not None and self.is_trained(name + ".bias"):
            self.emit(at, "bwd/wgrad", name + ".bias", g.double().sum(0))

    def layer(self, step, microbatch, i):
        """What a linear reads is what stands before it, and behind it: the modules that isolated mode writes over."""
        m, at = self.m, (step, microbatch)
        ffn, mlp = (self.case["moe"]["shared_ffn"], "mlp.shared_experts.") if "moe" in self.case else (m["ffn"], "mlp.")
        h, heads, wide = m["hidden"], m["heads"] * m["head_dim"], ffn * (2 if m["activation"] == "swiglu" else 1)
        qkv, layer = heads + 2 * m["kv_heads"] * m["head_dim"], f"decoder.layers.{i}."
        behind_qkv = "self_attention.rotary" if m["positions"] == "rotary" else "self_attention.core_attention"
        behind = f"decoder.layers.{i + 1}.self_attn_bda" if i + 1 < m["layers"] else "decoder.final_layernorm"

        def act(module, width):
            return self.traced(step, microbatch, KIND_ACT, layer + module, width)

        def grad(module, width):
            return self.traced(step, microbatch, KIND_ACT_GRAD, module, width)

        self.linear(at, i, "self_attention.linear_qkv", act("input_layernorm", h), grad(layer + behind_qkv, qkv), False)
        self.linear(at, i, "self_attention.linear_proj", act("self_attention.core_attention", heads), grad(layer + "mlp_bda", h), True)
        self.linear(at, i, mlp + "linear_fc1", act("pre_mlp_layernorm", h), grad(layer + mlp + "activation", wide), False)
        self.linear(at, i, mlp + "linear_fc2", act(mlp + "activation", ffn), grad(behind, h), True)


def main():
    torch.set_num_threads(1)
    for name in sys.argv[1:] or CASES:
        case = complete(CASES[name])
        write_golden(f"fp8_{name}", case, Run(case).out)


if __name__ == "__main__":
    main()
