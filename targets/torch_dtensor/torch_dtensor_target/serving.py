"""The worker of targets/worker.md. One process simulates the ranks of a candidate; several processes are its ranks, and communicate through Gloo."""
import contextlib
import functools
import logging
import os
import warnings

from shardfuzz import worker, zygote
from shardfuzz.chains.limited import refused

from .fields import AXES, DESCRIBE

SECONDS = 5                    # of processor time for a run: some sharding strategies search for minutes
WORLD = 8


def preload():
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")      # it would look at each operation of each simulated rank
    import torch
    torch.set_num_threads(1)
    logging.disable(logging.ERROR)                         # each refusal would leave a traceback
    warnings.filterwarnings("ignore")
    import torch._dynamo                                   # half a second, which each rank would spend in its first case; so would the next three
    import torch.distributed.tensor.debug
    import torch.testing._internal.distributed.fake_pg
    import torch.utils._sympy.reference  # noqa: F401
    from shardfuzz import anchors, gloo, perturb, writer  # noqa: F401
    from . import program, ranks, simulation  # noqa: F401
    simulation.install()


def plain(case, anchored=lambda name, tensor: tensor, moved=lambda tensor: tensor):
    """What run_reference of program.py returns. Raises worker.Refused for a case that plain tensors refuse."""
    from .program import run_reference
    with refused(SECONDS, "no operation of plain tensors: "):
        return run_reference(case, anchored, moved)


class Worker:
    """Answers run requests: alone for all simulated ranks, or for one rank of several processes."""

    def __init__(self):
        with zygote.importing():
            preload()
        import torch.distributed as dist
        self.rank, self.count = worker.place()
        if self.count > 1:
            from shardfuzz import gloo
            gloo.join(os.environ["SHARDFUZZ_SOCKET"])
        else:
            from torch.testing._internal.distributed.fake_pg import FakeStore
            dist.init_process_group("fake", rank=0, world_size=WORLD, store=FakeStore())

    @functools.lru_cache(maxsize=None)
    def ranks(self, tp, dp):
        from .ranks import Ranks
        return Ranks(tp, dp, range(tp * dp) if self.count == 1 else [self.rank])

    def run(self, request, beat):
        case, out = request["case"], request["out"]
        if request["run"] == "candidate":
            self.candidate(case, request["ranks"], out)
        else:
            self.reference(case, request.get("draw", -1), request.get("anchors"), out)

    def candidate(self, case, count, out):
        """A case that DTensor refuses with an error is not supported. Plain tensors run first: what they refuse, DTensor takes much longer to refuse."""
        plain(case)
        from shardfuzz import writer
        from torch.distributed.tensor.debug import _clear_sharding_prop_cache
        from .program import recordable, run_candidate
        _clear_sharding_prop_cache()  # what DTensor keeps of a case would make another one depend on it
        ranks, entries = self.ranks(*(case["layout"][axis] for axis in AXES)), {}
        with refused(SECONDS), ranks.entered():
            found = run_candidate(case, ranks)
            pieces = [(name, ranks.pieces(tensor)) for name, tensor in found]
        for name, parts in pieces:
            for rank, local, place in parts:
                data = recordable(local)
                if data is None:
                    continue
                data = data.detach().reshape(place.local_shape()).contiguous()
                entries.setdefault(rank, []).append((name, data if place.scale == 1 else data * place.scale, place))
        for rank in ranks.mine:
            writer.write_file(os.path.join(out, writer.file_name(rank)), entries.get(rank, []), rank, count, "e2e", ranks.groups(rank), "close")

    def reference(self, case, draw, anchors, out):
        from shardfuzz import writer
        from shardfuzz.anchors import Anchors
        from shardfuzz.perturb import EPSILON, Jitter, Perturbation
        from shardfuzz.places import whole
        from .program import recordable
        of = Anchors(anchors) if anchors else None

        def anchored(name, tensor):
            given = of.of(name, tensor) if of and tensor.dtype.is_floating_point else None
            return tensor if given is None else given
        jitter = Jitter(case["seed"] * 1000 + draw)

        def moved(tensor):
            if draw < 0 or tensor.dtype not in EPSILON or tensor._is_zerotensor():
                return tensor
            return jitter(tensor, 2 * EPSILON[tensor.dtype]).to(tensor.dtype)
        with Perturbation(("E3", "E5")[draw % 2], case["seed"] * 1000 + draw) if draw >= 0 else contextlib.nullcontext():
            found = plain(case, anchored, moved)
        entries = []
        for name, tensor in found:
            data = recordable(tensor)
            if data is not None:
                place = whole(tuple(data.shape))
                entries.append((name, data.detach().reshape(place.local_shape()).contiguous(), place))
        writer.write_file(os.path.join(out, writer.file_name(0)), entries, 0, 1, "anchored" if anchors else "e2e")


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
