"""The ranks that trace together, and errors that all of them learn of."""
import time
from typing import Callable, List, Optional

import torch
import torch.distributed as dist

from .errors import ShardfuzzError

ERROR_BYTES = 2048
LET_GO_S = 5


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


def _gather(error: Optional[str]) -> List[Optional[str]]:
    """Each rank's error, or None. At most ERROR_BYTES of one are sent."""
    rank, count = rank_and_count()
    if count == 1:
        return [error]
    on_processor = any(name in dist.get_backend() for name in ("gloo", "mpi", "cpu", "undefined"))
    device = torch.device("cpu") if on_processor else torch.accelerator.current_accelerator()
    mine = torch.tensor(list((error or "").encode()[:ERROR_BYTES].ljust(ERROR_BYTES, b"\0")), dtype=torch.uint8, device=device)
    texts = [torch.empty_like(mine) for _ in range(count)]
    dist.all_gather(texts, mine)
    # Gloo's thread drops these tensors later, and needs Python for it: where Python ends meanwhile, PyTorch aborts the process.
    deadline = time.monotonic() + LET_GO_S
    while max(one._use_count() for one in (*texts, mine)) > 1 and time.monotonic() < deadline:
        time.sleep(0.0001)
    return [bytes(one.tolist()).rstrip(b"\0").decode(errors="ignore") or None for one in texts]
