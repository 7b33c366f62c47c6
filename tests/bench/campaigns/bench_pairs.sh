#!/usr/bin/env bash
# Shares of pairs and triples of choices that a campaign's first cases have run: prints its JSON line.
#   tests/bench/campaigns/bench_pairs.sh BUILD_DIR [CASES [SEED]]
set -euo pipefail

bench=$(cd "$(dirname "$0")/.." && pwd)
build=${1:?usage: bench_pairs.sh BUILD_DIR [CASES [SEED]]}
cases=${2:-2000} seed=${3:-1}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

code=0
"$build/shardfuzz" fuzz --cases "$cases" --seed "$seed" --out "$folder/out" --json >"$folder/fuzz.json" || code=$?
if [ "$code" -gt 1 ]; then exit 3; fi

PYTHONPATH=$bench python3 - "$folder/fuzz.json" "$cases" "$seed" <<'PY'
import sys

from line import last_object, print_line

summary = last_object(sys.argv[1])
print_line("bench_pairs", "bench_pairs.sh " + " ".join(sys.argv[2:]), summary)
PY
