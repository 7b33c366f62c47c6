#!/usr/bin/env bash
# Everything that needs a GPU: builds with CUDA, runs the device contract suite, operation fuzzing, layers, planted bugs, sample kernels with bugs
# that only a GPU shows, compute-sanitizer over the suite, the communicator's suite on NCCL with one rank and with two, the speed of
# matrix products against cuBLASLt called alone, and of campaigns against the CPU (40 GiB of memory). No part takes more than ten minutes.
# Writes one JSON file, anew after each part, and says at the end which parts it lacks; exits 1 if any part failed, 2 for wrong arguments, 3 without a GPU.
#   ci/gpu.sh [--installed | --build DIR] [--parts NAME,...] [FILE.json]
#     --installed   takes what the machine has and installs nothing, for machines without a network
#     --build DIR   runs what is built in DIR and builds nothing; libraries are the caller's to find (LD_LIBRARY_PATH)
#     --parts       parts or groups of them; default: all. Others stay in the file as an earlier run of the same programs on the same GPU left them, so that
#                   several short runs fill it
#     FILE.json     default: gpu.json in the build's folder; beside it gpu-logs/NAME/ has what a failed part printed and found
caller=$PWD
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

limit_s=600
names=(contract operations layers kernels power_1 power_2 power_3 power_4 power_5 power_6 nccl_1 nccl_2 nccl_layers memcheck racecheck gemm speed_cuda shares_cuda speed_cpu)
declare -A groups=([power]="power_1 power_2 power_3 power_4 power_5 power_6" [nccl]="nccl_1 nccl_2 nccl_layers" [sanitizer]="memcheck racecheck"
  [speed]="gemm speed_cuda shares_cuda speed_cpu")
usage() {
  echo "ci/gpu.sh: $1; usage: ci/gpu.sh [--installed | --build DIR] [--parts NAME,...] [FILE.json], parts: ${names[*]}, or ${!groups[*]}" >&2
  exit 2
}

parts=${names[*]} installed=0 build="" out=""
while [ $# -gt 0 ]; do
  case $1 in
  --installed) installed=1 ;;
  --build)
    [ $# -gt 1 ] || usage "--build needs a folder"
    build=$(cd "$caller" && realpath -m "$2")
    shift
    ;;
  --parts)
    [ $# -gt 1 ] || usage "--parts needs names"
    parts=${2//,/ }
    shift
    ;;
  -*) usage "there is no option $1" ;;
  *) out=$1 ;;
  esac
  shift
done
declare -A wanted=()
for name in $parts; do
  for part in ${groups[$name]:-$name}; do
    [[ " ${names[*]} " == *" $part "* ]] || usage "there is no part $part"
    wanted[$part]=1
  done
done
suite=tests/contract/test_device_contract ranks_suite=tests/contract/test_comm_contract bench=tests/bench/bench_speed products=tests/bench/bench_gemm
declare -A needs=([contract]=$suite [memcheck]=$suite [racecheck]=$suite [nccl_1]=$ranks_suite [nccl_2]=$ranks_suite [gemm]=$products [shares_cuda]=$bench
  [kernels]=plugins/gpu_sound.so)
if [ -n "$build" ]; then
  [ $installed -eq 0 ] || usage "--installed builds, and --build DIR does not"
  for part in "${!wanted[@]}"; do
    for program in shardfuzz ${needs[$part]:-}; do [ -x "$build/$program" ] || usage "there is no program $build/$program"; done
  done
fi
gpu=$(nvidia-smi --query-gpu=name,driver_version,compute_cap --format=csv,noheader -i 0 2>/dev/null) || gpu=""
if [ -z "$gpu" ]; then
  echo "ci/gpu.sh: there is no GPU here" >&2
  exit 3
fi
if [ -z "$build" ]; then
  build=$PWD/build-gpu
  options=(-DCMAKE_BUILD_TYPE=Release -DSF_CUDA=ON '-DCMAKE_CUDA_ARCHITECTURES=80-real;90-real;100')
  if [ $installed -eq 0 ]; then
    ci/setup.sh
    ci/setup.sh --cuda
  else # where python3 has cuBLAS and NCCL, as PyTorch brings them
    packages=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    if [ -e "$packages/nvidia/cu13/include/cublasLt.h" ]; then options+=("-DSF_CUDA_PACKAGES=$packages"); fi
  fi
  cmake -G Ninja -S . -B "$build" "${options[@]}" >/dev/null
  ninja -C "$build" --quiet shardfuzz test_device_contract test_comm_contract bench_speed bench_gemm plugin_gpu_{sound,race,grid_limit,stale_shared}
fi
out=$(cd "$caller" && realpath -m "${out:-$build/gpu.json}")
logs=$(dirname "$out")/gpu-logs
programs=$(cd "$build" && cat shardfuzz $(ls "$suite" "$ranks_suite" "$bench" "$products" plugins/gpu_*.so 2>/dev/null) | sha256sum | cut -c 1-16)
work=$(mktemp -d)
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0}
failed=0 started_mps=0 running="" # the part's process

# Joins the parts that have ended to the file; prints the names of those that it lacks.
report() {
  python3 - "$work" "$out" "$gpu" "$(git rev-parse HEAD 2>/dev/null || echo unknown)" "$programs" "${names[@]}" <<'PYTHON'
import json
import os
import pathlib
import sys

work, out, gpu, commit, programs = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), *sys.argv[3:6]
report = {"gpu": gpu, "commit": commit, "programs": programs, "parts": {}}
try:
    earlier = json.loads(out.read_text())
    if (earlier["gpu"], earlier["programs"]) == (gpu, programs):
        report["parts"] = earlier["parts"]
except (OSError, ValueError, KeyError, TypeError):
    pass
for path in sorted(work.glob("*.code")):
    code, end, start = path.read_text().split()
    part = {"exit": int(code), "seconds": round(float(end) - float(start), 3)}
    lines = path.with_suffix(".out").read_text(errors="replace").splitlines()
    try:
        part["result"] = json.loads(lines[-1])
    except (IndexError, ValueError):
        part["last_lines"] = (lines or path.with_suffix(".err").read_text(errors="replace").splitlines())[-5:]
    report["parts"][path.stem] = part
for path in sorted(work.glob("*.skipped")):
    report["parts"][path.stem] = {"skipped": path.read_text().strip()}
results = {name: part["result"] for name, part in report["parts"].items() if part.get("exit") == 0 and "result" in part}
if {"speed_cuda", "speed_cpu"} <= results.keys() and results["speed_cpu"]["cases_per_s"] > 0:
    report["cuda_over_cpu"] = round(results["speed_cuda"]["cases_per_s"] / results["speed_cpu"]["cases_per_s"], 2)
if "gemm" in results:
    report["gemm_over_cublaslt"] = results["gemm"]["large"]
if "shares_cuda" in results:
    report["gemm_share_cuda"] = round(results["shares_cuda"]["split_of_measured_run"]["gemm"], 3)
out.parent.mkdir(parents=True, exist_ok=True)
beside = out.with_name(out.name + ".new")
beside.write_text(json.dumps(report, indent=1) + "\n")
os.replace(beside, out)
lacking = [name + (" (" + report["parts"][name]["skipped"] + ")" if name in report["parts"] else "")
           for name in sys.argv[6:] if "exit" not in report["parts"].get(name, {})]
print(", ".join(lacking) or "none")
PYTHON
}
# However the run ends: the part under way is ended too, and what is missing is said.
finish() {
  local code=$? lacking
  if [ -n "$running" ]; then
    kill -TERM "$running" 2>/dev/null || true
    wait "$running" || true
  fi
  if [ $started_mps -eq 1 ]; then mps <<<"quit" || true; fi
  lacking=$(report) || lacking="not known: no report can be written"
  rm -rf "$work"
  echo "ci/gpu.sh: $gpu: $([ $failed -eq 0 ] && echo "nothing failed" || echo "FAILED, see $logs"), see $out"
  echo "NOT RUN: $lacking"
  exit "$code"
}
# Processes compute on one GPU at the same time only under CUDA's Multi-Process Service: without it the driver gives each the whole GPU in turns.
# The service is this script's own, where the machine has it.
mps() { CUDA_MPS_PIPE_DIRECTORY=$work/mps CUDA_MPS_LOG_DIRECTORY=$work/mps nvidia-cuda-mps-control "$@" >/dev/null 2>&1; }
trap finish EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

wants() { [ -n "${wanted[$1]:-}" ]; } # NAME
skip() { # NAME REASON
  rm -f "$work/$1.code"
  echo "$2" >"$work/$1.skipped"
  report >/dev/null
}
# NAME COMMAND...: keeps exit code, time and what was printed, and all of it in the logs if it fails; a time-out is a failure like others.
part() {
  local name=$1 code=0 start
  shift
  wants "$name" || return 0
  start=$(date +%s.%N)
  echo "== $name"
  rm -rf "${logs:?}/$name"
  timeout -k 10 $limit_s "$@" >"$work/$name.out" 2>"$work/$name.err" &
  running=$!
  wait $running || code=$?
  running=""
  echo "$code $(date +%s.%N) $start" >"$work/$name.code"
  if [ "$code" -ne 0 ]; then
    failed=1
    mkdir -p "$logs/$name"
    cp "$work/$name.out" "$logs/$name/stdout" && cp "$work/$name.err" "$logs/$name/stderr"
    if [ -d "$work/findings/$name" ]; then cp -r "$work/findings/$name" "$logs/$name/findings"; fi
    tail -n 5 "$work/$name.err" "$work/$name.out" >&2
  fi
  report >/dev/null
}
# NAME OPTION...: a campaign whose findings are the part's.
fuzz() {
  local name=$1
  shift
  part "$name" "$build/shardfuzz" fuzz --out "$work/findings/$name" --json "$@"
}

if [ -z "${CUDA_MPS_PIPE_DIRECTORY:-}" ] && command -v nvidia-cuda-mps-control >/dev/null && mkdir "$work/mps" && mps -d; then
  export CUDA_MPS_PIPE_DIRECTORY=$work/mps
  started_mps=1
fi

part contract "$build/$suite" cuda
fuzz operations --target op:all --device cuda --cases 100000 --time 8m --deadline 60s
fuzz layers --device cuda --cases 2000 --time 9m --deadline 120s
part kernels tests/plugins/gpu/search.sh "$build"

searched=0 plants=()
while read -r plant; do # the plants of a trainer, dealt to six parts
  plants[searched % 6]+=" --plant $plant"
  searched=$((searched + 1))
done < <("$build/shardfuzz" list plants | awk '$1 !~ /^canary-/ { print $1 }')
for i in 1 2 3 4 5 6; do
  if [ -z "${plants[i - 1]:-}" ]; then
    if wants power_$i; then skip power_$i "no plants are listed"; fi
    continue
  fi
  # shellcheck disable=SC2086 # words on purpose
  part power_$i "$build/shardfuzz" power --device cuda --json --clean 0 --shrink-budget 50 ${plants[i - 1]}
done

if command -v mpirun >/dev/null; then
  mpi=(mpirun --oversubscribe -n)
  for ranks in 1 2; do # two share the GPU where the library can, and say so where not
    before=$failed
    part nccl_$ranks "${mpi[@]}" $ranks "$build/$ranks_suite" nccl
    if wants nccl_$ranks && reason=$(grep -h -m 1 'needs one for each' "$work/nccl_$ranks.err" "$work/nccl_$ranks.out"); then
      failed=$before
      rm -rf "${logs:?}/nccl_$ranks"
      skip nccl_$ranks "$reason"
    fi
  done
  if wants nccl_layers && [ -e "$work/nccl_2.skipped" ]; then
    skip nccl_layers "$(cat "$work/nccl_2.skipped")"
  else
    part nccl_layers "${mpi[@]}" 2 "$build/shardfuzz" fuzz --out "$work/findings/nccl_layers" --json --backend nccl --device cuda --max-ranks 2 --cases 100 --time 7m --deadline 120s
  fi
else
  for name in ${groups[nccl]}; do if wants "$name"; then skip "$name" "there is no mpirun"; fi; done
fi

if command -v compute-sanitizer >/dev/null; then
  check=(env -u CUDA_MPS_PIPE_DIRECTORY compute-sanitizer --error-exitcode 9)
  part memcheck "${check[@]}" --tool memcheck "$build/$suite" cuda
  # The library's kernels are not ours to check. Its products of bf16 and fp16 fail under this tool, whatever kernels it looks at.
  part racecheck "${check[@]}" --tool racecheck --kernel-name kns=_kernel "$build/$suite" cuda 20240607 'test_gemm_reduced_*'
else
  for name in ${groups[sanitizer]}; do if wants "$name"; then skip "$name" "there is no compute-sanitizer"; fi; done
fi

part gemm "$build/$products"
one_layer=(--preset llama-2-7b --set model.layers=1 --set layout.tp=8 --set model.seq=512 --set train.steps=1 --jobs 1 --seed 1 --cases 2)
fuzz speed_cuda "${one_layer[@]}" --device cuda --deadline 500s
part shares_cuda "$build/$bench" "${one_layer[@]}" --device cuda --ranks 8 --layouts 2
fuzz speed_cpu "${one_layer[@]}" --device cpu --deadline 500s

exit $failed
