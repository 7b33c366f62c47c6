"""Which operation made a tensor wrong: the operations behind it on one rank, compared with those of the single-device run by their values.

No mark links an operation of a rank to one of the single-device run. Their values do: a rank's value is explained if the single-device run has it, if it is a
part of a value there, or if the sum or the mean over a group of ranks is one. The search starts at the wrong tensor, goes back through values that nothing
explains, and ends at the nearest operation that reads explained values and gives one that is not.
"""
from typing import Optional

from .recording import Recording, read
from .words import explain

__all__ = ["Recording", "answer", "explain", "read", "recording_of"]


def recording_of(request: dict) -> Optional[Recording]:
    """What a run is to note, as the request of a worker (targets/worker.md) says it; None: nothing."""
    return Recording(request["operations"]["tensor"]) if "operations" in request else None


def answer(request: dict, recording: Optional[Recording], rank: int, groups: dict) -> Optional[dict]:
    """After the run: the ranks of a candidate leave what they noted, and the reference says what it shows. Raises OSError."""
    if recording is None:
        return None
    asked = request["operations"]
    if request["run"] == "candidate":
        return recording.write(asked["folder"], rank, groups)
    return {"operation": explain(asked["tensor"], recording.noted(), read(asked["folder"]), asked["rank"])}
