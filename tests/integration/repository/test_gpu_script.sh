#!/usr/bin/env bash
# ci/gpu.sh with a GPU, a build and tools that are scripts: what it runs, and what is left of a run that fails or is cut off.
source tests/integration/common.bash

fake() { # PATH, text on stdin: a program that is a script
  mkdir -p "$(dirname "$1")"
  (echo '#!/usr/bin/env bash' && cat) >"$1"
  chmod +x "$1"
}
tools=$work/tools ready=$work/ready
fake "$tools/nvidia-smi" <<<'echo "A GPU, 1.0, 9.0"'
fake "$tools/compute-sanitizer" <<<'echo "$*"'
fake "$tools/nvidia-cuda-mps-control" <<<'echo "$CUDA_MPS_PIPE_DIRECTORY ${1:-$(cat)}" >>"$FAKE_MPS"'
fake "$tools/mpirun" <<<'echo "rank 0: 2 ranks on 1 GPU: NCCL needs one for each" && exit 1'
fake "$ready/tests/contract/test_device_contract" <<<'echo "asked for $1" && echo "the end"'
fake "$ready/tests/contract/test_comm_contract" <<<'true'
fake "$ready/tests/bench/bench_speed" <<<'echo "{\"split_of_measured_run\": {\"gemm\": 0.25}}"'
fake "$ready/tests/bench/bench_gemm" <<<'echo "{\"large\": {\"bf16\": {\"device\": {\"ratio_least\": 0.5}}}}"'
fake "$ready/shardfuzz" <<'END'
case "$*" in
"list plants") for i in 1 2 3 4 5 6 7; do echo "plant-$i  text"; done && echo "canary-crash  text" ;;
power*) echo "{\"arguments\": \"$*\"}" ;;
*op:all*) mkdir -p "$3" && echo found >"$3/case.json" && echo "a line of stderr" >&2 && exit 1 ;;
*"--cases 2000 "*) echo "$PPID" >"$FAKE_PID" && exec sleep 300 ;;
*"--device cpu"*) echo '{"cases_per_s": 2}' ;;
*) echo '{"cases_per_s": 5}' ;;
esac
END
PATH=$tools:$PATH
export FAKE_PID=$work/pid FAKE_MPS=$work/mps
unset CUDA_MPS_PIPE_DIRECTORY
out=$work/out/gpu.json
report() { python3 -c "import json, sys; j = json.load(open(sys.argv[1])); print(($1))" "$out" 2>/dev/null; }
reports() { # EXPRESSION VALUE
  local seen
  checks=$((checks + 1))
  seen=$(report "$1") || seen="no report"
  [ "$seen" = "$2" ] || fail "$1 is '$seen', expected '$2'"
}
gpu() { # EXPECTED_EXIT ARGUMENT...
  local expected=$1
  shift
  ci/gpu.sh --build "$ready" "$@" "$out" >"$work/stdout" 2>"$work/stderr"
  check "ci/gpu.sh $*: exit $expected" [ $? -eq "$expected" ]
}
last_line() { check "the last line: $1" [ "$(tail -n 1 "$work/stdout")" = "$1" ]; }

gpu 2 --parts contracts
ci/gpu.sh --build "$work/nothing" >"$work/stdout" 2>"$work/stderr"
check "a folder without programs: exit 2" [ $? -eq 2 ]
check "one line that names one" [ "$(grep -c "there is no program $work/nothing/" "$work/stderr") $(wc -l <"$work/stderr")" = "1 1" ]
gpu 2 --installed
gpu 2 --build

gpu 0 --parts contract,sanitizer,power
last_line "NOT RUN: operations, layers, kernels, nccl_1, nccl_2, nccl_layers, gemm, speed_cuda, shares_cuda, speed_cpu"
reports "j['parts']['contract']['last_lines']" "['asked for cuda', 'the end']"
reports "'--kernel-name kns=_kernel ' in j['parts']['racecheck']['last_lines'][0]" True
reports "[j['parts']['power_%d' % i]['result']['arguments'].count('--plant plant-') for i in range(1, 7)]" "[2, 1, 1, 1, 1, 1]"
check "its own Multi-Process Service is started and ended" [ "$(sed 's/.* //' "$FAKE_MPS" | tr '\n' ' ')" = "-d quit " ]
check "no logs of what passed" [ ! -e "$work/out/gpu-logs" ]

gpu 1 --parts operations,nccl
last_line "NOT RUN: layers, kernels, nccl_1 (rank 0: 2 ranks on 1 GPU: NCCL needs one for each), nccl_2 (rank 0: 2 ranks on 1 GPU: NCCL needs one for each), nccl_layers (rank 0: 2 ranks on 1 GPU: NCCL needs one for each), gemm, speed_cuda, shares_cuda, speed_cpu"
reports "j['parts']['operations']['exit'], j['parts']['contract']['exit']" "(1, 0)"
reports "j['parts']['operations']['last_lines']" "['a line of stderr']" # which says why, where stdout says nothing
check "a failed part's output is kept" grep -q '^a line of stderr$' "$work/out/gpu-logs/operations/stderr"
check "and its findings" grep -q '^found$' "$work/out/gpu-logs/operations/findings/case.json"
check "nothing is kept of a part that was skipped" [ ! -e "$work/out/gpu-logs/nccl_1" ]

# The clock of a machine that is lent runs out: SIGTERM, then SIGKILL.
cut_off() { # SIGNAL
  rm -rf "$work/out" "$FAKE_PID"
  ci/gpu.sh --build "$ready" --parts speed,layers,contract "$out" >"$work/stdout" 2>"$work/stderr" &
  local script=$!
  for _ in $(seq 300); do [ -s "$FAKE_PID" ] && break || sleep 0.1; done
  kill "-$1" $script
  wait $script
}
cut_off TERM
check "cut off: exit 143" [ $? -eq 143 ]
last_line "NOT RUN: operations, layers, kernels, power_1, power_2, power_3, power_4, power_5, power_6, nccl_1, nccl_2, nccl_layers, memcheck, racecheck, gemm, speed_cuda, shares_cuda, speed_cpu"
reports "list(j['parts'])" "['contract']"
check "the part under way has ended" [ ! -e "/proc/$(cat "$FAKE_PID")" ]
cut_off KILL 2>/dev/null
reports "list(j['parts'])" "['contract']"
kill "$(cat "$FAKE_PID")"

gpu 0 --parts speed
reports "j['cuda_over_cpu'], j['gemm_share_cuda'], sorted(j['parts'])" "(2.5, 0.25, ['contract', 'gemm', 'shares_cuda', 'speed_cpu', 'speed_cuda'])"
reports "j['gemm_over_cublaslt']['bf16']['device']['ratio_least']" 0.5
echo true >>"$ready/tests/contract/test_device_contract"
gpu 0 --parts contract
reports "list(j['parts'])" "['contract']" # of other programs: what earlier runs saw does not count
finish
