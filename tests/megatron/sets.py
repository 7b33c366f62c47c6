"""The harness's side of targets/worker.md for tests: draws complete cases out of a description, and speaks to a set of ranks under mpirun."""
import json
import math
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile

from megatron_core_target.fields import value_of, with_value

TIMEOUT_S = 120
WORKER = [sys.executable, "-W", "ignore", "-m", "megatron_core_target", "serve"]


def refusal(description, case):
    """The reason of the first rule that refuses a complete case; None."""
    for rule in description["refuses"]:
        if all(value_of(case, path) in values for path, values in rule["when"].items()):
            return rule["reason"]
    return None


def plain(description, seed=1):
    """The case with every field at its first choice."""
    case = {}
    for path, field in description["fields"].items():
        with_value(case, path, field["choices"][0] if "choices" in field else seed)
    return case


def drawn(description, seed, ranks=None, share=1.0, fixed=()):
    """A case: fields in random order are set to drawn choices, but for what a rule refuses. ranks: of the candidate; None: any. share: of the fields
    that are drawn. fixed: (path, value) that stay."""
    for attempt in range(1000):
        generator = random.Random(f"{seed}/{attempt}")
        case = plain(description, seed)
        paths = [path for path, field in description["fields"].items() if "choices" in field]
        generator.shuffle(paths)
        for path, value in fixed:
            with_value(case, path, value)
        for path in paths:
            if path in dict(fixed) or generator.random() > share and path not in description["ranks"]:
                continue
            before = value_of(case, path)
            with_value(case, path, generator.choice(description["fields"][path]["choices"]))
            if refusal(description, case):
                with_value(case, path, before)
        if ranks in (None, ranks_of(description, case)):
            return case
    raise ValueError(f"no case of {ranks} ranks in 1000 draws")


def ranks_of(description, case):
    return math.prod(value_of(case, path) for path in description["ranks"])


class RankSet:
    """A set of worker ranks. A context: the ranks end with it."""

    def __init__(self, ranks, options=()):
        self.ranks, self.number = ranks, 0
        self.folder = tempfile.mkdtemp(dir="/dev/shm")
        path = os.path.join(self.folder, "socket")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(path)
            listener.listen(ranks)
            listener.settimeout(TIMEOUT_S)
            environment = dict(os.environ, SHARDFUZZ_SOCKET=path, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
            self.log = open(os.path.join(self.folder, "log"), "w+", encoding="utf-8")
            self.process = subprocess.Popen(["mpirun", "--oversubscribe", "-n", str(ranks), *WORKER, *options], env=environment,
                                            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
            connections = [listener.accept()[0] for _ in range(ranks)]
        for connection in connections:
            connection.settimeout(TIMEOUT_S)
        self.lines = {json.loads(lines.readline())["rank"]: (connection, lines) for connection, lines in (
            (connection, connection.makefile("r", encoding="utf-8")) for connection in connections)}

    def ask(self, request):
        """Every rank's answer, by rank."""
        self.number += 1
        for connection, _ in self.lines.values():
            connection.sendall(json.dumps({"id": self.number, **request}).encode() + b"\n")
        answers = [json.loads(self.lines[rank][1].readline()) for rank in range(self.ranks)]
        assert all(answer["id"] == self.number for answer in answers), answers
        return answers

    def run(self, kind, case, draw=None, keep=None):
        """Answers to one run; its trace goes to `keep`, or is removed."""
        out = keep or os.path.join(self.folder, "out")
        os.makedirs(out)
        answers = self.ask({"request": "run", "run": kind, "case": case, "ranks": self.ranks, "out": out, **({} if draw is None else {"draw": draw})})
        if keep is None:
            shutil.rmtree(out)
        return answers

    def printed(self):
        self.log.flush()
        with open(self.log.name, encoding="utf-8") as file:
            return file.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for connection, lines in self.lines.values():
            try:
                connection.sendall(b'{"request": "quit"}\n')
            except OSError:
                pass
            lines.close()
            connection.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.terminate()
            self.process.wait()
        self.log.close()
        shutil.rmtree(self.folder)
