#!/usr/bin/env bash
# The first cases of a campaign have every feasible pair of choices, and a resumed or merged store knows what it has run.
source tests/integration/common.bash

campaign=(fuzz --seed 21 --jobs 2 --set model.layers=1..2 --set train.steps=1..2 --out "$work/out")
run 0 "${campaign[@]}" --cases 400 --store "$work/whole.sqlite" --json
is_json 'j["cover"]["pairs_run"] == j["cover"]["pairs"] > 2000 and 0.5 < j["cover"]["triples_share"] < 1' True
whole=$(json 'j["cover"]')
check "people are told" grep -q '^pairs of settings tried: 100.0 % of [0-9]*$' "$work/stderr"

run 0 "${campaign[@]}" --cases 20 --store "$work/parts.sqlite" --json
is_json '0 < j["cover"]["pairs_run"] < j["cover"]["pairs"]' True
check "a pair that was not run is named" grep -qE '; not yet run together, for example: [a-z_.]+=[a-z0-9_.]+ with [a-z_.]+=[a-z0-9_.]+$' "$work/stderr"
run 0 "${campaign[@]}" --cases 400 --store "$work/parts.sqlite" --resume --json
is_json 'j["cover"]' "$whole"

run 0 "${campaign[@]}" --cases 20 --store "$work/few.sqlite" --json
run 0 merge "$work/merged.sqlite" "$work/few.sqlite" "$work/whole.sqlite"
run 0 "${campaign[@]}" --cases 400 --store "$work/merged.sqlite" --resume --json
is_json '[j["cases"], j["cover"]]' "[400, $whole]"

finish
