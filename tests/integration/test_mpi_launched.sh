#!/usr/bin/env bash
# Rank sets that shardfuzz starts itself: clean cases pass, a crash, a hang, a deadlock and a mismatch are findings that are confirmed, shrunk
# and replayed while the campaign goes on, and the gate and the power search use such sets too.
source tests/integration/common.bash
source tests/integration/mpi.bash

run 0 fuzz --launcher "$launcher" --cases 60 --seed 5 --max-ranks 4 --out "$work/clean" --store "$work/clean.sqlite" --json
is_json 'j["cases"] == j["passed"] + j["inconclusive"] == 60 and j["passed"] >= 40' True
check "the store says how it was made" grep -q '^backend=mpi$' <(query "$work/clean.sqlite" "SELECT value FROM meta WHERE key = 'campaign'")

# The whole case on two ranks; a set that is alive but slow must not look like one that hangs, so only what waits for a deadline has a short one.
small=(--set layout.tp=2 --set layout.dp=1 --set layout.pp=1 --set model.layers=1 --set model.hidden=8..16)
for class in crash mismatch hang deadlock; do
  count=2 deadline=60s
  if [ $class = deadlock ]; then count=1 deadline=4s; fi
  if [ $class = hang ]; then count=1 deadline=1s; fi # confirmed with ten times the deadline
  options=(--launcher "$launcher" --cases $count --seed 5 --max-ranks 2 --plant "canary-$class" --deadline $deadline --shrink-budget 2 "${small[@]}")
  run 1 fuzz "${options[@]}" --set train.steps=1 --layouts 1 --out "$work/$class" --store "$work/$class.sqlite" --json
  is_json "j['cases'] == j['findings'] == $count and j['flaky'] == 0" True
  seen=$(query "$work/$class.sqlite" "SELECT DISTINCT class, rank >= 0, label != '' FROM verdict")
  check "every case is a $class with rank and label" [ "$seen" = "$class|1|1" ]
  min=$(find "$work/$class" -name min.json | head -n 1)
  check "a $class is shrunk" [ -n "$min" ]
  run 1 replay "$min" --launcher "$launcher" --deadline $deadline --json
  is_json 'j["signature"]' "$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["expect"]["signature"])' "$min")"
done

# A clean case still passes on a set larger than itself, after all that.
mkdir "$work/corpus"
python3 -c 'import json, sys
case = json.load(open(sys.argv[1]))
del case["plant"], case["expect"]
json.dump(case, open(sys.argv[2], "w"))' "$work/crash/"*/case.json "$work/corpus/clean.json"
run 0 gate --launcher "$launcher" --corpus "$work/corpus" --cases 10 --seed 5 --max-ranks 4 --out "$work/gate" --json
# Covering cases have experts, whose routing may be a tie.
is_json '[j["passed"], j["corpus"], j["campaign"]["passed"] + j["campaign"]["inconclusive"], j["campaign"]["passed"] >= 5]' '[True, 1, 10, True]'
run 0 power --launcher "$launcher" --plant rowparallel-bias-xtp --cases 60 --clean 5 --seed 5 --max-ranks 4 --shrink-budget 60 --json
# Mutants act on every rank's communicator: found, and proven equivalent by what all ranks received.
run 0 power --launcher "$launcher" --plant mutant:row_parallel_linear.fwd.all_reduce:op-avg \
  --plant mutant:vocab_parallel_cross_entropy.fwd.max:duplicate --cases 16 --seed 5 --max-ranks 4 --json
is_json '[m["fate"] for m in j["mutants"]["searches"]]' "['silent', 'equivalent']"
run 2 power --backend mpi --cases 1
run 3 fuzz --launcher 'false {n}' --cases 5 --seed 5 --out "$work/none"
check "a launcher that brings no ranks is told" grep -q 'the launcher did not bring 8 ranks' "$work/stderr"
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
