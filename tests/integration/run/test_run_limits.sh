#!/usr/bin/env bash
# A limit of the machine (ulimit) is told by its name, and is no fault of what is tested.
source tests/integration/common.bash

cat >"$work/little" <<LITTLE
#!/bin/sh
ulimit -v 300000 && exec "$SHARDFUZZ" "\$@"
LITTLE
chmod +x "$work/little"
if ! "$work/little" list presets >/dev/null 2>&1; then
  echo "skipped: the sanitizers do not start with so little"
  exit 77
fi
whole=$SHARDFUZZ
faulty="python3 -S $PWD/tests/integration/faulty_worker.py" # -S: as in common.bash
launch=(--launcher "$PWD/tests/integration/launch_ranks.sh {n}")

limited() { # EXIT ULIMIT WORD ARGUMENT...
  local expected=$1 limits=$2 word=$3
  shift 3
  printf '#!/bin/sh\nulimit %s && exec "%s" "$@"\n' "$limits" "$whole" >"$work/limited"
  chmod +x "$work/limited"
  SHARDFUZZ=$work/limited run "$expected" "$@" --json
  check "ulimit $limits: '$word' is told: $(tail -n 3 "$work/stderr")" grep -qE -- "$word" "$work/stderr"
}
limited_fuzz() { # the same of a campaign, which finds nothing
  limited "$1" "$2" "$3" fuzz "${@:4}" --out "$work/limited.out"
  check "ulimit $2: no finding" [ -z "$(find "$work/limited.out" -name report.txt 2>/dev/null)" ]
  rm -rf "$work/limited.out"
}

(
  unset OPENBLAS_NUM_THREADS
  for limit in 150000 200000; do # with several threads OpenBLAS hangs in the first one before main begins
    limited_fuzz 3 "-v $limit" '^shardfuzz: too little address space: .* raise ulimit -v' --cases 2 --seed 1
  done
  [ "$failures" -eq 0 ]
) || fail "address space"
limited_fuzz 3 "-s 128" '^shardfuzz: too small a stack: .* raise ulimit -s' --cases 2 --seed 1

# Processor time.
limited_fuzz 3 "-t 1" '^shardfuzz: too little processor time: .* raise ulimit -t' --cases 2 --seed 1
limited_fuzz 3 "-S -t 1" 'nothing was judged: 1 inconclusive \(last: the process used up its processor time \(ulimit -t\)' --target "plugin:$build/plugins/layer_fault_hang.so" \
  --cases 1 --set layout.tp=2 --max-ranks 2 --set model.layers=1 --set model.seq=32 --jobs 1 --seed 3
# Operations: a case that alone takes all of it; and many, which take several processes.
hangs=$build/plugins/fault_hang.so
limited_fuzz 0 "-S -t 1" '^last inconclusive: the process used up its processor time \(ulimit -t\): raise the limit' --target "plugin:$hangs" --cases 600 --jobs 1 --seed 1
is_json "j['passed'], j['inconclusive'], j['findings']" "(599, 1, 0)"
run 0 fuzz --target "plugin:$hangs" --dry-run --cases 600 --seed 1
grep -m 1 -E '"count": (6553[5-9]|[0-9]{6})' "$work/stdout" >"$work/hang.json"
limited 0 "-S -t 1" '^verdict      INCONCLUSIVE: the process used up its processor time \(ulimit -t\)' replay "$work/hang.json"
is_json "j['verdict']" INCONCLUSIVE
limited_fuzz 0 "-S -t 1" '^24000 cases .* 24000 passed, 0 findings, 0 inconclusive' --target op:all --cases 24000 --jobs 1 --seed 1
# Ranks of a framework: a case that alone takes all of it, and one that only falls when its set is old.
case_of() { echo "{\"ranks\": 2, \"tokens\": $2, \"fault\": \"$1\", \"where\": 1}"; }
case_of burn 1 >"$work/burn.jsonl"
limited 3 "-S -t 2" '^shardfuzz: nothing was judged: 1 inconclusive' worker "$faulty" "$work/burn.jsonl" "${launch[@]}" --record "$work/burn.record"
check "which limit: $(cat "$work/burn.record")" grep -q '"verdict":"INCONCLUSIVE","class":"time","run":"candidate".*"reason":"the ranks used up their processor time (ulimit -t): raise the limit: ' "$work/burn.record"
for tokens in 1 2 3 4; do case_of burn-some "$tokens"; done >"$work/some.jsonl"
limited 0 "-S -t 2" '^4 cases .* 4 passed, 0 findings, 0 inconclusive' worker "$faulty" "$work/some.jsonl" "${launch[@]}"
is_json "j['ended_early'] > 0" True
(case_of burn-some 1; case_of burn-some 2; case_of burn-then-crash 3) >"$work/crash.jsonl"
limited 1 "-S -t 4" '^3 cases .* 2 passed, 1 finding, 0 inconclusive' worker "$faulty" "$work/crash.jsonl" "${launch[@]}"

# Open files.
limited_fuzz 3 "-n 6" 'cannot open: Too many open files \(the limit on open files is 6: raise ulimit -n\)$' --cases 2 --seed 1
limited_fuzz 3 "-n 9" '^shardfuzz: processes could not be started: Too many open files \(the limit on open files is 9: raise ulimit -n\)' --cases 2 --seed 1
limited_fuzz 3 "-n 12" '^shardfuzz: processes could not be started: Too many open files \(the limit on open files is 12: raise ulimit -n\)' --target op:gelu_fwd --cases 2 --jobs 16
sample=(--target "worker:python3 -S $PWD/targets/samples/worker_mlp.py" --cases 2 --seed 1 --jobs 1 --set ranks=4 --set bug=none "${launch[@]}")
limited_fuzz 3 "-n 16" 'nothing was judged: 2 inconclusive .*Too many open files \(the limit on open files is 16: raise ulimit -n\)' "${sample[@]}"

# Processes, which the system counts for each user but root.
user=$((70000 + $$ % 10000))
chmod 755 "$work"
mkdir -m 777 "$work/user"
if [ "$(id -u)" -eq 0 ] && setpriv --reuid=$user --clear-groups test -x "$whole" -a -r targets/samples/worker_mlp.py 2>/dev/null; then
  few() { # NUMBER WORD ARGUMENT...: exit 3
    local number=$1 word=$2
    shift 2
    printf '#!/bin/bash\nulimit -u %s && exec setpriv --reuid=%s --clear-groups "%s" "$@"\n' "$number" "$user" "$whole" >"$work/few"
    chmod +x "$work/few"
    SHARDFUZZ=$work/few run 3 fuzz "$@" --out "$work/user/out" --json
    check "ulimit -u $number: '$word' is told: $(tail -n 3 "$work/stderr")" grep -qE -- "$word" "$work/stderr"
    check "ulimit -u $number: no finding" [ -z "$(find "$work/user" -name report.txt)" ]
  }
  export OPENBLAS_NUM_THREADS=1
  few 1 '^shardfuzz: processes could not be started: .* \(the limit on processes is 1: raise ulimit -u\)' --cases 2 --seed 1
  few 3 '^shardfuzz: the worker does not describe itself: a set of ranks could not be started: .* \(the limit on processes is 3: raise ulimit -u\)' "${sample[@]}"
  few 14 'nothing was judged: 2 inconclusive .*: no more processes can be started: .* \(the limit on processes is 14: raise ulimit -u\)' "${sample[@]}"
else
  echo "(no other user can run the program here: a limit on processes was not tried)"
fi
finish
