#!/usr/bin/env bash
# The gate passes on clean code, fails on what is new, and on nothing else; its reports are what CI systems read.
source tests/integration/common.bash

corpus=$work/corpus
mkdir "$corpus"
echo '{"schema": 1, "model": {"layers": 2, "heads": 2, "kv_heads": 2, "bias": true}, "layout": {"tp": 2}, "expect": {"verdict": "PASS"}}' >"$corpus/clean.json"
# The plant shows in every row-parallel linear layer with a bias; here there is one.
planted=(--plant rowparallel-bias-xtp --set layout.tp=2 --set model.bias=on --set model.memory_seq=0 --set moe.experts=2 --set moe.shared_ffn=0 --mode e2e)
run 1 fuzz --cases 12 --seed 2 --max-ranks 4 "${plain[@]}" "${planted[@]}" --out "$work/found"
cp "$work"/found/*/min.json "$corpus/bias.json"
signature=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["expect"]["signature"])' "$corpus/bias.json")
check "a signature" [ "$signature" = "tolerance/act/self_attention.linear_proj@tp+sp" ]

number=0
gate() { # EXPECTED_EXIT ARGUMENT...: with reports, which must be valid
  local expected=$1
  shift
  number=$((number + 1))
  run "$expected" gate --time 1h --cases 12 --max-ranks 4 "${plain[@]}" --seed 5 --out "$work/gate$number" --junit "$work/junit.xml" --summary "$work/summary.md" \
    --sarif "$work/gate.sarif" --annotations "$work/annotations.txt" --codequality "$work/codequality.json" --json "$@"
  check "JUnit is XML" xmllint --noout "$work/junit.xml"
  check "SARIF keeps its rules: $(python3 tests/integration/sarif.py "$work/gate.sarif" 2>&1 | head -n 3)" python3 tests/integration/sarif.py "$work/gate.sarif"
  check "annotations are commands" [ "$(grep -cvE '^::(notice|warning|error) file=[^:,]+,title=shardfuzz gate%3A [a-z ]+::.+$' "$work/annotations.txt")" -eq 0 ]
  check "all formats tell the same" python3 - "$work/gate.sarif" "$work/codequality.json" "$work/annotations.txt" <<'P'
import json
import sys
results = json.load(open(sys.argv[1]))["runs"][0]["results"]
issues = json.load(open(sys.argv[2]))
assert [one["message"]["text"] for one in results] == [one["description"] for one in issues]
assert len({one["fingerprint"] for one in issues}) == len(issues) == len(open(sys.argv[3]).read().splitlines())
P
  is_json 'j["passed"]' "$([ "$expected" -eq 0 ] && echo True || echo False)"
  check "the summary's heading" grep -qx "## shardfuzz gate: $([ "$expected" -eq 0 ] && echo passed || echo failed)" "$work/summary.md"
  check "the last line for people" [ "$(tail -n 1 "$work/stderr")" = "gate: $([ "$expected" -eq 0 ] && echo passed || echo FAILED)" ]
}
junit() { xmllint --xpath "$1" "$work/junit.xml" 2>/dev/null; } # XPATH

gate 0
is_json 'j["corpus"], j["campaign"]["cases"]' '(0, 12)'
gate 0 --corpus "$corpus"
is_json 'j["corpus"], j["corpus_failed"], j["items"]' '(2, 0, [])'
check "JUnit counts the corpus" [ "$(junit 'count(//testcase[@classname="corpus"])')" = 2 ]
check "JUnit has no failure" [ "$(junit 'count(//failure) + count(//error)')" = 0 ]

# The corpus is part of the time, and a gate that did not get through it has not passed. Neither has one with an empty corpus.
mkdir "$work/many"
for i in 1 2 3 4 5 6 7 8; do cp "$corpus/clean.json" "$work/many/$i.json"; done
gate 3 --corpus "$work/many" --time 1ms --jobs 1
left=$(json 'j["corpus_not_replayed"]')
check "what there was no time for is counted" [ "$left" -ge 6 ]
is_json 'j["campaign"]["cases"], len([i for i in j["items"] if i["state"] == "not replayed"])' "(0, $left)"
check "JUnit has an error for each, and one for the campaign" [ "$(junit 'count(//testcase/error)')" -eq $((left + 1)) ]
check "people read it" grep -qx "shardfuzz: $left of 8 corpus cases were not replayed, and nothing was fuzzed: --time 0.001s ran out; give the gate more time" "$work/stderr"
check "the summary counts them" grep -qx -- "- corpus: 8 cases, 0 not as expected, $left not replayed" "$work/summary.md"
gate 3 --time 1ms
is_json 'j["reason"][:19]' 'nothing was fuzzed:'
mkdir "$work/empty"
refuses "$work/empty: there is no *.json case in this folder; --allow-empty-corpus takes that" gate --cases 1 --corpus "$work/empty" --out "$work/none"
gate 0 --corpus "$work/empty" --allow-empty-corpus

# The time is for all of it: what cannot be shrunk within it counts as it was found, and a known finding stays known.
timed() { # EXPECTED_EXIT SECONDS ARGUMENT...
  local expected=$1 most=$2 began=$SECONDS
  shift 2
  run "$expected" gate --seed 5 --out "$work/timed" --json "$@"
  check "within $most s, not $((SECONDS - began)) s: $*" [ $((SECONDS - began)) -le "$most" ]
}
timed 1 14 --time 4s --plant canary-hang --set layout.tp=2 --max-ranks 2 --deadline 500ms --jobs 1
is_json '{(i["state"], i["name"][:5]) for i in j["items"]}' "{('new', 'hang/')}"
check "a finding that was not confirmed says so" grep -qx "shrunk       no: the time was over before the case could be run again and be shrunk" <(cat "$work"/timed/*/report.txt)
name=$(json 'j["items"][0]["name"]')
echo "[{\"signature\": \"${name%@*}@none\"}]" >"$work/hang.json"
timed 0 14 --time 4s --plant canary-hang --set layout.tp=2 --max-ranks 2 --deadline 500ms --jobs 1 --known "$work/hang.json"
is_json '{i["state"] for i in j["items"]}' "{'known'}"

# Another run is the same: findings, their files, the reports but for times.
gate 1 --corpus "$corpus" "${planted[@]}"
is_json '[(i["name"], i["state"]) for i in j["items"]]' "[('$signature', 'new')]"
is_json 'j["items"][0]["min"]' "$work/gate$number/${signature//\//-}/min.json"
check "JUnit names the finding" [ "$(junit 'string(//testcase[failure]/@name)')" = "$signature" ]
check "JUnit has one failure" [ "$(junit 'string(//testsuite/@failures)')" = 1 ]
message=$(junit 'string(//failure/@message)')
check "JUnit's message says what is wrong" grep -qE "^new finding ${signature/+/[+]}: error norm .*; diagnosis: repeated_term: the bias is added 2 times" <<<"$message"
check "JUnit's times add up" python3 - "$work/junit.xml" <<'P'
import sys
import xml.etree.ElementTree as tree
from decimal import Decimal
suites = tree.parse(sys.argv[1]).getroot()
times = sum(Decimal(case.get("time")) for case in suites.iter("testcase"))
sys.exit(not (times > 0 and times == Decimal(suites.get("time")) == Decimal(suites.find("testsuite").get("time"))))
P
check "the summary has the finding" grep -qF "| **new** | \`$signature\` | \`shardfuzz replay '$work/gate$number/${signature//\//-}/min.json'\` |" "$work/summary.md"
check "the summary names seed and program" grep -qxE -- '- (seed: 5; --seed|shardfuzz: [0-9.]+(, commit [0-9a-f]+[+]?)?)' "$work/summary.md"
check "the summary has the smallest case" grep -qx 'The smallest case:' "$work/summary.md"
check "the annotation says it" grep -qF "::error file=" "$work/annotations.txt"
check "the summary has the report" grep -q "^signature    $signature" "$work/summary.md"
min=$work/gate$number/${signature//\//-}/min.json
run 1 replay "$min" --json
is_json 'j["as_expected"]' True
cp "$min" "$work/first.json"
gate 1 --corpus "$corpus" "${planted[@]}"
check "the same reproducer" cmp "$work/first.json" "$work/gate$number/${signature//\//-}/min.json"

# Known findings do not fail the gate; others still do.
echo "[{\"signature\": \"$signature\", \"note\": \"as shipped\"}]" >"$work/known.json"
gate 0 --known "$work/known.json" "${planted[@]}"
is_json '[(i["name"], i["state"]) for i in j["items"]]' "[('$signature', 'known')]"
check "JUnit has no failure for it" [ "$(junit 'count(//failure)')" = 0 ]
gate 1 --known "$work/known.json" "${planted[@]}" --plant attn-dq-wrong
is_json 'sorted(i["state"] for i in j["items"])' "['known', 'new']"

# A known finding that no longer shows where it was found is stale; one that nothing could show is only counted.
mkdir "$work/mended"
sed 's/"id": "rowparallel-bias-xtp"/"id": ""/' "$corpus/bias.json" >"$work/mended/gone.json"
echo "[{\"signature\": \"$signature\"}, {\"signature\": \"tolerance/act/other@tp\"}]" >"$work/two.json"
gate 1 --corpus "$work/mended" --known "$work/two.json"
is_json '[(i["name"], i["state"]) for i in j["items"]][1:]' "[('$signature', 'stale')]"
is_json 'j["known"]' "{'entries': 2, 'seen': 0}"
check "people read it" grep -qF "gone.json expects this known finding, which no longer shows: remove it from the known list" "$work/stderr"
check "a note is no failure" [ "$(junit 'count(//failure)')" = 1 ]
gate 0 --corpus "$corpus" --known "$work/two.json"
is_json 'j["known"], j["items"]' "({'entries': 2, 'seen': 1}, [])"

# The base: one that shows the finding too, and one that does not (the same program without the plant).
gate 0 --base "$SHARDFUZZ" "${planted[@]}"
is_json '[(i["name"], i["state"]) for i in j["items"]]' "[('$signature', 'also in base')]"
mkdir "$work/base's folder"
cat >"$work/base's folder/shardfuzz" <<S
#!/bin/sh
exec "$SHARDFUZZ" "\$@" --plant none
S
chmod +x "$work/base's folder/shardfuzz"
gate 1 --base "$work/base's folder" "${planted[@]}"
is_json '[(i["name"], i["state"]) for i in j["items"]]' "[('$signature', 'new')]"
printf '#!/bin/sh\nexit 2\n' >"$work/older"
chmod +x "$work/older"
gate 1 --base "$work/older" "${planted[@]}"
is_json '"the base could not judge the case" in j["items"][0]["text"]' True

# A base that does not answer: the gate can still be stopped, and takes the base and what that started with it.
cat >"$work/asleep" <<S
#!/bin/sh
trap '' TERM
setsid sleep 1000 &
echo \$! \$\$ >"$work/asleep.pids.part" && mv "$work/asleep.pids.part" "$work/asleep.pids"
sleep 1000
S
chmod +x "$work/asleep"
"$SHARDFUZZ" gate --cases 12 --max-ranks 4 "${plain[@]}" --seed 5 --out "$work/asleep.out" --base "$work/asleep" "${planted[@]}" 2>"$work/stderr" &
pid=$!
for ((i = 0; i < 600; i++)); do [ -e "$work/asleep.pids" ] && break; sleep 0.1; done
kill -TERM $pid
(sleep 20 && kill -KILL $pid) 2>/dev/null &
wait $pid
check "a gate that waits for its base can be stopped" [ $? -eq 143 ]
kill $! 2>/dev/null
check "it says so" grep -q interrupted "$work/stderr"
for pid in $(cat "$work/asleep.pids"); do check "process $pid of the base is gone" [ ! -e "/proc/$pid" ]; done

# A corpus case that is not as it expects: wrong verdict, wrong signature, a finding that is gone, one without expectation that fails.
sed 's/"PASS"/"FINDING"/' "$corpus/clean.json" >"$corpus/1.json"
sed 's/linear_proj@tp/linear_proj@dp/' "$corpus/bias.json" >"$corpus/2.json"
sed 's/"id": "rowparallel-bias-xtp"/"id": ""/' "$corpus/bias.json" >"$corpus/3.json"
echo '{"schema": 1, "plant": {"id": "attn-dq-wrong"}}' >"$corpus/4.json"
echo '{"schema": 1}' >"$corpus/5.json"
gate 1 --corpus "$corpus"
is_json '[(i["name"][-6:], i["state"]) for i in j["items"]]' "[('1.json', 'not as expected'), ('2.json', 'not as expected'), ('3.json', 'not as expected'), ('4.json', 'not as expected')]"
is_json 'j["corpus"], j["corpus_failed"], j["campaign"]["findings"]' '(7, 4, 0)'
check "JUnit has four failures" [ "$(junit 'count(//testcase[@classname="corpus"]/failure)')" = 4 ]
check "the line says both" grep -q "expected FINDING .*@dp+sp, saw FINDING $signature" "$work/stderr"

# Without --seed the commit decides: twice the same.
for i in 1 2; do
  run 0 gate --cases 4 --set model.layers=1 "${plain[@]}" --out "$work/commit" --json
  grep '^seed: ' "$work/stderr" >"$work/seed$i"
done
check "the seed of the commit" cmp "$work/seed1" "$work/seed2"
if git rev-parse HEAD >/dev/null 2>&1; then
  check "the commit is named" grep -qE "^seed: [1-9][0-9]* \(from commit $(git rev-parse HEAD | head -c 12) of the working directory\)$" "$work/seed1"
fi
cd "$work" || exit 1
run 0 gate --cases 1 --set model.layers=1 "${plain[@]}" --out "$work/commit" --json
cd - >/dev/null || exit 1
check "outside git it says so" grep -qx 'seed: 0 (the working directory is in no git repository: always the same cases without --seed)' "$work/stderr"
is_json 'j["seed"], "no git repository" in j["seed_from"]' '(0, True)'

# Every command that judges writes the same reports.
reports() { # EXPECTED_EXIT TITLE COMMAND ARGUMENT...
  local expected=$1 title=$2
  shift 2
  rm -f "$work/junit.xml" "$work/summary.md"
  run "$expected" "$@" --junit "$work/junit.xml" --summary "$work/summary.md"
  check "$title: JUnit is XML" xmllint --noout "$work/junit.xml"
  check "$title: the heading" grep -qx "## $title: $([ "$expected" -eq 0 ] && echo passed || echo failed)" "$work/summary.md"
  check "$title: failures" [ "$(junit 'count(//failure)')" = "$expected" ]
}
reports 1 "shardfuzz fuzz" fuzz --cases 12 --seed 2 --max-ranks 4 "${plain[@]}" "${planted[@]}" --out "$work/reports"
check "the finding is the test that fails" [ "$(junit 'string(//testcase[failure]/@name)')" = "$signature" ]
reports 0 "shardfuzz fuzz" fuzz --cases 3 --seed 2 --max-ranks 4 "${plain[@]}" --out "$work/reports"
reports 1 "shardfuzz replay" replay "$corpus/bias.json" --trace "$work/candidate"
check "the report is the failure's text" grep -q "^signature    $signature" "$work/summary.md"
reports 0 "shardfuzz replay" replay "$corpus/clean.json"
refuses "$work/none/junit.xml: No such file" replay "$corpus/clean.json" --junit "$work/none/junit.xml"
refuses "$work/none/junit.xml: No such file" fuzz --cases 1 --junit "$work/none/junit.xml"

# Stopped from outside it has not passed.
mkdir "$work/tmp"
TMPDIR=$work/tmp "$SHARDFUZZ" gate --cases 100000000 --out "$work/stopped" >"$work/stdout" 2>"$work/stderr" &
pid=$!
sleep 1
kill -TERM $pid
wait $pid
check "a stopped gate fails, as shells say it" [ $? -eq 143 ]
check "it says so" grep -q interrupted "$work/stderr"
check "no store is left" [ -z "$(ls "$work/tmp")" ]
finish
