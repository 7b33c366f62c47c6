"""The target of torchtitan: sound layouts pass, known bugs and a planted mistake are found and named, scripts run."""
import subprocess
import sys
import unittest

from target_cases import Program, complete, known_cases, outcomes, place_of, run_text
from torchtitan_target import fields

CORPUS = "corpus/regress/torchtitan"
WORKER = f"{sys.executable} -m torchtitan_target"
PLANTED = """
import torch
from torchtitan.components.loss import BaseLoss
from torchtitan_target import program, serving
Trainer = program.Trainer
sound = Trainer.forward_backward_step
def local_count(self, *, input_dict, labels, global_valid_tokens):
    return sound(self, input_dict=input_dict, labels=labels, global_valid_tokens=(labels != program.IGNORED).sum())
Trainer.forward_backward_step = local_count
serving.serve()
"""


class Titan(unittest.TestCase):
    def test_sound_layouts_known_bugs_and_refusals(self):
        """In one run, as importing torchtitan takes seconds."""
        sound = [
            {"layout": {"shard": 2}, "model": {"tied": True}, "data": {"microbatches": 2, "ignored": True}, "train": {"steps": 2, "max_norm": 1.0, "groups": True}},
            {"layout": {"tp": 2}, "train": {"chunks": 2, "recompute": "selective"}},
            {"layout": {"tp": 2, "backend": "full_dtensor"}, "model": {"kind": "llama3"}},
            {"layout": {"pp": 2, "schedule": "Interleaved1F1B"}, "model": {"layers": 4}, "data": {"microbatches": 2}},
            {"layout": {"shard": 2, "ep": 2}, "model": {"experts": 4, "balance": 0.01}, "train": {"steps": 3}, "checkpoint": {"before": 2}},
            {"layout": {"shard": 2}, "train": {"precision": "bfloat16", "steps": 2}, "checkpoint": {"before": 1, "into": "data"}},
            {"layout": {"tp": 2}, "model": {"kind": "deepseek_v3", "query_rank": 16, "further_tokens": 1}},
            *({"layout": {"tp": 2}, "model": {"experts": 4, "active": active}} for active in (2, 1)),   # one process: DTensor keeps shapes of topk
        ]
        known = known_cases(CORPUS)
        seen = outcomes(WORKER, [*sound, *(case["framework"] for case in known.values()), {"layout": {"pp": 2}}])
        for case, one in zip(sound, seen):
            self.assertEqual(one["verdict"], "PASS", (case, one))
        for (name, case), one in zip(known.items(), seen[len(sound):]):
            self.assertEqual(one["verdict"], "FINDING", name)
            self.assertIn(f"/{place_of(case)[0]}/", one["first"], name)
        self.assertEqual((seen[-1]["verdict"], seen[-1]["reason"]), ("SKIP", "number of stages cannot be greater than effective layers"), seen[-1])

    def test_a_count_of_local_tokens_is_found(self):
        with Program(PLANTED) as planted:
            seen = outcomes(planted.command, [{"layout": {"shard": 2}, "data": {"ignored": True}}])[0]
        self.assertEqual(seen["verdict"], "FINDING", seen)

    def test_a_script_runs_alone(self):
        from torchtitan_target import serving
        case = complete(fields.FIELDS, {"layout": {"shard": 2}, "train": {"steps": 2}})
        text = serving.script(case, "s0/mb0/step/main_grad/layers.0.feed_forward.w1.weight/0")
        self.assertLess(len(text), 65536)
        for planted, code in ((text, 0), (text.replace("        loss = super().forward_backward_step(**batch)\n",
                                                       "        batch[\"global_valid_tokens\"] = batch[\"global_valid_tokens\"] // 2\n"
                                                       "        loss = super().forward_backward_step(**batch)\n"), 1)):
            done = run_text(planted)
            self.assertEqual(done.returncode, code, done.stderr[-2000:] + done.stdout)
        self.assertIn("step 0: gradient of layers.0.feed_forward.w1.weight: off by", done.stdout)


class Environment(unittest.TestCase):
    def test_a_worker_that_shardfuzz_did_not_start_says_so(self):
        done = subprocess.run([sys.executable, "-m", "torchtitan_target"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)


if __name__ == "__main__":
    unittest.main()
