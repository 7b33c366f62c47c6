"""The golden model: the forward pass of harness/docs/model.md, from tokens to logits, in float64; backward is autograd's."""
import torch
import torch.nn.functional as F

from golden_attention import Attention
from golden_experts import Experts


class Forward(Attention, Experts):
    """One microbatch: logits [T, vocab_padded], logits_ahead (the same of each depth of multi-token prediction), aux_losses, and what
    Layers keeps. A tied head and each depth's uses have leaves of their own among the weights: "head"; "words0", "head0" and so on."""

    def __init__(self, case, weights, tokens, place, documents, tokens_ahead):
        """tokens: [T]; tokens_ahead: [T] of each depth; the rest is that of Layers."""
        super().__init__(case, weights, place, documents)
        hidden = self.run(tokens)
        self.logits = self.linear("output_layer", hidden, self.w["head"] if self.model["tied"] else None)
        self.logits_ahead = []
        for k, ahead in enumerate(tokens_ahead):
            hidden = self.predict_ahead(k, hidden, ahead)

    def mlp_branch(self, layer, x):
        """[T, hidden] -> [T, hidden], from the norm before to the norm after."""
        x = self.norm(layer + "pre_mlp_layernorm", x)
        if "moe" in self.case:
            out = self.moe_branch(layer + "mlp.", x)
        else:
            hidden = self.activation(layer + "mlp.activation", self.linear(layer + "mlp.linear_fc1", x))
            out = self.linear(layer + "mlp.linear_fc2", hidden)
        return self.end_branch(layer + "post_mlp_layernorm", out)

    def serial_layer(self, layer, x):
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

    def layer(self, layer, x):
        """[T, hidden] -> [T, hidden]."""
        return self.parallel_layer(layer, x) if self.model.get("parallel_residual") else self.serial_layer(layer, x)

    def run(self, tokens):
        """tokens [T] -> [T, hidden], what the output layer reads."""
        x = self.put("embedding.word_embeddings", F.embedding(tokens, self.w["embedding.word_embeddings.weight"]))
        if self.model["positions"] == "learned":
            table = self.w["embedding.position_embeddings.weight"]
            x = self.put("embedding", x + table[self.places.T.flatten()])
        if not x.requires_grad:
            x = x.detach().requires_grad_()  # act_grads exist below frozen parameters too
        for i in range(self.model["layers"]):
            x = self.layer(f"decoder.layers.{i}.", x)
        if self.model["adapter"]:
            x = self.residual("adapter_bda", x, lambda y: self.linear("adapter", y))
        return self.norm("decoder.final_layernorm", x)

    def predict_ahead(self, k, hidden, tokens):
        """Depth k reads the stream [T, hidden] of the depth before it and tokens [T]; returns its own stream and keeps its logits."""
        at = f"mtp.layers.{k}."
        words = self.put(at + "embedding", F.embedding(tokens, self.w[f"words{k}"]))
        pair = torch.cat([self.norm(at + "enorm", words), self.norm(at + "hnorm", hidden)], 1)
        x = self.layer(at + "transformer_layer.", self.linear(at + "eh_proj", pair))
        hidden = self.norm(at + "final_layernorm", x)
        self.logits_ahead.append(self.linear(at + "output_layer", hidden, self.w[f"head{k}"]))
        return hidden
