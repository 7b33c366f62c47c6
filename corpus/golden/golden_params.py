"""Parameters of a case: what the catalogue (harness/spec/catalog.h) says of their names, shapes and first values, said again."""
import math

from golden_data import fill
from golden_hashes import SALT_PARAM, fill_key, hash_string


def pow2(n):
    """The power of two nearest to 1 / sqrt(n)."""
    return 2.0 ** -math.floor(math.log2(n) / 2 + 0.5)


class Params:
    """table: names in the catalogue's order -> ((rows, columns), scale, offset, frozen)."""

    def __init__(self, case):
        self.case, self.model, self.table = case, case["model"], {}
        m = self.model
        h = m["hidden"]
        self.add("embedding.word_embeddings", (m["vocab_padded"], h), pow2(h) if m["tied"] else 0.5, 0, "embedding")
        if m["positions"] == "learned":
            self.add("embedding.position_embeddings", (m["seq"], h), 0.5, 0, "embedding")
        for i in range(m["layers"]):
            self.add_layer(f"decoder.layers.{i}.")
        if m["adapter"]:
            self.add("adapter", (h, h), pow2(h), 0, None)
        self.add_norm("decoder.final_layernorm")
        if not m["tied"]:
            self.add("output_layer", (m["vocab_padded"], h), pow2(h), 0, None)
        for k in range(m.get("mtp_depth", 0)):
            at = f"mtp.layers.{k}."
            self.add_norm(at + "enorm")
            self.add_norm(at + "hnorm")
            self.add(at + "eh_proj", (h, 2 * h), pow2(2 * h), 0, None)
            self.add_layer(at + "transformer_layer.")
            self.add_norm(at + "final_layernorm")

    def add_layer(self, layer):
        m = self.model
        h, attention = m["hidden"], m["heads"] * m["head_dim"]
        self.add_norm(layer + "input_layernorm")
        if m.get("kv_lora_rank"):
            self.add_latents(layer + "self_attention.")
        else:
            self.add_linear(layer + "self_attention.linear_qkv", attention + 2 * m["kv_heads"] * m["head_dim"], h, "qkv")
        if m.get("qk_norm"):
            parts = ["q.weight", "k.weight"] + (["q.bias", "k.bias"] if m["norm"] == "layer" else [])
            for part in parts:
                self.add(layer + "self_attention.qk_layernorm", (1, m["head_dim"]), 0.125, 1 if "weight" in part else 0, "norms", part)
        if m.get("sinks"):
            self.add(layer + "self_attention.core_attention", (1, m["heads"]), 1, 0, "qkv", "softmax_offset")
        self.add_linear(layer + "self_attention.linear_proj", h, attention, "proj")
        if m.get("post_norm"):
            self.add_norm(layer + "post_self_attn_layernorm")
        if m.get("memory_seq"):
            self.add_norm(layer + "pre_cross_attn_layernorm")
            self.add_linear(layer + "cross_attention.linear_q", attention, h, "qkv")
            self.add_linear(layer + "cross_attention.linear_kv", 2 * attention, h, "qkv")
            self.add_linear(layer + "cross_attention.linear_proj", h, attention, "proj")
        self.add_norm(layer + "pre_mlp_layernorm")
        if "moe" in self.case:
            self.add_experts(layer + "mlp.", self.case["moe"])
        else:
            self.add_linear(layer + "mlp.linear_fc1", self.fc1_rows(m["ffn"]), h, "fc1")
            self.add_linear(layer + "mlp.linear_fc2", h, m["ffn"], "fc2")
        if m.get("post_norm"):
            self.add_norm(layer + "post_mlp_layernorm")

    def add(self, module, shape, scale, offset, frozen_by, part="weight"):
        self.table[f"{module}.{part}"] = (shape, scale, offset, frozen_by in self.case["train"]["frozen"])

    def add_norm(self, module, width=None):
        width = width or self.model["hidden"]
        self.add(module, (1, width), 0.125, 1, "norms")
        if self.model["norm"] == "layer":
            self.add(module, (1, width), 0.125, 0, "norms", "bias")

    def add_latents(self, at):
        """Projections without biases, and the latents' norms."""
        m = self.model
        h, d, rope, latent, query = m["hidden"], m["head_dim"], m["qk_rope_dim"], m["kv_lora_rank"], m.get("q_lora_rank")

        def weight(name, rows, cols):
            self.add(at + name, (rows, cols), pow2(cols), 0, "qkv")

        if query:
            weight("linear_q_down_proj", query, h)
            self.add_norm(at + "q_layernorm", query)
            weight("linear_q_up_proj", m["heads"] * d, query)
        else:
            weight("linear_q_proj", m["heads"] * d, h)
        weight("linear_kv_down_proj", latent + rope, h)
        self.add_norm(at + "kv_layernorm", latent)
        weight("linear_kv_up_proj", m["heads"] * (2 * d - rope), latent)

    def add_linear(self, module, rows, cols, frozen_by):
        self.add(module, (rows, cols), pow2(cols), 0, frozen_by)
        if self.model["bias"]:
            self.add(module, (1, rows), 0.125, 0, frozen_by, "bias")

    def fc1_rows(self, width):
        """Of a first linear whose activation puts out width columns."""
        return width * (2 if self.model["activation"] == "swiglu" else 1)

    def add_experts(self, mlp, moe):
        h, width = self.model["hidden"], moe["experts"] * moe["ffn"]
        self.add(mlp + "router", (moe["experts"], h), pow2(h), 0, None)
        self.add(mlp + "experts.linear_fc1", (self.fc1_rows(width), h), pow2(h), 0, "fc1")
        self.add(mlp + "experts.linear_fc2", (h, width), pow2(moe["ffn"]), 0, "fc2")
        if moe.get("shared_ffn"):
            self.add(mlp + "shared_experts.linear_fc1", (self.fc1_rows(moe["shared_ffn"]), h), pow2(h), 0, "fc1")
            self.add(mlp + "shared_experts.linear_fc2", (h, moe["shared_ffn"]), pow2(moe["shared_ffn"]), 0, "fc2")

    def values(self, name, step):
        """[rows, columns] in float32, as a case that draws parameters anew in each step has them; others begin with those of step 0."""
        shape, scale, offset, _ = self.table[name]
        return fill(fill_key(self.case["seed"], hash_string(step, name), SALT_PARAM), self.case["data"]["weights"], shape, scale, offset)

    def initial(self):
        """Name -> master weight, float64."""
        return {name: self.values(name, 0).double() for name in self.table}

    def trained(self):
        return [name for name, row in self.table.items() if not row[3]]
