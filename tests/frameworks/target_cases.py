"""What the tests of the targets share: cases run by `shardfuzz worker`, mistakes planted into a target's program, scripts run alone."""
import json
import os
import subprocess
import sys
import tempfile

SHARDFUZZ = os.environ.get("SHARDFUZZ", "build/shardfuzz")


def outcomes(worker, cases, environment=None):
    """The records of cases, in order. worker: the command that starts one. environment: variables beside those of this process."""
    with tempfile.TemporaryDirectory() as folder:
        path, record = os.path.join(folder, "cases.jsonl"), os.path.join(folder, "record")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(case) + "\n" for case in cases)
        done = subprocess.run([SHARDFUZZ, "worker", worker, path, "--record", record], capture_output=True, text=True, check=False,
                              env={**os.environ, **(environment or {})})
        if not os.path.exists(record):
            raise AssertionError(done.stderr)
        with open(record, encoding="utf-8") as file:
            seen = [json.loads(line) for line in file]
    if len(seen) != len(cases):
        raise AssertionError(f"{len(seen)} records of {len(cases)} cases\n{done.stderr}")
    return seen


def outcomes_of(worker, **lists):
    """The records of several lists of cases, by their names, from one run: importing a framework takes seconds."""
    seen = iter(outcomes(worker, [case for cases in lists.values() for case in cases]))
    return {name: [next(seen) for _ in cases] for name, cases in lists.items()}


def known_cases(folder):
    """The saved cases of a corpus folder, by name."""
    names = sorted(name[:-5] for name in os.listdir(folder) if name.endswith(".json"))
    return {name: json.load(open(os.path.join(folder, f"{name}.json"), encoding="utf-8")) for name in names}


def place_of(case):
    """(kind, module) of the tensor in which a saved case expects its finding."""
    kind, module = case["expect"]["signature"].split("/")[1:]
    return kind, module.split("@")[0]


def complete(fields, changes):
    """A case as the harness sends it: each field that `changes` does not name has its first choice, or its least value."""
    case = {}
    for path, field in fields.items():
        *groups, last = path.split(".")
        at, given = case, changes
        for group in groups:
            at, given = at.setdefault(group, {}), given.get(group, {})
        at[last] = given.get(last, field["choices"][0] if "choices" in field else field["min"])
    return case


def run_text(text):
    """Runs the text of a program alone, and returns what came of it."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "script.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return subprocess.run([sys.executable, "-W", "ignore", path], capture_output=True, text=True, check=False)


class Program:
    """Within `with`: a worker's command for the text of a program, in a folder of its own, `folder`."""

    def __init__(self, text):
        self.text = text

    def __enter__(self):
        self.kept = tempfile.TemporaryDirectory()
        self.folder = self.kept.name
        path = os.path.join(self.folder, "planted.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.text)
        self.command = f"{sys.executable} {path}"
        return self

    def __exit__(self, *_):
        self.kept.cleanup()
