#!/usr/bin/env bash
# The gate passes on clean code, fails on what is new, and on nothing else; its reports are what CI systems read.
source tests/integration/common.bash

corpus=$work/corpus
mkdir "$corpus"
echo '{"schema": 1, "model": {"layers": 2, "heads": 2, "kv_heads": 2, "bias": true}, "layout": {"tp": 2}, "expect": {"verdict": "PASS"}}' >"$corpus/clean.json"
run 1 fuzz --cases 12 --seed 2 --max-ranks 4 --set layout.tp=2 "${plain[@]}" --set model.bias=on --plant rowparallel-bias-xtp --out "$work/found"
cp "$work"/found/*/min.json "$corpus/bias.json"
signature=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["expect"]["signature"])' "$corpus/bias.json")
check "a signature" [ "$signature" = "tolerance/act/self_attention.linear_proj@tp" ]

number=0
gate() { # EXPECTED_EXIT ARGUMENT...: with reports, which must be valid
  local expected=$1
  shift
  number=$((number + 1))
  run "$expected" gate --cases 12 --max-ranks 4 "${plain[@]}" --seed 5 --out "$work/gate$number" --junit "$work/junit.xml" --summary "$work/summary.md" --json "$@"
  check "JUnit is XML" xmllint --noout "$work/junit.xml"
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

# Another run is the same: findings, their files, the reports but for times.
planted=(--plant rowparallel-bias-xtp --set layout.tp=2 --set model.bias=on)
gate 1 --corpus "$corpus" "${planted[@]}"
is_json '[(i["name"], i["state"]) for i in j["items"]]' "[('$signature', 'new')]"
is_json 'j["items"][0]["min"]' "$work/gate$number/${signature//\//-}/min.json"
check "JUnit names the finding" [ "$(junit 'string(//testcase[failure]/@name)')" = "$signature" ]
check "JUnit has one failure" [ "$(junit 'string(//testsuite/@failures)')" = 1 ]
check "the summary has the finding" grep -qF "| **new** | \`$signature\` | \`shardfuzz replay '$work/gate$number/${signature//\//-}/min.json'\` |" "$work/summary.md"
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
check "the line says both" grep -q "expected FINDING .*@dp, saw FINDING $signature" "$work/stderr"

# Without --seed the commit decides: twice the same.
for i in 1 2; do
  run 0 gate --cases 4 --set model.layers=1 "${plain[@]}" --out "$work/commit" --json
  grep -o 'with seed [0-9]*' "$work/stderr" >"$work/seed$i"
done
check "the seed of the commit" cmp "$work/seed1" "$work/seed2"

# Stopped from outside it has not passed.
"$SHARDFUZZ" gate --cases 100000000 --out "$work/stopped" >"$work/stdout" 2>"$work/stderr" &
pid=$!
sleep 1
kill -TERM $pid
wait $pid
check "a stopped gate fails" [ $? -eq 3 ]
check "it says so" grep -q interrupted "$work/stderr"
check "no store is left" [ -z "$(find "${TMPDIR:-/tmp}" -maxdepth 1 -name 'shardfuzz-gate-*' -newer "$work/seed1" 2>/dev/null)" ]
finish
