"""The target of PyTorch's own parallel training: sound layouts pass, a planted mistake is found and named, scripts run."""
import json
import subprocess
import sys
import unittest

from target_cases import SHARDFUZZ, Program, complete, known_cases, outcomes_of, place_of, run_text
from torch_train_target import fields

CORPUS = "corpus/regress/torch-train"
WORKER = f"{sys.executable} -m torch_train_target"
PLANTED = """
from torch_train_target import program, serving
sound = program.Data.__init__
def counts_of_all_ranks(self, case, step, index, ranks, device):
    sound(self, case, step, index, ranks, device)
    self.counts = [count * ranks for count in self.counts]
program.Data.__init__ = counts_of_all_ranks
serving.serve()
"""


SOUND = [
    {"layout": {"dp": 2}, "parallel": {"zero1": True}, "steps": 2, "optimizer": {"name": "adam", "clip": 0.5}, "data": {"ignored": True}},
    {"layout": {"dp": 2, "fsdp": 2}, "dtype": "bfloat16", "data": {"microbatches": 2}, "parallel": {"lazy_sync": "always"}},
    {"layout": {"tp": 2}, "parallel": {"sequence": True}, "model": {"skip": True}},
    {"layout": {"pp": 2}, "parallel": {"schedule": "zbv"}, "model": {"layers": 4}, "data": {"microbatches": 4}, "optimizer": {"clip": 0.5}},
    {"layout": {"pp": 2}, "parallel": {"schedule": "1f1b"}, "recompute": "block", "data": {"microbatches": 3}},
    {"layout": {"dp": 2}, "steps": 3, "optimizer": {"name": "adamw"}, "checkpoint": {"before": 2, "into": "fsdp"}},
]


class Training(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.known = known_cases(CORPUS)
        cls.seen = outcomes_of(WORKER, sound=SOUND, known=[case["framework"] for case in cls.known.values()])

    def test_sound_layouts_pass(self):
        for case, seen in zip(SOUND, self.seen["sound"]):
            self.assertEqual(seen["verdict"], "PASS", (case, seen))

    def test_known_bugs(self):
        for (name, case), seen in zip(self.known.items(), self.seen["known"]):
            self.assertEqual(seen["verdict"], "FINDING", name)
            self.assertIn(f"/{place_of(case)[0]}/", seen["first"], name)

    def test_a_wrong_divisor_is_found_and_named(self):
        with Program(PLANTED) as planted:
            done = subprocess.run([SHARDFUZZ, "fuzz", "--target", f"worker:{planted.command}", "--cases", "3", "--jobs", "1", "--set", "layout.fsdp=2", "--set", "layout.dp=1",
                                   "--set", "layout.pp=1", "--set", "layout.tp=1", "--out", planted.folder, "--json"], capture_output=True, text=True, check=False)
            found = json.loads(done.stdout.splitlines()[-1])["by_signature"]
            self.assertTrue(any("loss" in one["signature"] and one["diagnosis"]["class"] == "scale" for one in found), (found, done.stderr[-2000:]))

    def test_without_cuda_one_line_and_exit_3(self):
        done = subprocess.run([SHARDFUZZ, "fuzz", "--target", f"worker:{WORKER}", "--device", "cuda", "--cases", "1"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (3, 1), done.stderr)
        self.assertIn("is built without CUDA", done.stderr)

    def test_a_script_runs_alone(self):
        from torch_train_target import serving
        case = complete(fields.FIELDS, {"layout": {"fsdp": 2}, "steps": 2})
        text = serving.script(case, "s0/mb0/bwd/act_grad/blocks.0.mlp.down/0")
        self.assertLess(len(text), 65536)
        for planted, code in ((text, 0), (text.replace("shape[1] // ranks", "shape[1] // ranks - (ranks > 1)"), 1)):
            done = run_text(planted)
            self.assertEqual(done.returncode, code, done.stderr[-2000:] + done.stdout)
        self.assertIn("step 0: gradient of blocks.0.mlp.down.weight: off by", done.stdout)


if __name__ == "__main__":
    unittest.main()
