"""Makes the reference of a training script that has a Tracer: runs it once, and again with each perturbation.

    python3 -m shardfuzz.rerun reference -- torchrun --nproc-per-node 1 train.py --tp 1
    python3 -m shardfuzz.rerun reference --candidate parallel -- torchrun --nproc-per-node 1 train.py --tp 1

The command must run the training on one rank, from the same parameters and with the same data each time. What it prints is shown of its first run.
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile

from .errors import ShardfuzzError
from .program import call, program_in_texts

KINDS = ("E1", "E3", "E5")  # of shardfuzz.perturb, which needs torch
LINES = 20                  # of a failed run's output


def kinds_of(candidate) -> tuple:
    """The kinds of perturbation. A reference of a candidate's tensors has no E1: inputs are equal by construction."""
    return KINDS if candidate is None else KINDS[1:]


def told() -> dict:
    """What the run that this process is part of was told, as arguments of Tracer; {} where nobody runs it again."""
    options = {"directory": os.environ["SHARDFUZZ_TRACE"]} if "SHARDFUZZ_TRACE" in os.environ else {}
    if os.environ.get("SHARDFUZZ_PERTURBATION"):
        from .perturb import Perturbation
        kind, seed = os.environ["SHARDFUZZ_PERTURBATION"].split(":")
        options["perturbation"] = Perturbation(kind, int(seed))
    if os.environ.get("SHARDFUZZ_ANCHORS"):
        from .anchors import Anchors
        options["anchors"] = Anchors(os.environ["SHARDFUZZ_ANCHORS"])
    return options


def noting() -> tuple:
    """(tensor, folder) for `shardfuzz.blame`, which runs the script to see the operations behind that tensor; ("", "") where it does not."""
    tensor, _, folder = os.environ.get("SHARDFUZZ_OPERATIONS", "").partition("=")
    return tensor, folder


def _run(command, folder: str, anchors: str, perturbation: str = "") -> None:
    """One run of the command that writes its trace to folder. Raises ShardfuzzError."""
    environment = dict(os.environ, SHARDFUZZ_TRACE=folder, SHARDFUZZ_PERTURBATION=perturbation, SHARDFUZZ_ANCHORS=anchors)
    try:
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE if perturbation else None,
                              stderr=subprocess.STDOUT if perturbation else None, text=True)
    except OSError as error:
        raise ShardfuzzError(f"{command[0]}: {error.strerror}") from None
    if done.returncode != 0:
        print("\n".join((done.stdout or "").splitlines()[-LINES:]), file=sys.stderr)
        raise ShardfuzzError(f"{'the perturbed run ' + perturbation if perturbation else 'the run'} ended with exit code {done.returncode}")
    names = sorted(name for name in os.listdir(folder) if name.startswith("rank-")) if os.path.isdir(folder) else []
    if len(names) != 1:
        raise ShardfuzzError(f"the command wrote traces of {len(names)} ranks to {folder}: a reference runs on one, inside a shardfuzz Tracer")


def rerun(directory: str, command, draws: int = 9, candidate=None) -> None:
    """Runs the command 1 + draws times, and lets `shardfuzz noise` make the noise levels. Raises ShardfuzzError."""
    kinds = kinds_of(candidate)
    with tempfile.TemporaryDirectory() as anchors:
        if candidate is not None:
            call("anchors", candidate, anchors)
        given = anchors if candidate is not None else ""
        _run(command, directory, given)
        folder = os.path.join(directory, "draws")
        shutil.rmtree(folder, ignore_errors=True)
        try:
            folders = [os.path.join(folder, str(draw)) for draw in range(draws)]
            for draw, at in enumerate(folders):
                _run(command, at, given, f"{kinds[draw % len(kinds)]}:{draw}")
            call("noise", directory, *folders)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"shardfuzz: noise levels of {directory} from {draws} perturbed runs; next: {program_in_texts()} check {directory} {candidate or 'PARALLEL'}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m shardfuzz.rerun", usage="%(prog)s REFERENCE [--draws N] [--candidate PARALLEL] -- COMMAND ...",
                                     description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", metavar="REFERENCE", help="the folder that gets the reference's trace and its noise levels")
    parser.add_argument("--draws", type=int, default=9, help="perturbed runs (default: 9)")
    parser.add_argument("--candidate", metavar="PARALLEL", help="the parallel run's trace; each module of the reference is then given its tensors")
    given = sys.argv[1:]
    at = given.index("--") if "--" in given else len(given)
    command = given[at + 1:]
    flags = parser.parse_args(given[:at])
    if not command:
        parser.error("no command to run: write it behind --")
    if flags.draws < len(kinds_of(flags.candidate)):
        parser.error(f"--draws: at least {len(kinds_of(flags.candidate))}, one of each kind")
    try:
        rerun(flags.directory, command, flags.draws, flags.candidate)
    except ShardfuzzError as error:
        print(f"shardfuzz: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
