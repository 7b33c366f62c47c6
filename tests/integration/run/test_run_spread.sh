#!/usr/bin/env bash
# Processes that a launcher has started run one campaign together, whatever becomes of one of them. Launchers are known by what they put into the environment.
source tests/integration/common.bash
options=(--set model.layers=1 --set train.steps=1 --max-ranks 2 --jobs 1 --seed 5 --cases 112 --layouts 8 --shrink-budget 0 --plant rowparallel-bias-xtp)

process() { # RANK SIZE ARGUMENT...: one process of a job, as Slurm starts it
  local rank=$1 size=$2
  shift 2
  SLURM_PROCID=$rank SLURM_STEP_NUM_TASKS=$size SLURM_STEP_TASKS_PER_NODE=$size "$SHARDFUZZ" fuzz "${options[@]}" "$@" >"$work/$rank.out" 2>"$work/$rank.err"
}
same_verdicts() { # STORE
  verdicts "$1" >"$work/seen" && cmp "$work/alone" "$work/seen"
}
has_a_case() { [ -e "$1" ] && "$SHARDFUZZ" status "$1" --json >"$work/stdout" 2>/dev/null && [ "$(json 'j["cases"]')" -gt 0 ] 2>/dev/null; }

run 1 fuzz "${options[@]}" --out "$work/alone.d" --store "$work/alone.sqlite"
verdicts "$work/alone.sqlite" >"$work/alone"
check "every case has a verdict" [ "$(wc -l <"$work/alone")" -eq 112 ]

# --- campaigns of two seeds are joined, and stay apart -----------------------------------------------------------------
run 1 fuzz "${options[@]/#5/6}" --out "$work/other.d" --store "$work/other.sqlite"
run 0 merge "$work/both.sqlite" "$work/alone.sqlite" "$work/other.sqlite"
check "the seeds are told" grep -qx '2 campaigns, which differ in their seeds: 5,6' "$work/stdout"
verdicts "$work/other.sqlite" | awk '{ $1 += 1000000000; print }' OFMT=%.0f CONVFMT=%.0f | cat "$work/alone" - >"$work/joined"
check "both have their verdicts" cmp "$work/joined" <(verdicts "$work/both.sqlite")
refuses 'seed=5,6' fuzz "${options[@]}" --resume --out "$work/alone.d" --store "$work/both.sqlite"
run 0 report "$work/both.sqlite" -o "$work/both.html"
check "the page has both seeds" grep -q '5,6' "$work/both.html"

# --- a job of three --------------------------------------------------------------------------------------------------
store=$work/job/campaign-job.sqlite
for rank in 1 2; do process $rank 3 --out "$work/job" & done
process 0 3 --out "$work/job"
check "the first process tells findings" [ $? -eq 1 ]
wait
check "it has the verdicts of one process" same_verdicts "$store"
check "each process has run something" [ -s "$store.1-of-3" -a -s "$store.2-of-3" -a -s "$store.3-of-3" ]
check "the first process tells of all" grep -q '^112 cases in .*: ' "$work/0.out"
check "the others are silent" [ ! -s "$work/1.out" ]
findings=$(grep -c 'findings\|distinct' "$work/0.out")
check "findings have folders" [ "$findings" -gt 0 ]
check "the folders are there" test -e "$(grep -o "$work/job/[^ ]*$" "$work/0.out" | head -1)/case.json"

# --- a job that goes on ----------------------------------------------------------------------------------------------
options+=(--resume)
process 1 3 --out "$work/job"
process 2 3 --out "$work/job"
process 0 3 --out "$work/job"
check "there was nothing left" grep -q ', 0 of them now' "$work/0.out"
check "the verdicts are the same" same_verdicts "$store"

# --- what people resume is the campaign, and not a share of it ------------------------------------------------------------------
process 0 2 --store "$work/stopped.sqlite" --out "$work/stopped" --cases 100000 --time 1h &
check "the process begins" within 100 has_a_case "$work/stopped.sqlite.1-of-2"
pkill -INT -P $! -f stopped
wait $! 2>/dev/null
check "a job that is stopped says how to go on" grep -qE "^interrupted; go on with --store '?$work/stopped.sqlite'? --resume$" "$work/0.out"

# --- a process is killed: the first one runs what it has left --------------------------------------------------------------
store=$work/lost.sqlite
process 1 2 --store "$store" --out "$work/lost" &
pid=$!
check "the process begins" within 100 has_a_case "$store.2-of-2"
pkill -KILL -P $pid
wait 2>/dev/null
process 0 2 --store "$store" --out "$work/lost"
check "the campaign has all verdicts" same_verdicts "$store"

# --- a job that goes on with fewer processes divides the shares of the first among them -----------------------------------------
store=$work/fewer.sqlite
process 1 4 --store "$store" --out "$work/fewer" # alone: its share of the cases, of four
cp "$store.2-of-4" "$work/one.sqlite.2-of-4"
process 1 2 --store "$store" --out "$work/fewer" &
process 0 2 --store "$store" --out "$work/fewer"
wait
check "two processes run the shares of four" same_verdicts "$store"
check "the last share too" [ -s "$store.4-of-4" -a ! -e "$store.1-of-2" ]
check "what the first job has run is not run again" grep -qE '^112 cases.*, (8[0-9]|9[0-9]) of them now' "$work/0.out"
check "no share counts as lost while its process has another" [ "$(grep -c 'did not end' "$work/0.err")" -eq 0 ]
run 1 fuzz "${options[@]}" --store "$work/one.sqlite" --out "$work/fewer"
check "a process that no launcher has started runs all shares" same_verdicts "$work/one.sqlite"

# --- a store that is there is not overwritten ------------------------------------------------------------------------------
options=("${options[@]/--resume/}")
options=(${options[@]})
process 0 2 --store "$work/lost.sqlite" --out "$work/lost"
check "a new campaign is refused" [ $? -eq 2 ]
check "with a reason" grep -q 'exists' "$work/0.err"
finish
