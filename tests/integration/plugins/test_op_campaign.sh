#!/usr/bin/env bash
# Campaigns over operations are campaigns like others: killed and resumed, shared and merged, they end with the books of one that was left alone, and every
# case has one verdict.
source tests/integration/common.bash

skipped=plugin:$build/plugins/tail_skipped.so
cases=300000
campaign=(fuzz --target "$skipped" --seed 5 --max-elements 400 --cases $cases --jobs 2)
# Passed neighbours share rows, which kills and shares cut: each other row by itself, and how many cases passed.
books="SELECT idx, verdict, class, shrink_key, signature FROM verdict WHERE verdict <> 'PASS' ORDER BY idx;
  SELECT sum(count), sum(count * (verdict = 'PASS')), sum(checked), sum(unchecked), min(idx), max(idx + count) FROM verdict;
  SELECT signature, idx, case_json, min_json FROM finding ORDER BY signature"
once="SELECT count(*) FROM (SELECT idx, lag(idx + count) OVER (ORDER BY idx) AS last FROM verdict) WHERE idx <> coalesce(last, 0)"

run 1 "${campaign[@]}" --store "$work/alone.sqlite" --out "$work/alone" --json
is_json "j['cases'], j['crashed'], j['waiting'], j['new_signatures'] == j['signatures'] > 0" "($cases, 0, 0, True)"
check "every case has one verdict" [ "$(query "$work/alone.sqlite" "$once")" = 0 ]
check "passes share rows" [ "$(query "$work/alone.sqlite" "SELECT count(*) FROM verdict WHERE verdict = 'PASS' AND count > 1")" -gt 100 ]
query "$work/alone.sqlite" "$books" >"$work/books.alone"

# --- killed and resumed ----------------------------------------------------------------------------------------------------------
# Each signal comes as soon as the run has stored something: a fixed time may be enough for all cases.
signals=(KILL INT TERM KILL)
stored() { if [ -e "$work/killed.sqlite" ]; then query "$work/killed.sqlite" "SELECT coalesce(sum(count), 0) FROM verdict" 2>/dev/null || echo 0; else echo 0; fi; }
has_grown() { [ "$(stored)" -gt "$before" ]; }
for signal in "${signals[@]}"; do
  before=$(stored)
  "$SHARDFUZZ" "${campaign[@]}" --resume --store "$work/killed.sqlite" --out "$work/killed" >"$work/stdout" 2>"$work/stderr" &
  pid=$!
  within 100 has_grown || fail "a run that goes on stores nothing within 10 s"
  kill -"$signal" $pid 2>/dev/null
  wait $pid 2>/dev/null
done
verdicts=$(stored)
check "kills interrupted something: $verdicts" [ "$verdicts" -gt 0 -a "$verdicts" -lt $cases ]
check "there are holes" [ "$(query "$work/killed.sqlite" "SELECT value > $verdicts FROM meta WHERE key = 'high_water'")" = 1 ]
run 1 "${campaign[@]}" --resume --store "$work/killed.sqlite" --out "$work/killed" --json
is_json "j['cases']" $cases
check "no case is lost or judged twice" [ "$(query "$work/killed.sqlite" "$once")" = 0 ]
query "$work/killed.sqlite" "$books" >"$work/books.killed"
check "the books of the campaign left alone" cmp "$work/books.alone" "$work/books.killed"
refuses "made with another option: \"max_elements=400\", not \"max_elements=300000\"" fuzz --target "$skipped" --seed 5 --cases $cases --resume --store "$work/killed.sqlite"
refuses "made with another option" fuzz --target op:add --seed 5 --max-elements 400 --cases $cases --resume --store "$work/killed.sqlite"

# --- shared and merged -----------------------------------------------------------------------------------------------------------
for share in 1 2 3; do
  run 1 "${campaign[@]}" --share $share/3 --store "$work/share$share.sqlite" --out "$work/share$share"
done
run 0 merge "$work/joined.sqlite" "$work"/share[123].sqlite
check "all of the cases" grep -qx "$cases verdicts, 0 of them in more than one store, 0 in conflict" "$work/stdout"
check "each once" [ "$(query "$work/joined.sqlite" "$once")" = 0 ]
# Which case of a signature is shrunk is each share's to say: of a merged store that of the smallest index.
query "$work/joined.sqlite" "$books" >"$work/books.joined"
check "the books of the campaign left alone, merged" cmp "$work/books.alone" "$work/books.joined"
run 0 merge "$work/twice.sqlite" "$work/alone.sqlite" "$work/killed.sqlite"
check "rows that were cut otherwise agree" grep -qx "$cases verdicts, $cases of them in more than one store, 0 in conflict" "$work/stdout"

# --- what ends a campaign --------------------------------------------------------------------------------------------------------
run 1 fuzz --target "plugin:$build/plugins/fault_second_entry.so" --cases 1000000000 --stop-after 2 --seed 1 --out "$work/enough" --json
is_json "j['cases'] < 1000000, j['new_signatures'] >= 2" "(True, True)"
refuses "planted bugs exist only for the built-in layers" power --target op:add
finish
