"""The harness's side of targets/worker.md for tests: draws complete cases out of a description, and speaks to a set of ranks, forked or under mpirun."""
import atexit
import functools
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


def _listener(path):
    """A socket at that path, whose connections and reads have a deadline."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen()
    listener.settimeout(TIMEOUT_S)
    return listener


def _accept(listener):
    connection = listener.accept()[0]
    connection.settimeout(TIMEOUT_S)
    return connection, connection.makefile("r", encoding="utf-8")


@functools.lru_cache(maxsize=None)
def _zygote():
    """The socket of a worker that has imported the framework and forks sets until the tests end."""
    folder = tempfile.mkdtemp(dir="/dev/shm")
    forks = os.path.join(folder, "forks")
    with _listener(os.path.join(folder, "harness")) as listener:
        process = subprocess.Popen(WORKER, env=dict(os.environ, SHARDFUZZ_SOCKET=os.path.join(folder, "harness"), SHARDFUZZ_ZYGOTE=forks, OMP_NUM_THREADS="1"),
                                   stdin=subprocess.DEVNULL)
        connection, lines = _accept(listener)
    assert json.loads(lines.readline())["forks"]
    connection.sendall(b'{"id": 0, "request": "describe"}\n')
    assert "ok" in json.loads(lines.readline())

    def end():
        lines.close()
        connection.close()
        process.wait(20)
        shutil.rmtree(folder)
    atexit.register(end)
    return forks


class RankSet:
    """A set of worker ranks. A context: the ranks end with it. launched: mpirun starts them, each with its own imports."""

    def __init__(self, ranks, launched=False):
        self.ranks, self.number, self.process, self.leader = ranks, 0, None, None
        self.folder = tempfile.mkdtemp(dir="/dev/shm")
        path = os.path.join(self.folder, "socket")
        self.log = open(os.path.join(self.folder, "log"), "w+", encoding="utf-8")
        with _listener(path) as listener:
            if launched:
                environment = dict(os.environ, SHARDFUZZ_SOCKET=path, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
                self.process = subprocess.Popen(["mpirun", "--oversubscribe", "-n", str(ranks), *WORKER], env=environment,
                                                stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
            else:
                self._fork(path)
            connections = [_accept(listener) for _ in range(ranks)]
        self.lines = {json.loads(lines.readline())["rank"]: (connection, lines) for connection, lines in connections}

    def _fork(self, path):
        self.leader = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.leader.settimeout(TIMEOUT_S)
        self.leader.connect(_zygote())
        held, ours = socket.socketpair()
        with held, ours:
            socket.send_fds(self.leader, [json.dumps({"fork": self.ranks, "socket": path}).encode() + b"\n"], [self.log.fileno(), held.fileno()])

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
        if self.leader:
            self.leader.shutdown(socket.SHUT_WR)
            self.leader.recv(64)      # the processor time of the ranks, once all have ended
            self.leader.close()
        else:
            self._wait()
        self.log.close()
        shutil.rmtree(self.folder)

    def _wait(self):
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.terminate()
            self.process.wait()
