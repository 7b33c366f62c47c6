#!/usr/bin/env bash
# The same seed gives the same verdict and signature for every index, whatever the number of jobs; a replay gives the same bytes.
source tests/integration/common.bash

campaign=(fuzz --cases 30 --seed 11 --max-ranks 4 --shrink-budget 40 --set model.layers=1..2 --set train.steps=1..2
  --plant rowparallel-bias-xtp --plant canary-crash --plant canary-deadlock --plant attn-dq-wrong)
books="SELECT idx, verdict, class, shrink_key, signature, label, rank, ranks, layers, features, more_features, checked, unchecked FROM verdict ORDER BY idx;
  SELECT signature, idx, case_json, min_json FROM finding ORDER BY signature"
for jobs in 1 3; do
  run 1 "${campaign[@]}" --jobs $jobs --store "$work/jobs$jobs.sqlite" --out "$work/out$jobs"
  query "$work/jobs$jobs.sqlite" "$books" >"$work/books$jobs"
  (cd "$work/out$jobs" && find . -name '*.json' -exec sha256sum {} + | sort -k2) >"$work/files$jobs"
done
check "every index has a row" [ "$(query "$work/jobs1.sqlite" 'SELECT count(*) FROM verdict')" -eq 30 ]
check "there is something to compare" [ "$(query "$work/jobs1.sqlite" 'SELECT count(*) FROM finding')" -ge 4 ]
check "there are files" [ -s "$work/files1" ]
check "books of three jobs" cmp "$work/books1" "$work/books3"
check "files of three jobs" cmp "$work/files1" "$work/files3"

# A case on four ranks, with reordered communication, traced twice.
run 0 fuzz --cases 1 --seed 3 --set layout.tp=2 --set layout.dp=2 --set layout.pp=1 --set schedule=77 "${plain[@]}" --out "$work/one"
cat >"$work/case.json" <<'J'
{"schema": 1, "seed": 5, "mode": "e2e", "model": {"layers": 2, "heads": 4, "kv_heads": 2, "head_dim": 4, "hidden": 16, "ffn": 16, "bias": true},
 "precision": {"compute": "bf16"}, "train": {"microbatches": 2, "steps": 2}, "layout": {"tp": 2, "dp": 2, "pp": 2}, "schedule": 99}
J
for i in 1 2; do
  run 0 replay "$work/case.json" --trace "$work/trace$i" --json
  is_json 'j["ranks"]' 8
done
check "eight ranks" [ "$(find "$work/trace1" -name '*.safetensors' | wc -l)" -eq 8 ]
for file in "$work"/trace1/*; do check "same bytes" cmp "$file" "$work/trace2/$(basename "$file")"; done
run 0 replay "$work/case.json" --table
cp "$work/stdout" "$work/table"
run 0 replay "$work/case.json" --table
check "same table" cmp "$work/table" "$work/stdout"
check "the table has lines" [ "$(wc -l <"$work/table")" -gt 100 ]
"$SHARDFUZZ" replay "$work/case.json" --table 2>"$work/unread" | true
check "nobody reads the table: not the case's fault" [ "${PIPESTATUS[0]}" -eq 3 ]
check "it says what failed: $(cat "$work/unread")" grep -qi 'broken pipe\|written' "$work/unread"
finish
