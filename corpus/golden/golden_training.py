"""Training steps of golden runs: losses, accumulation over microbatches, loss scaling, clipping, AdamW; keeps every traced tensor."""
import math

import torch
import torch.nn.functional as F

from golden_data import data_ahead, data_microbatch, documents
from golden_hashes import hash_u64
from golden_model import Forward
from golden_params import Params


class Run:
    """All steps of a case. out: trace id's text -> array [rows, columns] in float64."""

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
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** precision.get("loss_scale_log2", 0), growth_factor=2.0,
                                           backoff_factor=0.5, growth_interval=precision.get("loss_scale_window") or 1 << 30)
        for step in range(train["steps"]):
            self.step(step)
        self.emit_state(train["steps"])

    def emit(self, step, microbatch, phase, kind, subject, value, call=0):
        """Scalars and vectors become one row."""
        value = torch.as_tensor(value, dtype=torch.float64).detach()
        value = value.reshape(1, -1) if value.dim() < 2 else value
        self.out[f"s{step}/mb{microbatch}/{phase}/{kind}/{subject}/{call}"] = value.clone().numpy()

    def emit_state(self, step):
        for name, value in self.master.items():
            self.emit(step, 0, "step", "param", name, value)
        if self.case["precision"].get("loss_scale_log2"):
            self.emit(step, 0, "step", "scalar", "loss_scale", self.scaler.get_scale())

    def losses(self, logits, labels):
        """[T, vocab_padded], [T] -> [T]. Label smoothing as Megatron-LM has it: the label keeps 1 - a, the other columns share a evenly.
        torch's own share includes the label's column."""
        columns, a = logits.shape[1], self.case["train"].get("label_smoothing_milli", 0) / 1000
        return F.cross_entropy(logits, labels, reduction="none", label_smoothing=a * columns / (columns - 1))

    def microbatch(self, step, number):
        """Returns (sum of mask * loss, sum of weight * loss, kept tokens) and adds to sums, the step's gradients."""
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
        per_token = self.case["train"]["loss_norm"] == "per_token"
        scale = 1.0 if per_token else 1.0 / (kept * self.case["train"]["microbatches"])
        objective = (losses * (mask * scale)).sum()
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
            self.add_gradient(step, number, name, leaves[name])
        if self.case["model"]["tied"] and word in self.trained:
            self.add_gradient(step, number, word, leaves["head"], call=1)
        for k in range(len(ahead)):
            for use, name, call in (("words", word, 2 + 2 * k), ("head", head, 3 + 2 * k)):
                if name in self.trained:
                    self.add_gradient(step, number, name, leaves[f"{use}{k}"], call=call)
        total = float((losses.detach() * mask).sum())
        return total, total * scale, kept

    def add_gradient(self, step, number, name, leaf, call=0):
        """Of one use (call) of a parameter; single microbatches' gradients of experts are not traced."""
        if ".experts." not in name:
            self.emit(step, number, "bwd", "wgrad", name, leaf.grad, call=call)
        self.sums[name] += leaf.grad

    def scale_ahead(self, step, depth, kept):
        """Of a depth's loss summed over its kept tokens; with loss_norm per_token the step's tokens divide it later."""
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
        self.emit_state(step)
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
