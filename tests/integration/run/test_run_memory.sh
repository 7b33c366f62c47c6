#!/usr/bin/env bash
# A case that is too large is skipped and says so, and one that the system ends for want of memory is no crash of the target.
source tests/integration/common.bash

large=(--set model.hidden=512 --set model.ffn=2048 --set model.vocab=16000 --set model.vocab_padded=16000 --set model.layers=1 --set model.seq=16 --set train.steps=1
  --set layout.tp=2 --seed 1 --cases 1 --jobs 1 --out "$work/out")

# Nothing was tried, which is no success.
run 3 fuzz "${large[@]}" --max-memory 100 --json
is_json "j['skipped'], j['passed'], j['reason'].startswith('every case was skipped: it needs about')" "(1, 0, True)"
check "the reason" grep -qE '^last skipped: it needs about [0-9.]+ GiB of memory .* and a case may use 0\.0977' "$work/stderr"
check "the end" grep -q '^shardfuzz: every case was skipped: it needs about' "$work/stderr"
run 3 gate "${large[@]}" --max-memory 100 --json --junit "$work/junit.xml" --summary "$work/nothing.md"
check "the gate's end" grep -q '^shardfuzz: every case was skipped: it needs about' "$work/stderr"
is_json "j['passed'], j['reason'].startswith('every case was skipped: it needs about'), j['campaign']['skipped']" "(False, True, 1)"
check "an error in the test view" grep -q '<testsuite [^>]*failures="0" errors="1"' "$work/junit.xml"
check "and in the summary" grep -q '^\*\*Not judged:\*\* `every case was skipped' "$work/nothing.md"

# Nor could what was tried be judged. (The sanitizers do not start with so little.)
cat >"$work/little" <<LITTLE
#!/bin/sh
ulimit -v 300000 && exec "$SHARDFUZZ" "\$@"
LITTLE
chmod +x "$work/little"
if "$work/little" list presets >/dev/null 2>&1; then
  SHARDFUZZ=$work/little run 3 fuzz "${large[@]}" --max-memory 100000 --json
  is_json "j['inconclusive'], j['passed']" "(1, 0)"
  check "why it is inconclusive" grep -q '^last inconclusive: out of memory while ' "$work/stderr"
  check "nothing was judged" grep -qE '^shardfuzz: nothing was judged: 1 inconclusive \(last: out of memory while .*\)$' "$work/stderr"
  SHARDFUZZ=$work/little run 3 gate "${large[@]}" --max-memory 100000
  check "nor by the gate" grep -qE '^shardfuzz: nothing was judged: 1 inconclusive \(last: out of memory while .*\)$' "$work/stderr"
fi

# What fits goes on beside what does not.
run 0 fuzz --cases 40 --seed 1 --max-memory 40 --jobs 2 --out "$work/out" --json
is_json "j['skipped'] > 5 and j['passed'] > 5 and 'reason' not in j" True
run 0 gate --cases 40 --seed 1 --max-memory 40 --jobs 2 --out "$work/out" --summary "$work/summary.md"
check "the gate tells what was not judged" grep -qE ' 0 findings, [0-9]+ inconclusive, [1-9][0-9]* skipped$' "$work/stdout"
check "and the last reason" grep -q '^last skipped: it needs about' "$work/stdout"
run 0 fuzz --dry-run "${large[@]}"
tail -n 1 "$work/stdout" >"$work/case.json"
run 0 replay "$work/case.json" --max-memory 100 --json
is_json "j['verdict'], j['checked']" "('SKIP', 0)"
run 0 describe "$work/case.json"
check "a size" grep -qE '^memory     about [0-9.]+ GiB: ' "$work/stdout"

refuses "--max-memory is only for the built-in layers" fuzz --target worker:true --max-memory 100 --cases 1

# A control group of 256 MB, where one can be made.
group=""
for root in /sys/fs/cgroup/memory /sys/fs/cgroup; do
  made=$root/shardfuzz-test-$$
  mkdir "$made" 2>/dev/null || continue
  if { echo 256M >"$made/memory.max" || echo 256M >"$made/memory.limit_in_bytes"; } 2>/dev/null; then
    { echo 0 >"$made/memory.swap.max"; } 2>/dev/null
    group=$made
    break
  fi
  rmdir "$made"
done
if [ -n "$group" ]; then
  cat >"$work/grouped" <<GROUPED
#!/bin/sh
echo \$\$ >"$group/cgroup.procs" && exec "$SHARDFUZZ" "\$@"
GROUPED
  chmod +x "$work/grouped"
  SHARDFUZZ=$work/grouped run 3 fuzz "${large[@]}" --max-memory 100000 --store "$work/killed.sqlite" --json
  is_json "j['inconclusive'], j['findings'], j['crashed']" "(1, 0, 0)"
  SHARDFUZZ=$work/grouped run 0 replay "$work/case.json" --max-memory 100000 --json
  check "the system ended it" grep -q '"text":"out of memory: the system ended the process after' "$work/stdout"
  # A framework's rank.
  echo '{"ranks": 2, "tokens": 1, "fault": "greedy", "where": 1}' >"$work/greedy.jsonl"
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
  if command -v mpirun >/dev/null; then
    SHARDFUZZ=$work/grouped run 3 worker 'python3 tests/integration/faulty_worker.py' "$work/greedy.jsonl" --record "$work/greedy.record"
    check "the system ended a rank" grep -q '"verdict":"INCONCLUSIVE","class":"memory","run":"candidate".*"reason":"out of memory: the system ended a process: ' "$work/greedy.record"
    # What it ends in another group is no excuse of ours.
    (while :; do sh -c "echo \$\$ >'$group/cgroup.procs' && exec python3 -S -c 'bytearray(1 << 29)'"; done) 2>/dev/null &
    others=$!
    for _ in 1 2 3; do echo '{"ranks": 2, "tokens": 1, "fault": "one-sided", "where": 1}'; done >"$work/exits.jsonl"
    run 1 worker 'python3 -S tests/integration/faulty_worker.py' "$work/exits.jsonl" --deadline 1s --json
    is_json "j['findings'], j['inconclusive']" "(3, 0)"
    kill "$others"
    wait "$others" 2>/dev/null
  fi
  for _ in $(seq 100); do rmdir "$group" 2>/dev/null && break; sleep 0.1; done
  check "the group is empty" [ ! -e "$group" ]
else
  echo "(no control group with a limit can be made here: the end by the system was not tried)"
fi
finish
