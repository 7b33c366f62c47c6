#!/usr/bin/env bash
# A campaign can be watched: in its own log, and by `shardfuzz status` from elsewhere, while it runs, after it has ended, and after it was killed.
source tests/integration/common.bash
small=(--set model.layers=1 --set train.steps=1 --max-ranks 2 --jobs 1)

status() { # ARGUMENT...
  run 0 status "$store" "$@"
}
state_is() { status --json; [ "$(json 'j["state"]')" = "$1" ]; }
has_cases() { status --json; [ "$(json 'j["cases_run"]')" -gt 0 ] 2>/dev/null; }
begin() { # ARGUMENT...: a campaign in the background, of which the store tells something
  "$SHARDFUZZ" fuzz "${small[@]}" --out "$work" --store "$store" "$@" >"$work/fuzz.out" 2>"$work/fuzz.err" &
  pid=$!
  check "the store is made" within 100 [ -e "$store" ]
  check "it tells of cases" within 100 has_cases
}

# --- while it runs -------------------------------------------------------------------------------------------------
store=$work/a.sqlite
begin --time 1h
is_json 'j["schema"], j["state"], j["seed"], j["target"], j["seconds_wanted"], j["pid"]' "(1, 'running', 1, 'builtin', 3600.0, $pid)"
is_json 'j["cases"] == j["passed"] + j["findings"] + j["inconclusive"] + j["skipped"], j["memory_bytes"] > 1e6, 0 < j["pairs_run"] <= j["pairs"]' '(True, True, True)'
is_json 'j["seconds_left"] > 3000, 0 < j["share_done"] < 0.1, j["newest"], j["cases_wanted"]' '(True, True, None, None)'
status
check "for people" grep -qE '^campaign   running: builtin, seed 1, process [0-9]+ on ' "$work/stdout"
check "nothing on stderr" [ ! -s "$work/stderr" ]
status --prometheus
check "Prometheus's lines" [ "$(grep -cvE '^(# (HELP|TYPE) shardfuzz_[a-z_]+ .+|shardfuzz_[a-z_]+\{store="[^"]+",target="builtin"(,state="[a-z]+")?\} [0-9.]+)$' "$work/stdout")" -eq 0 ]
check "it runs" grep -qxF "shardfuzz_state{store=\"$store\",target=\"builtin\",state=\"running\"} 1" "$work/stdout"

# --- interrupted, and resumed: time is counted as cases are --------------------------------------------------------
"$SHARDFUZZ" status "$store" --watch >"$work/watch.out" 2>"$work/watch.err" &
watcher=$!
sleep 2
kill -INT $pid
wait $pid
check "interrupted" [ $? -eq 130 ]
wait $watcher
check "the watcher ends with the campaign" [ $? -eq 0 ]
check "and says how that ended" grep -qE '^campaign   interrupted [0-9]+s ago; --resume goes on: builtin, seed 1$' "$work/watch.out"
check "the summary says so" grep -q '^interrupted; go on with --store ' "$work/fuzz.out"
state_is interrupted || fail "the state is not interrupted"
before=$(json 'j["cases"]') seconds=$(json 'j["seconds"]')
run 0 fuzz "${small[@]}" --cases $((before + 3)) --out "$work" --store "$store" --resume --json --summary "$work/page.md"
is_json "j['cases'], j['seconds_all_runs'] > $seconds, j['seconds'] < j['seconds_all_runs']" "($((before + 3)), True, True)"
check "people read both" grep -qE "^$((before + 3)) cases in [0-9.]+ s \([0-9.]+/s\), 3 of them now in [0-9.]+ s \([0-9.]+/s\): " "$work/stderr"
state_is ended || fail "the state is not ended"
is_json "j['cases_run'], j['cases_wanted'], j['share_done']" "(3, $((before + 3)), 1.0)"
store=$work/page.sqlite
begin --time 1h --summary "$work/page.md" --json
kill -INT $pid && kill -INT $pid # as timeout(1) and launchers do: it comes to a process and to its group
wait $pid
check "a signal that comes twice at once counts once" [ $? -eq 130 ]
cp "$work/fuzz.out" "$work/stdout"
is_json 'j["interrupted"]' True
check "so does the page" grep -q '^- interrupted: a signal ended the campaign early' "$work/page.md"

# --- killed ---------------------------------------------------------------------------------------------------------
store=$work/b.sqlite
begin --time 1h
kill -KILL $pid
wait $pid 2>/dev/null
check "its processes end" within 100 state_is killed
status
check "people read it" grep -qE '^campaign   killed [0-9]+s ago or later, without a word; --resume goes on: ' "$work/stdout"

# --- stores that say nothing of themselves --------------------------------------------------------------------------
run 0 merge "$work/merged.sqlite" "$work/a.sqlite"
store=$work/merged.sqlite
state_is ended || fail "a merged store has not ended"
is_json "j['cases'], j['seconds'], j['pid']" "($((before + 3)), None, None)"
refuses "$work/none.sqlite: cannot open" status "$work/none.sqlite"
echo "{}" >"$work/text"
refuses "$work/text: not a shardfuzz store" status "$work/text"
refuses "--json and --prometheus: choose one" status "$store" --json --prometheus
mkdir "$work/folder"
refuses "$work/folder: there is no campaign's store (campaign-*.sqlite) in this folder" status "$work/folder"
cp "$store" "$work/folder/campaign-0001.sqlite"
run 0 status "$work/folder" --json
is_json 'j["store"], j["state"]' "('$work/folder/campaign-0001.sqlite', 'ended')"

# --- operations too -------------------------------------------------------------------------------------------------
store=$work/ops.sqlite
run 0 fuzz --target op:gelu_fwd --cases 500 --out "$work" --store "$store"
status --json
is_json 'j["state"], j["cases"], j["passed"], j["target"], j["ranks_max"]' "('ended', 500, 500, 'op:gelu_fwd', None)"
finish
