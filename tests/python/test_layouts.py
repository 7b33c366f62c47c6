"""Layouts of a training step judged in one call, and the pytest plugin, whose failures are read as a user sees them."""
import functools
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import my_training
import shardfuzz
from shardfuzz import ranks

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "harness/docs/pytorch.md"

CASES = '''
import my_training, shardfuzz

@shardfuzz.parametrize_layouts(tp=2)
def test_fault(layout):
    layout.verify(my_training.partial_output, my_training.train_step)

@shardfuzz.parametrize_layouts(dp=2, tp=1)
def test_raises(layout):
    layout.verify(my_training.build, my_training.raising_step)

def test_without_decorator(layout):
    pass
'''


def pytest_of(text, *options):
    """(exit code, stdout) of pytest on a file with this text. It finds the package as the rest of these tests does, where it is not installed."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_user.py").write_text(text)
        done = subprocess.run([sys.executable, "-m", "pytest", "-p", "shardfuzz.testing", "-p", "no:cacheprovider", "--basetemp", f"{folder}/traces",
                               "test_user.py", *options], cwd=folder, text=True, capture_output=True, timeout=600,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(HERE)]), "COLUMNS": "200"})
        return done.returncode, done.stdout + done.stderr


class Compare(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        from shardfuzz.layouts import References
        cls.references = References(cls.scratch.name)

    def compare(self, build, step, sizes, **options):
        return shardfuzz.compare(build, step, sizes, references=self.references, **options)

    def test_compare_of_right_layouts_passes(self):
        made = []
        for sizes in ({"dp": 1, "tp": 1}, {"dp": 2, "tp": 2}):
            result = self.compare(my_training.build, my_training.train_step, sizes)
            self.assertTrue(result, result)
            self.assertEqual(result.verdict, "PASS")
            self.assertGreater(result.details["judged"], 100)
            self.assertRegex(str(result), r"(?m)^verdict +PASS$")
            made.append(dict(self.references.made))
        self.assertEqual(*made)

    def test_compare_with_an_anchored_reference_passes(self):
        result = shardfuzz.compare(my_training.build, my_training.train_step, {"tp": 2}, anchored=True)
        self.assertTrue(result, result)
        self.assertIn("the reference was given its tensors", str(result))

    def test_compare_with_a_wrong_batch_says_so(self):
        result = self.compare(my_training.build, my_training.train_step, {"dp": 2, "tp": 1}, batch="same")
        self.assertFalse(result)
        self.assertRegex(str(result), r"what +its shape is \[2, 8, 32\], and should be \[4, 8, 32\]: is `batch=` right\?")

    def test_compare_of_ranks_that_start_differently_says_so_before_all_else(self):
        result = self.compare(my_training.other_seeds, my_training.train_step, {"dp": 2, "tp": 1})
        lines = str(result).splitlines()
        self.assertRegex(lines[2], r"^verdict +FINDING \(conflict\)")
        self.assertRegex(lines[3], r"^start +the ranks of this run do not start from the same parameters: \d+ of 28 differ, first embedding.weight; set the same seed on each")

    def test_compare_with_a_rank_that_dies_or_hangs_says_which(self):
        with self.assertRaisesRegex(shardfuzz.RankError, "^rank 1 of 2 ended with exit code 7 and gave no result$"):
            self.compare(my_training.build, my_training.dying_step, {"dp": 2, "tp": 1})
        with self.assertRaisesRegex(shardfuzz.RankError, "^rank 0 of 2 did not end within 15 s: does every rank"):
            self.compare(my_training.build, my_training.hanging_step, {"dp": 2, "tp": 1}, timeout_s=15)

    def test_compare_of_a_nested_function_says_where_it_must_stand(self):
        with self.assertRaisesRegex(shardfuzz.ShardfuzzError, "top level of a module"):
            self.compare(lambda mesh: my_training.build(mesh), my_training.train_step, {"tp": 1})

    def test_run_of_what_stands_in_the_main_program_finds_it(self):
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder, "script.py")
            script.write_text("from shardfuzz import ranks\ndef name(rank):\n    return f'{rank} of {__name__}'\n"
                              "if __name__ == '__main__':\n    print(ranks.run(2, name))\n")
            done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300,
                                  env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
            self.assertEqual(done.stdout.strip(), "['0 of __mp_main__', '1 of __mp_main__']", done.stderr)

    def test_run_of_a_partial_hands_on_its_arguments(self):
        self.assertEqual(ranks.run(1, functools.partial(max, 5)), [5])

    def test_check_of_a_folder_without_a_trace_raises(self):
        with self.assertRaisesRegex(shardfuzz.ShardfuzzError, "^shardfuzz check: /nowhere"):
            shardfuzz.check("/nowhere", "/nowhere")


@unittest.skipUnless(importlib.util.find_spec("pytest"), "needs pytest")
class Plugin(unittest.TestCase):
    def test_failures_show_the_report_and_nothing_of_this_package(self):
        code, said = pytest_of(CASES)
        self.assertEqual(code, 1, said)
        self.assertRegex(said, r"E +shardfuzz.testing.LayoutError: the layout tp2 does not give what one device gives\n")
        self.assertRegex(said, r"E +first +s0/mb0/fwd/act/layers.1.fc2/0\n")
        self.assertRegex(said, r"E +diagnosis +.*rank . holds a partial sum over tp")
        self.assertRegex(said, r"E +every tensor +\S+ check \S+ \S+ --table\n")
        self.assertRegex(said, r"RankError: rank 1 of 2: *\n(E .*\n)+E +ValueError: no data on this rank")
        self.assertRegex(said, r"the fixture `layout` needs the decorator @shardfuzz.parametrize_layouts")
        self.assertIn("2 failed, 1 error", said)
        self.assertNotIn("shardfuzz/layouts.py", said)

    def test_example_of_the_page_passes_in_all_its_layouts(self):
        example = re.search(r"```python\n(import shardfuzz\n[^`]*parametrize_layouts.*?)```", PAGE.read_text(), re.S).group(1)
        code, said = pytest_of(example, "-v")
        self.assertEqual(code, 0, said)
        for name in ("dp1-tp1", "dp1-tp2", "dp2-tp1", "dp2-tp2"):
            self.assertIn(f"test_training[{name}] PASSED", said)

    def test_parametrize_layouts_with_a_size_that_is_none_says_which(self):
        with self.assertRaisesRegex(shardfuzz.ShardfuzzError, "tp=0 is no size"):
            shardfuzz.parametrize_layouts(tp=[1, 0])


if __name__ == "__main__":
    unittest.main()
