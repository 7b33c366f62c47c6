"""The example of harness/docs/pytorch.md: the package is installed as it says, its lines run as they stand, and what they print is what it shows."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = "harness/docs/pytorch.md"


class Documents(unittest.TestCase):
    def test_example_has_less_than_ten_lines(self):
        example = re.search(r"```python\n(import shardfuzz\n.*?)```", (ROOT / PAGE).read_text(), re.S).group(1)
        self.assertLess(len([line for line in example.splitlines() if line.strip()]), 10)

    def test_example_prints_what_is_shown(self):
        with tempfile.TemporaryDirectory() as folder:
            package = shutil.copytree(ROOT / "targets/python", Path(folder, "package"))
            install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--disable-pip-version-check",
                       "--root-user-action=ignore", "--target", f"{folder}/installed", str(package)]
            subprocess.run(install, check=True)
            done = subprocess.run([sys.executable, str(ROOT / "tests/integration/documents.py"), PAGE], capture_output=True, text=True, timeout=600,
                                  env={**os.environ, "PYTHONPATH": f"{folder}/installed"})
            self.assertEqual(done.returncode, 0, done.stderr[-6000:])


if __name__ == "__main__":
    unittest.main()
