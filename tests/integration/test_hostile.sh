#!/usr/bin/env bash
# A worker and files whose names and texts are made to mislead: what is different stays different, and nothing of theirs reaches a report as it is.
source tests/integration/common.bash

launch=(--launcher "$PWD/tests/integration/launch_ranks.sh {n}")
hostile="worker:python3 -S tests/integration/hostile_worker.py"

# --- names that do not fit -------------------------------------------------------------------------------------------
# Each name is a module of its own: a signature, a folder and a known entry of its own.
fuzz_names() { # EXIT OUT ARGUMENT...
  run "$1" fuzz --target "$hostile" --cases 40 --layouts 1 --seed 5 --set ranks=2 --set does=run --shrink-budget 0 --jobs 1 --json --out "$work/$2" "${@:3}" "${launch[@]}"
}
fuzz_names 1 names
is_json 'j["signatures"]' 11
is_json 'max(len(s["signature"].encode()) for s in j["by_signature"]) < 256' True
is_json 'len({s["min"] for s in j["by_signature"]})' 11
is_json 'all(__import__("os").path.exists(s["min"]) for s in j["by_signature"])' True
check "each has a folder" [ "$(find "$work/names" -mindepth 1 -maxdepth 1 -type d | wc -l)" = 11 ]

# A known entry forgives its own module and no other.
json '"[" + ", ".join("{\"signature\": %s}" % json.dumps(s["signature"]) for s in j["by_signature"] if not s["signature"].endswith("1@none")) + "]"' >"$work/known.json"
fuzz_names 1 known --known "$work/known.json"
is_json 'sorted(s["known"] for s in j["by_signature"])' "[False, True, True, True, True, True, True, True, True, True, True]"

finish
