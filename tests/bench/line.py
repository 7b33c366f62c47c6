"""The line that a bench prints, for the scripts of these folders."""

import json
import os
import subprocess


def last_object(path):
    """The JSON object on the last line of a program's output."""
    with open(path, encoding="utf-8") as file:
        return json.loads(file.read().strip().splitlines()[-1])


def print_line(bench, command, figures):
    """One JSON object on one line; its commit is SF_BENCH_COMMIT (run_all.sh sets it to what it built), else that of the tree around the working folder."""
    head = ["git", "rev-parse", "--short", "HEAD"]
    commit = os.environ.get("SF_BENCH_COMMIT") or subprocess.run(head, capture_output=True, text=True, check=False).stdout.strip()
    print(json.dumps({"bench": bench, "commit": commit, "command": command, **figures}))
