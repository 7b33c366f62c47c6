"""The worker's first process as a zygote (targets/worker.md): it imports the framework once and forks the ranks of every set.

The zygote forks a leader for each set, and the leader forks the ranks. When the harness closes the set's connection, the leader kills the ranks and whatever
they have started.
"""
import contextlib
import ctypes
import gc
import json
import os
import resource
import selectors
import signal
import socket
import traceback
from typing import Callable, Optional

from .errors import ShardfuzzError

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LEADER_PAUSE_S, ZYGOTE_PAUSE_S = 0.05, 1   # between looks for children that have ended
_OTHER_LAUNCHERS = ("OMPI_", "PMIX_", "PMI_", "SLURM_", "MPI_")


@contextlib.contextmanager
def importing():
    """Within it Python does not search for cycles: imports leave none behind, and searching took a sixth of their time."""
    searches = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searches:
            gc.enable()


def fork_ranks(harness_path: str, path: str, described: dict, preload: Callable[[], Optional[dict]]) -> bool:
    """Listens at path and forks what is asked for. Returns True in each rank, whose environment has its RANK, WORLD_SIZE and SHARDFUZZ_SOCKET; False in the
    zygote, once the harness has closed its connection."""
    harness = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    harness.connect(harness_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen(64)
        harness.sendall(json.dumps({"hello": 1, "rank": 0, "ranks": 1, "forks": True}).encode() + b"\n")
        return _Zygote(harness, listener, described, preload).serve()


def describe(described: dict, preload: Callable[[], Optional[dict]]) -> dict:
    """The answer to `describe`, with the keys that preload() returns. Imports the framework first, since one that cannot be imported cannot be fuzzed."""
    try:
        with importing():
            more = preload() or {}
    except ShardfuzzError as failure:
        return {"error": str(failure)}
    except Exception as failure:  # noqa: BLE001: whatever the import raises
        traceback.print_exc()
        return {"error": f"{type(failure).__name__}: {failure}"[:2000]}
    return {"ok": {**described, **more}}


class _Zygote:
    def __init__(self, harness, listener, described, preload):
        self.harness, self.listener, self.described, self.preload = harness, listener, described, preload
        self.heard = b""

    def serve(self) -> bool:
        with selectors.DefaultSelector() as selector:
            selector.register(self.harness, selectors.EVENT_READ)
            selector.register(self.listener, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select(ZYGOTE_PAUSE_S):
                    if key.fileobj is self.listener:
                        if self._fork_set():
                            return True
                    elif not self._answer():
                        return False
                _reap()

    def _answer(self) -> bool:
        """Answers what the harness asks of the worker as a whole; False at the end."""
        block = self.harness.recv(1 << 16)
        *lines, self.heard = (self.heard + block).split(b"\n")
        for request in map(json.loads, lines):
            if request["request"] == "quit":
                return False
            answer = self._describe() if request["request"] == "describe" else {"error": "a zygote runs nothing"}
            self.harness.sendall(json.dumps({"id": request.get("id"), **answer}).encode() + b"\n")
        return bool(block)

    def _describe(self):
        answer = describe(self.described, self.preload)
        gc.collect()
        gc.freeze()      # a rank's search for cycles leaves out what was imported, and these pages stay shared
        return answer

    def _fork_set(self) -> bool:
        """True in a rank."""
        connection, _ = self.listener.accept()
        line, descriptors = _receive(connection)
        if not line:
            connection.close()
            return False
        request = json.loads(line)
        try:
            pid = os.fork()
        except OSError:  # the set does not start, and its output says why
            os.write(descriptors[0], traceback.format_exc().encode())
            pid = -1
        if pid == 0:
            self.harness.close()
            self.listener.close()
            return _lead(connection, descriptors, request)
        for descriptor in descriptors:
            os.close(descriptor)
        connection.close()
        return False


def _receive(connection):
    """(line, descriptors): a request, sent as one line with its descriptors."""
    text, descriptors = b"", []
    while not text.endswith(b"\n"):
        block, received, _, _ = socket.recv_fds(connection, 4096, 2)
        descriptors += received
        if not block:
            return b"", descriptors
        text += block
    return text, descriptors


def _reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _lead(connection, descriptors, request) -> bool:
    """Forks the ranks, and ends when all of them have ended or the harness closes the connection. True in a rank. descriptors: where ranks print, and what the
    leader holds open until all have ended."""
    system = ctypes.CDLL(None)
    system.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    system.prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        for rank in range(request["fork"]):
            if os.fork() == 0:
                system.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                connection.close()
                _become_rank(descriptors, request, rank)
                return True
    except OSError:
        os.write(descriptors[0], traceback.format_exc().encode())
    os.close(descriptors[0])
    _lead_to_the_end(connection)
    os._exit(0)


def _become_rank(descriptors, request, rank):
    os.dup2(descriptors[0], 1)
    os.dup2(descriptors[0], 2)
    for descriptor in descriptors:
        os.close(descriptor)
    for name in [name for name in os.environ if name.startswith(_OTHER_LAUNCHERS)]:
        del os.environ[name]
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(request["fork"]), LOCAL_WORLD_SIZE=str(request["fork"]),
                      SHARDFUZZ_SOCKET=request["socket"])


def _lead_to_the_end(connection):
    """Waits until the ranks have ended or the harness closes the connection, kills what is left, and sends the processor time that the ranks used, in seconds."""
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        while not selector.select(LEADER_PAUSE_S):
            try:
                os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
    while True:
        for pid in _children():
            os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            break
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        connection.sendall(f"{used.ru_utime + used.ru_stime}\n".encode())
    except OSError:
        pass


def _children():
    """Ids of this process's children. Orphans of the ranks are among them."""
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        return [int(pid) for pid in file.read().split()]
