"""What the live screen and `shardfuzz status` cost a campaign: cases/s with both, against a program without them, in paired runs.

    python3 tests/bench/campaigns/bench_live.py BEFORE AFTER [--pairs 10] [--cases 600] [--target op:gelu_fwd]

Each pair runs the same cases by BEFORE with its progress thrown away, and by AFTER on a terminal of 120 columns with a `status --watch` beside it; which
of them begins takes turns. Prints one JSON object: the median of the ratios of the times, their quartiles, and the same of processor time.
"""
import argparse
import json
import os
import pty
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from fcntl import ioctl

COLUMNS, ROWS = 120, 40


def drain(terminal):
    """Reads what is drawn until the terminal is closed."""
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:
        pass


def run(program, options, is_live):
    """(seconds, processor seconds) of one campaign."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"{folder}/store.sqlite"
        command = [program, "fuzz", *options, "--out", folder, "--store", store]
        terminal, screen = pty.openpty() if is_live else (None, subprocess.DEVNULL)
        if is_live:
            ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
            threading.Thread(target=drain, args=(terminal,), daemon=True).start()
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        campaign = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=screen, env={**os.environ, "TERM": "xterm"})
        watcher = None
        while is_live and campaign.poll() is None and watcher is None:
            time.sleep(0.02)
            if os.path.exists(store):
                watcher = subprocess.Popen([program, "status", store, "--watch", "--json"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if campaign.wait() not in (0, 1):
            sys.exit(f"{' '.join(command)}: exit {campaign.returncode}")
        seconds = time.monotonic() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if watcher:
            watcher.wait()
        if is_live:
            os.close(screen)
            os.close(terminal)
        return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def summary(ratios):
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {"median": round(middle, 4), "quartiles": [round(low, 4), round(high, 4)]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--cases", type=int, default=600)
    parser.add_argument("--target", default="builtin")
    arguments = parser.parse_args()
    seconds, processor = [], []
    for pair in range(arguments.pairs):
        options = ["--cases", str(arguments.cases), "--seed", str(pair), "--jobs", "1", "--target", arguments.target]
        sides = [(arguments.before, False), (arguments.after, True)]
        results = {live: run(program, options, live) for program, live in (sides if pair % 2 else reversed(sides))}
        seconds.append(results[True][0] / results[False][0])
        processor.append(results[True][1] / results[False][1])
        print(f"pair {pair}: {results[False][0]:.2f} s before, {results[True][0]:.2f} s after", file=sys.stderr)
    print(json.dumps({"target": arguments.target, "pairs": arguments.pairs, "cases": arguments.cases, "time_after_by_before": summary(seconds),
                      "processor_time_after_by_before": summary(processor)}))


if __name__ == "__main__":
    main()
