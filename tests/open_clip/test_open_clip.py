"""The target of open_clip's losses: right gathers pass, wrong ones are found, planted mistakes are found and named, scripts run."""
import sys
import unittest

from open_clip_target import fields
from target_cases import Program, complete, known_cases, outcomes, outcomes_of, place_of, run_text

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


SOUND = [
    {"layout": {"dp": 2}},
    {"layout": {"dp": 3}, "loss": {"local_loss": True, "cache_labels": True}, "data": {"microbatches": 2}},
    {"layout": {"dp": 2}, "loss": {"name": "distill", "local_loss": True}, "views": {"count": 3, "pool": "max"}, "steps": 2},
    {"layout": {"dp": 2}, "loss": {"name": "coca"}, "model": {"attention": True}},
    {"layout": {"dp": 2}, "views": {"count": 2, "pool": "confidence"}, "prompts": {"levels": 2, "templates": 2}},
    *({"layout": {"dp": 3 + number % 2}, "loss": {"name": "siglip", "dist_impl": way}, "model": {"logit_bias": True}}
      for number, way in enumerate(fields.FIELDS["loss.dist_impl"]["choices"])),
]


class OpenClip(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.known = known_cases(CORPUS)
        cls.seen = outcomes_of(WORKER, sound=SOUND, known=[case["framework"] for case in cls.known.values()])

    def test_right_gathers_pass(self):
        for case, seen in zip(SOUND, self.seen["sound"]):
            self.assertEqual(seen["verdict"], "PASS", (case, seen))

    def test_known_bugs(self):
        for (name, case), seen in zip(self.known.items(), self.seen["known"]):
            self.assertEqual(seen["verdict"], "FINDING", name)
            self.assertIn("/{}/{}/".format(*place_of(case)), seen["first"], name)

    def test_planted_mistakes_are_found(self):
        cases = [{"seed": mistake, "layout": {"dp": 2}, "loss": {"local_loss": mistake != 1}} for mistake in range(3)]
        with Program(PLANTED) as planted:
            for case, seen in zip(cases, outcomes(planted.command, cases)):
                self.assertEqual(seen["verdict"], "FINDING", (case, seen))
                self.assertIn("/scalar/loss/", seen["first"], case)

    def test_a_script_runs_alone(self):
        from open_clip_target import serving
        case = complete(fields.FIELDS, {"layout": {"dp": 2}, "steps": 2, "loss": {"gather_with_grad": False}})
        text = serving.script(case, "s0/mb0/bwd/act_grad/text.projection/0")
        self.assertLess(len(text), 65536)
        done = run_text(text)
        self.assertEqual(done.returncode, 1, done.stderr[-2000:] + done.stdout)
        self.assertIn("step 0: gradient of text.projection.weight: off by 50.0 %", done.stdout)


if __name__ == "__main__":
    unittest.main()
