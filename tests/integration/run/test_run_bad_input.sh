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
malformed() { # REASON CONTENT
  number=$((number + 1))
  local file
  file=$work/cases/$(printf '%02d' $number).json
  printf '%s' "$2" >"$file"
  run 2 replay "$file" --trace "$work/trace" --json
  one_line "case $number ($2)" "$file"
  checks=$((checks + 1))
  grep -qE -- "$1" "$work/stderr" || fail "case $number: no '$1' in: $(cat "$work/stderr")"
  check "case $number leaves nothing" [ ! -s "$work/stdout" -a ! -e "$work/trace" ]
}
# The documents are tests/hostile/cases.c; here is what only the program knows.
malformed 'line 1' ''
malformed "there is no target 'nobody'" '{"schema": 1, "target": {"name": "nobody"}}'
malformed "there is no plant 'weeds'" '{"schema": 1, "plant": {"id": "weeds"}}'
malformed 'model.layer: no such field' '{"schema": 1, "model": {"layer": 1}}'

head -c 2000000 /dev/zero | tr '\0' ' ' >"$work/large.json"
mkfifo "$work/pipe.json"
ln -s "$work/nothing" "$work/dangling.json"
ln -s "$work/loop.json" "$work/loop.json"
: >"$work/plain"
echo '{"schema": 1}' >"$work/good.json"
for command in "replay" "describe" "shrink -o $work/min.json"; do
  for file in "$work/missing.json" "$work" "$work/large.json" "$work/pipe.json" "$work/dangling.json" "$work/loop.json" "$work/plain/x.json" \
    /dev/null "$work/cases/04.json"; do
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

# --- lists of known findings (their contents: tests/hostile/lists.c), corpora, bases -------------------------------------------------------------------
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
