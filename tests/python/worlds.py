"""Small worlds of Gloo ranks: forked processes of this one, so that torch is imported once."""
import os
import tempfile
import traceback

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

TIMEOUT_S = 300  # of a rank that hangs; on a busy machine a world takes a minute


def _rank(rank, count, store, results, function, args):
    torch.set_num_threads(1)
    try:
        if count > 1:
            dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=count)
        results.put((rank, None, function(rank, *args)))
        if count > 1:
            dist.barrier()
            dist.destroy_process_group()
    except BaseException:
        results.put((rank, traceback.format_exc(), None))
        results.close()
        results.join_thread()  # a thread sends it
        os._exit(1)


def run(count, function, *args):
    """function(rank, *args) on `count` ranks; returns their results in order. One process for count = 1: autograd in this one would keep it from
    forking later. Raises RuntimeError with the traceback of the rank that failed first."""
    context = mp.get_context("fork")
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        processes = [context.Process(target=_rank, args=(rank, count, os.path.join(folder, "store"), results, function, args))
                     for rank in range(count)]
        for process in processes:
            process.start()
        try:
            answers = {}
            for _ in processes:
                rank, error, result = results.get(timeout=TIMEOUT_S)
                if error is not None:
                    raise RuntimeError(f"rank {rank} of {count}:\n{error}")
                answers[rank] = result
            return [answers[rank] for rank in range(count)]
        finally:
            for process in processes:
                process.join(0 if len(answers) < count else 10)
                if process.is_alive():
                    process.kill()
                    process.join()
