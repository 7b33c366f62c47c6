"""One long campaign: its memory, open files, processor time and store as it goes on.

    python3 tests/bench/campaigns/bench_long.py BUILD_DIR [--cases N] [--every SECONDS] [-- OPTIONS]

OPTIONS go to the campaign. Every SECONDS its processes are read in /proc: processor seconds, proportional set size, open files; and the
size of the store, with the cases it has. Prints one JSON line: for each tenth of the cases the processor seconds, the mean and the highest
memory in MiB and the store's bytes for a case; growth of the mean memory from tenths 2 to 4 to tenths 8 to 10; the processor seconds of
tenths 2 to 4 divided by those of tenths 8 to 10 (below 1: it became slower); the verdicts, and what integrity_check says of the store.
"""
import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from line import last_object, print_line  # noqa: E402

TICK = os.sysconf("SC_CLK_TCK")
TENTHS = 10
MIB = 1024


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""  # the process has ended


def family(pid):
    """A process and all below it."""
    below = read(f"/proc/{pid}/task/{pid}/children").split()
    return [pid] + [p for child in below for p in family(int(child))]


def processor_seconds(pid):
    """Of a process and of its children that ended and were waited for."""
    fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICK if fields else 0.0


def memory(pid):
    """Proportional set size in MiB."""
    lines = [line.split() for line in read(f"/proc/{pid}/smaps_rollup").splitlines()]
    return next((int(line[1]) / MIB for line in lines if line[0] == "Pss:"), 0.0)


def open_files(pid):
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def cases_done(build, store):
    status = subprocess.run([os.path.join(build, "shardfuzz"), "status", store, "--json"], capture_output=True, text=True, check=False)
    return json.loads(status.stdout)["cases"] if status.returncode == 0 else 0


def sample(build, pid, store):
    pids = family(pid)
    return {"cases": cases_done(build, store), "cpu": sum(map(processor_seconds, pids)), "memory": sum(map(memory, pids)),
            "files": sum(map(open_files, pids)), "store": sum(os.path.getsize(path) for path in (store, store + "-wal") if os.path.exists(path))}


def watch(build, campaign, store, every):
    samples = []
    while campaign.poll() is None:
        time.sleep(every)
        if os.path.exists(store) and campaign.poll() is None:
            samples.append(sample(build, campaign.pid, store))
    return samples


def at(samples, cases, figure):
    """A figure that grows, at a number of cases: between the two samples around it."""
    before = {"cases": 0, figure: 0}
    for after in samples:
        if after["cases"] >= cases:
            share = (cases - before["cases"]) / max(after["cases"] - before["cases"], 1)
            return before[figure] + share * (after[figure] - before[figure])
        before = after
    return before[figure]


def tenths(samples, cases):
    rows = []
    for k in range(TENTHS):
        first, last = cases * k / TENTHS, cases * (k + 1) / TENTHS
        here = [s["memory"] for s in samples if first < s["cases"] <= last]
        rows.append({"cpu_s": round(at(samples, last, "cpu") - at(samples, first, "cpu"), 1),
                     "mib_mean": round(sum(here) / len(here), 1) if here else None, "mib_most": round(max(here), 1) if here else None,
                     "store_bytes_a_case": round((at(samples, last, "store") - at(samples, first, "store")) * TENTHS / cases, 1)})
    return rows


def mean(rows, figure):
    values = [row[figure] for row in rows if row[figure] is not None]
    return sum(values) / len(values) if values else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--cases", type=int, default=1000000)
    parser.add_argument("--every", type=float, default=10)
    given = sys.argv[1:]
    end = given.index("--") if "--" in given else len(given)
    flags = parser.parse_args(given[:end])
    with tempfile.TemporaryDirectory() as folder:
        summary, store = os.path.join(folder, "fuzz.json"), os.path.join(folder, "out", "campaign-0001.sqlite")
        command = [os.path.join(flags.build, "shardfuzz"), "fuzz", "--cases", str(flags.cases), "--out", os.path.dirname(store), "--json"]
        with open(summary, "w", encoding="utf-8") as file:
            campaign = subprocess.Popen(command + given[end + 1:], stdout=file, stderr=subprocess.DEVNULL)
            samples = watch(flags.build, campaign, store, flags.every)
        if campaign.returncode not in (0, 1) or not samples:
            sys.exit(f"{' '.join(command)} ended with {campaign.returncode}, after {len(samples)} samples")
        rows = tenths(samples, flags.cases)
        early, late = rows[1:4], rows[7:]
        ended = last_object(summary)
        figures = {**{name: ended[name] for name in ("passed", "inconclusive", "skipped", "findings", "checked")}, "tenths": rows,
                   "memory_growth": round(mean(late, "mib_mean") / mean(early, "mib_mean") - 1, 4),
                   "speed_late_to_early": round(mean(early, "cpu_s") / mean(late, "cpu_s"), 3),
                   "files_least": min(s["files"] for s in samples), "files_most": max(s["files"] for s in samples),
                   "integrity": sqlite3.connect(store).execute("pragma integrity_check").fetchone()[0]}
        print_line("bench_long", "bench_long.py " + " ".join(given[1:]), figures)


if __name__ == "__main__":
    main()
