"""Speed of the Megatron Core adapter on the smallest shapes: cases per second by layout, traced and not.

    mpirun -n RANKS PYTHON tests/bench/bench_megatron.py [--cases N]      (ranks: 2 or 4; PYTHON: that of ci/megatron.sh)

A differential case is a candidate run whose records are handed over; the reference and its perturbed runs belong to the model and serve many
layouts. Traced and untraced runs alternate. Rank 0 prints one JSON line per layout.
"""
import argparse
import json
import sys
import tempfile
import time

from megatron_core_target import shims

shims.install_torch()
import torch.distributed as dist  # noqa: E402

from megatron_core_target import world  # noqa: E402
from megatron_core_target.case import complete  # noqa: E402
from megatron_core_target.layout import layout_of  # noqa: E402

EXPERTS = {"num_moe_experts": 4, "add_bias_linear": False}
LAYOUTS = {
    2: {"tp": {"tp": 2}, "tp+sp": {"tp": 2, "sp": True}, "pp": {"pp": 2}, "cp": {"cp": 2}, "dp": {"dp": 2},
        "dp+distributed_optimizer": {"dp": 2, "distributed_optimizer": True}, "dp+ep": {"dp": 2, "ep": 2}},
    4: {"tp": {"tp": 4}, "tp+pp": {"tp": 2, "pp": 2}, "tp+dp": {"tp": 2, "dp": 2}, "cp+dp": {"cp": 2, "dp": 2}, "dp+ep": {"dp": 4, "ep": 4}},
}


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


def measure(name, fields, rank, ranks, count):
    from megatron_core_target.training import run_case
    model = EXPERTS if fields.get("ep") else {}
    case = complete({"layout": fields, "model": dict(model, num_layers=2), "microbatches": 4})
    layout = layout_of(case["layout"], rank)
    run_case(case, layout)
    pairs = [(timed(lambda: run_case(case, layout)), untraced(lambda: run_case(case, layout))) for _ in range(count)]
    traced, plain = median([pair[0] for pair in pairs]), median([pair[1] for pair in pairs])
    if rank == 0:
        print(json.dumps({"bench": "megatron", "ranks": ranks, "layout": name, "cases": count, "cases_per_s": round(1 / traced, 2),
                          "untraced_per_s": round(1 / plain, 2), "tracing_share": round(1 - plain / traced, 3)}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=15)
    count = parser.parse_args().cases
    folder = tempfile.gettempdir()
    rank, ranks = world.join(folder)
    shims.install_megatron()
    from megatron_core_target.standins import use_norm
    use_norm()
    if ranks not in LAYOUTS:
        print("bench_megatron.py: 2 or 4 ranks", file=sys.stderr)
        return 2
    for name, fields in LAYOUTS[ranks].items():
        measure(name, fields, rank, ranks, count)
    world.leave(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
