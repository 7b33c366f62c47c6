"""The DeepSpeed target: what passes, what is refused, what is known, and a mistake that is planted into the target's own program."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from target_cases import Program, known_cases, outcomes, outcomes_of, place_of

CORPUS = "corpus/regress/deepspeed"
WORKER = f"{sys.executable} -m deepspeed_target"


def stage(number, ranks=2, zero=(), **more):
    return {"layout": {"dp": ranks}, "zero": {"stage": number, **dict(zero)}, **more}


RIGHT = [
    *(stage(number, train={"optimizer": "adamw", "steps": 2, "accumulation": 2, "clipping": 0.1, "groups": 2, "grad_norm": number > 0})
      for number in range(4)),
    *(stage(number, 3, train={"precision": "bf16", "optimizer": "adam" if number else "sgd", "steps": 2}, model={"tied": True})
      for number in range(4)),
    *(stage(number, train={"precision": "fp16", "loss_scale": 128}, model={"frozen": "norms"}) for number in (1, 2, 3)),
    *(stage(number, engine={"accumulate": how}, train={"accumulation": 2})
      for number, how in ((1, "no_sync"), (2, "unmanaged"), (3, "coalesce"))),
    stage(3, zero={"init": True, "stage3_param_persistence_threshold": 0}, train={"steps": 2}),
    stage(2, zero={"overlap_comm": True, "reduce_bucket_size": 64, "round_robin_gradients": True}, model={"layers": 2}),
    {"layout": {"cp": 2, "dp": 2}, "zero": {"stage": 2}, "model": {"attention": True}},
    {"layout": {"dp": 2, "ep": 2}, "model": {"experts": 4}, "checkpoint": {"before": 1}, "train": {"steps": 2}},
    {"layout": {"dp": 4, "ep": 2}, "zero": {"stage": 2}, "model": {"experts": 4, "active": 2}, "train": {"clipping": 0.1, "grad_norm": True}},
    *({"layout": {"pp": 2, "dp": 2}, "zero": {"stage": number}, "model": {"layers": 2, "tied": True, "uses": 1 + number, "attention": True},
       "train": {"steps": 2, "accumulation": 3, "optimizer": "adamw"}, "checkpoint": {"before": 1}, "pipeline": {"partition_method": "uniform"}} for number in (0, 1)),
    {"layout": {"pp": 4}, "zero": {"stage": 1}, "model": {"layers": 3}, "train": {"accumulation": 2, "precision": "bf16", "clipping": 0.1, "grad_norm": True}},
    {"layout": {"pp": 2}, "model": {"layers": 3}, "train": {"accumulation": 2}, "pipeline": {"activation_checkpoint_interval": 2, "use_reentrant": True}},
    *({"layout": {"tp": 2}, "tensor_parallel": {"head": head}, "model": {"attention": True, "bias": True, "fused": head == "row", "tied": tied}, "train": {"steps": 2}}
      for head in ("whole", "column", "row") for tied in (False, True)),
    {"layout": {"tp": 3}, "model": {"ffn": 20}, "tensor_parallel": {"tp_overlap_comm": True}},
    *({"layout": {"tp": 2, "dp": 2}, "zero": {"stage": number}, "train": {"steps": 2, "clipping": 0.1, "grad_norm": number > 0, "precision": "bf16" if number == 2 else "fp32"},
       "checkpoint": {"before": 1}} for number in range(4)),
    *(stage(number, train={"steps": 3, "optimizer": "adam"}, checkpoint={"before": 1 + number % 2}) for number in range(4)),
    stage(2, train={"steps": 2, "optimizer": "momentum", "precision": "bf16"}, checkpoint={"before": 1}),
    *(stage(number, train={"steps": 2, "optimizer": "adam"}, checkpoint={"before": 1, "universal": True, "into_stage": into})
      for number, into in ((1, 2), (2, 1), (3, 3))),
    *({"layout": {axis: 2}, "zero": {"stage": 1}, "model": {"layers": 2}, "train": {"steps": 2, "optimizer": "adamw"},
       "checkpoint": {"before": 1, "universal": True}} for axis in ("tp", "pp")),
    *({"layout": {"dp": 3}, "zero": {"stage": number}, "train": {"steps": 3, "optimizer": "adam", "grad_norm": True},
       "checkpoint": {"before": 1 + number % 2, "universal": True, "saved_by": saved_by, "loaded_by": loaded_by}}
      for number, saved_by, loaded_by in ((1, 2, 0), (2, 0, 1), (3, 1, 2))),
    {"layout": {"pp": 2, "dp": 2}, "zero": {"stage": 1}, "model": {"layers": 2, "uses": 2}, "train": {"steps": 2, "optimizer": "adam"},
     "checkpoint": {"before": 1, "universal": True, "loaded_by": 1}},
    stage(0, train={"steps": 2, "optimizer": "momentum"}, checkpoint={"before": 1, "loaded_by": 1}),
]
REFUSED = [
    ({"layout": {"pp": 2}, "zero": {"stage": 2}}, "stages 0 and 1"),
    (stage(2, engine={"accumulate": "no_sync"}), "no_sync"),
    (stage(2, zero={"overlap_comm": True}, model={"uses": 2, "recompute": "reentrant"}), "not supported"),
    (stage(2, zero={"overlap_comm": True}, model={"uses": 2, "recompute": "reentrant"}, train={"steps": 2, "optimizer": "adam"},
           checkpoint={"before": 1, "universal": True, "saved_by": 1}),
     "not supported"),     # a rank that has no part in the step learns of it
]

FORGETFUL = """
from deepspeed_target import program, serving
sound = program.reloaded
def forget(case, start):
    model = sound(case, start)
    for one in model.parameters():
        one.data.mul_(0.5)
    return model
program.reloaded = forget
serving.serve()
"""

ENDED_WHILE_SAVING = """
import os
from deepspeed_target import program, serving
sound = program.load
def load():
    deepspeed = sound()
    deepspeed.DeepSpeedEngine.save_checkpoint = lambda *given, **named: os._exit(3)
    return deepspeed
program.load = load
serving.serve()
"""


class Cases(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.known = known_cases(CORPUS)
        cls.seen = outcomes_of(WORKER, right=RIGHT, refused=[case for case, _ in REFUSED], known=[case["framework"] for case in cls.known.values()])

    def test_right_cases_pass(self):
        for given, seen in zip(RIGHT, self.seen["right"]):
            self.assertEqual(seen["verdict"], "PASS", (given, seen))

    def test_what_deepspeed_does_not_support_is_skipped(self):
        for (given, reason), seen in zip(REFUSED, self.seen["refused"]):
            self.assertEqual(seen["verdict"], "SKIP", (given, seen))
            self.assertIn(reason, seen["reason"])

    def test_known_bugs(self):
        self.assertGreaterEqual(len(self.known), 19)
        for (name, case), seen in zip(self.known.items(), self.seen["known"]):
            kind, module = place_of(case)
            self.assertEqual(seen["verdict"], "FINDING", name)
            if seen["class"] == "crash":
                self.assertIn(module.split(".")[0], seen["reason"], name)
            else:
                self.assertIn(f"/{kind}/", seen["first"], name)
                self.assertIn(f"{module}/", seen["first"], name)


class Planted(unittest.TestCase):
    def test_a_rank_that_forgets_to_average_is_named(self):
        """A copy of the target whose ranks divide their losses by the tokens of all of them."""
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copytree("targets/deepspeed/deepspeed_target", os.path.join(folder, "deepspeed_target"))
            path = os.path.join(copy, "program.py")
            with open(path, encoding="utf-8") as file:
                source = file.read()
            planted = source.replace("backward(case, engine, total, k)", "backward(case, engine, total / case['layout']['dp'], k)")
            self.assertNotEqual(planted, source)
            with open(path, "w", encoding="utf-8") as file:
                file.write(planted)
            seen, = outcomes(f"PYTHONPATH={folder} {WORKER}", [stage(1)])
        self.assertEqual((seen["verdict"], seen["diagnosis"]["class"]), ("FINDING", "scale"), seen)
        self.assertIn("1 / dp", seen["diagnosis"]["text"])

    def test_parameters_that_are_not_loaded_are_found(self):
        with Program(FORGETFUL) as worker:
            seen, = outcomes(worker.command, [stage(0, train={"steps": 2}, checkpoint={"before": 1})])
        self.assertEqual(seen["verdict"], "FINDING", seen)
        self.assertTrue(seen["first"].startswith("s1/"), seen)

    def test_ranks_that_end_while_they_save_leave_nothing(self):
        with tempfile.TemporaryDirectory() as folder, Program(ENDED_WHILE_SAVING) as worker:
            seen, = outcomes(worker.command, [stage(1, train={"steps": 2}, checkpoint={"before": 1})], {"TMPDIR": folder})
            self.assertEqual((seen["verdict"], seen["class"]), ("FINDING", "crash"), seen)
            self.assertEqual([name for name in os.listdir(folder) if name.startswith("sf-")], [])   # torch has its cache there


class Script(unittest.TestCase):
    def test_a_script_shows_the_bug_alone(self):
        shown = subprocess.run([sys.executable, f"{CORPUS}/stage-3-predivide.py"], capture_output=True, text=True, check=False)
        self.assertEqual(shown.returncode, 1, shown.stderr)
        self.assertIn("gradient of embedding.weight: off by 50.0 %", shown.stdout)


if __name__ == "__main__":
    unittest.main()
