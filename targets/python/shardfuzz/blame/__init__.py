"""Which operation made a tensor wrong: the operations behind it on one rank, compared with those of the single-device run by their values.

Nothing says which operation on one device does what an operation of a rank does; the values say it. A rank's value is explained if it is one of the
single-device run's or a part of one, or if the sum or the mean over a group of ranks is. The search goes back from the wrong tensor through values that
nothing explains, to the operation nearest to it that made such a value of explained ones.
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
