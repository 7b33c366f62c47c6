"""The target of independent Q-learning: right layouts pass, known bugs and planted mistakes are found, a script runs alone."""
import sys
import unittest

from marl_iql_target import fields
from target_cases import Program, complete, known_cases, outcomes, outcomes_of, place_of, run_text

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


SOUND = [
    {"layout": {"dp": 2}, "optimizer": {"name": "adam", "clip": 0.5}, "steps": 3},
    {"layout": {"dp": 2}, "model": {"parameters": "shared", "dueling": True}, "reward": {"radius": 2, "collision": 0.25}},
    {"layout": {"dp": 2}, "target": {"update": "hard"}, "loss": {"double": True}, "parallel": {"wrap": "networks"}, "steps": 3},
    {"layout": {"dp": 4}, "replay": {"sampler": "without-replacement", "capacity": 6}, "data": {"microbatches": 2},
     "parallel": {"lazy_sync": True, "broadcast_buffers": False}},
    {"layout": {"dp": 3}, "data": {"streams": 12}, "target": {"update": "none"}, "loss": {"function": "smooth_l1"}},
]


class MarlIql(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.known = known_cases(CORPUS)
        cls.seen = outcomes_of(WORKER, sound=SOUND, known=[case["framework"] for case in cls.known.values()])

    def test_right_layouts_pass(self):
        for case, seen in zip(SOUND, self.seen["sound"]):
            self.assertEqual(seen["verdict"], "PASS", (case, seen))

    def test_known_bugs(self):
        for (name, case), seen in zip(self.known.items(), self.seen["known"]):
            self.assertEqual(seen["verdict"], "FINDING", name)
            self.assertIn("/{}/{}/".format(*place_of(case)), seen["first"], name)

    def test_planted_mistakes_are_found(self):
        cases = [{"seed": mistake, "layout": {"dp": 2}, "parallel": {"broadcast_buffers": buffers}}
                 for mistake, buffers in ((0, True), (0, False), (1, True), (2, True))]
        firsts = ["s0/mb0/step/scalar/target_norm.0/0"] * 2 + ["s0/mb0/fwd/"] * 2
        with Program(PLANTED) as planted:
            for case, first, seen in zip(cases, firsts, outcomes(planted.command, cases)):
                self.assertEqual(seen["verdict"], "FINDING", (case, seen))
                self.assertTrue(seen["first"].startswith(first), (case, seen))

    def test_a_script_runs_alone(self):
        from marl_iql_target import serving
        case = complete(fields.FIELDS, {"layout": {"dp": 2}, "data": {"weights": True}})
        text = serving.script(case, "s0/mb0/fwd/scalar/loss/0")
        self.assertLess(len(text), 65536)
        done = run_text(text)
        self.assertEqual(done.returncode, 1, done.stderr[-2000:] + done.stdout)
        self.assertIn("step 0: gradient of agents.0.", done.stdout)


if __name__ == "__main__":
    unittest.main()
