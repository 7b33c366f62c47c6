"""Values of one rank, explained by those of the single-device run: one of them, a part of one, or by a sum over ranks."""
import math
import time
from typing import Dict, List, NamedTuple, Optional, Tuple

import torch

TOLERANCE, TOLERANCE_16_BITS = 1e-4, 3e-2                # of norms
SINGLE_TOLERANCE, SINGLE_TOLERANCE_16_BITS = 1e-5, 1e-3  # of single numbers, which are near others by chance
SECONDS_MAX = 20
BITS_OF_ROUND = 12  # a number of fewer bits, such as 0.5 or 24, is equal to others by chance
# Operations that give what they read in another form or place.
_FORMS = ("view", "t", "transpose", "detach", "alias", "_unsafe_view", "expand", "unsqueeze", "squeeze", "permute", "clone", "wait_tensor", "_wrap_tensor_autograd",
          "_to_copy", "select", "slice", "split", "split_with_sizes", "copy_", "as_strided", "lift_fresh", "item", "_local_scalar_dense", "unbind")


class Match(NamedTuple):
    """Why a value is right. words: of it, "agrees". which: value of the single-device run, -1 for a constant, which is equal to others by chance and tells
    nothing. of_one: this rank's value itself agrees, and not a sum over ranks."""
    words: str
    which: int
    of_one: bool = True
    is_part: bool = False


CONSTANT = Match("is constant", -1)


def _operation(value: dict) -> str:
    """Without what stands before and behind: "add_"."""
    return (value["operation"].split(".") + [""])[1]


def is_form(value: dict) -> bool:
    return value["reading"] or _operation(value) in _FORMS


def maker(values: List[dict], number: int) -> dict:
    """What the value is another form of."""
    while is_form(values[number]) and values[number]["inputs"]:
        number = values[number]["inputs"][-1]
    return values[number]


class OutOfTime(Exception):
    pass


def _tells_nothing(value: torch.Tensor) -> bool:
    """Whether others have the same by chance: a constant, a round number."""
    if value.numel() == 0 or value.is_complex():
        return True
    if value.numel() > 1:
        return bool((value == value.flatten()[0]).all())
    number = float(value)
    return not value.is_floating_point() or not math.isfinite(number) or (math.frexp(number)[0] * 2 ** BITS_OF_ROUND).is_integer()


def _blocks(stack: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    """[values, ..] -> [values x blocks, ..]: cut along the axis into blocks of that size, and where the last would be smaller the block that ends there."""
    blocks = stack.unfold(axis, size, size).movedim(axis, 1).movedim(-1, axis + 1)
    if stack.shape[axis] % size:
        blocks = torch.cat([blocks, stack.narrow(axis, stack.shape[axis] - size, size).unsqueeze(1)], dim=1)
    return blocks.flatten(0, 1)


class _Found(NamedTuple):
    which: int = -1
    is_part: bool = False


class Reference:
    """The values of the single-device run, to be searched. What the candidate gave it (anchors.py) is none of its own."""

    def __init__(self, values: List[dict]):
        own = [number for number, one in enumerate(values) if one["value"] is not None and not maker(values, number)["reading"]]
        low = any(values[number]["value"].dtype in (torch.bfloat16, torch.float16) for number in own)
        self.tolerance, self.single = (TOLERANCE_16_BITS, SINGLE_TOLERANCE_16_BITS) if low else (TOLERANCE, SINGLE_TOLERANCE)
        self._until = time.monotonic() + SECONDS_MAX
        self._found: Dict[tuple, _Found] = {}
        by_shape: Dict[tuple, list] = {}
        for number in own:
            if not _tells_nothing(values[number]["value"]):
                by_shape.setdefault(tuple(values[number]["value"].shape), []).append(number)
        self._stacks = {shape: (numbers, torch.stack([values[number]["value"].double() for number in numbers])) for shape, numbers in by_shape.items()}

    def find(self, value: torch.Tensor, off_max: float = float("inf")) -> _Found:
        """The first value that equals this one, else the first of which it is a part. off_max: norm of the difference."""
        if time.monotonic() > self._until:
            raise OutOfTime
        key = off_max, tuple(value.shape), value.contiguous().numpy().tobytes()
        if key not in self._found:
            self._off_max = off_max
            found = self._whole(value)
            self._found[key] = self._part(value) if found.which < 0 and value.numel() > 1 else found
        return self._found[key]

    def _whole(self, value: torch.Tensor) -> _Found:
        single = value.numel() == 1
        for shape, (numbers, stack) in self._stacks.items():
            if shape == value.shape or (single and all(size == 1 for size in shape)):
                found = self._nearest(numbers, stack, value, False)
                if found.which >= 0:
                    return found
        return _Found()

    def _part(self, value: torch.Tensor) -> _Found:
        """A block of up to two dimensions that lies as cuts into equal parts do, or a choice of rows along one."""
        for shape, (numbers, stack) in self._stacks.items():
            if len(shape) != value.dim() or any(have > of for have, of in zip(value.shape, shape)):
                continue
            cut = [axis for axis, (have, of) in enumerate(zip(value.shape, shape)) if have < of]
            if not 0 < len(cut) <= 2:
                continue
            blocks, count = stack, 1
            for axis in cut:
                blocks = _blocks(blocks, axis + 1, value.shape[axis])
                count = len(blocks) // len(numbers)
            found = self._nearest(numbers, blocks, value, True, count)
            if found.which >= 0:
                return found
            found = self._rows(numbers, stack, value, cut[0]) if len(cut) == 1 else _Found()
            if found.which >= 0:
                return found
        return _Found()

    def _nearest(self, numbers, stack: torch.Tensor, value: torch.Tensor, is_part: bool, count: int = 1) -> _Found:
        """stack: count candidates of each number."""
        every = stack.reshape(len(stack), -1)
        off = (every - value.reshape(1, -1)).norm(dim=1)
        tolerance = self.single if value.numel() == 1 else self.tolerance
        good = (off <= (tolerance * every.norm(dim=1)).clamp(max=self._off_max)).nonzero()
        return _Found(numbers[int(good[0]) // count], is_part) if len(good) else _Found()

    def _rows(self, numbers, stack: torch.Tensor, value: torch.Tensor, axis: int) -> _Found:
        if value.dim() < 2 or value.numel() < 4 * value.shape[axis]:  # rows of few numbers are anywhere
            return _Found()
        rows = value.movedim(axis, 0).flatten(1)
        nearest = torch.cdist(rows, stack.movedim(axis + 1, 1).flatten(2)).amin(dim=2)  # [values, rows]
        good = (nearest <= self.tolerance * rows.norm(dim=1) + 1e-30).all(dim=1).nonzero()
        return _Found(numbers[int(good[0])], True) if len(good) else _Found()

    def same(self, a: torch.Tensor, b: torch.Tensor) -> bool:
        return a.numel() == b.numel() and bool((a.double().flatten() - b.double().flatten()).norm() <= self.tolerance * b.double().norm())


def _keys(values: List[dict]) -> List[tuple]:
    """The same for what ranks that do the same compute: operation, its line, and which of its calls there."""
    seen: Dict[tuple, int] = {}
    keys = []
    for one in values:
        key = one["operation"], one["where"], one["backward"], one["name"]
        seen[key] = seen.get(key, -1) + 1
        keys.append((*key, seen[key]))
    return keys


class Search:
    """One rank's values, explained when they are asked for. ranks: as recording.read gives them."""

    def __init__(self, reference: Reference, ranks: Dict[int, dict], rank: int):
        self.reference, self.values, self.wanted = reference, ranks[rank]["values"], ranks[rank]["wanted"]
        keys = {other: _keys(about["values"]) for other, about in ranks.items()}
        self._places = {other: {key: number for number, key in enumerate(of)} for other, of in keys.items()}
        self._keys, self._of_rank = keys[rank], {other: about["values"] for other, about in ranks.items()}
        self.groups = sorted({tuple(sorted(group)) for group in [*ranks[rank]["groups"].values(), list(ranks)] if len(group) > 1 and set(group) <= set(ranks)}, key=len)
        self._known: Dict[int, Optional[Match]] = {}
        # Where the loss is the mean over a rank's own rows, gradients are so many times larger. What the wanted tensor is off by is no such factor.
        wanted = self.values[self.wanted]["value"]
        self._factors = [size for size in sorted({len(group) for group in self.groups})
                         if wanted is None or _tells_nothing(wanted) or self.reference.find(wanted.double() / size).which < 0]

    def match(self, number: int) -> Optional[Match]:
        if number not in self._known:
            inputs = self.values[number]["inputs"]
            is_form = len(inputs) == 1 and _operation(self.values[number]) in _FORMS
            self._known[number] = self._explain(number) or (self.match(inputs[0]) if is_form else None)
        return self._known[number]

    def _explain(self, number: int) -> Optional[Match]:
        value, off_max = self.values[number]["value"], self._off_max(number)
        if value is None:
            return None
        if _tells_nothing(value):
            return CONSTANT
        found = self.reference.find(value.double(), off_max)
        if found.which >= 0 and not found.is_part:
            return Match("agrees", found.which)
        joined = self._joined(number, off_max) if value.is_floating_point() else None
        if joined is not None:
            return joined
        if found.which >= 0:
            return Match("is a part that agrees", found.which, is_part=True)
        for size in self._factors if value.is_floating_point() else ():
            found = self.reference.find(value.double() / size, off_max)
            if found.which >= 0:
                return Match(f"agrees but for a factor of {size}", found.which, is_part=found.is_part)
        return None

    def _joined(self, number: int, off_max: float) -> Optional[Match]:
        for group in self.groups:
            parts = [self._of_rank[rank][at]["value"] if at is not None else None for rank, at in ((rank, self._places[rank].get(self._keys[number])) for rank in group)]
            if any(part is None or part.shape != parts[0].shape for part in parts) or all(torch.equal(part, parts[0]) for part in parts):
                continue  # equal copies are no summands
            total, over = torch.stack(parts).double(), "over ranks " + ", ".join(map(str, group))
            sums = [(f"the sum {over} agrees" if size == 1 else f"the mean {over} agrees" if size == len(group) else f"the sum {over} divided by {size} agrees",
                     total.sum(0) / size) for size in sorted({1, *map(len, self.groups)})]
            if parts[0].numel() == 1:
                sums.append((f"the root of the sum of squares {over} agrees", total.square().sum(0).sqrt()))
            for words, one in sums:
                found = _Found() if _tells_nothing(one) else self.reference.find(one, off_max)
                if found.which >= 0:
                    return Match(words, found.which, False, found.is_part)
        return None

    def _off_max(self, number: int) -> float:
        """What was changed in place must agree in its change, which is small beside a parameter."""
        made = maker(self.values, number)
        value = made["value"]
        if value is None or not _operation(made).endswith("_") or not value.is_floating_point():
            return float("inf")
        before = [self.values[one]["value"] for one in made["inputs"]]
        changes = [float((value.double() - one.double()).norm()) for one in before if one is not None and one.shape == value.shape]
        least = min((one for one in changes if one > 0), default=0.0)
        return max(self.reference.tolerance * least, 4 * torch.finfo(value.dtype).eps * float(value.double().norm())) if least else float("inf")

    def first_wrong(self) -> Optional[Tuple[int, List[int]]]:
        """The nearest operation before the wanted tensor that made of explained values one that nothing explains, and what was made of that up to the tensor. What
        no operation gave, such as memory for a result, is not looked at."""
        way, queue = {self.wanted: -1}, [self.wanted]
        for number in queue:
            inputs = self.values[number]["inputs"]
            wrong = [one for one in inputs if self.match(one) is None and self.values[one]["inputs"]]
            if not wrong and any(self.match(one) not in (None, CONSTANT) for one in inputs):
                chain = [number]
                while way[chain[-1]] >= 0:
                    chain.append(way[chain[-1]])
                return number, chain[1:]
            for one in wrong:
                if one not in way:
                    way[one] = number
                    queue.append(one)
        return None
