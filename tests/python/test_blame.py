"""The operation that made a tensor wrong is found by what the ranks' values come to."""
import os
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn

import models
import worlds
from shardfuzz import ShardfuzzError, blame
from shardfuzz.blame import recording as noting
from shardfuzz.tracer import Tracer

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = os.path.relpath(os.path.join(HERE, "models.py"))


def note(tensor, model, optimizer, step, folder, rank, batch):
    """Runs a step and writes what it noted. rank: None on one device."""
    spread = {} if rank is None else {"batch": batch}
    at = os.path.join(folder, "alone" if rank is None else "parallel")
    os.makedirs(at, exist_ok=True)
    recording = blame.Recording(tensor)
    with Tracer(os.path.join(folder, "trace"), model, optimizer, quiet=True, operations=recording, **spread) as tracer:
        torch.manual_seed(1)
        step(model, optimizer)
    recording.write(at, rank or 0, tracer.layout.groups())


def tensor_parallel(rank, folder, tensor, fault):
    make, step, _ = models.build_parallel({"tp": 2}, fault=fault)
    note(tensor, *make(), step, folder, rank, "same")


def model_alone(rank, folder, tensor):
    note(tensor, *models.build(), models.train_step, folder, None, None)


class Rows(nn.Module):
    """What data-parallel ranks train on their own rows."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.outer = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.outer(torch.tanh(self.inner(x)))


def data_parallel(rank, folder, tensor, joins):
    """joins(gradient): what the ranks do with a gradient. rank None: the same on one device."""
    model = Rows()

    def step(model, optimizer):
        x = torch.randn(6, 8)
        model(x if rank is None else x.chunk(2)[rank]).square().mean().backward()
        for parameter in model.parameters() if rank is not None else ():
            joins(parameter.grad)
        optimizer.step()
    note(tensor, model, torch.optim.SGD(model.parameters(), 0.1), step, folder, rank, None if rank is None else [0, 1])


def rows_alone(rank, folder, tensor):
    data_parallel(None, folder, tensor, None)


def not_at_all(gradient):
    pass


def divided_again(gradient):
    dist.all_reduce(gradient)
    gradient.div_(2)
    gradient.mul_(0.5)


def by_messages(gradient):
    """To the neighbour and back, posted before it is sent."""
    other, came = 1 - dist.get_rank(), torch.empty_like(gradient)
    waits = [dist.irecv(came, other), dist.isend(gradient.clone(), other)]
    for one in waits:
        one.wait()
    gradient.add_(came)


def line_of(path, text):
    with open(path) as file:
        return 1 + file.read().split(text)[0].count("\n")


class BlameTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def explained(self, tensor, rank, parallel, alone, given):
        worlds.run(2, parallel, self.folder.name, tensor, given)
        worlds.run(1, alone, self.folder.name, tensor)
        there, here = (blame.read(os.path.join(self.folder.name, name)) for name in ("alone", "parallel"))
        self.assertEqual(sorted(here), [0, 1])
        return blame.explain(tensor, there[0], here, rank)

    def of_tensor_parallel(self, tensor, fault="partial-output"):
        return self.explained(tensor, 1, tensor_parallel, model_alone, fault)

    def of_data_parallel(self, joins):
        return self.explained("s0/mb0/step/main_grad/inner.weight/0", -1, data_parallel, rows_alone, joins)

    def test_a_sum_that_nobody_makes_is_named_where_its_parts_come_from(self):
        line = line_of(models.__file__, "return x + self.fc2")
        self.assertEqual(self.of_tensor_parallel("s0/mb0/fwd/act/layers.1.fc2/0"),
                         f"aten.addmm ({MODELS}:{line}) gives a part of the result on each rank: the sum over ranks 0, 1 agrees with it")

    def test_the_operation_that_reads_a_part_is_the_first_wrong_one(self):
        text = self.of_tensor_parallel("s0/mb0/fwd/act/layers.1/0")
        self.assertRegex(text, r"^aten\.add\.Tensor \(.*models\.py:\d+\) is the first whose result agrees with nothing on one device; it reads ")
        self.assertRegex(text, r"aten\.addmm \(.*\): the sum over ranks 0, 1 agrees")

    def test_nothing_is_said_of_what_is_right(self):
        self.assertEqual(self.of_tensor_parallel("s0/mb0/fwd/act/layers.1/0", None), "")

    def test_gradients_that_nobody_joins(self):
        self.assertRegex(self.of_data_parallel(not_at_all), r"^aten\.mm \(backward of .*test_blame\.py:\d+\) gives a part of the result on each rank: "
                                                            r"the mean over ranks 0, 1 agrees with it$")

    def test_a_factor_too_many_is_where_it_comes_in(self):
        line = line_of(__file__, "gradient.mul_(0.5)")
        self.assertRegex(self.of_data_parallel(divided_again), rf"^aten\.mul_\.Tensor \(.*test_blame\.py:{line}\) is the first .* it reads aten\.div_\.Tensor .*: agrees$")

    def test_a_message_is_read_when_it_has_come(self):
        text = self.of_data_parallel(by_messages)
        self.assertRegex(text, r"^aten\.add_\.Tensor .* is the first .*aten\.mm .*: the mean over ranks 0, 1 agrees")
        self.assertRegex(text, r"c10d\.recv_ .*: the mean over ranks 0, 1 agrees")

    def test_more_than_fits_is_an_error_in_a_line(self):
        with mock.patch.object(noting, "BYTES_MAX", 1000), self.assertRaisesRegex(ShardfuzzError, "give more than"):
            with blame.Recording("s0/mb0/fwd/act/inner/0"):
                torch.ones(20, 20) + 1

    def test_the_command_runs_a_script_both_ways(self):
        script = os.path.join(self.folder.name, "traced.py")
        with open(script, "w") as file:
            file.write("import torch, shardfuzz\nimport torch.distributed as dist\n"
                       "def build():\n    torch.manual_seed(0)\n    model = torch.nn.Linear(8, 4)\n    return model, torch.optim.SGD(model.parameters(), 0.1)\n"
                       "def step(model, optimizer):\n    x = torch.randn(6, 8)\n    x = x.chunk(2)[dist.get_rank()] if dist.is_initialized() else x\n"
                       "    loss = model(x).square().mean()\n    loss.backward()\n    optimizer.step()\n    return loss\n"
                       "if dist.is_torchelastic_launched():\n    dist.init_process_group('gloo')\n    shardfuzz.trace('parallel', build, step, batch=[0, 1])\n"
                       "    dist.destroy_process_group()\nelse:\n    shardfuzz.reference('reference', build, step)\n")

        def said(*arguments):
            return subprocess.run([sys.executable, "-m", "shardfuzz.blame", *arguments], cwd=self.folder.name, capture_output=True, text=True,
                                  env=dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=os.pathsep.join(sys.path)))
        done = said("s0/mb0/step/main_grad/weight/0", "--", sys.executable, script, "--",
                    sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"^aten\.mm \(backward of traced\.py:10\) gives a part of the result on each rank: the mean over ranks 0, 1 agrees with it\n$")
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["traced.py"])
        done = said("s0/mb0/fwd/act/none/0", "--", "true", "--", "true")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertRegex(done.stderr, r"^shardfuzz: true: no rank has s0/mb0/fwd/act/none/0\n$")


if __name__ == "__main__":
    unittest.main()
