#!/usr/bin/env bash
# Shares of pairs and triples of choices that a campaign's first cases have run: prints its JSON line.
#   tests/bench/bench_pairs.sh BUILD_DIR [CASES [SEED]]
set -euo pipefail

build=${1:?usage: bench_pairs.sh BUILD_DIR [CASES [SEED]]}
cases=${2:-2000} seed=${3:-1}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

code=0
"$build/shardfuzz" fuzz --cases "$cases" --seed "$seed" --out "$folder/out" --json >"$folder/fuzz.json" || code=$?
if [ "$code" -gt 1 ]; then exit 3; fi

python3 - "$folder/fuzz.json" "$cases" "$seed" <<'PY'
import json
import os
import subprocess
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    summary = json.loads(file.read().strip().splitlines()[-1])
commit = os.environ.get("SF_BENCH_COMMIT") or subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
print(json.dumps({"bench": "bench_pairs", "commit": commit, "command": "bench_pairs.sh " + " ".join(sys.argv[2:]), **summary}))
PY
