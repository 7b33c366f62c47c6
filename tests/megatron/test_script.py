"""Stand-alone scripts: those of the corpus are what the generator writes, and they show the wrong number beside the right one.

SHARDFUZZ_ALL_SCRIPTS=1 runs all of them, else one."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import sets
from known import FIRST, FOLDER
from megatron_core_target import serving
from megatron_core_target.case import read_case

KNOWN = pathlib.Path(FOLDER)
RUN = ("gathered-logits",)
LINE = re.compile(r"^rank \d+, \[[\d, ]*\]: \S+, one device \S+, off by (\S+) of the norm$", re.M)
SHOWN = 1e-6        # ten times what fp32 rounds in a norm


class ScriptTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """The scripts of all known bugs, from a worker of one rank."""
        cls.texts = {}
        with sets.RankSet(1) as ranks:
            cls.described = ranks.ask({"request": "describe"})[0]["ok"]
            for path in KNOWN.glob("*.json"):
                case = read_case(path)
                answer = ranks.ask({"request": "script", "case": case, "first": FIRST[path.stem]})[0]
                cls.texts[path.stem] = answer["ok"]["script"]
            case = sets.plain(serving.description())
            cls.without_first = ranks.ask({"request": "script", "case": case, "first": ""})[0]
            cls.bad = ranks.ask({"request": "script", "case": {"loss": 1}, "first": ""})[0]

    def test_script_described_short_and_python(self):
        self.assertIs(self.described["scripts"], True)
        self.assertEqual(self.texts.keys(), FIRST.keys())
        for name, text in self.texts.items():
            self.assertLess(text.count("\n"), 110, name)
            self.assertLess(len(text), 12 * 1024, name)
            self.assertNotRegex(text, r"@[A-Z_]+@|shardfuzz")
            compile(text, name, "exec")

    def test_script_corpus_has_what_is_written_today(self):
        for name, text in self.texts.items():
            self.assertEqual((KNOWN / f"{name}.py").read_text(encoding="utf-8"), text, name)

    def test_script_without_first_shows_gradient_norm_and_bad_case_is_an_error(self):
        self.assertIn("grad norm", self.without_first["ok"]["script"])
        self.assertIn("loss", self.bad["error"])

    def test_script_shows_the_difference(self):
        environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1")
        for name in self.texts if os.environ.get("SHARDFUZZ_ALL_SCRIPTS") else RUN:
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                path = shutil.copy(KNOWN / f"{name}.py", folder)
                for launcher in ([], ["mpirun", "--oversubscribe", "-n", "2"]):
                    done = subprocess.run([*launcher, sys.executable, "-W", "ignore", path], env=environment, capture_output=True, text=True, timeout=120)
                    self.assertEqual(done.returncode, 0, done.stderr[-2000:])
                off = [float(value) for value in LINE.findall(done.stdout)]
                self.assertTrue(off, done.stdout + done.stderr[-2000:])
                self.assertGreater(max(off), SHOWN, done.stdout)


if __name__ == "__main__":
    unittest.main()
