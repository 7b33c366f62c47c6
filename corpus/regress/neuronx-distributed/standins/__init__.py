"""Runs neuronx_distributed in its CPU mode where torch_xla, torch_neuronx and neuronxcc are not there. On a machine of AWS's that has them it does nothing.

The scripts beside this folder need torch, packaging, safetensors and a checkout of neuronx_distributed on PYTHONPATH. Those of ZeRO-1 also read that optimizer's
file in a torch_xla that is installed; its library is not loaded.
"""
import importlib.abc
import importlib.machinery
import os
import sys
import types

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


class _Any(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Any(name, (cls,), {})


class _Nothing(metaclass=_Any):
    def __init__(self, *_, **__):
        pass

    def __call__(self, *_, **__):
        return _Nothing()


class _Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules of these packages have any attribute, and it does nothing."""

    packages = ("torch_xla", "torch_neuronx", "neuronxcc", "libneuronxla", "nki", "nkilib", "requests", "tenacity", "boto3", "botocore")

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.split(".")[0] in self.packages else None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = lambda name: sys.modules.get(f"{spec.name}.{name}") or getattr(_Nothing, name)
        return module

    def exec_module(self, module):
        module.__path__ = []


def _all_to_all(value, split_dimension, concat_dimension, split_count, groups=None, pin_layout=True):
    """Over all ranks."""
    parts = [one.contiguous() for one in value.chunk(split_count, split_dimension)]
    found = [torch.empty_like(one) for one in parts]
    for to in range(split_count):
        dist.scatter(found[to], parts if to == dist.get_rank() else None, src=to)
    return torch.cat(found, concat_dimension)


def stand_in():
    try:
        import torch_neuronx  # noqa: F401
        return
    except ImportError:
        pass
    os.environ.update(NXD_CPU_MODE="1", PJRT_DEVICE="NEURON", NXD_LOG_LEVEL="error")
    path = next((found for found in (os.path.join(folder, "torch_xla/distributed/zero_redundancy_optimizer.py") for folder in sys.path) if os.path.exists(found)), None)
    sys.meta_path.insert(0, _Absent())
    torch.classes.neuron = _Nothing
    import torch_neuronx.utils
    import torch_xla.core.xla_model as xm
    import torch_xla.distributed
    import torch_xla.runtime as xr
    import neuronxcc.nki._pre_prod_kernels.collectives as collectives
    torch_neuronx.utils.get_platform_target = lambda: "trn1"
    collectives.CollectivesConfig = lambda replica_groups: types.SimpleNamespace(rank_src_tgt_pairs={rank: [] for ranks in replica_groups for rank in ranks})
    xm.REDUCE_SUM, xm.REDUCE_MAX, xm.REDUCE_MIN, xm.all_to_all, xm.unlazy = "sum", "max", "min", _all_to_all, lambda parameters: None
    # Of one rank: the scripts use no others under ZeRO-1.
    xm.all_reduce = lambda kind, inputs, **options: inputs
    xm.reduce_scatter_bucketized = lambda kind, inputs, **options: inputs
    xm.all_gather_bucketized = lambda inputs, **options: inputs
    xr.global_ordinal, xr.global_device_count = dist.get_rank, dist.get_world_size
    if path is not None:
        module = types.ModuleType("torch_xla.distributed.zero_redundancy_optimizer")
        with open(path, encoding="utf-8") as file:
            exec(compile(file.read().replace("assert self.device.type == 'xla'", ""), path, "exec"), module.__dict__)
        sys.modules[module.__name__] = torch_xla.distributed.zero_redundancy_optimizer = module


def _rank(rank, ranks, main):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29631", RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    stand_in()
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    right = main(rank)
    dist.barrier()
    os._exit(0 if right else 1)


def say(text):
    """Prints lines of one rank that stay together."""
    os.write(1, f"{text}\n".encode())


def run(main, ranks):
    """Runs main(rank) on Gloo ranks. It says whether all is right. Ends the program with 1 where some rank says no."""
    context = mp.get_context("fork")
    processes = [context.Process(target=_rank, args=(rank, ranks, main)) for rank in range(ranks)]
    for one in processes:
        one.start()
    for one in processes:
        one.join()
    sys.exit(0 if not any(one.exitcode for one in processes) else 1)
