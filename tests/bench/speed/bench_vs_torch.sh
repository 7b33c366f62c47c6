#!/usr/bin/env bash
# Runs bench_speed and baseline_torch.py one after the other on this machine and prints both and their ratio as one JSON line.
#   tests/bench/speed/bench_vs_torch.sh BUILD_DIR [CASES [TORCH_CASES]]
# The machine is given to each whole: bench_speed runs one process per core, the script four ranks. The rate of the script is the better of its
# bf16 and fp32 rates; that of bench_speed is bf16.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: bench_vs_torch.sh BUILD_DIR [CASES [TORCH_CASES]]}
cases=${2:-4000} torch_cases=${3:-160}
jobs=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc) # nproc says 1 where OpenMP may use one thread

ours=$("$build/tests/bench/bench_speed" --cases "$cases" --jobs "$jobs")
bf16=$(python3 "$here/baseline_torch.py" --cases "$torch_cases" --dtype bf16 --check 1)
fp32=$(python3 "$here/baseline_torch.py" --cases "$torch_cases" --dtype fp32 --check 1)

python3 - "$jobs" "$ours" "$bf16" "$fp32" "$cases" "$torch_cases" <<'PY'
import json
import sys

jobs, ours, bf16, fp32 = int(sys.argv[1]), *map(json.loads, sys.argv[2:5])
machine_rate = ours["cases_per_s_and_core"] * jobs
script_rate = max(bf16["cases_per_s"], fp32["cases_per_s"])
script_cpu_rate = max(bf16["cases_per_cpu_s"], fp32["cases_per_cpu_s"])
print(json.dumps({"bench": "bench_vs_torch", "command": " ".join(["bench_vs_torch.sh", *sys.argv[5:]]), "ratio_of_machine_rates": machine_rate / script_rate,
                  "ratio_of_rates_per_cpu_second": ours["cases_per_cpu_s"] / script_cpu_rate, "shardfuzz": ours, "torch_bf16": bf16, "torch_fp32": fp32}))
PY
