#!/usr/bin/env bash
# A campaign inside mpirun: clean cases pass with the verdicts that simulated ranks give, a planted bug is found and shrunk in place.
source tests/integration/common.bash
source tests/integration/mpi.bash

# The same cases, inside mpirun and simulated.
job 4 fuzz --backend mpi --cases 24 --seed 5 --max-ranks 4 "${flat[@]}" --out "$work/clean" --store "$work/mpi.sqlite" --json
check "clean cases exit with 0" [ $seen -eq 0 ]
is_json 'j["cases"] == j["passed"] + j["inconclusive"] == 24 and j["passed"] >= 15' True
check "one rank prints" [ "$(wc -l <"$work/stdout")" -eq 1 ]
check "no page is left" [ -z "$(find "$work" -name '*.rank-*')" ]
run 0 fuzz --cases 24 --seed 5 --max-ranks 4 "${flat[@]}" --out "$work/clean" --store "$work/sim.sqlite"
for store in mpi sim; do
  query "$work/$store.sqlite" "SELECT $columns FROM verdict ORDER BY idx" >"$work/$store.txt"
  check "the store says how it was made" grep -q "^backend=$store$" <(query "$work/$store.sqlite" "SELECT value FROM meta WHERE key = 'campaign'")
done
check "simulated and real ranks give the same verdicts" cmp "$work/mpi.txt" "$work/sim.txt"
job 4 fuzz --backend mpi --cases 28 --seed 5 --max-ranks 4 "${flat[@]}" --out "$work/clean" --store "$work/mpi.sqlite" --resume --json
is_json 'j["cases"] == j["passed"] + j["inconclusive"] == 28' True
job 4 fuzz --backend mpi --cases 28 --seed 5 --max-ranks 4 "${flat[@]}" --out "$work/clean" --store "$work/sim.sqlite" --resume
check "a store of simulated ranks is refused once" [ "$(grep -c '^shardfuzz: .*backend' "$work/stderr")" -eq 1 ]

# The largest world is the job's. What forbids is named, and told once.
job 4 fuzz --backend mpi --cases 2 "${flat[@]}" --out "$work/default"
check "a job of 4 ranks needs no --max-ranks" [ $seen -eq 0 ]
store=$work/default/campaign-0001.sqlite
check "the job's ranks are the largest world" grep -q '^max_ranks=4$' <(query "$store" "SELECT value FROM meta WHERE key = 'campaign'")
job 4 fuzz --backend mpi --cases 2 --max-ranks 8 --out "$work/large"
check "more ranks than the job has are refused" [ $seen -eq 2 ]
check "the refusal names the option, once" [ "$(grep '^shardfuzz:' "$work/stderr")" = "shardfuzz: --max-ranks 8 is above the 4 ranks of this MPI job: give --max-ranks 4, or start more ranks" ]
job 4 fuzz --backend mpi --cases 2 --set layout.tp=8 --out "$work/large"
check "fields that do not fit the job are refused" [ $seen -eq 2 ]
check "they are named, once" [ "$(grep -c '^shardfuzz:.*: layout.tp=8, --max-ranks 4;.*this MPI job has 4 ranks' "$work/stderr")" -eq 1 ]

# A rank that sees the error first leaves the word to rank 0, and speaks where rank 0 sees none.
cat >"$work/uneven" <<EOF
#!/bin/sh
case \$uneven\$OMPI_COMM_WORLD_RANK in
  slow0) sleep 1 ;;
  other1) set -- fuzz --backend mpi --no-such-option ;;
esac
exec "$SHARDFUZZ" "\$@"
EOF
chmod +x "$work/uneven"
# HOW ARGUMENT...: a job of two ranks of that script
uneven_job() {
  seen=0
  uneven=$1 timeout -k 1 60 mpirun --oversubscribe -n 2 "$work/uneven" "${@:2}" >"$work/stdout" 2>"$work/stderr" || seen=$?
}
uneven_job slow fuzz --backend mpi --cases 2 --set layout.tp=8 --out "$work/large"
check "a slow rank 0 is waited for" [ $seen -eq 2 ]
check "it speaks, once" [ "$(grep -c '^shardfuzz:.*: layout.tp=8' "$work/stderr")" -eq 1 ]
uneven_job other fuzz --backend mpi --cases 2 "${flat[@]}" --out "$work/large"
check "an error of rank 1 alone ends the job" [ $seen -eq 2 ]
check "rank 1 names it" [ "$(grep -c '^shardfuzz:.*no-such-option' "$work/stderr")" -eq 1 ]

# Every way of context parallelism, and what tp does beside it.
for set in layout.cp_comm=ring layout.cp_comm=allgather layout.cp_comm=a2a layout.tp_overlap=on layout.recompute_sharded=on; do
  options=(--cases 5 --seed 6 --max-ranks 4 --set layout.cp=2..4 --set "$set" "${flat[@]}" --out "$work/cp")
  if [[ $set != layout.cp_comm=* ]]; then options+=(--set layout.tp=2 --set layout.cp=2); fi
  job 4 fuzz --backend mpi "${options[@]}" --store "$work/mpi-$set.sqlite" --json
  is_json 'j["cases"] == j["passed"] + j["inconclusive"] == 5 and j["passed"] >= 3' True
  run 0 fuzz "${options[@]}" --store "$work/sim-$set.sqlite"
  for store in mpi sim; do query "$work/$store-$set.sqlite" "SELECT $columns FROM verdict ORDER BY idx" >"$work/$store.txt"; done
  check "simulated and real ranks give the same verdicts with $set" cmp "$work/mpi.txt" "$work/sim.txt"
done

# A silent bug is shrunk in place and replays inside mpirun.
job 4 fuzz --backend mpi --cases 4 --seed 5 --max-ranks 4 --plant rowparallel-bias-xtp --set layout.tp=2..4 --set model.bias=true --out "$work/plant" --json
check "findings exit with 1" [ $seen -eq 1 ]
is_json 'j["findings"] > 0 and j["flaky"] == 0' True
min=$(find "$work/plant" -name min.json | head -n 1)
check "the planted bug left a reproducer" [ -n "$min" ]
job 4 replay "$min" --backend mpi --json
check "a replay of a finding exits with 1" [ $seen -eq 1 ]
is_json 'j["signature"]' "$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["expect"]["signature"])' "$min")"
check "the replay is told once" [ "$(grep -c '^verdict' "$work/stderr")" -eq 1 ]
ranks=$(sed -n 's/^case         \([0-9]*\) ranks .*/\1/p' "$(dirname "$min")/report.txt")
replay_line "$(dirname "$min")" "mpirun --oversubscribe -n $ranks '$SHARDFUZZ' replay '$min' --backend 'mpi'"
job 4 replay "$min" --backend mpi --plant canary-mismatch
check "a replay that breaks is told once" [ "$(grep -c '^verdict .*mismatch' "$work/stdout")" -eq 1 ]

check "no rank is left" none_left
finish
