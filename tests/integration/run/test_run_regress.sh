#!/usr/bin/env bash
# Every case of corpus/regress is still as it expects: each planted bug is found with its signature, clean cases over many features pass.
source tests/integration/common.bash

run 0 gate --corpus corpus/regress --cases 1 --seed 3 --set model.layers=1 "${plain[@]}" --out "$work/out" --json
is_json 'j["corpus_failed"], j["items"]' '(0, [])'
is_json 'j["corpus"]' "$(find corpus/regress -maxdepth 1 -name '*.json' | wc -l)"
[ "$failures" -eq 0 ] || cat "$work/stderr" >&2

# Noise levels hold for other kernels of OpenBLAS too, whose sums have another order.
for kernels in Prescott Haswell; do
  OPENBLAS_CORETYPE=$kernels run 0 replay corpus/regress/clean-router-few-roundings.json --json
  is_json "j['as_expected']" True
done

"$SHARDFUZZ" list plants | cut -d' ' -f1 >"$work/plants"
check "there are plants" [ "$(wc -l <"$work/plants")" -ge 20 ]
while read -r plant; do
  file=corpus/regress/plant-$plant.json
  check "$plant has a case" [ -f "$file" ]
  check "$file plants it" grep -q "\"id\": \"$plant\"" "$file"
  check "$file expects a finding with a signature" grep -Eq '"signature": "[^"]+@[^"]+"' "$file"
done <"$work/plants"
check "ten clean cases" [ "$(grep -l '"verdict": "PASS"' corpus/regress/*.json | wc -l)" -ge 10 ]
finish
