#!/usr/bin/env bash
# The figures of harness/docs/tolerance.md are those that tests/bench/oracles/plot_tolerance.py draws of the figures beside it.
set -euo pipefail
python3 tests/bench/oracles/plot_tolerance.py --check
