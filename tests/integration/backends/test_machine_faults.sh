#!/usr/bin/env bash
# A campaign over several machines loses one of them, and goes on without a person (ci/examples/campaign.sh). The machines are played by
# process groups: a stand-in for ssh (of another name, or mpirun gives it options of ssh) starts what mpirun gives it, until the machine is dead.
source tests/integration/common.bash
source tests/integration/mpi.bash
options=(--cases 240 --seed 5 --max-ranks 2 --jobs 1 --layouts 4 --shrink-budget 0 "${flat[@]}")

cat >"$work/remote" <<'SSH'
#!/usr/bin/env bash
machine=$1 folder=$(dirname "$0")
shift
[ -e "$folder/$machine.dead" ] && exit 255
setsid bash -c "$*" &
echo $! >>"$folder/$machine.sessions"
wait $!
SSH
chmod +x "$work/remote"
for machine in one two three; do echo "$machine slots=1" >>"$work/hosts"; done
has_begun() { [ -s "$work/job/campaign-job.sqlite.2-of-3" ] && [ "$("$SHARDFUZZ" status "$work/job/campaign-job.sqlite.2-of-3" --prometheus | grep -c '^shardfuzz_cases')" -gt 0 ]; }

run 0 fuzz "${options[@]}" --out "$work/alone.d" --store "$work/alone.sqlite"
verdicts "$work/alone.sqlite" >"$work/alone"

SHARDFUZZ_SSH=$work/remote SHARDFUZZ_OUT=$work/job timeout -k 5 300 env SHARDFUZZ="$SHARDFUZZ" ci/examples/campaign.sh "$work/hosts" 300 "${options[@]}" >"$work/job.out" 2>"$work/job.err" &
campaign=$!
check "the second machine begins" within 300 has_begun
touch "$work/two.dead"
while read -r session; do pkill -KILL -s "$session"; done <"$work/two.sessions"
wait $campaign
check "the campaign ends by itself" [ $? -eq 0 ]
check "mpirun was started again" grep -q 'campaign.sh: mpirun ended with .* the campaign goes on with the machines that answer' "$work/job.err"
check "on two machines" [ "$(cat "$work/job/hosts.alive")" = $'one slots=1\nthree slots=1' ]
verdicts "$work/job/campaign-job.sqlite" >"$work/seen"
check "each case has the verdict that one machine gives" cmp "$work/alone" "$work/seen"
check "the summary tells of all" grep -q '^240 cases' "$work/job.out"
check "no process is left" within 30 eval '[ "$(alive)" -eq 0 ]'

# --- wrong options are told once, and machines that are all dead end it ----------------------------------------------------
seen=0
SHARDFUZZ_SSH=$work/remote SHARDFUZZ_OUT=$work/wrong timeout 60 ci/examples/campaign.sh "$work/hosts" 60 --cases x >/dev/null 2>"$work/wrong.err" || seen=$?
check "wrong options end it" [ $seen -eq 2 ]
touch "$work/one.dead" "$work/three.dead"
seen=0
SHARDFUZZ_SSH=$work/remote SHARDFUZZ_OUT=$work/dead timeout 60 ci/examples/campaign.sh "$work/hosts" 3 --cases 1 >/dev/null 2>"$work/dead.err" || seen=$?
check "it waits for machines until its time is over" [ $seen -eq 3 ]
check "and says so" grep -qx "campaign.sh: no machine of $work/hosts answers" "$work/dead.err"
finish
