#!/usr/bin/env bash
# Traces of the built-in layers as any framework's: replay --trace writes them, noise measures, check finds a planted bug and passes what is right.
# Then wrong input: one line each, exit 2.
source tests/integration/common.bash

case_file() { # FILE LAYOUT PLANT [MODE]
  cat >"$1" <<JSON
{"schema": 1, "mode": "${4:-isolated}", "model": {"layers": 2, "hidden": 16, "heads": 4, "kv_heads": ${kv_heads:-4}, "head_dim": 4, "ffn": 32, "vocab": 32, "vocab_padded": 32, "seq": 8,
  "bias": true}, "train": {"microbatches": 2, "microbatch_size": 2, "recompute_layers": 1}, "layout": {$2}, "plant": {"id": "$3"}}
JSON
}
traced() { # EXIT NAME LAYOUT PLANT [REPLAY OPTION]...
  local expected=$1 name=$2
  case_file "$work/$name.json" "$3" "$4"
  run "$expected" replay "$work/$name.json" --trace "$work/$name" "${@:5}"
}

traced 0 ref '' ''
traced 0 draw-tp4-cp2 '"tp": 4, "cp": 2' ''
traced 0 draw-tp4 '"tp": 4' ''
traced 0 draw-cp2 '"cp": 2' ''
traced 0 tp2 '"tp": 2, "sp": true' ''
traced 0 cp2-tp2 '"tp": 2, "cp": 2' ''
traced 0 dp2-pp2 '"dp": 2, "pp": 2' ''
traced 1 bias '"tp": 2' rowparallel-bias-xtp

run 2 check "$work/ref" "$work/tp2"
check "says how to make noise levels" grep -q "shardfuzz noise $work/ref DRAW" "$work/stderr"
check "in one line" [ "$(wc -l <"$work/stderr")" -eq 1 ]
run 0 noise "$work/ref" "$work/draw-tp4-cp2" "$work/draw-tp4" "$work/draw-cp2"
check "the file is there" [ -s "$work/ref/noise.safetensors" ]

run 0 check "$work/ref" "$work/tp2" "$work/cp2-tp2" "$work/dp2-pp2" --json
is_json 'j["verdict"], j["draws"], [(c["verdict"], c["ranks"], c["mode"]) for c in j["candidates"]]' \
  "('PASS', 3, [('PASS', 2, 'isolated'), ('PASS', 4, 'isolated'), ('PASS', 4, 'isolated')])"
is_json 'all(c["judged"] > 200 and c["findings"] == 0 for c in j["candidates"])' True
is_json 'sum(c["not_judged_because"].get("reference lacks it", 0) > 0 for c in j["candidates"])' 1 # what a pipeline stage received
run 1 check "$work/ref" "$work/tp2" "$work/bias" --json --junit "$work/check.xml" --summary "$work/check.md"
check "the test view has a test for each trace" [ "$(xmllint --xpath 'count(//testcase)' "$work/check.xml")" = 2 ]
check "and names the one that fails" [ "$(xmllint --xpath 'string(//testcase[failure]/@name)' "$work/check.xml")" = "$work/bias" ]
check "the page has its report" grep -q '^first        s0/mb0/fwd/act/decoder.layers.0.self_attention.linear_proj/0' "$work/check.md"
run 1 check "$work/ref" "$work/bias" --json
is_json 'j["verdict"], j["candidates"][0]["first"]["id"], j["candidates"][0]["first"]["class"], j["candidates"][0]["first"]["subject"]' \
  "('FINDING', 's0/mb0/fwd/act/decoder.layers.0.self_attention.linear_proj/0', 'tolerance', 'decoder.layers.0.self_attention.linear_proj')"
is_json 'j["candidates"][0]["diagnosis"]["class"], j["candidates"][0]["diagnosis"]["text"]' \
  "('repeated_term', 'the bias is added 2 times, once by each rank of tp; this explains the whole error up to rounding')"
check "with its worst element" grep -qE '^worst        \[[0-9]+, [0-9]+\] of \[[0-9]+, 16\], rank [01].s .*: got .*, want .* within' "$work/stderr"
check "and how much of it is wrong" grep -qE '^wrong        [0-9]+ of [0-9]+ elements, .* tokens, .* columns; mean ' "$work/stderr"
check "as text" grep -q '^first        s0/mb0/fwd/act/decoder.layers.0.self_attention.linear_proj/0' "$work/stderr"
run 1 check "$work/ref" "$work/bias" --table
check "a line for each tensor" [ "$(grep -c 'FLAGGED tolerance$' "$work/stdout")" -ge 8 -a "$(grep -c ' ok$' "$work/stdout")" -gt 200 ]

# Fewer key heads than ranks: parts of a key's gradient are summands over tp, of a norm's weight gradient over tp and cp; with ZeRO ranks hold flat ranges.
kv_heads=2 traced 0 kv-ref '' ''
kv_heads=2 traced 0 kv-tp4-cp2 '"tp": 4, "cp": 2' ''
kv_heads=2 traced 0 kv-cp2 '"cp": 2' ''
kv_heads=2 traced 0 kv-tp2 '"tp": 2' ''
kv_heads=2 traced 0 kv-tp4 '"tp": 4, "sp": true' ''
kv_heads=2 traced 0 kv-zero '"tp": 4, "cp": 2, "dp": 2, "zero": 1' ''
kv_heads=2 traced 1 kv-unsynced '"tp": 2, "sp": true' sp-final-ln-nosync
check "there are summands" grep -q ',1]' "$work/kv-tp4/rank-00003.safetensors"
check "there are flat ranges" grep -q 'flat' "$work/kv-zero/rank-00015.safetensors"
run 0 noise "$work/kv-ref" "$work/kv-tp4-cp2" "$work/kv-cp2" "$work/kv-tp2"
run 0 check "$work/kv-ref" "$work/kv-tp4" "$work/kv-zero" --json
is_json '[(c["verdict"], c["ranks"]) for c in j["candidates"]]' "[('PASS', 4), ('PASS', 16)]"
run 1 check "$work/kv-ref" "$work/kv-unsynced" --json
is_json 'j["candidates"][0]["first"]["class"], j["candidates"][0]["first"]["subject"], j["candidates"][0]["diagnosis"]["class"], j["candidates"][0]["diagnosis"]["text"]' \
  "('conflict', 'decoder.final_layernorm.weight', 'missing_reduction', 'rank 1 holds a partial sum over tp: the shards summed over tp give the reference: a missing all-reduce; this explains the whole error up to rounding')"

# --- what is wrong with a trace is found, or refused ------------------------------------------------------------------
edit() { # NAME PYTHON: a copy of tp2 as $work/edited, whose second rank was changed; header, meta and data are at hand
  rm -rf "$work/edited"
  cp -r "$work/tp2" "$work/edited"
  python3 - "$work/edited/rank-00001.safetensors" "$2" <<'P' || fail "$1: could not be made"
import json, struct, sys
path, change = sys.argv[1:]
raw = open(path, "rb").read()
size, = struct.unpack("<Q", raw[:8])
header, data = json.loads(raw[8:8 + size]), bytearray(raw[8 + size:])
meta = json.loads(header["__metadata__"]["shardfuzz"])
act = "s0/mb0/fwd/act/decoder.layers.0.self_attention.linear_proj/0"
at = header[act]["data_offsets"][0]
cut = None
exec(change)
header["__metadata__"]["shardfuzz"] = json.dumps(meta)
text = json.dumps(header).encode()
raw = struct.pack("<Q", len(text)) + text + data
open(path, "wb").write(raw[:cut])
P
}
found() { # CLASS PYTHON
  edit "$1" "$2"
  run 1 check "$work/ref" "$work/edited" --json
  is_json 'j["candidates"][0]["first"]["class"], j["candidates"][0]["first"]["id"][:15]' "('$1', 's0/mb0/fwd/act/')"
}
found nonfinite 'data[at:at + 4] = struct.pack("<f", float("nan"))'
found gap 'runs = meta["tensors"][act]["index"]; runs[0] = [[0, runs[0][0][1]]] if runs[0][0][0] else runs[0]'
found overlap 'runs = meta["tensors"][act]["index"]; begin, size = runs[0][0][:2]; runs[0] = [[begin, size // 2], [begin, size - size // 2]]'
found tolerance 'data[at:at + 4] = struct.pack("<f", struct.unpack("<f", data[at:at + 4])[0] + 1)'
says() { # WHAT LINE PYTHON
  edit "$1" "$3"
  run 1 check "$work/ref" "$work/edited"
  check "$1: $(cat "$work/stdout" "$work/stderr")" grep -qhE "$2" "$work/stdout" "$work/stderr"
}
says 'both shapes and the hint' '^what +ranks give it different shapes: rank 0 \[16, 16\], rank 1 \[8, 16\]: is `batch=` right\?$' 'meta["tensors"][act] = {}'
says 'other parameters at the start' '^start +the runs do not start from the same parameters: 1 of 23 differ, first embedding.word_embeddings.weight;' \
  'at = header["s0/mb0/step/param/embedding.word_embeddings.weight/0"]["data_offsets"][0]; data[at:at + 4] = struct.pack("<f", 9)'
refused() { # WORD PYTHON
  edit "$1" "$2"
  run 2 check "$work/ref" "$work/edited" --json
  check "one line with '$1': $(cat "$work/stderr")" grep -q -- "$1" "$work/stderr"
  check "one line" [ "$(grep -vc '^reference ' "$work/stderr")" -eq 1 ]
  check "nothing on stdout" [ ! -s "$work/stdout" ]
}
refused 'format 2' 'meta["format"] = 2'
refused 'missing from the metadata' 'del meta["tensors"][act]'
refused 'leaves the shape' 'meta["tensors"][act]["index"][0][0][0] = 10 ** 6'
refused 'beyond the file' 'cut = len(raw) - 9'
refused 'shorter than the 8 bytes' 'cut = 3'
refused 'duplicate' 'data[:0] = b""; header["__metadata__"]["x"] = "y"; json.dumps = lambda o, d=json.dumps: d(o).replace("\"x\"", "\"shardfuzz\"") if "__metadata__" in o else d(o)'
edit absurd ''
printf '\xff\xff\xff\xff\xff\xff\xff\x7f' | dd of="$work/edited/rank-00001.safetensors" conv=notrunc status=none
run 2 check "$work/ref" "$work/edited"
check "absurd header" grep -q 'a header of 9223372036854775807 bytes' "$work/stderr"
rm "$work/edited/rank-00001.safetensors"
run 2 check "$work/ref" "$work/edited"
check "missing rank" grep -q 'rank-00001.safetensors: missing' "$work/stderr"
run 2 check "$work/tp2" "$work/ref"
check "reference of two ranks" grep -q 'a reference is the trace of one device' "$work/stderr"
run 2 check "$work/ref"
run 2 check "$work/ref" "$work/none"
run 2 noise "$work/ref" "$work/edited"
rm "$work/ref/noise.safetensors"
for draws in "$work/ref" "$work/draw-tp4-cp2 $work/ref" "$work/draw-tp4-cp2 $work/draw-cp2 $work/draw-tp4-cp2"; do
  run 2 noise "$work/ref" $draws
  check "draws that are alike: $draws" grep -qE '^shardfuzz: [^ ]*/(ref|draw-tp4-cp2): has the same values as (the reference|draw) ' "$work/stderr"
  check "in one line" [ "$(wc -l <"$work/stderr")" -eq 1 ]
  check "nothing is written" [ "$(ls "$work/ref")" = rank-00000.safetensors ]
done
run 2 noise "$work/ref"
run 2 noise "$work/ref" "$work/draw-tp4" -o "$work/no/such/file"
finish
