#!/usr/bin/env bash
# Every mutant of a communication call searched for blind: prints power's JSON line with how many met each fate, by kind.
#   tests/bench/campaigns/bench_mutants.sh BUILD_DIR [CASES [SEED]]
set -euo pipefail

bench=$(cd "$(dirname "$0")/.." && pwd)
build=${1:?usage: bench_mutants.sh BUILD_DIR [CASES [SEED]]}
cases=${2:-1000} seed=${3:-1}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

code=0
"$build/shardfuzz" power --mutants --cases "$cases" --seed "$seed" --json >"$folder/power.json" || code=$?
if [ "$code" -gt 1 ]; then exit 3; fi

PYTHONPATH=$bench python3 - "$folder/power.json" "$cases" "$seed" <<'PY'
import sys

from line import last_object, print_line

mutants = last_object(sys.argv[1])["mutants"]
by_fate = {fate: [m["id"] for m in mutants["searches"] if m["fate"] == fate] for fate in ("equivalent", "survived", "not_reached")}
detect = sorted(m["cases_to_detect"] for m in mutants["searches"] if m["cases_to_detect"])
print_line("bench_mutants", "bench_mutants.sh " + " ".join(sys.argv[2:]), {**mutants["all"],
                  "by_kind": mutants["by_kind"], "cases_to_detect_median": detect[len(detect) // 2] if detect else None,
                  "cases_to_detect_max": detect[-1] if detect else None, "which": by_fate})
PY
