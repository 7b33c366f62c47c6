#!/usr/bin/env bash
# Contrast: a finding says which fields matter, in report, replay, JSON, store, summary and page; where it was not looked for, it says why.
source tests/integration/common.bash

# --- a planted bug -------------------------------------------------------------------------------------------------------------------
run 1 fuzz --plant rowparallel-bias-xtp --set layout.tp=2 --set model.bias=on "${plain[@]}" --max-ranks 4 --jobs 2 --cases 4 --stop-after 1 --out "$work/bias" \
  --summary "$work/bias.md" --html "$work/bias.html" --json
matters="[(f['field'], f['condition'], f['failed'][0], f['passed']) for f in c['fields'] if f['state'] == 'matters']"
is_json "[$matters for c in [j['by_signature'][0]['contrast']]][0]" "[('model.bias', '=on', 'on', ['off']), ('layout.tp', ' at least 2', '2', ['1'])]"
min=$(json 'j["by_signature"][0]["min"]')
run 1 shrink "$min" -o "$work/again.json" --json
is_json "[$matters for c in [j['contrast']]][0]" "[('model.bias', '=on', 'on', ['off']), ('layout.tp', ' at least 2', '2', ['1'])]"
is_json '"model.norm" in [f["field"] for f in j["contrast"]["fields"] if f["state"] == "does not matter"], j["contrast"]["trials"] <= j["contrast"]["budget"]' '(True, True)'
why="fails only with model.bias=on and layout.tp at least 2; "
check "the report says so" grep -q "^contrast     $why" "$(dirname "$min")/report.txt"
check "the summary" grep -q "contrast     $why" "$work/bias.md"
check "the page" grep -q "Contrast: $why" "$work/bias.html"
check "the store" [ "$(query "$work"/bias/campaign-0001.sqlite "SELECT count(*) FROM finding WHERE contrast LIKE '%$why%'")" -gt 0 ]
check "it stands beside the smallest case" [ -s "$(dirname "$min")/contrast.json" ]
run 1 replay "$min"
check "a replay of the smallest case reads it" grep -q "^contrast     $why" "$work/stdout"
run 1 replay "$(dirname "$min")/case.json"
check "a replay of another case does not" [ -z "$(grep '^contrast' "$work/stdout")" ]
echo '{"why": 3' >"$(dirname "$min")/contrast.json"
run 1 replay "$min"
check "a damaged file is left alone" [ -z "$(grep '^contrast' "$work/stdout")" ]

# --- an operation that skips its tail ------------------------------------------------------------------------------------------------
run 1 fuzz --target "plugin:$build/plugins/tail_skipped.so" --cases 2000 --out "$work/tail" --json
tail="[f['condition'] for s in j['by_signature'] for f in s['contrast']['fields'] if f['field'] == 'count']"
is_json "set($tail)" "{' at least 9 and not a multiple of 8'}"
is_json "max(s['contrast']['trials'] for s in j['by_signature']) <= 60" True
check "the report says so" grep -q '^contrast     fails only with count at least 9 and not a multiple of 8; any seed' "$work/tail/unwritten-add-out/report.txt"

# --- what is not tried ---------------------------------------------------------------------------------------------------------------
run 1 fuzz --plant canary-hang --cases 1 --deadline 1s --shrink-budget 1 --max-ranks 2 --out "$work/hang" --json
is_json "[(s['contrast']['why'], s['contrast']['trials']) for s in j['by_signature']]" "[('not tried: each trial would take the whole deadline', 0)]"
run 1 fuzz --plant rowparallel-bias-xtp --set layout.tp=2 --set model.bias=on "${plain[@]}" --max-ranks 2 --cases 1 --shrink-budget 0 --out "$work/none" --json
is_json "[s['contrast'] for s in j['by_signature']]" "[None]"
finish
