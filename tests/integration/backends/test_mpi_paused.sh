#!/usr/bin/env bash
# Deadlines of ranks inside mpirun count neither the time in which the whole job stood still nor that in which other processes had the processors.
source tests/integration/common.bash
source tests/integration/mpi.bash

marked() { grep -lsz -- "^SHARDFUZZ_TEST_MARK=$work\$" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3; }
# DEADLINE SECONDS: starts it in the background
start() {
  SHARDFUZZ_TEST_MARK=$work TMPDIR=$work mpirun --oversubscribe -n 4 "$SHARDFUZZ" fuzz --backend mpi --time "$2" --deadline "$1" --seed 5 --max-ranks 4 "${flat[@]}" \
    --out "$work/$1" --json >"$work/stdout" 2>"$work/stderr" &
  main=$!
}
# TEXT: it ends, and has found nothing
ends_clean() {
  local seen=0
  wait "$main" || seen=$?
  check "$1: nothing is found: $(grep -a '^shardfuzz:' "$work/stderr" | head -n 1 | head -c 400)" [ "$seen" -eq 0 ]
  is_json 'j["cases"] > 0, j["findings"], j["crashed"]' '(True, 0, 0)'
}

start 3s 12s
sleep 3
for _ in 1 2; do
  all=$(marked)
  kill -STOP $all 2>/dev/null # some may have ended
  sleep 4
  kill -CONT "$main"
  sleep 0.1
  kill -CONT $all 2>/dev/null
  sleep 1
done
ends_clean "a pause"

# One case beside many processes: what it took decides about the deadline, of which it has ten times at most.
spinners=()
for _ in $(seq $((4 * $(nproc)))); do
  timeout 300 bash -c 'while :; do :; done' &
  spinners+=($!)
done
one=(--cases 1 --jobs 1 --seed 5 --max-ranks 2 --set layout.tp=2 --set model.layers=4 --set train.steps=2)
job 2 fuzz --backend mpi "${one[@]}" --out "$work/slow" --deadline 60s
took=$(query "$work/slow/campaign-0001.sqlite" "SELECT CAST(1000 * seconds AS INTEGER) FROM verdict")
inside() { job 2 fuzz --backend mpi "$@"; }
launched() { seen=0; "$SHARDFUZZ" fuzz --launcher "$launcher" "$@" >"$work/stdout" 2>"$work/stderr" || seen=$?; }
for how in inside launched; do
  for _ in 1 2 3; do # it may take several times as long as before
    $how "${one[@]}" --out "$work/$how" --deadline "$((took / 3 + 1))ms"
    [ "$seen" -ne 0 ] || break
  done
  check "$how: a busy machine is no hang, of a case that took $took ms: $(grep -aE '^shardfuzz:|finding' "$work/stderr" | head -n 1 | head -c 400)" [ "$seen" -eq 0 ]
done
kill "${spinners[@]}"
wait "${spinners[@]}" 2>/dev/null
check "no rank is left" none_left
finish
