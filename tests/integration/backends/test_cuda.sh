#!/usr/bin/env bash
# The CUDA device. Where there is no GPU the program says so in one line. Its kernels run on a CPU, in a program made for that: single operations, and
# layers on simulated ranks, whose verdicts are those of the CPU device.
source tests/integration/common.bash

emulated=$(dirname "$SHARDFUZZ")/tests/emulation/shardfuzz_emulated
one_line() { check "one line: $1" [ "$(wc -l <"$work/stderr")" -eq 1 ]; }

if [ ! -e /dev/nvidia0 ] && [ ! -e /dev/dxg ]; then
  for command in "fuzz" "fuzz --target op:all" "gate --corpus corpus/regress" "power" "replay corpus/regress/$(ls corpus/regress | grep json | head -1)"; do
    run 3 $command --device cuda
    one_line "$command"
    check "the device is named" grep -q '^shardfuzz: --device cuda: ' "$work/stderr"
  done
  "$build/tests/contract/test_device_contract" cuda >"$work/stdout" 2>"$work/stderr"
  check "the contract suite fails for a device that was asked for by name" [ $? -eq 1 ]
  check "and says why" grep -q '^cuda: failed: ' "$work/stdout"
fi
if ! nvidia-smi -L >/dev/null 2>&1; then
  ci/gpu.sh "$work/gpu.json" >"$work/stdout" 2>"$work/stderr"
  check "ci/gpu.sh without a GPU: exit 3" [ $? -eq 3 ]
  one_line "ci/gpu.sh"
  check "nothing is written" [ ! -e "$work/gpu.json" ]
fi
ci/gpu.sh --parts contract,speeds 2>"$work/stderr"
check "ci/gpu.sh with a part that is not there: exit 2" [ $? -eq 2 ]
one_line "ci/gpu.sh's parts"
run 2 fuzz --device cuda --gemm blas
run 2 fuzz --device cuda --target "worker:python3 -S targets/samples/worker_mlp.py" --launcher "$PWD/tests/integration/launch_ranks.sh {n}"
one_line "a framework that has no CUDA mode"
check "whose it is" grep -qx 'shardfuzz: --device cuda: the worker of sample-mlp does not run on it' "$work/stderr"
if [ ! -x "$emulated" ]; then finish && exit 77; fi # a build without C++

export SHARDFUZZ=$emulated
SF_EMULATED_DEVICES=0 run 3 fuzz --device cuda
one_line "no device"
SF_EMULATED_CONCURRENT=0 run 3 fuzz --device cuda
one_line "a GPU that closes memory to the host"
check "what it lacks" grep -q '^shardfuzz: --device cuda: .*concurrentManagedAccess' "$work/stderr"
SF_EMULATED_KERNELS=0 run 3 fuzz --device cuda
one_line "a GPU that the build has no kernels for"
check "what to build" grep -q '^shardfuzz: --device cuda: .*CMAKE_CUDA_ARCHITECTURES' "$work/stderr"
SF_EMULATED_FREE_BYTES=500000 run 3 fuzz --device cuda
one_line "no memory for the device"
check "whose memory it is" grep -q '^shardfuzz: --device cuda: memory of the GPU: out of memory$' "$work/stderr"
SF_EMULATED_FREE_BYTES=2000000 run 3 fuzz --device cuda --target op:all --cases 3 --out "$work/little"
one_line "no memory for the operands"
check "out of memory" grep -q '^shardfuzz: .*out of memory' "$work/stderr"
SF_EMULATED_FREE_BYTES=2000000 run 3 fuzz --device cuda --cases 3 --out "$work/little" --json # none could be judged
is_json "j['inconclusive']" 3
check "why none could be judged" grep -q '^shardfuzz: nothing was judged: 3 inconclusive (last: .*out of memory' "$work/stderr"
# Workers of one GPU share what is free.
for jobs in 1 12; do
  SF_EMULATED_FREE_BYTES=24000000 run $((jobs == 1 ? 0 : 3)) fuzz --device cuda --set model.hidden=16 --set model.seq=8 --set model.layers=1 --set train.steps=1 --max-ranks 2 --cases 2 --seed 4 --deadline 120s \
    --jobs $jobs --out "$work/little" --json
  is_json "j['inconclusive']" $((jobs == 1 ? 0 : 2))
done
run 0 fuzz --target op:all --device cuda --cases 240 --max-elements 3000 --deadline 60s --seed 7 --out "$work/out" --json
is_json "j['cases'] == j['passed'] == 240 and j['unchecked_share'] < 0.03" True

replay_op() { # OPERATION FIELDS: passes on the device
  echo "{\"schema\": 1, \"target\": \"op:$1\", \"operation\": \"$1\", \"case\": {$2, \"seed\": 12}}" >"$work/case.json"
  run 0 replay "$work/case.json" --device cuda --deadline 60s --json
  is_json "j['verdict']" PASS
}
# More elements than a launch has threads, more rows than it has blocks, and products that are taken in narrow formats.
replay_op gelu_fwd '"count": 300000, "store": "bf16"'
replay_op sum_squares '"count": 300000'
replay_op ce_row_max '"rows": 1500, "cols": 3'
for format in bf16 fp16 fp32; do replay_op gemm "\"m\": 130, \"n\": 129, \"k\": 131, \"store\": \"fp32\", \"inputs\": \"$format\""; done

small=(--set model.hidden=16 --set model.seq=8 --set model.layers=1..2 --set train.steps=1 --max-ranks 2 --jobs 2 --deadline 120s --cases 3 --seed 4)
run 0 fuzz "${small[@]}" --out "$work/cpu" --json
verdicts=$(json "(j['passed'], j['inconclusive'], j['findings'])")
run 0 fuzz "${small[@]}" --device cuda --out "$work/cuda" --json
is_json "(j['passed'], j['inconclusive'], j['findings'])" "$verdicts"
told=$(grep -c '^shardfuzz: cuBLASLt has no way to multiply [0-9]* x [0-9]* by [0-9]* x [0-9]* in fp32; ' "$work/stderr")
check "the emulated library refuses some products, and each of two processes says so once: $told lines" [ "$told" -ge 1 -a "$told" -le 2 ]
run 1 fuzz "${small[@]}" --mode isolated --set layout.tp=2 --plant rowparallel-bias-xtp --set model.bias=true --device cuda --shrink-budget 0 --out "$work/plant" --json
finish
