#!/usr/bin/env bash
# Workers that drive a framework (targets/worker.md): what a good one shows is judged; whatever a bad one does is recorded with its case, the next case
# runs on a fresh set, and no process and no file is left.
source tests/integration/common.bash
source tests/integration/mpi.bash

# Whatever is started inherits a mark by which it is found again.
real=$SHARDFUZZ
printf '#!/bin/sh\nSHARDFUZZ_TEST_MARK=%s exec %s "$@"\n' "$work" "$real" >"$work/shardfuzz"
chmod +x "$work/shardfuzz"
SHARDFUZZ=$work/shardfuzz
left() { grep -lsz -- "^SHARDFUZZ_TEST_MARK=$work\$" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3; }
nothing_left() {
  for _ in $(seq 40); do
    if [ -z "$(left)" ]; then return 0; fi
    sleep 0.1
  done
  ps -o pid,ppid,stat,args -p "$(left | paste -sd,)" >&2
  return 1
}
mkdir "$work/memory"
memory_is_empty() { [ -z "$(ls -A "$work/memory")" ]; }
sample="python3 -S targets/samples/worker_mlp.py" # -S: as in common.bash
faulty="python3 -S tests/integration/faulty_worker.py"
sample_c=$build/worker_mlp
good='{"ranks": 2}'
# EXPECTED_EXIT WORKER CASE...: runs the cases; the record is fresh
run_cases() {
  local expected=$1 worker=$2
  shift 2
  printf '%s\n' "$@" >"$work/cases.jsonl"
  rm -f "$work/record"
  run "$expected" worker "$worker" "$work/cases.jsonl" --record "$work/record" --memory "$work/memory" --deadline 1s --json
  check "no process is left of: $*" nothing_left
  check "no file is left of: $*" memory_is_empty
}
recorded() { # LINE EXPRESSION VALUE: the expression is on r, the record of that case
  local seen
  checks=$((checks + 1))
  seen=$(sed -n "$1p" "$work/record" | python3 -c "import json, sys; r = json.loads(sys.stdin.read()); print($2)" 2>&1)
  [ "$seen" = "$3" ] || fail "record $1: $2 is '$seen', expected '$3': $(sed -n "$1p" "$work/record" | head -c 700)"
}

# --- what a good worker shows is judged ------------------------------------------------------------------------
for worker in "$sample" "$sample_c"; do
  over=tp # the worker in C names no groups
  if [ "$worker" = "$sample_c" ]; then over="the ranks"; fi
  partial="rank 0 holds a partial sum over $over: the shards summed over $over give the reference: a missing all-reduce; this explains the whole error up to rounding"
  run_cases 1 "$worker" '{"ranks": 2, "tokens": 4}' '{"ranks": 2, "tokens": 4, "bug": "no-reduce"}' '{"ranks": 4, "hidden": 16, "seed": 3}' '{}'
  is_json '[j["cases"], j["passed"], j["findings"], j["ended_early"]]' '[4, 3, 1, 0]'
  recorded 2 '[r["verdict"], r["first"], r["run"], r["case"]["hidden"]]' "['FINDING', 's0/mb0/fwd/act/mlp.fc2/0', '', 8]"
  recorded 1 '[r["verdict"], r["judged"], r["not_judged"]]' "['PASS', 2, 0]"
  recorded 2 '[r["diagnosis"]["class"], r["diagnosis"]["text"], 0 <= r["diagnosis"]["left"] < 4]' "['missing_reduction', '$partial', True]"
  recorded 1 '[r["diagnosis"]]' "[None]"
  check "the table names the finding" grep -q "^case 1  FINDING .* s0/mb0/fwd/act/mlp.fc2/0 .*; missing_reduction: $partial " "$work/stderr"
done
run_cases 0 "$sample" '{"ranks": 4, "hidden": 24}' '{"ranks": 2}'
recorded 1 '[r["verdict"], r["reason"]]' "['SKIP', '6 columns on each of 4 ranks are not a whole number of quads']"
is_json '"reason" in j' False
# Cases as a campaign has them, with the seed of the case.
"$SHARDFUZZ" fuzz --target "worker:$sample" --dry-run --cases 3 --seed 5 --set bug=none >"$work/listed.jsonl" 2>/dev/null
run_cases 0 "$sample" "$(cat "$work/listed.jsonl")"
is_json '[j["cases"], j["passed"]]' '[3, 3]'
recorded 1 'r["case"]["seed"]' "$(head -n 1 "$work/listed.jsonl" | python3 -c 'import json, sys; print(json.load(sys.stdin)["seed"] % 1001)')"
# Nothing was judged, which is no success.
run_cases 3 "$sample" '{"ranks": 4, "hidden": 24}'
is_json 'j["skipped"], j["reason"]' "(1, 'nothing was judged: 0 inconclusive, 1 skipped (last: 6 columns on each of 4 ranks are not a whole number of quads)')"
check "and it says so" grep -q '^shardfuzz: nothing was judged: 0 inconclusive, 1 skipped (last: 6 columns' "$work/stderr"
# A reference that is given the candidate's tensors shows the wrong module alone; otherwise what follows from it is wrong too.
wrong="python3 -S tests/integration/frameworks/anchored_worker.py"
for manner in anchored whole deaf; do
  run_cases 1 "$wrong $manner" '{"ranks": 2, "tokens": 4}' '{"tokens": 4}'
  recorded 1 '[r["verdict"], r["class"], r["first"]]' "['FINDING', 'tolerance', 's0/mb0/fwd/act/mlp.fc1/0']"
  recorded 2 '[r["verdict"]]' "['PASS']"
  run 1 worker "$wrong $manner" --traces "$work/$manner" --json <<<'{"ranks": 2, "tokens": 4}'
  run 1 check "$work/$manner/case-00000/reference" "$work/$manner/case-00000/candidate"
  check "$manner: how many are wrong" grep -q "^findings     $([ $manner = anchored ] && echo 1 || echo 2) in this trace" "$work/stdout"
done
run_cases 0 "$wrong turns" '{"ranks": 2, "tokens": 4}'
recorded 1 '[r["verdict"]]' "['PASS']"
run 1 check "$work/anchored/case-00000/reference" "$work/anchored/case-00000/candidate"
check "and of what the reference was made" grep -q '^candidate .*(2 ranks, e2e, the reference was given its tensors)$' "$work/stdout"
# Cases on stdin; traces that stay are judged alike by the commands for them.
run 1 worker "$sample_c" --traces "$work/traces" --json <<<'{"ranks": 2, "seed": 7}{"ranks": 2, "seed": 7, "bug": "no-reduce"}'
check "the reference of both cases is one" [ ! -e "$work/traces/case-00001/reference" ]
run 0 check "$work/traces/case-00000/reference" "$work/traces/case-00000/candidate"
run 1 check "$work/traces/case-00000/reference" "$work/traces/case-00001/candidate"
run 0 worker "$sample" --describe
check "the description is JSON" python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["name"] == "sample-mlp"' "$work/stdout"

run 0 list features --target "worker:$sample"
check "fields and their choices" grep -qE '^ranks +1 2 4$' "$work/stdout"
check "what is refused" grep -q '^refused: 6 columns' "$work/stdout"
run 1 fuzz --target "worker:$sample" --cases 8 --set bug=no-reduce --set ranks=2 --jobs 1 --shrink-budget 4 --out "$work/campaign" --json
is_json 'j["cases"], j["findings"], j["signatures"]' '(8, 8, 1)'

# --- faults: recorded with the case and why, and the cases between them are judged -----------------------------------
# FAULT WHERE RUN VERDICT CLASS, and what the record's line holds. A fault in the reference or a draw has a seed of its own: references are kept.
# Of a rank that is gone and one that misses it either may be seen first.
faults=$work/faults
cat >"$faults" <<'FAULTS'
stdout -1 candidate PASS - "reason":""
silent 1 candidate FINDING hang 2 of 2 ranks did not answer and one of them said nothing for 1 s
silent-once 1 candidate FINDING flaky hung once .2 of 2 ranks did not answer.*, then: PASS
silent 0 reference FINDING hang 1 of 1 ranks did not answer
slow -1 candidate PASS - "reason":""
other-id 0 candidate FINDING protocol rank 0 answered request [0-9]+ while [0-9]+ was asked
garbage 1 candidate FINDING protocol what rank 1 said is no JSON:
no-object 1 candidate FINDING protocol what rank 1 said is no JSON object
empty 0 candidate FINDING protocol the answer of rank 0 has none of
endless 1 candidate FINDING protocol a line of more than 1048576 bytes
twice 0 candidate FINDING protocol rank 0 answered twice
fill 1 candidate INCONCLUSIVE space no room for the trace
fill 0 reference INCONCLUSIVE space no room for the trace
unusable 1 candidate INCONCLUSIVE - the machine failed the ranks: the service of GPU 0 is gone
unusable 0 reference INCONCLUSIVE - the machine failed the ranks: the service of GPU 0 is gone
crash 1 candidate FINDING crash rank 1 is about to fall
crash 0 draw FINDING crash "run":"draw 0"
exit 1 candidate FINDING crash rank 1 died|2 ranks were gone at once|rank 0 failed and the set ended: EOFError
child 1 candidate FINDING crash rank 1 died|2 ranks were gone at once|rank 0 failed and the set ended: EOFError
raise -1 candidate FINDING crash "reason":"ValueError: this configuration is wrong".*line [0-9]+, in run
late-words -1 candidate FINDING crash "output":"in run.nLateError: told late
one-sided 1 candidate FINDING crash rank 1 failed and 1 others did not answer: RuntimeError: only rank 1 sees this
one-sided-exit 0 candidate FINDING crash RuntimeError: only rank 0 sees this
refuse -1 candidate SKIP - not today
refuse-last -1 candidate SKIP - not today
disagree 1 candidate FINDING crash rank 1 failed and 1 others did not answer: not today
truncate 1 candidate FINDING protocol rank-00001
no-file 0 candidate FINDING protocol "run":"candidate"
loop 1 candidate FINDING protocol "reason":"candidate/rank-00001.safetensors: cannot open: Too many levels
loop 0 reference FINDING protocol "reason":"reference/rank-00000.safetensors: cannot open: Too many levels
socket 0 draw FINDING protocol "reason":"draw-0/rank-00000.safetensors: cannot open: No such device
fifo 1 candidate FINDING protocol candidate/rank-00001.safetensors: not a regular file
directory 0 candidate FINDING protocol candidate/rank-00000.safetensors: not a regular file
no-folder 0 reference FINDING protocol "reason":"reference: the worker removed the folder of its trace
other-folder 0 draw FINDING protocol "reason":"draw-0: the worker removed the folder of its trace
closed-folder 0 candidate PASS - "reason":""
no-work-folder 0 reference FINDING protocol "reason":"reference: the worker removed the folder of its trace
no-reference 0 candidate FINDING protocol "reason":"reference/rank-00000.safetensors: no such file
nan -1 candidate FINDING nonfinite mlp.fc2
nan 1 candidate FINDING conflict replicas on ranks 0 and 1 differ
FAULTS
if [ "$(id -u)" -ne 0 ]; then echo 'forbidden 1 candidate FINDING protocol candidate/rank-00001.safetensors: cannot open: Permission denied' >>"$faults"; fi
lines=("$good") number=0
while read -r name where when _; do
  number=$((number + 1))
  seed=0
  if [ "$when" != candidate ]; then seed=$number; fi
  lines+=("{\"ranks\": 2, \"fault\": \"$name\", \"where\": $where, \"run\": \"$when\", \"seed\": $seed}" "$good")
done <"$faults"
run_cases 1 "$faulty" "${lines[@]}"
check "what workers print is not ours" [ "$(wc -l <"$work/stdout")" -eq 1 ]
is_json 'j["cases"]' $((2 * number + 1))
recorded 1 'r["verdict"]' PASS
line=0
while read -r name where when verdict class pattern; do
  line=$((line + 2))
  if [ "$class" = - ]; then class=''; fi
  recorded $line '[r["verdict"], r["class"], r["case"]["fault"]]' "['$verdict', '$class', '$name']"
  recorded $((line + 1)) 'r["verdict"]' PASS
  checks=$((checks + 1))
  sed -n ${line}p "$work/record" | grep -qE -- "$pattern" || fail "$name: no '$pattern' in $(sed -n ${line}p "$work/record")"
done <"$faults"
# The set goes on after fill, raise, refuse and what is wrong in files alone.
is_json 'j["ended_early"]' 21
# What is said between two requests is not blamed on the second: it gets a fresh set. (The slow reference leaves the time to say it.)
run_cases 0 "$faulty" '{"ranks": 2, "fault": "late", "where": 0}' '{"ranks": 2, "fault": "slow", "run": "reference", "seed": 9}'
is_json '[j["passed"], j["ended_early"]]' '[2, 1]'
# What passes by a third of the draws, or fails by so much that the others could not change it, needs no more of them. Kept traces have all.
printf '%s\n' '{"ranks": 2, "fault": "raise", "run": "draw 8"}' '{"ranks": 2, "fault": "raise", "run": "draw 8", "bug": "no-reduce"}' '{"ranks": 2, "bug": "no-reduce"}' \
  '{"ranks": 2, "fault": "raise", "run": "draw 8"}' >"$work/cases.jsonl"
run 1 worker "$faulty" "$work/cases.jsonl" --draws 9 --record "$work/record9" --memory "$work/memory" --json
is_json '[j["passed"], j["findings"]]' '[2, 2]'
check "the verdict does not wait for the last draw" [ "$(grep -c '"bug":"no-reduce".*"class":"conflict"' "$work/record9")" = 2 ]
run 1 worker "$faulty" "$work/cases.jsonl" --draws 9 --record "$work/record-kept" --memory "$work/memory" --traces "$work/kept" --json
check "the last draw is run where its trace is kept" [ "$(grep -c '"fault":"raise".*"class":"crash","run":"draw 8"' "$work/record-kept")" = 2 ]
# Draws that nothing has perturbed pass nothing but what is right by the floors alone.
run_cases 1 "$faulty" '{"ranks": 2, "fault": "unperturbed", "run": "draw", "bug": "no-reduce"}'
recorded 1 '[r["class"], "has the same values as the reference" in r["reason"]]' "['protocol', True]"
# Signs of life do not help for ever: ten deadlines.
printf '%s\n' '{"ranks": 1, "fault": "alive", "where": 0}' >"$work/cases.jsonl"
run 1 worker "$faulty" "$work/cases.jsonl" --deadline 300ms --memory "$work/memory" --json
check "a rank that only lives hangs" grep -q 'did not answer within 3 s, though they gave signs of life' "$work/stderr"

# A memory that fills up, by traces and by noise levels, where this machine lets us make one: an answer, not a signal.
mkdir "$work/small"
if unshare -m mount -t tmpfs none "$work/small" 2>/dev/null; then
  printf '%s\n' '{"ranks": 1, "hidden": 32, "tokens": 8}' >"$work/cases.jsonl"
  for size in "8k $sample_c" "16k $sample_c" "8k $faulty" "16k $faulty"; do
    worker=${size#* }
    seen=0
    unshare -m sh -c "mount -t tmpfs -o size=${size%% *} none '$work/small' && exec '$SHARDFUZZ' worker '$worker' '$work/cases.jsonl' --draws 9 --memory '$work/small' --json" \
      >"$work/stdout" 2>"$work/stderr" || seen=$?
    check "a full memory is no crash of ours, and nothing was judged: $(cat "$work/stderr")" [ $seen -eq 3 ]
    is_json '[j["inconclusive"], j["ended_early"]]' '[1, 0]'
    check "a full memory is told: $size" grep -q 'INCONCLUSIVE  space .*No space left' "$work/stderr"
  done
fi

# --- sets that do not start -------------------------------------------------------------------------------------
run 3 worker "$faulty import" "$work/cases.jsonl" --record "$work/record2" --memory "$work/memory"
check "death at import is told" grep -q '^shardfuzz: the worker does not describe itself: the launcher ended' "$work/stderr"
check "its last words are shown" grep -q '    | ImportError: no module named nonsense' "$work/stderr"
check "nothing is recorded" [ ! -e "$work/record2" ]
check "nothing is left of it" nothing_left
run_cases 1 "$faulty import-one" '{"ranks": 2}' '{}'
recorded 1 '[r["verdict"], r["class"], "ImportError: no module named nonsense" in r["output"]]' "['FINDING', 'crash', True]"
recorded 2 'r["verdict"]' PASS
is_json 'j["ended_early"]' 2
run_cases 3 "$faulty import-one" "$good" "$good" "$good" "$good"
check "after three such cases it ends" grep -q 'the ranks of three cases in a row did not start' "$work/stderr"
check "all three are recorded" [ "$(wc -l <"$work/record")" -eq 3 ]
printf '%s\n' "$good" >"$work/cases.jsonl"
run 1 worker "$faulty sleep" "$work/cases.jsonl" --start 2s --memory "$work/memory"
check "ranks that never say hello are told" grep -q 'ranks did not say hello within 2 s' "$work/stdout"
for hello in '{"hello": 2}' '{"rank": 5}' '{"ranks": 3}' '{"rank": "x"}'; do
  run 3 worker "$faulty '$hello'" "$work/cases.jsonl" --memory "$work/memory"
  check "a wrong hello is told: $hello" grep -qE 'shardfuzz: the worker does not describe itself: (a rank speaks|rank [0-9]+ of|the first line)' "$work/stderr"
done
run 3 worker "true" "$work/cases.jsonl" --memory "$work/memory"
check "nothing is left" nothing_left
check "memory is empty" memory_is_empty

# --- ends: our own, by any signal -------------------------------------------------------------------------------
for signal in INT KILL; do
  printf '%s\n' '{"ranks": 2, "fault": "silent", "where": 1}' "$good" >"$work/cases.jsonl"
  rm -f "$work/record"
  "$SHARDFUZZ" worker "$faulty" "$work/cases.jsonl" --record "$work/record" --memory "$work/memory" --deadline 60s >"$work/stdout" 2>"$work/stderr" &
  pid=$!
  for _ in $(seq 100); do if [ "$(find "$work/memory" -name candidate | wc -l)" -eq 1 ]; then break; fi; sleep 0.1; done
  sleep 0.3
  check "it is under way" [ "$(left | wc -l)" -ge 5 ]
  kill -s "$signal" "$pid"
  wait "$pid" 2>/dev/null
  check "no process is left after SIG$signal" nothing_left
  check "no file is left after SIG$signal" memory_is_empty
done

# --- wrong input: exit 2, one line ------------------------------------------------------------------------------
bad() { # WORD CASES [OPTION...]
  local word=$1
  printf '%s' "$2" >"$work/cases.jsonl"
  shift 2
  run 2 worker "$sample" "$work/cases.jsonl" --record "$work/none" --memory "$work/memory" "$@"
  check "one line with '$word': $(cat "$work/stderr")" grep -qF -- "$word" "$work/stderr"
  check "one line only" [ "$(wc -l <"$work/stderr")" -eq 1 ]
  check "nothing is recorded" [ ! -e "$work/none" ]
}
bad 'case 1: ranks: 3 is none of [1,2,4]' '{} {"ranks": 3}'
bad 'case 0: tokens: 9 is not one of 1, 2, .. 8' '{"tokens": 9}'
bad 'case 0: hidden: 12 is not one of 8, 16, .. 32' '{"hidden": 12}'
bad 'case 0: hiden: no such field' '{"hiden": 8}'
bad 'case 0: a saved case: schema: 2 is not 1' '{"schema": 2, "framework": {}}'
bad 'case 0: hiden: no such field' '{"schema": 1, "target": {"name": "sample-mlp"}, "framework": {"hiden": 8}}'
bad 'case 0: bug: 1 is none of' '{"bug": 1}'
bad 'case 0: a case is a JSON object' '[1]'
bad 'case 1:' '{}{"ranks": 2'
bad 'case 0: duplicate object key' '{"ranks": 1, "ranks": 2}'
bad 'no folder for traces: /nowhere: ' '{}' --memory /nowhere
bad "$work/cases.jsonl/x" '{}' --traces "$work/cases.jsonl/x"
run 2 worker "$sample" "$work/missing.jsonl" --memory "$work/memory"
run 2 worker
finish
