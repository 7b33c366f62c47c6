"""Ranks of this run, from Open MPI, torchrun, or alone, joined by Gloo."""
import datetime
import os

import torch.distributed as dist

TIMEOUT = datetime.timedelta(seconds=120)   # a collective that some rank never enters ends the run


def join(folder):
    """Joins the ranks that one mpirun or torchrun started. folder: one that all of them see, for the meeting. Returns (rank, ranks)."""
    environment = os.environ
    rank = int(environment.get("OMPI_COMM_WORLD_RANK", environment.get("RANK", 0)))
    ranks = int(environment.get("OMPI_COMM_WORLD_SIZE", environment.get("WORLD_SIZE", 1)))
    environment.update(RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank))
    environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if "OMPI_COMM_WORLD_RANK" in environment and ranks > 1:
        job = environment.get("PMIX_NAMESPACE") or environment.get("OMPI_MCA_ess_base_jobid") or str(os.getppid())
        store = dist.FileStore(os.path.join(folder, f".meeting-{job.replace('/', '-')}"), ranks)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=TIMEOUT)
    elif ranks > 1:
        dist.init_process_group("gloo", rank=rank, world_size=ranks, timeout=TIMEOUT)
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=TIMEOUT)
    return rank, ranks


def leave(folder):
    """Ends the run once all ranks came here."""
    dist.barrier()
    dist.destroy_process_group()
    for name in os.listdir(folder):
        if name.startswith(".meeting-"):
            try:
                os.remove(os.path.join(folder, name))
            except OSError:
                pass
