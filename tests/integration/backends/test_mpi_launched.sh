#!/usr/bin/env bash
# Rank sets that shardfuzz starts itself: clean cases pass, and the gate and the power search use such sets too.
source tests/integration/common.bash
source tests/integration/mpi.bash

run 0 fuzz --launcher "$launcher" --cases 60 --seed 5 --max-ranks 4 "${flat[@]}" --out "$work/clean" --store "$work/clean.sqlite" --json
is_json 'j["cases"] == j["passed"] + j["inconclusive"] == 60 and j["passed"] >= 40' True
check "the store says how it was made" grep -q '^backend=mpi$' <(query "$work/clean.sqlite" "SELECT value FROM meta WHERE key = 'campaign'")

# The gate; its corpus has a case of fewer ranks than the set of the one before.
mkdir "$work/corpus"
run 0 fuzz --cases 1 --seed 5 --max-ranks 2 --set layout.tp=2 --set model.layers=1 --set model.hidden=8..16 --out "$work/none" --dry-run
cp "$work/stdout" "$work/corpus/clean.json"
run 0 gate --launcher "$launcher" --corpus "$work/corpus" --cases 10 --seed 5 --max-ranks 4 --out "$work/gate" --json
# Covering cases have experts, whose routing may be a tie.
is_json '[j["passed"], j["corpus"], j["campaign"]["passed"] + j["campaign"]["inconclusive"], j["campaign"]["passed"] >= 5]' '[True, 1, 10, True]'
run 1 fuzz --launcher "$launcher" --cases 8 --seed 5 --max-ranks 4 "${flat[@]}" --plant rowparallel-bias-xtp --set layout.tp=2 --set model.bias=true --out "$work/plant"
replay_line "$work/plant" " --launcher '$launcher'"
check "further culprits of a case are confirmed" [ -z "$(find "$work/plant" -name 'flaky*')" ]
min=$(find "$work/plant" -name min.json | head -1)
run 1 replay "$min" --launcher "$launcher" --html "$work/launched.html"
run 1 replay "$min" --html "$work/simulated.html"
check "a page of launched ranks has the pictures of simulated ones" [ "$(grep -o '<svg' "$work/launched.html" | wc -l)" -eq "$(grep -o '<svg' "$work/simulated.html" | wc -l)" ]
check "there are some" [ "$(find "$work/plant" -name case.json | wc -l)" -gt 1 ]
run 0 power --launcher "$launcher" --plant rowparallel-bias-xtp --cases 60 --clean 5 --seed 5 --max-ranks 4 --shrink-budget 60 --json
# Mutants act on every rank's communicator: found, and proven equivalent by what all ranks received.
run 0 power --launcher "$launcher" --plant mutant:row_parallel_linear.fwd.all_reduce:op-avg \
  --plant mutant:vocab_parallel_cross_entropy.fwd.max:duplicate --cases 16 --seed 5 --max-ranks 4 --json
is_json '[m["fate"] for m in j["mutants"]["searches"]]' "['silent', 'equivalent']"
run 2 power --backend mpi --cases 1
run 3 fuzz --launcher 'false {n}' --cases 5 --seed 5 --out "$work/none"
check "a launcher that brings no ranks is told" grep -q 'the launcher did not start 8 ranks' "$work/stderr"
check "no rank is left" none_left
# Nobody waits for a launcher that takes its time once the campaign is interrupted.
"$SHARDFUZZ" fuzz --launcher "sh -c 'touch $work/launching; sleep 1000' {n}" --cases 5 --seed 5 --out "$work/slow" >"$work/stdout" 2>"$work/stderr" &
campaign=$!
check "the launcher is under way" within 100 test -e "$work/launching"
kill -TERM "$campaign" # bash lets what it starts behind its back ignore an interrupt
is_over() { ! kill -0 "$campaign" 2>/dev/null; }
check "it ends soon" within 100 is_over
ended=0
wait "$campaign" 2>/dev/null || ended=$?
check "as a signal ends it" [ "$ended" -eq 143 ]
check "it says how to go on" grep -q "^interrupted; go on with " "$work/stdout"
check "no rank is left" none_left
# A set's folder is there while its ranks start: one of another program's goes within seconds.
folders=$(find /tmp -maxdepth 1 -name 'shardfuzz-??????' -newer "$work/clean.sqlite" 2>/dev/null)
for _ in $(seq 100); do
  folders=$(for folder in $folders; do if [ -e "$folder" ]; then echo "$folder"; fi; done)
  [ -n "$folders" ] || break
  sleep 0.1
done
check "no folder is left" [ -z "$folders" ]
finish
