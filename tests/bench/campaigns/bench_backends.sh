#!/usr/bin/env bash
# The same cases under the simulation and under Open MPI: verdicts and signatures of two stores compared row by row, without and with planted
# bugs; then clean cases under mpirun alone.
#   tests/bench/campaigns/bench_backends.sh BUILD_DIR [SAME_CASES [CLEAN_CASES]]
set -euo pipefail

bench=$(cd "$(dirname "$0")/.." && pwd)
build=${1:?usage: bench_backends.sh BUILD_DIR [SAME_CASES [CLEAN_CASES]]}
same=${2:-200} clean=${3:-500}
fuzz=$build/shardfuzz
ranks=4
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

mpirun_flags=(--oversubscribe -n "$ranks")
if [ "$(id -u)" -eq 0 ]; then mpirun_flags+=(--allow-run-as-root); fi

campaign() { # NAME BACKEND CASES SEED [OPTIONS]: prints the JSON line; findings are no failure here
  local name=$1 backend=$2 cases=$3 seed=$4
  shift 4
  local command=("$fuzz" fuzz --backend "$backend" --cases "$cases" --seed "$seed" --max-ranks "$ranks" --shrink-budget 0 --json
    --store "$folder/$name.sqlite" --out "$folder/$name" "$@")
  mkdir -p "$folder/$name"
  if [ "$backend" = mpi ]; then command=(mpirun "${mpirun_flags[@]}" "${command[@]}"); fi
  local code=0
  "${command[@]}" >"$folder/$name.json" 2>"$folder/$name.log" || code=$?
  if [ "$code" -gt 1 ]; then
    echo "bench_backends.sh: ${command[*]} ended with $code" >&2
    tail -n 20 "$folder/$name.log" >&2
    exit 3
  fi
  echo "$name done" >&2
}

# Bugs that need no more than four ranks and end in a comparison, not in a hang.
plants=(--plant tp-embed-mask --plant rowparallel-bias-xtp --plant sp-final-ln-nosync --plant accum-first-mb-only --plant norm-replica-overcount)

campaign clean-sim sim "$same" 1
campaign clean-mpi mpi "$same" 1
campaign planted-sim sim "$same" 2 "${plants[@]}"
campaign planted-mpi mpi "$same" 2 "${plants[@]}"
campaign only-mpi mpi "$clean" 3

PYTHONPATH=$bench python3 - "$folder" "$same" "$clean" <<'PY'
import sqlite3
import sys

from line import last_object, print_line

folder, same, clean = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def rows(name):
    with sqlite3.connect(f"{folder}/{name}.sqlite") as store:
        return {index: rest for index, *rest in store.execute("SELECT idx, verdict, signature FROM verdict ORDER BY idx")}


def summary(name):
    line = last_object(f"{folder}/{name}.json")
    return {key: line[key] for key in ("cases", "passed", "findings", "inconclusive", "skipped", "seconds", "cases_per_s") if key in line}


def compared(kind):
    sim, mpi = rows(kind + "-sim"), rows(kind + "-mpi")
    different = [i for i in sorted(sim.keys() | mpi.keys()) if sim.get(i) != mpi.get(i)]
    return {"cases": len(sim), "same_verdict": sum(i in mpi and sim[i][0] == mpi[i][0] for i in sim), "same_signature": len(sim) - len(different),
            "findings_in_sim": sum(row[0] == "FINDING" for row in sim.values()),
            "first_different": [different[0], sim.get(different[0]), mpi.get(different[0])] if different else None}


print_line("bench_backends", f"bench_backends.sh {same} {clean}", {"clean": compared("clean"), "planted": compared("planted"),
                  "clean_under_mpirun": summary("only-mpi")})
PY
