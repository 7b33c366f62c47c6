"""The program that runs cases of files: layouts that are right pass under `shardfuzz check`. More layouts: test_isolated.py, test_anchored.py.

One process makes all references with their perturbed runs, one mpirun per number of ranks all candidates."""
import glob
import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.environ.get("SHARDFUZZ", "build/shardfuzz")
CLEAN = {
    "cp-per-token-documents": {"layout": {"cp": 2}, "loss": "per_token", "data": {"loss_mask": "uneven", "documents": 3},
                               "model": {"num_query_groups": 1, "add_qkv_bias": True, "position_embedding_type": "learned_absolute"}},
}


def ranks_of(case):
    layout = case.get("layout", {})
    return layout.get("tp", 1) * layout.get("cp", 1) * layout.get("dp", 1) * layout.get("pp", 1)


def run(command, timeout_s):
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1")
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout_s)


class TracesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        paths = {}
        for name, case in CLEAN.items():
            path = os.path.join(cls.folder.name, f"{name}.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(case, file)
            paths.setdefault(ranks_of(case), []).append(path)
        target = [sys.executable, "-m", "megatron_core_target", "--out", cls.folder.name]
        cls.check_run(run(target + [path for some in paths.values() for path in some], 600))
        for ranks, some in paths.items():
            cls.check_run(run(["mpirun", "--oversubscribe", "-n", str(ranks)] + target + some, 600))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @staticmethod
    def check_run(done):
        if done.returncode != 0:
            raise AssertionError(f"exit {done.returncode}: {done.stderr[-2000:]}")

    def judge(self, name):
        folder = os.path.join(self.folder.name, name)
        self.check_run(run([PROGRAM, "noise", f"{folder}/reference"] + sorted(glob.glob(f"{folder}/draw-*")), 60))
        done = run([PROGRAM, "check", f"{folder}/reference", f"{folder}/candidate", "--json"], 60)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        return json.loads(done.stdout.splitlines()[-1])["candidates"][0]

    def test_layouts_that_are_right_pass(self):
        for name in CLEAN:
            with self.subTest(name):
                verdict = self.judge(name)
                self.assertEqual((verdict["verdict"], verdict.get("first")), ("PASS", None))
                self.assertGreater(verdict["judged"], 75)
                self.assertEqual(verdict["findings"], 0)


if __name__ == "__main__":
    unittest.main()
