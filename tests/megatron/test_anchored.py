"""End to end in bf16, with a reference that is given the candidate's tensors: layouts that are right pass, each known bug is found where it is, and of
two wrong modules both are named."""
import json
import os
import pathlib
import shlex
import sys
import tempfile
import unittest

import torch
from known import BEFORE, FIRST, FOLDER
from megatron_core_target.fields import SEED
from planted import PLANTED, WRONG
from shardfuzz.anchors import Anchors
from shardfuzz.places import whole
from shardfuzz.writer import file_name, write_file
from test_isolated import CLEAN, WORKER, run

UNPLANTED = shlex.join([sys.executable, "-W", "ignore", "-m", "megatron_core_target", "serve"])


def recorded(worker, cases, *options):
    """The records of cases that one call of the program runs."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = pathlib.Path(folder, "record")
        run("worker", worker, "--record", str(path), *options, input="\n".join(map(json.dumps, cases)))
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


class AnchoredTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Clean and known cases in one run of the program, since importing the package takes seconds."""
        cls.clean = [{**case, "precision": ("bf16", "fp32")[number % 2]} for number, case in enumerate(CLEAN.values())]
        known = []
        for name in FIRST:
            document = json.loads(pathlib.Path(FOLDER, name + ".json").read_text(encoding="utf-8"))
            known.append({**document["framework"], "precision": "bf16", "seed": SEED["min"] + document["seed"]})
        records = recorded(UNPLANTED, cls.clean + known)
        cls.of_clean, cls.of_known = records[:len(cls.clean)], records[len(cls.clean):]

    def test_layouts_that_are_right_pass(self):
        for case, record in zip(self.clean, self.of_clean):
            with self.subTest(case=case):
                self.assertEqual((record["verdict"], record["first"]), ("PASS", ""), record)
                self.assertGreater(record["judged"], 80)
                self.assertLess(record["not_judged"], 0.2 * record["judged"])

    def test_known_bugs_in_bf16_are_found_where_they_are(self):
        first = {name: FIRST[BEFORE.get(name, name)] for name in FIRST}
        self.assertEqual({name: record["first"] for name, record in zip(FIRST, self.of_known)}, first)

    def test_two_wrong_modules_are_both_named(self):
        case = {"seed": PLANTED, "layout": {"tp": 2}, "precision": "bf16", "model": {"num_layers": 2}}
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            run("worker", WORKER, "--traces", folder, input=json.dumps(case))
            traces = os.path.join(folder, "case-00000")
            result = json.loads(run("check", os.path.join(traces, "reference"), os.path.join(traces, "candidate"), "--json").splitlines()[-1])["candidates"][0]
        culprits = [result["first"], *result["further"]]
        self.assertEqual([(one["subject"], one["class"]) for one in culprits], [(WRONG[0], "tolerance"), (WRONG[1], "conflict")])


class AnchorsTest(unittest.TestCase):
    """The reader of the candidate's tensors by itself."""

    def test_of_gives_the_tensor_in_the_type_that_is_asked_for_or_none(self):
        odd = torch.arange(3, dtype=torch.uint8).view(torch.float8_e4m3fn)     # what follows begins at an odd byte
        sums, short = torch.tensor([0.1, 0.2], dtype=torch.float64), torch.tensor([[1.5], [2.5]], dtype=torch.bfloat16)
        entries = [(name, tensor, whole(tensor.shape)) for name, tensor in (("odd", odd), ("sums", sums), ("short", short))]
        with tempfile.TemporaryDirectory() as folder:
            write_file(os.path.join(folder, file_name(0)), entries, 0, 1)
            anchors = Anchors(folder)
        self.assertTrue(torch.equal(anchors.of("sums", torch.empty(2)), sums.float()))
        self.assertTrue(torch.equal(anchors.of("short", torch.empty(2, 1, dtype=torch.bfloat16)), short))
        self.assertIsNone(anchors.of("short", torch.empty(1, 2, dtype=torch.bfloat16)))
        self.assertIsNone(anchors.of("none", torch.empty(2)))
        self.assertIsNot(anchors.of("sums", torch.empty(2)), anchors.of("sums", torch.empty(2)))


if __name__ == "__main__":
    unittest.main()
