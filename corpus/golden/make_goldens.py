"""Golden runs: the logical function of harness/DESIGN.md section 8 in PyTorch, in float64, with gradients by autograd.

Writes NAME.json (the case) and NAME.safetensors (every traced tensor, under its trace id's text) beside this script. It shares nothing with
the C code but the text of the design: parameters, tokens and masks are computed here again, in integers. Needs torch and numpy; run it
by hand when the design changes:  python3 corpus/golden/make_goldens.py [NAME...]
"""
import json
import math
import pathlib
import struct
import sys

import numpy as np
import torch
import torch.nn.functional as F

torch.set_num_threads(1)
MASK = (1 << 64) - 1
STRIDE = 0x9E3779B97F4A7C15
EXTRA = 0xD1B54A32D192ED03
SALT_PARAM, SALT_TOKENS, SALT_LABELS, SALT_FEW, SALT_MASK, SALT_DROPOUT, SALT_DOCUMENTS, SALT_MEMORY = 1, 3, 4, 5, 6, 7, 8, 9

SMALLEST = {
    "seed": 0, "mode": "e2e",
    "model": dict(layers=1, hidden=8, heads=1, kv_heads=1, head_dim=4, ffn=8, vocab=8, vocab_padded=8, seq=4, norm="rms",
                  activation="gelu", positions="none", bias=False, tied=False, adapter=False),
    "precision": dict(compute="fp32"),
    "train": dict(steps=1, microbatches=1, microbatch_size=1, loss_norm="per_token", clip_milli=0, lr_micro=1000, weight_decay_milli=0,
                  beta1_milli=900, beta2_milli=999, frozen=[]),
    "data": dict(tokens="uniform", mask="full", weights="normal"),
}

CASES = {
    "gpt": dict(
        seed=11,
        model=dict(layers=2, hidden=12, heads=3, kv_heads=3, head_dim=4, ffn=20, vocab=19, vocab_padded=24, seq=6, norm="layer",
                   positions="learned", bias=True, tied=True),
        train=dict(microbatches=2, microbatch_size=2)),
    "llama": dict(
        seed=12,
        model=dict(layers=2, hidden=12, heads=2, kv_heads=2, head_dim=6, ffn=16, vocab=16, vocab_padded=16, seq=7, activation="swiglu",
                   positions="rotary"),
        train=dict(microbatches=2)),
    "gqa_uneven_mask": dict(
        seed=13,
        model=dict(hidden=10, heads=4, kv_heads=2, head_dim=4, ffn=14, vocab=13, vocab_padded=16, seq=8, activation="swiglu",
                   positions="rotary", bias=True),
        train=dict(microbatches=3, microbatch_size=2),
        data=dict(mask="uneven")),
    "mqa_per_microbatch": dict(
        seed=14,
        model=dict(hidden=9, heads=6, kv_heads=1, head_dim=2, ffn=8, vocab=11, vocab_padded=12, seq=6, norm="layer", positions="rotary",
                   tied=True),
        train=dict(microbatches=2, microbatch_size=2, loss_norm="per_microbatch"),
        data=dict(mask="uneven", weights="uniform")),
    "adapter_sparse_mask": dict(
        seed=15,
        model=dict(hidden=8, heads=2, kv_heads=1, ffn=12, seq=9, positions="learned", adapter=True),
        train=dict(microbatches=3, loss_norm="per_microbatch"),
        data=dict(mask="sparse", tokens="edge", weights="heavy")),
    "clip_decay_steps": dict(
        seed=16,
        model=dict(hidden=8, heads=2, kv_heads=2, ffn=8, norm="layer", positions="rotary", bias=True, tied=True),
        precision=dict(compute="bf16"),
        train=dict(steps=3, microbatches=2, clip_milli=300, lr_micro=20000, weight_decay_milli=100, beta1_milli=850, beta2_milli=950)),
    "frozen_head_steps": dict(
        seed=17,
        model=dict(layers=2, hidden=8, heads=2, kv_heads=2, ffn=8, positions="learned", bias=True, tied=True, adapter=True),
        train=dict(steps=2, lr_micro=5000, frozen=["embedding", "qkv", "norms"]),
        data=dict(tokens="few", weights="sparse")),
    "parallel_relu2": dict(
        seed=19,
        model=dict(layers=2, hidden=12, heads=4, kv_heads=2, ffn=16, seq=6, norm="layer", activation="relu2", positions="learned",
                   bias=True, parallel_residual=True),
        train=dict(microbatches=2, microbatch_size=2)),
    "label_smoothing": dict(
        seed=20,
        model=dict(hidden=8, heads=2, kv_heads=2, ffn=12, vocab=13, vocab_padded=16, tied=True),
        train=dict(steps=2, microbatches=2, loss_norm="per_microbatch", label_smoothing_milli=150),
        data=dict(mask="uneven")),
    "sinks_window": dict(
        seed=21,
        model=dict(layers=2, hidden=8, heads=4, kv_heads=2, ffn=8, seq=7, positions="rotary", sinks=True, window=3),
        train=dict(steps=2, microbatches=2, microbatch_size=2, lr_micro=5000),
        data=dict(weights="uniform")),
    "qk_norm_layer": dict(
        seed=22,
        model=dict(hidden=8, heads=4, kv_heads=2, ffn=8, seq=5, norm="layer", positions="rotary", bias=True, qk_norm=True),
        train=dict(steps=2, microbatches=2, microbatch_size=2, lr_micro=5000),
        data=dict(mask="uneven")),
    "qk_norm_rms_parallel_sinks": dict(
        seed=23,
        model=dict(layers=2, hidden=8, heads=2, kv_heads=1, head_dim=6, ffn=8, seq=6, activation="relu2", qk_norm=True, sinks=True,
                   window=2, parallel_residual=True),
        train=dict(microbatches=2, label_smoothing_milli=100, frozen=["fc1"]),
        data=dict(weights="uniform")),
    "latent_layer": dict(
        seed=26,
        model=dict(layers=2, hidden=10, heads=2, kv_heads=2, head_dim=6, ffn=8, seq=5, norm="layer", positions="rotary", bias=True,
                   kv_lora_rank=7, qk_rope_dim=2),
        train=dict(steps=2, microbatches=2, microbatch_size=2, lr_micro=5000),
        data=dict(mask="uneven")),
    "latent_query_sinks": dict(
        seed=27,
        model=dict(layers=2, hidden=8, heads=3, kv_heads=3, head_dim=6, ffn=8, seq=6, positions="rotary", kv_lora_rank=5, q_lora_rank=4,
                   qk_rope_dim=4, sinks=True, window=3, parallel_residual=True),
        train=dict(microbatches=2, microbatch_size=2),
        data=dict(weights="uniform", documents=2)),
    "loss_scale_fp16": dict(
        seed=22,
        model=dict(layers=2, hidden=8, heads=2, kv_heads=2, ffn=12, norm="layer", tied=True),
        precision=dict(compute="fp16", loss_scale_log2=9, loss_scale_window=1),
        train=dict(steps=3, microbatches=2, clip_milli=200, lr_micro=5000),
        data=dict(mask="uneven")),
    "dropout": dict(
        seed=24,
        model=dict(layers=2, hidden=8, heads=2, kv_heads=2, ffn=8, seq=6, norm="layer", bias=True),
        train=dict(steps=2, microbatches=2, microbatch_size=2, lr_micro=5000, dropout_milli=300)),
    "dropout_parallel": dict(
        seed=25,
        model=dict(hidden=8, heads=2, kv_heads=1, ffn=8, activation="swiglu", parallel_residual=True),
        train=dict(microbatches=2, dropout_milli=500)),
    "documents_learned": dict(
        seed=26,
        model=dict(layers=2, hidden=8, heads=2, kv_heads=2, ffn=8, seq=9, norm="layer", positions="learned", bias=True),
        train=dict(microbatches=2, microbatch_size=3),
        data=dict(documents=4)),
    "documents_padding_rotary": dict(
        seed=27,
        model=dict(layers=2, hidden=8, heads=2, kv_heads=1, ffn=8, seq=8, activation="swiglu", positions="rotary", sinks=True, window=3),
        train=dict(steps=2, microbatches=2, microbatch_size=2, loss_norm="per_microbatch", lr_micro=5000),
        data=dict(mask="sparse", documents=3, padding=5)),
    "post_norm_layer": dict(
        seed=28,
        model=dict(layers=2, hidden=8, heads=2, kv_heads=1, ffn=8, norm="layer", positions="rotary", bias=True, post_norm=True),
        train=dict(steps=2, microbatches=2, microbatch_size=2, lr_micro=5000),
        data=dict(mask="uneven")),
    "post_norm_rms_parallel_dropout": dict(
        seed=29,
        model=dict(layers=2, hidden=12, heads=2, kv_heads=2, ffn=8, activation="swiglu", qk_norm=True, parallel_residual=True,
                   post_norm=True),
        train=dict(microbatches=2, dropout_milli=250, frozen=["norms"])),
    "cross_attention": dict(
        seed=30,
        model=dict(hidden=8, heads=4, kv_heads=2, ffn=8, seq=5, norm="layer", positions="rotary", bias=True, post_norm=True, memory_seq=3),
        train=dict(steps=2, microbatches=2, microbatch_size=2, lr_micro=5000)),
    "cross_attention_frozen": dict(
        seed=31,
        model=dict(hidden=8, heads=2, kv_heads=1, ffn=8, qk_norm=True, sinks=True, window=2, tied=True, memory_seq=6),
        train=dict(microbatches=2, dropout_milli=200, frozen=["qkv", "embedding"]),
        data=dict(weights="uniform", documents=2, padding=3)),
    "mtp": dict(
        seed=28,
        model=dict(layers=1, hidden=8, heads=2, kv_heads=1, ffn=8, seq=6, norm="layer", positions="rotary", bias=True, mtp_depth=2),
        train=dict(steps=2, microbatches=2, microbatch_size=2, lr_micro=5000, dropout_milli=200, mtp_weight_milli=300),
        data=dict(mask="uneven", documents=2)),
    "mtp_tied_per_microbatch": dict(
        seed=29,
        model=dict(layers=1, hidden=6, heads=2, kv_heads=2, ffn=8, seq=5, activation="swiglu", positions="learned", tied=True, adapter=True,
                   parallel_residual=True, mtp_depth=2),
        train=dict(microbatches=3, loss_norm="per_microbatch", mtp_weight_milli=1500, label_smoothing_milli=100),
        data=dict(mask="sparse", padding=2)),
    "frozen_mlp": dict(
        seed=18,
        model=dict(layers=2, hidden=8, heads=2, kv_heads=1, activation="swiglu", norm="layer"),
        train=dict(microbatches=2, clip_milli=100000, frozen=["proj", "fc1", "fc2"]),
        data=dict(mask="uneven", weights="outliers")),
    "moe_softmax": dict(
        seed=19,
        model=dict(layers=2, hidden=12, heads=2, kv_heads=2, head_dim=4, seq=7, activation="swiglu", positions="rotary"),
        moe=dict(experts=6, topk=3, ffn=10),
        train=dict(microbatches=2, steps=2)),
    "moe_sigmoid_capacity": dict(
        seed=20,
        model=dict(layers=2, hidden=10, heads=2, kv_heads=1, head_dim=4, seq=8, norm="layer", positions="learned", bias=True),
        moe=dict(experts=4, topk=2, ffn=9, router="sigmoid", capacity_milli=800),
        train=dict(microbatches=2, microbatch_size=2),
        data=dict(mask="uneven")),
    "moe_one_of_many": dict(
        seed=21,
        model=dict(hidden=8, heads=2, kv_heads=2, head_dim=4, seq=6, tied=True),
        moe=dict(experts=5, ffn=8, router="sigmoid", scope="microbatch", capacity_milli=1100),
        train=dict(microbatches=3, microbatch_size=3, loss_norm="per_microbatch", frozen=["fc2"])),
    "moe_one_of_three": dict(
        seed=22,
        model=dict(layers=2, hidden=8, heads=2, kv_heads=2, head_dim=4, seq=9),
        moe=dict(experts=3, ffn=12, capacity_milli=500),
        data=dict(weights="heavy")),
    "moe_shared": dict(
        seed=23,
        model=dict(layers=2, hidden=8, heads=2, kv_heads=1, head_dim=4, seq=6, norm="layer", activation="swiglu", bias=True, post_norm=True),
        moe=dict(experts=4, topk=2, ffn=8, shared_ffn=12),
        train=dict(microbatches=2, microbatch_size=2, steps=2)),
    "moe_mtp": dict(
        seed=25,
        model=dict(layers=1, hidden=8, heads=2, kv_heads=1, head_dim=4, seq=6, norm="layer", positions="rotary", mtp_depth=2),
        moe=dict(experts=4, topk=2, ffn=6, shared_ffn=4, capacity_milli=900),
        train=dict(microbatches=2, microbatch_size=2, mtp_weight_milli=400),
        data=dict(mask="uneven", documents=2)),
    "moe_shared_relu2": dict(
        seed=24,
        model=dict(layers=1, hidden=10, heads=2, kv_heads=2, head_dim=4, seq=7, activation="relu2", parallel_residual=True),
        moe=dict(experts=3, topk=2, ffn=8, shared_ffn=6, router="sigmoid", capacity_milli=900),
        train=dict(microbatches=2, frozen=["fc1"], dropout_milli=300),
        data=dict(mask="uneven")),
    "moe_aux_softmax": dict(
        seed=33,
        model=dict(layers=2, hidden=8, heads=2, kv_heads=2, head_dim=4, seq=7, positions="learned"),
        moe=dict(experts=5, topk=2, ffn=8, aux_micro=300000, z_micro=20000),
        train=dict(microbatches=2, microbatch_size=2),
        data=dict(mask="uneven", padding=4)),
    "moe_aux_sigmoid": dict(
        seed=34,
        model=dict(layers=2, hidden=8, heads=2, kv_heads=1, head_dim=4, seq=6),
        moe=dict(experts=4, topk=2, ffn=9, router="sigmoid", scope="microbatch", capacity_milli=700, aux_micro=1000000),
        train=dict(microbatches=2, microbatch_size=3, loss_norm="per_microbatch"),
        data=dict(padding=2)),
    "moe_z_sigmoid_scaled": dict(
        seed=35,
        model=dict(hidden=6, heads=2, kv_heads=2, head_dim=4, seq=5),
        moe=dict(experts=3, ffn=8, router="sigmoid", aux_micro=50000, z_micro=400000),
        precision=dict(loss_scale_log2=6),
        train=dict(microbatches=2, microbatch_size=2, loss_norm="per_microbatch")),
}
MOE = dict(experts=0, topk=1, ffn=8, router="softmax", scope="sequence", capacity_milli=0, aux_micro=0, z_micro=0)


# --- integers: hashes, consistent tensors, data -----------------------------------------------------------------------

def mix64(x):
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def hash_u64(h, value):
    return mix64(h ^ (value + STRIDE + (h << 6) + (h >> 2) & MASK))


def hash_string(h, text):
    fnv = 0xCBF29CE484222325
    for byte in text.encode():
        fnv = (fnv ^ byte) * 0x100000001B3 & MASK
    return hash_u64(h, fnv)


def fill_key(seed, tensor, salt):
    return hash_u64(hash_u64(hash_u64(0, seed), tensor), salt)


def element_bits(key, index):
    return mix64(key + index * STRIDE & MASK)


def draw(dist, bits):
    """Integer times unit is exact in float32."""
    normal = sum(bits >> shift & 0xFFFF for shift in (0, 16, 32, 48)) - 131070
    extra = mix64(bits ^ EXTRA)
    if dist == "uniform":
        return np.float32(((bits >> 47) * 2 - 131071) * 111 * 2.0**-23)
    if dist == "heavy":
        stop = extra | 64
        return np.float32(normal * (stop & -stop) * 91 * 2.0**-25)
    if dist == "outliers":
        return np.float32(normal * (32 if extra & 255 == 0 else 1) * 111 * 2.0**-22)
    if dist == "sparse":
        return np.float32(normal * (1 if extra & 0xFFFF < 6554 else 0) * 83 * 2.0**-20)
    return np.float32(normal * 111 * 2.0**-22) + np.float32(8 if dist == "offset" else 0)


def fill_param(case, name, shape, scale, offset):
    key = fill_key(case["seed"], hash_string(0, name), SALT_PARAM)
    values = np.empty(shape[0] * shape[1], np.float32)
    for i in range(values.size):
        values[i] = np.float32(offset) + np.float32(scale) * draw(case["data"]["weights"], element_bits(key, i))
    return torch.from_numpy(values.astype(np.float64).reshape(shape))


def fill_memory(case, place):
    shape = (case["model"]["memory_seq"] * case["train"]["microbatch_size"], case["model"]["hidden"])
    key = fill_key(case["seed"], place, SALT_MEMORY)
    values = [float(draw("normal", element_bits(key, i))) for i in range(shape[0] * shape[1])]
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


def below(bits, bound):
    return (bits >> 32) * bound >> 32


def draw_token(case, bits):
    model, dist = case["model"], case["data"]["tokens"]
    if dist == "uniform":
        return below(bits, model["vocab"])
    if dist == "few":
        return below(element_bits(fill_key(case["seed"], 0, SALT_FEW), bits % 3), model["vocab"])
    parts = 2 << (bits & 0xFFFF) % 3
    part, length = (bits >> 16 & 7) % parts, model["vocab_padded"] // parts
    token = (part + 1) * length - 1 if bits >> 20 & 1 else part * length
    return min(token, model["vocab"] - 1)


def documents(case, step, microbatch):
    """[sequence][position] -> number of its document and place in it; tokens before each sequence's padding."""
    seq, key = case["model"]["seq"], fill_key(case["seed"], hash_u64(step, microbatch), SALT_DOCUMENTS)
    numbers, places, lengths = [], [], []
    for sequence in range(case["train"]["microbatch_size"]):
        cuts = {below(element_bits(key, sequence * 64 + k), seq) for k in range(1, case["data"].get("documents", 1))}
        length = max(1, seq - below(element_bits(key, sequence * 64), case["data"].get("padding", 0) + 1))
        begins = sorted({0} | cuts | set(range(length, seq)))
        number = [sum(begin <= i for begin in begins) for i in range(seq)]
        numbers.append(number)
        places.append([i - begins[number[i] - 1] for i in range(seq)])
        lengths.append(length)
    return torch.tensor(numbers), torch.tensor(places), lengths


def data_microbatch(case, step, microbatch):
    tokens = case["model"]["seq"] * case["train"]["microbatch_size"]
    place = hash_u64(step, microbatch)
    streams = [[draw_token(case, element_bits(fill_key(case["seed"], place, salt), i)) for i in range(tokens)]
               for salt in (SALT_TOKENS, SALT_LABELS)]
    key, kind = fill_key(case["seed"], place, SALT_MASK), case["data"]["mask"]
    batch, lengths = case["train"]["microbatch_size"], documents(case, step, microbatch)[2]
    always = [below(element_bits(key ^ MASK, i), tokens) for i in range(3)]
    always = [i if i // batch < lengths[i % batch] else (lengths[i % batch] - 1) * batch + i % batch for i in always]
    share, kept = 65536, 1
    if kind == "sparse":
        share, kept = 0, 1 + below(element_bits(key ^ MASK, 3), 3)
    if kind == "uneven":
        share = (8192, 65536, 16384, 49152, 32768)[(fill_key(case["seed"], step, SALT_MASK) % 5 + microbatch) % 5]
    mask = [float(i // batch < lengths[i % batch] and (i in always[:kept] or element_bits(key, i) >> 48 < share)) for i in range(tokens)]
    return torch.tensor(streams[0]), torch.tensor(streams[1]), torch.tensor(mask, dtype=torch.float64)


def data_ahead(case, step, microbatch, depth):
    """Tokens, labels and mask of the token depth + 1 further on; 0 where the document has none."""
    seq, batch, ahead = case["model"]["seq"], case["train"]["microbatch_size"], depth + 1
    data = [x.view(seq, batch) for x in data_microbatch(case, step, microbatch)]
    numbers, _, lengths = documents(case, step, microbatch)
    for x in data:
        whole = x.clone()
        for i in range(seq):
            for j in range(batch):
                within = i + ahead < lengths[j] and numbers[j][i] == numbers[j][i + ahead]
                x[i, j] = whole[i + ahead, j] if within else 0
    return [x.flatten() for x in data]


# --- parameters -------------------------------------------------------------------------------------------------------

def pow2(n):
    return 2.0 ** -math.floor(math.log2(n) / 2 + 0.5)


class Params:
    """Names in the catalogue's order -> (shape, scale, offset, frozen)."""

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
            self.add_linear(layer + "mlp.linear_fc1", m["ffn"] * (2 if m["activation"] == "swiglu" else 1), h, "fc1")
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

    def add_experts(self, mlp, moe):
        h, width = self.model["hidden"], moe["experts"] * moe["ffn"]
        self.add(mlp + "router", (moe["experts"], h), pow2(h), 0, None)
        self.add(mlp + "experts.linear_fc1", (width * (2 if self.model["activation"] == "swiglu" else 1), h), pow2(h), 0, "fc1")
        self.add(mlp + "experts.linear_fc2", (h, width), pow2(moe["ffn"]), 0, "fc2")
        if moe.get("shared_ffn"):
            rows = moe["shared_ffn"] * (2 if self.model["activation"] == "swiglu" else 1)
            self.add(mlp + "shared_experts.linear_fc1", (rows, h), pow2(h), 0, "fc1")
            self.add(mlp + "shared_experts.linear_fc2", (h, moe["shared_ffn"]), pow2(moe["shared_ffn"]), 0, "fc2")

    def initial(self):
        return {name: fill_param(self.case, name, shape, scale, offset) for name, (shape, scale, offset, _) in self.table.items()}

    def trained(self):
        return [name for name, row in self.table.items() if not row[3]]


# --- the model --------------------------------------------------------------------------------------------------------

class Forward:
    """One microbatch. Keeps each module's output (acts) and the input whose gradient is the module's act_grad (inputs)."""

    def __init__(self, case, weights, tokens, place, documents, tokens_ahead):
        self.case, self.model, self.w = case, case["model"], weights
        self.batch = case["train"]["microbatch_size"]
        self.acts, self.inputs, self.place = {}, {}, place
        self.documents, self.places, self.lengths = documents
        self.aux_losses = []
        self.memory = fill_memory(case, place).requires_grad_() if self.model.get("memory_seq") else None
        hidden = self.run(tokens)
        self.logits = self.linear("output_layer", hidden, self.w["head"] if self.model["tied"] else None)
        self.logits_ahead = []
        for k, ahead in enumerate(tokens_ahead):
            hidden = self.predict_ahead(k, hidden, ahead)

    def tap(self, module, x):
        """This module's own use of x."""
        own = x * 1.0
        own.retain_grad()
        self.inputs[module] = own
        return own

    def put(self, module, value):
        self.acts[module] = value
        return value

    def norm(self, module, x):
        x, weight = self.tap(module, x), self.w[module + ".weight"][0]
        if self.model["norm"] == "layer":
            return self.put(module, F.layer_norm(x, (x.shape[1],), weight, self.w[module + ".bias"][0], 1e-5))
        return self.put(module, F.rms_norm(x, (x.shape[1],), weight, 1e-5))

    def linear(self, module, x, weight=None):
        bias = self.w.get(module + ".bias")
        return self.put(module, F.linear(self.tap(module, x), self.w[module + ".weight"] if weight is None else weight,
                                         None if bias is None else bias[0]))

    def residual(self, module, x, branch):
        x = self.tap(module, x)
        return self.put(module, x + branch(x))

    def dropout(self, module, branch):
        milli = self.case["train"].get("dropout_milli", 0)
        key = fill_key(self.case["seed"], hash_string(self.place, module), SALT_DROPOUT)
        kept = [below(element_bits(key, i), 1000) >= milli for i in range(branch.numel())]
        return branch * torch.tensor(kept).reshape(branch.shape) / (1 - milli / 1000) if milli else branch

    def split_heads(self, qkv):
        """[T, (heads + 2 kv) d] -> [s, b, kv, heads per group + 2, d]."""
        m = self.model
        return qkv.view(m["seq"], self.batch, m["kv_heads"], m["heads"] // m["kv_heads"] + 2, m["head_dim"])

    def qk_norm(self, module, qkv):
        heads = self.split_heads(self.tap(module, qkv))
        per_group, d = self.model["heads"] // self.model["kv_heads"], self.model["head_dim"]

        def norm(x, part):
            weight = self.w[f"{module}.{part}.weight"][0]
            if self.model["norm"] == "layer":
                return F.layer_norm(x, (d,), weight, self.w[f"{module}.{part}.bias"][0], 1e-5)
            return F.rms_norm(x, (d,), weight, 1e-5)

        out = torch.cat([norm(heads[..., :per_group, :], "q"), norm(heads[..., per_group:per_group + 1, :], "k"),
                         heads[..., per_group + 1:, :]], -2)
        return self.put(module, out.reshape(qkv.shape))

    def turn(self, x):
        """Rotates the columns of x [s, b, .., d] by position: complex numbers of columns i and i + d / 2."""
        half = x.shape[-1] // 2
        angles = self.places.T[:, :, None].double() * 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
        turn = torch.polar(torch.ones_like(angles), angles).reshape(*x.shape[:2], *(1 for _ in x.shape[2:-1]), half)
        turned = torch.complex(x[..., :half], x[..., half:]) * turn
        return torch.cat([turned.real, turned.imag], -1)

    def latents(self, at, x):
        """Queries, keys and values of multi-latent attention, [T, heads 3 d]; the keys' rotated columns are the same in all heads."""
        m = self.model
        heads, d, rope, latent = m["heads"], m["head_dim"], m["qk_rope_dim"], m["kv_lora_rank"]
        if m.get("q_lora_rank"):
            query = self.linear(at + "linear_q_up_proj", self.norm(at + "q_layernorm", self.linear(at + "linear_q_down_proj", x)))
        else:
            query = self.linear(at + "linear_q_proj", x)
        down = self.linear(at + "linear_kv_down_proj", x)
        up = self.linear(at + "linear_kv_up_proj", self.norm(at + "kv_layernorm", down[:, :latent]))
        key, value = up.view(-1, heads, 2 * d - rope).split([d - rope, d], -1)
        shared = down[:, None, latent:].expand(-1, heads, -1)
        fused = self.tap(at + "rotary", torch.cat([query.view(-1, heads, d), key, shared, value], -1).reshape(x.shape[0], -1))
        parts = fused.view(m["seq"], self.batch, heads, 3, d)
        rotated = torch.cat([parts[..., :2, :d - rope], self.turn(parts[..., :2, d - rope:])], -1)
        return self.put(at + "rotary", torch.cat([rotated, parts[..., 2:, :]], -2).reshape(fused.shape))

    def rotary(self, module, qkv):
        heads = self.split_heads(self.tap(module, qkv))
        out = torch.cat([self.turn(heads[..., :-1, :]), heads[..., -1:, :]], -2)
        return self.put(module, out.reshape(qkv.shape))

    def attend(self, module, query, key, value):
        """Softmax over a window of keys, beside a sink whose probability is dropped."""
        count = self.model["seq"]
        scores = query @ key.transpose(-1, -2) / math.sqrt(self.model["head_dim"])
        behind = torch.arange(count)[:, None] - torch.arange(count)[None, :]
        scores = scores.masked_fill((behind < 0) | (behind >= (self.model.get("window") or count)), -math.inf)
        scores = scores.masked_fill((self.documents[:, :, None] != self.documents[:, None, :])[:, None], -math.inf)
        if self.model.get("sinks"):
            offset = self.w[module + ".softmax_offset"][0][None, :, None, None].expand(scores.shape[0], -1, count, 1)
            scores = torch.cat([scores, offset], -1)
        return torch.softmax(scores, -1)[..., :count] @ value

    def attention(self, module, qkv):
        heads, m = self.split_heads(self.tap(module, qkv)), self.model
        per_group = m["heads"] // m["kv_heads"]
        query = heads[..., :per_group, :].reshape(m["seq"], self.batch, m["heads"], -1)
        key = heads[..., per_group, :].repeat_interleave(per_group, 2)
        value = heads[..., per_group + 1, :].repeat_interleave(per_group, 2)
        query, key, value = (t.permute(1, 2, 0, 3) for t in (query, key, value))
        if m.get("sinks") or m.get("window") or (self.documents > 1).any():
            out = self.attend(module, query, key, value)
        else:
            out = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.put(module, out.permute(2, 0, 1, 3).reshape(qkv.shape[0], -1))

    def activated(self, x):
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

    def attention_branch(self, layer, x):
        at = layer + "self_attention."
        x = self.norm(layer + "input_layernorm", x)
        if self.model.get("kv_lora_rank"):
            return self.linear(at + "linear_proj", self.attention(at + "core_attention", self.latents(at, x)))
        qkv = self.linear(at + "linear_qkv", x)
        if self.model.get("qk_norm"):
            qkv = self.qk_norm(at + "qk_layernorm", qkv)
        if self.model["positions"] == "rotary":
            qkv = self.rotary(at + "rotary", qkv)
        return self.end_branch(layer + "post_self_attn_layernorm", self.linear(at + "linear_proj", self.attention(at + "core_attention", qkv)))

    def kept_slots(self, chosen):
        """1 for the slots [T, topk] that find room in their expert, which takes tokens in row order."""
        moe, tokens = self.case["moe"], chosen.shape[0]
        scope = tokens if moe["scope"] == "microbatch" else self.model["seq"]
        room = max(1, math.ceil(moe["capacity_milli"] * scope * moe["topk"] / (1000 * moe["experts"])))
        kept, load = torch.ones(chosen.shape, dtype=torch.float64), {}
        for token in range(tokens if moe["capacity_milli"] else 0):
            for k in range(moe["topk"]):
                place = (0 if moe["scope"] == "microbatch" else token % self.batch, int(chosen[token, k]))
                load[place] = load.get(place, 0) + 1
                kept[token, k] = load[place] <= room
        return kept

    def routing(self, module, logits):
        moe, logits = self.case["moe"], self.tap(module, logits)
        chosen = torch.sort(torch.topk(logits.detach(), moe["topk"]).indices).values
        softmax = moe["router"] == "softmax"
        share = (logits.softmax(-1) if softmax else logits.sigmoid()).gather(1, chosen)
        if not softmax and moe["topk"] > 1:
            share = share / (share.sum(-1, keepdim=True) + 1e-20)
        kept = self.kept_slots(chosen)
        self.put(module, torch.zeros_like(logits).scatter(1, chosen, share * kept))
        return chosen, kept, share * kept

    def add_aux_losses(self, module, logits, chosen):
        """Switch-style load balancing over sequences or the microbatch, and z loss; padding takes no part."""
        moe, seq = self.case["moe"], self.model["seq"]
        if not moe["aux_micro"] and not moe["z_micro"]:
            return
        logits, values = self.tap(module, logits), []
        valid = torch.tensor([[float(i < n) for n in self.lengths] for i in range(seq)], dtype=torch.float64)
        if moe["aux_micro"]:
            scores = logits.softmax(-1) if moe["router"] == "softmax" else logits.sigmoid()
            scores = scores if moe["router"] == "softmax" else scores / (scores.sum(-1, keepdim=True) + 1e-20)
            counts = F.one_hot(chosen, moe["experts"]).sum(1).view(seq, self.batch, -1) * valid[..., None]
            shares = scores.view(seq, self.batch, -1) * valid[..., None]
            over = (0, 1) if moe["scope"] == "microbatch" else 0
            n = valid.sum(over)
            values.append((counts.sum(over) * shares.sum(over)).sum(-1) * moe["experts"] / (moe["topk"] * n * n))
        losses = [v.mean() * moe["aux_micro"] / 1e6 for v in values]
        if moe["z_micro"]:
            values.append((logits.logsumexp(-1) ** 2 * valid.flatten()).sum() / valid.sum())
            losses.append(values[-1] * moe["z_micro"] / 1e6)
        self.put(module, torch.cat([v.reshape(-1, 1) for v in values]))
        self.aux_losses.append(sum(losses))

    def moe_branch(self, mlp, x):
        moe, h = self.case["moe"], self.model["hidden"]
        logits = self.linear(mlp + "router", x)
        chosen, kept, share = self.routing(mlp + "routing", logits)
        self.add_aux_losses(mlp + "aux_loss", logits, chosen)
        first = self.w[mlp + "experts.linear_fc1.weight"].view(moe["experts"], -1, h)[chosen]
        second = self.w[mlp + "experts.linear_fc2.weight"].view(h, moe["experts"], -1).permute(1, 0, 2)[chosen]
        hidden = torch.einsum("th,tkfh->tkf", self.tap(mlp + "experts.linear_fc1", x), first)
        hidden = self.activated(hidden)
        outputs = torch.einsum("tkf,tkhf->tkh", hidden, second) * kept[..., None]
        outputs = self.put(mlp + "experts.linear_fc2", outputs.reshape(x.shape[0], -1))
        slots = self.tap(mlp + "combine", outputs).view(x.shape[0], moe["topk"], h)
        routed = self.put(mlp + "combine", (share[..., None] * slots).sum(1))
        if not moe.get("shared_ffn"):
            return routed
        at = mlp + "shared_experts."
        shared = self.linear(at + "linear_fc2", self.activation(at + "activation", self.linear(at + "linear_fc1", x)))
        return self.put(at + "add", routed + shared)

    def cross_branch(self, layer, x):
        """Every position sees the whole memory; each query head has a key and a value of its own."""
        at, m = layer + "cross_attention.", self.model
        query = self.linear(at + "linear_q", self.norm(layer + "pre_cross_attn_layernorm", x))
        pairs = self.tap(at + "key_value", self.linear(at + "linear_kv", self.memory))
        heads = self.tap(at + "core_attention", query).view(m["seq"], self.batch, m["heads"], m["head_dim"])
        pairs = pairs.view(m["memory_seq"], self.batch, m["heads"], 2, m["head_dim"])
        out = F.scaled_dot_product_attention(*(t.permute(1, 2, 0, 3) for t in (heads, pairs[..., 0, :], pairs[..., 1, :])))
        return self.linear(at + "linear_proj", self.put(at + "core_attention", out.permute(2, 0, 1, 3).reshape(query.shape)))

    def mlp_branch(self, layer, x):
        if "moe" in self.case:
            return self.end_branch(layer + "post_mlp_layernorm", self.moe_branch(layer + "mlp.", self.norm(layer + "pre_mlp_layernorm", x)))
        hidden = self.linear(layer + "mlp.linear_fc1", self.norm(layer + "pre_mlp_layernorm", x))
        return self.end_branch(layer + "post_mlp_layernorm",
                               self.linear(layer + "mlp.linear_fc2", self.activation(layer + "mlp.activation", hidden)))

    def layer(self, layer, x):
        x = self.residual(layer + "self_attn_bda", x, lambda y: self.dropout(layer + "self_attn_bda", self.attention_branch(layer, y)))
        if self.model.get("memory_seq"):
            x = self.residual(layer + "cross_attn_bda", x, lambda y: self.dropout(layer + "cross_attn_bda", self.cross_branch(layer, y)))
        return self.residual(layer + "mlp_bda", x, lambda y: self.dropout(layer + "mlp_bda", self.mlp_branch(layer, y)))

    def parallel_layer(self, layer, x):
        """Both branches read x. The stream's gradient is whole at self_attn_bda; at mlp_bda it lacks what comes through attention."""
        x = self.tap(layer + "self_attn_bda", x)
        own = self.tap(layer + "mlp_bda", x)
        middle = self.put(layer + "self_attn_bda", own + self.dropout(layer + "self_attn_bda", self.attention_branch(layer, x)))
        return self.put(layer + "mlp_bda", middle + self.dropout(layer + "mlp_bda", self.mlp_branch(layer, own)))

    def run(self, tokens):
        x = self.put("embedding.word_embeddings", F.embedding(tokens, self.w["embedding.word_embeddings.weight"]))
        if self.model["positions"] == "learned":
            table = self.w["embedding.position_embeddings.weight"]
            x = self.put("embedding", x + table[self.places.T.flatten()])
        if not x.requires_grad:
            x = x.detach().requires_grad_()  # act_grads exist below frozen parameters too
        for i in range(self.model["layers"]):
            layer = f"decoder.layers.{i}."
            x = self.parallel_layer(layer, x) if self.model.get("parallel_residual") else self.layer(layer, x)
        if self.model["adapter"]:
            x = self.residual("adapter_bda", x, lambda y: self.linear("adapter", y))
        return self.norm("decoder.final_layernorm", x)

    def predict_ahead(self, k, hidden, tokens):
        """The embedding's and the output layer's uses have leaves of their own."""
        at = f"mtp.layers.{k}."
        words = self.put(at + "embedding", F.embedding(tokens, self.w[f"words{k}"]))
        pair = torch.cat([self.norm(at + "enorm", words), self.norm(at + "hnorm", hidden)], 1)
        x = self.linear(at + "eh_proj", pair)
        layer = at + "transformer_layer."
        x = self.parallel_layer(layer, x) if self.model.get("parallel_residual") else self.layer(layer, x)
        hidden = self.norm(at + "final_layernorm", x)
        self.logits_ahead.append(self.linear(at + "output_layer", hidden, self.w[f"head{k}"]))
        return hidden


# --- training ---------------------------------------------------------------------------------------------------------

class Run:
    def __init__(self, case):
        self.case, self.params, self.out = case, Params(case), {}
        self.master = self.params.initial()
        self.trained = self.params.trained()
        train = case["train"]
        for name, value in self.master.items():
            value.requires_grad_(name in self.trained)
        decay = train["weight_decay_milli"] / 1000
        groups = [dict(params=[self.master[n]], weight_decay=decay if self.master[n].shape[0] > 1 else 0.0) for n in self.trained]
        self.optimizer = torch.optim.AdamW(groups, lr=train["lr_micro"] / 1e6, eps=1e-8,
                                           betas=(train["beta1_milli"] / 1000, train["beta2_milli"] / 1000))
        precision = case["precision"]
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** precision.get("loss_scale_log2", 0), growth_factor=2.0, backoff_factor=0.5,
                                           growth_interval=precision.get("loss_scale_window") or 1 << 30)
        for step in range(train["steps"]):
            self.step(step)
        self.emit_params(train["steps"])

    def emit(self, step, microbatch, phase, kind, subject, value, call=0):
        value = torch.as_tensor(value, dtype=torch.float64).detach()
        value = value.reshape(1, -1) if value.dim() < 2 else value
        self.out[f"s{step}/mb{microbatch}/{phase}/{kind}/{subject}/{call}"] = value.clone().numpy()

    def emit_params(self, step):
        for name, value in self.master.items():
            self.emit(step, 0, "step", "param", name, value)

    def losses(self, logits, labels):
        """Label smoothing as Megatron-LM has it: the label keeps 1 - a, the other columns share a evenly. torch's own share includes the
        label's column."""
        columns, a = logits.shape[1], self.case["train"].get("label_smoothing_milli", 0) / 1000
        return F.cross_entropy(logits, labels, reduction="none", label_smoothing=a * columns / (columns - 1))

    def microbatch(self, step, number):
        """Returns (sum of mask * loss, sum of weight * loss, kept tokens) and adds to the gradients."""
        tokens, labels, mask = data_microbatch(self.case, step, number)
        leaves = {name: value.detach().clone().requires_grad_(name in self.trained) for name, value in self.master.items()}
        word = "embedding.word_embeddings.weight"
        leaves["head"] = leaves[word].detach().clone().requires_grad_(word in self.trained)
        head = word if self.case["model"]["tied"] else "output_layer.weight"
        ahead = [data_ahead(self.case, step, number, k) for k in range(self.case["model"].get("mtp_depth", 0))]
        for k in range(len(ahead)):
            for use, name in (("words", word), ("head", head)):
                leaves[f"{use}{k}"] = leaves[name].detach().clone().requires_grad_(name in self.trained)
        forward = Forward(self.case, leaves, tokens, hash_u64(step, number), documents(self.case, step, number), [a[0] for a in ahead])
        losses = self.losses(forward.tap("loss", forward.logits), labels)
        kept = float(mask.sum())
        scale = 1.0 if self.case["train"]["loss_norm"] == "per_token" else 1.0 / (kept * self.case["train"]["microbatches"])
        objective = (losses * (mask * scale)).sum()
        per_token = self.case["train"]["loss_norm"] == "per_token"
        for loss in forward.aux_losses:
            objective = objective + loss * (sum(forward.lengths) if per_token else 1.0 / self.case["train"]["microbatches"])
        losses_ahead = []
        for k, (_, labels_ahead, mask_ahead) in enumerate(ahead):
            losses_ahead.append(self.losses(forward.tap(f"mtp.layers.{k}.loss", forward.logits_ahead[k]), labels_ahead))
            objective = objective + (losses_ahead[k] * mask_ahead).sum() * self.scale_ahead(step, k, float(mask_ahead.sum()))
        self.scaler.scale(objective).backward()
        for module, value in forward.acts.items():
            self.emit(step, number, "fwd", "act", module, value)
        self.emit(step, number, "fwd", "act", "loss", losses)
        for k, value in enumerate(losses_ahead):
            self.emit(step, number, "fwd", "act", f"mtp.layers.{k}.loss", value)
        for module, value in forward.inputs.items():
            self.emit(step, number, "bwd", "act_grad", module, value.grad)
        for name in self.trained:
            if ".experts." not in name:
                self.emit(step, number, "bwd", "wgrad", name, leaves[name].grad)
            self.sums[name] += leaves[name].grad
        if self.case["model"]["tied"] and word in self.trained:
            self.emit(step, number, "bwd", "wgrad", word, leaves["head"].grad, call=1)
            self.sums[word] += leaves["head"].grad
        for k in range(len(ahead)):
            for use, name, call in (("words", word, 2 + 2 * k), ("head", head, 3 + 2 * k)):
                if name in self.trained:
                    self.emit(step, number, "bwd", "wgrad", name, leaves[f"{use}{k}"].grad, call=call)
                    self.sums[name] += leaves[f"{use}{k}"].grad
        total = float((losses.detach() * mask).sum())
        return total, total * scale, kept

    def scale_ahead(self, step, depth, kept):
        """Of a depth's summed loss; per token, what is divided by the step's tokens later."""
        train = self.case["train"]
        share = train["mtp_weight_milli"] / 1000 / self.case["model"]["mtp_depth"]
        if train["loss_norm"] == "per_microbatch":
            return share / (kept * train["microbatches"]) if kept else 0.0
        numbers = range(train["microbatches"])
        count = sum(float(data_microbatch(self.case, step, n)[2].sum()) for n in numbers)
        count_ahead = sum(float(data_ahead(self.case, step, n, depth)[2].sum()) for n in numbers)
        return share * count / count_ahead if count_ahead else 0.0

    def step(self, step):
        train = self.case["train"]
        self.emit_params(step)
        if self.case["precision"].get("loss_scale_log2"):
            self.emit(step, 0, "step", "scalar", "loss_scale", self.scaler.get_scale())
        self.sums = {name: torch.zeros_like(self.master[name]) for name in self.trained}
        parts = [self.microbatch(step, number) for number in range(train["microbatches"])]
        per_token = train["loss_norm"] == "per_token"
        kept = sum(part[2] for part in parts)
        self.emit(step, 0, "step", "scalar", "tokens", kept)
        self.emit(step, 0, "step", "scalar", "loss", sum(p[0] for p in parts) / kept if per_token else sum(p[1] for p in parts))
        for name in self.trained:
            self.master[name].grad = self.sums[name] / (kept if per_token else 1.0)
        self.scaler.unscale_(self.optimizer)
        for name in self.trained:
            self.emit(step, 0, "step", "main_grad", name, self.master[name].grad)
        if self.case["precision"].get("loss_scale_log2"):
            self.emit(step, 0, "step", "scalar", "overflow", float(self.scaler._found_inf_per_device(self.optimizer)[torch.device("cpu")]))
        tensors = [self.master[name] for name in self.trained]
        limit = train["clip_milli"] / 1000 if train["clip_milli"] else math.inf
        norm = float(torch.nn.utils.clip_grad_norm_(tensors, limit))
        self.emit(step, 0, "step", "scalar", "grad_norm", norm)
        self.emit(step, 0, "step", "scalar", "clip", min(1.0, limit / (norm + 1e-6)))
        before = {name: self.master[name].detach().clone() for name in self.trained}
        self.scaler.step(self.optimizer)
        self.scaler.update()
        for name in self.trained:
            self.emit(step, 0, "step", "param_delta", name, self.master[name].detach() - before[name])


# --- files ------------------------------------------------------------------------------------------------------------

def complete(case):
    full = {}
    for key, value in SMALLEST.items():
        full[key] = {**value, **case.get(key, {})} if isinstance(value, dict) else case.get(key, value)
    if "moe" in case:
        full["moe"] = {**MOE, **case["moe"]}
    return full


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, value in tensors.items():
        header[name] = dict(dtype="F64", shape=list(value.shape), data_offsets=[at, at + value.nbytes])
        at += value.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(value.astype("<f8").tobytes() for value in tensors.values()))


def main():
    folder, total = pathlib.Path(__file__).parent, 0
    for name in sys.argv[1:] or CASES:
        case = complete(CASES[name])
        path = folder / f"reference_{name}"
        path.with_suffix(".json").write_text(json.dumps({"schema": 1, **case}, indent=2) + "\n")
        write_safetensors(path.with_suffix(".safetensors"), Run(case).out)
        total += path.with_suffix(".safetensors").stat().st_size
        print(f"{path.name}: {path.with_suffix('.safetensors').stat().st_size} bytes")
    print(f"total {total} bytes")


if __name__ == "__main__":
    main()
