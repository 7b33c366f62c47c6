#!/usr/bin/env bash
# shrink gives a smaller case that fails in the same way, within its budget; every --json has the promised keys on its last line.
source tests/integration/common.bash

cat >"$work/case.json" <<'J'
{"schema": 1, "seed": 9, "mode": "isolated",
 "model": {"layers": 4, "hidden": 32, "heads": 4, "kv_heads": 4, "head_dim": 8, "ffn": 32, "vocab": 32, "vocab_padded": 32, "seq": 8, "bias": true, "adapter": true},
 "train": {"microbatches": 4, "steps": 2}, "layout": {"tp": 2, "dp": 2, "pp": 2, "sp": true}, "schedule": 5, "plant": {"id": "rowparallel-bias-xtp"}}
J
has_keys() { # EXPRESSION KEY...: the object has them
  local expression=$1
  shift
  is_json "[k for k in '$*'.split() if k not in $expression]" '[]'
}
run 1 shrink "$work/case.json" -o "$work/min.json" --json
has_keys j verdict signature min evaluations budget minimal case
check "says in how many trials" grep -q "^shrunk       in $(json 'j["evaluations"]') of at most 300 trials; minimal: yes$" "$work/stderr"
is_json 'j["minimal"], j["signature"], j["case"]["layout"]["tp"], j["case"]["layout"]["dp"], j["case"]["layout"]["pp"], j["case"]["model"]["layers"]' \
  "(True, 'tolerance/act/self_attention.linear_proj@tp', 2, 1, 1, 1)"
signature=$(json 'j["signature"]')
evaluations=$(json 'j["evaluations"]')
run 1 replay "$work/min.json" --json
has_keys j verdict signature as_expected first diagnosis
has_keys 'j["first"]' id kind rank error noise ratio
is_json 'j["as_expected"], j["signature"], j["first"]["kind"]' "(True, '$signature', 'act')"

# A campaign that is to stop after its first new finding does so long before its cases are out; a known one does not count.
stop=(fuzz --plant rowparallel-bias-xtp --set layout.tp=2 --set model.bias=on "${plain[@]}" --mode e2e --max-ranks 2 --jobs 1 --shrink-budget 40 --seed 3 --json)
run 1 "${stop[@]}" --cases 100000 --stop-after 1 --out "$work/stop"
is_json '1 <= j["new_signatures"] <= 2 and j["cases"] < 1000' True
cases=$(json 'j["cases"] + 8')
run 1 "${stop[@]}" --cases "$cases" --out "$work/all"
json '[{"signature": s["signature"]} for s in j["by_signature"]]' | tr "'" '"' >"$work/stop.known"
run 0 "${stop[@]}" --cases "$cases" --stop-after 1 --known "$work/stop.known" --out "$work/stop2"
is_json 'j["cases"]' "$cases"

# Shrinking what is smallest changes nothing; the same again gives the same file.
run 1 shrink "$work/min.json" -o "$work/min2.json" --json
is_json 'j["minimal"]' True
check "nothing smaller" cmp "$work/min.json" "$work/min2.json"
run 1 shrink "$work/case.json" -o "$work/min3.json"
check "the same twice" cmp "$work/min.json" "$work/min3.json"

# The budget ends it early, with what it has: still the same failure.
for budget in 1 5; do
  run 1 shrink "$work/case.json" -o "$work/budget.json" --budget $budget --json
  is_json "j['minimal'], j['evaluations'] <= $budget" '(False, True)'
  run 1 replay "$work/budget.json" --json
  is_json 'j["as_expected"], j["signature"].split("@")[0]' "(True, '${signature%@*}')"
done
check "the whole took more" [ "$evaluations" -gt 5 ]

# Failures that are not numbers shrink too.
for plant in canary-crash canary-deadlock; do
  sed "s/rowparallel-bias-xtp/$plant/" "$work/case.json" >"$work/canary.json"
  run 1 shrink "$work/canary.json" -o "$work/canary-min.json" --json
  is_json 'j["minimal"], j["case"]["model"]["layers"]' '(True, 1)'
  run 1 replay "$work/canary-min.json" --json
  is_json 'j["as_expected"]' True
done

# Values that the generator does not draw are replaced by ones that it does, or kept, and the user is told.
sed 's/"seq": 8/"seq": 100/' "$work/case.json" >"$work/outside.json"
run 1 shrink "$work/outside.json" -o "$work/outside-min.json" --budget 1
check "says what is kept" grep -q '^model.seq was kept' "$work/stdout"
check "keeps it" grep -q '"seq": 100' "$work/outside-min.json"
run 1 shrink "$work/outside.json" -o "$work/outside-min.json"
check "as small as any" cmp "$work/min.json" "$work/outside-min.json"
check "nothing was kept" [ "$(grep -c 'was kept' "$work/stdout")" -eq 0 ]

# Nothing to shrink.
sed 's/rowparallel-bias-xtp//' "$work/case.json" >"$work/clean.json"
run 0 shrink "$work/clean.json" -o "$work/none.json" --json
has_keys j verdict signature min evaluations minimal case
is_json 'j["verdict"], j["min"]' "('PASS', None)"
check "no file" [ ! -e "$work/none.json" ]

# --- the other commands' JSON ----------------------------------------------------------------------------------
run 0 replay "$work/clean.json" --table --json
has_keys j verdict signature as_expected first diagnosis
is_json 'j["verdict"], j["signature"], j["first"]' "('PASS', '', None)"
run 0 fuzz --cases 3 --seed 3 --set model.layers=1 "${plain[@]}" --out "$work/out" --json
has_keys j cases passed findings inconclusive skipped crashed hung flaky unchecked_share space cover seconds cases_per_s
is_json 'j["cases"] == j["passed"] + j["findings"] + j["inconclusive"] + j["skipped"] == 3' True
"$SHARDFUZZ" list features | sort >"$work/features"
json '"\n".join(sorted(j["space"]))' >"$work/space"
check "space has every feature" cmp "$work/features" "$work/space"
# Cases whose first finding always has one signature: two ranks, and no cross-attention.
biased=(--set model.layers=1 --set layout.tp=2 --max-ranks 2 --set model.bias=true --set model.memory_seq=0 "${plain[@]}" --plant rowparallel-bias-xtp --shrink-budget 2)
run 1 fuzz --cases 12 --seed 4 "${biased[@]}" --out "$work/few" --store "$work/few.sqlite" --json
has_keys 'j["by_signature"][0]' signature count first_index known diagnosis min shrunk
first=$(query "$work/few.sqlite" "SELECT min(idx) FROM verdict WHERE verdict = 'FINDING'")
is_json 'j["seed"], min(s["first_index"] for s in j["by_signature"]), j["by_signature"][0]["shrunk"]' "(4, $first, {'trials': 2, 'budget': 2, 'minimal': False})"
check "the summary says which case was the first" grep -q " cases, first $first  " "$work/stderr"
check "and of which seed" grep -q "^store $work/few.sqlite, seed 4$" "$work/stderr"
report=$(find "$work/few" -name report.txt | head -n 1)
check "the report says which case it was, and of which seed" grep -q "^found        in case $first of the campaign with seed 4$" "$report"
check "and how far it was shrunk" grep -q "^shrunk       in 2 of at most 2 trials; minimal: no (the budget ran out)$" "$report"
# A second campaign with the same --out leaves the folders of the first alone, and goes on in its own.
folder=$(dirname "$report")
cp -r "$folder" "$work/first-folder"
again=(fuzz --seed 6 "${biased[@]}" --out "$work/few" --store "$work/again.sqlite")
run 1 "${again[@]}" --cases 6 --json
is_json 'j["by_signature"][0]["min"]' "$folder-2/min.json"
check "the folder of the first is as it was" diff -r "$folder" "$work/first-folder"
check "the summary names the new one" grep -q "  $folder-2$" "$work/stderr"
check "its report too" grep -q "'$folder-2/min.json'" "$folder-2/report.txt"
run 1 "${again[@]}" --cases 12 --resume
check "it goes on in its own" [ -d "$folder-2" -a ! -e "$folder-3" ]
check "the folder of the first still is as it was" diff -r "$folder" "$work/first-folder"
# With known findings alone there is no reason to fail.
query "$work/again.sqlite" "SELECT json_group_array(json_object('signature', signature)) FROM finding" >"$work/known.json"
run 0 fuzz --cases 6 --seed 6 "${biased[@]}" --known "$work/known.json" --out "$work/known" --json
is_json 'j["findings"] > 0, j["new_signatures"], j["interrupted"]' '(True, 0, False)'
# A supposition that fits this seed by chance is taken back; one that fits others too stays.
cat >"$work/chance.json" <<'CASE'
{"schema": 1, "plant": {"id": "tp-embed-mask"}, "mode": "isolated", "model": {"mtp_depth": 1, "heads": 2}, "data": {"exact": true},
 "layout": {"tp": 2}, "schedule": 0, "seed": 7919, "expect": {"verdict": "FINDING", "signature": "exact/wgrad/mtp.embedding@tp"}}
CASE
cat >"$work/stale.json" <<'CASE'
{"schema": 1, "plant": {"id": "recompute-chunk-stale-input"}, "mode": "isolated", "model": {"parallel_residual": true, "layers": 2},
 "train": {"recompute_layers": 2}, "schedule": 0, "seed": 0, "expect": {"verdict": "FINDING", "signature": "tolerance/act/pre_mlp_layernorm@none"}}
CASE
run 1 replay "$work/chance.json" --json
is_json 'j["diagnosis"]["class"], j["diagnosis"]["cause"], j["diagnosis"]["text"]' "('unknown', '', 'no simple cause explains the error with other seeds; with this one the value is as if data.documents were 2: here it is 1')"
run 1 replay "$work/stale.json" --json
is_json 'j["diagnosis"]["cause"]' 'as if: mlp_bda'
run 0 power --plant rowparallel-bias-xtp --plant canary-mismatch --cases 60 --clean 4 --max-ranks 4 "${plain[@]}" --json
has_keys j plants clean
for i in 0 1; do
  has_keys "j['plants'][$i]" id detected cases_to_detect localised shrunk
  has_keys "j['plants'][$i]['shrunk']" ranks layers
  is_json "j['plants'][$i]['detected'], j['plants'][$i]['localised'], j['plants'][$i]['shrunk']" "(True, True, {'ranks': 2, 'layers': 1})"
done
has_keys 'j["clean"]' cases false_alarms inconclusive
is_json 'j["clean"]["cases"], j["clean"]["false_alarms"]' '(4, 0)'
run 1 power --plant pp-uneven-offset --cases 4 --clean 0 --set layout.pp=1 --json # cannot show there
is_json 'j["plants"][0]["detected"], j["plants"][0]["cases_to_detect"]' '(False, None)'
finish
