"""The worker of targets/worker.md. One process simulates the devices of a candidate; several processes have one device each, and communicate through Gloo."""
import functools
import logging
import os
import socket
import time
import warnings

from shardfuzz import worker, zygote
from shardfuzz.chains.limited import refused

from .fields import AXES, DESCRIBE

SECONDS = 20                   # of processor time for a run
DEVICES = 8
CASES = 50                     # after which compiled programs are dropped
MEETING_S = 60


def preload():
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")     # the partitioner GSPMD would say in each case that it is deprecated
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    import torch
    torch.set_num_threads(1)
    import jax
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", "cpu")
    logging.disable(logging.ERROR)
    warnings.filterwarnings("ignore")
    from shardfuzz import anchors, writer  # noqa: F401
    from . import program, ranks  # noqa: F401


def _meeting(path, rank):
    """The address where JAX's processes meet: rank 0 chooses a port and says it in a file."""
    if rank == 0:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        with open(path + ".new", "w", encoding="ascii") as file:
            file.write(str(port))
        os.replace(path + ".new", path)
    deadline = time.monotonic() + MEETING_S
    while not os.path.exists(path):
        if time.monotonic() > deadline:
            raise TimeoutError("rank 0 did not say where to meet")
        time.sleep(0.005)
    with open(path, encoding="ascii") as file:
        return f"127.0.0.1:{file.read()}"


class Worker:
    """Answers run requests: alone for all simulated devices, or for the device of one of several processes."""

    def __init__(self):
        with zygote.importing():
            preload()
        import jax
        self.rank, self.count = worker.place()
        self.runs = 0
        jax.config.update("jax_num_cpu_devices", DEVICES if self.count == 1 else 1)
        if self.count > 1:
            jax.config.update("jax_cpu_collectives_implementation", "gloo")
            path = os.environ["SHARDFUZZ_SOCKET"] + ".meeting"
            jax.distributed.initialize(_meeting(path, self.rank), self.count, self.rank, initialization_timeout=MEETING_S)
            if self.rank == 0:
                os.remove(path)

    @functools.lru_cache(maxsize=None)
    def ranks(self, tp, dp, devices):
        from .ranks import Ranks
        return Ranks(tp, dp, devices)

    def run(self, request, beat):
        case, out = request["case"], request["out"]
        self.runs += 1
        if self.runs % CASES == 0:
            import jax
            from . import program
            program.forget()
            jax.clear_caches()
        if request["run"] == "candidate":
            self.candidate(case, request["ranks"], out)
        else:
            self.reference(case, request.get("draw", -1), request.get("anchors"), out)

    def candidate(self, case, count, out):
        """A case that JAX refuses with an error is not supported."""
        from shardfuzz import writer
        from .program import run_candidate
        ranks, entries = self.ranks(*(case["layout"][axis] for axis in AXES), case["layout"]["devices"]), {}
        with refused(SECONDS):
            found = run_candidate(case, ranks)
        for name, parts in found:
            for rank, local, place in parts:
                if local.size:
                    entries.setdefault(rank, []).append((name, _tensor(local), place))
        for rank in ranks.mine:
            writer.write_file(os.path.join(out, writer.file_name(rank)), entries.get(rank, []), rank, count, "e2e", ranks.groups(rank), "close")

    def reference(self, case, draw, anchors, out):
        from shardfuzz import writer
        from shardfuzz.anchors import Anchors
        from shardfuzz.places import whole
        from . import noise
        from .program import run_reference
        of = Anchors(anchors) if anchors else None

        def anchored(name, array):
            given = of.of(name, _tensor(array)) if of and array.dtype.kind == "f" else None
            return array if given is None else given.numpy()
        with refused(SECONDS, "on one device: "):
            found = run_reference(case, anchored, None if draw < 0 else noise.pool(case["seed"] * 1000 + draw))
        entries = [(name, _tensor(array).reshape(array.shape or (1,)), whole(array.shape)) for name, array in found]
        writer.write_file(os.path.join(out, writer.file_name(0)), entries, 0, 1, "anchored" if anchors else "e2e")


def _tensor(array):
    """As a trace can have it: whole numbers and truth values as fp64."""
    import numpy as np
    import torch
    return torch.from_numpy(np.array(array if array.dtype.kind == "f" else array.astype(np.float64)))


def serve():
    """Answers requests until the harness has no more. RuntimeError: not started by shardfuzz."""
    state = []

    def run(request, beat):
        if not state:
            state.append(Worker())
        return state[0].run(request, beat)

    def script(case, first):
        from . import script as scripts
        return scripts.script(case, first)
    worker.serve(DESCRIBE, run, script, preload)
