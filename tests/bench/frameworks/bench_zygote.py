#!/usr/bin/env python3
"""How fast a zygote forks ranks, and how much memory each rank has of its own.

    tests/bench/frameworks/bench_zygote.py BUILD_DIR [--sets N] [--ranks N] [--worker CMD]

Speaks the harness's side of targets/worker.md: starts the worker, then asks its zygote for sets and takes the time until all ranks of a set have said
hello. Memory is what a rank shares with no other process at that moment. Prints one JSON line. The default worker needs ci/frameworks.sh megatron-core.
"""
import argparse
import array
import json
import os
import shlex
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
from line import print_line

WORKER = "build-megatron/bin/python -m megatron_core_target serve"


def listen(path):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    return listener


def own_mib(pid):
    """Memory of the process that it shares with no other."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        rows = dict(line.split(":", 1) for line in file.read().splitlines()[1:])
    return sum(int(rows[name].split()[0]) for name in ("Private_Clean", "Private_Dirty")) / 1024


def fork_set(folder, zygote, number, ranks):
    """(seconds until all ranks have said hello, largest own memory of a rank in MiB). The set has ended afterwards."""
    began = time.perf_counter()
    path = os.path.join(folder, f"set-{number}")
    with listen(path) as listener, socket.socket(socket.AF_UNIX) as leader, open(os.devnull, "wb") as output:
        leader.connect(zygote)
        leader.sendmsg([json.dumps({"fork": ranks, "socket": path}).encode() + b"\n"],
                       [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [output.fileno()]))])
        connections = [listener.accept()[0] for _ in range(ranks)]
        for connection in connections:
            connection.makefile("rb").readline()
        seconds = time.perf_counter() - began
        size = struct.calcsize("3i")
        pids = [struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[0] for connection in connections]
        memory = max(map(own_mib, pids))
        leader.shutdown(socket.SHUT_WR)
        while leader.recv(64):
            pass
    return seconds, memory


def main():
    parser = argparse.ArgumentParser(description="Speed and memory of forked ranks.")
    parser.add_argument("build", metavar="BUILD_DIR")
    parser.add_argument("--sets", type=int, default=20)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--worker", metavar="CMD", default=WORKER)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, listen(os.path.join(folder, "harness")) as listener:
        zygote = os.path.join(folder, "zygote")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "SHARDFUZZ_SOCKET": os.path.join(folder, "harness"), "SHARDFUZZ_ZYGOTE": zygote,
                       "SHARDFUZZ_LIBRARY": os.path.abspath(os.path.join(options.build, "libshardfuzz.so"))}
        began = time.perf_counter()
        with subprocess.Popen(shlex.split(options.worker), env=environment, stdout=subprocess.DEVNULL) as worker:
            lines = listener.accept()[0].makefile("rwb")
            lines.readline()
            lines.write(b'{"request": "describe", "id": 1}\n')
            lines.flush()
            lines.readline()
            imported = time.perf_counter() - began
            sets = [fork_set(folder, zygote, number, options.ranks) for number in range(options.sets)]
            worker.kill()
    print_line("bench_zygote", " ".join(sys.argv), {
        "worker": options.worker, "import_s": imported, "set_s_median": statistics.median(seconds for seconds, _ in sets),
        "set_s_most": max(seconds for seconds, _ in sets), "own_mib_most": max(memory for _, memory in sets)})



if __name__ == "__main__":
    main()
