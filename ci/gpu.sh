#!/usr/bin/env bash
# Everything that needs a GPU: builds with CUDA, runs the device contract suite, operation fuzzing and planted bugs on it, compute-sanitizer over the
# suite, the communicator's suite on NCCL with one rank and with two, and the speed against the CPU
# (tens of GB of memory, and hours on the CPU). Writes one JSON file; exits 1 if any part failed, 3 without a GPU.
#   ci/gpu.sh [FILE.json]      default: build-gpu/gpu.json
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

out=$(realpath -m "${1:-build-gpu/gpu.json}")
gpu=$(nvidia-smi --query-gpu=name,driver_version,compute_cap --format=csv,noheader -i 0 2>/dev/null) || gpu=""
if [ -z "$gpu" ]; then
  echo "ci/gpu.sh: there is no GPU here" >&2
  exit 3
fi
ci/setup.sh
ci/setup.sh --cuda
cmake -G Ninja -S . -B build-gpu -DCMAKE_BUILD_TYPE=Release -DSF_CUDA=ON '-DCMAKE_CUDA_ARCHITECTURES=80-real;90-real;100' >/dev/null
ninja -C build-gpu --quiet shardfuzz test_device_contract test_comm_contract bench_speed
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0}
failed=0

# NAME SECONDS COMMAND...: keeps exit code, time and what was printed; a time-out is a failure like others.
part() {
  local name=$1 seconds=$2 code=0 start
  shift 2
  start=$(date +%s.%N)
  echo "== $name"
  timeout "$seconds" "$@" >"$work/$name.out" 2>"$work/$name.err" || code=$?
  echo "$code $(date +%s.%N) $start" >"$work/$name.code"
  if [ "$code" -ne 0 ]; then
    failed=1
    tail -n 5 "$work/$name.err" "$work/$name.out" >&2
  fi
}
skip() { echo "$2" >"$work/$1.skipped"; } # NAME REASON

suite=build-gpu/tests/contract/test_device_contract
fuzz=(build-gpu/shardfuzz fuzz --out "$work/findings" --json)
part contract 600 "$suite" cuda
part operations 1800 "${fuzz[@]}" --target op:all --device cuda --cases 20000 --deadline 60s
part layers 1800 "${fuzz[@]}" --device cuda --cases 500 --deadline 300s
part power 3600 build-gpu/shardfuzz power --device cuda --json
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
for ranks in 1 2; do # two share the GPU where the library can, and say so where not
  before=$failed
  part nccl_$ranks 600 mpirun --oversubscribe -n $ranks build-gpu/tests/contract/test_comm_contract nccl
  if grep -q 'needs one for each' "$work/nccl_$ranks.err" "$work/nccl_$ranks.out"; then
    rm "$work/nccl_$ranks.code"
    failed=$before
    skip nccl_$ranks "$(grep -h -m 1 'needs one for each' "$work/nccl_$ranks.err" "$work/nccl_$ranks.out")"
  fi
done
if [ ! -e "$work/nccl_2.skipped" ]; then
  part nccl_layers 1800 mpirun --oversubscribe -n 2 "${fuzz[@]}" --backend nccl --device cuda --max-ranks 2 --cases 100 --deadline 300s
fi
for tool in memcheck racecheck; do
  if command -v compute-sanitizer >/dev/null; then
    part $tool 3600 compute-sanitizer --tool $tool --error-exitcode 9 "$suite" cuda
  else
    skip $tool "there is no compute-sanitizer"
  fi
done
one_layer=(--preset llama-2-7b --set model.layers=1 --set layout.tp=8 --jobs 1 --seed 1 --cases 4)
part speed_cuda 3600 "${fuzz[@]}" "${one_layer[@]}" --device cuda --deadline 3600s
part shares_cuda 3600 build-gpu/tests/bench/bench_speed "${one_layer[@]}" --device cuda --ranks 8 --layouts 4
part speed_cpu 21600 "${fuzz[@]}" "${one_layer[@]}" --device cpu --deadline 21600s

python3 - "$work" "$out" "$gpu" "$(git rev-parse HEAD 2>/dev/null || echo unknown)" <<'PYTHON'
import json
import pathlib
import sys

work, out, gpu, commit = pathlib.Path(sys.argv[1]), *sys.argv[2:]
report = {"gpu": gpu, "commit": commit, "parts": {}}
for path in sorted(work.glob("*.code")):
    code, end, start = path.read_text().split()
    part = {"exit": int(code), "seconds": round(float(end) - float(start), 3)}
    lines = path.with_suffix(".out").read_text(errors="replace").splitlines()
    try:
        part["result"] = json.loads(lines[-1])
    except (IndexError, ValueError):
        part["last_lines"] = lines[-5:]
    report["parts"][path.stem] = part
for path in sorted(work.glob("*.skipped")):
    report["parts"][path.stem] = {"skipped": path.read_text().strip()}
results = {name: part["result"] for name, part in report["parts"].items() if "result" in part}
if {"speed_cuda", "speed_cpu"} <= results.keys() and results["speed_cpu"]["cases_per_s"] > 0:
    report["cuda_over_cpu"] = round(results["speed_cuda"]["cases_per_s"] / results["speed_cpu"]["cases_per_s"], 2)
if "shares_cuda" in results:
    report["gemm_share_cuda"] = round(results["shares_cuda"]["split_of_measured_run"]["gemm"], 3)
pathlib.Path(out).write_text(json.dumps(report, indent=1) + "\n")
PYTHON
echo "ci/gpu.sh: $gpu: $([ $failed -eq 0 ] && echo "all passed" || echo "FAILED"), see $out"
exit $failed
