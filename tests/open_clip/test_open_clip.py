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
PLANTED = """
import torch
from open_clip_target import program, serving

def swapped(tensor):
    return all_gather(tensor)[::-1]

def alone(case, rank, ranks):
    return make_loss(case, 0, 1)

def of_rank_0(self, device, count):
    return torch.arange(count)

all_gather, make_loss, build = torch.distributed.nn.all_gather, program.make_loss, serving.build
labels = program.LOSSES.ClipLoss.get_ground_truth
def planted(case, world):
    mistake = ["features of other ranks in the wrong order", "own rows alone", "labels of rank 0"][case["seed"]]
    torch.distributed.nn.all_gather = swapped if mistake.startswith("features") else all_gather
    program.make_loss = alone if mistake.startswith("own") else make_loss
    program.LOSSES.ClipLoss.get_ground_truth = of_rank_0 if mistake.startswith("labels") and world else labels
    return build(case, world)
serving.build = planted
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
        cases = [{"seed": mistake, "layout": {"dp": 2}, "loss": {"local_loss": mistake != 1}} for mistake in range(3)]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "planted.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(PLANTED)
            for case, seen in zip(cases, outcomes(f"{sys.executable} {path}", cases), strict=True):
                self.assertEqual(seen["verdict"], "FINDING", (case, seen))
                self.assertIn("/scalar/loss/", seen["first"], case)

    def test_a_script_runs_alone(self):
        from open_clip_target import serving
        case = self.complete({"layout": {"dp": 2}, "steps": 2, "loss": {"gather_with_grad": False}})
        text = serving.script(case, "s0/mb0/bwd/act_grad/text.projection/0")
        self.assertLess(len(text), 24576)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "script.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            done = subprocess.run([sys.executable, "-W", "ignore", path], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1, done.stderr[-2000:] + done.stdout)
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
