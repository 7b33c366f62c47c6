"""The cases of golden runs. Each says only what is not at its smallest; fields are those of case files: *_milli are thousandths, *_micro
millionths."""

SMALLEST = {
    "seed": 0, "mode": "e2e",
    "model": dict(layers=1, hidden=8, heads=1, kv_heads=1, head_dim=4, ffn=8, vocab=8, vocab_padded=8, seq=4, norm="rms",
                  activation="gelu", positions="none", bias=False, tied=False, adapter=False),
    "precision": dict(compute="fp32"),
    "train": dict(steps=1, microbatches=1, microbatch_size=1, loss_norm="per_token", clip_milli=0, lr_micro=1000, weight_decay_milli=0,
                  beta1_milli=900, beta2_milli=999, frozen=[]),
    "data": dict(tokens="uniform", mask="full", weights="normal"),
}

MOE = dict(experts=0, topk=1, ffn=8, router="softmax", scope="sequence", capacity_milli=0, aux_micro=0, z_micro=0)

CASES = {
    "gpt": dict(
        seed=11,
        model=dict(layers=2, hidden=12, heads=3, kv_heads=3, head_dim=4, ffn=20, vocab=19, vocab_padded=24, seq=6, norm="layer",
                   positions="learned", bias=True, tied=True),
        train=dict(microbatches=2, microbatch_size=2)),
    "llama": dict(
        seed=12,
        model=dict(layers=2, hidden=12, heads=2, kv_heads=2, head_dim=6, ffn=16, vocab=16, vocab_padded=16, seq=7, activation="swiglu",
                   positions="rotary"),
        train=dict(microbatches=2)),
    "gqa_uneven_mask": dict(
        seed=13,
        model=dict(hidden=10, heads=4, kv_heads=2, head_dim=4, ffn=14, vocab=13, vocab_padded=16, seq=8, activation="swiglu",
                   positions="rotary", bias=True),
        train=dict(microbatches=3, microbatch_size=2),
        data=dict(mask="uneven")),
    "mqa_per_microbatch": dict(
        seed=14,
        model=dict(hidden=9, heads=6, kv_heads=1, head_dim=2, ffn=8, vocab=11, vocab_padded=12, seq=6, norm="layer", positions="rotary",
                   tied=True),
        train=dict(microbatches=2, microbatch_size=2, loss_norm="per_microbatch"),
        data=dict(mask="uneven", weights="uniform")),
    "adapter_sparse_mask": dict(
        seed=15,
        model=dict(hidden=8, heads=2, kv_heads=1, ffn=12, seq=9, positions="learned", adapter=True),
        train=dict(microbatches=3, loss_norm="per_microbatch"),
        data=dict(mask="sparse", tokens="edge", weights="heavy")),
    "clip_decay_steps": dict(
        seed=16,
        model=dict(hidden=8, heads=2, kv_heads=2, ffn=8, norm="layer", positions="rotary", bias=True, tied=True),
        precision=dict(compute="bf16"),
        train=dict(steps=3, microbatches=2, clip_milli=300, lr_micro=20000, weight_decay_milli=100, beta1_milli=850, beta2_milli=950)),
    "frozen_head_steps": dict(
        seed=17,
        model=dict(layers=2, hidden=8, heads=2, kv_heads=2, ffn=8, positions="learned", bias=True, tied=True, adapter=True),
        train=dict(steps=2, lr_micro=5000, frozen=["embedding", "qkv", "norms"]),
        data=dict(tokens="few", weights="sparse")),
    "parallel_relu2": dict(
        seed=19,
        model=dict(layers=2, hidden=12, heads=4, kv_heads=2, ffn=16, seq=6, norm="layer", activation="relu2", positions="learned",
                   bias=True, parallel_residual=True),
        train=dict(microbatches=2, microbatch_size=2)),
    "label_smoothing": dict(
        seed=20,
        model=dict(hidden=8, heads=2, kv_heads=2, ffn=12, vocab=13, vocab_padded=16, tied=True),
        train=dict(steps=2, microbatches=2, loss_norm="per_microbatch", label_smoothing_milli=150),
        data=dict(mask="uneven")),
    "sinks_window": dict(
        seed=21,
        model=dict(layers=2, hidden=8, heads=4, kv_heads=2, ffn=8, seq=7, positions="rotary", sinks=True, window=3),
        train=dict(steps=2, microbatches=2, microbatch_size=2, lr_micro=5000),
        data=dict(weights="uniform")),
    "qk_norm_layer": dict(
        seed=22,
        model=dict(hidden=8, heads=4, kv_heads=2, ffn=8, seq=5, norm="layer", positions="rotary", bias=True, qk_norm=True),
        train=dict(steps=2, microbatches=2, microbatch_size=2, lr_micro=5000),
        data=dict(mask="uneven")),
    "qk_norm_rms_parallel_sinks": dict(
        seed=23,
        model=dict(layers=2, hidden=8, heads=2, kv_heads=1, head_dim=6, ffn=8, seq=6, activation="relu2", qk_norm=True, sinks=True,
                   window=2, parallel_residual=True),
        train=dict(microbatches=2, label_smoothing_milli=100, frozen=["fc1"]),
        data=dict(weights="uniform")),
    "latent_layer": dict(
        seed=26,
        model=dict(layers=2, hidden=10, heads=2, kv_heads=2, head_dim=6, ffn=8, seq=5, norm="layer", positions="rotary", bias=True,
                   kv_lora_rank=7, qk_rope_dim=2),
        train=dict(steps=2, microbatches=2, microbatch_size=2, lr_micro=5000),
        data=dict(mask="uneven")),
    "latent_query_sinks": dict(
        seed=27,
        model=dict(layers=2, hidden=8, heads=3, kv_heads=3, head_dim=6, ffn=8, seq=6, positions="rotary", kv_lora_rank=5, q_lora_rank=4,
                   qk_rope_dim=4, sinks=True, window=3, parallel_residual=True),
        train=dict(microbatches=2, microbatch_size=2),
        data=dict(weights="uniform", documents=2)),
    "loss_scale_fp16": dict(
        seed=22,
        model=dict(layers=2, hidden=8, heads=2, kv_heads=2, ffn=12, norm="layer", tied=True),
        precision=dict(compute="fp16", loss_scale_log2=9, loss_scale_window=1),
        train=dict(steps=3, microbatches=2, clip_milli=200, lr_micro=5000),
        data=dict(mask="uneven")),
    "dropout": dict(
        seed=24,
        model=dict(layers=2, hidden=8, heads=2, kv_heads=2, ffn=8, seq=6, norm="layer", bias=True),
        train=dict(steps=2, microbatches=2, microbatch_size=2, lr_micro=5000, dropout_milli=300)),
    "dropout_parallel": dict(
        seed=25,
        model=dict(hidden=8, heads=2, kv_heads=1, ffn=8, activation="swiglu", parallel_residual=True),
        train=dict(microbatches=2, dropout_milli=500)),
    "documents_learned": dict(
        seed=26,
        model=dict(layers=2, hidden=8, heads=2, kv_heads=2, ffn=8, seq=9, norm="layer", positions="learned", bias=True),
        train=dict(microbatches=2, microbatch_size=3),
        data=dict(documents=4)),
    "documents_padding_rotary": dict(
        seed=27,
        model=dict(layers=2, hidden=8, heads=2, kv_heads=1, ffn=8, seq=8, activation="swiglu", positions="rotary", sinks=True, window=3),
        train=dict(steps=2, microbatches=2, microbatch_size=2, loss_norm="per_microbatch", lr_micro=5000),
        data=dict(mask="sparse", documents=3, padding=5)),
    "post_norm_layer": dict(
        seed=28,
        model=dict(layers=2, hidden=8, heads=2, kv_heads=1, ffn=8, norm="layer", positions="rotary", bias=True, post_norm=True),
        train=dict(steps=2, microbatches=2, microbatch_size=2, lr_micro=5000),
        data=dict(mask="uneven")),
    "post_norm_rms_parallel_dropout": dict(
        seed=29,
        model=dict(layers=2, hidden=12, heads=2, kv_heads=2, ffn=8, activation="swiglu", qk_norm=True, parallel_residual=True,
                   post_norm=True),
        train=dict(microbatches=2, dropout_milli=250, frozen=["norms"])),
    "cross_attention": dict(
        seed=30,
        model=dict(hidden=8, heads=4, kv_heads=2, ffn=8, seq=5, norm="layer", positions="rotary", bias=True, post_norm=True, memory_seq=3),
        train=dict(steps=2, microbatches=2, microbatch_size=2, lr_micro=5000)),
    "cross_attention_frozen": dict(
        seed=31,
        model=dict(hidden=8, heads=2, kv_heads=1, ffn=8, qk_norm=True, sinks=True, window=2, tied=True, memory_seq=6),
        train=dict(microbatches=2, dropout_milli=200, frozen=["qkv", "embedding"]),
        data=dict(weights="uniform", documents=2, padding=3)),
    "mtp": dict(
        seed=28,
        model=dict(layers=1, hidden=8, heads=2, kv_heads=1, ffn=8, seq=6, norm="layer", positions="rotary", bias=True, mtp_depth=2),
        train=dict(steps=2, microbatches=2, microbatch_size=2, lr_micro=5000, dropout_milli=200, mtp_weight_milli=300),
        data=dict(mask="uneven", documents=2)),
    "mtp_tied_per_microbatch": dict(
        seed=29,
        model=dict(layers=1, hidden=6, heads=2, kv_heads=2, ffn=8, seq=5, activation="swiglu", positions="learned", tied=True, adapter=True,
                   parallel_residual=True, mtp_depth=2),
        train=dict(microbatches=3, loss_norm="per_microbatch", mtp_weight_milli=1500, label_smoothing_milli=100),
        data=dict(mask="sparse", padding=2)),
    "frozen_mlp": dict(
        seed=18,
        model=dict(layers=2, hidden=8, heads=2, kv_heads=1, activation="swiglu", norm="layer"),
        train=dict(microbatches=2, clip_milli=100000, frozen=["proj", "fc1", "fc2"]),
        data=dict(mask="uneven", weights="outliers")),
    "moe_softmax": dict(
        seed=19,
        model=dict(layers=2, hidden=12, heads=2, kv_heads=2, head_dim=4, seq=7, activation="swiglu", positions="rotary"),
        moe=dict(experts=6, topk=3, ffn=10),
        train=dict(microbatches=2, steps=2)),
    "moe_sigmoid_capacity": dict(
        seed=20,
        model=dict(layers=2, hidden=10, heads=2, kv_heads=1, head_dim=4, seq=8, norm="layer", positions="learned", bias=True),
        moe=dict(experts=4, topk=2, ffn=9, router="sigmoid", capacity_milli=800),
        train=dict(microbatches=2, microbatch_size=2),
        data=dict(mask="uneven")),
    "moe_one_of_many": dict(
        seed=21,
        model=dict(hidden=8, heads=2, kv_heads=2, head_dim=4, seq=6, tied=True),
        moe=dict(experts=5, ffn=8, router="sigmoid", scope="microbatch", capacity_milli=1100),
        train=dict(microbatches=3, microbatch_size=3, loss_norm="per_microbatch", frozen=["fc2"])),
    "moe_one_of_three": dict(
        seed=22,
        model=dict(layers=2, hidden=8, heads=2, kv_heads=2, head_dim=4, seq=9),
        moe=dict(experts=3, ffn=12, capacity_milli=500),
        data=dict(weights="heavy")),
    "moe_shared": dict(
        seed=23,
        model=dict(layers=2, hidden=8, heads=2, kv_heads=1, head_dim=4, seq=6, norm="layer", activation="swiglu", bias=True, post_norm=True),
        moe=dict(experts=4, topk=2, ffn=8, shared_ffn=12),
        train=dict(microbatches=2, microbatch_size=2, steps=2)),
    "moe_mtp": dict(
        seed=25,
        model=dict(layers=1, hidden=8, heads=2, kv_heads=1, head_dim=4, seq=6, norm="layer", positions="rotary", mtp_depth=2),
        moe=dict(experts=4, topk=2, ffn=6, shared_ffn=4, capacity_milli=900),
        train=dict(microbatches=2, microbatch_size=2, mtp_weight_milli=400),
        data=dict(mask="uneven", documents=2)),
    "moe_shared_relu2": dict(
        seed=24,
        model=dict(layers=1, hidden=10, heads=2, kv_heads=2, head_dim=4, seq=7, activation="relu2", parallel_residual=True),
        moe=dict(experts=3, topk=2, ffn=8, shared_ffn=6, router="sigmoid", capacity_milli=900),
        train=dict(microbatches=2, frozen=["fc1"], dropout_milli=300),
        data=dict(mask="uneven")),
    "moe_aux_softmax": dict(
        seed=33,
        model=dict(layers=2, hidden=8, heads=2, kv_heads=2, head_dim=4, seq=7, positions="learned"),
        moe=dict(experts=5, topk=2, ffn=8, aux_micro=300000, z_micro=20000),
        train=dict(microbatches=2, microbatch_size=2),
        data=dict(mask="uneven", padding=4)),
    "moe_aux_sigmoid": dict(
        seed=34,
        model=dict(layers=2, hidden=8, heads=2, kv_heads=1, head_dim=4, seq=6),
        moe=dict(experts=4, topk=2, ffn=9, router="sigmoid", scope="microbatch", capacity_milli=700, aux_micro=1000000),
        train=dict(microbatches=2, microbatch_size=3, loss_norm="per_microbatch"),
        data=dict(padding=2)),
    "moe_z_sigmoid_scaled": dict(
        seed=35,
        model=dict(hidden=6, heads=2, kv_heads=2, head_dim=4, seq=5),
        moe=dict(experts=3, ffn=8, router="sigmoid", aux_micro=50000, z_micro=400000),
        precision=dict(loss_scale_log2=6),
        train=dict(microbatches=2, microbatch_size=2, loss_norm="per_microbatch")),
}


def complete(case):
    """The case with all its fields, as the case file has it."""
    full = {}
    for key, value in SMALLEST.items():
        full[key] = {**value, **case.get(key, {})} if isinstance(value, dict) else case.get(key, value)
    if "moe" in case:
        full["moe"] = {**MOE, **case["moe"]}
    return full
