#!/usr/bin/env bash
# How the program is used: which store a campaign goes on with, what is printed where.
source tests/integration/common.bash
small=(--set model.layers=1 --set train.steps=1 --max-ranks 2)

# --- --resume without --store ----------------------------------------------------------------------------------
run 0 fuzz --cases 2 "${small[@]}" --out "$work/stores"
run 0 fuzz --cases 3 "${small[@]}" --out "$work/stores"
touch -d '1 hour ago' "$work/stores/campaign-0002.sqlite"
: >"$work/stores/campaign-9999.sqlite.rank-0"
run 0 fuzz --cases 5 "${small[@]}" --out "$work/stores" --resume --json
check "the newest store is continued" [ "$(query "$work/stores/campaign-0001.sqlite" "SELECT count(*) FROM verdict")" -eq 5 ]
check "the other one is not" [ "$(query "$work/stores/campaign-0002.sqlite" "SELECT count(*) FROM verdict")" -eq 3 ]
refused="$work/stores/campaign-0001.sqlite: made with another option"
refuses "$refused" fuzz --cases 5 "${small[@]}" --seed 2 --out "$work/stores" --resume
check "no store is added" [ "$(find "$work/stores" -name '*.sqlite' | wc -l)" -eq 2 ]

finish
