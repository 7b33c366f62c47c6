"""The worker's side of the protocol (targets/worker.md): requests come to every rank, and every rank answers each.

    from shardfuzz import worker

    def run(request, beat):   # on every rank; request: run, draw, case, ranks, out, anchors
        ...                   # beat() now and then shows that a long run makes progress
        worker.write_trace(request["out"], {"s0/mb0/fwd/act/fc/0": ([4, 8], [[[0, 4]], [[0, 8]]], values)})

    worker.serve({"name": "mine", "fields": {...}}, run)

With worker.serve(.., preload=imports) the worker's first process imports its framework once and forks the ranks of all sets: a set starts in milliseconds.

Needs neither torch nor NumPy. The worker is started by `shardfuzz worker CMD CASES.jsonl`.
"""
import array
import errno
import importlib
import json
import os
import socket
import sys
import traceback
from typing import Callable, Optional

from . import zygote

VERSION = 1
LINE_BYTES = 1 << 20
TEXT_CHARACTERS = 2000
FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
_RANK = (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"), ("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"))


class Refused(Exception):
    """Raised by run, on every rank: the case is not supported; the text says why. It is skipped and counted. last: the process was left in a state that nobody knows, and
    ends after the answer; the next case gets a fresh set."""

    def __init__(self, text: str, last: bool = False):
        super().__init__(text)
        self.last = last


class Unusable(Exception):
    """Raised by run, on any rank: the machine failed, and not the framework. The case becomes inconclusive, and the worker's sets end."""


def place() -> tuple[int, int]:
    """(rank, number of ranks) as the launcher says it: Open MPI, MPICH, torchrun or Slurm; (0, 1) without one."""
    for rank, ranks in _RANK:
        if rank in os.environ and ranks in os.environ:
            return int(os.environ[rank]), int(os.environ[ranks])
    return 0, 1


def write_trace(folder: str, tensors: dict, mode: str = "e2e", groups: Optional[dict] = None) -> None:
    """Writes this rank's trace of fp32 tensors, end to end, "isolated" or "anchored": {name: (shape, index, array.array("f"))}, shape and index as in targets/trace_format.md, the
    values of the rank's part in row-major order. groups: {"tp": [0, 1]}, the ranks of each group that this rank is in, by which a finding can be explained. For torch
    tensors: shardfuzz.writer. Raises OSError, also when there is no room, before anything is written."""
    rank, ranks = place()
    header, places, end = {}, {}, 0
    for name, (shape, index, values) in tensors.items():
        begin, end = end, end + 4 * len(values)
        header[name] = {"dtype": "F32", "shape": [sum(run[1] for run in runs) for runs in index], "data_offsets": [begin, end]}
        places[name] = {"shape": shape, "index": index}
    header["__metadata__"] = {"shardfuzz": json.dumps({"format": 1, "rank": rank, "ranks": ranks, "mode": mode, "groups": groups or {}, "tensors": places})}
    text = json.dumps(header).encode()
    with open(os.path.join(folder, f"rank-{rank:05d}.safetensors"), "wb") as file:
        os.posix_fallocate(file.fileno(), 0, 8 + len(text) + end)
        file.write(len(text).to_bytes(8, "little") + text)
        for _, _, values in tensors.values():
            file.write(values)


def read_tensors(folder: str) -> dict:
    """{name: values in row-major order} of the tensors in a trace of one rank: the candidate's own, request["anchors"]. fp32 and fp64 alone; for torch
    tensors: shardfuzz.anchors. Raises OSError."""
    with open(os.path.join(folder, "rank-00000.safetensors"), "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    types = {"F32": "f", "F64": "d"}
    return {name: array.array(types[entry["dtype"]], data[slice(*entry["data_offsets"])])
            for name, entry in header.items() if entry.get("dtype") in types}


class _Connection:
    """Lines to and from the harness."""

    def __init__(self, path: str):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(path)
        self.lines = self.socket.makefile("r", encoding="utf-8")

    def say(self, message: dict) -> None:
        line = json.dumps(message).encode() + b"\n"
        if len(line) > LINE_BYTES:
            raise ValueError(f"a line of {len(line)} bytes; the protocol takes {LINE_BYTES}")
        self.socket.sendall(line)


def answer(request: dict, run: Callable, beat: Callable) -> dict:
    """The answer to a request, without the id; the traceback of a failure goes to stderr, which the harness keeps."""
    try:
        done = run(request, beat)
    except Refused as refused:
        return {"refused": str(refused)[:TEXT_CHARACTERS], **({"last": True} if refused.last else {})}
    except Unusable as failure:
        return {"unusable": str(failure)[:TEXT_CHARACTERS]}
    except Exception as failure:  # noqa: BLE001: whatever the framework raises is what the case shows
        if isinstance(failure, OSError) and failure.errno in FULL:
            return {"full": str(failure)[:TEXT_CHARACTERS]}
        traceback.print_exc()
        sys.stderr.flush()
        return {"error": f"{type(failure).__name__}: {failure}"[:TEXT_CHARACTERS]}
    return {"ok": done if isinstance(done, dict) else {}}


def serve(describe: dict, run: Callable[[dict, Callable[[], None]], None], script: Optional[Callable[[dict, str], str]] = None,
          preload: Optional[Callable[[], Optional[dict]]] = None) -> None:
    """Says hello and answers requests until the harness has no more.

    describe: what the worker supports. run(request, beat): one run of one case; what it raises is answered as refused (Refused), unusable (Unusable), full
    (an OSError for want of room) or error. script(case, first): the text of a stand-alone script that shows the wrong tensor `first` of the case; with it
    the description says "scripts". preload(): imports what every rank needs, and starts neither threads nor communication. It may return keys for the
    description that are known only after the import. With preload the first process may fork the ranks: run() asks place() for its rank, since a variable
    that was set before has the first process's. KeyboardInterrupt and SystemExit end the rank. RuntimeError: not started by shardfuzz.
    """
    path = os.environ.get("SHARDFUZZ_SOCKET")
    if not path:
        raise RuntimeError("SHARDFUZZ_SOCKET is not set: workers are started by `shardfuzz worker CMD CASES.jsonl`")
    described = {**describe, **({"scripts": True} if script else {})}
    if preload and os.environ.get("SHARDFUZZ_ZYGOTE"):
        if not zygote.fork_ranks(path, os.environ.pop("SHARDFUZZ_ZYGOTE"), described, preload):
            return
        path = os.environ["SHARDFUZZ_SOCKET"]
    rank, ranks = place()
    harness = _Connection(path)
    harness.say({"hello": VERSION, "rank": rank, "ranks": ranks})
    for line in harness.lines:
        request = json.loads(line)
        number, kind = request.get("id"), request["request"]
        if kind == "quit":
            return
        if kind == "describe":
            asks_device = preload and os.environ.get("SHARDFUZZ_DEVICE", "cpu") != "cpu"  # one that is not there must not fail case by case
            harness.say({"id": number, **(zygote.describe(described, preload) if asks_device else {"ok": described})})
        elif kind == "run":
            said = answer(request, run, lambda: harness.say({"id": number, "heartbeat": ""}))
            harness.say({"id": number, **said})
            if said.get("last"):
                return
        elif kind == "script" and script:
            harness.say({"id": number, **answer(request, lambda asked, beat: {"script": script(asked["case"], asked.get("first", ""))}, None)})
        else:
            harness.say({"id": number, "error": f"there is no request {kind!r}"})


def main(package: str) -> None:
    """The program of a target's package (`python -m package`): calls serve() of its module `serving`. A worker that shardfuzz did not start ends with one line
    and exit code 2."""
    with zygote.importing():
        serving = importlib.import_module(".serving", package)
    try:
        serving.serve()
    except RuntimeError as error:
        print(f"{package}: {error}", file=sys.stderr)
        sys.exit(2)
