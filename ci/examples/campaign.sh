#!/usr/bin/env bash
# A campaign on the machines of a host file, without a batch system: ci/examples/campaign.sh HOSTS SECONDS [option of fuzz]...
# HOSTS has lines "name slots=4", as mpirun takes them. A machine that is lost ends mpirun; the loop starts it again on the machines that answer.
# These divide the same shares of the cases among them, so that each case gets one verdict.
set -uo pipefail
hosts=${1:?usage: campaign.sh HOSTS SECONDS [option of fuzz]...} seconds=${2:?the seconds that the campaign may take}
shift 2
shardfuzz=${SHARDFUZZ:-$PWD/build/shardfuzz}
folder=${SHARDFUZZ_OUT:-$PWD/findings} # on a file system that all machines see
remote=${SHARDFUZZ_SSH:-ssh -o BatchMode=yes -o ConnectTimeout=10}
store=$folder/campaign-job.sqlite
export OMP_NUM_THREADS=1

mkdir -p "$folder"
interrupted=0 job=0 failures=0
trap 'interrupted=1; kill -TERM "$job" 2>/dev/null' TERM INT

find_hosts() { # writes those that answer
  while read -r line; do
    [ -n "$line" ] && timeout 20 $remote "${line%% *}" true </dev/null 2>/dev/null && echo "$line"
  done <"$hosts" >"$folder/hosts.alive"
}
has_ended() { # the store was joined since this attempt began
  [ "$store" -nt "$folder/hosts.alive" ] && "$shardfuzz" status "$store" --json 2>/dev/null | grep -q '"state":"ended"'
}

code=3
while [ $interrupted -eq 0 ] && [ $SECONDS -lt "$seconds" ] && [ $failures -lt 10 ]; do
  find_hosts
  if [ ! -s "$folder/hosts.alive" ]; then
    echo "campaign.sh: no machine of $hosts answers" >&2
    sleep 5
    continue
  fi
  started=$SECONDS
  mpirun --hostfile "$folder/hosts.alive" --mca plm_rsh_agent "$remote" -x OMP_NUM_THREADS \
    "$shardfuzz" fuzz --time $((seconds - SECONDS)) --out "$folder" --store "$store" --resume "$@" </dev/null &
  job=$!
  wait $job
  code=$?
  if [ $interrupted -ne 0 ]; then wait $job; fi
  if has_ended || [ $code -eq 2 ]; then break; fi # 2: wrong options
  if [ $((SECONDS - started)) -lt 5 ]; then failures=$((failures + 1)) && sleep 1; else failures=0; fi
  echo "campaign.sh: mpirun ended with $code; the campaign goes on with the machines that answer" >&2
done
exit $code
