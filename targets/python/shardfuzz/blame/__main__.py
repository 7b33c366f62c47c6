"""Which operation made a tensor wrong: the operations behind it on one rank, compared with those of the single-device run by their values.

    python3 -m shardfuzz.blame s0/mb0/fwd/act/layers.1.fc2/0 -- python3 traced.py -- torchrun --nproc-per-node 2 traced.py

runs a script that has a Tracer: first on one device, then in parallel. It prints which operation made the tensor wrong. `shardfuzz check` gives the tensor's
name. Existing traces stay as they are.
"""
import itertools
import os
import subprocess
import sys
import tempfile
from typing import Dict, List

from ..errors import ShardfuzzError
from ..rerun import LINES
from .recording import read
from .words import explain


def _run(tensor: str, command: List[str], folder: str, name: str) -> Dict[int, dict]:
    """Runs the command, and reads what its ranks noted. Raises ShardfuzzError."""
    notes = os.path.join(folder, name)
    os.mkdir(notes)
    environment = dict(os.environ, SHARDFUZZ_TRACE=os.path.join(folder, f"{name}-trace"), SHARDFUZZ_OPERATIONS=f"{tensor}={notes}")
    try:
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except OSError as error:
        raise ShardfuzzError(f"{command[0]}: {error.strerror}") from None
    if done.returncode != 0:
        print("\n".join(done.stdout.splitlines()[-LINES:]), file=sys.stderr)
        raise ShardfuzzError(f"{' '.join(command)}: ended with exit code {done.returncode}")
    ranks = read(notes)
    if not any(one["wanted"] is not None for one in ranks.values()):
        raise ShardfuzzError(f"{' '.join(command)}: no rank has {tensor}")
    return ranks


def main() -> int:
    given = sys.argv[1:]
    parts = [list(group) for is_dash, group in itertools.groupby(given, lambda one: one == "--") if not is_dash]
    if len(parts) != 3 or len(parts[0]) != 1 or parts[0][0].startswith("-"):
        print(f"usage: python3 -m shardfuzz.blame TENSOR -- COMMAND ... -- PARALLEL COMMAND ...\n\n{__doc__}", file=sys.stderr)
        return 0 if given in (["-h"], ["--help"]) else 2
    (tensor,), alone, parallel = parts
    try:
        with tempfile.TemporaryDirectory() as folder:
            reference, ranks = _run(tensor, alone, folder, "alone"), _run(tensor, parallel, folder, "parallel")
            text = explain(tensor, reference[min(reference)], ranks, -1)
    except ShardfuzzError as error:
        print(f"shardfuzz: {error}", file=sys.stderr)
        return 2
    print(text or f"{tensor}: the values do not tell which operation it was")
    return 0


if __name__ == "__main__":
    sys.exit(main())
