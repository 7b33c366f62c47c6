#!/usr/bin/env bash
# Makes the cases of the planted bugs anew, one file each, smallest reproducer first found by a campaign: for when the generator or what a
# signature is made of has changed. The clean-*.json beside them are written by hand.
#   corpus/regress/make.sh SHARDFUZZ [PLANT...]
set -euo pipefail
shardfuzz=$(realpath "$1")
shift
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ $# -eq 0 ]; then mapfile -t plants < <("$shardfuzz" list plants | cut -d' ' -f1); else plants=("$@"); fi
for plant in "${plants[@]}"; do
  options=(--cases 300 --seed 1 --max-ranks 4 --shrink-budget 2000)
  # A hang costs its deadline each time.
  if [ "$plant" = canary-hang ]; then options+=(--cases 4 --deadline 500ms --set train.steps=1); fi
  "$shardfuzz" fuzz --plant "$plant" "${options[@]}" --store "$work/$plant.sqlite" --out "$work/$plant" 2>/dev/null || [ $? -eq 1 ]
  signature=$(sqlite3 "$work/$plant.sqlite" "SELECT signature FROM finding WHERE min_json IS NOT NULL ORDER BY idx LIMIT 1")
  cp "$work/$plant/${signature//\//-}/min.json" "$folder/plant-$plant.json"
  echo "$plant: $signature"
done
