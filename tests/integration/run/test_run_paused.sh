#!/usr/bin/env bash
# Deadlines count the time in which the judge ran: a campaign that stands still for longer than a deadline, as in a frozen container or a suspended job, finds nothing
# in that.
source tests/integration/common.bash

launch=(--launcher "$PWD/tests/integration/launch_ranks.sh {n}")
faulty="python3 -S tests/integration/faulty_worker.py" # -S: as in common.bash
marked() { grep -lsz -- "^SHARDFUZZ_TEST_MARK=$work\$" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3; }

# Starts it in the background.
start() {
  SHARDFUZZ_TEST_MARK=$work "$SHARDFUZZ" "$@" >"$work/stdout" 2>"$work/stderr" &
  main=$!
}
# SECONDS: all its processes stop for so long. The judge goes on first, and finds the others as they were.
pause() {
  local all
  all=$(marked)
  kill -STOP $all 2>/dev/null # some may have ended
  sleep "$1"
  kill -CONT "$main"
  sleep 0.1
  kill -CONT $all 2>/dev/null
}
# TEXT: it ends, and has found nothing.
ends_clean() {
  local seen=0
  (sleep 60 && kill -KILL "$main") 2>/dev/null & # a finding may be shrunk for long
  wait "$main" || seen=$?
  kill $! 2>/dev/null
  check "$1: nothing is found in a pause: $(head -c 600 "$work/stderr")" [ "$seen" -eq 0 ]
}

# Ranks of a framework that say nothing for three seconds.
mkdir "$work/memory"
echo '{"ranks": 2, "fault": "nap", "where": 1}' >"$work/cases.jsonl"
start worker "$faulty" "$work/cases.jsonl" --memory "$work/memory" --deadline 4s --json "${launch[@]}"
for _ in $(seq 300); do if [ -n "$(find "$work/memory" -name napping 2>/dev/null)" ]; then break; fi; sleep 0.1; done
pause 4.5
ends_clean "a framework"
is_json 'j["passed"], j["ended_early"]' '(1, 0)'

# Trials of simulated ranks, which may stand still for ten deadlines.
start fuzz --time 7s --jobs 1 --deadline 500ms --max-ranks 2 --set model.layers=1 --set train.steps=1 --out "$work/sim" --json
sleep 0.5
pause 5.5
ends_clean "simulated ranks"
is_json 'j["cases"] > 0, j["findings"], j["crashed"]' '(True, 0, 0)'

# Operations, one of which is under way when the pause begins.
start fuzz --target "plugin:$build/plugins/slow.so" --cases 5 --jobs 1 --deadline 2s --out "$work/operations" --json
sleep 1.5
pause 3
ends_clean "operations"
is_json 'j["cases"] > 0, j["findings"]' '(True, 0)'
finish
