"""Mixture of experts of golden models: router, capacity, auxiliary losses, routed and shared experts."""
import math

import torch
import torch.nn.functional as F

from golden_layers import Layers


class Experts(Layers):
    """E = experts, k = topk; a token's k chosen experts (slots) are in order of their number."""

    def __init__(self, *state):
        super().__init__(*state)
        self.aux_losses = []  # one of each layer that has any

    def kept_slots(self, chosen):
        """1 for the slots [T, k] that find room in their expert, which takes tokens in row order; else 0."""
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
        """logits [T, E] -> numbers of the chosen experts, 1 or 0 for kept or dropped, weights (0 where dropped): [T, k] each."""
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
        """Switch-style load balancing over sequences or the microbatch, and z loss; padding takes no part. logits [T, E], chosen [T, k]."""
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
        """[T, hidden] -> [T, hidden]. Hidden columns of the experts are [T, k, moe.ffn]."""
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
