#!/usr/bin/env bash
# Layers as plugins on MPI ranks: sound ones pass, a bug, a crash and a reduction that is left out are findings in their module.
source tests/integration/common.bash
source tests/integration/mpi.bash
plugins=$build/plugins
flat=(--set model.layers=1..2 --set train.steps=1..2 --deadline 120s) # as in test_layer_plugins.sh; other tests run beside this one
small=(--max-ranks 2 --set layout.tp=2 --set model.layers=1 --set train.steps=1 --set moe.experts=0 --set layout.sp=off --seed 3 --shrink-budget 6 --json)

run 0 fuzz --target "plugin:$plugins/layer_sound.so" --launcher "$launcher" "${flat[@]}" --max-ranks 2 --cases 30 --seed 4 --out "$work/sound" --json
is_json "j['passed']" 30
run 0 fuzz --target "plugin:$plugins/layer_row_async.so" --launcher "$launcher" "${flat[@]}" --max-ranks 2 --cases 15 --seed 4 --out "$work/async" --json
is_json "j['passed']" 15
run 0 fuzz --target "plugin:$plugins/layer_attention_ring.so" --launcher "$launcher" "${flat[@]}" --max-ranks 2 --set layout.cp=2 --cases 10 --seed 4 --out "$work/ring" --json
is_json "j['passed']" 10
run 0 fuzz --target "plugin:$plugins/layer_experts_sound.so" --launcher "$launcher" "${flat[@]}" --max-ranks 2 --set layout.ep=2 --mode isolated --cases 10 --seed 4 --out "$work/experts" --json
is_json "j['passed']" 10
run 1 fuzz --target "plugin:$plugins/layer_row_no_reduce.so" --launcher "$launcher" "${small[@]}" --cases 3 --out "$work/bug"
check "a missing all-reduce" [ -e "$work/bug/conflict-act-mlp.linear_fc2@tp/min.json" ]
run 1 fuzz --target "plugin:$plugins/layer_fault_crash.so" --launcher "$launcher" "${small[@]}" --cases 1 --out "$work/crash"
check "a crash" [ -n "$(find "$work/crash" -name 'crash-comm-died-mlp.linear_fc2.fwd*')" ]
setsid -w "$SHARDFUZZ" fuzz --target "plugin:$plugins/layer_fault_forks.so" --launcher "$launcher" "${small[@]}" --cases 1 --shrink-budget 1 --out "$work/forks" >"$work/stdout" 2>"$work/stderr"
check "a rank that forks and kills its group: $(ls "$work/forks")" [ -e "$work/forks/crash-comm-died-mlp.linear_fc2.fwd@tp/min.json" ]
run 1 fuzz --target "plugin:$plugins/layer_fault_left_out.so" --launcher "$launcher" "${small[@]}" --cases 1 --deadline 1s --shrink-budget 1 --out "$work/left_out"
check "a reduction left out: $(ls "$work/left_out")" [ -n "$(find "$work/left_out" -name '*-comm*-mlp.linear_fc2.fwd@*')" ]
checks=$((checks + 1))
mpirun --oversubscribe -n 2 "$SHARDFUZZ" fuzz --backend mpi --target "plugin:$plugins/layer_sound.so" "${flat[@]}" --max-ranks 2 --cases 20 --out "$work/inside" >"$work/stdout" 2>"$work/stderr" ||
  fail "inside mpirun: $(cat "$work/stderr")"
checks=$((checks + 1))
mpirun --oversubscribe -n 2 "$SHARDFUZZ" replay --backend mpi --deadline 120s "$work/bug/conflict-act-mlp.linear_fc2@tp/min.json" >"$work/stdout" 2>"$work/stderr"
grep -q "conflict/act/mlp.linear_fc2@tp: yes" "$work/stdout" || fail "replay inside mpirun: $(cat "$work/stderr")"
check "no process is left" none_left
finish
