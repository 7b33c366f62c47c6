"""Compares what README.md shows with what its commands print.

    SHARDFUZZ=build/shardfuzz python3 tests/integration/readme.py             # compare; exit 1 and a diff where they differ
    SHARDFUZZ=build/shardfuzz python3 tests/integration/readme.py --update    # write what is printed into README.md
    --sets quick,slow,torch    which sections; default quick: those that do not stand in SETS

In a block of README.md a line that begins with "$ " is a command and the lines behind it are its stdout (stderr has progress, which depends on
the time). A plain block without such lines is commands alone, none of which is run. A command that is not run stands in NOT_RUN with the
reason. Needs the plugins of the tests beside the program (`ninja plugins`), and for the set torch the virtual environment of
`ci/setup.sh --python`, or a Python with PyTorch.
"""
import argparse
import difflib
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
TIMEOUT_S = 300
WORKERS = 2
STDERR_LINES = 9  # of a command that printed something else

MEGATRON = "needs megatron-core: tests/megatron runs what it says"
NOT_RUN = {
    "ci/fuzz.sh": "installs packages and builds",
    "ci/test.sh": "runs this test",
    "mpirun --oversubscribe -n 4 build/shardfuzz fuzz --backend mpi --time 10m": "ten minutes under MPI: tests/integration/test_mpi_inside.sh runs the like",
    "build/shardfuzz fuzz --launcher 'mpirun --oversubscribe -n {n}' --max-ranks 4": "minutes under MPI: tests/integration/test_mpi_launched.sh runs the like",
    "mpirun --oversubscribe -n 4 build/shardfuzz fuzz --backend nccl --device cuda": "needs GPUs: ci/gpu.sh runs the like",
    "ci/megatron.sh": "installs packages",
    "build/shardfuzz fuzz --target megatron-core --time 10m": MEGATRON,
    "build/shardfuzz replay corpus/regress/megatron-core/mla-shared-key.json": MEGATRON,
    "cp corpus/regress/megatron-core/mla-shared-key.py build/ && build-megatron/bin/python build/mla-shared-key.py": MEGATRON,
    "mpirun --oversubscribe -n 2 build-megatron/bin/python build/mla-shared-key.py": MEGATRON,
}
# By section: those that take seconds of shrinking (test_op_install.sh runs the like), and those that need PyTorch (tests/python/test_readme.py runs them).
SETS = {"Layers": "slow", "Models": "slow", "Any PyTorch training step": "torch"}

# What a section's commands find beside build/shardfuzz, targets and corpus, by heading; shell.
COMPILE = "cc -shared -fPIC -O2 -I targets/plugin/include -x c - -o"
TRACED = """
case_of() { # LAYOUT PLANT
  echo '{"schema": 1, "mode": "isolated", "model": {"layers": 1, "hidden": 16, "heads": 4, "kv_heads": 4, "head_dim": 4, "ffn": 32, "vocab": 32, "vocab_padded": 32,
    "seq": 8, "bias": true}, "train": {"microbatch_size": 2}, "layout": {'"$1"'}, "plant": {"id": "'$2'"}}'
}
traced() { case_of "$2" "${3:-}" >$1.json; shardfuzz replay $1.json --trace $1 >/dev/null 2>&1 || [ $? -eq 1 ]; }
traced ref '' && traced draw1 '"tp": 4, "cp": 2' && traced draw2 '"tp": 4' && traced draw3 '"cp": 2' && traced tp2 '"tp": 2' rowparallel-bias-xtp
"""
TRAINING = """
import models
build, train_step = models.build, models.train_step
def build_parallel():
    return models.build_parallel({"tp": 2})[0]()
"""
SETUP = {
    "Any PyTorch training step": f"printf '%s' '{TRAINING}' >my_training.py; sed -n '/^import shardfuzz$/,/^```$/p' README.md | grep -v '^```' >traced.py",
    "Traces of other programs": TRACED,
    "Kernels": "test -e \"$PLUGINS/bf16_accumulation.so\" || { echo \"no $PLUGINS/bf16_accumulation.so: build the target plugins\"; false; }; ln -s \"$PLUGINS/bf16_accumulation.so\" libx.so",
    "Layers": f"sed 's/^  call->comm->all_reduce.*$//' targets/plugin/example/linear_fc2.c | {COMPILE} linear_fc2.so",
    "Models": f"sed 's/^    comm->all_reduce(.*GROUP_DP, p->main_grad.*$/    ;/' targets/plugin/example/gpt.c | {COMPILE} gpt.so -lm",
}

# What no two runs or machines have in common: times and rates, shares of what could not be judged, errors in the size of rounding.
NUMBER = r"\d+(?:\.\d+)?(?:e[+-]?\d+)?"
VARYING = [
    (rf"\b{NUMBER} s\b", "# s"),
    (rf"\b{NUMBER}/s\b", "#/s"),
    (rf"\b{NUMBER} %", "# %"),
    (rf"\b{NUMBER} (noise levels?|times the noise level)", r"# \1"),
    (rf"\b(noise level|left) of {NUMBER}", r"\1 of #"),
    (r"\b\d+(?:\.\d+)?e[+-]?\d+\b", "#"),
    (r" +", " "),
]


def normal(line):
    """The line without what varies."""
    for pattern, text in VARYING:
        line = re.sub(pattern, text, line)
    return line.strip()


def normals(lines):
    return [normal(line) for line in lines]


class Command:
    """A command of README.md: its section, its line number (from 0), its text without a comment, the lines shown as its output."""

    def __init__(self, section, at, line):
        self.section, self.at, self.shown = section, at, []
        self.text = re.sub(r"\s+# .*$", "", line.removeprefix("$ ")).strip()

    def output(self, printed):
        """The printed lines, in the README's words where they differ in nothing but what varies."""
        known = {normal(line): line for line in reversed(self.shown)}
        return [known.get(normal(line), line) for line in printed]


def blocks(lines):
    """(section, language, first line inside, lines) of each fenced block."""
    section, begin, language = "", None, ""
    for at, line in enumerate(lines):
        if begin is None and line.startswith("#"):
            section = line.lstrip("#").strip()
        elif begin is None and line.startswith("```"):
            begin, language = at + 1, line[3:].strip()
        elif begin is not None and line.startswith("```"):
            yield section, language, begin, lines[begin:at]
            begin = None


def commands_of(lines):
    """All commands of the plain blocks, in order."""
    commands = []
    for section, language, begin, inside in blocks(lines):
        if language:
            continue
        marked = any(line.startswith("$ ") for line in inside)  # in a block without marks nothing is run
        for at, line in enumerate(inside, begin):
            if line.startswith("$ ") or not marked and line.strip():
                commands.append(Command(section, at, line))
                if not marked and commands[-1].text not in NOT_RUN:
                    raise SystemExit(f"README.md:{at + 1}: neither marked with $ nor listed in NOT_RUN of tests/integration/readme.py: {line}")
            elif marked and commands and commands[-1].at >= begin:
                commands[-1].shown.append(line)
            elif line.strip():
                raise SystemExit(f"README.md:{at + 1}: output without a command: {line}")
    return commands


def sections_to_run(commands, sets):
    """{section: its commands that are run}. Ends with an error for lists that do not fit the README."""
    stale = {*NOT_RUN, *SETS, *SETUP} - {command.text for command in commands} - {command.section for command in commands}
    if stale:
        raise SystemExit("tests/integration/readme.py lists what README.md does not have (any more): " + "; ".join(stale))
    sections = {}
    for command in commands:
        if command.text not in NOT_RUN and SETS.get(command.section, "quick") in sets:
            sections.setdefault(command.section, []).append(command)
    return sections


def torch_environment():
    python = ROOT / "build-python/bin"
    beside = python if python.exists() else Path(sys.executable).parent
    return {"PATH": f"{beside}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore",
            "PYTHONPATH": f"{os.environ.get('PYTHONPATH') or ROOT / 'targets/python'}:{ROOT}/tests/python"}


def run_section(section, commands, program):
    """([(command, lines of its stdout, its stderr)], what is wrong with the JSON or None); run one after the other in a folder of the section's own."""
    with tempfile.TemporaryDirectory(prefix="shardfuzz-readme-") as folder:
        os.mkdir(f"{folder}/build")
        os.symlink(program, f"{folder}/build/shardfuzz")
        for name in ("targets", "corpus", "README.md"):
            os.symlink(ROOT / name, f"{folder}/{name}")
        environment = {**os.environ, "PATH": f"{folder}/build:{os.environ['PATH']}", "PLUGINS": str(program.parent / "plugins"), "SHARDFUZZ": "build/shardfuzz",
                       "PYTHONDONTWRITEBYTECODE": "1", **(torch_environment() if SETS.get(section) == "torch" else {})}

        def shell(text):
            done = subprocess.run(["stdbuf", "-oL", "bash", "-c", text], cwd=folder, env=environment, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", errors="replace")
            return done.returncode, done.stdout.rstrip("\n").split("\n") if done.stdout else [], done.stderr
        code, said, errors = shell(f"set -e\n{SETUP.get(section, '')}")
        if code != 0:
            raise SystemExit(f"the setup of section {section!r} failed:\n" + "\n".join(said) + errors)
        done = [(command, *shell(command.text)[1:]) for command in commands]
        wrong = check_case(section, folder) if section == JSON_SECTION else None
        return done, wrong


JSON_SECTION = "One finding, from start to end"


def differences(shown, real, path=""):
    """Where an object that leaves out fields says something else than the real one."""
    if isinstance(shown, dict) and isinstance(real, dict):
        return [text for key, value in shown.items() for text in differences(value, real.get(key), f"{path}.{key}")]
    return [] if shown == real else [f"{path[1:]} is {real!r}, README.md shows {shown!r}"]


def check_case(section, folder):
    """The JSON of the section against the shrunk case of its signature: what it shows must be so. Text, or None."""
    shown = json.loads(next("\n".join(inside) for of, language, _, inside in blocks(README.read_text().split("\n")) if of == section and language == "json"))
    found = Path(folder, "findings", shown["expect"]["signature"].replace("/", "-"), "min.json")
    if not found.exists():
        return f"no {found.relative_to(folder)} was found"
    return "; ".join(differences(shown, json.loads(found.read_text()))) or None


def update(lines, done):
    """README's lines with the real output; from the end, so that line numbers stay."""
    for command, printed, _ in sorted(done, key=lambda one: -one[0].at):
        lines[command.at + 1:command.at + 1 + len(command.shown)] = command.output(printed)
    README.write_text("\n".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--update", action="store_true", help="write what is printed into README.md")
    parser.add_argument("--sets", default="quick", help="which commands, of quick, slow and torch; default quick")
    arguments = parser.parse_args()
    program = Path(os.environ.get("SHARDFUZZ", ROOT / "build/shardfuzz")).resolve()
    lines = README.read_text().split("\n")
    sections = sections_to_run(commands_of(lines), arguments.sets.split(","))
    with ThreadPoolExecutor(WORKERS) as pool:
        results = list(pool.map(lambda item: run_section(item[0], item[1], program), sections.items()))
    done = [one for result, _ in results for one in result]
    wrong = [text for _, text in results if text]
    if arguments.update:
        update(lines, done)
    else:
        for command, printed, errors in done:
            if normals(command.shown) != normals(printed):
                wrong.append("\n".join([f"README.md:{command.at + 1}: $ {command.text}", *difflib.unified_diff(
                    command.shown, command.output(printed), "README.md shows", "it prints", lineterm="", n=9),
                                        *(f"stderr: {line}" for line in errors.splitlines()[-STDERR_LINES:])]))
    print("\n".join(wrong) or f"{len(done)} commands of README.md print what it shows", file=sys.stderr if wrong else sys.stdout)
    if wrong and not arguments.update:
        print("Where the program is right: python3 tests/integration/readme.py --update", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
