#!/usr/bin/env bash
# Searches the sample kernels of a GPU (kernels.cu) for their bugs: each is found and shrunk, and the sound ones have no finding.
#   tests/plugins/gpu/search.sh BUILD
set -euo pipefail
build=$(realpath "${1:?names the build}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
search() { # NAME EXIT [TEXT...]: the texts stand in the names or the smallest cases of its findings
  local name=$1 expected=$2 seen=0
  shift 2
  "$build/shardfuzz" fuzz --target "plugin:$build/plugins/gpu_$name.so" --cases 2000 --time 2m --seed 1 --shrink-budget 2000 --out "$work/$name" >"$work/log" 2>&1 || seen=$?
  for text in "$@"; do
    grep -qr -- "$text" "$work/$name"/*/min.json || seen="$seen, without $text"
  done
  echo "$name: exit $seen"
  [ "$seen" = "$expected" ] || { failures=$((failures + 1)) && cat "$work/log" >&2; }
}
search sound 0
search race 1 '"unrepeatable/col_sum/out"' '"rows":17,"cols":1,'
search grid_limit 1 '"unwritten/bias_add/y"' '"rows":65536,"cols":1,'
search stale_shared 1 '/sum_squares/sum"'
exit $((failures > 0))
