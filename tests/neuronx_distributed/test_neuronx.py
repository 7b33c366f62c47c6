"""The target of neuronx-distributed: sound layouts pass, known bugs and a planted mistake are found and named, scripts run. Needs a checkout on PYTHONPATH."""
import os
import subprocess
import sys
import unittest

from neuronx_distributed_target import fields
from target_cases import Program, complete, known_cases, outcomes, place_of, run_text

CORPUS = "corpus/regress/neuronx-distributed"
WORKER = f"{sys.executable} -m neuronx_distributed_target"
PLANTED = """
from neuronx_distributed_target import serving, standins
standins.stand_in()
from neuronx_distributed.parallel_layers import grads
grads.allreduce_sequence_parallel_gradients = lambda optimizer: None
serving.serve()
"""
SPLIT = {"tp": 2, "sequence_parallel": True}


class Neuron(unittest.TestCase):
    def test_sound_layouts_known_bugs_and_refusals(self):
        """In one run, as importing torch takes seconds."""
        sound = [
            {"layout": SPLIT, "model": {"norm": "layer", "bias": True}},
            {"layout": SPLIT, "model": {"embedding": "columns", "gathered": True, "padding": 3}},
            {"layout": {"tp": 4}, "model": {"attention": "joint", "kv_heads": 2}},
            {"layout": {**SPLIT, "platform": "trn2"}, "model": {"attention": "fused", "kv_heads": 1}},
            {"layout": {"dp": 2, "tp": 2}, "model": {"frozen": "attention"}, "train": {"zero": True, "max_norm": 1.0, "steps": 2}},
            {"layout": {"pp": 2, "tp": 2}, "model": {"layers": 2, "tied": True}, "data": {"microbatches": 2, "ignored": True}, "train": {"max_norm": 1.0}},
            {"layout": {"pp": 2, "virtual": 2}, "model": {"layers": 4}, "data": {"microbatches": 2}, "train": {"recompute": True}},
            {"layout": {**SPLIT, "dp": 2}, "train": {"precision": "bfloat16", "zero": True, "steps": 2}, "checkpoint": {"before": 1}},
            {"layout": SPLIT, "model": {"experts": 4, "router_tokens": "own", "capacity": "all", "normalized": True}},
            # The recipe of HLAT 7B: tensor parallelism over eight ranks, sequence parallelism, ZeRO-1, bf16.
            {"layout": {"tp": 8, "sequence_parallel": True}, "model": {"heads": 8, "kv_heads": 8, "width": 16},
             "train": {"precision": "bfloat16", "zero": True, "wide_gradients": True, "max_norm": 1.0, "steps": 2}},
        ]
        known = known_cases(CORPUS)
        refused = [{"layout": {"tp": 8}, "model": {"heads": 8, "kv_heads": 8, "inner": 12, "gated": False}}, {"layout": {"tp": 2}, "model": {"attention": "joint", "bias": True}}]
        seen = outcomes(WORKER, [*sound, *(case["framework"] for case in known.values()), *refused])
        for case, one in zip(sound, seen):
            self.assertEqual(one["verdict"], "PASS", (case, one))
        for (name, case), one in zip(known.items(), seen[len(sound):]):
            self.assertEqual(one["verdict"], "FINDING", name)
            expected = {place_of(case)[0]} | ({"act"} if case["framework"].get("layout", {}).get("ep") else set())   # where expert-parallel-sum shows first
            self.assertIn(one["first"].split("/")[3], expected, name)
        self.assertEqual([(one["verdict"], one["reason"]) for one in seen[-2:]],
                         [("SKIP", "12 is not divisible by 8"),
                          ("SKIP", "GQAQKVColumnParallelLinear fails when it makes its bias: '>' not supported between instances of 'tuple' and 'int'")])

    def test_gradients_that_are_not_summed_over_tokens_are_found(self):
        with Program(PLANTED) as planted:
            seen = outcomes(planted.command, [{"layout": SPLIT}])[0]
        self.assertEqual((seen["verdict"], seen["class"]), ("FINDING", "conflict"), seen)
        self.assertIn("norm", seen["first"])

    def test_a_script_runs_alone(self):
        from neuronx_distributed_target import serving
        case = complete(fields.FIELDS, {"layout": SPLIT})
        text = serving.script(case, "s0/mb0/step/main_grad/norm.weight/0")
        self.assertLess(len(text.encode()), 65536)
        planted = text.replace("        with self._watched(trace):\n", "        from neuronx_distributed.parallel_layers import grads\n"
                               "        grads.allreduce_sequence_parallel_gradients = lambda optimizer: None\n        with self._watched(trace):\n", 1)
        for one, code in ((text, 0), (planted, 1)):
            done = run_text(one)
            self.assertEqual(done.returncode, code, done.stderr[-2000:] + done.stdout)
        self.assertIn("step 0: gradient of norm.weight: off by", done.stdout)

    def test_scripts_of_the_known_bugs(self):
        for name in known_cases(CORPUS):
            done = subprocess.run([sys.executable, "-W", "ignore", f"{CORPUS}/{name}.py"], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, "Error" in done.stderr), (1, False), done.stderr)
            self.assertIn("\n  got  ", done.stdout, name)


class Environment(unittest.TestCase):
    def test_a_worker_that_shardfuzz_did_not_start_says_so(self):
        done = subprocess.run([sys.executable, "-m", "neuronx_distributed_target"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)

    def test_a_missing_checkout_is_said_in_a_line(self):
        program = os.environ.get("SHARDFUZZ", "build/shardfuzz")
        without = {**os.environ, "PYTHONPATH": ""}
        done = subprocess.run([program, "list", "features", "--target", f"worker:{WORKER}"], capture_output=True, text=True, check=False, env=without)
        self.assertEqual((done.returncode, "Traceback" in done.stderr), (3, False), done.stderr)
        self.assertIn("clone aws-neuron/neuronx-distributed, and give its folder src as --framework-path", done.stderr)


if __name__ == "__main__":
    unittest.main()
