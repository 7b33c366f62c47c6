#!/usr/bin/env bash
# doctor: what it says of this machine, and of one that lacks things.
source tests/integration/common.bash
state_of() { json "next(c['state'] for c in j['checks'] if c['name'] == '$1')"; }
advice_of() { json "next(c['advice'] for c in j['checks'] if c['name'] == '$1')"; }
state() { # CHECK STATE
  local seen
  seen=$(state_of "$1")
  checks=$((checks + 1))
  [ "$seen" = "$2" ] || fail "$1 is '$seen', expected '$2'"
}
doctor() { # VARIABLE=VALUE...: its exit code is as it counts problems
  local code=0
  timeout 300 env "$@" "$SHARDFUZZ" doctor --json >"$work/stdout" 2>"$work/stderr" || code=$?
  is_json "int(j['problems'] > 0)" "$code"
  is_json "j['problems'] == sum(c['state'] == 'problem' for c in j['checks'])" True
  is_json "all((c['state'] == 'ok') == (c['advice'] == '') for c in j['checks'])" True
}
doctor
state program ok
state temporary ok
is_json "len({c['name'] for c in j['checks']}) == len(j['checks']) > 15" True
before=$(json "j['problems']") others="sum(c['state'] == 'problem' and c['name'] not in ('memory', '/dev/shm') for c in j['checks'])" # memory comes and goes
lasting=$(json "$others")

# Each lack in turn.
(ulimit -S -n 100 && "$SHARDFUZZ" doctor --json >"$work/stdout" 2>/dev/null)
state "open files" problem
check "it says how to raise a limit: $(advice_of 'open files')" grep -q 'ulimit -S -n 256' <<<"$(advice_of 'open files')"
is_json "$others - $lasting" 1
doctor TMPDIR=/nowhere
state temporary problem
is_json "$others - $lasting" 1
doctor "SHARDFUZZ_TORCH=$work/nothing"
state torch-train absent
check "it says how to set up a framework: $(advice_of torch-train)" grep -q 'ci/frameworks.sh torch-train' <<<"$(advice_of torch-train)"
mkdir -p "$work/torch/bin" && ln -s "$(type -P true)" "$work/torch/bin/python"
doctor "SHARDFUZZ_TORCH=$work/torch"
state torch-train ok
mkdir "$work/bin"
for tool in mpirun python3; do printf '#!/bin/sh\nexit 1\n' >"$work/bin/$tool"; done
chmod +x "$work/bin"/*
doctor "PATH=$work/bin:$PATH"
state MPI absent
state tracer absent

run "$((before > 0))" doctor
checks=$((checks + 1))
grep -qE '^ok +program +shardfuzz [0-9.]+, commit ' "$work/stdout" || fail "the text begins with: $(head -n 1 "$work/stdout")"
refuses "unexpected argument" doctor now
finish
