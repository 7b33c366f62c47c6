#!/usr/bin/env bash
# However a campaign on MPI ranks is ended, no rank outlives it, and --resume gives every case one verdict.
source tests/integration/common.bash
source tests/integration/mpi.bash

campaign=(fuzz --cases 100000 --seed 5 --max-ranks 4 "${flat[@]}" --out "$work/out")
# STORE COUNT [QUERY]: waits until that many verdicts are in the store, or until the query says so many.
wait_for() {
  for _ in $(seq 200); do
    # Without -readonly sqlite3 would make the file itself.
    if [ "$(sqlite3 -readonly "$1" "${3:-SELECT count(*) FROM verdict}" 2>/dev/null || echo 0)" -ge "$2" ]; then return 0; fi
    sleep 0.1
  done
  fail "no verdicts in $1"
}
# STORE: rows are the indices from 0 on.
is_gapless() { [ "$(query "$1" 'SELECT count(*) = max(idx) + 1 FROM verdict')" = 1 ]; }

# PID WHAT: it ends within a minute; what stands in the way is shown, and ended.
ends() {
  for _ in $(seq 600); do
    [[ $(ps -o stat= -p "$1") == [!Z]* ]] || break
    sleep 0.1
  done
  checks=$((checks + 1))
  if [[ $(ps -o stat= -p "$1") == [!Z]* ]]; then
    fail "$2 goes on a minute after a signal: $(ps -eo pid,ppid,stat,wchan:20,etime,args | grep -F "$SHARDFUZZ" | grep -v grep)"
    pkill -KILL -f "$SHARDFUZZ"
  fi
  wait "$1" 2>/dev/null
}

for signal in KILL TERM; do
  store=$work/launched-$signal.sqlite
  "$SHARDFUZZ" "${campaign[@]}" --launcher "$launcher" --store "$store" 2>/dev/null &
  wait_for "$store" 5
  kill -$signal $!
  ends $! "shardfuzz ($signal)"
  check "no rank outlives SIG$signal to shardfuzz" none_left
  run 0 fuzz --cases 36 --seed 5 --max-ranks 4 "${flat[@]}" --out "$work/out" --launcher "$launcher" --store "$store" --resume
  check "every case has one verdict after SIG$signal to shardfuzz" is_gapless "$store"

  store=$work/inside-$signal.sqlite
  mpirun --oversubscribe -n 4 "$SHARDFUZZ" "${campaign[@]}" --backend mpi --store "$store" 2>/dev/null &
  wait_for "$store" 5
  kill -$signal $!
  ends $! "mpirun ($signal)"
  check "no rank outlives SIG$signal to mpirun" none_left
  timeout 50 mpirun --oversubscribe -n 4 "$SHARDFUZZ" fuzz --cases 36 --seed 5 --max-ranks 4 "${flat[@]}" --out "$work/out" --backend mpi --store "$store" --resume \
    2>"$work/stderr" || fail "the campaign could not be resumed after SIG$signal to mpirun"
  check "every case has one verdict after SIG$signal to mpirun" is_gapless "$store"
done

# Ranks that are interrupted before their first finding is shrunk: it waits for --resume, and the books are in the end those of a campaign left alone.
shrinking=(fuzz --cases 6 --seed 5 --max-ranks 2 "${flat[@]}" --mode isolated --plant rowparallel-bias-xtp --set layout.tp=2 --set model.bias=true --shrink-budget 20 --backend mpi)
books="SELECT idx, verdict, class, shrink_key, signature, label, rank FROM verdict ORDER BY idx; SELECT signature, idx, case_json, min_json FROM finding ORDER BY signature"
job 2 "${shrinking[@]}" --out "$work/alone" --store "$work/alone.sqlite"
store=$work/shrinking.sqlite
mpirun --oversubscribe -n 2 "$SHARDFUZZ" "${shrinking[@]}" --out "$work/out" --store "$store" 2>"$work/stderr" &
wait_for "$store" 1 "SELECT value FROM meta WHERE key = 'high_water'" # case 0, a finding, was handed out
kill -TERM $(pgrep -f "^$SHARDFUZZ fuzz .*--store $store")
ends $! "ranks (TERM while they shrink)"
check "the interruption came in time" [ "$(query "$store" 'SELECT count(*) FROM verdict')" -lt 6 ]
job 2 "${shrinking[@]}" --out "$work/out" --store "$store" --resume
check "the books of ranks left alone" cmp <(query "$work/alone.sqlite" "$books") <(query "$store" "$books")

# While the target hangs.
"$SHARDFUZZ" "${campaign[@]}" --launcher "$launcher" --plant canary-hang --deadline 60s --store "$work/hang.sqlite" 2>/dev/null &
for _ in $(seq 100); do
  if [ "$(alive)" -ge 5 ]; then break; fi
  sleep 0.1
done
sleep 1
kill -KILL $!
ends $! "shardfuzz (hang)"
check "no rank outlives a killed campaign whose target hangs" none_left

# While it hangs inside a job, and the signal reaches the ranks alone.
store=$work/hang-inside.sqlite
mpirun --oversubscribe -n 2 "$SHARDFUZZ" fuzz --cases 3 --seed 5 --max-ranks 2 --set layout.tp=2 --plant canary-hang --deadline 50s --out "$work/out" --backend mpi --store "$store" 2>"$work/stderr" &
for _ in $(seq 100); do
  if [ -e "$store.rank-1" ]; then break; fi
  sleep 0.1
done
sleep 2
kill -TERM $(pgrep -f "^$SHARDFUZZ fuzz .*--store $store")
before=$SECONDS
ends $! "ranks (TERM)"
check "ranks end long before the deadline: $((SECONDS - before)) s" [ $((SECONDS - before)) -lt 15 ]
check "one of them says why" [ "$(grep -c '^shardfuzz: case 0: interrupted; run it again with .* --resume' "$work/stderr")" -eq 1 ]
check "the case has no verdict" [ "$(query "$store" 'SELECT count(*) FROM verdict')" -eq 0 ]
finish
