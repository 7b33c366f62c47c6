"""The worker of targets/worker.md: one process per rank, which joins its world once and runs case after case."""
import gc
import os

from shardfuzz import worker, zygote
from shardfuzz.megatron.layout import groups_of

from . import undrawn
from .case import CaseError, complete
from .fields import CHOICES, LAYOUT, NEEDS, RANKS, SEED, on_one_device
from .rules import described


def description(strict=False):
    """The answer to `describe`: the cases that the worker supports."""
    fields = {path: {"choices": choices, **({"layout": True} if path in LAYOUT else {}), **({"needs": NEEDS[path]} if path in NEEDS else {})}
              for path, choices in CHOICES.items()}
    return {"name": "megatron-core", "ranks": RANKS, "anchored": True, "operations": True, "devices": ["cpu", "cuda"], "fields": {**fields, "seed": SEED}, "refuses": described(strict)}


def preload():
    """Imports everything that a run needs, and changes what of torch and of the package needs changing. Returns the description's note, if any."""
    from . import shims
    shims.install_torch()
    shims.install_megatron()
    from . import session, standins, traces  # noqa: F401
    standins.use_norm()
    text = undrawn.note(undrawn.of_package())
    return {"note": text} if text else {}


class Worker:
    """Answers run requests on this rank."""

    def __init__(self, strict):
        with zygote.importing():
            preload()
        from shardfuzz import gloo
        from . import shims
        from .session import Session
        self.strict, self.world = strict, gloo.World(os.environ["SHARDFUZZ_SOCKET"], shims.forget_groups)
        self.session = Session(self.world.rank, self.world.ranks)
        gc.collect()
        gc.freeze()      # what was imported: models are cycles, and each search for them would go through all of it

    def run(self, request, beat):
        """One run, its trace in request["out"]. Raises what the package raises, on OSError no room, worker.Refused for what the package lacks."""
        from . import traces
        from .given import require_library
        from shardfuzz import blame, writer
        from shardfuzz.anchors import Anchors
        try:
            case = complete(request["case"], self.strict)
            require_library(case)
        except (CaseError, RuntimeError) as error:
            raise worker.Refused(str(error)) from None
        anchors = Anchors(request["anchors"]) if "anchors" in request else None
        perturbation = traces.perturbation_of(case, request["draw"], anchors is not None) if request["run"] == "draw" else None
        recording = blame.recording_of(request)
        with self.world.used():
            records = self.session.run(case if request["run"] == "candidate" else on_one_device(case), perturbation, anchors, recording)
        rank, ranks = self.world.rank, self.world.ranks
        groups = groups_of(case["layout"], rank) if request["run"] == "candidate" else {}
        writer.write_file(os.path.join(request["out"], writer.file_name(rank)), traces.entries_of(records), rank, ranks,
                          "anchored" if anchors else case["mode"], groups)
        return blame.answer(request, recording, rank, groups)

    def script(self, case, first):
        """The text of a stand-alone script that shows the tensor `first` of a case. Raises ValueError for a case that is none."""
        from .script import script
        return script(complete(case, self.strict), first)


def serve(strict):
    """Answers requests until the harness has no more. RuntimeError: not started by shardfuzz."""
    state = []

    def started():
        if not state:
            state.append(Worker(strict))
        return state[0]
    worker.serve(description(strict), lambda request, beat: started().run(request, beat), lambda case, first: started().script(case, first), preload)
