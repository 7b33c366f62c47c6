#!/usr/bin/env bash
# Runs every bench in sequence, in sizes that take about an hour and a half together on two cores, and prints one JSON line each on stdout.
#   tests/bench/run_all.sh BUILD_DIR [NAME...]     names of benches: only these
# Timings mean something on an otherwise idle machine only. Builds the benches in the folder first, which CMake must know.
set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: run_all.sh BUILD_DIR [NAME...]}
shift
wanted=("$@")
jobs=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc) # nproc says 1 where OpenMP may use one thread
bin=$build/tests/bench
cd "$here" || exit 3
ninja -C "$build" benches >&2 || exit 3
SF_BENCH_COMMIT=$(git describe --always --dirty=+ 2>/dev/null || true) # fixed now: the tree may move on while this runs
export SF_BENCH_COMMIT

failed=0
run() { # NAME COMMAND...
  local name=$1 start=$SECONDS
  shift
  if [ ${#wanted[@]} -gt 0 ] && [[ ! " ${wanted[*]} " == *" $name "* ]]; then return; fi
  if ! "$@"; then
    echo "run_all.sh: $name failed" >&2
    failed=1
  fi
  echo "run_all.sh: $name: $((SECONDS - start)) s" >&2
}

run bench_speed "$bin/bench_speed" --cases 8000
run bench_vs_torch "$here/speed/bench_vs_torch.sh" "$build" 8000 160
run bench_kernels "$bin/bench_kernels" --functions 4
run bench_memory "$bin/bench_memory" --cases 100000 --set model.layers=1 --set train.steps=1 --set train.microbatches=1
run bench_ranks "$bin/bench_ranks" --repeat 3
run bench_replay "$bin/bench_replay" --cases 100
run bench_clean "$bin/bench_clean" --cases 100000 --seed 1001 --jobs "$jobs"
run bench_ratio "$bin/bench_ratio" --cases 6000 --layouts 2 --jobs "$jobs"
run bench_sensitivity "$bin/bench_sensitivity" --cases 2000 --jobs "$jobs"
run bench_backends "$here/campaigns/bench_backends.sh" "$build" 200 500
run bench_plants "$here/campaigns/bench_plants.sh" "$build" 3 1000 300 2000
run bench_pairs "$here/campaigns/bench_pairs.sh" "$build" 2000 1
run bench_ops "$here/campaigns/bench_ops.sh" "$build" 1000000 1
run bench_mutants "$here/campaigns/bench_mutants.sh" "$build" 1000 1
run bench_check "$bin/bench_check" --mib 2048 --repeat 5 --shardfuzz "$build/shardfuzz"
if python3 -c 'import torch' 2>/dev/null; then run bench_tracer "$here/frameworks/bench_tracer.py" "$build" 10; fi
if [ -x "$bin/bench_gemm" ] && nvidia-smi -L >/dev/null 2>&1; then run bench_gemm "$bin/bench_gemm"; fi
run bench_width "$bin/bench_width" --percent 100
exit $failed
