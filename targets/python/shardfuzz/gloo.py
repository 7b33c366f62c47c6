"""Ranks of this run, from a zygote, Open MPI, torchrun, or alone, joined by Gloo, or on GPUs by NCCL."""
import contextlib
import datetime
import os
import sys
import time
import traceback

import torch.distributed as dist
from torch.distributed import new_group as _new_group
from torch.distributed.device_mesh import init_device_mesh as _init_device_mesh

from . import devices
from .worker import place

TIMEOUT = datetime.timedelta(seconds=120)   # a collective that some rank never enters ends the run
POLL_S = 0.005


def join(meeting, again=0):
    """Joins the ranks that were started together. meeting: beginning of a path that all of them see, for a worker SHARDFUZZ_SOCKET. again: how often they
    have joined before; what an earlier world has not delivered is lost with it. Returns (rank, ranks)."""
    rank, ranks = place()
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank))
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if dist.is_initialized():
        dist.destroy_process_group()
    devices.use(rank, ranks)
    if ranks == 1:
        store = dist.HashStore()
    elif "OMPI_COMM_WORLD_RANK" in os.environ or "MASTER_ADDR" not in os.environ:
        job = os.environ.get("PMIX_NAMESPACE") or os.environ.get("OMPI_MCA_ess_base_jobid") or str(os.getppid())
        store = _meet(f"{meeting}.meeting-{job.replace('/', '-')}-{again}", rank, ranks)
    else:
        store = dist.PrefixStore(str(again), dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), ranks, False, TIMEOUT))
    dist.init_process_group(devices.backend(), store=store, rank=rank, world_size=ranks, timeout=TIMEOUT)
    return rank, ranks


def _meet(path, rank, ranks):
    """A store on rank 0, whose port the others read in a file that is gone when all are there."""
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, ranks, True, TIMEOUT, wait_for_workers=False)
        with open(path + ".new", "w", encoding="ascii") as file:
            file.write(str(store.port))
        os.replace(path + ".new", path)
        for other in range(1, ranks):
            store.wait([f"here-{other}"])
        os.remove(path)
        return store
    deadline = time.monotonic() + TIMEOUT.total_seconds()
    while not os.path.exists(path):
        if time.monotonic() > deadline:
            raise TimeoutError("rank 0 did not say where to meet")
        time.sleep(POLL_S)
    with open(path, encoding="ascii") as file:
        store = dist.TCPStore("127.0.0.1", int(file.read()), ranks, False, TIMEOUT)
    store.set(f"here-{rank}", "")
    return store


class World:
    """The ranks of a worker, which run case after case. meeting: as for join. forget(): drops what a framework keeps of a world."""

    def __init__(self, meeting, forget=lambda: None):
        self.meeting, self.forget, self.joined, self.failed, self.meshes, self.groups = meeting, forget, 0, False, {}, {}
        self.rank, self.ranks = join(meeting)
        self.whole = self.current = dist.group.WORLD   # the group of all ranks; the group that the meshes and groups here belong to

    @contextlib.contextmanager
    def used(self):
        """Around a run. After one that failed messages may be under way that nobody reads: the next one is in a new world. All ranks have failed if the
        set goes on, so all of them meet. They also meet after a run that put a smaller world in place of theirs."""
        if self.failed or self.whole is not dist.group.WORLD:
            self.joined += 1
            self.forget()
            os.environ.update(RANK=str(self.rank), WORLD_SIZE=str(self.ranks))
            join(self.meeting, self.joined)
            self._follow()
            self.whole, self.failed = self.current, False
        try:
            yield
        except BaseException as failure:
            devices.excuse(failure)
            if devices.is_lost():
                traceback.print_exc()
                raise SystemExit("CUDA cannot be used any more: the rank ends") from None
            self.failed = self.ranks > 1
            raise

    def mesh(self, **sizes):
        """A DeviceMesh whose dimensions have these names and sizes. It is kept, since its groups of processes are."""
        return self._mesh(devices.device().type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))

    def _follow(self):
        """Drops the meshes and groups of a world that another one has replaced."""
        if self.current is not dist.group.WORLD:
            self.current = dist.group.WORLD
            self.meshes.clear()
            self.groups.clear()
            _forget_meshes()

    def keep_meshes(self):
        """For frameworks that make their meshes themselves, and new ones in each case: torch gives them those that are there."""
        dist.init_device_mesh = dist.device_mesh.init_device_mesh = self._mesh

    def keep_groups(self):
        """For frameworks that make their groups themselves, and new ones in each case: torch gives them those that are there."""
        dist.new_group = self._group

    def _group(self, ranks=None, *given, **options):
        self._follow()
        key = None if ranks is None else tuple(ranks), repr(given), repr(options)
        if key not in self.groups:
            self.groups[key] = _new_group(ranks, *given, **options)
        return self.groups[key]

    def _mesh(self, device, shape, *, mesh_dim_names=None, **options):
        self._follow()
        key = device, tuple(shape), mesh_dim_names, repr(options)
        if key not in self.meshes:
            self.meshes[key] = _init_device_mesh(device, tuple(shape), mesh_dim_names=mesh_dim_names, **options)
        return self.meshes[key]


def _forget_meshes():
    """Drops what DTensor has worked out by mesh: a mesh of the new world equals one of the old world, whose process groups are gone."""
    from torch.distributed.tensor import debug
    debug._clear_sharding_prop_cache()
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.distributed.tensor"):
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear") and not isinstance(value, type):
                    value.cache_clear()


def leave():
    """Ends the run once all ranks came here."""
    dist.barrier()
    dist.destroy_process_group()
