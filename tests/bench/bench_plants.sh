#!/usr/bin/env bash
# Planted bugs searched for blind, and clean cases beside them: prints power's JSON line with what it says in sum.
#   tests/bench/bench_plants.sh BUILD_DIR [SEEDS [CASES [BUDGET [CLEAN]]]]
set -euo pipefail

build=${1:?usage: bench_plants.sh BUILD_DIR [SEEDS [CASES [BUDGET [CLEAN]]]]}
seeds=${2:-5} cases=${3:-200} budget=${4:-300} clean=${5:-2000}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

code=0
"$build/shardfuzz" power --seeds "$seeds" --cases "$cases" --shrink-budget "$budget" --clean "$clean" --json >"$folder/power.json" || code=$?
if [ "$code" -gt 1 ]; then exit 3; fi

python3 - "$folder/power.json" "$seeds" "$cases" "$budget" "$clean" <<'PY'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    power = json.loads(file.read().strip().splitlines()[-1])
plants = power["plants"]
print(json.dumps({"bench": "bench_plants", "command": "bench_plants.sh " + " ".join(sys.argv[2:]), "searches": len(plants),
                  "detected": sum(bool(p["detected"]) for p in plants), "localised": sum(bool(p.get("localised")) for p in plants),
                  "missed": sorted({p["id"] for p in plants if not p["detected"]}),
                  "not_localised": sorted({p["id"] for p in plants if p["detected"] and not p.get("localised")}), "power": power}))
PY
