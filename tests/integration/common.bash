# What the tests of the command line share: a folder of its own, checks that say what they saw. Sourced by test_*.sh, which run from the source
# root with SHARDFUZZ naming the executable.
set -uo pipefail
: "${SHARDFUZZ:?names the executable}"
SHARDFUZZ=$(realpath "$SHARDFUZZ")
build=$(dirname "$SHARDFUZZ")
PATH=$build:$PATH # so that lines to replay a case say "shardfuzz"
work=$(mktemp -d "${TMPDIR:-/tmp}/shardfuzz-test-XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0 checks=0

# Cases on which nothing can go wrong but the plant: sums in fp32, one step, plain gradients.
plain=(--set precision.compute=fp32 --mode isolated --set data.grads=normal --set data.acts=normal --set data.weights=normal --set data.exact=off --set train.steps=1)

# Started hundreds of times, for the standard library alone: without looking for packages it takes half as long.
python3() { command python3 -S "$@"; }
fail() {
  echo "FAILED: $*" >&2
  failures=$((failures + 1))
}
check() { # TEXT COMMAND...: the command must succeed
  local text=$1
  shift
  checks=$((checks + 1))
  "$@" || fail "$text: $*"
}
# EXPECTED_EXIT ARGUMENT...: runs shardfuzz, keeps $work/stdout and $work/stderr, checks the exit code
run() {
  local expected=$1 seen=0
  shift
  checks=$((checks + 1))
  timeout 400 "$SHARDFUZZ" "$@" >"$work/stdout" 2>"$work/stderr" || seen=$?
  if [ "$seen" -ne "$expected" ]; then
    fail "shardfuzz $*: exit $seen, expected $expected"
    sed 's/^/    /' "$work/stderr" >&2
  fi
}
# WORD ARGUMENT...: shardfuzz ends with 2 and one line that has the word
refuses() {
  local word=$1
  shift
  run 2 "$@"
  checks=$((checks + 1))
  [ "$(wc -l <"$work/stderr")" -eq 1 ] && grep -qF -- "$word" "$work/stderr" || fail "$*: expected one line with '$word', saw: $(head -c 400 "$work/stderr")"
}
# The last line of stdout as JSON, through a Python expression on j.
json() { tail -n 1 "$work/stdout" | python3 -c "import json, sys; j = json.load(sys.stdin); print(($1))" 2>/dev/null; }
is_json() { # EXPRESSION VALUE
  local seen
  checks=$((checks + 1))
  seen=$(json "$1") || seen="no JSON"
  [ "$seen" = "$2" ] || fail "$1 is '$seen', expected '$2'"
}
no_process_has() { # PATH: no process has it among its arguments; brackets hide the one that looks
  check "no process of $1 is left" [ -z "$(grep -lsa -- "${1%?}[${1: -1}]" /proc/[0-9]*/cmdline)" ]
}
within() { # TENTHS COMMAND...: it succeeds within so many tenths of a second
  local tenths=$1
  shift
  for _ in $(seq "$tenths"); do
    if "$@"; then return 0; fi
    sleep 0.1
  done
  return 1
}
query() { sqlite3 "$1" "$2"; } # STORE SQL
verdicts() { # STORE: index, verdict and class of each case
  python3 - "$1" <<'PYTHON'
import sqlite3, sys
for index, count, verdict, cls in sqlite3.connect(sys.argv[1]).execute("SELECT idx, count, verdict, class FROM verdict ORDER BY idx"):
    for i in range(max(count, 1)):
        print(index + i, verdict, cls)
PYTHON
}
finish() {
  if [ "$failures" -ne 0 ]; then
    echo "$failures of $checks checks failed" >&2
    exit 1
  fi
  echo "$checks checks passed"
}
