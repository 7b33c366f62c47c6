"""A Megatron training script that was given a tracer: layouts that are right pass, a norm whose gradient is not summed over tp is found, and bf16 is judged
by a reference that is made of the parallel run's tensors."""
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SCRIPT = str(HERE / "simple_training.py")
PYTHON = [sys.executable, "-W", "ignore", "-m"]
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=os.pathsep.join(map(str, [ROOT / "targets/python", ROOT / "targets/megatron_core", HERE])))


# Runs a script with one list of options after the other, each on forked ranks, which have what takes longest to import. Options: [[ranks, port, option...]...] in JSON.
FORKED = """
import json, os, runpy, sys
from megatron_core_target import serving
serving.preload()
import shardfuzz.megatron, megatron.core.models.gpt.gpt_model, megatron.core.optimizer, megatron.core.distributed
_, script, runs = sys.argv
for ranks, port, *options in json.loads(runs):
    for rank in range(ranks):
        if os.fork() == 0:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_PORT=str(port))
            sys.argv = [script, *options]
            runpy.run_path(script, run_name="__main__")
            os._exit(0)
    if any([os.wait()[1] for _ in range(ranks)]):
        sys.exit(f"a rank of {options} failed")
"""


def alone(*options):
    """On one rank, without the launcher, which takes longer to start than the script."""
    return ["env", "RANK=0", "LOCAL_RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=localhost", "MASTER_PORT=0", sys.executable, "-W", "ignore", SCRIPT, *options]


def free_port():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


def call_ranks(*runs):
    """Runs the script once for each of (ranks, option...)."""
    text = json.dumps([[ranks, free_port(), *options] for ranks, *options in runs])
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED, SCRIPT, text], capture_output=True, text=True, check=False,
                          env=dict(ENVIRONMENT, MASTER_ADDR="localhost"))
    assert done.returncode == 0, done.stderr


def call(*command, codes=(0,)):
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode in codes, f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def rerun(*options):
    return call(*PYTHON, "shardfuzz.rerun", *options)


def verdict(reference, candidate):
    return json.loads(call(os.environ["SHARDFUZZ"], "check", reference, candidate, "--json", codes=(0, 1)).splitlines()[-1])["candidates"][0]


class TrainingScriptTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.at = lambda name: os.path.join(folder.name, name)

    def test_layouts_are_judged_by_one_reference(self):
        said = rerun(self.at("reference"), "--draws", "3", "--", *alone("--experts", "--trace", "elsewhere"))
        self.assertIn(f"check {self.at('reference')} PARALLEL", said.splitlines()[-1])
        self.assertFalse(os.path.exists("elsewhere"))
        layouts = {"experts": (4, "--tp", "2", "--sp", "--ep", "2", "--distributed-optimizer"), "stages": (2, "--pp", "2"),
                   "wrong": (2, "--tp", "2", "--sp", "--forget-norms")}
        call_ranks(*((ranks, "--experts", *options, "--trace", self.at(name)) for name, (ranks, *options) in layouts.items()))
        for name in ("experts", "stages"):
            with self.subTest(name):
                result = verdict(self.at("reference"), self.at(name))
                self.assertEqual((result["verdict"], result["not_judged"]), ("PASS", 0), result["first"] if "first" in result else result)
                self.assertGreater(result["judged"], 500)
        result = verdict(self.at("reference"), self.at("wrong"))
        self.assertEqual((result["first"]["class"], result["first"]["subject"]), ("conflict", "decoder.layers.0.pre_mlp_layernorm.weight"))
        self.assertEqual(result["diagnosis"]["class"], "missing_reduction")
        self.assertIn("over tp", result["diagnosis"]["text"])

    def test_bf16_is_judged_by_a_reference_of_the_candidates_tensors(self):
        candidate, reference = self.at("parallel"), self.at("reference")
        call_ranks((2, "--bf16", "--tp", "2", "--sp", "--trace", candidate))
        rerun(reference, "--draws", "2", "--candidate", candidate, "--", *alone("--bf16", "--trace", "elsewhere"))
        result = verdict(reference, candidate)
        self.assertEqual(result["verdict"], "PASS", result)
        self.assertGreater(result["judged"], 5 * result["not_judged"])


class RerunTest(unittest.TestCase):
    def test_what_cannot_be_run_again_is_one_line(self):
        rows = [(["reference"], "no command to run: write it behind --"), (["reference", "--draws", "2", "--", "true"], "--draws: at least 3, one of each kind"),
                (["reference", "--", "no-such-program"], "no-such-program: No such file or directory"),
                (["reference", "--", "false"], "the run ended with exit code 1"),
                (["reference", "--", "true"], "the command wrote traces of 0 ranks to reference: a reference runs on one, inside a shardfuzz Tracer")]
        with tempfile.TemporaryDirectory() as folder:
            for options, text in rows:
                done = subprocess.run([*PYTHON, "shardfuzz.rerun", *options], env=ENVIRONMENT, cwd=folder, capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 2, options)
                self.assertTrue(done.stderr.splitlines()[-1].endswith(text), done.stderr)
                self.assertEqual(os.listdir(folder), [])


if __name__ == "__main__":
    unittest.main()
