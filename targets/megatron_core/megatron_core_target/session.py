"""One rank's run of case after case: what outlives a case, and what must not.

Groups of ranks stay as long as the layout does. On one device the model stays too, as long as cases differ in nothing: it is what the reference
and its perturbed runs have in common.
"""
import contextlib
import json

from shardfuzz.megatron.layout import layout_of
from .model import Model, forget
from .tracing import Recorder
from .training import run_steps


class Session:
    """Runs cases on this rank. rank, ranks: of the joined world."""

    def __init__(self, rank, ranks):
        self.rank, self.ranks = rank, ranks
        self.key, self.model, self.recorder = None, None, None

    def run(self, case, perturbation=None, anchors=None, operations=None):
        """All steps of a complete case. Returns its records [(name, tensor, place)], which are good until the next run. anchors, operations: as
        Recorder.reset takes them.

        Raises what the package raises; then everything of the package's that outlives a case has been dropped."""
        key = json.dumps(case, sort_keys=True) if self.ranks == 1 else None
        try:
            if key is None or key != self.key:
                self._build(case)
                self.key = key
            else:
                self.model.reset()
            self.recorder.reset(anchors, operations)
            with operations or contextlib.nullcontext():
                run_steps(self.model, self.recorder, perturbation)
        except BaseException:
            self.drop()
            raise
        return self.recorder.records

    def _build(self, case):
        self.key = self.model = self.recorder = None
        self.model = Model(case, layout_of(case["layout"], self.rank))
        self.recorder = Recorder(self.model)

    def drop(self):
        """Forgets model and groups: the next run begins as the first."""
        self.key = self.model = self.recorder = None
        forget()
