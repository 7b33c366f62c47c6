"""Checks the documents (*.md): their links, the paths and options that they name, and that their commands print what they show.

    SHARDFUZZ=build/shardfuzz python3 tests/integration/documents.py             # check; exit 1 and a diff where they differ
    SHARDFUZZ=build/shardfuzz python3 tests/integration/documents.py --update    # write what is printed into the documents
    DOCUMENT...    run the commands of these alone; default: of all that do not need PyTorch

A block marked ```console has commands, which begin with "$ ", and their stdout behind each (stderr has progress, which depends on the time).
The commands of a document run one after the other in one folder, in which build/shardfuzz, ci, corpus, harness and targets lie. A block marked
```sh has commands that are not run: each stands in NOT_RUN with the reason. Needs the plugins of the tests beside the program (`ninja plugins`),
and for torch the virtual environment of `ci/setup.sh --python`, or a Python with PyTorch.
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
ROOMS = ("ci", "corpus", "generators", "harness", "oracles", "targets", "tests")
BESIDE = ("ci", "corpus", "harness", "targets")  # what the commands of a document find
PROGRAMS = r"(?:build/|\./)?(?:shardfuzz|ctest|cmake|ninja|mpirun|srun|sbatch|python3|ci/[\w.]+)"
TIMEOUT_S = 300
WORKERS = 2
STDERR_LINES, STDERR_BYTES = 9, 600  # of a command that printed something else, or failed
FOUND = 1  # exit code of a command that worked, and found something

MINUTES = "minutes under MPI: tests/integration/backends/test_mpi_inside.sh and test_mpi_launched.sh run the like"
CLUSTER = "needs a cluster: tests/integration/backends/test_mpi_inside.sh runs the like"
MEGATRON = "needs megatron-core: tests/megatron runs the like"
RERUN = "a script of the reader's own: tests/megatron/test_training_script.py runs the like"
TRANSFORMERS = "needs transformers: tests/transformers runs the like"
DTENSOR = "needs torch: tests/torch_dtensor runs the like"
TRAIN = "needs torch: tests/torch_train runs the like"
DEEPSPEED = "needs deepspeed: tests/deepspeed runs the like"
OPEN_CLIP = "needs open_clip: tests/open_clip runs the like"
MARL = "needs torchrl: tests/marl_iql runs the like"
JAX = "needs jax: tests/jax runs the like"
NEURON = "needs a checkout of neuronx-distributed: tests/neuronx_distributed runs the like"
TITAN = "needs torchtitan: tests/torchtitan runs the like"
GPU = "needs a GPU: ci/gpu.sh runs the like"
SHARES = "hours: tests/integration/run/test_run_cover.sh runs the like"
MEASURES = "measures for half an hour: tests/integration/repository/test_plots.sh checks what was drawn of it"
WHEEL = "needs what ci/package.sh builds: tests/integration/repository/test_package.sh runs the like"
INSTALLS = "installs packages"
BUILDS = "installs packages and builds"
SPREAD = "takes a cluster: tests/integration/run/test_run_spread.sh runs the like"
# By document: (command, reason).
NOT_RUN = {
    ("README.md", "ci/fuzz.sh"): BUILDS,
    ("README.md", "ci/test.sh"): "runs this test",
    ("tests/README.md", "ci/test.sh"): "runs this test",
    ("tests/README.md", "ctest --test-dir build -R NAME --output-on-failure"): "NAME stands for a test",
    ("README.md", "cmake -G Ninja -S . -B build && ninja -C build"): "builds the program that runs here",
    ("harness/docs/install.md", "pip install shardfuzz-0.1.0-py3-none-manylinux_2_35_x86_64.whl"): WHEEL,
    ("harness/docs/install.md", "python3 traced.py"): WHEEL,
    ("harness/docs/install.md", "torchrun --nproc-per-node 2 traced.py"): WHEEL,
    ("harness/docs/install.md", "shardfuzz check reference parallel"): WHEEL,
    ("harness/docs/install.md", "apt-get install ./build-package/dist/shardfuzz_0.1.0_amd64.deb"): INSTALLS,
    ("harness/docs/install.md", "cmake -G Ninja -S . -B build && ninja -C build && cmake --install build --prefix ~/.local"): BUILDS,
    ("harness/docs/megatron.md", "torchrun --nproc-per-node 4 train.py --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2"): MEGATRON,
    ("harness/docs/megatron.md", "python3 -m shardfuzz.rerun reference -- torchrun --nproc-per-node 1 train.py"): MEGATRON,
    ("harness/docs/megatron.md", "shardfuzz check reference parallel"): MEGATRON,
    ("harness/docs/pytorch.md", "python3 -m shardfuzz.blame s0/mb0/fwd/act/layers.1.fc2/0 -- python3 traced.py -- torchrun --nproc-per-node 2 traced.py"):
        "needs a model with a mistake: tests/python/test_blame.py has one",
    ("harness/docs/pytorch.md", "torchrun --nproc-per-node 2 train.py"): RERUN,
    ("harness/docs/pytorch.md", "python3 -m shardfuzz.rerun reference -- python3 train.py"): RERUN,
    ("harness/docs/pytorch.md", "shardfuzz check reference parallel"): RERUN,
    ("harness/docs/megatron.md", "ci/frameworks.sh megatron-core"): INSTALLS,
    ("harness/docs/megatron.md", "build/shardfuzz fuzz --target megatron-core --time 10m"): MEGATRON,
    ("harness/docs/megatron.md", "build/shardfuzz fuzz --target megatron-core --framework-path ../Megatron-LM --time 1h"): MEGATRON,
    ("harness/docs/megatron.md",
     "build/shardfuzz gate --target megatron-core --framework-path ../Megatron-LM --framework-base ../Megatron-base --time 10m"): MEGATRON,
    ("harness/docs/megatron.md", "build/shardfuzz replay corpus/regress/megatron-core/mla-shared-key.json"): MEGATRON,
    ("harness/docs/megatron.md", "cp corpus/regress/megatron-core/mla-shared-key.py build/"): MEGATRON,
    ("harness/docs/megatron.md", "build-megatron/bin/python build/mla-shared-key.py"): MEGATRON,
    ("harness/docs/megatron.md", "mpirun --oversubscribe -n 2 build-megatron/bin/python build/mla-shared-key.py"): MEGATRON,
    ("harness/docs/deepspeed.md", "ci/frameworks.sh deepspeed"): INSTALLS,
    ("harness/docs/deepspeed.md", "python3 -m pip install --no-deps --target other deepspeed==0.19.3"): INSTALLS,
    ("harness/docs/deepspeed.md", "build/shardfuzz fuzz --target deepspeed --time 10m"): DEEPSPEED,
    ("harness/docs/deepspeed.md", "build/shardfuzz fuzz --target deepspeed --framework-path other --time 10m"): DEEPSPEED,
    ("harness/docs/deepspeed.md", "build/shardfuzz replay corpus/regress/deepspeed/stage-3-stale-gradient.json"): DEEPSPEED,
    ("harness/docs/deepspeed.md", "build-deepspeed/bin/python corpus/regress/deepspeed/stage-3-stale-gradient.py"): DEEPSPEED,
    ("harness/docs/open-clip.md", "ci/frameworks.sh open-clip"): INSTALLS,
    ("harness/docs/open-clip.md", "build/shardfuzz fuzz --target open-clip --time 10m"): OPEN_CLIP,
    ("harness/docs/open-clip.md", "build/shardfuzz fuzz --target open-clip --set loss.gather_with_grad=true --time 10m"): OPEN_CLIP,
    ("harness/docs/open-clip.md", "build/shardfuzz replay corpus/regress/open-clip/gather-without-gradient.json"): OPEN_CLIP,
    ("harness/docs/open-clip.md", "build-open-clip/bin/python corpus/regress/open-clip/gather-without-gradient.py"): OPEN_CLIP,
    ("harness/docs/neuronx-distributed.md", "ci/frameworks.sh neuronx-distributed"): INSTALLS,
    ("harness/docs/neuronx-distributed.md", "git clone https://github.com/aws-neuron/neuronx-distributed"): INSTALLS,
    ("harness/docs/neuronx-distributed.md", "build/shardfuzz fuzz --target neuronx-distributed --framework-path neuronx-distributed/src --time 10m"): NEURON,
    ("harness/docs/neuronx-distributed.md",
     "build/shardfuzz replay corpus/regress/neuronx-distributed/fused-qkv-norm.json --framework-path neuronx-distributed/src"): NEURON,
    ("harness/docs/neuronx-distributed.md",
     "PYTHONPATH=neuronx-distributed/src build-neuronx/bin/python corpus/regress/neuronx-distributed/fused-qkv-norm.py"): NEURON,
    ("harness/docs/neuronx-distributed.md", "PYTHONPATH=neuronx-distributed/src ci/frameworks.sh --test neuronx-distributed"): NEURON,
    ("harness/docs/torchtitan.md", "ci/frameworks.sh torchtitan"): INSTALLS,
    ("harness/docs/torchtitan.md", "build/shardfuzz fuzz --target torchtitan --max-ranks 2 --time 10m"): TITAN,
    ("harness/docs/torchtitan.md", "build/shardfuzz replay corpus/regress/torchtitan/zero-bubble-chunked-loss.json"): TITAN,
    ("harness/docs/torchtitan.md", "build-torchtitan/bin/python corpus/regress/torchtitan/zero-bubble-chunked-loss.py"): TITAN,
    ("harness/docs/marl-iql.md", "ci/frameworks.sh marl-iql"): INSTALLS,
    ("harness/docs/marl-iql.md", "build/shardfuzz fuzz --target marl-iql --time 10m"): MARL,
    ("harness/docs/marl-iql.md", "build/shardfuzz replay corpus/regress/marl-iql/loss-weights.json"): MARL,
    ("harness/docs/marl-iql.md", "build-marl/bin/python corpus/regress/marl-iql/loss-weights.py"): MARL,
    ("harness/docs/jax.md", "ci/frameworks.sh jax"): INSTALLS,
    ("harness/docs/jax.md", "build/shardfuzz fuzz --target jax --time 10m"): JAX,
    ("harness/docs/jax.md", "build/shardfuzz replay corpus/regress/jax/pad-interior.json"): JAX,
    ("harness/docs/jax.md", "build-jax/bin/python corpus/regress/jax/pad-interior.py"): JAX,
    ("harness/docs/dtensor.md", "ci/frameworks.sh torch-dtensor"): INSTALLS,
    ("harness/docs/torch-train.md", "ci/frameworks.sh torch-train"): INSTALLS,
    ("harness/docs/torch-train.md", "build/shardfuzz fuzz --target torch-train --time 10m"): TRAIN,
    ("harness/docs/torch-train.md", "build/shardfuzz replay corpus/regress/torch-train/zero-bubble-frozen-first-stage.json"): TRAIN,
    ("harness/docs/torch-train.md", "build-torch/bin/python corpus/regress/torch-train/zero-bubble-frozen-first-stage.py"): TRAIN,
    ("harness/docs/dtensor.md", "build/shardfuzz fuzz --target torch-dtensor --time 10m"): DTENSOR,
    ("harness/docs/dtensor.md", "build/shardfuzz replay corpus/regress/torch-dtensor/loss-gradient-by-ranks.json"): DTENSOR,
    ("harness/docs/dtensor.md", "build-torch/bin/python corpus/regress/torch-dtensor/loss-gradient-by-ranks.py"): DTENSOR,
    ("harness/docs/transformers.md", "ci/frameworks.sh transformers"): INSTALLS,
    ("harness/docs/transformers.md", "build/shardfuzz fuzz --target transformers --time 10m"): TRANSFORMERS,
    ("harness/docs/transformers.md", "build/shardfuzz replay corpus/regress/transformers/norm-without-plan.json"): TRANSFORMERS,
    ("harness/docs/transformers.md", "build-transformers/bin/python corpus/regress/transformers/norm-without-plan.py"): TRANSFORMERS,
    ("harness/docs/mpi-slurm.md", "mpirun -n 64 build/shardfuzz fuzz --time 8h --out findings"): SPREAD,
    ("harness/docs/mpi-slurm.md", "srun -n 64 build/shardfuzz fuzz --time 8h --out findings"): SPREAD,
    ("harness/docs/mpi-slurm.md", "build/shardfuzz fuzz --launcher 'mpirun --oversubscribe -n {n}' --max-ranks 4"): MINUTES,
    ("harness/docs/mpi-slurm.md", "mpirun --oversubscribe -n 4 build/shardfuzz fuzz --backend mpi --time 10m"): MINUTES,
    ("harness/docs/mpi-slurm.md", "build/shardfuzz fuzz --seed 7 --share 1/3 --store job-1.sqlite --time 8h"): SHARES,
    ("harness/docs/mpi-slurm.md", "build/shardfuzz merge campaign.sqlite job-1.sqlite job-2.sqlite job-3.sqlite"): SHARES,
    ("harness/docs/mpi-slurm.md", "sbatch ci/examples/campaign.slurm"): CLUSTER,
    ("harness/docs/mpi-slurm.md", "sbatch --array=1-3 ci/examples/campaign.slurm"): CLUSTER,
    ("harness/docs/mpi-slurm.md", "ci/setup.sh --cuda"): INSTALLS,
    ("harness/docs/mpi-slurm.md", "cmake -G Ninja -S . -B build -DSF_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=90"): GPU,
    ("harness/docs/mpi-slurm.md", "mpirun --oversubscribe -n 4 build/shardfuzz fuzz --backend nccl --device cuda"): GPU,
    ("harness/docs/mpi-slurm.md", "nvidia-cuda-mps-control -d"): GPU,
    ("harness/docs/mpi-slurm.md", "build/shardfuzz fuzz --device cuda"): GPU,
    ("harness/docs/megatron.md", "ci/frameworks.sh --python python3 megatron-core"): GPU,
    ("harness/docs/megatron.md", "nvidia-cuda-mps-control -d"): GPU,
    ("harness/docs/megatron.md", "build/shardfuzz fuzz --target megatron-core --device cuda --jobs 8 --time 10m"): GPU,
    ("harness/docs/torch-train.md", "ci/frameworks.sh --python python3 torch-train"): GPU,
    ("harness/docs/torch-train.md", "nvidia-cuda-mps-control -d"): GPU,
    ("harness/docs/torch-train.md", "build/shardfuzz fuzz --target torch-train --device cuda --jobs 3 --time 10m"): GPU,
    ("harness/docs/mpi-slurm.md", "ci/gpu.sh"): GPU,
    ("harness/docs/tolerance.md", "ninja -C build bench_ratio bench_sensitivity"): MEASURES,
    ("harness/docs/tolerance.md", "build/tests/bench/bench_sensitivity --cases 300 --seed 11 --runs 0 --ladder 1 >sensitivity.json"): MEASURES,
    ("harness/docs/tolerance.md", "build/tests/bench/bench_ratio --cases 700 --seed 11 --layouts 2 >ratio.json"): MEASURES,
    ("harness/docs/tolerance.md", "python3 tests/bench/oracles/plot_tolerance.py --figures ratio.json sensitivity.json"): MEASURES,
}
# Documents that need PyTorch: tests/python/test_documents.py runs them.
TORCH = {"harness/docs/pytorch.md"}
# Documents whose numbers and commands are a record: they say what was measured then, on a machine that is not this one.
RECORDS = ("tests/bench/", "harness/docs/decisions/")

# What the commands of a document find beside the folders above; shell.
COMPILE = "cc -shared -fPIC -O2 -I targets/plugin/include -x c - -o"
TRAINING = """
import models
build, train_step = models.build, models.train_step
def build_parallel():
    return models.build_parallel({"tp": 2})[0]()
"""
TRACES = """
case_of() { # LAYOUT PLANT
  echo '{"schema": 1, "mode": "isolated", "model": {"layers": 1, "hidden": 16, "heads": 4, "kv_heads": 4, "head_dim": 4, "ffn": 32, "vocab": 32, "vocab_padded": 32,
    "seq": 8, "bias": true}, "train": {"microbatch_size": 2}, "layout": {'"$1"'}, "plant": {"id": "'$2'"}}'
}
traced() { case_of "$2" "${3:-}" >$1.json; shardfuzz replay $1.json --trace $1 >/dev/null 2>&1 || [ $? -eq 1 ]; }
traced ref '' && traced draw1 '"tp": 4, "cp": 2' && traced draw2 '"tp": 4' && traced draw3 '"cp": 2' && traced tp2 '"tp": 2' rowparallel-bias-xtp
"""
A_FINDING = "mkdir cases; cp corpus/regress/clean-smallest.json corpus/regress/plant-rowparallel-bias-xtp.json cases"
PLUGIN = 'cp "$PLUGINS/bf16_accumulation.so" libx.so'  # of the target plugins
SETUP = {
    "harness/docs/ci.md": A_FINDING + "; sed -n '/^```json$/,/^```$/p' harness/docs/ci.md | grep -v '^```' >known.json",
    "harness/docs/kernels.md": f"""{PLUGIN}
sed 's/^  call->comm->all_reduce.*$//' targets/plugin/example/linear_fc2.c | {COMPILE} linear_fc2.so
sed 's/^    comm->all_reduce(.*GROUP_DP, p->main_grad.*$/    ;/' targets/plugin/example/gpt.c | {COMPILE} gpt.so -lm""",
    "harness/docs/pytorch.md": f"""printf '%s' '{TRAINING}' >my_training.py
sed -n '/^import shardfuzz$/,/^```$/p' harness/docs/pytorch.md | grep -v '^```' >traced.py""",
    "harness/docs/reference.md": f"{A_FINDING}; {PLUGIN}{TRACES}",
    "targets/trace_format.md": TRACES,
}
# Of commands that print JSON: the document with a table of its keys under each heading, and how to get such an object; shell, whose last line is the object.
REFERENCE = "harness/docs/reference.md"
BUG = "cases/plant-rowparallel-bias-xtp.json --json"
PLANT = "--plant rowparallel-bias-xtp --set layout.tp=2 --set model.bias=on --max-ranks 2 --shrink-budget 5 --json"
JSON_OF = {
    "fuzz --json": f"shardfuzz fuzz --cases 3 --mode isolated {PLANT}; shardfuzz fuzz --cases 2 --max-memory 1 --json",
    "replay --json": f"shardfuzz replay {BUG}; shardfuzz fuzz --target plugin:./libx.so --cases 50 --out sums; "
                     "shardfuzz replay sums/tolerance-col_sum-out/min.json --json",
    "status --json": "shardfuzz status findings/campaign-0001.sqlite --json",
    "shrink --json": f"shardfuzz shrink -o min.json --budget 5 {BUG}",
    "gate --json": f"shardfuzz gate --seed 1 --cases 3 --mode isolated {PLANT}; shardfuzz gate --cases 2 --max-memory 1 --json",
    "check --json": "shardfuzz noise ref draw1 draw2 draw3 >noise.txt; shardfuzz check ref tp2 --json",
    "power --json": f"shardfuzz power --cases 2 --clean 1 {PLANT}",
    "doctor --json": "shardfuzz doctor --json",
    "worker --json": "echo '{\"ranks\": 4, \"hidden\": 24}' | shardfuzz worker 'python3 targets/samples/worker_mlp.py' --json",
}
# Options of other programs that documents name: mpirun, cmake, ninja, the scripts of ci and the benches.
FOREIGN_OPTIONS = set("--oversubscribe --install --prefix --python --cuda --all --update --array --candidate --objects --make-vocab-size-divisible-by"
                      " --te --fp".split())
# What a document may have at most: (its path, what is counted, how many).
LIMITS = [("README.md", "words", 1000), ("harness/docs/overview.md", "bytes", 8192)]
WIDTH_WANTED, WIDTH = 100, 110
FOLDER = "/home/you/project"  # what documents show in place of the temporary folder
SCHEMA = 1  # of every object of JSON

# What no two runs or machines have in common: times and rates, shares of what could not be judged, errors in the size of rounding.
NUMBER = r"\d+(?:\.\d+)?(?:e[+-]?\d+)?"
VARYING = [
    (r"\bcommit [0-9a-f]{12}\+?", "commit #"),
    (rf"\b{NUMBER} s\b", "# s"),
    (rf"\b{NUMBER}/s\b", "#/s"),
    (rf"\b{NUMBER} %", "# %"),
    (rf"\b{NUMBER} times what rounding explains", "# times what rounding explains"),
    (rf"\brounding explains at most {NUMBER}", "rounding explains at most #"),
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
    """A command of a document: its line number (from 0), its text without a comment, the lines shown as its output."""

    def __init__(self, at, line):
        self.at, self.shown = at, []
        self.text = re.sub(r"\s+# .*$", "", line.removeprefix("$ ")).strip()

    def output(self, printed):
        """The printed lines, in the document's words where they differ in nothing but what varies."""
        known = {normal(line): line for line in reversed(self.shown)}
        return [known.get(normal(line), line) for line in printed]


class Document:
    """One file: its lines, those of prose (others are empty), its fenced blocks, its commands, what is wrong with it."""

    def __init__(self, path):
        self.path, self.name = path, path.relative_to(ROOT).as_posix()
        self.lines = path.read_text().split("\n")
        self.wrong, self.blocks, self.prose = [], [], []
        self._split()
        self.commands = [] if self.is_record() else self._commands()

    def is_record(self):
        return self.name.startswith(RECORDS)

    def say(self, at, text):
        self.wrong.append(f"{self.name}:{at + 1}: {text}")

    def _split(self):
        begin, language = None, ""
        for at, line in enumerate(self.lines):
            fence = line.startswith("```")
            self.prose.append("" if fence or begin is not None else line)
            if begin is None and fence:
                begin, language = at + 1, line[3:].strip()
            elif begin is not None and fence:
                self.blocks.append((language, begin, self.lines[begin:at]))
                begin = None
        if begin is not None:
            self.say(begin - 1, "the block that begins here does not end")

    def _commands(self):
        """The commands that are run, in order."""
        commands = []
        for language, begin, inside in self.blocks:
            first = len(commands)
            for at, line in enumerate(inside, begin):
                if language == "sh" and line.strip() and (self.name, Command(at, line).text) not in NOT_RUN:
                    self.say(at, f"neither in a block marked console nor listed in NOT_RUN of tests/integration/documents.py: {line}")
                elif language == "console" and line.startswith("$ "):
                    commands.append(Command(at, line))
                elif language == "console" and len(commands) > first:
                    commands[-1].shown.append(line)
                elif language == "console":
                    self.say(at, "output without a command")
                elif language == "" and re.match(rf"\$ |{PROGRAMS} ", line):
                    self.say(at, f"a command in a block that is marked neither console nor sh: {line}")
        return commands

    def spans(self):
        """(line number, text) of each inline piece of code."""
        return [(at, span) for at, line in enumerate(self.prose) for span in re.findall(r"`([^`]+)`", line)]

    def anchors(self):
        """The fragments that its headings have on GitHub."""
        seen, found = {}, set()
        for line in self.prose:
            if not line.startswith("#"):
                continue
            text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", line.lstrip("#").strip()).lower()
            slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
            found.add(f"{slug}-{seen[slug]}" if slug in seen else slug)
            seen[slug] = seen.get(slug, 0) + 1
        return found

    def tables(self):
        """{heading: the first cells of the table behind it}."""
        tables, heading = {}, ""
        for line in self.prose:
            if line.startswith("#"):
                heading = line.lstrip("#").strip()
            elif re.match(r"\| *`", line):
                tables.setdefault(heading, []).extend(re.findall(r"`([^`]+)`", line.split("|")[1]))
        return tables


def read_documents():
    paths = [ROOT / "README.md", *(path for room in ROOMS for path in (ROOT / room).rglob("*.md"))]
    return {document.name: document for document in map(Document, sorted(paths))}


# --- what needs no program ----------------------------------------------------------------------------------------------

def check_links(document, documents):
    for at, line in enumerate(document.prose):
        for target in re.findall(r"\[[^]]*\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
            path, _, anchor = target.partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            file = (document.path.parent / path).resolve() if path else document.path
            if not file.exists() or ROOT not in [file, *file.parents]:
                document.say(at, f"there is no {target}")
            elif anchor and file.suffix == ".md" and anchor not in documents[file.relative_to(ROOT).as_posix()].anchors():
                document.say(at, f"{path or 'this file'} has no heading #{anchor}")


def check_corpus(document, documents):
    """A framework's folder of bugs: each script has a row, and each row that is not of a crash stands among the classes of corpus/regress/README.md."""
    folder = re.fullmatch(r"corpus/regress/([\w-]+)/README\.md", document.name)
    if not folder:
        return
    rows = {name: (at, what) for at, line in enumerate(document.prose) for name, what in re.findall(r"^\| ([a-z][a-z0-9-]*) \| ([^|]*)", line) if name != "case"}
    for name in sorted({path.stem for path in document.path.parent.glob("*.py")} - rows.keys()):
        document.say(0, f"{name}.py has no row")
    classes = documents["corpus/regress/README.md"]
    listed = " ".join(line for line in classes.prose if line.count("|") == 4)
    for name, (at, what) in rows.items():
        if not (document.path.parent / f"{name}.py").exists():
            document.say(at, f"there is no {name}.py")
        if not re.match(r"crash|not silent", what) and not re.search(rf"(?<![\w-]){name}(?![\w-])", listed):
            document.say(at, f"{classes.name} does not say what goes wrong in {name}")


def check_paths(document):
    for at, span in document.spans():
        path = re.fullmatch(rf"(?:{'|'.join(ROOMS)})/[\w./*+-]+", span)
        if path and not list(ROOT.glob(re.sub(r"\b(?:ID|NAME)\b", "*", span).rstrip("/.*") + "*")):
            document.say(at, f"there is no {span}")


def check_limits(document):
    for name, what, most in LIMITS:
        text = "\n".join(document.lines)
        count = {"words": len(" ".join(document.prose).split()), "bytes": len(text.encode())}[what]
        if document.name == name and count > most:
            document.say(0, f"has {count} {what}; {most} are the most")


def check_width(document):
    for at, line in enumerate(document.prose):
        if len(line) > WIDTH and not line.startswith(("|", "!")):
            document.say(at, f"has {len(line)} columns; prose wraps at about {WIDTH_WANTED}")


def check_arithmetic(document):
    """Each activation, and each class of modules that has tensors, stands in the arithmetic."""
    modules = re.findall(r"^MODULE\((\w+)", (ROOT / "harness/spec/modules.def").read_text(), re.M)
    activations = re.findall(r"X\(SF_ACT_\w+, \"(\w+)\"", (ROOT / "harness/spec/case.h").read_text())
    words = set(re.findall(r"\w+", "\n".join(document.lines).upper()))
    for name in set(modules) - {"OPTIMIZER"} | {activation.upper() for activation in activations}:
        if name not in words:
            document.say(0, f"does not say what {name} computes")


def check_lists(documents):
    """The tables of this program against the documents: what stands there must be used."""
    named = {(name, Command(0, line).text) for name, document in documents.items() for language, _, inside in document.blocks if language == "sh" for line in inside}
    stale = [f"{name}: {text}" for name, text in NOT_RUN if (name, text) not in named]
    stale += [name for name in {*SETUP, *TORCH} - {name for name, document in documents.items() if document.commands}]
    return [f"tests/integration/documents.py lists what the documents do not have: {one}" for one in stale]


# --- what needs the program -----------------------------------------------------------------------------------------------

def printed(program, *arguments):
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout


def commands_of(program):
    return re.findall(r"^  (\w+) {2,}", printed(program, "--help").split("exit codes")[0], re.M)


def options_of(program):
    helps = [printed(program, command, "--help") for command in commands_of(program)]
    return {option for text in helps for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)} | {"--help", "--version"}


def check_options(document, options):
    shell = [(begin + at, line) for language, begin, inside in document.blocks if language == "sh" for at, line in enumerate(inside)]
    for at, text in [*document.spans(), *((at, line) for at, line in shell if "shardfuzz " in line)]:
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", text):
            if option not in options | FOREIGN_OPTIONS:
                document.say(at, f"there is no option {option}")


def check_reference(document, program):
    """Every command's help is in the reference."""
    shown = {command.text for command in document.commands}
    for name in commands_of(program):
        if f"shardfuzz {name} --help" not in shown:
            document.say(0, f"lacks $ shardfuzz {name} --help")


def keys_of(value, path=""):
    """"first.id", "by_signature[].count" of an object."""
    if isinstance(value, list):
        return {key for one in value for key in keys_of(one, path + "[]")} or {path}
    if isinstance(value, dict):
        return {key for name, one in value.items() for key in keys_of(one, f"{path}.{name}" if path else name)} or {path}
    return {path}


def odd_values(value, path=""):
    """Keys whose number stands for something that is not there."""
    if isinstance(value, (list, dict)):
        items = value.items() if isinstance(value, dict) else ((path, one) for one in value)
        return [key for name, one in items for key in odd_values(one, name)]
    return [path] if value == -1 else []


def is_below(key, other):
    return key == other or key.startswith((other + ".", other + "[]"))


def check_keys(document, shell):
    """The tables of JSON keys against objects that the program prints. A key in a table stands for all below it; one that is null or empty in an
    object, for those below it in another."""
    for heading, text in JSON_OF.items():
        objects = [json.loads(line) for line in shell(text)[1] if line.startswith("{")]
        for one in objects:
            if one.pop("schema", None) != SCHEMA:
                document.say(0, f"{heading}: the object's schema is not {SCHEMA}")
            for key in odd_values(one):
                document.say(0, f"{heading}: {key} is -1 in place of null")
        real = {key for one in objects for key in keys_of(one)}
        shown = document.tables().get(heading, [])
        for key in sorted(real):
            if not any(is_below(key, other) or is_below(other, key) for other in shown):
                document.say(0, f"{heading} lacks {key}")
        for key in shown:
            if not any(is_below(other, key) for other in real):
                document.say(0, f"{heading}: no object has {key}")


def torch_environment():
    python = ROOT / "build-python/bin"
    beside = python if python.exists() else Path(sys.executable).parent
    return {"PATH": f"{beside}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore",
            "PYTHONPATH": f"{os.environ.get('PYTHONPATH') or ROOT / 'targets/python'}:{ROOT}/tests/python"}


def run(document, program):
    """[(command, lines of its stdout, its stderr)], run one after the other in a folder of the document's own."""
    with tempfile.TemporaryDirectory(prefix="shardfuzz-documents-") as folder:
        os.mkdir(f"{folder}/build")
        os.symlink(program, f"{folder}/build/shardfuzz")
        for name in BESIDE:
            os.symlink(ROOT / name, f"{folder}/{name}")
        environment = {**os.environ, **(torch_environment() if document.name in TORCH else {}), "PLUGINS": str(program.parent / "plugins"),
                       "SHARDFUZZ": "build/shardfuzz", "PYTHONDONTWRITEBYTECODE": "1"}
        environment["PATH"] = f"{folder}/build:{environment['PATH']}"

        def shell(text):
            done = subprocess.run(["stdbuf", "-oL", "bash", "-c", text], cwd=folder, env=environment, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", errors="replace")
            shown = done.stdout.replace(folder, FOLDER).rstrip("\n")
            return done.returncode, shown.split("\n") if shown else [], done.stderr
        code, said, errors = shell(f"set -e\n{SETUP.get(document.name, '')}")
        if code != 0:
            document.say(0, "its setup failed:\n" + "\n".join(said) + errors)
            return []
        done = []
        for command in document.commands:
            code, said, errors = shell(command.text)
            done.append((command, said, errors))
            if code > FOUND:
                document.say(command.at, f"exits with {code}: $ {command.text}\n{errors[-STDERR_BYTES:]}")
        check_cases(document, folder)
        if document.name == REFERENCE:
            check_keys(document, shell)
        return done


def differences(shown, real, path=""):
    """Where an object that leaves out fields says something else than the real one."""
    if isinstance(shown, dict) and isinstance(real, dict):
        return [text for key, value in shown.items() for text in differences(value, real.get(key), f"{path}.{key}")]
    return [] if shown == real else [f"{path[1:]} is {real!r}, shown is {shown!r}"]


def check_cases(document, folder):
    """A JSON block with a signature is the shrunk case of that finding: what it shows must be so."""
    for language, begin, inside in document.blocks:
        if language != "json" or not document.commands or not any('"expect"' in line for line in inside):
            continue
        shown = json.loads("\n".join(inside))
        found = Path(folder, "findings", shown["expect"]["signature"].replace("/", "-"), "min.json")
        for text in differences(shown, json.loads(found.read_text())) if found.exists() else [f"no {found.relative_to(folder)} was found"]:
            document.say(begin - 1, text)


def compare(document, done):
    for command, lines, errors in done:
        if normals(command.shown) != normals(lines):
            document.say(command.at, "\n".join([f"$ {command.text}", *difflib.unified_diff(
                command.shown, command.output(lines), "the document shows", "it prints", lineterm="", n=9),
                *(f"stderr: {line}" for line in errors.splitlines()[-STDERR_LINES:])]))


def update(document, done):
    """The document's lines with the real output; from the end, so that line numbers stay."""
    for command, lines, _ in sorted(done, key=lambda one: -one[0].at):
        document.lines[command.at + 1:command.at + 1 + len(command.shown)] = command.output(lines)
    document.path.write_text("\n".join(document.lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--update", action="store_true", help="write what is printed into the documents")
    parser.add_argument("documents", metavar="DOCUMENT", nargs="*", help="run the commands of these alone; default: of all that do not need PyTorch")
    arguments = parser.parse_args()
    program = Path(os.environ.get("SHARDFUZZ", ROOT / "build/shardfuzz")).resolve()
    documents = read_documents()
    options = options_of(program)
    for document in documents.values():
        check_links(document, documents)
        check_corpus(document, documents)
        if not document.is_record():
            check_paths(document)
            check_limits(document)
            check_width(document)
            check_options(document, options)
    check_reference(documents[REFERENCE], program)
    check_arithmetic(documents["harness/docs/model.md"])
    wanted = arguments.documents or documents.keys() - TORCH
    chosen = [document for document in documents.values() if document.commands and document.name in wanted]
    with ThreadPoolExecutor(WORKERS) as pool:
        results = list(pool.map(lambda document: run(document, program), chosen))
    for document, done in zip(chosen, results):
        (update if arguments.update else compare)(document, done)
    wrong = check_lists(documents) + [text for document in documents.values() for text in document.wrong]
    count = sum(map(len, results))
    print("\n".join(wrong) or f"{len(documents)} documents are sound, and {count} commands print what they show", file=sys.stderr if wrong else sys.stdout)
    if wrong and not arguments.update:
        print("Where the program is right: python3 tests/integration/documents.py --update", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
