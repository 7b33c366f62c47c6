#!/usr/bin/env bash
# Everything that needs a GPU: builds with CUDA, runs the device contract suite, operation fuzzing and planted bugs on it, compute-sanitizer over the
# suite, the communicator's suite on NCCL with one rank and with two, and the speed against the CPU (40 GiB of memory, some minutes on the CPU).
# Writes one JSON file; exits 1 if any part failed, 3 without a GPU.
#   ci/gpu.sh [--installed] [--parts NAME,...] [FILE.json]
#     --installed   takes what the machine has and installs nothing, for machines without a network
#     --parts       contract, operations, layers, power, nccl, sanitizer, speed; default: all. Others stay in the file as an earlier run of the same
#                   commit on the same GPU left them, so that several short runs fill it
#     FILE.json     default: build-gpu/gpu.json
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

all=contract,operations,layers,power,nccl,sanitizer,speed
parts=$all installed=0 out=build-gpu/gpu.json
usage() { echo "ci/gpu.sh: $1; usage: ci/gpu.sh [--installed] [--parts NAME,...] [FILE.json], parts: $all" >&2 && exit 2; }
while [ $# -gt 0 ]; do
  case $1 in
  --installed) installed=1 ;;
  --parts)
    [ $# -gt 1 ] || usage "--parts needs names"
    parts=$2
    shift
    ;;
  -*) usage "there is no option $1" ;;
  *) out=$1 ;;
  esac
  shift
done
out=$(realpath -m "$out")
for name in ${parts//,/ }; do [[ ,$all, == *,$name,* ]] || usage "there is no part $name"; done
gpu=$(nvidia-smi --query-gpu=name,driver_version,compute_cap --format=csv,noheader -i 0 2>/dev/null) || gpu=""
if [ -z "$gpu" ]; then
  echo "ci/gpu.sh: there is no GPU here" >&2
  exit 3
fi
options=(-DCMAKE_BUILD_TYPE=Release -DSF_CUDA=ON '-DCMAKE_CUDA_ARCHITECTURES=80-real;90-real;100')
if [ $installed -eq 0 ]; then
  ci/setup.sh
  ci/setup.sh --cuda
else # where python3 has cuBLAS and NCCL, as PyTorch brings them
  packages=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  if [ -e "$packages/nvidia/cu13/include/cublasLt.h" ]; then options+=("-DSF_CUDA_PACKAGES=$packages"); fi
fi
cmake -G Ninja -S . -B build-gpu "${options[@]}" >/dev/null
ninja -C build-gpu --quiet shardfuzz test_device_contract test_comm_contract bench_speed
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0}
failed=0

wants() { [[ ,$parts, == *,$1,* ]]; } # NAME
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
if wants contract; then part contract 600 "$suite" cuda; fi
if wants operations; then part operations 1800 "${fuzz[@]}" --target op:all --device cuda --cases 20000 --deadline 60s; fi
if wants layers; then part layers 1800 "${fuzz[@]}" --device cuda --cases 500 --deadline 300s; fi
if wants power; then part power 3600 build-gpu/shardfuzz power --device cuda --json; fi
if wants nccl; then
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
fi
if wants sanitizer; then
  for tool in memcheck racecheck; do
    if command -v compute-sanitizer >/dev/null; then
      part $tool 3600 compute-sanitizer --tool $tool --error-exitcode 9 "$suite" cuda
    else
      skip $tool "there is no compute-sanitizer"
    fi
  done
fi
if wants speed; then
  one_layer=(--preset llama-2-7b --set model.layers=1 --set layout.tp=8 --set model.seq=1024 --set train.steps=1 --jobs 1 --seed 1 --cases 2)
  part speed_cuda 1800 "${fuzz[@]}" "${one_layer[@]}" --device cuda --deadline 1800s
  part shares_cuda 1800 build-gpu/tests/bench/bench_speed "${one_layer[@]}" --device cuda --ranks 8 --layouts 2
  part speed_cpu 7200 "${fuzz[@]}" "${one_layer[@]}" --device cpu --deadline 7200s
fi

python3 - "$work" "$out" "$gpu" "$(git rev-parse HEAD 2>/dev/null || echo unknown)" <<'PYTHON'
import json
import pathlib
import sys

work, out, gpu, commit = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), *sys.argv[3:]
report = {"gpu": gpu, "commit": commit, "parts": {}}
try:
    earlier = json.loads(out.read_text())
    if (earlier["gpu"], earlier["commit"]) == (gpu, commit):
        report["parts"] = earlier["parts"]
except (OSError, ValueError, KeyError):
    pass
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
out.parent.mkdir(parents=True, exist_ok=True)
out.write_text(json.dumps(report, indent=1) + "\n")
PYTHON
echo "ci/gpu.sh: $gpu: $([ $failed -eq 0 ] && echo "all passed" || echo "FAILED"), see $out"
exit $failed
