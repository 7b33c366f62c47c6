"""The target of independent Q-learning: right layouts pass, known bugs and planted mistakes are found, a script runs alone."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

from marl_iql_target import fields

SHARDFUZZ = os.environ.get("SHARDFUZZ", "build/shardfuzz")
CORPUS = "corpus/regress/marl-iql"
WORKER = f"{sys.executable} -m marl_iql_target"
PLANTED = """
import torch
import torch.distributed as dist
from marl_iql_target import program, serving

def on_rank_1_alone(case, learner):
    return updaters_of(case, learner) if dist.get_rank() == 1 else []

def of_the_stream_before(positions, radius):
    return neighbours(positions, radius).roll(1, 0)

def drawn_alike(case, stream):
    return case["seed"] + stream % 2

updaters_of, neighbours, seed_of, build = program.updaters_of, program.neighbours, program.Replay.seed_of, serving.build
def planted(case, world):
    mistake = ["target updated on one rank", "rewards of wrong neighbours", "replay drawn alike"][case["seed"]] if world else ""
    program.updaters_of = on_rank_1_alone if mistake.startswith("target") else updaters_of
    program.neighbours = of_the_stream_before if mistake.startswith("rewards") else neighbours
    program.Replay.seed_of = staticmethod(drawn_alike if mistake.startswith("replay") else seed_of)
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


class MarlIql(unittest.TestCase):
    def test_right_layouts_pass(self):
        cases = [
            {"layout": {"dp": 2}, "optimizer": {"name": "adam", "clip": 0.5}, "steps": 3},
            {"layout": {"dp": 2}, "model": {"parameters": "shared", "dueling": True}, "reward": {"radius": 2, "collision": 0.25}},
            {"layout": {"dp": 2}, "target": {"update": "hard"}, "loss": {"double": True}, "parallel": {"wrap": "networks"}, "steps": 3},
            {"layout": {"dp": 4}, "replay": {"sampler": "without-replacement", "capacity": 6}, "data": {"microbatches": 2},
             "parallel": {"lazy_sync": True, "broadcast_buffers": False}},
            {"layout": {"dp": 3}, "data": {"streams": 12}, "target": {"update": "none"}, "loss": {"function": "smooth_l1"}},
        ]
        for case, seen in zip(cases, outcomes(WORKER, cases), strict=True):
            self.assertEqual(seen["verdict"], "PASS", (case, seen))

    def test_known_bugs(self):
        names = sorted(name for name in os.listdir(CORPUS) if name.endswith(".json"))
        cases = [json.load(open(f"{CORPUS}/{name}", encoding="utf-8")) for name in names]
        for name, case, seen in zip(names, cases, outcomes(WORKER, [case["framework"] for case in cases]), strict=True):
            kind, module = case["expect"]["signature"].split("/")[1:]
            self.assertEqual(seen["verdict"], "FINDING", name)
            self.assertIn(f"/{kind}/{module.split('@')[0]}/", seen["first"], name)

    def test_planted_mistakes_are_found(self):
        cases = [{"seed": mistake, "layout": {"dp": 2}, "parallel": {"broadcast_buffers": buffers}}
                 for mistake, buffers in ((0, True), (0, False), (1, True), (2, True))]
        firsts = ["s0/mb0/step/scalar/target_norm.0/0"] * 2 + ["s0/mb0/fwd/"] * 2
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "planted.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(PLANTED)
            for case, first, seen in zip(cases, firsts, outcomes(f"{sys.executable} {path}", cases), strict=True):
                self.assertEqual(seen["verdict"], "FINDING", (case, seen))
                self.assertTrue(seen["first"].startswith(first), (case, seen))

    def test_a_script_runs_alone(self):
        from marl_iql_target import serving
        case = self.complete({"layout": {"dp": 2}, "data": {"weights": True}})
        text = serving.script(case, "s0/mb0/fwd/scalar/loss/0")
        self.assertLess(len(text), 24576)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "script.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            done = subprocess.run([sys.executable, "-W", "ignore", path], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1, done.stderr[-2000:] + done.stdout)
        self.assertIn("step 0: gradient of agents.0.", done.stdout)

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
