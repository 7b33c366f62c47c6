"""Attention of golden models: grouped queries, QK norm, rotary positions, latents, windows, sinks, packed documents, cross-attention."""
import math

import torch
import torch.nn.functional as F

from golden_layers import Layers


class Attention(Layers):
    """s = seq, b = microbatch_size, T = s b, d = head_dim, kv = kv_heads."""

    def split_heads(self, qkv):
        """[T, (heads + 2 kv) d] -> [s, b, kv, heads per group + 2, d]."""
        m = self.model
        return qkv.view(m["seq"], self.batch, m["kv_heads"], m["heads"] // m["kv_heads"] + 2, m["head_dim"])

    def qk_norm(self, module, qkv):
        heads = self.split_heads(self.tap(module, qkv))
        per_group = self.model["heads"] // self.model["kv_heads"]
        out = torch.cat([self.normed(module + ".q", heads[..., :per_group, :]), self.normed(module + ".k", heads[..., per_group:-1, :]),
                         heads[..., -1:, :]], -2)
        return self.put(module, out.reshape(qkv.shape))

    def turn(self, x):
        """Rotates the columns of x [s, b, .., d] by position: complex numbers of columns i and i + d / 2."""
        half = x.shape[-1] // 2
        angles = self.places.T[:, :, None].double() * 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
        turn = torch.polar(torch.ones_like(angles), angles).reshape(*x.shape[:2], *(1 for _ in x.shape[2:-1]), half)
        turned = torch.complex(x[..., :half], x[..., half:]) * turn
        return torch.cat([turned.real, turned.imag], -1)

    def latents(self, at, x):
        """Queries, keys and values of multi-latent attention, [T, 3 heads d]; the keys' rotated columns are the same in all heads."""
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

    def queries_keys_values(self, at, x):
        """Of plain attention: [T, hidden] -> [T, (heads + 2 kv) d]."""
        qkv = self.linear(at + "linear_qkv", x)
        if self.model.get("qk_norm"):
            qkv = self.qk_norm(at + "qk_layernorm", qkv)
        return self.rotary(at + "rotary", qkv) if self.model["positions"] == "rotary" else qkv

    def rotary(self, module, qkv):
        heads = self.split_heads(self.tap(module, qkv))
        out = torch.cat([self.turn(heads[..., :-1, :]), heads[..., -1:, :]], -2)
        return self.put(module, out.reshape(qkv.shape))

    def attend(self, module, query, key, value):
        """Softmax over a window of keys, beside a sink whose probability is dropped. All are [b, heads, s, d]."""
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
        """[T, (heads + 2 kv) d] -> [T, heads d]."""
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

    def attention_branch(self, layer, x):
        """[T, hidden] -> [T, hidden], from the norm before to the norm after."""
        at = layer + "self_attention."
        x = self.norm(layer + "input_layernorm", x)
        qkv = self.latents(at, x) if self.model.get("kv_lora_rank") else self.queries_keys_values(at, x)
        out = self.linear(at + "linear_proj", self.attention(at + "core_attention", qkv))
        return self.end_branch(layer + "post_self_attn_layernorm", out)

    def cross_branch(self, layer, x):
        """[T, hidden] -> [T, hidden]. Every position sees the whole memory; each query head has a key and a value of its own."""
        at, m = layer + "cross_attention.", self.model
        query = self.linear(at + "linear_q", self.norm(layer + "pre_cross_attn_layernorm", x))
        pairs = self.tap(at + "key_value", self.linear(at + "linear_kv", self.memory))
        heads = self.tap(at + "core_attention", query).view(m["seq"], self.batch, m["heads"], m["head_dim"])
        pairs = pairs.view(m["memory_seq"], self.batch, m["heads"], 2, m["head_dim"])
        out = F.scaled_dot_product_attention(*(t.permute(1, 2, 0, 3) for t in (heads, pairs[..., 0, :], pairs[..., 1, :])))
        return self.linear(at + "linear_proj", self.put(at + "core_attention", out.permute(2, 0, 1, 3).reshape(query.shape)))
