"""The target of PyTorch's own parallel training: sound layouts pass, a planted mistake is found and named, scripts run."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

from torch_train_target import fields

SHARDFUZZ = os.environ.get("SHARDFUZZ", "build/shardfuzz")
CORPUS = "corpus/regress/torch-train"
WORKER = f"{sys.executable} -m torch_train_target"
PLANTED = """
from torch_train_target import program, serving
sound = program.Data.__init__
def counts_of_all_ranks(self, case, step, index, ranks):
    sound(self, case, step, index, ranks)
    self.counts = [count * ranks for count in self.counts]
program.Data.__init__ = counts_of_all_ranks
serving.serve()
"""


def outcomes(worker, cases):
    """The records of cases, in order."""
    with tempfile.TemporaryDirectory() as folder:
        path, record = os.path.join(folder, "cases.jsonl"), os.path.join(folder, "record")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(case) + "\n" for case in cases)
        subprocess.run([SHARDFUZZ, "worker", worker, path, "--record", record], capture_output=True, text=True, check=False)
        with open(record, encoding="utf-8") as file:
            return [json.loads(line) for line in file]


class Training(unittest.TestCase):
    def test_sound_layouts_pass(self):
        cases = [
            {"layout": {"dp": 2}, "parallel": {"zero1": True}, "steps": 2, "optimizer": {"name": "adam", "clip": 0.5}, "data": {"ignored": True}},
            {"layout": {"dp": 2, "fsdp": 2}, "dtype": "bfloat16", "data": {"microbatches": 2}, "parallel": {"lazy_sync": "always"}},
            {"layout": {"tp": 2}, "parallel": {"sequence": True}, "model": {"skip": True}},
            {"layout": {"pp": 2}, "parallel": {"schedule": "zbv"}, "model": {"layers": 4}, "data": {"microbatches": 4}, "optimizer": {"clip": 0.5}},
            {"layout": {"pp": 2}, "parallel": {"schedule": "1f1b"}, "recompute": "block", "data": {"microbatches": 3}},
            {"layout": {"dp": 2}, "steps": 3, "optimizer": {"name": "adamw"}, "checkpoint": {"before": 2, "into": "fsdp"}},
        ]
        for case, seen in zip(cases, outcomes(WORKER, cases)):
            self.assertEqual(seen["verdict"], "PASS", (case, seen))

    def test_known_bugs(self):
        names = sorted(name for name in os.listdir(CORPUS) if name.endswith(".json"))
        cases = [json.load(open(f"{CORPUS}/{name}", encoding="utf-8")) for name in names]
        for name, case, seen in zip(names, cases, outcomes(WORKER, [case["framework"] for case in cases])):
            kind = case["expect"]["signature"].split("/")[1]
            self.assertEqual(seen["verdict"], "FINDING", name)
            self.assertIn(f"/{kind}/", seen["first"], name)

    def test_a_wrong_divisor_is_found_and_named(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "planted.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(PLANTED)
            done = subprocess.run([SHARDFUZZ, "fuzz", "--target", f"worker:{sys.executable} {path}", "--cases", "3", "--jobs", "1", "--set", "layout.fsdp=2", "--set", "layout.dp=1",
                                   "--set", "layout.pp=1", "--set", "layout.tp=1", "--out", folder, "--json"], capture_output=True, text=True, check=False)
            found = json.loads(done.stdout.splitlines()[-1])["by_signature"]
            self.assertTrue(any("loss" in one["signature"] and one["diagnosis"]["class"] == "scale" for one in found), (found, done.stderr[-2000:]))

    def test_a_script_runs_alone(self):
        from torch_train_target import serving
        case = self.complete({"layout": {"fsdp": 2}, "steps": 2})
        text = serving.script(case, "s0/mb0/bwd/act_grad/blocks.0.mlp.down/0")
        self.assertLess(len(text), 24576)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "script.py")
            for planted, code in ((text, 0), (text.replace("shape[1] // ranks", "shape[1] // ranks - (ranks > 1)"), 1)):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(planted)
                done = subprocess.run([sys.executable, "-W", "ignore", path], capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, code, done.stderr[-2000:] + done.stdout)
        self.assertIn("step 0: gradient of blocks.0.mlp.down.weight: off by", done.stdout)

    @staticmethod
    def complete(changes):
        """A case as the harness sends it."""
        case = {}
        for path, field in fields.FIELDS.items():
            *groups, last = path.split(".")
            at, given = case, changes
            for group in groups:
                at, given = at.setdefault(group, {}), given.get(group, {})
            at[last] = given.get(last, field["choices"][0] if "choices" in field else field["min"])
        return case


if __name__ == "__main__":
    unittest.main()
