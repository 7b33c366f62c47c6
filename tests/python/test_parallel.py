"""A small transformer under PyTorch's own parallelism, traced and judged by the program: right, and with a mistake planted."""
import json
import math
import os
import subprocess
import tempfile
import unittest
import warnings

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import models
import shardfuzz
import worlds

PROGRAM = os.environ.get("SHARDFUZZ", "shardfuzz")
PLAIN = ("sgd", torch.float32, "plain", 1)


STEPS = {"plain": models.train_step, "accumulating": models.accumulating_step}


def make_reference(rank, folder, optimizer, data_type, step, steps):
    shardfuzz.reference(folder, lambda: models.build(optimizer, data_type), STEPS[step], steps=steps)


def trace(rank, folder, sizes, sequence_parallel, fault, optimizer, data_type, step, steps):
    warnings.simplefilter("ignore")
    build, train_step, group = models.build_parallel(sizes, sequence_parallel, fault, optimizer, STEPS[step], data_type)
    shardfuzz.trace(folder, build, train_step, batch=group or "same", steps=steps)


def trace_replicated(rank, folder, forgotten):
    """Data parallel by DistributedDataParallel, or by hand with one parameter's gradient not reduced. The mesh is made, and given, by build."""
    mesh = {}

    def build():
        mesh["dp"] = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))["dp"]
        model, _ = models.build()
        model = model if forgotten else DistributedDataParallel(model)
        return model, models.optimizer_of(model, "sgd"), mesh["dp"]

    def reduce_by_hand(model, optimizer):
        tokens, labels = (models.rows(one, mesh["dp"]) for one in models.data())
        torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), labels.flatten()).backward()
        for name, parameter in model.named_parameters():
            if name != forgotten:
                torch.distributed.all_reduce(parameter.grad)
                parameter.grad /= 2
        optimizer.step()

    step = reduce_by_hand if forgotten else lambda model, optimizer: models.train_step(model, optimizer, mesh["dp"])
    shardfuzz.trace(folder, build, step)


def trace_tensor_parallel(rank, folder, seed, batch):
    """Parameters drawn by `seed`; the reference has 0. Each of two ranks has the whole batch; batch: what the trace is told."""
    build, train_step, _ = models.build_parallel({"tp": 2}, seed=seed)
    shardfuzz.trace(folder, build, train_step, batch=batch)


class Reduced(torch.autograd.Function):
    """A row-parallel layer's partial output summed over ranks; its gradient is each rank's."""

    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        torch.distributed.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Copied(torch.autograd.Function):
    """A column-parallel layer's input; its gradient is summed over ranks."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        torch.distributed.all_reduce(gradient)
        return gradient


class ColumnParallel(torch.nn.Linear):
    reduced = True

    def forward(self, x):
        return super().forward(Copied.apply(x) if self.reduced else x)


class RowParallel(torch.nn.Linear):
    reduced = True

    def forward(self, x):
        partial = torch.nn.functional.linear(x, self.weight)
        return (Reduced.apply(partial) if self.reduced else partial) + self.bias


def places_by_hand(name, tensor):
    """Where the pieces of hand-written MLPs lie: columns of fc1 with what follows up to fc2's input, and fc2's input dimension."""
    kind, subject = name.split("/")[3:5]
    activation = kind in ("act", "act_grad")
    if subject.endswith(("fc1", "act")) and (kind == "act" or subject.endswith("act")) or kind == "act_grad" and subject.endswith("fc2"):
        return shardfuzz.cut(tensor, -1, [0, 1])
    if not activation and ".fc1." in subject:
        return shardfuzz.cut(tensor, 0, [0, 1])
    return shardfuzz.cut(tensor, 1, [0, 1]) if not activation and subject.endswith("fc2.weight") else None


def trace_by_hand(rank, folder, fault):
    """Tensor-parallel MLPs as frameworks without DTensor have them; fault: the layer whose output, or whose input's gradient, is not summed."""
    def build():
        model = models.Transformer()
        for number, layer in enumerate(model.layers):
            layer.fc1 = ColumnParallel(models.HIDDEN, 2 * models.HIDDEN)
            layer.fc2 = RowParallel(2 * models.HIDDEN, models.HIDDEN)
            for name in ("fc1", "fc2"):
                getattr(layer, name).reduced = f"layers.{number}.{name}" != fault
        shardfuzz.fill(model, places=places_by_hand)
        return model, models.optimizer_of(model, "sgd")
    shardfuzz.trace(folder, build, models.train_step, places=places_by_hand)


class Parallel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.references = {}

    def folder(self, name):
        return os.path.join(self.scratch.name, name)

    def reference(self, *kind):
        """kind: optimizer, data type, step, number of steps. Made once."""
        if kind not in self.references:
            self.references[kind] = self.folder(f"reference-{len(self.references)}")
            worlds.run(1, make_reference, self.references[kind], *kind)
        return self.references[kind]

    def check(self, reference, candidate):
        """(exit code, what `shardfuzz check --json` says of the candidate)."""
        done = subprocess.run([PROGRAM, "check", reference, candidate, "--json"], capture_output=True, text=True)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        return done.returncode, json.loads(done.stdout.strip().splitlines()[-1])["candidates"][0]

    def judge(self, ranks, action, *args, kind=PLAIN):
        """Traces on ranks and checks: (exit code, what is said)."""
        reference, candidate = self.reference(*kind), self.folder("candidate")
        worlds.run(ranks, action, candidate, *args)
        return self.check(reference, candidate)

    def passes(self, sizes, sequence_parallel=False, kind=PLAIN):
        code, said = self.judge(math.prod(sizes.values()), trace, sizes, sequence_parallel, None, *kind, kind=kind)
        self.assertEqual((code, said["findings"]), (0, 0), said)
        self.assertGreater(said["judged"], 100)

    def test_check_of_tensor_parallel_finds_nothing(self):
        self.passes({"tp": 2})

    def test_check_of_sequence_parallel_in_bf16_finds_nothing(self):
        self.passes({"tp": 2}, True, ("adam", torch.bfloat16, "plain", 1))

    def test_check_of_fsdp_with_two_clipped_steps_of_two_microbatches_finds_nothing(self):
        self.passes({"dp": 2}, False, ("adam", torch.float32, "accumulating", 2))

    def test_check_of_fsdp_over_sequence_parallel_finds_nothing(self):
        self.passes({"dp": 2, "tp": 2}, True, ("adam", torch.float32, "accumulating", 2))

    def test_check_of_data_parallel_finds_nothing(self):
        code, said = self.judge(2, trace_replicated, None)
        self.assertEqual((code, said["findings"]), (0, 0), said)

    def test_check_of_tensor_parallel_by_hand_finds_nothing(self):
        code, said = self.judge(2, trace_by_hand, None)
        self.assertEqual((code, said["findings"]), (0, 0), said)

    def test_check_of_other_parameters_at_the_start_says_so(self):
        code, said = self.judge(2, trace_tensor_parallel, 1, "same")
        self.assertEqual((code, said["first"]["id"]), (1, "s0/mb0/step/param/embedding.weight/0"))
        self.assertRegex(said["start"], r"^the runs do not start from the same parameters: 28 of 28 differ, first embedding\.weight; set the same seed")

    def test_check_with_a_wrong_batch_says_both_shapes(self):
        code, said = self.judge(2, trace_tensor_parallel, 0, [0, 1])
        self.assertEqual((code, said["start"], said["first"]["what"], said["first"]["hint"]), (1, None, "its shape is [8, 8, 32], and should be [4, 8, 32]", "is `batch=` right?"))

    def test_check_with_an_output_left_partial_names_its_module(self):
        code, said = self.judge(2, trace, {"tp": 2}, False, "partial-output", *PLAIN)
        self.assertEqual((code, said["first"]["id"]), (1, "s0/mb0/fwd/act/layers.1.fc2/0"))
        self.assertRegex(said["diagnosis"]["text"], "^rank . holds a partial sum over tp: ")

    def test_check_with_an_output_not_reduced_by_hand_names_its_module(self):
        code, said = self.judge(2, trace_by_hand, "layers.0.fc2")
        self.assertEqual((code, said["first"]["id"]), (1, "s0/mb0/fwd/act/layers.0.fc2/0"))
        self.assertRegex(said["diagnosis"]["text"], "^rank . holds a partial sum over the ranks: .* give the reference and 1 times the bias, which each rank adds")

    def test_check_with_an_input_gradient_not_reduced_by_hand_names_its_module(self):
        code, said = self.judge(2, trace_by_hand, "layers.1.fc1")
        self.assertEqual((code, said["first"]["id"]), (1, "s0/mb0/bwd/act_grad/layers.1.fc1/0"))

    def test_check_with_a_gradient_not_reduced_names_its_parameter(self):
        code, said = self.judge(2, trace_replicated, "layers.0.norm2.weight")
        self.assertEqual((code, said["first"]["id"]), (1, "s0/mb0/step/main_grad/layers.0.norm2.weight/0"))
        self.assertRegex(said["diagnosis"]["text"], "^rank . holds a p.* sum over dp: ")


if __name__ == "__main__":
    unittest.main()
