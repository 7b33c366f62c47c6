"""The target of PyTorch's own parallel training: sound layouts pass, a planted mistake is found and named, scripts run."""
import json
import subprocess
import sys
import unittest

import torch
from target_cases import SHARDFUZZ, Program, complete, known_cases, outcomes, outcomes_of, place_of, run_text
from torch_train_target import fields

CORPUS = "corpus/regress/torch-train"
WORKER = f"{sys.executable} -m torch_train_target"
PLANTED = """
from torch_train_target import program, serving
sound = program.Data.__init__
def counts_of_all_ranks(self, case, step, index, ranks, device, cp=1):
    sound(self, case, step, index, ranks, device, cp)
    self.counts = [count * ranks for count in self.counts]
program.Data.__init__ = counts_of_all_ranks
serving.serve()
"""
# A rank takes the keys and values of the wrong rank.
WRONG_NEIGHBOUR = """
from torch.distributed.tensor.experimental._context_parallel import _attention
from torch_train_target import serving
sound = _attention._AllGatherRotater.next_buffer
def of_another(self):
    self._idx -= 1
    try:
        return sound(self)
    finally:
        self._idx += 1
_attention._AllGatherRotater.next_buffer = of_another
serving.serve()
"""


SOUND = [
    {"layout": {"dp": 2}, "parallel": {"zero1": True}, "steps": 2, "optimizer": {"name": "adam", "clip": 0.5}, "data": {"ignored": True}},
    {"layout": {"dp": 2, "fsdp": 2}, "dtype": "bfloat16", "data": {"microbatches": 2}, "parallel": {"lazy_sync": "always"}},
    {"layout": {"tp": 2}, "parallel": {"sequence": True}, "model": {"skip": True}},
    {"layout": {"pp": 2}, "parallel": {"schedule": "zbv"}, "model": {"layers": 4}, "data": {"microbatches": 4}, "optimizer": {"clip": 0.5}},
    {"layout": {"pp": 2}, "parallel": {"schedule": "1f1b"}, "recompute": "block", "data": {"microbatches": 3}},
    {"layout": {"dp": 2}, "steps": 3, "optimizer": {"name": "adamw"}, "checkpoint": {"before": 2, "into": "fsdp"}},
    *({"layout": {"cp": 4}, "data": {"length": 8, "ignored": True}, "parallel": {"cp_rotate": rotate, "cp_balance": balance}}
      for rotate, balance in (("allgather", True), ("alltoall", True), ("allgather", False))),
    {"layout": {"cp": 2, "fsdp": 2}, "dtype": "bfloat16", "steps": 2, "optimizer": {"clip": 0.5}, "recompute": "block"},
    {"layout": {"cp": 2, "pp": 2, "fsdp": 2}, "data": {"microbatches": 2}},
    {"layout": {"cp": 2, "tp": 2, "fsdp": 2}, "parallel": {"cp_balance": False}},
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
            fixed = ["layout.fsdp=2", *(f"layout.{axis}=1" for axis in ("dp", "pp", "tp", "cp")), "dtype=float32", "checkpoint.before=0"]
            done = subprocess.run([SHARDFUZZ, "fuzz", "--target", f"worker:{planted.command}", "--cases", "1", "--jobs", "1", "--shrink-budget", "4", "--out", planted.folder, "--json",
                                   *(word for one in fixed for word in ("--set", one))], capture_output=True, text=True, check=False)
            found = json.loads(done.stdout.splitlines()[-1])["by_signature"]
            self.assertTrue(any("loss" in one["signature"] and one["diagnosis"]["class"] == "scale" for one in found), (found, done.stderr[-2000:]))

    def test_attention_with_keys_of_the_wrong_rank_is_found(self):
        with Program(WRONG_NEIGHBOUR) as planted:
            seen, = outcomes(planted.command, [{"layout": {"cp": 4}, "data": {"length": 8}}])
            self.assertEqual((seen["verdict"], seen["first"]), ("FINDING", "s0/mb0/fwd/act/blocks.0.attention.o/0"), seen)

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


class Kernel(unittest.TestCase):
    """The stand-in for a GPU's kernel, against torch's attention in fp64."""

    def test_values_and_gradients(self):
        from torch_train_target.kernels import scaled_dot_product_attention
        generator = torch.Generator().manual_seed(3)
        for is_causal in (True, False):
            given = [torch.randn(2, 3, 5, 4, generator=generator, dtype=torch.float64) for _ in range(4)]
            results = []
            for attention, dtype in ((scaled_dot_product_attention, torch.float32), (torch.nn.functional.scaled_dot_product_attention, torch.float64)):
                inputs = [one.to(dtype).requires_grad_() for one in given[:3]]
                out = attention(*inputs, is_causal=is_causal)
                out.backward(given[3].to(dtype))
                results.append([out.detach(), *(one.grad for one in inputs)])
            for got, want in zip(*results):
                self.assertLess(float((got - want).norm() / want.norm()), 1e-6)


if __name__ == "__main__":
    unittest.main()
