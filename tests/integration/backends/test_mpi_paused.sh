#!/usr/bin/env bash
# Deadlines of ranks inside mpirun do not count the time in which the whole job stood still.
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

check "no rank is left" none_left
finish
