"""Speed of the Megatron Core adapter on the smallest shapes: cases per second by layout, traced and not.

    mpirun -n RANKS PYTHON tests/bench/frameworks/bench_megatron.py [--cases N]      (ranks: 2 or 4; PYTHON: that of ci/frameworks.sh megatron-core)

A case here is a candidate alone: model, step, trace files. bench_megatron_campaign.py has references and judgement too. Traced and untraced runs
alternate. Rank 0 prints one JSON line per layout.
"""
import argparse
import json
import os
import sys
import tempfile
import time

from megatron_core_target import shims

shims.install_torch()
import torch.distributed as dist  # noqa: E402

from shardfuzz import gloo  # noqa: E402
from megatron_core_target.case import complete  # noqa: E402
from megatron_layouts import LAYOUTS, case_of  # noqa: E402


def timed(run):
    dist.barrier()
    start = time.perf_counter()
    run()
    dist.barrier()
    return time.perf_counter() - start


def untraced(run):
    """The same run with no hooks and no copies."""
    from megatron_core_target import tracing
    saved = tracing.kinds_of, tracing.Recorder.add
    tracing.kinds_of, tracing.Recorder.add = (lambda name: None), (lambda self, path, tensor, place, scale=1.0: None)
    try:
        return timed(run)
    finally:
        tracing.kinds_of, tracing.Recorder.add = saved


def median(values):
    return sorted(values)[len(values) // 2]


def measure(name, fields, session, folder, count):
    """session: a megatron_core_target.session.Session; folder: for traces."""
    from megatron_core_target.traces import entries_of
    from shardfuzz import writer
    rank, ranks = session.rank, session.ranks
    case = complete(case_of(fields))

    def traced():
        writer.write_file(os.path.join(folder, writer.file_name(rank)), entries_of(session.run(case)), rank, ranks)
    traced()
    pairs = [(timed(traced), untraced(lambda: session.run(case))) for _ in range(count)]
    with_trace, plain = median([pair[0] for pair in pairs]), median([pair[1] for pair in pairs])
    if rank == 0:
        print(json.dumps({"bench": "megatron", "ranks": ranks, "layout": name, "cases": count, "cases_per_s": round(1 / with_trace, 2),
                          "untraced_per_s": round(1 / plain, 2), "tracing_share": round(1 - plain / with_trace, 3)}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=15)
    count = parser.parse_args().cases
    folder = tempfile.gettempdir()
    rank, ranks = gloo.join(folder)
    shims.install_megatron()
    from megatron_core_target.standins import use_norm
    use_norm()
    if ranks not in LAYOUTS:
        print("bench_megatron.py: 2 or 4 ranks", file=sys.stderr)
        return 2
    from megatron_core_target.session import Session
    session = Session(rank, ranks)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as traces:
        for name, fields in LAYOUTS[ranks].items():
            measure(name, fields, session, traces, count)
    gloo.leave()
    return 0


if __name__ == "__main__":
    sys.exit(main())
