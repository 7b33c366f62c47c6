"""Where plain tensors lie that come from DTensors or go into them.

parallelize_module turns a module's plain input into a DTensor and its output back into a plain tensor. While a trace is taken,
DTensor.to_local and from_local note on the plain tensor what the DTensor says. So a place may become known after the tensor was recorded;
it is asked for when the trace is written.
"""
from typing import Callable, Optional

from .places import Place, is_dtensor

ATTRIBUTE = "_shardfuzz_marks"


class Mark:
    """Shared by a tensor and its aliases. place, and the mesh that it is for, are None until known; the first to say counts."""

    def __init__(self):
        self.mesh = None
        self.place: Optional[Place] = None


class Marks:
    """Patches DTensor between start and stop. describe(dtensor, leaving) gives the place that is noted, or None; leaving says that the
    plain tensor was made from the DTensor and not the other way."""

    def __init__(self, describe: Callable):
        self.describe = describe
        self.saved = {}

    def of(self, tensor) -> Mark:
        """The mark of what lies in this memory in this form: views of one tensor that differ in nothing have one. It is kept on the tensor that
        they view; what another trace left there is forgotten."""
        base = tensor if tensor._base is None else tensor._base
        owner, marks = getattr(base, ATTRIBUTE, (None, None))
        if owner is not self:
            marks = {}
            setattr(base, ATTRIBUTE, (self, marks))
        return marks.setdefault((tensor.storage_offset(), tuple(tensor.shape), tensor.stride()), Mark())

    def start(self) -> None:
        try:
            from torch.distributed.tensor import DTensor
        except ImportError:
            return
        self.saved = {name: DTensor.__dict__[name] for name in ("to_local", "from_local")}
        to_local, from_local = DTensor.to_local, DTensor.from_local

        def marking_to_local(tensor, *args, **kwargs):
            return self._note(to_local(tensor, *args, **kwargs), tensor, leaving=True)

        def marking_from_local(local_tensor, *args, **kwargs):
            made = from_local(local_tensor, *args, **kwargs)
            self._note(local_tensor, made, leaving=False)
            return made

        DTensor.to_local = marking_to_local
        DTensor.from_local = staticmethod(marking_from_local)

    def stop(self) -> None:
        if self.saved:
            from torch.distributed.tensor import DTensor
            for name, function in self.saved.items():
                setattr(DTensor, name, function)
        self.saved = {}

    def _note(self, plain, dtensor, leaving: bool):
        if not is_dtensor(plain):
            mark = self.of(plain)
            if mark.place is None:
                mark.place = self.describe(dtensor, leaving)
                mark.mesh = None if mark.place is None else dtensor.device_mesh
        return plain
