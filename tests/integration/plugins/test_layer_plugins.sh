#!/usr/bin/env bash
# Layers as plugins: sound ones pass ordinary campaigns, each planted bug is found in the module that the plugin replaces and replays, each fault
# ends in a finding there, wrong declarations in one line; simulated and under mpirun.
source tests/integration/common.bash
plugins=$build/plugins
export OMP_NUM_THREADS=1
small=(--max-ranks 2 --set layout.tp=2 --set model.layers=1 --set train.steps=1 --set moe.experts=0 --seed 3 --shrink-budget 6 --json)

# NAME SIGNATURE ARGUMENT...: the only findings of a small campaign are of this module and kind, or of modules whose folders are named like $also
found() {
  local name=$1 signature=$2 out=$work/$1
  shift 2
  run 1 fuzz --target "plugin:$plugins/$name.so" --cases 4 "${small[@]}" --out "$out" "$@"
  check "$name: $signature among $(ls "$out" | tr '\n' ' ')" [ -e "$out/${signature//\//-}/min.json" ]
  check "$name: nothing but $signature" [ -z "$(find "$out" -mindepth 1 -maxdepth 1 -type d ! -name "*-${signature#*/*/}" ! -name "*-${signature##*/}" ! -name "${also:-}")" ]
  run 1 replay "$out/${signature//\//-}/min.json" --json
  is_json "j['as_expected']" True
}
# Deeper models cover no more pairs of choices, and take three times as long.
flat=(--set model.layers=1..2 --set train.steps=1..2)
none() { # NAME ARGUMENT...
  local name=$1
  shift
  run 0 fuzz --target "plugin:$plugins/$name.so" --json --out "$work/$name" "${flat[@]}" "$@"
}

# --- without a bug --------------------------------------------------------------------------------------------------------------
none layer_sound --cases 20 --max-ranks 4 --seed 5
is_json "j['passed']" 20
none layer_sound_branches --cases 12 --max-ranks 4 --seed 5
is_json "j['passed']" 12
none layer_row_sound --cases 20 --seed 5
is_json "j['passed']" 20
none layer_row_async --cases 20 --seed 5
is_json "j['passed']" 20
none layer_attention_sound --cases 12 --max-ranks 4 --seed 5 --set moe.experts=0
is_json "j['passed']" 12
none layer_attention_ring --cases 12 --max-ranks 4 --seed 6 --set layout.cp=2..4 --set moe.experts=0
is_json "j['passed']" 12
none layer_attention_sound --cases 8 --seed 5 --set precision.compute=fp8 # nothing that attention reads is cast
is_json "j['passed']" 8
none layer_experts_sound --cases 8 --max-ranks 4 --seed 8 --mode isolated
is_json "j['passed']" 8
none layer_embedding_sound --cases 12 --max-ranks 4 --seed 5 --set moe.experts=0
is_json "j['passed']" 12
none layer_sound_rounding --cases 8 --seed 5 --set layout.tp=2
is_json "j['passed']" 8
for rest in latents ahead heads; do
  none layer_sound_$rest --cases 8 --max-ranks 4 --seed 6 --mode isolated --set precision.compute=fp8
  is_json "j['passed']" 8
done
none layer_fp8_sound --cases 12 --seed 5 --max-ranks 4 --set precision.compute=fp8
is_json "j['passed']" 12
none layer_fc1_sound --cases 16 --seed 5 # bf16 lies between the formats that it takes, and is not drawn
is_json "(j['passed'], j['space']['bf16'], j['space']['fp16'] > 0)" "(16, 0, True)"

# --- planted bugs ---------------------------------------------------------------------------------------------------------------
found layer_row_no_reduce conflict/act/mlp.linear_fc2@tp --set layout.sp=off
found layer_row_bias_grad tolerance/wgrad/mlp.linear_fc2@tp --set data.exact=off --set model.bias=on --set train.frozen=none --mode isolated
found layer_row_scale tolerance/act_grad/mlp.linear_fc2@tp --set data.exact=off --mode isolated
found layer_row_early nonfinite/act/mlp.linear_fc2@tp --set layout.sp=off --mode isolated
found layer_row_bias tolerance/act/mlp.linear_fc2@tp --set data.exact=off --set model.bias=on --mode isolated
core=self_attention.core_attention
found layer_attention_causal tolerance/act/$core@tp --cases 3
found layer_attention_rescale tolerance/act/$core@tp --cases 3
found layer_attention_window tolerance/act/$core@tp --cases 4 --set model.window=1..4
found layer_attention_documents tolerance/act/$core@tp --cases 3 --set data.documents=2..4
found layer_attention_group tolerance/act_grad/$core@tp --cases 3 --set model.heads=4 --set model.kv_heads=2
found layer_attention_zigzag tolerance/act/$core@cp --cases 3 --set layout.cp=2 --set layout.tp=1
with_experts=(--seed 1 --set layout.tp=1 --set moe.experts=2..8)
found layer_experts_offset tolerance/act/mlp.experts.linear_fc2@none "${with_experts[@]}"
found layer_experts_empty nonfinite/main_grad/mlp.experts.linear_fc1@none "${with_experts[@]}"
also='*-mlp.experts.linear_fc1@etp' found layer_experts_gate tolerance/act/mlp.experts.linear_fc2@etp --cases 3 --set moe.experts=2..8 --set layout.etp=2 --set model.activation=swiglu
found layer_embedding_mask tolerance/act/embedding.word_embeddings@tp --set data.exact=off
found layer_embedding_duplicates tolerance/wgrad/embedding.word_embeddings@tp --set data.exact=off --set train.frozen=none
found layer_mlp_grad conflict/act_grad/mlp.linear_fc1@tp --set layout.sp=off
found layer_mlp_untraced gap/act/mlp.linear_fc1@tp --cases 3

found layer_fp8_unit tolerance/act/mlp.linear_fc2@tp --set precision.compute=fp8 --cases 3 --mode isolated
also='*-mlp.linear_fc1@tp' found layer_fp8_format tolerance/act_grad/mlp.linear_fc2@tp --set precision.compute=fp8 --cases 3 --mode isolated

# --- faults ---------------------------------------------------------------------------------------------------------------------
found layer_fault_left_out mismatch/comm-absent/mlp.linear_fc2.fwd@tp --set layout.sp=off --cases 3
found layer_fault_count mismatch/comm-count/mlp.linear_fc2.fwd.all_reduce@tp --set layout.sp=off --cases 3
found layer_fault_group crash/comm-argument/mlp.linear_fc2.fwd@tp --set layout.sp=off --cases 2
check "it is told" grep -q "called all_reduce on group [0-9]*, which does not exist" "$work/layer_fault_group/crash-comm-argument-mlp.linear_fc2.fwd@tp/report.txt"
found layer_fault_crash crash/comm-died/mlp.linear_fc2.fwd@tp --cases 3
setsid -w "$SHARDFUZZ" fuzz --target "plugin:$plugins/layer_fault_forks.so" --cases 1 "${small[@]}" --set layout.sp=off --shrink-budget 1 --out "$work/layer_fault_forks" >"$work/stdout" 2>"$work/stderr"
is_json "[(s['signature'], s['count']) for s in j['by_signature']]" "[('crash/comm-died/mlp.linear_fc2.fwd@tp', 1)]"
no_process_has "$work/layer_fault_forks"
found layer_fault_changed crash/comm-changed/mlp.linear_fc2.fwd@tp --cases 2
check "it is told" grep -q "changed its parameters" "$work/layer_fault_changed/crash-comm-changed-mlp.linear_fc2.fwd@tp/report.txt"
found layer_fault_behind crash/comm-write/mlp.linear_fc2.fwd@tp --cases 2
check "it is told" grep -qE "(wrote|writes) right behind its output" "$work/layer_fault_behind/crash-comm-write-mlp.linear_fc2.fwd@tp/report.txt"
found layer_fault_far crash/comm-write/mlp.linear_fc2.fwd@tp --cases 2
check "it is told" grep -q "(Segmentation fault) after 'mlp.linear_fc2.fwd': the plugin writes 60000 bytes behind its output" "$work/layer_fault_far/crash-comm-write-mlp.linear_fc2.fwd@tp/report.txt"
found layer_fault_scratch crash/comm-write/mlp.linear_fc2.fwd@tp --cases 2
check "it is told" grep -qE "(wrote|writes) 8 bytes behind its scratch memory" "$work/layer_fault_scratch/crash-comm-write-mlp.linear_fc2.fwd@tp/report.txt"
found layer_fault_error crash/comm-error/mlp.linear_fc2.fwd@tp --cases 2 --set model.seq=16
check "it is told" grep -q "returned 7" "$work/layer_fault_error/crash-comm-error-mlp.linear_fc2.fwd@tp/report.txt"
found layer_fault_rounding crash/comm-rounding/mlp.linear_fc2.fwd@tp --cases 2
check "it is told" grep -q "left the thread's floating-point mode changed: rounding toward zero" "$work/layer_fault_rounding/crash-comm-rounding-mlp.linear_fc2.fwd@tp/report.txt"
found layer_fault_not_waited crash/comm-request/mlp.linear_fc2.fwd@tp --cases 2 --set layout.sp=off
check "it is told" grep -q "started mlp.linear_fc2.fwd.all_reduce and did not wait" "$work/layer_fault_not_waited/crash-comm-request-mlp.linear_fc2.fwd@tp/report.txt"
found layer_fault_free crash/comm-died/mlp.linear_fc2.fwd.all_reduce@tp --cases 2 --set layout.sp=off
if [ -e "$plugins/layer_fault_exception.so" ]; then
  found layer_fault_exception crash/comm-died/decoder.final_layernorm.fwd@tp --cases 2 --set precision.residual_fp32=off
  check "what a plugin prints is passed on to stderr" grep -q 'terminate called after throwing' "$work/stderr"
  check "the exception's text is told" grep -q "fwd', having said: what():  decoder.final_layernorm;" "$work/layer_fault_exception"/*/report.txt
fi
run 1 fuzz --target "plugin:$plugins/layer_fault_hang.so" --cases 1 "${small[@]}" --set model.seq=32 --deadline 300ms --shrink-budget 1 --jobs 1 --out "$work/hang"
check "a hang is a finding of its module" [ -e "$work/hang/hang-comm-mlp.linear_fc2.fwd@tp/min.json" ]

# --- refusals -------------------------------------------------------------------------------------------------------------------
refuses "none of the values that are set" fuzz --target "plugin:$plugins/layer_row_sound.so" --set moe.experts=4 --cases 1 --out "$work/refused"
refuses "none of the values that are set" fuzz --target "plugin:$plugins/layer_row_sound.so" --set precision.compute=fp8 --cases 1 --out "$work/refused"
check "refusals leave nothing" [ ! -e "$work/refused" ]
case=$work/layer_row_scale/tolerance-act_grad-mlp.linear_fc2@tp/min.json
sed 's/layer_row_scale/layer_none/' "$case" >"$work/missing.json"
refuses "No such file" replay "$work/missing.json"
sed 's/layer_row_scale/sound/' "$case" >"$work/operations.json"
refuses "has operations, and neither layers nor a model" replay "$work/operations.json"
run 1 replay "$case" --plant none --json # it is in the plugin, not planted

# --- a case on another library, or on the built-in layers -------------------------------------------------------------------------
for mended in "plugin:$plugins/layer_row_sound.so" builtin; do
  run 0 replay "$case" --target "$mended" --json
  is_json "j['verdict'], j['as_expected']" "('PASS', False)"
done
run 1 replay "$work/missing.json" --target "plugin:$plugins/layer_row_scale.so" --json
is_json "j['as_expected']" True
run 1 shrink "$work/missing.json" -o "$work/moved.json" --budget 2 --target "plugin:$plugins/layer_row_scale.so"
check "the shrunk case names its target" grep -q "plugin:$plugins/layer_row_scale.so" "$work/moved.json"
refuses "has operations, and neither layers nor a model" replay "$case" --target "plugin:$plugins/sound.so"
refuses "not of a framework" replay "$case" --target worker:none
refuses "there is no target 'none'" replay "$case" --target none
finish
