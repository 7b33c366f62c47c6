"""A small transformer under PyTorch's own parallelism, traced and judged by the program: right, and with a mistake planted."""
import json
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


def make_reference(rank, folder, optimizer, data_type, steps):
    def build():
        model, _ = models.build()
        model = model.to(data_type)
        return model, models.optimizer_of(model, optimizer)
    shardfuzz.reference(folder, build, models.train_step, steps=steps)


def trace(rank, folder, options, steps):
    warnings.simplefilter("ignore")
    build, train_step, group = models.build_parallel(**options)
    shardfuzz.trace(folder, build, train_step, batch=group or "same", steps=steps)


def trace_replicated(rank, folder, forgotten):
    """Data parallel by DistributedDataParallel, or by hand with one parameter's gradient not reduced."""
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))

    def build():
        model, _ = models.build()
        model = model if forgotten else DistributedDataParallel(model)
        return model, models.optimizer_of(model, "sgd")

    def reduce_by_hand(model, optimizer):
        tokens, labels = (models.rows(one, mesh["dp"]) for one in models.data())
        torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), labels.flatten()).backward()
        for name, parameter in model.named_parameters():
            if name != forgotten:
                torch.distributed.all_reduce(parameter.grad)
                parameter.grad /= 2
        optimizer.step()

    step = reduce_by_hand if forgotten else lambda model, optimizer: models.train_step(model, optimizer, mesh["dp"])
    shardfuzz.trace(folder, build, step, batch=mesh["dp"])


class Parallel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.references = {}

    def folder(self, name):
        return os.path.join(self.scratch.name, name)

    def reference(self, optimizer="sgd", data_type=torch.float32, steps=1):
        key = (optimizer, data_type, steps)
        if key not in self.references:
            self.references[key] = self.folder(f"reference-{len(self.references)}")
            worlds.run(1, make_reference, self.references[key], *key)
        return self.references[key]

    def check(self, reference, candidate):
        """(exit code, what `shardfuzz check --json` says of the candidate)."""
        done = subprocess.run([PROGRAM, "check", reference, candidate, "--json"], capture_output=True, text=True)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        return done.returncode, json.loads(done.stdout.strip().splitlines()[-1])["candidates"][0]

    def passes(self, options, optimizer="sgd", steps=1):
        candidate = self.folder("candidate")
        worlds.run(2 if sum(options["sizes"].values()) < 4 else 4, trace, candidate, {**options, "optimizer": optimizer}, steps)
        code, said = self.check(self.reference(optimizer, steps=steps), candidate)
        self.assertEqual((code, said["findings"]), (0, 0), said)
        self.assertGreater(said["judged"], 100)

    def test_check_of_tensor_parallel_finds_nothing(self):
        self.passes({"sizes": {"tp": 2}})

    def test_check_of_sequence_parallel_with_adam_over_two_steps_finds_nothing(self):
        self.passes({"sizes": {"tp": 2}, "sequence_parallel": True}, "adam", 2)

    def test_check_of_fsdp_finds_nothing(self):
        self.passes({"sizes": {"dp": 2}}, "adam", 2)

    def test_check_of_fsdp_over_sequence_parallel_finds_nothing(self):
        self.passes({"sizes": {"dp": 2, "tp": 2}, "sequence_parallel": True})

    def test_check_of_data_parallel_finds_nothing(self):
        worlds.run(2, trace_replicated, self.folder("candidate"), None)
        code, said = self.check(self.reference(), self.folder("candidate"))
        self.assertEqual((code, said["findings"]), (0, 0), said)

    def test_check_with_an_output_left_partial_names_its_module(self):
        worlds.run(2, trace, self.folder("candidate"), {"sizes": {"tp": 2}, "fault": "partial-output"}, 1)
        code, said = self.check(self.reference(), self.folder("candidate"))
        self.assertEqual((code, said["first"]["id"]), (1, "s0/mb0/fwd/act/layers.1.fc2/0"))

    def test_check_with_a_gradient_not_reduced_names_its_parameter(self):
        worlds.run(2, trace_replicated, self.folder("candidate"), "layers.0.norm2.weight")
        code, said = self.check(self.reference(), self.folder("candidate"))
        self.assertEqual((code, said["first"]["id"]), (1, "s0/mb0/step/main_grad/layers.0.norm2.weight/0"))


if __name__ == "__main__":
    unittest.main()
