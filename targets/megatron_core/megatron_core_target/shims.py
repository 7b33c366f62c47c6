"""What megatron-core 0.16.1 needs to run on a CPU with Gloo, and on a GPU without Transformer Engine, each with its reason. No arithmetic of a layer is
changed here.

`install_torch()` before anything of megatron is imported, `install_megatron()` after. Both may be called again.
"""
import contextlib
import logging
import os
import pickle
import warnings

import torch
import torch.distributed as dist
from shardfuzz import devices

CPU = torch.device("cpu")
OBJECT_BYTES = 1 << 14     # of an object that is gathered at once
_done = set()
_kept_groups = {}


def _once(name):
    """True the first time a name is given."""
    first = name not in _done
    _done.add(name)
    return first


def install_torch():
    """On a CPU everything that pretends to be CUDA. TorchDynamo would compile functions anew for each case. Raises ShardfuzzError if there is no GPU."""
    if not _once("torch"):
        return
    os.environ.update(TORCHDYNAMO_DISABLE="1", TORCH_COMPILE_DISABLE="1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    devices.require()
    if devices.on_cuda():
        return
    for name in ("empty", "zeros", "ones", "full", "tensor", "arange", "rand", "randn"):
        _wrap_factory(name)
    _replace_tensor_methods()
    _replace_cuda()


def install_megatron():
    """Everything that touches the package's own names."""
    if not _once("megatron"):
        return
    logging.getLogger("megatron").setLevel(logging.ERROR)
    _names_of_transformer_engine()
    _linear_attention_in_torch()
    _keep_groups()
    if devices.on_cuda():
        return
    _random_state_on_cpu()
    _coalescing_with_gloo()
    _split_sizes_as_numpy()
    _uneven_collectives()
    _alone()
    _gather_objects_at_once()


# --- torch ------------------------------------------------------------------------------------------------------------

def _is_cuda(device):
    return type(device) is int or str(device).startswith("cuda")


def _wrap_factory(name):
    """The package asks for tensors on 'cuda' or on a device by number, and for pinned memory."""
    original = getattr(torch, name)

    def factory(*args, **options):
        if options.get("device") is not None and _is_cuda(options["device"]):
            options["device"] = CPU
        options.pop("pin_memory", None)
        return original(*args, **options)
    factory.__name__ = name
    setattr(torch, name, factory)


def _replace_tensor_methods():
    """Tensor.type() tells DistributedDataParallel and the optimizer which tensors they may hold: only those of CUDA."""
    original = torch.Tensor.type

    def tensor_type(self, dtype=None, *args, **options):
        if dtype is None:
            return original(self).replace("torch.", "torch.cuda.")
        return original(self, dtype, *args, **options)
    torch.Tensor.type = tensor_type
    torch.Tensor.cuda = lambda self, *args, **options: self
    torch.Tensor.record_stream = lambda self, stream: None


class _Event:
    """All work is done when a call returns, so there is nothing to wait for."""
    def __init__(self, *args, **options): pass
    def record(self, *args): pass
    def wait(self, *args): pass
    def synchronize(self): pass


class _Stream(_Event):
    def wait_stream(self, *args): pass
    def wait_event(self, *args): pass
    def record_event(self, *args): return _Event()
    def __enter__(self): return self
    def __exit__(self, *args): return False


def _replace_cuda():
    """Devices, streams, random state and profiler ranges of torch.cuda, which a CPU build of torch has not."""
    stream = _Stream()
    for name in ("synchronize", "empty_cache", "set_device", "manual_seed_all"):
        setattr(torch.cuda, name, lambda *args, **options: None)
    torch.cuda.current_device = lambda: CPU
    torch.cuda.Stream, torch.cuda.Event = _Stream, _Event
    for name in ("stream", "current_stream", "default_stream"):
        setattr(torch.cuda, name, lambda *args, **options: stream)
    torch.cuda.get_rng_state = lambda *args, **options: torch.get_rng_state()
    torch.cuda.set_rng_state = lambda state, *args, **options: torch.set_rng_state(state)
    torch.cuda.manual_seed = lambda seed: torch.default_generator.manual_seed(seed)
    torch.cuda.nvtx.range_push = torch.cuda.nvtx.range_pop = lambda *args, **options: None


# --- megatron ---------------------------------------------------------------------------------------------------------

def _random_state_on_cpu():
    """The tracker of random states keeps states of CUDA's generator."""
    from megatron.core.tensor_parallel import random
    random._get_cuda_rng_state = lambda device="cuda", clone=False, graph_safe=False: torch.get_rng_state()
    random._set_cuda_rng_state = lambda state, device=-1, graph_safe=False: torch.set_rng_state(state)


class _Works:
    """What a coalescing manager hands back: waits for all that was started inside it."""
    def __init__(self):
        self.started = []

    def wait(self):
        for work in self.started:
            work.wait()
        self.started = []


def _coalescing_with_gloo():
    """Gloo cannot coalesce; the asynchronous calls inside the manager are collected instead."""
    from megatron.core.distributed import param_and_grad_buffer as buffers
    places = [(dist, "all_reduce"), (buffers, "dist_reduce_scatter_func"), (buffers, "dist_all_gather_func")]

    def collecting(call, works):
        def wrapper(*args, **options):
            work = call(*args, **options)
            if work is not None:
                works.started.append(work)
            return work
        return wrapper

    @contextlib.contextmanager
    def manager(group=None, device=None, async_ops=False):
        works = _Works()
        saved = [(module, name, getattr(module, name)) for module, name in places] if async_ops else []
        for module, name, call in saved:
            setattr(module, name, collecting(call, works))
        try:
            yield works
        finally:
            for module, name, call in saved:
                setattr(module, name, call)
    buffers._coalescing_manager = manager


def _names_of_transformer_engine():
    """Names that the package binds only where Transformer Engine is installed, and uses without it all the same."""
    from megatron.core.tensor_parallel import random
    from megatron.core.transformer import multi_latent_attention
    from megatron.core.transformer.moe import moe_utils
    if not hasattr(moe_utils, "te_general_gemm"):
        moe_utils.te_general_gemm = None
    if not isinstance(getattr(multi_latent_attention, "TELinear", None), type):
        multi_latent_attention.TELinear = type("AbsentLinear", (), {})
    if not hasattr(random, "activation_recompute_forward"):
        random.activation_recompute_forward = random.fp8_autocast = lambda *args, **options: contextlib.nullcontext()
    if not hasattr(random, "FP8GlobalStateManager"):
        random.FP8GlobalStateManager = type("AbsentFp8", (), {"is_fp8_enabled": staticmethod(lambda: False),
                                                              "is_fp8_calibration": staticmethod(lambda: False),
                                                              "get_fp8_recipe": staticmethod(lambda: None)})


def _linear_attention_in_torch():
    """GatedDeltaNet imports its kernels from a package of Triton kernels; the package's own form in torch takes the same arguments."""
    from megatron.core.ssm import gated_delta_net
    if not gated_delta_net.HAVE_FLA:
        gated_delta_net.HAVE_FLA = True
        gated_delta_net.chunk_gated_delta_rule = gated_delta_net.torch_chunk_gated_delta_rule
        gated_delta_net.l2norm = lambda x, eps=2.0**-20: x * torch.rsqrt((x * x).sum(-1, keepdim=True) + eps)


def _split_sizes_as_numpy():
    """The token dispatcher turns split sizes into NumPy only when they lie on CUDA, and needs them so."""
    from megatron.core.transformer.moe import token_dispatcher

    def move(tensor, as_numpy=False, record_stream=False):
        return tensor.numpy() if isinstance(tensor, torch.Tensor) and as_numpy else tensor
    token_dispatcher.maybe_move_tensor_to_cpu = move


def _uneven_collectives():
    """Gloo wants equal sizes; tokens gathered over expert tensor parallel ranks are uneven."""
    all_gather, reduce_scatter = dist.all_gather, dist.reduce_scatter

    def even(tensors):
        return len({tuple(tensor.shape) for tensor in tensors}) == 1

    def uneven_all_gather(outputs, tensor, group=None, async_op=False):
        if async_op or even(outputs):
            return all_gather(outputs, tensor, group=group, async_op=async_op)
        mine, ranks = dist.get_rank(group), dist.get_process_group_ranks(group)
        for i, output in enumerate(outputs):
            if i == mine:
                output.copy_(tensor)
            piece = output.contiguous()
            dist.broadcast(piece, src=ranks[i], group=group)
            output.copy_(piece)

    def uneven_reduce_scatter(output, tensors, op=dist.ReduceOp.SUM, group=None, async_op=False):
        if async_op or even(tensors):
            return reduce_scatter(output, tensors, op=op, group=group, async_op=async_op)
        for i, tensor in enumerate(tensors):
            piece = tensor.contiguous().clone()
            dist.all_reduce(piece, op=op, group=group)
            if i == dist.get_rank(group):
                output.copy_(piece)
    dist.all_gather, dist.reduce_scatter = uneven_all_gather, uneven_reduce_scatter


class _Done:
    """The work of a collective that had nothing to do."""
    def wait(self, *args): return True
    def is_completed(self): return True


def _alone():
    """A group of one rank exchanges nothing, and the package asks many such groups; Gloo takes a tenth of a millisecond each time. The tensor is
    multiplied by one: what perturbs a run's results sees the sum of one summand as it sees those of more."""
    all_reduce = dist.all_reduce

    def all_reduce_of_one(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
        if dist.get_world_size(group) > 1:
            return all_reduce(tensor, op=op, group=group, async_op=async_op)
        if tensor.is_floating_point():
            tensor.detach().mul_(1)
        return _Done() if async_op else None
    dist.all_reduce = all_reduce_of_one


def _gather_objects_at_once():
    """Objects are gathered in two collectives, first their sizes; a small object takes one with its size in front."""
    gather = dist.all_gather_object

    def gather_small(objects, value, group=None):
        if dist.get_world_size(group) == 1:
            objects[0] = value
            return
        data = pickle.dumps(value)
        mine = torch.zeros(OBJECT_BYTES, dtype=torch.uint8)
        mine[:8] = torch.tensor(list(len(data).to_bytes(8, "little")), dtype=torch.uint8)
        mine[8:8 + len(data)] = torch.frombuffer(bytearray(data[:OBJECT_BYTES - 8]), dtype=torch.uint8)
        pieces = [torch.empty_like(mine) for _ in objects]
        dist.all_gather(pieces, mine, group=group)
        sizes = [int.from_bytes(bytes(piece[:8].tolist()), "little") for piece in pieces]
        if max(sizes) > OBJECT_BYTES - 8:
            gather(objects, value, group=group)
            return
        for i, (piece, size) in enumerate(zip(pieces, sizes)):
            objects[i] = pickle.loads(piece[8:8 + size].numpy().tobytes())
    dist.all_gather_object = gather_small


def forget_groups():
    """Drops the groups that were kept: those of a world that has ended."""
    _kept_groups.clear()


def _keep_groups():
    """Groups of the same ranks are made once: each new layout would leak the backend's groups, threads and memory (with Gloo 40 ms become 14 s after 45)."""
    from megatron.core import parallel_state
    original, kept = parallel_state.create_group, _kept_groups

    def create_group(ranks=None, timeout=None, backend=None, pg_options=None, use_local_synchronization=False, group_desc=None):
        key = None if ranks is None else tuple(ranks)
        if key not in kept:
            kept[key] = original(ranks=ranks, timeout=timeout, backend=devices.backend())
        return kept[key]
    parallel_state.create_group = create_group
