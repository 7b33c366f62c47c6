#!/usr/bin/env bash
# The device's own operations: no finding, the same cases with any number of processes and each matrix product, a campaign that is interrupted.
source tests/integration/common.bash

run 0 list operations
check "every operation is listed" [ "$(wc -l <"$work/stdout")" -ge 35 ]
run 0 fuzz --target op:all --cases 30000 --seed 3 --out "$work/out" --json
is_json "j['cases'] == j['passed'] == 30000 and j['unchecked_share'] < 0.03" True
check "nothing but the store is written without a finding" [ "$(ls "$work/out")" = campaign-0001.sqlite ]
for gemm in xsmm blas loops; do
  run 0 fuzz --target op:gemm --gemm $gemm --cases 2000 --max-elements 4000 --out "$work/out" --json
  is_json "j['passed']" 2000
done
run 0 fuzz --target op:softmax --cases 2000 --jobs 1 --out "$work/out" --json
one=$(json "(j['checked'], j['unchecked'])")
run 0 fuzz --target op:softmax --cases 2000 --jobs 3 --out "$work/out" --json
is_json "(j['checked'], j['unchecked'])" "$one"

cat >"$work/case.json" <<'JSON'
{"schema": 1, "target": "op:norm_fwd", "operation": "norm_fwd", "case": {"rows": 3, "cols": 65, "norm": 1, "bias": 1, "store": "bf16", "seed": 12, "values.x": "far"}}
JSON
run 0 replay "$work/case.json" --json
is_json "j['verdict']" PASS
is_json "0 < j['ulps'] < 2" True
check "the error is reported per row and in ulp" grep -qE 'of row [0-9]+, .* ulp at' "$work/stderr"

# A time limit, and an interrupt: what was run is counted.
run 0 fuzz --target op:all --time 1s --out "$work/out" --json
is_json "j['cases'] > 100" True
"$SHARDFUZZ" fuzz --target op:all --out "$work/out" >"$work/stdout" 2>"$work/stderr" &
pid=$!
sleep 1
kill -INT $pid
wait $pid
check "an interrupted campaign without findings exits as shells say it" [ $? -eq 130 ]
check "and says how to go on" grep -q '^interrupted; go on with --store .* --resume$' "$work/stdout"
check "and says what it ran" grep -qE '^[0-9]+ cases in' "$work/stdout"
run 2 fuzz --target op: --cases 5
run 2 fuzz --target op:all --cases 0
run 2 fuzz --target op:all --plant rowparallel-bias-xtp
finish
