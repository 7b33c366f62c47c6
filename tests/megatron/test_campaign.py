"""shardfuzz over the real package: the known bugs are found where they are, and a campaign finds one by itself and makes it small."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from known import FIRST, FOLDER

PROGRAM = os.environ.get("SHARDFUZZ", "build/shardfuzz")


def run(*arguments):
    """stdout's last line as JSON, and stderr."""
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1")
    done = subprocess.run([PROGRAM, *arguments, "--json"], env=environment, capture_output=True, text=True, timeout=600)
    if done.returncode not in (0, 1):
        raise AssertionError(f"exit {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


class CampaignTest(unittest.TestCase):
    def test_gate_finds_every_known_bug_where_it_is(self):
        with tempfile.TemporaryDirectory() as folder:
            result, text = run("gate", "--target", "megatron-core", "--corpus", FOLDER, "--cases", "1", "--jobs", "1", "--seed", "1", "--out", folder,
                               "--set", "layout.dp=2", "--set", "model.num_moe_experts=null")
        self.assertEqual((result["corpus"], result["corpus_failed"], [item for item in result["items"] if item["state"] == "gone"]), (len(FIRST), 0, []), text)

    def test_replay_runs_the_reference_without_what_is_wrong_and_says_so(self):
        seen, text = run("replay", f"{FOLDER}/z-loss-padding.json")
        self.assertIn("what model.moe_z_loss_coeff adds is a mean of means over cp", seen["diagnosis"]["text"], text)

    def test_campaign_finds_shrinks_and_writes_a_script(self):
        with tempfile.TemporaryDirectory() as folder:
            fixed = {"model.multi_latent_attention": "true", "layout.tp": 2, "model.num_layers": 1, "model.num_moe_experts": "null",
                     "model.mtp_num_layers": "null", "model.experimental_attention_variant": "null", "model.parallel_output": "true",
                     "steps": 1, "precision": "fp32", "model.recompute_granularity": "null"}
            result, text = run("fuzz", "--target", "megatron-core", "--cases", "1", "--jobs", "1", "--seed", "9", "--shrink-budget", "6", "--out", folder,
                               "--mode", "e2e", "--max-ranks", "2", *(word for path, value in fixed.items() for word in ("--set", f"{path}={value}")))
            self.assertEqual(result["signatures"], 1, text)
            found = pathlib.Path(folder, "tolerance-act_grad-self_attention.linear_kv_down_proj@tp")
            smallest = json.loads((found / "min.json").read_text(encoding="utf-8"))
            self.assertEqual(smallest["framework"], {"model": {"multi_latent_attention": True}, "layout": {"tp": 2}})
            script = (found / "script.py").read_text(encoding="utf-8")
        compile(script, "script.py", "exec")
        self.assertIn("multi_latent_attention", script)


if __name__ == "__main__":
    unittest.main()
