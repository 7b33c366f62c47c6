#!/usr/bin/env python3
"""The tracer for PyTorch: false alarms of `shardfuzz check` on right layouts of a small transformer, and what tracing costs.

    tests/bench/frameworks/bench_tracer.py BUILD_DIR [SEEDS]      needs torch

For each seed and for fp32 and bf16 one reference (two steps, SGD and Adam in turn, nine perturbed runs), and four candidates on Gloo: tensor parallel on 2
and 4 ranks, sequence parallel and FSDP2 on 2. The cost is that of a step of a model with hidden size 256, in processor time, files not counted.
"""
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
sys.path[:0] = [os.path.join(ROOT, "targets", "python"), os.path.join(ROOT, "tests", "python"), os.path.join(ROOT, "tests", "bench")]

import torch

import line
import models
import shardfuzz
import worlds

LAYOUTS = {"tp2": ({"tp": 2}, False), "sp2": ({"tp": 2}, True), "fsdp2": ({"dp": 2}, False), "tp4": ({"tp": 4}, False)}
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def reference(rank, folder, optimizer, data_type, seed):
    shardfuzz.reference(folder, lambda: models.build(optimizer, data_type, seed), models.train_step, seed=seed, steps=2)


def candidate(rank, folder, layout, optimizer, data_type, seed):
    warnings.simplefilter("ignore")
    build, train_step, group = models.build_parallel(*LAYOUTS[layout], None, optimizer, models.train_step, data_type, seed)
    shardfuzz.trace(folder, build, train_step, batch=group or "same", seed=seed, steps=2)


def check(program, folder, seed, precision, counts):
    optimizer = ("sgd", "adam")[seed % 2]
    one, other = os.path.join(folder, "reference"), os.path.join(folder, "candidate")
    worlds.run(1, reference, one, optimizer, TYPES[precision], seed)
    for layout, (sizes, _) in LAYOUTS.items():
        worlds.run(sum(sizes.values()), candidate, other, layout, optimizer, TYPES[precision], seed)
        done = subprocess.run([program, "check", "--json", one, other], capture_output=True, text=True)
        said = json.loads(done.stdout.splitlines()[-1])["candidates"][0]
        counts["cases"] += 1
        counts["judged"] += said["judged"]
        counts["not_judged"] += said["not_judged"]
        if done.returncode != 0:
            counts["alarms"] += 1
            print(f"seed {seed} {precision} {optimizer} {layout}: {said['first']}", file=sys.stderr)


def cost(rank):
    """(CPU seconds of a step, of a step under a tracer, of copying what it recorded), the least of several."""
    models.HIDDEN, models.LAYERS, models.SEQUENCES, models.LENGTH = 256, 4, 8, 64
    model, optimizer = models.build("adam")
    plain, traced, copied = [], [], []
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        for _ in range(10):
            begin = time.process_time()
            models.train_step(model, optimizer)
            plain.append(time.process_time() - begin)
            begin = time.process_time()
            with shardfuzz.Tracer(folder, model, optimizer) as tracer:
                models.train_step(model, optimizer)
                traced.append(time.process_time() - begin)
            recorded = [record.data for record in tracer.recorder.records.values()]
            begin = time.process_time()
            copies = [data.clone() for data in recorded]
            copied.append(time.process_time() - begin)
            del recorded, copies
    return min(plain), min(traced), min(copied)


def main():
    os.environ["SHARDFUZZ"] = os.path.join(os.path.abspath(sys.argv[1]), "shardfuzz")
    seeds = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    figures = {precision: {"cases": 0, "alarms": 0, "judged": 0, "not_judged": 0} for precision in TYPES}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(seeds):
            for precision, counts in figures.items():
                check(os.environ["SHARDFUZZ"], folder, seed, precision, counts)
    plain, traced, copied = worlds.run(1, cost)[0]
    line.print_line("bench_tracer", f"bench_tracer.py {seeds}", {**figures, "step_ms": 1e3 * plain, "traced_step_ms": 1e3 * traced, "copies_ms": 1e3 * copied, "torch": torch.__version__})


if __name__ == "__main__":
    main()
