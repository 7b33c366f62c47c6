#!/usr/bin/env bash
# Planted bugs (not the canaries) searched for blind, and clean cases beside them: prints power's JSON line with what it says in sum.
#   tests/bench/campaigns/bench_plants.sh BUILD_DIR [SEEDS [CASES [BUDGET [CLEAN]]]]
set -euo pipefail

bench=$(cd "$(dirname "$0")/.." && pwd)
build=${1:?usage: bench_plants.sh BUILD_DIR [SEEDS [CASES [BUDGET [CLEAN]]]]}
seeds=${2:-5} cases=${3:-200} budget=${4:-300} clean=${5:-2000}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

plants=()
while read -r id _; do
  if [[ $id != canary-* ]]; then plants+=(--plant "$id"); fi
done < <("$build/shardfuzz" list plants)

code=0
"$build/shardfuzz" power "${plants[@]}" --seeds "$seeds" --cases "$cases" --shrink-budget "$budget" --clean "$clean" --json >"$folder/power.json" || code=$?
if [ "$code" -gt 1 ]; then exit 3; fi

PYTHONPATH=$bench python3 - "$folder/power.json" "$seeds" "$cases" "$budget" "$clean" <<'PY'
import sys

from line import last_object, print_line

power = last_object(sys.argv[1])
plants = power["plants"]
searches = [search for plant in plants for search in plant["searches"]]
found = sum(bool(search["cases_to_detect"]) and search["cases_to_detect"] > 0 for search in searches)
detect = sorted(search["cases_to_detect"] for search in searches if search["cases_to_detect"])
evaluations = sorted(search["evaluations"] for search in searches if search["cases_to_detect"])
always = {flag: {p["id"] for p in plants if all(s.get(flag) for s in p["searches"])} for flag in ("diagnosed", "minimal")}
clean = power["clean"]
print_line("bench_plants", "bench_plants.sh " + " ".join(sys.argv[2:]), {"plants": len(plants),
                  "searches": len(searches), "found": found, "localised_at_first_divergence": sum(bool(s.get("localised")) for s in searches),
                  "found_by_flat_bound": sum(bool(s.get("flat_cases_to_detect")) for s in searches),
                  "shrunk_to_minimal": sum(bool(s.get("minimal")) for s in searches),
                  "missed": sorted({p["id"] for p in plants if not p["detected"]}),
                  "cases_to_detect_median": detect[len(detect) // 2] if detect else None, "cases_to_detect_max": detect[-1] if detect else None,
                  "evaluations_median": evaluations[len(evaluations) // 2] if evaluations else None,
                  "class_named": sorted(always["diagnosed"]), "class_not_named": sorted({p["id"] for p in plants} - always["diagnosed"]),
                  "not_minimal": sorted({p["id"] for p in plants} - always["minimal"]),
                  "flat_alarm_share": clean["flat_alarms"] / max(1, clean["flat_cases"]),
                  "not_localised": sorted({p["id"] for p in plants if p["detected"] and not p.get("localised")}), "power": power})
PY
