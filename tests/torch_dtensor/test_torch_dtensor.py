"""The DTensor target: its operations, its tensors on ranks, and what a campaign finds."""
import contextlib
import itertools
import json
import logging
import os
import subprocess
import sys
import tempfile
import unittest

import torch
import torch.distributed as dist
from torch.distributed._local_tensor import LocalTensor
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OpSchema
from torch.testing._internal.distributed.fake_pg import FakeStore

from shardfuzz import writer
from shardfuzz.chains import CHAIN, NONE, gradient_of
from shardfuzz.chains.exact import values
from shardfuzz.chains.limited import refused
from shardfuzz.perturb import Jitter
from shardfuzz.places import whole
from shardfuzz.worker import Refused
from target_cases import SHARDFUZZ, known_cases, outcomes_of, place_of
from target_cases import complete as complete_case
from torch_dtensor_target import program, shapes
from torch_dtensor_target.fields import FIELDS
from torch_dtensor_target.operations import NAMES
from torch_dtensor_target.ranks import Ranks
from torch_dtensor_target.serving import plain

CORPUS = "corpus/regress/torch-dtensor"
WORKER = f"{sys.executable} -m torch_dtensor_target"


def complete(operations, shape=(4, 4), **changes):
    """A case as the harness sends it."""
    case = complete_case(FIELDS, {})
    for number, name in enumerate(operations, 1):
        case["op"][str(number)]["name"] = name
    case["shape"]["dims"] = len(shape)
    case["shape"].update({str(d): size for d, size in enumerate(shape)})
    return {**case, **changes}


def setUpModule():
    logging.disable(logging.WARNING)
    dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())


def tearDownModule():
    dist.destroy_process_group()


class Shapes(unittest.TestCase):
    """What a process keeps of DTensor's search for the shapes of results."""

    def setUp(self):
        shapes.keep()
        self.ranks = Ranks(2, 1, range(2))
        self.x = DTensorSpec(self.ranks.mesh, (Replicate(),), tensor_meta=TensorMeta(torch.Size([4, 6]), (6, 1), torch.float64))

    @staticmethod
    def ask(operation, *arguments):
        return DTensor._op_dispatcher.sharding_propagator._propagate_tensor_meta_non_cached(OpSchema(operation, arguments, {}))

    def test_answers_differ_where_any_argument_does(self):
        for k in (1, 2, 3, 2, 1):
            self.assertEqual(self.ask(torch.ops.aten.topk.default, self.x, k)[0].shape, (4, k))
        for value, dtype in ((1, torch.int64), (True, torch.bool), (1.0, torch.float32)):
            self.assertEqual(self.ask(torch.ops.aten.scalar_tensor.default, value).dtype, torch.float32)
            self.assertEqual(self.ask(torch.ops.aten.full.default, [2], value).dtype, dtype)

    def test_a_changed_answer_is_not_given_again(self):
        first = self.ask(torch.ops.aten.split.Tensor, self.x, 2)
        first.clear()
        self.assertEqual([one.shape for one in self.ask(torch.ops.aten.split.Tensor, self.x, 2)], [(2, 6), (2, 6)])

    def test_simulated_ranks_ask_as_one(self):
        alone = self.ask(torch.ops.aten.cumsum.default, self.x, 1)
        with self.ranks.entered():
            self.assertEqual(self.ask(torch.ops.aten.cumprod.default, self.x, 1), alone)
            with shapes.unsimulated():
                self.assertNotIsInstance(torch.ones(2), LocalTensor)
            self.assertIsInstance(torch.ones(2), LocalTensor)


class Limits(unittest.TestCase):
    """Code that fails is refused, and what was broken off is the last that a process runs."""

    def refusal_of(self, seconds, deed):
        with self.assertRaises(Refused) as seen, refused(seconds, "here: "):
            deed()
        return str(seen.exception), seen.exception.last

    def test_failures_and_searches_without_end(self):
        def search():
            while True:
                with contextlib.suppress(Exception):
                    sum(range(1000))

        def fail():
            raise ValueError("no such dimension\nand more")
        self.assertEqual(self.refusal_of(60, fail), ("here: ValueError: no such dimension", False))
        self.assertEqual(self.refusal_of(0.05, search), ("here: OutOfTime: more than 0.05 s of processor time", True))


class Operations(unittest.TestCase):
    def test_nearly_all_run_on_plain_tensors(self):
        runs = set()
        for name, shape in itertools.product(NAMES, [(4, 4), (4,), (2, 4, 4), (2, 4, 4, 4), (4, 3)]):
            try:
                plain(complete([name], shape))
                runs.add(name)
            except Refused:
                pass
        self.assertGreaterEqual(len(runs), 490, sorted(set(NAMES) - runs))

    def test_a_reference_step_by_step_is_the_whole_chain(self):
        case = complete(["mm", "softmax", "cumsum", "mean.all"])
        case["op"]["3"]["dim"] = 1
        found = dict(plain(case))
        operations = program.operations_of(case)
        x = program.first_tensor(case).requires_grad_()
        m = values("0.1.m", [4, 3], torch.float64).requires_grad_()
        loss = torch.cumsum(torch.softmax(x @ m, 0), 1).mean()
        given = program.gradient_for(case, operations[-1], 0, loss)
        for name, gradient in zip((gradient_of(operations[0]), gradient_of(operations[0], "m")), torch.autograd.grad(loss, [x, m], given)):
            torch.testing.assert_close(found[name], gradient)

    def test_a_chain_ends_where_nothing_follows(self):
        case = complete(["mm", "softmax"])
        self.assertEqual([one.name for one in program.operations_of(case)], ["1.mm", "2.softmax"])
        self.assertEqual(case["op"][str(CHAIN)]["name"], NONE)


class OnRanks(unittest.TestCase):
    def test_tensors_are_whole_again_in_all_placements(self):
        for tp, dp in ((2, 1), (3, 1), (2, 2), (4, 2)):
            ranks = Ranks(tp, dp, range(tp * dp))
            for names in itertools.product(["R", "S0", "S1", "P", "Pavg", "Pmax", "Pmin"], repeat=1 if dp == 1 else 2):
                full = values("x", [5, 3], torch.float64)
                with ranks.entered():
                    made = ranks.make(full, ranks.placements(names, 2), "x")
                    whole = made.full_tensor()
                for rank, local in ranks._locals(whole).items():
                    self.assertTrue(torch.equal(local, full), (tp, dp, names, rank))

    def test_pieces_add_up(self):
        ranks = Ranks(2, 2, range(4))
        full = values("x", [5, 3], torch.float64)
        with ranks.entered():
            pieces = ranks.pieces(ranks.make(full, ranks.placements(["P", "S0"], 2), "x"))
        total = torch.zeros(5, 3, dtype=torch.float64)
        for _, local, place in pieces:
            (first, count, summed), = place.index[0]
            self.assertGreater(summed, 0)
            total[first:first + count] += local
        self.assertTrue(torch.equal(total, full))


def softmax_of(name, x, **changes):
    return {"op": {"1": {"name": name}, "2": {"name": "softmax"}}, "layout": {"tp": 2, "dp": 2}, "x": {"tp": x, "dp": "S1"}, **changes}


SOUND = [*(softmax_of(name, x) for name, x in [("mm", "S1"), ("sum.dim", "P"), ("layer_norm.affine", "S0"), ("gelu", "P"), ("transpose", "S1"), ("cat", "S0"),
                                               ("index_select", "S1"), ("sub", "P"), ("clone", "S0")]),
         softmax_of("mean.dim", "S0", shape={"0": 5, "1": 3}), softmax_of("tanh", "S0", shape={"0": 1})]


class Found(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.known = known_cases(CORPUS)
        cls.seen = outcomes_of(WORKER, sound=SOUND, known=[case["framework"] for case in cls.known.values()])

    def test_known_bugs(self):
        self.assertGreaterEqual(len(self.known), 8)
        for (name, case), seen in zip(self.known.items(), self.seen["known"]):
            self.assertEqual(seen["verdict"], "FINDING", name)
            self.assertIn("/{}/1.{}/".format(*place_of(case)), seen["first"], name)

    def test_right_operations_pass(self):
        for given, seen in zip(SOUND, self.seen["sound"]):
            self.assertEqual(seen["verdict"], "PASS", (given, seen))

    def test_a_finding_is_confirmed_on_processes_and_has_a_script(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([SHARDFUZZ, "fuzz", "--target", "worker:" + WORKER, "--cases", "4", "--jobs", "1", "--set", "op.1.name=any.all", "--set", "op.2.name=none",
                                   "--set", "layout.tp=2", "--set", "x.tp=S0", "--set", "shape.dims=2", "--out", folder, "--json"],
                                  capture_output=True, text=True, check=False)
            result = json.loads(done.stdout.splitlines()[-1])
            self.assertEqual([one["signature"] for one in result["by_signature"]], ["tolerance/act/any-all.to@tp"], done.stderr)
            self.assertEqual(result["by_signature"][0]["diagnosis"]["class"], "extra_reduction")
            script = os.path.join(os.path.dirname(result["by_signature"][0]["min"]), "script.py")
            shown = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
            self.assertEqual(shown.returncode, 1, shown.stderr)
            self.assertIn("DTensor:\ntensor(2., dtype=torch.float64)\nplain tensor:\ntensor(1., dtype=torch.float64)", shown.stdout)

    def test_a_claim_that_is_wrong_on_one_rank_alone_is_confirmed_in_no_time(self):
        """The ranks decide together whether a result has the shape that its placements say: one alone would wait in full_tensor() for ever."""
        given = {"op.1.name": "vector_norm.no_dims", "op.1.keepdim": "true", "op.2.name": "none", "layout.tp": 2, "layout.dp": 1, "x.tp": "S0", "shape.dims": 2, "shape.0": 4,
                 "before.call_with_other": "none", "backward": "false"}
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([SHARDFUZZ, "fuzz", "--target", "worker:" + WORKER, "--cases", "2", "--jobs", "1", "--shrink-budget", "0",
                                   "--out", folder, "--json"] + [word for field, choice in given.items() for word in ("--set", f"{field}={choice}")],
                                  capture_output=True, text=True, check=False, timeout=100)
            result = json.loads(done.stdout.splitlines()[-1])
            self.assertEqual([one["signature"] for one in result["by_signature"]], ["tolerance/act/vector_norm-no_dims@tp"], done.stderr)


class Replicas(unittest.TestCase):
    def test_close_ones_may_differ_by_rounding_and_by_no_more(self):
        x = values("x", [64, 8], torch.float64)
        near, far = x.clone(), x.clone()
        near[3, 3] *= 1 + 2.0**-52
        far[3, 3] *= 1.01
        for replicas, other, code in (("close", near, 0), ("equal", near, 1), ("close", far, 1)):
            with tempfile.TemporaryDirectory() as folder:
                def write(name, rank, ranks, tensor, replicas="equal"):
                    os.makedirs(f"{folder}/{name}", exist_ok=True)
                    writer.write_file(f"{folder}/{name}/{writer.file_name(rank)}", [("s0/mb0/fwd/act/a/0", tensor, whole((64, 8)))], rank, ranks, replicas=replicas)
                write("ref", 0, 1, x)
                write("draw", 0, 1, Jitter(1)(x, 2.0**-51))
                for rank, tensor in enumerate((x, other)):
                    write("cand", rank, 2, tensor, replicas)
                noise = subprocess.run([SHARDFUZZ, "noise", f"{folder}/ref", f"{folder}/draw"], capture_output=True, text=True, check=False)
                self.assertEqual(noise.returncode, 0, noise.stderr)
                seen = subprocess.run([SHARDFUZZ, "check", f"{folder}/ref", f"{folder}/cand"], capture_output=True, text=True, check=False)
                self.assertEqual(seen.returncode, code, (replicas, seen.stdout, seen.stderr))


if __name__ == "__main__":
    unittest.main()
