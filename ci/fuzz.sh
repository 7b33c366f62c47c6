#!/usr/bin/env bash
# Builds shardfuzz and fuzzes for a minute on every core. Arguments go to `shardfuzz fuzz`; the last of two equal options counts:
#   ci/fuzz.sh --time 10m --seed 7
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

ci/setup.sh
cmake -G Ninja -S . -B build -DCMAKE_BUILD_TYPE=Release >&2
ninja -C build shardfuzz >&2
exec build/shardfuzz fuzz --time 60s --out findings --jobs "$jobs" "$@"
