"""The ranks that trace together, and errors that all of them learn of."""
from typing import Callable, Optional

import torch.distributed as dist

from .errors import ShardfuzzError


def rank_and_count():
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def together(action: Callable):
    """Runs action on every rank and waits for all; where one raised ShardfuzzError all raise its text. Returns action's result."""
    result, error = None, None
    try:
        result = action()
    except ShardfuzzError as caught:
        error = str(caught)
    errors = _gather(error)
    first = next(((rank, text) for rank, text in enumerate(errors) if text is not None), None)
    if first is not None:
        raise ShardfuzzError(error or f"rank {first[0]}: {first[1]}")
    return result


def _gather(error: Optional[str]):
    rank, count = rank_and_count()
    if count == 1:
        return [error]
    errors = [None] * count
    dist.all_gather_object(errors, error)
    return errors
