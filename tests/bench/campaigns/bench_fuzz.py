#!/usr/bin/env python3
"""The libFuzzer entries of parsers until each has executed so many bytes, one process at a time: a JSON line for each, with how many of them ended in a crash, a
time-out, a leak or too much memory. Exits 1 when one did; what it was given lies in BUILD_DIR/artifacts.

    tests/bench/campaigns/bench_fuzz.py BUILD_DIR [BYTES [ENTRY...]]

BUILD_DIR is configured with -DSF_FUZZ=ON. Without names: every entry but fuzz_trial, whose bytes are choices and not a file."""
import os
import re
import resource
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from line import print_line  # noqa: E402

TREE = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../.."))
BYTES, ROUND_SECONDS = 10**9, 60
MAX_LEN = {"fuzz_settings": 4096}  # bytes of an input; of others 65536
LIMITS = ["-len_control=0", "-timeout=10", "-rss_limit_mb=2048", "-detect_leaks=1"]
FAILURES = ("crash", "timeout", "leak", "oom")  # libFuzzer's names of files


def counted(log, what):
    found = re.findall(rf"^stat::{what}:\s+(\d+)$", log, re.M)
    return int(found[-1]) if found else 0


def fuzz(entry, build, wanted, folder):
    """Rounds of a minute, on the corpus that those before have gathered."""
    seeds, corpus, artifacts = f"{TREE}/corpus/seeds/{entry}", f"{folder}/{entry}", f"{build}/artifacts/"
    os.makedirs(corpus)
    os.makedirs(artifacts, exist_ok=True)
    sums = {"bytes": 0, "units": 0, **{failure: 0 for failure in FAILURES}}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    number = 0
    while sums["bytes"] < wanted:
        number += 1
        prefix = f"{artifacts}{entry}-{os.getpid()}-{number}-"
        command = [f"{build}/tests/fuzz/{entry}", f"-max_total_time={ROUND_SECONDS}", f"-seed={number}", f"-max_len={MAX_LEN.get(entry, 65536)}", "-print_final_stats=1", *LIMITS,
                   f"-artifact_prefix={prefix}", corpus]
        done = subprocess.run(command + [seeds] * os.path.isdir(seeds), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
        log = done.stderr.decode(errors="replace")
        sums["bytes"] += counted(log, "executed_bytes")
        sums["units"] += counted(log, "number_of_executed_units")
        for failure in FAILURES:
            sums[failure] += sum(name.startswith(os.path.basename(prefix) + failure) for name in os.listdir(artifacts))
        print(f"{entry}: {sums['bytes']} bytes", file=sys.stderr)
        if done.returncode != 0 or "executed_bytes" not in log:
            sys.stderr.write(log[-3000:])
            break
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"entry": entry, **sums, "ended_well": done.returncode == 0, "cpu_s": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
            "seconds": round(time.monotonic() - start, 1), "corpus": len(os.listdir(corpus))}


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: bench_fuzz.py BUILD_DIR [BYTES [ENTRY...]]")
    build, wanted = os.path.realpath(sys.argv[1]), int(float(sys.argv[2])) if len(sys.argv) > 2 else BYTES
    names = sys.argv[3:] or sorted(name[:-2] for name in os.listdir(f"{TREE}/tests/fuzz") if name.startswith("fuzz_") and name.endswith(".c") and name != "fuzz_trial.c")
    well = True
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            figures = fuzz(name, build, wanted, folder)
            well &= figures["ended_well"]
            print_line("bench_fuzz", f"bench_fuzz.py {wanted} {name}", figures)
            sys.stdout.flush()
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
