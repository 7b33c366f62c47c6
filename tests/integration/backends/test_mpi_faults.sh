#!/usr/bin/env bash
# Cases whose ranks crash, hang, wait for each other or make different calls. Rank sets that shardfuzz starts itself: findings that are confirmed, shrunk and
# replayed while the campaign goes on. Inside mpirun: such a case ends the job, is told once and recorded by --resume. Beside other tests what is slow
# must not look like what waits: deadlines are long but for cases that wait for theirs.
source tests/integration/common.bash
source tests/integration/mpi.bash

# The whole case on two ranks; a set that is alive but slow must not look like one that hangs, so only what waits for a deadline has a short one.
small=(--set layout.tp=2 --set layout.dp=1 --set layout.pp=1 --set model.layers=1 --set model.hidden=8..16)
for class in crash mismatch hang deadlock; do
  count=1 deadline=60s budget=1
  case $class in
  crash) count=2 budget=2 ;; # the campaign goes on; what waits for its deadline does so in each of its runs
  deadlock) deadline=4s ;;
  hang) deadline=1s ;; # confirmed with ten times the deadline
  esac
  options=(--launcher "$launcher" --cases $count --seed 5 --max-ranks 2 --plant "canary-$class" --deadline $deadline --shrink-budget $budget "${small[@]}")
  run 1 fuzz "${options[@]}" --set train.steps=1 --layouts 1 --out "$work/$class" --store "$work/$class.sqlite" --json
  is_json "j['cases'] == j['findings'] == $count and j['flaky'] == 0" True
  seen=$(query "$work/$class.sqlite" "SELECT DISTINCT class, rank >= 0, label != '' FROM verdict")
  check "every case is a $class with rank and label" [ "$seen" = "$class|1|1" ]
  min=$(find "$work/$class" -name min.json | head -n 1)
  check "a $class is shrunk" [ -n "$min" ]
  run 1 replay "$min" --launcher "$launcher" --deadline $deadline --json
  is_json 'j["signature"]' "$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["expect"]["signature"])' "$min")"
done

# Inside mpirun they end the job.
for class in crash mismatch hang deadlock; do
  options=(--backend mpi --seed 5 --max-ranks 4 --plant "canary-$class" --set layout.tp=2 --out "$work/inside" --store "$work/inside-$class.sqlite" --resume)
  indices="0 1"
  # What is slow must not look like them; the second wait would show nothing new.
  case $class in hang | deadlock) indices=0 options+=(--cases 1 --deadline 3s) ;; *) options+=(--cases 3) ;; esac
  for index in $indices; do
    job 4 fuzz "${options[@]}"
    check "a $class ends the job with a failure" [ $seen -ne 0 ]
    check "a $class is told once" [ "$(grep -c "^shardfuzz: case $index: .*--resume" "$work/stderr")" -eq 1 ]
  done
  if [ "$indices" = 0 ]; then
    job 4 fuzz "${options[@]}"
    check "after the $class --resume has nothing left to do" [ $seen -eq 1 ]
  fi
  seen=$(query "$work/inside-$class.sqlite" "SELECT idx, verdict, class, rank >= 0, label != '' FROM verdict")
  check "--resume recorded the $class" [ "$seen" = "0|FINDING|$class|1|1" ]
done
check "no rank is left" none_left
finish
