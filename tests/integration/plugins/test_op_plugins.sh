#!/usr/bin/env bash
# Sample plugins: each planted bug is found within 500 cases, rare ones within 2,000, and shrunk to the smallest failing shape, each fault ends in a finding or in one
# line, kernels without a bug pass; what was found replays.
source tests/integration/common.bash
plugins=$build/plugins

# FILE [OPTIONS]: the dimensions of its case.
shape_of() { "$SHARDFUZZ" replay "$@" --json 2>/dev/null | python3 -c 'import json, sys; print(" ".join(f"{k}={v}" for k, v in json.loads(sys.stdin.readlines()[-1])["shape"].items()))'; }

# NAME SIGNATURE SHAPE [CASES]: the signature must be among the findings, shrunk to the shape ("rows=1 cols=2").
found() {
  local out=$work/$1 shape deadline=()
  if [[ $2 == hang/* ]]; then deadline=(--deadline 300ms); fi # what is only slow, on a busy machine, must not look like a hang
  rm -rf "$out"
  run 1 fuzz --target "plugin:$plugins/$1.so" --cases "${4:-500}" "${deadline[@]}" --seed 1 --out "$out" --json
  shape=$(shape_of "$out/${2//\//-}/min.json" "${deadline[@]}")
  check "$1: smallest failing shape '$shape', expected '$3'" [ "$shape" = "$3" ]
  [[ $2 == hang/* ]] || is_json "all(s['shrunk']['minimal'] for s in j['by_signature'])" True # each trial of a hang costs a deadline: few are made
  run 1 replay "$out/${2//\//-}/min.json" "${deadline[@]}" --json
  is_json "j['as_expected']" True
}

found epsilon_outside tolerance/norm_fwd/y "rows=1 cols=1"
run 1 replay "$work/epsilon_outside/tolerance-norm_fwd-y/case.json" --html "$work/page.html"
check "a page has the wrong output: expected, got and difference" [ "$(grep -o '<svg' "$work/page.html" | wc -l)" -eq 3 ]
found one_pass_variance tolerance/norm_fwd/y "rows=1 cols=2"
found softmax_no_max tolerance/softmax_fwd/p "rows=1 cols=1"
found tail_skipped unwritten/add/out "count=9"
found grid_limit unwritten/bias_add/y "rows=65536 cols=1" 2000
found bf16_accumulation tolerance/col_sum/out "rows=1 cols=1"
found rotary_interleaved tolerance/rotate/y "rows=1 half=2"
found causal_off_by_keys tolerance/softmax_fwd/p "rows=1 cols=2"
found ce_grad_unmasked tolerance/ce_grad/dlogits "rows=1 cols=1"
found embedding_duplicates tolerance/embedding_bwd/dw "rows=2 cols=1 vocab=1"
found gemm_stale_beta tolerance/gemm/c "m=1 n=5 k=0"
found amax_signed tolerance/amax/amax "count=1"
found stochastic_biased tolerance/round_stochastic/w "count=1"
found partial_sum_race unrepeatable/col_sum/out "rows=17 cols=1"
found index_overflow crash/rotate "rows=2 half=1" 2000
found fault_second_entry tolerance/add/out "count=4"
found fault_second_entry tolerance/norm_fwd/y "rows=1 cols=2"
check "the other two are right: $(ls "$work/fault_second_entry")" [ "$(ls -d "$work"/fault_second_entry/*/ | xargs -n 1 basename | tr '\n' ' ')" = "tolerance-add-out tolerance-norm_fwd-y " ]
found swiglu_halves tolerance/swiglu_bwd/dx "rows=1 cols=1"

# It kills its process group, after leaving processes behind: in a session of its own, lest it takes this test along where it can.
setsid -w "$SHARDFUZZ" fuzz --target "plugin:$plugins/fault_forks.so" --cases 10 --seed 1 --shrink-budget 5 --out "$work/fault_forks" --json >"$work/stdout" 2>"$work/stderr"
is_json "[(s['signature'], s['count']) for s in j['by_signature']], j['passed']" "([('crash/add', 9)], 1)"
no_process_has "$work/fault_forks"
told() { check "$1: told: $(cat "$work/$1"/*/report.txt)" grep -q "$2" "$work/$1"/*/report.txt; } # NAME TEXT
told fault_forks "the process ended by signal 9"

found fault_out_of_bounds guard/relu2_fwd/y "count=1"
found fault_input_changed input/relu2_bwd/x "count=1"
found fault_returns_error refused/add "count=16" 2000
run 1 fuzz --target "plugin:$plugins/fault_returns_error.so" --cases 1000000000 --stop-after 1 --seed 1 --out "$work/enough" --json
is_json 'j["cases"] < 1000000' True
found fault_crash crash/add "count=3" 300
told fault_out_of_bounds "it writes right behind output y"
found fault_writes_behind guard/add/out "count=5" 200
told fault_writes_behind "it writes 156 bytes behind output out, where the process ended"
found fault_reads_behind crash/bias_add/x "rows=1 cols=1" 100
told fault_reads_behind "it reads 60 bytes behind input x, where the process ended by signal 11"
found fault_reads_in_front crash/add/b "count=1" 100
told fault_reads_in_front "it reads 70000 bytes in front of input b"
found fault_flushes rounding/add "count=7"
check "what was left is told" grep -q 'floating-point mode changed: ' "$work/fault_flushes/rounding-add/report.txt"
check "what loading sets is put back: $(ls "$work/fault_flushes")" [ "$(ls -d "$work"/fault_flushes/*/)" = "$work/fault_flushes/rounding-add/" ]
found fault_free crash/add "count=0" 100
told fault_free "having said: .*invalid pointer"
found fault_hang hang/add "count=65535" 600
if [ -e "$plugins/fault_exception.so" ]; then
  found fault_exception crash/add "count=5" 100
  check "what a plugin prints is passed on to stderr" grep -q 'terminate called after throwing' "$work/stderr"
  check "the exception's text is told" grep -q 'no kernel for this width' "$work/fault_exception/crash-add/report.txt"
fi

# --- no finding, and the same cases with any number of processes ---------------------------------------------------------------
run 0 fuzz --target "plugin:$plugins/sound.so" --cases 6000 --out "$work/sound" --json
is_json "j['passed'] + j['skipped'] == j['cases'] == 6000 and j['skipped'] > 0" True
check "a campaign without findings writes its store alone" [ "$(ls "$work/sound")" = campaign-0001.sqlite ]
# Nothing was tried, which is no success.
run 3 fuzz --target "plugin:$plugins/sound_takes_nothing.so" --cases 50 --jobs 2 --out "$work/nothing" --json
check "nothing was judged" grep -qx 'shardfuzz: every case was skipped: the plugin does not take the case' "$work/stderr"
is_json "j['cases'], j['skipped'], j['passed'], j['by_signature'], j['reason']" "(50, 50, 0, [], 'every case was skipped: the plugin does not take the case')"
run 0 fuzz --target "plugin:$plugins/sound_orders.so" --cases 40000 --max-elements 600 --seed 1 --out "$work/sound" --json
is_json "j['passed']" 40000
for jobs in 1 3; do
  run 1 fuzz --target "plugin:$plugins/tail_skipped.so" --cases 3000 --jobs $jobs --out "$work/jobs$jobs" --json
  json "[(s['signature'], s['count'], s['first_index']) for s in j['by_signature']]" >"$work/jobs$jobs.txt"
done
check "one process or three: the same findings" cmp "$work/jobs1.txt" "$work/jobs3.txt"
check "one process or three: the same smallest case" cmp "$work/jobs1/unwritten-add-out/min.json" "$work/jobs3/unwritten-add-out/min.json"

# --- a case on another library, or on the device --------------------------------------------------------------------------------
whole=$work/tail_skipped/unwritten-add-out/case.json
for mended in "plugin:$plugins/sound.so" op:add; do
  run 0 replay "$whole" --target "$mended" --json
  is_json "j['verdict'], j['as_expected']" "('PASS', False)"
done
sed 's/tail_skipped/gone/' "$whole" >"$work/gone.json"
refuses "No such file" replay "$work/gone.json"
run 1 replay "$work/gone.json" --target "plugin:$plugins/tail_skipped.so" --json
is_json "j['as_expected']" True
refuses "has no 'add'" replay "$whole" --target "plugin:$plugins/one_pass_variance.so"
refuses "'add'" replay "$whole" --target op:gelu_fwd
refuses "op:NAME or plugin:LIB.so" replay "$whole" --target builtin
for option in --table "--plant none" "--script $work/s" "--launcher mpirun" "--backend mpi"; do
  refuses "${option%% *} is not for operations" replay "$whole" $option
done

# --- shrink ----------------------------------------------------------------------------------------------------------------------
run 1 shrink "$whole" -o "$work/min.json" --json
is_json "j['signature'], j['case']['case']['count'], j['minimal']" "('unwritten/add/out', 9, True)"
check "shrinking a case and shrinking in a campaign give the same" cmp "$work/min.json" "$work/tail_skipped/unwritten-add-out/min.json"
run 1 shrink "$work/gone.json" -o "$work/moved.json" --target "plugin:$plugins/tail_skipped.so" --budget 3 --json
is_json "j['minimal'], j['evaluations']" "(False, 3)"
check "the shrunk case names its target" grep -q "plugin:$plugins/tail_skipped.so" "$work/moved.json"
run 0 shrink "$whole" -o "$work/none.json" --target "plugin:$plugins/sound.so" --json
is_json "j['verdict'], j['min']" "('PASS', None)"
check "nothing shrunk is nothing written" [ ! -e "$work/none.json" ]

# --- what went into an element ---------------------------------------------------------------------------------------------------
sum=$work/bf16_accumulation/tolerance-col_sum-out
check "a small finding's inputs" grep -qx 'from         x\[0, :\] -0.567980289' "$sum/report.txt"
run 1 replay "$sum/case.json" --trace "$work/operands"
check "a large finding's largest inputs" grep -qE '^from         x\[:, [0-9]+\] of [0-9]+ the largest \[[0-9]+, [0-9]+\] .*, .*, ' "$work/stdout"
check "how to have them all" grep -q '^operands .* --trace DIR' "$work/stdout"
cat >"$work/operands.py" <<'PY'
import struct, sys, json
raw = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", raw[:8])[0]
head = json.loads(raw[8:8 + size])
def read(name):
    entry = head[name]
    low, high = entry["data_offsets"]
    return entry["shape"], [v[0] for v in struct.iter_unpack("<f" if entry["dtype"] == "F32" else "<d", raw[8 + size + low:8 + size + high])]
(rows, cols), x = read("in.x")
_, before = read("in.out")
_, want = read("want.out")
_, bound = read("bound.out")
for j in range(cols):
    total = before[j] + sum(x[i * cols + j] for i in range(rows))
    # an infinite bound stands where nothing is judged
    assert bound[j] == float("inf") or abs(total - want[j]) <= bound[j] or total != total and want[j] != want[j], (j, total, want[j], bound[j])
print(any(b < float("inf") for b in bound))
PY
check "the file's sums are those wanted" [ "$(python3 "$work/operands.py" "$work/operands/operands.safetensors")" = True ]
refuses "$work/gone.json" replay "$whole" --target op:add --trace "$work/gone.json"

# --- known findings, cases without running them ----------------------------------------------------------------------------------
skipped=plugin:$plugins/tail_skipped.so
printf '[{"signature": "unwritten/add/out", "note": "as shipped", "case": %s}]' "$(cat "$whole")" >"$work/known.json"
run 1 fuzz --target "$skipped" --cases 500 --known "$work/known.json" --out "$work/known" --json
is_json "sorted((s['signature'], s['known']) for s in j['by_signature'])" "[('tolerance/add/out', False), ('unwritten/add/out', True)]"
sed 's/unwritten/tolerance/' "$work/known.json" | python3 -c 'import json, sys; print(json.dumps(json.load(sys.stdin) + json.load(open(sys.argv[1]))))' "$work/known.json" >"$work/all.json"
run 0 fuzz --target "$skipped" --cases 500 --known "$work/all.json" --out "$work/known" --json
is_json "j['findings'] > 0 and all(s['known'] for s in j['by_signature'])" True
run 0 fuzz --target "$skipped" --cases 5 --dry-run
check "a line for each case" [ "$(grep -c '^{"schema": 1, .*"operation": "add"' "$work/stdout")" -eq 5 ]
head -n 1 "$work/stdout" >"$work/drawn.json"
run 1 replay "$work/drawn.json" --json
check "a drawn case is the campaign's" cmp "$work/drawn.json" <(python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); del d["expect"]; print(json.dumps(d))' "$whole")
refuses "--dry-run needs --cases" fuzz --target "$skipped" --dry-run
for option in "--set count=3" "--layouts 2" "--max-memory 100" "--mode=e2e" "--plant none" "--launcher mpirun"; do
  refuses "${option%%[ =]*} is not for operations" fuzz --target "$skipped" --cases 5 $option
done

# --- what cases, operations and targets are --------------------------------------------------------------------------------------
run 0 describe "$work/gone.json" # the library need not be there
check "an operand of a case" grep -qE '^in +b: 1 x [0-9]+, fp32, far, begins 11 elements after an aligned address$' "$work/stdout"
check "what it expects" grep -qx 'expected     FINDING unwritten/add/out' "$work/stdout"
check "its formula" grep -qx '  out = a + b' "$work/stdout"
run 0 list operations --formulas
check "formulas of all operations" [ "$(grep -c '; case format ' "$work/stdout")" -eq "$("$SHARDFUZZ" list operations | wc -l)" ]
check "an operand of a formula" grep -qx '  in    b           case   cols if norm bias' "$work/stdout"
refuses "--formulas is only for operations" list plants --formulas
run 0 list features --target "plugin:$plugins/sound.so"
check "what a plugin takes" grep -qx 'col_sum              fp32, bf16, fp16; cols up to 64; cols a multiple of 2; strided; unaligned; in place' "$work/stdout"
run 0 list features --target "plugin:$plugins/layer_fc1_sound.so"
check "ranges of layers" grep -qE '^model.activation +2$' "$work/stdout"
refuses "No such file" list features --target "plugin:$work/none.so"

# --- the gate --------------------------------------------------------------------------------------------------------------------
mkdir "$work/corpus"
cp "$work/min.json" "$work/corpus/found.json"
echo '{"schema": 1}' >"$work/corpus/layers.json"
echo '{"schema": 1, "target": "op:add", "operation": "add", "case": {"count": 5}, "expect": {"verdict": "PASS"}}' >"$work/corpus/device.json"
gate() { run "$1" gate --corpus "$work/corpus" --out "$work/gate" --seed 1 --json "${@:2}"; }
gate 0 --cases 2 --set model.layers=1 --max-ranks 1
is_json "j['corpus'], j['items'], j['campaign']['cases']" "(3, [], 2)"
gate 1 --cases 500 --target "$skipped" --known "$work/known.json" --summary "$work/summary.md" --junit "$work/junit.xml"
is_json "sorted((i['name'], i['state']) for i in j['items'])" "[('tolerance/add/out', 'new'), ('unwritten/add/out', 'known')]"
run 1 replay "$work/gate/tolerance-add-out/min.json" --json
is_json "j['as_expected']" True
check "JUnit is XML" xmllint --noout "$work/junit.xml"
check "the summary has the report" grep -q '^what         out\[' "$work/summary.md"
gate 0 --cases 500 --target "$skipped" --known "$work/all.json"
gate 0 --cases 500 --target "plugin:$plugins/sound.so" # the library is mended, the case runs on it
is_json "[(i['name'][-10:], i['state']) for i in j['items']], j['campaign']['cases']" "([('found.json', 'gone')], 500)"
sed 's/"PASS"/"FINDING", "signature": "tolerance\/add\/out"/' "$work/corpus/device.json" >"$work/corpus/other.json"
echo '{"schema": 1, "target": "op:add", "operation": "add", "case": {"count": 400000}}' >"$work/corpus/large.json" # larger than what is drawn
gate 1 --cases 500 --target op:add
is_json "[(i['state'], i['text']) for i in j['items']], j['corpus_failed']" "([('not as expected', 'expected FINDING tolerance/add/out, saw PASS')], 1)"
sed 's/"add"/"sub"/' "$work/corpus/device.json" >"$work/corpus/other.json"
refuses "has no 'sub'" gate --corpus "$work/corpus" --cases 1 --target op:add --out "$work/gate"
refuses "--set is not for operations" gate --cases 1 --target op:add --set count=3
refuses "--base compares two programs shardfuzz" gate --cases 1 --target "$skipped" --base "$build"

# --- refusals: exit 2 and one line (declarations: tests/hostile/plugins.c) ------------------------------------------------------
one_line() { # WORD WHAT: all of stderr is one line with the word
  checks=$((checks + 1))
  [ "$(wc -l <"$work/stderr")" -eq 1 ] && grep -qF -- "$1" "$work/stderr" || fail "$2: expected one line with '$1', saw: $(head -c 400 "$work/stderr")"
}
refused() { # WORD TARGET
  run 2 fuzz --target "$2" --cases 10 --out "$work/refused"
  one_line "$1" "$2"
  check "$2 leaves nothing" [ ! -e "$work/refused" ]
}
refused "plugin ABI 7" "plugin:$plugins/refused_abi.so"
refused "has no function shardfuzz_plugin_get" "plugin:$plugins/refused_no_entry.so"
refused "ended its process" "plugin:$plugins/refused_crash.so"
refused "No such file" "plugin:$work/none.so"
echo "no library" >"$work/text.so"
refused "cannot be loaded" "plugin:$work/text.so"
built_for() { # BYTES NAME: of e_machine
  head -c 18 "$plugins/sound.so" >"$work/foreign.so"
  printf "$1" >>"$work/foreign.so"
  tail -c +21 "$plugins/sound.so" >>"$work/foreign.so"
  refused "$work/foreign.so is built for $2; this is $(uname -m | tr _ -)" "plugin:$work/foreign.so"
}
built_for '\xf3\x00' riscv
case $(uname -m) in x86_64) built_for '\xb7\x00' aarch64 ;; aarch64) built_for '\x3e\x00' x86-64 ;; esac
built_for '\x39\x30' "machine 12345 of ELF"
refused "no such operation" "op:conv3d"

# --- an interrupt while a case hangs -------------------------------------------------------------------------------------------
interrupted() { # SIGNAL EXIT ARGUMENT...: it ends long before the hanging case's deadline
  local seen=0 signal=$1 expected=$2
  shift 2
  "$SHARDFUZZ" fuzz "$@" --deadline 60s --jobs 1 --out "$work/interrupted" --json >"$work/stdout" 2>"$work/stderr" &
  local pid=$!
  sleep 0.7
  check "$*: a case hangs" kill -0 $pid
  kill -"$signal" $pid
  (sleep 15 && kill -KILL $pid) 2>/dev/null &
  wait $pid || seen=$?
  kill $! 2>/dev/null
  check "$*: interrupted: exit $seen" [ $seen -eq "$expected" ]
}
interrupted INT 130 --target "plugin:$plugins/fault_hang.so" --cases 600 --seed 1
is_json "0 < j['cases'] == j['passed'] < 600" True
interrupted TERM 143 --target "plugin:$plugins/fault_hangs_later.so" --cases 1 --seed 1
is_json "j['cases'], j['waiting']" "(0, 1)" # found, and not shrunk yet
finish
