#!/usr/bin/env bash
# A target that crashes, hangs, deadlocks or calls a collective wrongly is a finding with a reproducer; the campaign goes on, and --trace keeps
# what was recorded before.
source tests/integration/common.bash

# The labels at which the canaries stand in the table of plants.
label() { case $1 in crash | hang) echo parallel_mlp.bwd.canary ;; *) echo finalize_grads.canary_"$1" ;; esac; }

# A worker that is alive but slow must not look like one that hangs: only the hang test has a short deadline, and few cases.
cases=8
for class in crash deadlock mismatch hang; do
  options=(--plant "canary-$class" --shrink-budget 40 --max-ranks 4)
  count=$cases
  if [ $class = hang ]; then
    options+=(--deadline 300ms --shrink-budget 6 --set model.layers=1 --set model.hidden=8..16 --set train.steps=1)
    count=5
  fi
  run 1 fuzz --cases $count --seed 4 "${options[@]}" --out "$work/$class" --store "$work/$class.sqlite" --json
  is_json 'j["cases"]' "$count"
  is_json 'j["cases"] == j["passed"] + j["findings"] + j["inconclusive"] + j["skipped"]' True
  is_json 'j["flaky"]' 0
  case $class in
  crash) is_json 'j["crashed"] == j["findings"] == j["cases"]' True ;;
  hang) is_json 'j["hung"] == j["findings"] == j["cases"]' True ;;
  *) is_json 'j["findings"] > 2 and j["crashed"] == j["hung"] == 0' True ;;
  esac
  check "every finding is a $class" [ "$(query "$work/$class.sqlite" "SELECT DISTINCT class FROM verdict WHERE verdict = 'FINDING'")" = $class ]
  check "every finding names the place" [ "$(query "$work/$class.sqlite" "SELECT DISTINCT label FROM verdict WHERE class = '$class'")" = "$(label $class)" ]
  check "every finding has a rank" [ "$(query "$work/$class.sqlite" "SELECT count(*) FROM verdict WHERE class = '$class' AND rank < 0")" -eq 0 ]

  reproducers=$(find "$work/$class" -name min.json | sort)
  check "there is a reproducer" [ -n "$reproducers" ]
  for min in $reproducers; do
    run 1 replay "$min" --deadline 1s --json
    is_json 'j["as_expected"], j["class"], j["first"]["label"], j["first"]["rank"] >= 0' "(True, '$class', '$(label $class)', True)"
  done
  check "the report names the reproducer" grep -q "replay  *shardfuzz replay '$min'" "$(dirname "$min")/report.txt"

  # With --trace the verdict is the same, and everything before the failure is there.
  run 1 replay "$min" --deadline 1s --trace "$work/trace-$class" --json
  is_json 'j["as_expected"], j["class"]' "(True, '$class')"
  run 0 replay "$min" --plant none --trace "$work/trace-clean"
  checks=$((checks + 1))
  python3 - "$work/trace-$class" "$work/trace-clean" <<'P' || fail "the trace of canary-$class"
import json, pathlib, struct, sys
def read(folder):
    tensors = {}
    for path in sorted(pathlib.Path(folder).iterdir()):
        data = path.read_bytes()
        size, = struct.unpack("<Q", data[:8])
        header = json.loads(data[8:8 + size])
        maps = json.loads(header.pop("__metadata__")["shardfuzz"])["tensors"]
        assert set(maps) == set(header), path
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            tensors[path.name, name] = data[8 + size + begin:8 + size + end]
    return tensors
failed, clean = read(sys.argv[1]), read(sys.argv[2])
assert 0 < len(failed) < len(clean), (len(failed), len(clean))
wrong = [key for key, value in failed.items() if clean[key] != value]
assert not wrong, wrong[:3]
P
done

# Interrupted while a case hangs: the answer does not wait for its deadline. A finding that is not confirmed and a case without a verdict are left.
children() { ps --ppid "$1" -o pid= 2>/dev/null; }
is_shrinking() { # PID: the process of a worker of its, below the one that watches it, has workers of its own
  local child grandchild
  for child in $(children "$1"); do
    for grandchild in $(children "$child"); do
      if [ -n "$(children "$grandchild")" ]; then return 0; fi
    done
  done
  return 1
}
is_running() { [ -n "$(children "$1")" ]; }
# SIGNAL DEADLINE UNTIL EXIT: starts a campaign of one hanging case, waits until it is that far, and interrupts it
interrupt() {
  local pid began seen=0
  "$SHARDFUZZ" fuzz --plant canary-hang --cases 1 --jobs 1 --max-ranks 2 --deadline "$2" --out "$work/stop-$3" --store "$work/stop-$3.sqlite" --json >"$work/stdout" 2>"$work/stderr" &
  pid=$!
  for _ in $(seq 300); do
    if "$3" $pid || ! kill -0 $pid 2>/dev/null; then break; fi
    sleep 0.1
  done
  sleep 0.3
  check "$3: the case hangs" kill -0 $pid
  kill -"$1" $pid
  (sleep 15 && kill -KILL $pid) >/dev/null 2>&1 & # ctest waits for whoever holds its pipe, and the sleep outlives this test
  wait $pid || seen=$?
  kill $! 2>/dev/null
  check "$3: it ends at once by itself: exit $seen" [ $seen -eq "$4" ]
}
interrupt TERM 1s is_shrinking 143
is_json 'j["cases"], j["by_signature"], j["waiting"], j["interrupted"]' "(0, [], 1, True)"
check "the finding is left for --resume" grep -qxF '1 finding is not confirmed yet, the first in case 0: --resume runs its case again' "$work/stderr"
interrupt INT 60s is_running 130
is_json 'j["cases"], j["waiting"], j["interrupted"]' '(0, 0, True)'
check "the case is left for --resume" [ "$(query "$work/stop-is_running.sqlite" "SELECT value FROM meta WHERE key = 'high_water'")" = 1 ]
finish
