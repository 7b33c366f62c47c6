"""The worker of targets/worker.md: one process per rank, which joins its world once and runs case after case."""
import gc
import os

from shardfuzz import worker

from .case import CaseError, complete
from .fields import CHOICES, LAYOUT, NEEDS, RANKS, SEED, on_one_device
from .layout import groups_of
from .rules import described


def description(strict=False):
    """The answer to `describe`: the cases that the worker supports."""
    fields = {path: {"choices": choices, **({"layout": True} if path in LAYOUT else {}), **({"needs": NEEDS[path]} if path in NEEDS else {})}
              for path, choices in CHOICES.items()}
    return {"name": "megatron-core", "ranks": RANKS, "anchored": True, "fields": {**fields, "seed": SEED}, "refuses": described(strict)}


def preload():
    """Imports everything that a run needs, and changes what of torch and of the package needs changing."""
    from . import shims
    shims.install_torch()
    shims.install_megatron()
    from . import session, standins, traces  # noqa: F401
    standins.use_norm()


class Worker:
    """Answers run requests on this rank."""

    def __init__(self, strict):
        preload()
        from shardfuzz import gloo
        from .session import Session
        self.meeting, self.strict, self.joined = os.environ["SHARDFUZZ_SOCKET"], strict, 0
        self.rank, self.ranks = gloo.join(self.meeting)
        self.session = Session(self.rank, self.ranks)
        self.failed = False
        gc.collect()
        gc.freeze()      # what was imported: models are cycles, and each search for them would go through all of it

    def run(self, request, beat):
        """One run, its trace in request["out"]. Raises what the package raises, on OSError no room, worker.Refused for what the package lacks."""
        from . import traces
        from .given import require_library
        from shardfuzz import writer
        from shardfuzz.anchors import Anchors
        try:
            case = complete(request["case"], self.strict)
            require_library(case)
        except (CaseError, RuntimeError) as error:
            raise worker.Refused(str(error)) from None
        if self.failed:
            self._join_again()
        anchors = Anchors(request["anchors"]) if "anchors" in request else None
        perturbation = traces.perturbation_of(case, request["draw"], anchors is not None) if request["run"] == "draw" else None
        try:
            records = self.session.run(case if request["run"] == "candidate" else on_one_device(case), perturbation, anchors)
        except BaseException:
            self.failed = self.ranks > 1
            raise
        groups = groups_of(case["layout"], self.rank) if request["run"] == "candidate" else {}
        writer.write_file(os.path.join(request["out"], writer.file_name(self.rank)), traces.entries_of(records), self.rank, self.ranks,
                          "anchored" if anchors else case["mode"], groups)

    def script(self, case, first):
        """The text of a stand-alone script that shows the tensor `first` of a case. Raises ValueError for a case that is none."""
        from .script import script
        return script(complete(case, self.strict), first)

    def _join_again(self):
        """After a failure messages may be under way that nobody reads. All ranks have failed if the set goes on, so all of them meet here."""
        from shardfuzz import gloo
        from . import shims
        shims.forget_groups()
        self.joined += 1
        gloo.join(self.meeting, self.joined)
        self.failed = False


def serve(strict):
    """Answers requests until the harness has no more. RuntimeError: not started by shardfuzz."""
    state = []

    def started():
        if not state:
            state.append(Worker(strict))
        return state[0]
    worker.serve(description(strict), lambda request, beat: started().run(request, beat), lambda case, first: started().script(case, first), preload)
