#!/usr/bin/env bash
# Campaigns over a framework that a worker drives: cases drawn from what it says of itself, findings shrunk, replayed, known and gated like those of the
# built-in layers, and no process left behind.
source tests/integration/common.bash

# What needs a real launcher stands in test_worker.sh.
launch=(--launcher "$PWD/tests/integration/launch_ranks.sh {n}")
sample="worker:python3 -S targets/samples/worker_mlp.py" # -S: as in common.bash
faulty="worker:python3 -S tests/integration/faulty_worker.py"
some() { [ -e "$1" ]; }
marked() { grep -lsz -- "^SHARDFUZZ_TEST_MARK=$work\$" /proc/[0-9]*/environ 2>/dev/null; }
none_marked() { [ -z "$(marked)" ]; }
export SHARDFUZZ_TEST_MARK=$work
unmarked() { env -u SHARDFUZZ_TEST_MARK "$@"; }

partial="rank 0 holds a partial sum over tp: the shards summed over tp give the reference: a missing all-reduce; this explains the whole error up to rounding"

run 0 list targets
check "frameworks are targets" grep -q '^megatron-core ' "$work/stdout"

# --- found, shrunk, replayed -----------------------------------------------------------------------------------------
run 1 fuzz --target "$sample" --cases 24 --seed 3 --jobs 1 --out "$work/one" --store "$work/one.sqlite" --json "${launch[@]}"
is_json 'j["cases"], j["signatures"], j["crashed"]' '(24, 1, 0)'
found=$work/one/conflict-act-mlp.fc2@dp
is_json '[(s["signature"], s["count"] == j["findings"], s["diagnosis"]["class"], s["min"]) for s in j["by_signature"]]' "[('conflict/act/mlp.fc2@dp', True, 'missing_reduction', '$found/min.json')]"
check "the summary says what it looks like" grep -qx "    diagnosis: missing_reduction: $partial" "$work/stderr"
is_json '[s["contrast"]["why"] for s in j["by_signature"]]' "['fails only with ranks not 1 and bug=\"no-reduce\"; any seed; 2 other fields make no difference']"
check "the smallest case is written" grep -qF '"bug": "no-reduce"' "$found/min.json"
check "two ranks are enough" grep -qF '"ranks": 2' "$found/min.json"
check "nothing else is needed" [ "$(python3 -c 'import json, sys; print(len(json.load(open(sys.argv[1]))["framework"]))' "$found/min.json")" = 2 ]
check "the report names the tensor" grep -qx 'first        s0/mb0/fwd/act/mlp.fc2/0' "$found/report.txt"
check "it names the worker that was run" grep -qxF "target       $sample" "$found/report.txt"
# Two modules with the same mistake: the smallest case of the first explains the second, which takes its contrast.
run 1 fuzz --target "worker:python3 -S tests/integration/frameworks/two_wrong_worker.py" --cases 4 --jobs 1 --set bug=no-reduce --set ranks=2 --out "$work/both" --json "${launch[@]}"
is_json '[s["signature"] for s in j["by_signature"]]' "['conflict/act/mlp.fc2@dp', 'conflict/act/mlp.fc3@dp']"
is_json 'len({json.dumps(s["contrast"]) for s in j["by_signature"]}), j["by_signature"][1]["contrast"]["trials"] > 0' '(1, True)'
check "the second is not shrunk" grep -qx 'shrunk       not by itself: the smallest case of another finding explains it' "$work/both/conflict-act-mlp.fc3@dp/report.txt"
line=$(sed -n 's/^replay       //p' "$found/report.txt")
check "its command works in another folder: $line" grep -q '^expected .*: yes$' <(cd / && bash -c "$line" 2>&1)
run 1 fuzz --target "$sample" --cases 24 --seed 3 --jobs 2 --out "$work/two" --store "$work/two.sqlite" "${launch[@]}"
rows='SELECT idx, verdict, signature FROM verdict ORDER BY idx'
check "verdicts do not depend on the number of jobs" [ "$(query "$work/one.sqlite" "$rows")" = "$(query "$work/two.sqlite" "$rows")" ]
run 1 fuzz --target "$sample" --cases 30 --seed 3 --store "$work/one.sqlite" --resume --out "$work/one" --json "${launch[@]}"
is_json 'j["cases"]' 30
check "all cases have all the time, and this run's have its own" grep -qE '^30 cases in [0-9.]+ s \([0-9.]+/s\), 6 of them now in ' "$work/stderr"
run 2 fuzz --target "$sample" --cases 30 --seed 3 --store "$work/one.sqlite" --resume --out "$work/one" --set bug=none "${launch[@]}"
run 0 fuzz --target "$sample" --cases 24 --seed 3 --dry-run --out "$work/none" "${launch[@]}"
check "a dry run prints each case" [ "$(grep -c '^{"schema": 1,.*"framework": {.*}}$' "$work/stdout")" = 24 ]
check "a dry run writes nothing" [ ! -e "$work/none" ]
check "a dry run prints the cases that a campaign runs" [ "$(query "$work/one.sqlite" 'SELECT min(idx) FROM verdict WHERE verdict = '"'FINDING'")" = "$(($(grep -n -m 1 'no-reduce' "$work/stdout" | cut -d: -f1) - 1))" ]
check "the report says what it looks like" grep -qx "diagnosis    missing_reduction: $partial" "$found/report.txt"
run 1 replay "$found/case.json" --target "$sample" --json "${launch[@]}"
is_json '[j["diagnosis"]["class"], j["diagnosis"]["text"], sorted(j["diagnosis"])]' "['missing_reduction', '$partial', ['cause', 'class', 'left', 'operation', 'text']]"
is_json '[j["numbers"]["worst"]["rank"] >= 0, j["numbers"]["elements"]["wrong"] > 0, j["numbers"]["norm"] > 0]' '[True, True, True]'
check "as expected" grep -q '^expected .*: yes$' "$work/stderr"
run 1 shrink "$found/case.json" --target "$sample" -o "$work/again.json" "${launch[@]}"
check "shrink comes to the same case" cmp "$work/again.json" "$found/min.json"
run 0 describe "$found/min.json"
run 0 fuzz --target "$sample" --cases 12 --set bug=none --set ranks=2 --out "$work/clean" --json "${launch[@]}"
is_json 'j["passed"]' 12

# A worker that can note operations is asked for those behind the first wrong tensor; what it says is in the report, and what it cannot say is not.
noting="worker:python3 -S tests/integration/frameworks/anchored_worker.py"
run 1 fuzz --target "$noting notes" --cases 3 --set ranks=2 --set bug=none --out "$work/noted" --annotations "$work/noted.txt" --json "${launch[@]}"
is_json '{s["diagnosis"]["operation"] for s in j["by_signature"]}' "{'rank 1 of 2 has s0/mb0/fwd/act/mlp.fc1/0'}"
check "and the summary" grep -qx '    operation: rank 1 of 2 has s0/mb0/fwd/act/mlp.fc1/0' "$work/stderr"
check "and the annotation" grep -q '; diagnosis: part: only rank 1 is wrong; operation: rank 1 of 2 has s0/mb0/fwd/act/mlp.fc1/0' "$work/noted.txt"
check "the report has the operation" grep -qx 'operation    rank 1 of 2 has s0/mb0/fwd/act/mlp.fc1/0' "$work"/noted/*/report.txt
for manner in raises answers-otherwise; do
  run 1 fuzz --target "$noting $manner" --cases 3 --set ranks=2 --set bug=none --out "$work/$manner" --json "${launch[@]}"
  is_json '[(s["signature"], s["diagnosis"]["operation"]) for s in j["by_signature"]]' "[('tolerance/act/mlp.fc1@dp', '')]"
  check "$manner: the report has none" [ -z "$(grep -h "^operation" "$work/$manner"/*/report.txt)" ]
done

# A worker that does not start in one of the campaign's processes is that case's bad luck; at the start it ends the campaign.
cat >"$work/starts.sh" <<STARTS
n=\$(ls "$work" | grep -c '^start-')
: >"$work/start-\$n"
case \$n in [\$FAILING]) echo "no luck"; exit 1 ;; esac
exec python3 -S targets/samples/worker_mlp.py
STARTS
lucky() { rm -f "$work"/start-*; FAILING=$1 run "$2" fuzz --target "worker:sh $work/starts.sh" --cases 6 --jobs 1 --set bug=none --set ranks=1 --out "$work/lucky" --json "${launch[@]}"; }
lucky 12 0
is_json 'j["passed"], j["inconclusive"], j["findings"]' '(5, 1, 0)'
check "it says so" grep -q '^last inconclusive: the worker did not start again: the worker does not describe itself: .*; it printed: no luck' "$work/stderr"
lucky 01 3
check "in one line: $(cat "$work/stderr")" [ "$(grep -c '^shardfuzz: the worker does not describe itself: ' "$work/stderr")" -eq 1 ]

# --- known, gated ----------------------------------------------------------------------------------------------------
mkdir "$work/corpus"
cp "$found/min.json" "$work/corpus"
printf '[{"signature": "conflict/act/mlp.fc2@dp", "case": %s}]' "$(cat "$found/min.json")" >"$work/known.json"
run 0 gate --target "$sample" --corpus "$work/corpus" --known "$work/known.json" --seed 4 --cases 24 --out "$work/gate" --json "${launch[@]}"
is_json 'j["corpus"], j["corpus_failed"]' '(1, 0)'
run 1 gate --target "$sample" --seed 4 --cases 24 --out "$work/gate" "${launch[@]}"
check "new" grep -q '^new  *conflict/act/mlp.fc2@dp' "$work/stdout"
check "what it looks like" grep -qx " *missing_reduction: $partial" "$work/stdout"

# A framework that is imported: its checkout is under test, and what its base shows too is nobody's fault. A mended case of the corpus fails no gate.
cat >"$work/worker_toy.py" <<'PYTHON'
import os
import sys
sys.path.insert(0, "targets/samples")
import toy
import worker_mlp
from shardfuzz import worker
connections = worker_mlp.connect_ranks(os.environ["SHARDFUZZ_SOCKET"] + ".ranks") if worker_mlp.RANKS > 1 else []
fields = {key: value for key, value in worker_mlp.DESCRIBE["fields"].items() if key != "bug"}
worker.serve({"name": "toy", "draws": 2, "fields": fields}, lambda request, beat: worker.write_trace(
    request["out"], worker_mlp.step({**request["case"], "bug": toy.BUG}, request.get("draw", -1) + 1, connections)))
PYTHON
toy="worker:python3 -S $work/worker_toy.py"
mkdir "$work/wrong" "$work/right" "$work/toy_corpus"
echo 'BUG = "no-reduce"' >"$work/wrong/toy.py"
echo 'BUG = "none"' >"$work/right/toy.py"
toy_gate() { run "$1" gate --target "$toy" --cases 4 --seed 5 --shrink-budget 4 --out "$work/toy" "${launch[@]}" "${@:2}"; }
toy_gate 0 --framework-path "$work/right" --framework-base "$work/wrong"
toy_gate 1 --framework-path "$work/wrong" --framework-base "$work/right"
check "new against the base" grep -q '^new  *conflict/act/mlp.fc2@dp' "$work/stdout"
cp "$work/toy/conflict-act-mlp.fc2@dp/min.json" "$work/toy_corpus"
toy_gate 0 --framework-path "$work/wrong" --framework-base "$work/wrong" --corpus "$work/toy_corpus"
check "the base has it too" grep -q '^also in base  *conflict/act/mlp.fc2@dp' "$work/stdout"
toy_gate 0 --framework-path "$work/right" --corpus "$work/toy_corpus"
check "a mended bug is gone" grep -q '^gone .*min.json' "$work/stdout"

# --- every culprit of an isolated case is a finding of its own ----------------------------------------------------------
cat >"$work/worker_pair.py" <<'PYTHON'
import os
import sys
sys.path.insert(0, "targets/samples")
import worker_mlp
from shardfuzz import worker
connections = worker_mlp.connect_ranks(os.environ["SHARDFUZZ_SOCKET"] + ".ranks") if worker_mlp.RANKS > 1 else []
choices = {name: {"choices": ["right", "wrong"], "layout": True} for name in ("fc1", "fc2")}
fields = {key: value for key, value in worker_mlp.DESCRIBE["fields"].items() if key != "bug"}
def step(request, beat):
    case = request["case"]
    tensors = worker_mlp.step({**case, "bug": "none"}, request.get("draw", -1) + 1, connections)
    for name, (shape, index, values) in tensors.items():
        if request["run"] == "candidate" and case["mode"] == "isolated" and case[name.split(".")[1][:3]] == "wrong":
            values[:] = type(values)("f", [1.5 * v for v in values])
    worker.write_trace(request["out"], tensors, case["mode"])
worker.serve({"name": "pair", "draws": 2, "fields": {**fields, **choices, "mode": {"choices": ["e2e", "isolated"]}}}, step)
PYTHON
pair="worker:python3 -S $work/worker_pair.py"
echo '[{"signature": "tolerance/act/mlp.fc1@isolated"}]' >"$work/pair.known"
run 1 fuzz --target "$pair" --mode isolated --cases 16 --seed 4 --jobs 1 --known "$work/pair.known" --out "$work/pair" --store "$work/pair.sqlite" --json "${launch[@]}"
is_json 'sorted((s["signature"], s["known"], s["diagnosis"]["text"].split(",")[0]) for s in j["by_signature"])' \
  "[('tolerance/act/mlp.fc1@isolated', True, 'scaled by 1.5'), ('tolerance/act/mlp.fc2@isolated', False, 'scaled by 1.5')]"
both=$(query "$work/pair.sqlite" "SELECT count(*) FROM further WHERE signature = 'tolerance/act/mlp.fc2@isolated'")
check "some cases have both, and the first one hides none" [ "${both:-0}" -gt 0 ]
for wrong in fc1:fc2 fc2:fc1; do
  small=$work/pair/tolerance-act-mlp.${wrong%:*}@isolated/min.json
  check "the smallest case of ${wrong%:*} needs it" grep -qF "\"${wrong%:*}\": \"wrong\"" "$small"
  check "the smallest case of ${wrong%:*} needs nothing else" [ "$(grep -cF "\"${wrong#*:}\": \"wrong\"" "$small")" = 0 ]
done
sed 's/"fc2": "wrong"/"fc1": "wrong", "fc2": "wrong"/' "$work/pair/tolerance-act-mlp.fc2@isolated/min.json" >"$work/second.json"
run 1 replay "$work/second.json" --target "$pair" --json "${launch[@]}"
is_json 'j["signature"], j["as_expected"], [f["signature"] for f in j["further"]]' "('tolerance/act/mlp.fc2@isolated', True, ['tolerance/act/mlp.fc1@isolated'])"
run 1 fuzz --target "$pair" --mode isolated --cases 16 --seed 4 --jobs 2 --out "$work/pair2" --store "$work/pair2.sqlite" "${launch[@]}"
rows='SELECT idx, signature FROM verdict UNION ALL SELECT idx, signature FROM further ORDER BY 1, 2'
check "culprits do not depend on the number of jobs" [ "$(query "$work/pair.sqlite" "$rows")" = "$(query "$work/pair2.sqlite" "$rows")" ]

# --- loud failures are findings, and the campaign goes on --------------------------------------------------------------
for fault in crash:crash raise:crash silent:hang garbage:protocol loop:protocol; do
  case $fault in raise:* | silent:*) count=1 ;; *) count=2 ;; esac # each run of the former waits for ranks that say nothing
  run 1 fuzz --target "$faulty" --cases $count --set fault="${fault%:*}" --set where=1 --set run=candidate --set ranks=2 --set bug=none --deadline 1s --shrink-budget 1 --jobs 1 --out "$work/${fault%:*}" --json "${launch[@]}"
  is_json 'j["cases"], j["findings"], j["signatures"]' "($count, $count, 1)"
  check "the class of ${fault%:*}" some "$work/${fault%:*}/${fault#*:}"*@dp
done

# --- nothing temporary is left, whoever is killed ------------------------------------------------------------------------
folders() { grep -lsx -- "$work" /dev/shm/shardfuzz-??????/mark /tmp/shardfuzz-??????/mark | xargs -r dirname; } # where the worker left its mark
ownerless() { # those whose lock nobody holds
  for folder in $(folders); do
    if [ ! -e "$folder/.shardfuzz-lock" ] || flock -n "$folder/.shardfuzz-lock" true; then echo "$folder"; fi
  done
}
is_under_way() { # a reference run of a campaign whose reference runs never end
  for folder in $(folders); do
    if [ -d "$folder/reference" ]; then return 0; fi
  done
  return 1
}
no_folders() { [ -z "$(folders)" ]; }
are_gone() { # FOLDER...
  for folder in "$@"; do
    if [ -e "$folder" ]; then return 1; fi
  done
}
start_silent() {
  "$SHARDFUZZ" fuzz --target "$faulty" --cases 4 --jobs 2 --set fault=silent --set run=reference --set where=0 --deadline 60s --out "$work/silent" "${launch[@]}" >"$work/stdout" 2>"$work/stderr" &
  campaign=$!
  within 200 is_under_way || fail "the campaign is not under way: $(cat "$work/stderr")"
}
run 1 fuzz --target "$faulty" --cases 2 --jobs 2 --set fault=exit --set run=reference --set where=0 --shrink-budget 1 --out "$work/exit" "${launch[@]}"
check "no folder is left when sets have died" within 60 no_folders
start_silent
before=$(folders)
pkill -KILL -P "$campaign"
check "no folder is left of its processes that were killed: $before" within 100 are_gone $before
check "it goes on" within 200 is_under_way
before=$(folders)
kill -KILL "$campaign"
wait "$campaign" 2>/dev/null
check "no folder is left when it was killed: $before" within 100 are_gone $before
for attempt in 1 2 3; do # a campaign of another test removes such folders too, perhaps before they are seen here
  start_silent
  for _ in 1 2 3; do kill -KILL $(marked | cut -d/ -f3) 2>/dev/null; done # its keepers too
  wait "$campaign" 2>/dev/null
  unmarked bash -c "$(declare -f within none_marked marked); work='$work'; within 40 none_marked"
  if [ -n "$(ownerless)" ]; then break; fi
done
check "folders are left when their keepers are killed" [ -n "$(ownerless)" ]
run 0 fuzz --target "$sample" --cases 1 --set bug=none --set ranks=2 --jobs 1 --out "$work/swept" "${launch[@]}"
check "the next one removes what nobody owns" [ -z "$(ownerless)" ]

# --- bad input -------------------------------------------------------------------------------------------------------
error() { # EXPECTED_EXIT LINE ARGUMENT...
  local expected=$1 line=$2
  shift 2
  run "$expected" "$@" "${launch[@]}"
  check "'$line' is said" grep -qxF "shardfuzz: $line" "$work/stderr"
}
error 2 "bug: no is none of its choices" fuzz --target "$sample" --cases 1 --set bug=no
SHARDFUZZ_MEGATRON=/nowhere error 2 "--target megatron-core: /nowhere/bin/python is not there: run ci/frameworks.sh megatron-core first, or let SHARDFUZZ_MEGATRON name the folder that it made" fuzz --target megatron-core --cases 1
refuses "{n} is missing" fuzz --target "$sample" --cases 1 --launcher mpirun
refuses "{n} is missing" worker "${sample#worker:}" --launcher "mpirun -n 2"
refuses "{n} is missing" fuzz --cases 1 --launcher mpirun
refuses "/nowhere.so: No such file" list operations --target plugin:/nowhere.so
refuses "--target builtin has no operations" list operations --target builtin
error 2 "--dry-run needs --cases" fuzz --target "$sample" --dry-run
error 2 "hiden: no such field of sample-mlp; did you mean hidden?" fuzz --target "$sample" --cases 1 --set hiden=8
error 2 "what is fixed does not go together: the worker supports no such case on at most 2 ranks" fuzz --target "$sample" --cases 1 --set ranks=4 --max-ranks 2
error 2 "--preset: presets exist only for the built-in layers (--target builtin)" fuzz --target "$sample" --cases 1 --preset gpt2-small-tiny
error 2 "--plant: planted bugs exist only for the built-in layers (--target builtin)" fuzz --target "$sample" --cases 1 --plant tp-embed-mask
error 2 "--framework-path: /nowhere is not a folder" fuzz --target "$sample" --cases 1 --framework-path /nowhere
error 2 "--framework-base: /nowhere is not a folder" gate --target "$sample" --cases 1 --framework-base /nowhere
error 2 "--framework-base needs a framework as --target" gate --cases 1 --framework-base "$work"
error 2 "--base is for the built-in layers: --framework-base names the base of a framework" gate --target "$sample" --cases 1 --base "$SHARDFUZZ"
error 2 "--framework-path needs a framework as --target" fuzz --cases 1 --framework-path "$work"
error 2 "'sample-mlp' is a framework whose worker this program does not know: start it with --target 'worker:CMD'" replay "$found/min.json"
error 2 "--trace and --table are for the built-in layers; shardfuzz worker --traces keeps a framework's" replay "$found/min.json" --target "$sample" --table
run 3 fuzz --target worker:/nowhere/worker --cases 1 --out "$work/none" "${launch[@]}"
check "a worker that does not start" grep -q '^shardfuzz: the worker does not describe itself: the launcher ended.*; it printed: .*/nowhere/worker' "$work/stderr"
sed 's/"sample-mlp"/"another"/' "$found/min.json" >"$work/other.json"
error 2 "target.name: the case is one of another, the worker is sample-mlp" replay "$work/other.json" --target "$sample"

check "no process is left" unmarked bash -c "$(declare -f within none_marked marked); work='$work'; within 40 none_marked"
finish
