"""The program: where it lies, and how it is called. Needs no torch."""
import os
import shutil
import subprocess
import sys

from .errors import ShardfuzzError

INSTALLED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "shardfuzz")  # where a wheel puts it


def find_program() -> str:
    """The shardfuzz program: $SHARDFUZZ, the one that was installed with this package, or the one in PATH. Raises ShardfuzzError."""
    named = os.environ.get("SHARDFUZZ") or (INSTALLED if os.path.exists(INSTALLED) else "shardfuzz")
    program = shutil.which(named)
    if program is None:
        raise ShardfuzzError(f"no program {named}: set SHARDFUZZ to the built shardfuzz, or install its wheel")
    return program


def program_in_texts() -> str:
    """What a user types to call it."""
    return os.environ.get("SHARDFUZZ", "shardfuzz")


def call(command: str, *arguments: str, codes=(0,)) -> subprocess.CompletedProcess:
    """Runs `shardfuzz command arguments` and returns what it printed, as text. Raises ShardfuzzError with its last line when it exits with another code."""
    done = subprocess.run([find_program(), command, *arguments], capture_output=True, text=True)
    if done.returncode not in codes:
        lines = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
        raise ShardfuzzError(f"shardfuzz {command}: {lines[-1].removeprefix('shardfuzz: ')}")
    return done


def main() -> None:
    """The command `shardfuzz` of an installed wheel: this process becomes the program."""
    os.execv(INSTALLED, ["shardfuzz", *sys.argv[1:]])
