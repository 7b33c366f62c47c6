"""Ranks as processes of their own, joined by Gloo, for callers that are no rank themselves, such as a test."""
import contextlib
import datetime
import functools
import importlib.util
import multiprocessing
import os
import pickle
import queue
import sys
import tempfile
import time
import traceback

from .errors import ShardfuzzError

TIMEOUT_S = 300   # on a busy machine a world takes a minute
END_S = 10        # a rank that has answered is given so long to end
LAST_WORDS_S = 3  # after the first failure others may tell what caused it
LOST_CONNECTION = "Connection closed by peer"  # Gloo's words


class RankError(ShardfuzzError):
    """A rank raised an exception, died or did not end. The text has its traceback."""


def run(count: int, function, *args, timeout_s: float = TIMEOUT_S) -> list:
    """function(rank, *args) on `count` ranks of a Gloo world; returns their results in order. The ranks are forked from a process that has imported torch
    and done nothing else: what this process did with autograd or threads does not reach them. So function and args are pickled: functions
    must stand at the top level of a module. Raises RankError, and ShardfuzzError for what cannot be pickled."""
    job = _Job(function, args)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["shardfuzz.runs", "torch.distributed.device_mesh"])
    results = context.Queue()
    with tempfile.TemporaryDirectory(prefix="shardfuzz-ranks-") as folder:
        processes = [context.Process(target=_rank, args=(rank, count, os.path.join(folder, "store"), timeout_s, results, job)) for rank in range(count)]
        with _no_main():
            for process in processes:
                process.start()
        answers = {}
        try:
            while len(answers) < count:
                _take(answers, results, processes, timeout_s)
        finally:
            for process in processes:
                process.join(END_S if len(answers) == count else 0)
                if process.is_alive():
                    process.kill()
                    process.join()
    return [answers[rank] for rank in range(count)]


def by_name(function) -> bytes:
    """A function, pickled: by its name. Raises ShardfuzzError."""
    try:
        return pickle.dumps(function)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ShardfuzzError(f"ranks are processes of their own, and this cannot be handed to them: {error}; "
                             "move functions to the top level of a module") from None


class _Job:
    """A call, pickled; and where its modules lie, for those that a new process could not import by name."""

    def __init__(self, function, args):
        self.data = by_name((function, args))
        named = [getattr(_inside(one), "__module__", None) for one in (function, *args)]
        self.files = {name: sys.modules[name].__file__ for name in named if getattr(sys.modules.get(name), "__file__", None)}

    def call(self, rank: int):
        for name, file in self.files.items():
            _import(name, file)
        function, args = pickle.loads(self.data)
        return function(rank, *args)


def _inside(function):
    """The function that a functools.partial calls."""
    return _inside(function.func) if isinstance(function, functools.partial) else function


def _import(name: str, file: str) -> None:
    """Makes a module importable by name: pytest and scripts load files that are on no path."""
    if name in sys.modules and name != "__main__":
        return
    with contextlib.suppress(ImportError, ValueError):
        if name != "__main__" and importlib.util.find_spec(name) is not None:
            return
    spec = importlib.util.spec_from_file_location("__mp_main__" if name == "__main__" else name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


@contextlib.contextmanager
def _no_main():
    """Without it each rank would run the caller's main program again, which _Job does where it is needed."""
    main = sys.modules["__main__"]
    kept = {name: main.__dict__.pop(name) for name in ("__file__", "__spec__") if name in main.__dict__}
    main.__dict__["__spec__"] = None
    try:
        yield
    finally:
        main.__dict__.pop("__spec__")
        main.__dict__.update(kept)


def _take(answers, results, processes, timeout_s):
    """Waits for the next rank's answer and adds it. Raises RankError for the rank whose failure is not another one's consequence."""
    deadline = time.monotonic() + timeout_s
    errors = {}
    while True:
        with contextlib.suppress(queue.Empty):
            rank, error, answer = results.get(timeout=0.2)
            if error is None:
                answers[rank] = answer
                return
            errors[rank] = error
        missing = [rank for rank in range(len(processes)) if rank not in answers and rank not in errors]
        failed = bool(errors) or any(not processes[rank].is_alive() for rank in missing)
        if failed and deadline > time.monotonic() + LAST_WORDS_S:
            deadline = time.monotonic() + LAST_WORDS_S
        if failed and not missing or time.monotonic() > deadline:
            raise RankError(_blame(errors, missing, processes, timeout_s))


def _blame(errors, missing, processes, timeout_s) -> str:
    """What went wrong first: a rank that died takes its connections to others with it, and one that failed does so too."""
    count = len(processes)
    for rank in missing:
        if not processes[rank].is_alive():
            return f"rank {rank} of {count} ended with exit code {processes[rank].exitcode} and gave no result"
    for rank, error in sorted(errors.items(), key=lambda one: LOST_CONNECTION in one[1]):
        return f"rank {rank} of {count}: {error}"
    return f"rank {missing[0]} of {count} did not end within {timeout_s:g} s: does every rank call the same collectives?"


def _words_of(error) -> str:
    """The text of our own errors; the traceback of others, without the frames of this package."""
    if isinstance(error, ShardfuzzError):
        return str(error)
    told = traceback.TracebackException.from_exception(error)
    here = os.path.dirname(os.path.abspath(__file__))
    kept = [frame for frame in told.stack if os.path.dirname(frame.filename) != here]
    told.stack[:] = kept or told.stack
    return "\n" + "".join(told.format())


def _rank(rank, count, store, timeout_s, results, job):
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(count))
    try:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=count, timeout=datetime.timedelta(seconds=timeout_s))
        results.put((rank, None, job.call(rank)))
        dist.barrier()
        dist.destroy_process_group()
    except BaseException as error:
        results.put((rank, _words_of(error), None))
        results.close()
        results.join_thread()  # a thread sends it
        os._exit(1)
