#!/usr/bin/env bash
# Operation fuzzing: clean cases of all of the device's operations, speed with small shapes (matrix products apart), planted kernel bugs of the sample
# plugins. Prints its JSON line.
#   tests/bench/campaigns/bench_ops.sh BUILD_DIR [CASES [SEED]]
set -euo pipefail

bench=$(cd "$(dirname "$0")/.." && pwd)
build=$(realpath "${1:?usage: bench_ops.sh BUILD_DIR [CASES [SEED]]}")
cases=${2:-1000000} seed=${3:-1}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

PYTHONPATH=$bench python3 - "$build" "$cases" "$seed" "$folder" <<'PY'
import glob
import json
import os
import resource
import subprocess
import sys

from line import print_line

build, cases, seed, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
SMALL = 256  # elements of all operands together


def fuzz(target, count, *options):
    """The summary of a campaign, with the CPU seconds that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [build + "/shardfuzz", "fuzz", "--target", target, "--cases", str(count), "--seed", seed, "--out", folder + "/out", "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode > 1:
        sys.exit(f"bench_ops: {target}: {done.stderr}")
    summary = json.loads(done.stdout.splitlines()[-1])
    summary |= {"judged": summary["checked"], "elements": summary["checked"] + summary["unchecked"]}
    summary["cpu_s"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return summary


def shape_of(path):
    """The dimensions of the case in a file."""
    done = subprocess.run([build + "/shardfuzz", "replay", path, "--json"], capture_output=True, text=True, check=False)
    return json.loads(done.stdout.splitlines()[-1])["shape"]


def speed(target):
    r = fuzz(target, 200000, "--jobs", "1", "--max-elements", str(SMALL))
    return {"cases_per_cpu_s": r["cases"] / r["cpu_s"], "cases_per_s": r["cases"] / r["seconds"], "findings": r["findings"]}


clean = fuzz("op:all", cases)
names = sorted(os.path.basename(path)[:-3] for path in glob.glob(build + "/plugins/*.so"))
planted = {}
for name in names:
    if name.startswith(("fault_", "refused_", "slow", "sound", "layer_", "model_")):
        continue
    r = fuzz(f"plugin:{build}/plugins/{name}.so", 2000)
    first = min(r["by_signature"], key=lambda s: s["first_index"], default=None)
    planted[name] = {"case": first["first_index"] + 1, "shape": shape_of(first["min"]), **{key: first["shrunk"][key] for key in ("minimal", "trials")}} if first else None
sound = fuzz(f"plugin:{build}/plugins/sound.so", cases // 10)
print_line("bench_ops", "bench_ops.sh " + " ".join(sys.argv[2:4]), {
    "clean": {key: clean[key] for key in ("cases", "findings", "elements", "judged", "seconds", "cpu_s")},
    "small_elements": SMALL, "small": speed("op:all"), "small_gemm": speed("op:gemm"), "planted": planted,
    "sound_plugin": {key: sound[key] for key in ("cases", "findings", "skipped")}})
PY
