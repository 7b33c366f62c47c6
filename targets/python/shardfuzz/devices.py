"""Where ranks compute: on the CPU, joined by Gloo, or on GPUs, joined by NCCL. shardfuzz says so in SHARDFUZZ_DEVICE (--device).

A process that has touched CUDA cannot fork ranks that use it: until `use` nothing here does, nor may a worker's preload.
"""
import ctypes
import functools
import os
import sys

import torch

from .errors import ShardfuzzError
from .worker import Unusable

SHARING_NCCL = 23004   # NCCL 2.30.4 is the first that lets several ranks share a GPU
COUNT_MAX = 255        # of GPUs that are counted: an exit code


def on_cuda() -> bool:
    return os.environ.get("SHARDFUZZ_DEVICE") == "cuda"


def backend() -> str:
    """Of process groups."""
    return "nccl" if on_cuda() else "gloo"


def device() -> torch.device:
    """Of this rank's tensors. On CUDA only after `use`."""
    return torch.device("cuda", torch.cuda.current_device()) if on_cuda() else torch.device("cpu")


def require() -> None:
    """Before CUDA is used: raises ShardfuzzError, one line, if it cannot be, and fixes what makes its results differ from run to run."""
    if not on_cuda():
        return
    if not torch.backends.cuda.is_built():
        raise ShardfuzzError(f"--device cuda: PyTorch {torch.__version__} of {sys.executable} is built without CUDA")
    if count() == 0:
        raise ShardfuzzError(f"--device cuda: PyTorch {torch.__version__} finds no GPU: does nvidia-smi show one?")
    if count() == 1:
        _require_sharing("ranks share one GPU")
    # What a module imports may ask whether there is a GPU: NVML answers without CUDA.
    os.environ.update(PYTORCH_NVML_BASED_CUDA_CHECK="1", CUBLAS_WORKSPACE_CONFIG=":4096:8")
    matmul = torch.backends.cuda.matmul
    matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    matmul.allow_bf16_reduced_precision_reduction = matmul.allow_fp16_reduced_precision_reduction = False
    # Replicas on several ranks are compared bit by bit. Operations without a deterministic form only warn.
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False


@functools.lru_cache(maxsize=None)
def count() -> int:
    """GPUs that PyTorch can use. A child process asks, since asking may initialise CUDA."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(min(torch.cuda.device_count(), COUNT_MAX))
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def use(rank: int, ranks: int) -> None:
    """Puts this rank on its GPU: ranks take them in turns. Raises ShardfuzzError."""
    if not on_cuda():
        return
    if torch.cuda._is_in_bad_fork():
        raise ShardfuzzError("CUDA was initialised before the ranks were forked, so they cannot use it: start them with --launcher 'mpirun -n {n}'")
    if ranks > count():
        _require_sharing(f"{ranks} ranks share {count()} GPUs")
        # Each rank's kernels wait for those of others on the same GPU: few blocks, so that all of them fit.
        os.environ.update({"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MAX_NCHANNELS": os.environ.get("NCCL_MAX_NCHANNELS", "2")})
    try:
        torch.cuda.set_device(rank % count())
    except RuntimeError as failure:
        excuse(failure)
        raise


def excuse(failure: BaseException) -> None:
    """Raises Unusable if another case may have caused the failure. Under CUDA's Multi-Process Service, a process that makes an illegal access, or ends while it
    computes, makes CUDA fail for every process on the GPU."""
    if not on_cuda():
        return
    line = (str(failure).splitlines() or [type(failure).__name__])[0]
    if "MPS" in line:
        raise Unusable(f"CUDA's Multi-Process Service: {line}") from None
    if is_lost() and int(os.environ.get("SHARDFUZZ_JOBS", "1")) > 1:
        raise Unusable(f"{line}: one failing process makes CUDA fail for every process on the GPU; repeat with --jobs 1 to see which case fails") from None


def _require_sharing(why: str) -> None:
    version = _nccl_version()
    if version is not None and version < SHARING_NCCL:
        raise ShardfuzzError(f"--device cuda: {why}, which needs NCCL 2.30.4, and PyTorch loads NCCL {version // 10000}.{version // 100 % 100}."
                             f"{version % 100}: set LD_PRELOAD to a newer libnccl.so.2")


def _nccl_version():
    """Of the library that is loaded, 22809 for 2.28.9; None if PyTorch has NCCL inside itself. torch.cuda.nccl.version() is that of its build."""
    number = ctypes.c_int()
    try:
        ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(number))
    except OSError:
        return None
    return number.value


def settle() -> None:
    """Waits until CUDA has done all that was started, also in a user's script, where SHARDFUZZ_DEVICE is not set."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def is_lost() -> bool:
    """Whether an error has made CUDA unusable to this process, as an invalid access of a kernel does. Does not wait for kernels that still run."""
    try:
        if on_cuda():
            torch.cuda.current_stream().query()
    except RuntimeError:
        return True
    return False
