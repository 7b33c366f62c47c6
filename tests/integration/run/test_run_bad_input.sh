#!/usr/bin/env bash
# Wrong input: exit 2 and one line on stderr that names what is wrong; nothing is written. A disk that does not take what is written: exit 3.
source tests/integration/common.bash

one_line() { # TEXT WORD: stderr is one line that holds the word
  checks=$((checks + 1))
  [ "$(wc -l <"$work/stderr")" -eq 1 ] && grep -qF -- "$2" "$work/stderr" && return
  fail "$1: expected one line with '$2', saw: $(head -c 600 "$work/stderr")"
}
refused() { # WORD ARGUMENT...
  local word=$1
  shift
  run 2 "$@"
  one_line "shardfuzz $*" "$word"
  check "nothing on stdout: $*" [ ! -s "$work/stdout" ]
}

# --- case files ------------------------------------------------------------------------------------------------
mkdir "$work/cases"
number=0
malformed() { # REASON CONTENT [printf format]
  number=$((number + 1))
  local file
  file=$work/cases/$(printf '%02d' $number).json
  printf "${3:-%s}" "$2" >"$file"
  run 2 replay "$file" --trace "$work/trace" --json
  one_line "case $number ($2)" "$file"
  checks=$((checks + 1))
  grep -qE -- "$1" "$work/stderr" || fail "case $number: no '$1' in: $(cat "$work/stderr")"
  check "case $number leaves nothing" [ ! -s "$work/stdout" -a ! -e "$work/trace" ]
}
malformed 'line 1' ''
malformed 'line 1' '{'
malformed 'line 1' '{"schema": 1'
malformed 'line 1' '{"schema": 1} trailing'
malformed 'line 1' '{"schema": 1,}'
malformed 'line 1' "{'schema': 1}"
malformed 'line 1' '{"schema": 01}'
malformed 'line 1' '{"schema": 1, "seed": NaN}'
malformed 'line 1' '{"schema": 1, "seed": +1}'
malformed 'duplicate' '{"schema": 1, "seed": 1, "seed": 2}'
malformed 'duplicate' '{"schema": 1, "model": {"layers": 1, "layers": 1}}'
malformed 'line' '\x00\x01\x02' '%b'
malformed 'line' '{"schema": 1, "target": {"name": "\xff\xfe"}}' '%b'
malformed 'line' '\xef\xbb\xbf{"schema": 1}' '%b'
malformed 'an array' '[]'
malformed 'null' 'null'
malformed 'a string' '"schema"'
malformed 'an integer' '1'
malformed 'schema: missing' '{}'
malformed 'schema: 2' '{"schema": 2}'
malformed 'schema: 0' '{"schema": 0}'
malformed 'schema: expected an integer' '{"schema": "1"}'
malformed 'schema: expected an integer' '{"schema": 1.0}'
malformed 'sede: no such field' '{"schema": 1, "sede": 1}'
malformed 'model.layer: no such field' '{"schema": 1, "model": {"layer": 1}}'
malformed 'model: expected an object' '{"schema": 1, "model": 4}'
malformed 'model: expected an object' '{"schema": 1, "model": null}'
malformed 'layout: expected an object' '{"schema": 1, "layout": []}'
malformed 'model.layers: no such field' '{"schema": 1, "model.layers": 1}'
malformed 'seed: -1' '{"schema": 1, "seed": -1}'
malformed 'line 1|too big' '{"schema": 1, "seed": 9223372036854775808}'
malformed 'seed: expected an integer' '{"schema": 1, "seed": 1e3}'
malformed 'seed: expected an integer' '{"schema": 1, "seed": true}'
malformed 'mode: "both"' '{"schema": 1, "mode": "both"}'
malformed 'mode: expected a name' '{"schema": 1, "mode": 0}'
malformed 'model.layers: 0' '{"schema": 1, "model": {"layers": 0}}'
malformed 'model.layers: 129' '{"schema": 1, "model": {"layers": 129}}'
malformed 'model.bias: expected true or false' '{"schema": 1, "model": {"bias": 1}}'
malformed 'model.kv_heads: 3 does not divide' '{"schema": 1, "model": {"heads": 4, "kv_heads": 3}}'
malformed 'model.head_dim: 3 is no multiple of 2' '{"schema": 1, "model": {"head_dim": 3, "positions": "rotary"}}'
malformed 'model.vocab: 16 is more than model.vocab_padded 8' '{"schema": 1, "model": {"vocab": 16}}'
malformed 'precision.compute: "fp4"' '{"schema": 1, "precision": {"compute": "fp4"}}'
malformed 'train.frozen: expected an array' '{"schema": 1, "train": {"frozen": "qkv"}}'
malformed 'train.frozen: "qkv" is there twice' '{"schema": 1, "train": {"frozen": ["qkv", "qkv"]}}'
malformed 'train.recompute_layers: 2 is more than' '{"schema": 1, "train": {"recompute_layers": 2}}'
malformed 'layout.tp: 2 does not divide model.heads 1' '{"schema": 1, "layout": {"tp": 2}}'
malformed 'layout.sp: needs layout.tp' '{"schema": 1, "layout": {"sp": true}}'
malformed 'layout.pp: every stage needs a layer: layout.pp 2' '{"schema": 1, "layout": {"pp": 2}}'
malformed 'layout.dp: 2 does not divide train.microbatches 1' '{"schema": 1, "layout": {"dp": 2}}'
malformed '524280 is more than max_ranks 65536' '{"schema": 1, "train": {"microbatches": 65535}, "layout": {"dp": 65535, "tp": 8}, "model": {"heads": 8, "kv_heads": 8}}'
malformed 'layout.cp: 4 does not divide model.seq 6' '{"schema": 1, "model": {"seq": 6}, "layout": {"cp": 2}}'
malformed 'layout.order' '{"schema": 1, "layout": {"order": "tp-tp-ep-dp-pp"}}'
malformed 'layout.order' '{"schema": 1, "layout": {"order": "tp-cp-ep-dp-pp-and-some-more"}}'
malformed "there is no target 'nobody'" '{"schema": 1, "target": {"name": "nobody"}}'
malformed 'target.name: empty' '{"schema": 1, "target": {"name": ""}}'
malformed "there is no plant 'weeds'" '{"schema": 1, "plant": {"id": "weeds"}}'
malformed 'plant.id: characters' '{"schema": 1, "plant": {"id": "../../x y"}}'
malformed 'plant.id: longer' "{\"schema\": 1, \"plant\": {\"id\": \"$(printf 'x%.0s' {1..100})\"}}"
malformed 'expect.verdict' '{"schema": 1, "expect": {"verdict": "MAYBE"}}'
malformed 'expect.verdict' '{"schema": 1, "expect": {}}'
malformed 'expect: expected an object' '{"schema": 1, "expect": "PASS"}'
malformed 'expect.because: no such field' '{"schema": 1, "expect": {"verdict": "PASS", "because": "x"}}'
malformed 'line' "$(printf '[%.0s' {1..5000})"
check "at least forty kinds" [ "$number" -ge 40 ]

head -c 2000000 /dev/zero | tr '\0' ' ' >"$work/large.json"
mkfifo "$work/pipe.json"
ln -s "$work/nothing" "$work/dangling.json"
ln -s "$work/loop.json" "$work/loop.json"
: >"$work/plain"
echo '{"schema": 1}' >"$work/good.json"
for command in "replay" "describe" "shrink -o $work/min.json"; do
  for file in "$work/missing.json" "$work" "$work/large.json" "$work/pipe.json" "$work/dangling.json" "$work/loop.json" "$work/plain/x.json" \
    /dev/null "$work/cases/24.json"; do
    refused "$file" $command "$file"
  done
done
check "no reproducer" [ ! -e "$work/min.json" ]

# --- options ---------------------------------------------------------------------------------------------------
out=$work/out
bad_fuzz() { # WORD ARGUMENT...
  local word=$1
  shift
  refused "$word" fuzz --cases 1 --out "$out" "$@"
  check "no output folder after fuzz $*" [ ! -e "$out" ]
}
run 2
check "usage" grep -q '^usage: shardfuzz COMMAND' "$work/stderr"
refused "there is no command 'fuz'; did you mean fuzz?" fuz
refused "there is no command 'repaly'; did you mean replay?" repaly
refused "there is no command 'weeds'; shardfuzz --help lists them" weeds
refused "there is no command 'weeds'" help weeds
for words in help --help -h "help replay" "replay -h" "replay --help"; do
  run 0 $words
  check "help is printed: $words" grep -q "^usage: shardfuzz " "$work/stdout"
done
check "help of a command" cmp "$work/stdout" <("$SHARDFUZZ" help replay)
run 0 --version
check "the version" grep -qE '^shardfuzz [0-9]+\.[0-9]+\.[0-9]+$' "$work/stdout"
for line in 'commit     (not known|[0-9a-f]{12}\+?$)' 'ranks      sim, ' 'devices    cpu, ' 'kernels    vectors of [0-9]+ floats; matrix products: '; do
  check "its line: $line" grep -qE "^$line" "$work/stdout"
done
refused "unknown option --hlep" fuzz --hlep
refused '--mode: "isolate" is none of: drawn, isolated, e2e; did you mean isolated?' fuzz --mode isolate
refused "did you mean --max-ranks?" fuzz --max-rank 4
refused '"more"' fuzz more
refused "missing" replay
refused '"b"' replay a b
refused "weeds" list weeds
refused "did you mean presets?" list preset
refused "--cases" fuzz --cases
bad_fuzz "--cases" --cases 0
bad_fuzz "--cases" --cases -1
bad_fuzz "--cases" --cases 1e3
bad_fuzz "--cases" --cases 99999999999999999999
bad_fuzz "--cases" --cases ''
bad_fuzz "--seed" --seed x
bad_fuzz "--jobs" --jobs 0
bad_fuzz "--jobs" --jobs 100000
bad_fuzz "--max-ranks" --max-ranks 0
bad_fuzz "--layouts" --layouts 17
for duration in 0 -1 10x 1.5h m 30m1h 9223372036854775807h; do
  bad_fuzz "--time" --time "$duration"
  bad_fuzz "--deadline" --deadline "$duration"
done
bad_fuzz "--json takes no value" --json=yes
bad_fuzz "--backend" --backend tcp
bad_fuzz "--device" --device abacus
bad_fuzz "--mode" --mode both
bad_fuzz "there is no plant 'weeds'" --plant weeds
bad_fuzz "nothing-tiny" --preset nothing-tiny
bad_fuzz "there is no target 'nobody'" --target nobody
bad_fuzz "KEY=VALUE" --set layout.tp
bad_fuzz "layout.tq" --set layout.tq=2
bad_fuzz "layout.tp" --set layout.tp=two
bad_fuzz "layout.tp" --set layout.tp=4..2
bad_fuzz "model.bias" --set model.bias=maybe
bad_fuzz "precision.compute" --set precision.compute=fp4
bad_fuzz "layout.tp" --set layout.tp=3 --set model.heads=4
bad_fuzz "layout.sp" --set layout.tp=1 --set layout.sp=on
bad_fuzz "layout.pp" --set layout.pp=4 --set model.layers=2
bad_fuzz "layout.cp" --set layout.cp=2 --set model.seq=6
bad_fuzz "layout.tp_overlap" --set layout.tp_overlap=on --set layout.sp=off
bad_fuzz "--resume: there is no campaign-*.sqlite in $out; name the store with --store FILE" --resume
bad_fuzz "mpirun" --backend mpi
refused "--launcher" gate --backend mpi --cases 1 --out "$out"
refused "--launcher" power --backend mpi --cases 1
refused "no label" power --plant mutant:no.such.label:drop --cases 1
refused "means nothing" fuzz --plant mutant:adam.grad_norm:shift --cases 1 --out "$work/mutant"
refused "--launcher" shrink "$work/good.json" -o "$work/min.json" --backend mpi
refused "mpirun" replay "$work/good.json" --backend mpi
refused "there is no plant 'weeds'" replay "$work/good.json" --plant weeds
refused "-o MIN.json" shrink "$work/good.json"

# --- lists of known findings, corpora, bases -------------------------------------------------------------------
for content in '' '{}' '[1]' '[{}]' '[{"signature": 1}]' '[{"signature": ""}]' '[{"signature": "a", "color": "red"}]' '[{"signature": "a", "note": 1}]' \
  '[{"signature": "a", "case": {"schema": 2}}]' '[{"signature": "a"}' "[{\"signature\": \"$(printf 'x%.0s' {1..200})\"}]"; do
  printf '%s' "$content" >"$work/known.json"
  bad_fuzz "$work/known.json" --known "$work/known.json"
done
for file in "$work/missing.json" "$work" "$work/plain/x"; do bad_fuzz "$file" --known "$file"; done
small=(gate --cases 1 --out "$out" --set model.layers=1)
refused "$work/missing" "${small[@]}" --corpus "$work/missing"
refused "$work/plain" "${small[@]}" --corpus "$work/plain"
refused "$work/cases/01.json" "${small[@]}" --corpus "$work/cases"
for base in "$work/missing" "$work/plain" "$work"; do refused "$base" "${small[@]}" --base "$base"; done
for file in "$work/nowhere/x.xml" "$work/plain/x.xml" "$work" /dev/full ''; do
  refused "$file" "${small[@]}" --junit "$file"
  refused "$file" "${small[@]}" --summary "$file"
done
check "no output folder of the gate" [ ! -e "$out" ]

# --- stores ----------------------------------------------------------------------------------------------------
run 0 fuzz --cases 2 --set model.layers=1 --seed 3 "${plain[@]}" --store "$work/store.sqlite" --out "$work/findings"
sha256sum "$work/store.sqlite" >"$work/sum"
again=(fuzz --cases 3 --set model.layers=1 "${plain[@]}" --out "$work/findings" --store "$work/store.sqlite")
refused "exists already" "${again[@]}" --seed 3
refused "seed" "${again[@]}" --seed 4 --resume
refused "max_ranks" "${again[@]}" --seed 3 --max-ranks 4 --resume
refused "plant" "${again[@]}" --seed 3 --plant attn-dq-wrong --resume
refused "model.heads" "${again[@]}" --seed 3 --set model.heads=1 --resume
check "the store of other options is untouched" sha256sum --status -c "$work/sum"
echo "this is no database, however long it may be; it only has to be longer than a header" >"$work/text.sqlite"
cp "$work/store.sqlite" "$work/schema.sqlite"
query "$work/schema.sqlite" "PRAGMA user_version = 77; UPDATE meta SET value = 77 WHERE key = 'schema'"
sqlite3 "$work/other.sqlite" 'CREATE TABLE birds(name TEXT)'
for store in text schema other; do
  refused "$work/$store.sqlite" fuzz --cases 3 --out "$work/findings" --store "$work/$store.sqlite" --resume --seed 3
  refused "$work/$store.sqlite" merge "$work/merged.sqlite" "$work/$store.sqlite"
done
for store in "$work" "$work/plain/x.sqlite" "$work/nowhere/x.sqlite" /dev/null; do
  refused "$store" fuzz --cases 3 --out "$work/findings" --store "$store" --resume
done
refused "$work/missing.sqlite" merge "$work/merged.sqlite" "$work/missing.sqlite"
refused "$work/store.sqlite" merge "$work/store.sqlite" "$work/store.sqlite"
check "no merged store" [ ! -e "$work/merged.sqlite" ]
check "the merged store is not overwritten" sha256sum --status -c "$work/sum"

# --- places that cannot be written -----------------------------------------------------------------------------
for place in "$work/plain" "$work/plain/deeper" "$work/dangling.json" /dev/full /proc/nothing; do
  refused "$place" fuzz --cases 1 --out "$place"
  refused "$place" replay "$work/good.json" --trace "$place"
  refused "$place" shrink "$work/good.json" -o "$place/min.json"
done

# --- a disk that is full ---------------------------------------------------------------------------------------
failed() { # ARGUMENT...: the harness fails, and says so in the last line
  run 3 "$@"
  check "a reason: $*" grep -q '^shardfuzz: ' "$work/stderr"
}
"$SHARDFUZZ" list plants >/dev/full 2>"$work/stderr"
check "a full stdout of list" [ $? -eq 3 ]
one_line "list plants >/dev/full" "No space left"
"$SHARDFUZZ" replay "$work/good.json" --json >/dev/full 2>"$work/stderr"
check "a full stdout of replay --json" [ $? -eq 3 ]
check "the reason" grep -q "No space left" "$work/stderr"
full=$work/full
echo '{"schema": 1, "plant": {"id": "attn-dq-wrong"}}' >"$work/planted.json"
mkdir "$full"
planted=(--cases 40 --seed 3 --max-ranks 2 --plant attn-dq-wrong --shrink-budget 5)
if mount -t tmpfs -o size=48k none "$full" 2>/dev/null; then
  trap 'umount "$full"; rm -rf "$work"' EXIT
  failed fuzz "${planted[@]}" --out "$full/findings" --store "$full/store.sqlite"
  check "what is there of the store is sound" [ "$(query "$full/store.sqlite" 'PRAGMA integrity_check')" = ok ]
  rm -rf "${full:?}"/*
  head -c 100k /dev/zero >"$full/filler" 2>/dev/null
  failed fuzz "${planted[@]}" --out "$full/findings" --store "$work/elsewhere.sqlite"
  failed replay "$work/good.json" --trace "$full/trace"
  failed shrink "$work/planted.json" -o "$full/min.json"
  failed gate --cases 1 --set model.layers=1 "${plain[@]}" --seed 3 --out "$work/gate" --junit "$full/junit.xml"
  check "no part of any file" [ "$(find "$full" -type f)" = "$full/filler" ]
fi
# The same through a limit on the size of files, where mounting is not allowed.
rm -rf "$work/limited"
(ulimit -f 16 && "$SHARDFUZZ" fuzz "${planted[@]}" --out "$work/limited" --store "$work/limited.sqlite" >"$work/stdout" 2>"$work/stderr")
check "a file that may not grow" [ $? -eq 3 ]
check "the file is named" grep -q "^shardfuzz: $work/limited" "$work/stderr"
check "what is there of the store is sound" [ "$(query "$work/limited.sqlite" 'PRAGMA integrity_check')" = ok ]
if [ "$(id -u)" -ne 0 ]; then # nothing is unreadable for root
  chmod 000 "$work/good.json"
  refused "$work/good.json" replay "$work/good.json"
  refused "$work/good.json" fuzz --cases 1 --known "$work/good.json" --out "$out"
  chmod 600 "$work/good.json"
fi
finish
