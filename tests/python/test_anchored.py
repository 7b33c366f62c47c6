"""A reference that is given a candidate's tensors: it shows each wrong module alone, in bf16 too, and nothing where the candidate is right."""
import json
import os
import subprocess
import tempfile
import unittest
import warnings

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import models
import shardfuzz
import worlds

PROGRAM = os.environ.get("SHARDFUZZ", "shardfuzz")
LAYERS = 4


class Layer(nn.Module):
    """A residual MLP with an activation that works in place. again: recompute it in the backward pass."""

    def __init__(self, again):
        super().__init__()
        self.norm, self.up, self.act, self.down, self.again = nn.LayerNorm(16), nn.Linear(16, 32), nn.ReLU(inplace=True), nn.Linear(32, 16), again

    def branch(self, x):
        return self.down(self.act(self.up(self.norm(x))))

    def forward(self, x):
        return x + (checkpoint(self.branch, x, use_reentrant=False) if self.again else self.branch(x))


class Model(nn.Module):
    def __init__(self, again=False):
        super().__init__()
        self.first, self.layers, self.last = nn.Linear(8, 16), nn.ModuleList(Layer(again) for _ in range(LAYERS)), nn.Linear(16, 4)

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        return self.last(x)


def build(again=False):
    model = Model(again).bfloat16()
    shardfuzz.fill(model)
    return model, torch.optim.Adam(model.parameters(), 0.01)


def train_step(model, optimizer):
    optimizer.zero_grad()
    total = 0
    for number in range(2):
        shardfuzz.microbatch(number)
        x = torch.randn(6, 8).bfloat16()
        loss = model(x).float().square().mean() / 2
        loss.backward()
        total = total + loss.detach()
    shardfuzz.gradients()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    return total


def build_wrong():
    """An output 4 % too large, and its gradients with it; a weight whose gradient is 4 % too large."""
    model, optimizer = build()
    model.layers[1].up.register_forward_hook(lambda module, args, output: output * 1.04)
    model.layers[2].down.weight.register_hook(lambda gradient: gradient * 1.04)
    return model, optimizer


def trace_parallel(rank, folder, sizes):
    """A transformer in bf16 under PyTorch's own parallelism, two microbatches, AdamW."""
    warnings.simplefilter("ignore")
    make, step, group = models.build_parallel(sizes, "tp" in sizes, None, "adamw", models.accumulating_step, torch.bfloat16)
    shardfuzz.trace(folder, make, step, batch=group or "same", steps=2)


def trace_alone(rank, folder, make):
    shardfuzz.trace(folder, make, train_step, steps=2, batch="same")


def checked(trace, ranks, *arguments, candidate=True, make=build, step=train_step):
    """Names that `check` flags, and how many tensors it judges. trace(rank, folder, *arguments): the candidate; make, step: of the reference."""
    with tempfile.TemporaryDirectory() as folder:
        parallel, alone = os.path.join(folder, "parallel"), os.path.join(folder, "reference")
        worlds.run(ranks, trace, parallel, *arguments)
        worlds.run(1, lambda rank: shardfuzz.reference(alone, make, step, steps=2, candidate=parallel if candidate else None))
        done = subprocess.run([PROGRAM, "check", alone, parallel, "--json"], capture_output=True, text=True)
        if done.returncode not in (0, 1):
            raise AssertionError(done.stderr)
        result = json.loads(done.stdout.splitlines()[-1])["candidates"][0]
        return [finding["id"] for finding in result["flagged"]], result["judged"]


class AnchoredTest(unittest.TestCase):
    def test_reference_of_a_right_candidate_flags_nothing(self):
        for again in (False, True):
            with self.subTest(again=again):
                flagged, judged = checked(trace_alone, 1, lambda: build(again), make=lambda: build(again))
                self.assertEqual(flagged, [])
                self.assertGreater(judged, 180)

    def test_reference_of_right_layouts_flags_nothing(self):
        for sizes in ({"tp": 2}, {"dp": 2}):
            with self.subTest(**sizes):
                flagged, judged = checked(trace_parallel, 2, sizes, make=lambda: models.build("adamw", torch.bfloat16), step=models.accumulating_step)
                self.assertEqual(flagged, [])
                self.assertGreater(judged, 250)

    def test_reference_shows_wrong_modules_alone_where_whole_runs_blame_others_too(self):
        flagged, _ = checked(trace_alone, 1, build_wrong)
        self.assertEqual({name.split("/")[0] for name in flagged}, {"s0", "s1"})
        self.assertEqual({tuple(name.split("/")[3:5]) for name in flagged}, {
            ("act", "layers.1.up"), ("act_grad", "layers.1.up"), ("main_grad", "layers.1.up.weight"), ("main_grad", "layers.1.up.bias"),
            ("main_grad", "layers.2.down.weight")})
        whole, _ = checked(trace_alone, 1, build_wrong, candidate=False)
        self.assertIn("s0/mb0/fwd/act/layers.1.act/0", whole)   # follows from what comes in

    def test_reference_of_no_trace_is_an_error_of_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(shardfuzz.ShardfuzzError, "^shardfuzz anchors: .*no such file; a trace is a folder"):
                shardfuzz.reference(os.path.join(folder, "reference"), build, train_step, candidate=os.path.join(folder, "nowhere"))


if __name__ == "__main__":
    unittest.main()
