"""What stands in for the packages of AWS's hardware, so that neuronx_distributed can be imported and trains in its CPU mode, on Gloo.

The library imports torch_xla, torch_neuronx and neuronxcc. torch_xla's collectives are those of torch.distributed here, and its ZeRO-1 optimizer is the one of an
installed torch_xla, whose library is not loaded. corpus/regress/neuronx-distributed uses this file too: it imports torch alone.
"""
import importlib.abc
import importlib.machinery
import os
import sys
import types

import torch
import torch.distributed as dist


class HasAll(type):
    """The type of a class that has every attribute. Each attribute is such a class too."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return HasAll(name, (cls,), {})


class Unused(metaclass=HasAll):
    """Stands in for what the library imports and never uses in training on a CPU."""

    def __init__(self, *_, **__):
        pass

    def __call__(self, *_, **__):
        return Unused()


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports modules of packages that are not there. Their attributes are Unused."""

    def __init__(self, *packages):
        self.packages = packages

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.split(".")[0] in self.packages else None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = lambda name: self.attribute(module, name)
        return module

    def exec_module(self, module):
        module.__path__ = []

    @staticmethod
    def attribute(module, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return sys.modules.get(f"{module.__name__}.{name}") or getattr(Unused, name)


class Platform:
    """What the library takes the hardware for."""

    name = "trn1"


class Collectives:
    """The collectives of torch_xla.core.xla_model that training uses. groups: for all ranks, lists of ranks."""

    REDUCE_SUM, REDUCE_MAX, REDUCE_MIN = "sum", "max", "min"
    OPERATIONS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}
    kept = {}

    @classmethod
    def group(cls, groups):
        if groups is None:
            return dist.group.WORLD
        for ranks in groups:
            if tuple(ranks) not in cls.kept:
                cls.kept[tuple(ranks)] = dist.new_group(list(ranks))
        return cls.kept[next(tuple(ranks) for ranks in groups if dist.get_rank() in ranks)]

    @classmethod
    def all_reduce(cls, kind, inputs, scale=1.0, groups=None, pin_layout=True):
        """In place where a list is given, as in torch_xla."""
        found = []
        for one in inputs if isinstance(inputs, list) else [inputs.clone()]:
            dist.all_reduce(one, cls.OPERATIONS[kind], cls.group(groups))
            found.append(one.mul_(scale) if scale != 1 else one)
        return found if isinstance(inputs, list) else found[0]

    @classmethod
    def all_gather(cls, value, dim=0, groups=None, output=None, pin_layout=True):
        group = cls.group(groups)
        parts = [torch.empty_like(value, memory_format=torch.contiguous_format) for _ in range(group.size())]
        dist.all_gather(parts, value.contiguous(), group)
        return torch.cat(parts, dim)

    @classmethod
    def reduce_scatter(cls, kind, value, scale, scatter_dim, shard_count, groups=None, output=None, pin_layout=True):
        value, group = value.clone(memory_format=torch.contiguous_format), cls.group(groups)
        dist.all_reduce(value, cls.OPERATIONS[kind], group)
        part = value.chunk(shard_count, scatter_dim)[group.rank()] * scale
        return part if output is None else output.copy_(part)

    @classmethod
    def all_gather_bucketized(cls, values, dim=0, groups=None, output=None, pin_layout=False, bucket_cap_mb=160):
        return [cls.all_gather(value, dim, groups) for value in values]

    @classmethod
    def reduce_scatter_bucketized(cls, kind, values, scale, scatter_dim, shard_count, groups=None, output=None, pin_layout=False, bucket_cap_mb=160):
        return [cls.reduce_scatter(kind, value, scale, scatter_dim, shard_count, groups) for value in values]

    @classmethod
    def all_to_all(cls, value, split_dimension, concat_dimension, split_count, groups=None, pin_layout=True):
        group = cls.group(groups)
        parts = [one.contiguous() for one in value.chunk(split_count, split_dimension)]
        found = [torch.empty_like(one) for one in parts]
        for to in range(group.size()):      # Gloo has no all_to_all
            dist.scatter(found[to], parts if to == group.rank() else None, group=group, group_src=to)
        return torch.cat(found, concat_dimension)


class Arena:
    """torch_xla's ToXlaTensorArena. transform() replaces tensors that select() chooses by what convert() makes of them, in nested dictionaries and lists."""

    def __init__(self, convert, select):
        self.convert, self.select = convert, select

    def transform(self, data):
        if isinstance(data, dict):
            return type(data)((key, self.transform(value)) for key, value in data.items())
        if isinstance(data, (list, tuple)):
            return type(data)(self.transform(value) for value in data)
        return self.convert([data])[0] if self.select(data) else data


def stand_in():
    """Lets the library be imported."""
    if "torch_xla" in sys.modules:
        return
    os.environ.update(NXD_CPU_MODE="1", PJRT_DEVICE="NEURON", NXD_LOG_LEVEL="error")
    sys.meta_path.insert(0, Absent("torch_xla", "torch_neuronx", "neuronxcc", "libneuronxla", "nki", "nkilib"))
    sys.meta_path.append(Absent("requests", "tenacity", "boto3", "botocore"))     # of checkpoints in Amazon's storage
    torch.classes.neuron = Unused
    import torch_neuronx.utils
    import torch_xla.core.xla_model as model
    import torch_xla.runtime as runtime
    import torch_xla.utils.checkpoint as checkpoint
    import neuronxcc.nki._pre_prod_kernels.collectives as pairs
    for name in ("REDUCE_SUM", "REDUCE_MAX", "REDUCE_MIN", "all_reduce", "all_gather", "reduce_scatter", "all_gather_bucketized", "reduce_scatter_bucketized",
                 "all_to_all"):
        setattr(model, name, getattr(Collectives, name))
    model.rendezvous, model.ToXlaTensorArena = lambda *_: dist.barrier(), Arena
    for name in ("mark_step", "unlazy", "add_step_closure"):
        setattr(model, name, lambda *_, **__: None)
    model.xla_device, model.is_master_ordinal = lambda *_: torch.device("cpu"), lambda *_: dist.get_rank() == 0
    runtime.global_ordinal, runtime.global_device_count, runtime.local_ordinal = dist.get_rank, dist.get_world_size, dist.get_rank
    runtime.world_size = runtime.local_process_count = dist.get_world_size
    checkpoint.checkpoint = torch.utils.checkpoint.checkpoint
    torch_neuronx.utils.get_platform_target = lambda: Platform.name
    pairs.CollectivesConfig = lambda replica_groups: types.SimpleNamespace(rank_src_tgt_pairs={rank: [] for ranks in replica_groups for rank in ranks})
    zero_one()
    from neuronx_distributed.parallel_layers import comm, grads
    # In its CPU mode the library's all_reduce takes no lists of ranks, which clipping under ZeRO-1 gives it.
    grads.all_reduce = lambda kind, inputs, groups, pin_layout=True: comm.all_reduce(
        kind, inputs, Collectives.group(groups) if isinstance(groups, list) else groups, pin_layout)


def zero_one():
    """Loads torch_xla's ZeRO-1 optimizer from the installed package, without the line that asserts an XLA device."""
    import torch_xla.distributed
    name = "torch_xla.distributed.zero_redundancy_optimizer"
    path = next((found for found in (os.path.join(folder, *name.split(".")) + ".py" for folder in sys.path) if os.path.exists(found)), None)
    module = types.ModuleType(name)
    if path is None:
        module.ZeroRedundancyOptimizer = NotInstalled
    else:
        with open(path, encoding="utf-8") as file:
            exec(compile(file.read().replace("assert self.device.type == 'xla'", ""), path, "exec"), module.__dict__)
    sys.modules[name] = torch_xla.distributed.zero_redundancy_optimizer = module


class NotInstalled(torch.optim.Optimizer):
    def __init__(self, *_, **__):
        raise ImportError("ZeRO-1 needs an installed torch-xla: its optimizer is read there")
