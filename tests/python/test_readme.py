"""The README's example: the package is installed as it says, and its lines run as they stand."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("SHARDFUZZ", "shardfuzz")
# What PyTorch's Gloo threads say when they abort a rank that has done its work and is being taken down; seen in one run of four on a busy machine.
GLOO_ABORT = "terminate called without an active exception"
TRAINING = """
import torch
import models

build, train_step = models.build, models.train_step

def build_parallel():
    return models.build_parallel({"tp": 2})[0]()
"""


class Readme(unittest.TestCase):
    def run_there(self, folder, *command):
        environment = {**os.environ, "PYTHONPATH": f"{folder}/installed:{ROOT}/tests/python", "SHARDFUZZ": PROGRAM}
        for _ in range(3):
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
            if done.returncode == 0 or GLOO_ABORT not in done.stderr:
                break
        self.assertEqual(done.returncode, 0, done.stderr[-6000:])
        return done.stdout

    def test_readme_example_has_less_than_ten_lines_and_passes(self):
        text = (ROOT / "README.md").read_text()
        example = re.search(r"```python\n(import shardfuzz\n.*?)```", text, re.S).group(1)
        self.assertLess(len([line for line in example.splitlines() if line.strip()]), 10)
        with tempfile.TemporaryDirectory() as folder:
            package = shutil.copytree(ROOT / "targets/python", Path(folder, "package"))
            self.run_there(folder, sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--disable-pip-version-check",
                           "--root-user-action=ignore", "--target", f"{folder}/installed", str(package))
            Path(folder, "my_training.py").write_text(TRAINING)
            Path(folder, "traced.py").write_text(example)
            self.run_there(folder, sys.executable, "traced.py")
            self.run_there(folder, sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "traced.py")
            self.run_there(folder, PROGRAM, "check", "reference", "parallel")
            self.assertEqual(sorted(os.listdir(f"{folder}/reference")), ["noise.safetensors", "rank-00000.safetensors"])
            self.assertEqual(sorted(os.listdir(f"{folder}/parallel")), ["rank-00000.safetensors", "rank-00001.safetensors"])


if __name__ == "__main__":
    unittest.main()
