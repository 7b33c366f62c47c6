#!/usr/bin/env bash
# The first cases of a campaign have every feasible pair of choices, and a resumed or merged store knows what it has run.
source tests/integration/common.bash

campaign=(fuzz --seed 21 --jobs 2 --set model.layers=1..2 --set train.steps=1..2 --out "$work/out")
run 0 "${campaign[@]}" --cases 400 --store "$work/whole.sqlite" --json
is_json 'j["cover"]["pairs_run"] == j["cover"]["pairs"] > 2000 and 0.5 < j["cover"]["triples_share"] < 1' True
whole=$(json 'j["cover"]')
check "people are told" grep -q '^pairs of settings tried: 100.0 % of [0-9]*$' "$work/stderr"

# --- space: what those cases reach, without running them -------------------------------------------------------------
drawn=(--seed 21 --set model.layers=1..2 --set train.steps=1..2)
pairs=$(json '[j["cover"]["pairs"], j["cover"]["pairs_run"]]')
run 0 space "${drawn[@]}" --cases 400 --json
is_json '[j["pairs"], j["pairs_drawn"]]' "$pairs"
counted=$(json '[j["cases"], j["layouts"], j["features"]["reload"], j["triggers"]["rowparallel-bias-xtp"], len(j["triggers"])]')
plants=$("$SHARDFUZZ" list plants | grep -cv '^canary-')
run 0 fuzz --dry-run "${drawn[@]}" --cases 400
check "triggers and features are those of the cases" [ "$counted" = "$(python3 - "$work/stdout" "$plants" <<'PY'
import json, sys
cases = [json.loads(line) for line in open(sys.argv[1])]
def tally(has):
    at = [i for i, case in enumerate(cases) if has(case)]
    return {"cases": len(at), "first": at[0]}
def of_bias(case):
    layouts = [case["layout"]] + ([case["reload"]] if case["reload"]["after_step"] else [])
    return case["model"]["bias"] and any(layout["tp"] > 1 for layout in layouts)
print([len(cases), 2, tally(lambda case: case["reload"]["after_step"] > 0), tally(of_bias), int(sys.argv[2])])
PY
)" ]
run 0 space --cases 3 --set layout.tp=1
check "what no case has is said" grep -qE '^  rowparallel-bias-xtp +0 +never$' "$work/stdout"
check "one in so many" grep -qE '^  attn-dq-wrong +3 +1\.0 +0$' "$work/stdout"
refuses "op:all" space --target op:all

# --- resumed and merged ------------------------------------------------------------------------------------------------
run 0 "${campaign[@]}" --cases 20 --store "$work/parts.sqlite" --json
is_json '0 < j["cover"]["pairs_run"] < j["cover"]["pairs"]' True
check "a pair that was not run is named" grep -qE '; not yet run together, for example: [a-z_.]+=[a-z0-9_.]+ with [a-z_.]+=[a-z0-9_.]+$' "$work/stderr"
run 0 "${campaign[@]}" --cases 60 --store "$work/parts.sqlite" --resume --json
parts=$(json 'j["cover"]')
run 0 "${campaign[@]}" --cases 60 --store "$work/at_once.sqlite" --json
is_json 'j["cover"]' "$parts"

run 0 "${campaign[@]}" --cases 20 --store "$work/few.sqlite" --json
run 0 merge "$work/merged.sqlite" "$work/few.sqlite" "$work/whole.sqlite"
run 0 "${campaign[@]}" --cases 400 --store "$work/merged.sqlite" --resume --json
is_json '[j["cases"], j["cover"]]' "[400, $whole]"

finish
