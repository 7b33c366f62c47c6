#!/usr/bin/env bash
# How the program is used: which store a campaign goes on with, what is printed where.
source tests/integration/common.bash
small=(--set model.layers=1 --set train.steps=1 --max-ranks 2)

# --- --resume without --store ----------------------------------------------------------------------------------
run 0 fuzz --cases 2 "${small[@]}" --out "$work/stores"
run 0 fuzz --cases 3 "${small[@]}" --out "$work/stores"
touch -d '1 hour ago' "$work/stores/campaign-0002.sqlite"
: >"$work/stores/campaign-9999.sqlite.rank-0"
run 0 fuzz --cases 5 "${small[@]}" --out "$work/stores" --resume --json
check "the newest store is continued" [ "$(query "$work/stores/campaign-0001.sqlite" "SELECT count(*) FROM verdict")" -eq 5 ]
check "the other one is not" [ "$(query "$work/stores/campaign-0002.sqlite" "SELECT count(*) FROM verdict")" -eq 3 ]
refused="$work/stores/campaign-0001.sqlite: made with another option"
refuses "$refused" fuzz --cases 5 "${small[@]}" --seed 2 --out "$work/stores" --resume
check "no store is added" [ "$(find "$work/stores" -name '*.sqlite' | wc -l)" -eq 2 ]

# --- results for people on stdout, errors and progress on stderr; with --json one line on stdout, and people read stderr -----
streams() { # EXIT WORD ARGUMENT...
  local expected=$1 word=$2
  shift 2
  run "$expected" "$@"
  check "on stdout: $*" grep -qE -- "$word" "$work/stdout"
  check "nothing on stderr: $*: $(head -c 300 "$work/stderr")" [ ! -s "$work/stderr" ]
  if [ "$1" = merge ]; then return; fi # it has no --json
  rm -rf "$work/out"
  run "$expected" "$@" --json
  check "one line of JSON: $*" [ "$(wc -l <"$work/stdout")" -eq 1 ]
  is_json 'isinstance(j, dict)' True
  check "with --json on stderr: $*" grep -qE -- "$word" "$work/stderr"
}
echo '{"schema": 1, "model": {"heads": 2, "kv_heads": 2, "bias": true}, "layout": {"tp": 2}, "plant": {"id": "rowparallel-bias-xtp"}}' >"$work/bias.json"
streams 1 '^first        s0/mb0' replay "$work/bias.json"
streams 0 '^verdict      PASS' replay "$work/bias.json" --plant none
streams 1 '^signature    tolerance' shrink "$work/bias.json" -o "$work/min.json" --budget 1
streams 0 '^2 cases in ' fuzz --cases 2 "${small[@]}" --out "$work/out"
streams 0 '^gate: passed$' gate --cases 2 --seed 1 "${small[@]}" --out "$work/out"
streams 0 '^20 cases in ' fuzz --target op:gelu_fwd --cases 20 --out "$work/out"
streams 0 '^clean fp32: ' power --plant rowparallel-bias-xtp --cases 40 --clean 1 "${small[@]}"
streams 0 '^5 verdicts, 0 of them' merge "$work/merged.sqlite" "$work/stores/campaign-0001.sqlite"

# --- a finding is told when it is made, once ---------------------------------------------------------------------
told() { # WORD ARGUMENT...: one line of stderr says it, and none rewrites another
  local word=$1
  shift
  rm -rf "$work/out"
  run 1 "$@" --out "$work/out"
  check "told: $*: $(head -c 600 "$work/stderr")" [ "$(grep -cE -- "$word" "$work/stderr")" -eq 1 ]
  check "in plain lines: $*" [ "$(grep -c $'\r' "$work/stderr")" -eq 0 ]
}
signature=tolerance/act/self_attention.linear_proj@tp
planted=(--seed 2 --max-ranks 4 --set layout.tp=2 "${plain[@]}" --set model.bias=on --plant rowparallel-bias-xtp)
told "^new finding $signature in case [0-9]+: shardfuzz replay '$work/out/${signature//\//-}/min.json'$" fuzz --cases 12 "${planted[@]}"
told "^new finding $signature in case [0-9]+: shardfuzz replay '$work/out/${signature//\//-}/min.json' --gemm 'loops'$" fuzz --cases 12 --gemm loops "${planted[@]}"
check "so does the report" grep -q "^replay .*/min.json' --gemm 'loops'$" "$work/out/${signature//\//-}/report.txt"
told "^new finding $signature in case [0-9]+: " gate --cases 12 "${planted[@]}"

# --- jobs of one campaign: a seed, shares, a merged store -------------------------------------------------------
share=(fuzz "${small[@]}" --seed 7 --out "$work/shares")
run 0 "${share[@]}" --share 1/2 --cases 3 --store "$work/share1.sqlite"
run 0 "${share[@]}" --share 2/2 --cases 1027 --store "$work/share2.sqlite"
run 0 merge "$work/joined.sqlite" "$work/share1.sqlite" "$work/share2.sqlite"
check "the shares are apart" grep -qx '6 verdicts, 0 of them in more than one store, 0 in conflict' "$work/stdout"
check "and are the campaign's cases" [ "$(query "$work/joined.sqlite" "SELECT group_concat(idx) FROM verdict")" = 0,1,2,1024,1025,1026 ]
run 0 "${share[@]}" --cases 4 --store "$work/joined.sqlite" --resume --json
is_json 'j["cases"]' 7
run 0 "${share[@]}" --layouts 3 --cases 1 --store "$work/layouts.sqlite"
refuses 'made with another option than the first store: "layouts=3", not "layouts=2"; stores that are joined have the same options but for --seed and --share' \
  merge "$work/none.sqlite" "$work/share1.sqlite" "$work/layouts.sqlite"
refuses "--share 2/2 has none of the first 1024 cases" "${share[@]}" --share 2/2 --cases 1024
refuses "share of the cases" "${share[@]}" --share 2/2 --cases 1027 --store "$work/share1.sqlite" --resume
for text in 0/2 3/2 1 /2 1/ a/b 1/2/3; do refuses '--share: "'$text'" is not K/N' "${share[@]}" --cases 1 --share $text; done

finish
