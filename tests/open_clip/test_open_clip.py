"""The target of open_clip's losses: right gathers pass, wrong ones are found, planted mistakes are found and named, scripts run."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

from open_clip_target import fields

SHARDFUZZ = os.environ.get("SHARDFUZZ", "build/shardfuzz")
CORPUS = "corpus/regress/open-clip"
WORKER = f"{sys.executable} -m open_clip_target"
PLANT = """
import torch
from open_clip_target import program, serving
{mistake}
serving.serve()
"""
SWAPPED = """
losses, sound = program.LOSSES, torch.distributed.nn.all_gather
def swapped(tensor):
    return sound(tensor)[::-1]
torch.distributed.nn.all_gather = swapped
"""
OWN_ROWS = """
sound = program.make_loss
program.make_loss = lambda case, rank, ranks: sound(case, 0, 1)
"""
LABELS = """
sound = program.LOSSES.ClipLoss.get_ground_truth
def of_rank_0(self, device, count):
    return torch.arange(count)
program.LOSSES.ClipLoss.get_ground_truth = of_rank_0
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


class OpenClip(unittest.TestCase):
    def test_right_gathers_pass(self):
        cases = [
            {"layout": {"dp": 2}},
            {"layout": {"dp": 3}, "loss": {"local_loss": True, "cache_labels": True}, "data": {"microbatches": 2}},
            {"layout": {"dp": 2}, "loss": {"name": "distill", "local_loss": True}, "views": {"count": 3, "pool": "max"}, "steps": 2},
            {"layout": {"dp": 2}, "loss": {"name": "coca"}, "model": {"attention": True}},
            {"layout": {"dp": 2}, "views": {"count": 2, "pool": "confidence"}, "prompts": {"levels": 2, "templates": 2}},
            *({"layout": {"dp": 3 + number % 2}, "loss": {"name": "siglip", "dist_impl": way}, "model": {"logit_bias": True}}
              for number, way in enumerate(fields.FIELDS["loss.dist_impl"]["choices"])),
        ]
        for case, seen in zip(cases, outcomes(WORKER, cases)):
            self.assertEqual(seen["verdict"], "PASS", (case, seen))

    def test_known_bugs(self):
        names = sorted(name for name in os.listdir(CORPUS) if name.endswith(".json"))
        cases = [json.load(open(f"{CORPUS}/{name}", encoding="utf-8")) for name in names]
        for name, case, seen in zip(names, cases, outcomes(WORKER, [case["framework"] for case in cases])):
            kind, module = case["expect"]["signature"].split("/")[1:]
            self.assertEqual(seen["verdict"], "FINDING", name)
            self.assertIn(f"/{kind}/{module.split('@')[0]}/", seen["first"], name)

    def test_planted_mistakes_are_found(self):
        local = {"layout": {"dp": 2}, "loss": {"local_loss": True}}
        for mistake, case, first in ((SWAPPED, local, "/scalar/loss/"), (OWN_ROWS, {"layout": {"dp": 2}}, "/scalar/loss/"), (LABELS, local, "/scalar/loss/")):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "planted.py")
                with open(path, "w", encoding="utf-8") as file:
                    file.write(PLANT.format(mistake=mistake))
                seen, = outcomes(f"{sys.executable} {path}", [case])
            self.assertEqual(seen["verdict"], "FINDING", (mistake, seen))
            self.assertIn(first, seen["first"], mistake)

    def test_a_script_runs_alone(self):
        from open_clip_target import serving
        case = self.complete({"layout": {"dp": 2}, "steps": 2})
        for gather, code in ((True, 0), (False, 1)):
            text = serving.script({**case, "loss": {**case["loss"], "gather_with_grad": gather}}, "s0/mb0/bwd/act_grad/text.projection/0")
            self.assertLess(len(text), 24576)
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "script.py")
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                done = subprocess.run([sys.executable, "-W", "ignore", path], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, code, done.stderr[-2000:] + done.stdout)
        self.assertIn("step 0: gradient of text.projection.weight: off by 50.0 %", done.stdout)

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
