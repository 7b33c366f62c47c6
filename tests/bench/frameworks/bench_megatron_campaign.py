#!/usr/bin/env python3
"""Differential cases per second of a campaign over Megatron Core, smallest shapes, by layout: reference with its perturbed runs, candidate, judgement.

    tests/bench/frameworks/bench_megatron_campaign.py BUILD_DIR [--cases N] [--jobs J] [--ranks 2|4]

Every field but the seed stands at its first choice; a function has four candidates, as in any campaign. A campaign of N cases and one of N / 8 run; the
time between them is that of the other cases, without the start of ranks. Prints one JSON line for each number of ranks, with the speed of the mix
(as many cases of each layout). Needs ci/frameworks.sh megatron-core.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
from line import print_line
from megatron_layouts import LAYOUTS, case_of


def first_choices(program):
    """{path: text of the first choice}, of all fields but the seed."""
    lines = subprocess.run([program, "list", "features", "--target", "megatron-core"], capture_output=True, text=True, check=True).stdout.splitlines()
    fields = dict(line.split(None, 1) for line in lines if not line.startswith("refused:"))
    return {path: json.dumps(json.JSONDecoder().raw_decode(choices)[0]) for path, choices in fields.items() if path != "seed"}


def changes(case):
    """{path: text} of what a case sets."""
    flat = {path: value for path, value in case.items() if not isinstance(value, dict)}
    for part in ("layout", "model"):
        flat.update({f"{part}.{name}": value for name, value in case[part].items()})
    return {path: json.dumps(value) for path, value in flat.items()}


def seconds(program, fields, cases, jobs, seed):
    """Of a campaign with these fields fixed. Raises RuntimeError unless all its cases pass."""
    sets = [word for path, value in fields.items() for word in ("--set", f"{path}={value}")]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([program, "fuzz", "--target", "megatron-core", *sets, "--cases", str(cases), "--seed", str(seed), "--jobs", str(jobs), "--layouts", "4",
                               "--store", os.path.join(folder, "store.sqlite"), "--out", folder, "--json"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"exit {done.returncode}: {done.stdout[-500:]} {done.stderr[-500:]}")
    summary = json.loads(done.stdout.splitlines()[-1])
    if summary["passed"] != cases:
        raise RuntimeError(f"{summary['passed']} of {cases} passed")
    return summary["seconds"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--cases", type=int, default=160)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--ranks", type=int, choices=list(LAYOUTS), action="append")
    options = parser.parse_args()
    program, few = os.path.join(options.build, "shardfuzz"), options.cases // 8
    plain = first_choices(program)
    for ranks in options.ranks or LAYOUTS:
        speeds = {}
        for name, layout in LAYOUTS[ranks].items():
            fields = {**plain, **changes(case_of(layout))}
            some, all_of_them = (seconds(program, fields, cases, options.jobs, 1) for cases in (few, options.cases))
            speeds[name] = round((options.cases - few) / (all_of_them - some), 2)
        mix = len(speeds) / sum(1 / speed for speed in speeds.values())
        print_line("bench_megatron_campaign", f"bench_megatron_campaign.py --cases {options.cases} --jobs {options.jobs}",
                   {"ranks": ranks, "cases_per_s": speeds, "mix_per_s": round(mix, 2)})


if __name__ == "__main__":
    main()
