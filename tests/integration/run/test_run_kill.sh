#!/usr/bin/env bash
# A campaign killed and interrupted again and again: --resume goes on, nothing is counted twice or lost, no process stays behind, and books and files are
# in the end those of a campaign that was left alone.
source tests/integration/common.bash

kills=6
campaign=(fuzz --seed 21 --jobs 2 --max-ranks 4 --shrink-budget 8 --set model.layers=1..2 --set train.steps=1..2
  --plant canary-crash --plant rowparallel-bias-xtp --plant canary-mismatch)
# Everything that a campaign starts stays in its session. (What is dead and only not yet collected does not count.)
left_over() { ps -s "$1" -o pid=,stat=,args= | awk '$2 !~ /^Z/'; }
verdicts_of() { sqlite3 -readonly "$1" 'SELECT count(*) FROM verdict' 2>/dev/null || echo 0; } # STORE
has_more() { [ "$(verdicts_of "$work/killed.sqlite")" -gt "$1" ]; }                           # COUNT
# SIGNAL SECONDS ARGUMENT...: starts it, ends it so long after its first new verdict, or, where $early is 1, after its start; waits for its processes.
start_and_end() {
  local signal=$1 seconds=$2 session before
  shift 2
  before=$(verdicts_of "$work/killed.sqlite")
  setsid "$SHARDFUZZ" "$@" >"$work/stdout" 2>"$work/stderr" &
  session=$!
  [ "$early" -eq 1 ] || within 100 has_more "$before"
  sleep "$seconds"
  kill -"$signal" $session 2>/dev/null
  wait $session 2>/dev/null
  for _ in $(seq 20); do
    [ -n "$(left_over "$session")" ] || break
    sleep 0.1
  done
  checks=$((checks + 1))
  if [ -n "$(left_over "$session")" ]; then
    fail "processes are left two seconds after SIG$signal: $(left_over "$session")"
    pkill -KILL -s "$session"
  fi
}
# FOLDER: its files, but for the folder's own name in them.
files() { (cd "$1" && find . -type f -exec sh -c 'echo "$1"; sed "s|$2/||" "$1"' sh {} "$1" \; | sort); }

RANDOM=20260
signals=(KILL TERM)
for ((kill = 0; kill < kills; kill++)); do
  early=$((kill % 3 == 0))
  start_and_end "${signals[kill % 2]}" "0.$(printf "%03d" $((RANDOM % 500 + 20)))" "${campaign[@]}" --cases 100000 --resume --store "$work/killed.sqlite" --out "$work/killed"
done
early=1
# Workers in an endless loop of the code under test, and their shrinking children, end as well.
start_and_end KILL 1 fuzz --plant canary-hang --jobs 2 --deadline 60s --out "$work/hang"
start_and_end KILL 1.5 fuzz --plant canary-hang --jobs 2 --deadline 300ms --out "$work/hang"

cases=$(query "$work/killed.sqlite" "SELECT value FROM meta WHERE key = 'high_water'") # as many as were ever handed out
verdicts=$(query "$work/killed.sqlite" 'SELECT count(*) FROM verdict')
check "kills interrupted something" [ "$verdicts" -gt 0 -a "$verdicts" -lt "$cases" ]
campaign+=(--cases "$cases")
run 1 "${campaign[@]}" --resume --store "$work/killed.sqlite" --out "$work/killed" --json
is_json 'j["cases"]' "$cases"
check "integrity" [ "$(query "$work/killed.sqlite" 'PRAGMA integrity_check')" = ok ]
check "one verdict for each index" [ "$(query "$work/killed.sqlite" "SELECT count(*) = $cases AND min(idx) = 0 AND max(idx) = $cases - 1 FROM verdict")" = 1 ]

run 1 "${campaign[@]}" --store "$work/alone.sqlite" --out "$work/alone"
# Which finding comes first and what it is shrunk to does not depend on the kills.
books="SELECT idx, verdict, class, shrink_key, signature, label, rank FROM verdict ORDER BY idx; SELECT signature, idx, case_json, min_json FROM finding ORDER BY signature"
query "$work/alone.sqlite" "$books" >"$work/books.alone"
query "$work/killed.sqlite" "$books" >"$work/books.killed"
check "the books of the campaign left alone" cmp "$work/books.alone" "$work/books.killed"
files "$work/alone" >"$work/files.alone"
files "$work/killed" >"$work/files.killed"
check "the files of the campaign left alone" cmp "$work/files.alone" "$work/files.killed"
check "every finding has its files" [ "$(find "$work/killed" -name report.txt | wc -l)" -eq "$(query "$work/killed.sqlite" 'SELECT count(*) FROM finding')" ]
check "no unfinished file" [ -z "$(find "$work/killed" -name '*.tmp')" ]

# A framework's, interrupted while its first finding is confirmed or shrunk: the finding waits, and is shrunk in the end as if nothing had been.
framework=(fuzz --target 'worker:python3 -S targets/samples/worker_mlp.py' --cases 8 --jobs 1 --shrink-budget 20)
run 1 "${framework[@]}" --store "$work/sets.sqlite" --out "$work/sets"
"$SHARDFUZZ" "${framework[@]}" --store "$work/ended.sqlite" --out "$work/ended" --json >"$work/stdout" 2>"$work/stderr" &
for _ in $(seq 300); do
  [ "$(verdicts_of "$work/ended.sqlite")" -lt 1 ] || break
  sleep 0.05
done
kill -TERM $!
wait $!
check "the interruption came in time" [ "$(query "$work/ended.sqlite" 'SELECT count(*) FROM verdict')" -lt 8 ]
run 1 "${framework[@]}" --resume --store "$work/ended.sqlite" --out "$work/ended"
for name in sets ended; do
  query "$work/$name.sqlite" "$books" >"$work/books.$name"
  files "$work/$name" >"$work/files.$name"
done
check "the books of a framework's campaign left alone" cmp "$work/books.sets" "$work/books.ended"
check "the files of a framework's campaign left alone" cmp "$work/files.sets" "$work/files.ended"

# Interrupted without a finding: said, and no exit code that stands for "nothing found".
"$SHARDFUZZ" fuzz --seed 3 --jobs 1 --set model.layers=1 "${plain[@]}" --store "$work/clean.sqlite" --out "$work/clean" --json >"$work/stdout" 2>"$work/stderr" &
for _ in $(seq 300); do
  [ "$(verdicts_of "$work/clean.sqlite")" -lt 1 ] || break
  sleep 0.05
done
kill -TERM $!
seen=0
wait $! || seen=$?
check "an interrupted campaign exits as shells say it" [ $seen -eq 143 ]
check "and says so" grep -qE "^interrupted; go on with --store '?$work/clean.sqlite'? --resume$" "$work/stderr"
is_json 'j["interrupted"], j["findings"], j["cases"] > 0' '(True, 0, True)'

# Finished: resuming changes nothing.
run 1 "${campaign[@]}" --resume --store "$work/killed.sqlite" --out "$work/killed" --json
is_json 'j["cases"]' "$cases"
finish
