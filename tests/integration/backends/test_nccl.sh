#!/usr/bin/env bash
# The NCCL backend. Where there is no NCCL the program says so in one line. On an NCCL and a driver without a GPU, made for tests: campaigns with the verdicts of
# simulated ranks, and what goes wrong in a job.
source tests/integration/common.bash

emulated=$build/tests/emulation/shardfuzz_emulated
libraries=$build/tests/emulation/libraries
plain_program=$SHARDFUZZ
if [ ! -x "$emulated" ] || [ ! -e "$libraries/libnccl.so.2" ]; then echo "skipped: no emulation" && exit 77; fi
SHARDFUZZ=$emulated
source tests/integration/mpi.bash

refused() { # TEXT: exit 3, and one line of ours that says it
  check "a refusal exits with 3" [ $seen -eq 3 ]
  check "one line" [ "$(grep -c '^shardfuzz: ' "$work/stderr")" -eq 1 ]
  check "it says why" grep -q "^shardfuzz: --backend nccl: .*$1" "$work/stderr"
}

# No library, no driver, or neither in the build.
emulated_program=$SHARDFUZZ
SHARDFUZZ=$plain_program
if ! ldconfig -p | grep -q libnccl; then
  job 2 fuzz --backend nccl --cases 1 --out "$work/none"
  refused ""
  run 3 fuzz --backend nccl --launcher "$launcher" --cases 1 --out "$work/none"
  check "one line" [ "$(wc -l <"$work/stderr")" -eq 1 ]
fi
SHARDFUZZ=$emulated_program
run 2 fuzz --backend nccl --cases 1 --out "$work/none"
export LD_LIBRARY_PATH=$libraries
SF_EMULATED_DEVICES=0 job 2 fuzz --backend nccl --cases 1 --out "$work/none"
refused "no CUDA-capable device"
SF_EMULATED_NCCL_VERSION=22803 job 2 fuzz --backend nccl --cases 1 --out "$work/none"
refused "2 ranks on one GPU: NCCL 2.28.3 needs one for each"
NCCL_MULTI_RANK_GPU_ENABLE=0 job 2 fuzz --backend nccl --cases 1 --out "$work/none"
refused "NCCL_MULTI_RANK_GPU_ENABLE=0 forbids"
SF_EMULATED_DEVICES=2 SF_EMULATED_NCCL_VERSION=22803 job 2 fuzz --backend nccl --cases 2 --seed 5 --max-ranks 2 --out "$work/two"
check "an older library with a GPU for each rank" [ $seen -eq 0 ]
# A GPU for each rank that all call their first one. Kernels are as large as NCCL likes, which those of ranks that share a GPU are not.
SF_EMULATED_NCCL_LOG=$work/apart SF_EMULATED_APART=1 SF_EMULATED_NCCL_VERSION=22803 job 2 fuzz --backend nccl --cases 2 --seed 5 --max-ranks 2 --out "$work/two"
check "GPUs under the same number are told apart" [ $seen -eq 0 ]
check "their kernels are not limited" [ "$(grep -c '^open .*CTAs: 0$' "$work/apart")" -gt 0 -a "$(grep -c '^open .*CTAs: [1-9]' "$work/apart")" -eq 0 ]
SF_EMULATED_NCCL_LOG=$work/shared job 2 fuzz --backend nccl --cases 2 --seed 5 --max-ranks 2 --out "$work/two"
check "ranks that share a GPU" [ $seen -eq 0 ]
check "their kernels are small" [ "$(grep -c '^open .*CTAs: 2$' "$work/shared")" -gt 0 -a "$(grep -c '^open .*CTAs: [^2]' "$work/shared")" -eq 0 ]
check "streams have queues of their own" [ "$(grep -c '^context on 0 with 32 connections$' "$work/shared")" -eq 2 ]
SF_EMULATED_NCCL_LOG=$work/chosen CUDA_DEVICE_MAX_CONNECTIONS=4 job 1 fuzz --backend nccl --cases 1 --seed 5 --max-ranks 1 --out "$work/two"
check "the user's number of queues stays" grep -q '^context on 0 with 4 connections$' "$work/chosen"
# A rank whose communicators never end, beside what follows.
SF_EMULATED_NCCL_STUCK=1 TMPDIR=$work timeout -k 1 100 mpirun --oversubscribe -n 2 "$SHARDFUZZ" fuzz --backend nccl --cases 1 --seed 5 --max-ranks 2 --set layout.tp=2 \
  --deadline 120s --out "$work/stuck" >"$work/stuck.out" 2>&1 &
stuck=$!

# The same cases, on NCCL and simulated.
same() { # RANKS OPTION...
  local ranks=$1 store
  shift
  job "$ranks" fuzz --backend nccl "$@" --max-ranks "$ranks" --out "$work/clean" --store "$work/nccl.sqlite" --json
  check "clean cases exit with 0" [ $seen -eq 0 ]
  run 0 fuzz "$@" --max-ranks "$ranks" --out "$work/clean" --store "$work/sim.sqlite"
  for store in nccl sim; do
    query "$work/$store.sqlite" "SELECT $columns FROM verdict ORDER BY idx" >"$work/$store.txt"
    check "the store says how it was made" grep -q "^backend=$store$" <(query "$work/$store.sqlite" "SELECT value FROM meta WHERE key = 'campaign'")
    rm "$work/$store.sqlite"
  done
  check "simulated ranks and NCCL give the same verdicts" cmp "$work/nccl.txt" "$work/sim.txt"
}
small=(--set model.hidden=16 --set model.seq=8 --deadline 120s)
same 4 --cases 6 --seed 5 "${small[@]}"
same 3 --cases 4 --seed 6 "${small[@]}"
same 2 --device cuda --cases 3 --seed 4 "${small[@]}" --set model.layers=1..2 --set train.steps=1 # kernels are slow in emulation
wait $stuck
check "a rank whose communicators do not end ends all the same" [ $? -eq 0 ]
check "no communicator's file is left" [ -z "$(find "$work" -name 'sf-emulated-nccl-*')" ]

# A silent bug, found and replayed.
job 2 fuzz --backend nccl --cases 2 --seed 5 --max-ranks 2 --plant rowparallel-bias-xtp --set layout.tp=2 --set model.bias=true --mode isolated --shrink-budget 0 \
  --out "$work/plant" --json
check "findings exit with 1" [ $seen -eq 1 ]
job 2 replay "$(find "$work/plant" -name min.json | head -n 1)" --backend nccl --device cuda --json
check "a replay of a finding exits with 1" [ $seen -eq 1 ]

# Cases that end the job: a rank that dies, one that makes another call, one that makes none, and two that wait for each other.
for class in crash mismatch hang deadlock; do
  options=(--backend nccl --cases 1 --seed 5 --max-ranks 2 --plant "canary-$class" --set layout.tp=2)
  case $class in hang | deadlock) options+=(--deadline 3s) ;; esac
  options+=(--out "$work/$class" --store "$work/$class.sqlite" --resume)
  job 2 fuzz "${options[@]}"
  check "a $class ends the job with a failure" [ $seen -ne 0 ]
  check "a $class is told once" [ "$(grep -c '^shardfuzz: case 0: .*--resume' "$work/stderr")" -eq 1 ]
  job 2 fuzz "${options[@]}"
  seen=$(query "$work/$class.sqlite" "SELECT idx, verdict, class, rank >= 0, label != '' FROM verdict")
  check "--resume recorded the $class" [ "$seen" = "0|FINDING|$class|1|1" ]
done

# An error that NCCL reports while an operation runs: told with NCCL's own words, and the communicator is aborted with what is under way on it.
export SF_EMULATED_NCCL_FAULT=1:5 SF_EMULATED_NCCL_LOG=$work/log
job 2 fuzz --backend nccl --cases 1 --seed 5 --max-ranks 2 --set layout.tp=2 --deadline 20s --out "$work/fault" --store "$work/fault.sqlite"
check "an error of NCCL ends the job with a failure" [ $seen -ne 0 ]
check "it is told once" [ "$(grep -c '^shardfuzz: case 0: .*NCCL: remote process exited' "$work/stderr")" -eq 1 ]
check "the communicator is aborted" grep -q '^abort 1 of 2 under way' "$work/log"
unset SF_EMULATED_NCCL_LOG
TMPDIR=$work timeout -k 1 100 mpirun --oversubscribe -n 2 "$build/tests/emulation/test_comm_contract_emulated" nccl >"$work/stdout" 2>"$work/stderr"
seen=$?
check "a rank that fails alone ends the contract's job" [ $seen -ne 0 -a $seen -ne 124 -a $seen -ne 137 ]
check "it has said why" grep -q 'rank 1 of 2: .*NCCL: remote process exited' "$work/stderr"

# No memory, for NCCL or for values on their way: nothing is found, and the campaign goes on. The other rank hears of it too, as of a peer that has gone.
export SF_EMULATED_NCCL_FAULT=1:5:memory SF_EMULATED_NCCL_NOTICES=1
options=(--backend nccl --cases 1 --seed 5 --max-ranks 2 --set layout.tp=2 --deadline 60s --out "$work/memory" --store "$work/memory.sqlite" --resume)
job 2 fuzz "${options[@]}"
check "want of memory ends the job as a failure of ours" [ $seen -eq 3 ]
check "it is told once" [ "$(grep -c "^shardfuzz: case 0: out of memory while the case ran: .*'out of memory'.*--resume" "$work/stderr")" -eq 1 ]
job 2 fuzz "${options[@]}" --json
check "--resume goes on, and has nothing left to judge" [ $seen -eq 3 ]
check "it says so" grep -q '^shardfuzz: nothing was judged: 1 inconclusive (last: .*out of memory' "$work/stderr"
check "--resume recorded it" [ "$(query "$work/memory.sqlite" "SELECT idx, verdict FROM verdict")" = "0|INCONCLUSIVE" ]
unset SF_EMULATED_NCCL_FAULT SF_EMULATED_NCCL_NOTICES
SF_EMULATED_GPU_BYTES=4096 TMPDIR=$work run 3 fuzz --backend nccl --launcher "$launcher" --cases 2 --seed 5 --max-ranks 2 --set layout.tp=2 --deadline 60s --out "$work/small" --json
is_json '(j["cases"], j["inconclusive"], j["findings"])' "(2, 2, 0)"

# Ranks that shardfuzz starts itself: the campaign goes on.
TMPDIR=$work run 1 fuzz --backend nccl --launcher "$launcher" --cases 2 --seed 5 --max-ranks 2 --plant canary-mismatch --set layout.tp=2 --shrink-budget 0 \
  --deadline 20s --out "$work/launched" --json
is_json '(j["cases"], j["findings"])' "(2, 2)"
check "no rank is left" none_left
finish
