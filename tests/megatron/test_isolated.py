"""Isolated mode: layouts that are right pass, and each wrong module is a finding of its own, and so end to end."""
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

import torch
from megatron_core_target.case import complete
from megatron_core_target.given import LOGIT_GAP, Given
from planted import PLANTED, WRONG

PROGRAM = os.environ.get("SHARDFUZZ", "build/shardfuzz")
WORKER = shlex.join([sys.executable, "-W", "ignore", str(pathlib.Path(__file__).with_name("planted.py"))])
EXPERTS = {"num_moe_experts": 4}
CLEAN = {
    "tp-gated-qk-norm": {"layout": {"tp": 2}, "model": {"gated_linear_unit": True, "activation_func": "silu", "num_query_groups": 2, "qk_layernorm": True,
                                                          "attention_output_gate": True}},
    "tp-sp-bf16-rms-norm": {"layout": {"tp": 2, "sp": True}, "precision": "bf16", "model": {"normalization": "RMSNorm"}},
    "cp-per-token-learned": {"layout": {"cp": 2}, "loss": "per_token", "data": {"loss_mask": "uneven", "documents": 3},
                             "model": {"position_embedding_type": "learned_absolute", "num_query_groups": 1, "add_qkv_bias": True}},
    "dp-distributed-optimizer": {"layout": {"dp": 2, "distributed_optimizer": True, "overlap_grad_reduce": True, "bucket_size": 500}, "microbatches": 4, "steps": 2},
    "pp-vpp-tied": {"layout": {"pp": 2, "vpp": 2}, "model": {"num_layers": 4, "share_embeddings_and_output_weights": True}},
    "pp-mtp-recompute": {"layout": {"pp": 2}, "model": {"num_layers": 2, "mtp_num_layers": 1, "recompute_granularity": "full"}},
    "tp-recompute-norms": {"layout": {"tp": 2}, "model": {"recompute_granularity": "selective", "recompute_modules": "layernorm"}},
    "ep-groups-bf16": {"layout": {"dp": 2, "ep": 2}, "precision": "bf16", "model": dict(EXPERTS, moe_router_num_groups=2, moe_router_group_topk=1)},
    "ep-shared-expert": {"layout": {"dp": 2, "ep": 2}, "model": dict(EXPERTS, moe_shared_expert_intermediate_size=16, moe_z_loss_coeff=0.1)},
    "etp-aux-loss": {"layout": {"tp": 2, "sp": True, "etp": 2}, "model": dict(EXPERTS, moe_router_load_balancing_type="seq_aux_loss", moe_aux_loss_coeff=0.5)},
    "etp-overlapped-shared-expert": {"layout": {"tp": 2, "sp": True, "etp": 2},
                                     "model": dict(EXPERTS, moe_shared_expert_intermediate_size=16, moe_shared_expert_overlap=True)},
    "cp-latent-attention": {"layout": {"cp": 2}, "model": {"multi_latent_attention": True, "q_lora_rank": 8, "qk_layernorm": True, "normalization": "RMSNorm"}},
    "all-axes": {"layout": {"tp": 2, "dp": 2, "sp": True, "ep": 2, "etp": 2, "distributed_optimizer": True}, "microbatches": 4,
                 "model": {"num_moe_experts": 4, "add_bias_linear": False, "gated_linear_unit": True, "activation_func": "silu", "normalization": "RMSNorm",
                           "num_query_groups": 2, "qk_layernorm": True}},
    "tp-sp-linear-attention": {"layout": {"tp": 2, "sp": True}, "model": {"num_layers": 2, "experimental_attention_variant": "gated_delta_net"}},
}


def run(*arguments, **options):
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1")
    done = subprocess.run([PROGRAM, *arguments], env=environment, capture_output=True, text=True, timeout=600, **options)
    if done.returncode not in (0, 1):
        raise AssertionError(f"exit {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


class IsolatedTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Clean and planted cases on one set of each size."""
        folder = tempfile.TemporaryDirectory(dir="/dev/shm")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        planted = {"seed": PLANTED, "layout": {"tp": 2}, "model": {"num_layers": 2}}
        cases = [{"mode": "isolated", **case} for case in CLEAN.values()] + [{"mode": mode, **planted} for mode in ("isolated", "e2e")]
        run("worker", WORKER, "--traces", str(cls.folder / "traces"), "--record", str(cls.folder / "record"), input="\n".join(map(json.dumps, cases)))
        cls.records = [json.loads(line) for line in (cls.folder / "record").read_text(encoding="utf-8").splitlines()]

    def flagged(self, number):
        """Names of what `check` flags in the traces of a case, in execution order."""
        folder = self.folder / "traces" / f"case-{number:05d}"
        result = json.loads(run("check", str(folder / "reference"), str(folder / "candidate"), "--json").splitlines()[-1])
        return [finding["id"] for finding in result["candidates"][0]["flagged"]]

    def test_layouts_that_are_right_pass(self):
        for name, record in zip(CLEAN, self.records):
            with self.subTest(name):
                self.assertEqual((record["verdict"], record["first"]), ("PASS", ""), record)
                self.assertGreater(record["judged"], 120)
                self.assertLess(record["not_judged"], 0.1 * record["judged"])

    def test_two_wrong_modules_have_their_causes_named(self):
        folder = self.folder / "traces" / f"case-{len(CLEAN):05d}"
        text = run("check", str(folder / "reference"), str(folder / "candidate"))
        self.assertIn("scale: scaled by 1.01", text)
        self.assertRegex(text, f"also wrong .*/act/{re.escape(WRONG[1])}/0: .*; missing_reduction: rank . holds a partial sum over tp: ")

    def test_two_wrong_modules_isolated_says_both_and_no_other(self):
        isolated, e2e = (self.flagged(number) for number in (len(CLEAN), len(CLEAN) + 1))
        of_modules = [name.split("/")[4] for name in isolated if "/act/" in name or "/act_grad/" in name]
        self.assertEqual(list(dict.fromkeys(of_modules)), list(WRONG))
        wrong_weights = {name.split("/")[4].rpartition(".")[0] for name in isolated if "/main_grad/" in name}
        self.assertEqual(wrong_weights, {WRONG[0]})
        self.assertEqual(e2e[0].split("/")[4], WRONG[0])
        self.assertEqual([name.split("/")[4] for name in e2e if "s0/mb0/fwd/act/decoder.layers.0" in name], [WRONG[0]])


class GivenTest(unittest.TestCase):
    """Given tensors by themselves."""
    PLACE = {"shape": [16, 2, 8], "index": [[[0, 16]], [[0, 2]], [[0, 8]]]}

    def given(self, first=True):
        config = {"calculate_per_token_loss": False, "moe_router_group_topk": None}
        return Given(complete({"mode": "isolated", "seed": 3}), type("Config", (), config), first, 2)

    def test_value_part_is_that_of_the_whole_and_gradient_is_undone_by_the_average(self):
        given, part = self.given(), {"shape": [16, 2, 8], "index": [[[4, 2], [10, 2]], [[0, 2]], [[0, 8]]]}
        whole = given.value("a", torch.empty(16, 2, 8), self.PLACE)
        self.assertTrue(torch.equal(given.value("a", torch.empty(4, 2, 8), part), whole[[4, 5, 10, 11]]))
        self.assertFalse(torch.equal(given.value("b", torch.empty(16, 2, 8), self.PLACE), whole))
        self.assertTrue(torch.equal(given.gradient("a", torch.empty(16, 2, 8), self.PLACE), whole * given.gradient_scale))
        self.assertEqual(given.gradient_scale, 2 / 32)
        self.assertTrue(0.8 < whole.std() < 1.2)

    def test_value_of_summands_adds_up_to_the_whole(self):
        summands = {"shape": [16, 2, 8], "index": [[[0, 16]], [[0, 2]], [[0, 8, 1]]]}
        parts = [self.given(first).value("a", torch.empty(16, 2, 8), summands) for first in (True, False)]
        self.assertTrue(torch.equal(sum(parts), self.given().value("a", torch.empty(16, 2, 8), self.PLACE)))

    def test_value_of_a_router_has_no_token_near_a_tie_on_whole_or_part(self):
        router = type("Router", (), {"weight": torch.empty(8, 8).uniform_(-0.5, 0.5, generator=torch.Generator().manual_seed(1))})
        given = self.given()
        plain, clear = (given.value("a", torch.empty(16, 2, 8), self.PLACE, reader) for reader in (None, router))
        gaps = [(values.double() @ router.weight.double().T).sort(-1).values.diff(dim=-1).amin(-1) for values in (plain, clear)]
        self.assertLess(gaps[0].min(), LOGIT_GAP)
        self.assertGreaterEqual(gaps[1].min(), LOGIT_GAP)
        self.assertTrue(torch.equal((plain == clear).all(-1), gaps[0] >= LOGIT_GAP))
        part = {"shape": [16, 2, 8], "index": [[[3, 5]], [[0, 2]], [[0, 8]]]}
        self.assertTrue(torch.equal(given.value("a", torch.empty(5, 2, 8), part, router), clear[3:8]))


if __name__ == "__main__":
    unittest.main()
