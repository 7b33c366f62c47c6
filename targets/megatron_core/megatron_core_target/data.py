"""Tokens, labels, masks and the loss function of a case. They belong to the harness: the package has none."""
import torch

from shardfuzz import devices
from shardfuzz.megatron import layout as cuts


class Batches:
    """Microbatches of one step, numbered over all data parallel ranks: replica r of dp has r, r + dp, ... Drawn on the CPU, the same for each device.

    tokens, labels: [microbatches, b, s]; mask: the same in float32, weights of the loss; attention: [microbatches, b, 1, s, s], True is hidden;
    padding: [microbatches, b, s], True is padding, or None without.
    """

    def __init__(self, case, layout, step):
        shape = (case["microbatches"], case["microbatch_size"], case["sequence_length"])
        generator = torch.Generator().manual_seed(case["seed"] * 1000003 + step)
        tokens = torch.randint(0, case["model"]["vocab_size"], shape[:2] + (shape[2] + 1,), generator=generator)
        self.tokens, self.labels = tokens[..., :-1], tokens[..., 1:]
        self.mask = torch.ones(shape)
        if case["data"]["loss_mask"] == "uneven":
            share = torch.rand(shape[:1] + (1, 1), generator=generator)
            self.mask = (torch.rand(shape, generator=generator) < 0.2 + 0.6 * share).float()
            self.mask[..., 0] = 1.0
        self.attention = _attention_mask(shape, case["data"]["documents"], generator)
        self.padding = None
        if case["data"]["padding"] == "uneven":
            lengths = torch.randint(1, shape[2] + 1, shape[:2] + (1,), generator=generator)
            self.padding = torch.arange(shape[2]) >= lengths
            self.mask = self.mask * ~self.padding
        if case["data"]["microbatches"] == "equal":
            self.tokens, self.labels, self.mask, self.attention, self.padding = (tensor if tensor is None else tensor[:1].expand_as(tensor) for tensor in (
                self.tokens, self.labels, self.mask, self.attention, self.padding))
        positions = [torch.arange(start, start + length) for start, length in cuts.zig_zag(shape[2], layout)]
        self.positions = torch.cat(positions)
        self.counts = [(int(mask[:, self.positions].sum()), int(mask.sum())) for mask in self.mask]
        self.numbers = range(layout.at["dp"], shape[0], layout.n["dp"])

    def __iter__(self):
        """(number, this rank's tokens, labels, loss mask and positions [b, s / cp], attention mask of whole sequences, padding [b, s / cp] or None, counts).

        counts: tokens that count, of this rank's piece and of the whole microbatch."""
        for number in self.numbers:
            pieces = [tensor[number][:, self.positions].contiguous() for tensor in (self.tokens, self.labels, self.mask)]
            padding = None if self.padding is None else self.padding[number][:, self.positions].contiguous()
            tensors = (*pieces, self.positions.expand(len(pieces[0]), -1).contiguous(), self.attention[number], padding)
            yield (number, *(tensor if tensor is None else tensor.to(devices.device()) for tensor in tensors), self.counts[number])


def _attention_mask(shape, documents, generator):
    """Causal; of several documents in a sequence none sees another."""
    count, size, length = shape
    hidden = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
    if documents == 1:
        return hidden.expand(count, 1, 1, length, length)
    starts = torch.rand(count, size, length, generator=generator) < (documents - 1) / max(length - 1, 1)
    document = starts.cumsum(-1)
    return (hidden | (document[..., :, None] != document[..., None, :])).unsqueeze(2)


def loss_function(contract, mask, counts, record):
    """The loss function of one microbatch as the schedule calls it: the model's per-token losses [b, s / cp] to what `contract` promises.

    mean: (loss, report), the mean over all tokens of the microbatch whichever cp rank has them (the schedule undoes the division by cp).
    sum_and_count, per_token: (sum, tokens, report) of this rank's tokens. counts: as Batches gives them. record: is given this rank's share
    of the mean."""
    def loss(losses):
        summed = (losses.float() * mask).sum()
        share = summed / counts[1]
        record(share.detach())
        report = {"loss": share.detach()}
        return (share, report) if contract == "mean" else (summed, torch.tensor(counts[0], dtype=torch.int, device=mask.device), report)
    return loss
