#!/usr/bin/env bash
# Workers that import their framework once and fork the ranks of all sets: the verdicts of a launcher's sets, and nothing is left of them.
source tests/integration/common.bash

[ -r "/proc/self/task/$$/children" ] || { echo "skipped: this kernel does not list the children of a process" && exit 77; }
worker="python3 -S tests/integration/frameworks/forking_worker.py $work"
marked() { grep -lsz -- "^SHARDFUZZ_TEST_MARK=$work\$" /proc/[0-9]*/environ 2>/dev/null; }
none_marked() { [ -z "$(marked)" ]; }
export SHARDFUZZ_TEST_MARK=$work
unmarked() { env -u SHARDFUZZ_TEST_MARK "$@"; }
lines() { wc -l <"$work/$1"; }
case_of() { echo "{\"ranks\": 2, \"fault\": \"$1\"}"; }

# --- a campaign -------------------------------------------------------------------------------------------------------
rows='SELECT idx, verdict, signature FROM verdict ORDER BY idx'
run 1 fuzz --target "worker:$worker" --cases 16 --seed 3 --jobs 2 --set fault=none --out "$work/forked" --store "$work/forked.sqlite"
check "imported once" [ "$(lines imports)" = 1 ]
check "ranks are forked" [ "$(lines ranks)" -gt 4 ]
run 1 fuzz --target "worker:$worker" --cases 16 --seed 3 --jobs 2 --set fault=none --out "$work/launched" --store "$work/launched.sqlite" --launcher "$PWD/tests/integration/launch_ranks.sh {n}"
check "a launcher that is asked for starts them" [ "$(lines imports)" = 1 ]
check "verdicts are those of launched ranks" [ "$(query "$work/forked.sqlite" "$rows")" = "$(query "$work/launched.sqlite" "$rows")" ]

# --- what goes wrong ----------------------------------------------------------------------------------------------------
for fault in fall orphan sleep raise none; do case_of $fault; done >"$work/cases.jsonl"
run 1 worker "$worker" "$work/cases.jsonl" --deadline 1s --json
is_json '[(o["verdict"], o["class"]) for o in j["outcomes"]] if "outcomes" in j else (j["findings"], j["passed"])' "(4, 1)"
check "a rank that dies" grep -q 'case 0 .*crash.*rank 0 died' "$work/stderr"
check "its last words" grep -q 'rank 0 is about to fall' "$work/stdout" "$work/stderr"
check "one that leaves a process" grep -q 'case 1 .*crash.*rank 0 died' "$work/stderr"
check "a silent one" grep -q 'case 2 .*hang' "$work/stderr"
check "one that raises" grep -q 'case 3 .*crash.*this configuration is wrong' "$work/stderr"
check "all processes have ended" unmarked bash -c "$(declare -f within none_marked marked); work='$work'; within 50 none_marked"

case_of no-zygote >"$work/cases.jsonl"
case_of none >>"$work/cases.jsonl"
rm "$work/imports"
run 0 worker "$worker" "$work/cases.jsonl" --json
is_json 'j["passed"]' 2
check "without a zygote the launcher starts the ranks" [ -e "$work/killed" ]

run 3 fuzz --target "worker:$worker broken" --cases 4 --set fault=none --out "$work/broken"
check "a framework that cannot be imported: $(cat "$work/stderr")" grep -qx 'shardfuzz: the worker does not describe itself: ImportError: there is no such framework.*' "$work/stderr"
check "nothing is written" [ ! -e "$work/broken" ]

# --- whoever is killed --------------------------------------------------------------------------------------------------
rm -f "$work/ranks"
"$SHARDFUZZ" fuzz --target "worker:$worker" --cases 4 --jobs 2 --set fault=sleep --out "$work/killed-campaign" >"$work/stdout" 2>"$work/stderr" &
some_ranks() { [ -s "$work/ranks" ]; }
check "the campaign is under way" within 200 some_ranks
{ kill -KILL $! && wait $!; } 2>/dev/null
check "no process is left of a campaign that was killed" unmarked bash -c "$(declare -f within none_marked marked); work='$work'; within 100 none_marked"
finish
