#!/usr/bin/env bash
# A model as a plugin: the example passes ordinary campaigns, planted bugs are found where they are and replay, faults end in findings, wrong declarations
# in one line; simulated and under mpirun.
source tests/integration/common.bash
source tests/integration/mpi.bash
plugins=$build/plugins
export OMP_NUM_THREADS=1
small=(--max-ranks 4 --set model.layers=1 --set train.steps=1 --seed 3 --shrink-budget 25 --json)

# NAME SIGNATURE ARGUMENT...: what is wrong first in each case of a small campaign
found() {
  local name=$1 signature=$2 out=$work/$1
  shift 2
  run 1 fuzz --target "plugin:$plugins/$name.so" --cases 12 "${small[@]}" --out "$out" "$@"
  check "$name: $signature among $(ls "$out" | tr '\n' ' ')" [ -e "$out/${signature//\//-}/min.json" ]
  check "$name: nothing but $signature" [ "$(query "$out/campaign-0001.sqlite" "SELECT group_concat(DISTINCT signature) FROM verdict WHERE verdict = 'FINDING'")" = "$signature" ]
  run 1 replay "$out/${signature//\//-}/min.json" --json
  is_json "j['as_expected']" True
}
told() { check "$1: it is told" grep -q "$2" "$work/$1"/*/report.txt; } # NAME TEXT

run 0 fuzz --target "plugin:$plugins/model_sound.so" --cases 60 --seed 5 --out "$work/sound" --json
is_json "j['passed'] > 40 and j['passed'] + j['skipped'] == 60" True
is_json "j['inconclusive']" 0

found model_no_row_reduce conflict/act/self_attention.linear_proj@tp --set layout.tp=2 --set model.kv_heads=2
found model_no_column_reduce conflict/act_grad/output_layer@tp --set layout.tp=2 --set model.kv_heads=2
found model_dp_left_out conflict/main_grad/embedding.word_embeddings@dp --set layout.dp=2 --set layout.tp=1
found model_norm_over_world tolerance/scalar/optimizer@dp --set layout.dp=2 --set layout.tp=1
shrunk=$(python3 -c "import json; m = json.load(open('$work/model_no_row_reduce/conflict-act-self_attention.linear_proj@tp/min.json')); print(m['layout']['tp'] * m['layout']['dp'], m['model']['layers'])")
check "it is shrunk to two ranks: $shrunk" [ "$shrunk" = "2 1" ]

found model_fault_crash crash/comm-died/model@dp --cases 2 --set layout.dp=2 --set layout.tp=1
found model_fault_error crash/comm-error/model@none --cases 2 --max-ranks 1
told model_fault_error "the plugin's model returned 7"
found model_fault_behind crash/comm-write/model@none --cases 2 --max-ranks 1
told model_fault_behind "wrote right behind its memory"
found model_fault_unknown crash/comm-argument/cross_entropy.all_reduce@none --cases 2 --max-ranks 1
told model_fault_unknown "handed over act of softmax, which the case does not have"
found model_fault_rows crash/comm-argument/embedding.all_reduce@none --cases 2 --max-ranks 1
told model_fault_rows "rows and columns of embedding.word_embeddings"
run 1 fuzz --target "plugin:$plugins/model_fault_left_out.so" --cases 4 "${small[@]}" --set layout.tp=2 --set model.kv_heads=2 --out "$work/left_out"
check "a reduction left out: $(ls "$work/left_out")" [ -n "$(find "$work/left_out" -name 'mismatch-comm-*')" ]
run 1 fuzz --target "plugin:$plugins/model_fault_hang.so" --cases 1 "${small[@]}" --max-ranks 1 --deadline 300ms --shrink-budget 1 --jobs 1 --out "$work/hang"
check "a hang: $(ls "$work/hang")" [ -e "$work/hang/hang-comm-model@none/min.json" ]

# --- refusals -------------------------------------------------------------------------------------------------------------------
refuses "none of the values that are set" fuzz --target "plugin:$plugins/model_sound.so" --set layout.cp=2 --cases 1 --out "$work/refused"
check "refusals leave nothing" [ ! -e "$work/refused" ]

# --- under mpirun ---------------------------------------------------------------------------------------------------------------
if command -v mpirun >/dev/null; then
  run 0 fuzz --target "plugin:$plugins/model_sound.so" --launcher "$launcher" --max-ranks 2 --cases 15 --seed 4 --out "$work/mpi" --json
  is_json "j['passed'] > 8 and j['passed'] + j['skipped'] == 15" True
  run 1 fuzz --target "plugin:$plugins/model_no_row_reduce.so" --launcher "$launcher" "${small[@]}" --max-ranks 2 --set layout.tp=2 --set model.kv_heads=2 --cases 3 --shrink-budget 6 --out "$work/mpi_bug"
  check "a bug under mpirun: $(ls "$work/mpi_bug")" [ -e "$work/mpi_bug/conflict-act-self_attention.linear_proj@tp/min.json" ]
  check "no process is left" none_left
fi
finish
