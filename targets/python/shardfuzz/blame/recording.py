"""The operations behind one tensor of a trace: what each rank computed until it had that tensor, and where in the source.

    recording = Recording("s0/mb0/fwd/act/layers.0.mlp/0")
    with Tracer(.., operations=recording):   # which says when the tensor passes
        ...
    recording.write(folder, rank, groups)    # a file for each rank
"""
import contextlib
import ctypes
import os
import re
import sys
from typing import Dict, List, Tuple

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten

from ..errors import ShardfuzzError
from ..places import is_dtensor

BYTES_MAX = 1 << 29        # of values that a rank keeps
VALUE_BYTES_MAX = 1 << 21  # of one of them; of larger ones, such as buffers of gradients, it is only known what they are made of
PARTS_MAX = 64             # of a tensor that was written piece by piece
# Files that say how an operation reaches the dispatcher, and not who calls it: of this package, of its targets' stand-ins, of torch.
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + "/"
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + "/"
_PLUMBING = re.compile(rf"{re.escape(_OWN)}|{re.escape(_TORCH)}(_|functional|overrides|utils/|nn/functional|nn/modules/|autograd/|library|fx/|optim/optimizer|"
                       r"distributed/(c10d_logger|distributed_c10d|_functional_collectives|tensor/_|tensor/parallel/_))"
                       r"|.*_target/(shims|standins)\.py$|<|.*/(functools|contextlib)\.py$")
_OVERWRITING = ("aten.copy_", "aten.zero_", "aten.fill_.Scalar")  # what was there before does not matter
_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_LINE_OF_TRACEBACK = re.compile(r'File "([^"]+)", line (\d+)')


def _place(path: str, line) -> str:
    """The file as short as it is still clear: below site-packages or the working folder, else with its folder."""
    if "/site-packages/" in path:
        path = path.rsplit("/site-packages/", 1)[1]
    elif path.startswith(os.getcwd() + "/"):
        path = os.path.relpath(path)
    else:
        path = "/".join(path.split("/")[-2:])
    return f"{path}:{line}"


def _caller() -> str:
    frame = sys._getframe(2)
    while frame is not None:
        if not _PLUMBING.match(frame.f_code.co_filename):
            return _place(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return ""


def _caller_of_forward(node) -> str:
    """Where the forward operation was called whose gradient the node computes."""
    for text in reversed(node.metadata.get("traceback_") or ()):
        found = _LINE_OF_TRACEBACK.search(text)
        if found and not _PLUMBING.match(found[1]):
            return _place(found[1], found[2])
    return ""


class Recording(TorchDispatchMode):
    """Notes each operation on plain tensors until the wanted tensor passes. DTensors and other subclasses show as the operations on their local tensors.

    values: dictionaries, one for each tensor that an operation gave or that came from outside: `operation` (empty for the latter), `name` (of a parameter),
    `where`, `backward`, `reading` (whether the tracer asked for it), `inputs` (numbers of values that the operation read), `value` (a copy, or None).
    wanted: number of the value that the wanted tensor is; None: it did not pass. Raises ShardfuzzError where values need more than BYTES_MAX."""

    def __init__(self, tensor: str):
        super().__init__()
        self.tensor, self.wanted = tensor, None
        self.values: List[dict] = []
        self._of_storage: Dict[int, List[tuple]] = {}  # (first byte, end, number, whether it was written, shape and strides), in order
        self._alive: list = []                         # storages: an address must not come again
        self._items: Dict[float, int] = {}             # numbers that Python was given, their roots, and the values that they are
        self._under_way: Dict[int, torch.Tensor] = {}  # what a collective may not have written yet
        self._bytes, self._reading = 0, False

    def __enter__(self):
        self._anomaly = torch.autograd.set_detect_anomaly(True, check_nan=False)  # notes where forward operations are called
        self._anomaly.__enter__()
        return super().__enter__()

    def __exit__(self, *what):
        super().__exit__(*what)
        self._anomaly.__exit__(*what)

    def know(self, name: str, parameter: torch.Tensor) -> None:
        with _disable_current_modes():
            number = self._number_of(_plain(parameter))
            if number >= 0 and not self.values[number]["operation"]:
                self.values[number]["name"] = name

    @contextlib.contextmanager
    def reading(self):
        """Within it the tracer computes, and not the training."""
        self._reading = True
        try:
            yield
        finally:
            self._reading = False

    def passes(self, name: str, tensor: torch.Tensor) -> None:
        """Says that the tensor of that name is recorded now."""
        if name == self.tensor and self.wanted is None:
            with _disable_current_modes():
                number = self._number_of(_plain(tensor))
            self.wanted = number if number >= 0 else None

    def noted(self) -> dict:
        return {"wanted": self.wanted, "values": self.values}

    def write(self, folder: str, rank: int, groups: dict) -> None:
        """groups: {name: ranks} of this rank's groups. Raises OSError."""
        torch.save({**self.noted(), "groups": groups}, os.path.join(folder, _file_name(rank)))

    # --- operations ---

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self.wanted is not None or any(issubclass(one, FakeTensor) for one in types):  # the latter: shapes are being worked out
            return function(*args, **kwargs)
        if any(one not in _PLAIN for one in types):
            return NotImplemented
        name = str(function).removesuffix(".default")
        read = [number for one in _tensors_of((args[1:] if name in _OVERWRITING else args, kwargs)) for number in self._numbers_of(one)]
        result = function(*args, **kwargs)
        written = [one for i, argument in enumerate(function._schema.arguments) if argument.alias_info is not None and argument.alias_info.is_write
                   for one in _tensors_of(args[i] if i < len(args) else kwargs.get(argument.name))]
        is_under_way = name.startswith("c10d.")  # its first argument gets the result
        if is_under_way:
            written += _tensors_of(args[:1])
        elif name.startswith("_c10d_functional.") and "wait" not in name:
            for one in _tensors_of(result):
                torch.ops._c10d_functional.wait_tensor(one)
        node = torch._C._current_autograd_node()
        about = {"operation": name, "name": "", "where": (node is not None and _caller_of_forward(node)) or _caller(), "backward": node is not None, "reading": self._reading}
        if name == "aten._local_scalar_dense":
            for one in () if not read else (float(result), abs(float(result)) ** 0.5):
                self._items[_rounded(one)] = read[0]
        is_new = bool(written) or not function.is_view
        for one in {id(one): one for one in (*_tensors_of(result), *written)}.values():
            self._add(about, one, read, is_new, is_under_way)
        return result

    # --- values ---

    @staticmethod
    def _extent(tensor: torch.Tensor) -> Tuple[int, int]:
        """First byte and end in its storage."""
        first = tensor.storage_offset()
        end = first + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride())) + 1 if tensor.numel() else first
        return first * tensor.element_size(), end * tensor.element_size()

    def _add(self, about: dict, tensor: torch.Tensor, inputs: list, is_new: bool, is_under_way: bool = False) -> int:
        """Number of the value that is kept; -1: it has none. is_under_way: it is copied when somebody reads it, who has waited for it."""
        if type(tensor) not in _PLAIN or tensor.layout != torch.strided or tensor.device.type == "meta":
            return -1
        storage = tensor.untyped_storage()
        if storage.size() < self._extent(tensor)[1]:  # freed by whoever shards it
            return -1
        number = len(self.values)
        self.values.append({**about, "inputs": sorted({one for one in inputs if one >= 0}), "value": None})
        if tensor.numel() * tensor.element_size() <= VALUE_BYTES_MAX:
            self._under_way[number] = tensor
        if not is_under_way:
            self._keep(number)
        if storage._cdata not in self._of_storage:
            self._alive.append(storage)
        self._of_storage.setdefault(storage._cdata, []).append((*self._extent(tensor), number, is_new, (tuple(tensor.shape), tensor.stride())))
        return number

    def _keep(self, number: int) -> None:
        """Copies the value, if that was not done yet."""
        tensor = self._under_way.pop(number, None)
        if tensor is None:
            return
        value = tensor.detach().clone(memory_format=torch.contiguous_format).cpu()
        self._bytes += value.numel() * value.element_size()
        if self._bytes > BYTES_MAX:
            raise ShardfuzzError(f"the operations before {self.tensor} give more than {BYTES_MAX >> 20} MiB")
        self.values[number]["value"] = value

    def _numbers_of(self, tensor: torch.Tensor) -> List[int]:
        """Of the values that the tensor now consists of, the latest first: what was last written there, or a view of it that was taken since. A number that came
        from Python is the value that Python had it from."""
        if type(tensor) not in _PLAIN or tensor.layout != torch.strided:
            return []
        first, end = self._extent(tensor)
        form, found = (tuple(tensor.shape), tensor.stride()), []
        for begin, stop, number, is_new, of in reversed(self._of_storage.get(tensor.untyped_storage()._cdata, ())):
            is_it = begin == first and of == form
            if is_it or (is_new and begin < end and first < stop):
                self._keep(number)
                found.append(number)
            if is_it or (is_new and begin <= first and end <= stop) or len(found) == PARTS_MAX:
                break
        if found:
            return found
        source = -1
        if tensor.numel() == 1 and tensor.device.type != "meta" and tensor.is_floating_point():
            source = self._items.get(_rounded(float(tensor.detach())), -1)
        about = {"operation": "" if source < 0 else "aten.item", "name": "", "where": "", "backward": False, "reading": False}
        number = self._add(about, tensor, [source], True)
        return [number] if number >= 0 else []

    def _number_of(self, tensor: torch.Tensor) -> int:
        """Of the value that is the tensor, as it is now; -1: it has none."""
        numbers = self._numbers_of(tensor)
        if len(numbers) == 1 and self.values[numbers[0]]["value"] is not None and self.values[numbers[0]]["value"].shape == tensor.shape:
            return numbers[0]
        return self._add({"operation": "aten.as_strided", "name": "", "where": "", "backward": False, "reading": self._reading}, tensor, numbers, False)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """What a DTensor, or the result of a collective that is under way, has on this rank."""
    tensor = tensor._local_tensor if is_dtensor(tensor) else tensor
    return tensor.trigger_wait() if isinstance(tensor, AsyncCollectiveTensor) else tensor


def _tensors_of(value) -> list:
    return [one for one in tree_flatten(value)[0] if isinstance(one, torch.Tensor)]


def _rounded(number: float) -> float:
    """To fp32, as which it may come back."""
    return ctypes.c_float(number).value


def _file_name(rank: int) -> str:
    return f"operations-{rank:05d}.pt"


def read(folder: str) -> Dict[int, dict]:
    """What each rank wrote. Raises OSError."""
    ranks = sorted(int(name[11:16]) for name in os.listdir(folder) if name.startswith("operations-"))
    return {rank: torch.load(os.path.join(folder, _file_name(rank)), weights_only=True) for rank in ranks}
