#!/usr/bin/env bash
# Campaigns under the faults of tests/faults/plans.txt judge and find what a campaign left alone does.
source tests/integration/common.bash

plans=()
while read -r line; do
  case $line in '' | '#'*) ;; *) plans+=(--plan "$line") ;; esac
done <tests/faults/plans.txt
check "there are plans" [ ${#plans[@]} -gt 10 ]
check "the laws hold" python3 tests/faults/run.py --program "$SHARDFUZZ" "${plans[@]}"
finish
