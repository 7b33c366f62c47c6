"""The table of all that a case has: paths, what a field may be (the plainest first, which is what a case that leaves it out gets), and who computes.

Names below `model` are those of the package's TransformerConfig, MLATransformerConfig and GPTModel; a null is the package's own default.
"""

# What is computed. A campaign draws from the choices; a file may set other values of the same type.
FUNCTION = {
    "mode": ["e2e", "isolated"],                                   # isolated: modules get given inputs and gradients
    "steps": [1, 2], "microbatches": [2, 1, 4], "microbatch_size": [2, 1], "sequence_length": [8, 16, 2],
    "loss": ["mean", "sum_and_count", "per_token"], "precision": ["fp32", "bf16"],
    "data.loss_mask": ["full", "uneven"], "data.documents": [1, 3], "data.microbatches": ["drawn", "equal"], "data.padding": ["none", "uneven"],
    "data.packing": ["none", "thd"],
    "optimizer.name": ["adam", "sgd"], "optimizer.clip_grad": [0.1, 0.0], "optimizer.weight_decay": [0.0, 0.1],
    "optimizer.adam_beta1": [0.9, 0.5], "optimizer.adam_beta2": [0.999, 0.9], "optimizer.sgd_momentum": [0.9, 0.0],
    "optimizer.decoupled_weight_decay": [True, False], "optimizer.apply_wd_to_qk_layernorm": [False, True],
    "model.num_layers": [1, 2, 4, 3], "model.hidden_size": [16, 8, 32], "model.num_attention_heads": [4, 2], "model.num_query_groups": [None, 2, 1],
    "model.kv_channels": [None, 8], "model.ffn_hidden_size": [None, 8, 32], "model.add_bias_linear": [False, True],
    "model.add_qkv_bias": [False, True], "model.gated_linear_unit": [False, True],
    "model.activation_func": ["gelu", "silu", "relu", "squared_relu", "quick_gelu"],
    "model.activation_func_clamp_value": [None, 0.5], "model.glu_linear_offset": [0.0, 1.0],
    "model.normalization": ["LayerNorm", "RMSNorm"], "model.layernorm_epsilon": [1e-5, 0.01],
    "model.layernorm_zero_centered_gamma": [False, True], "model.fp32_residual_connection": [False, True], "model.qk_layernorm": [False, True],
    "model.qk_l2_norm": [False, True], "model.softmax_scale": [None, 0.5], "model.attention_softmax_in_fp32": [True, False],
    "model.softmax_type": ["vanilla", "off-by-one", "learnable"], "model.window_size": [None, 3], "model.window_attn_skip_freq": [None, 2],
    "model.apply_query_key_layer_scaling": [False, True], "model.attention_output_gate": [False, True],
    "model.rotary_interleaved": [False, True], "model.rotary_percent": [1.0, 0.5], "model.rotary_base": [10000, 100], "model.rope_scaling": [False, True],
    "model.rope_scaling_factor": [8.0, 2.0],
    "model.seq_len_interpolation_factor": [None, 2.0], "model.no_rope_freq": [None, 2],
    "model.position_embedding_type": ["rope", "learned_absolute", "none"], "model.vocab_size": [32, 64],
    "model.share_embeddings_and_output_weights": [False, True],
    "model.cross_entropy_loss_fusion": [False, True],             # "native": the package's own, in torch
    "model.multi_latent_attention": [False, True], "model.q_lora_rank": [None, 8], "model.rope_type": ["rope", "yarn"],
    "model.kv_lora_rank": [8, 4], "model.qk_head_dim": [8, 4], "model.v_head_dim": [8, 4],
    "model.rotary_scaling_factor": [40, 2], "model.original_max_position_embeddings": [4096, 4], "model.beta_fast": [32, 4], "model.beta_slow": [1, 2],
    "model.mscale": [1.0, 0.5], "model.mscale_all_dim": [0.0, 1.0],
    "model.experimental_attention_variant": [None, "gated_delta_net"], "model.linear_num_key_heads": [4, 2], "model.linear_num_value_heads": [4, 2],
    "model.linear_conv_kernel_dim": [4, 2], "model.linear_key_head_dim": [8, 4], "model.linear_value_head_dim": [8, 16],
    "model.num_moe_experts": [None, 4, 2, 8], "model.moe_ffn_hidden_size": [None, 8], "model.moe_layer_freq": [1, 2],
    "model.moe_shared_expert_intermediate_size": [None, 16], "model.moe_shared_expert_gate": [False, True],
    "model.moe_shared_expert_overlap": [False, True],             # calls the shared expert in parts, so that it has no output of its own
    "model.moe_router_load_balancing_type": ["none", "aux_loss", "seq_aux_loss", "global_aux_loss", "sinkhorn"],
    "model.moe_aux_loss_coeff": [0.0, 0.5], "model.moe_z_loss_coeff": [None, 0.1], "model.moe_router_topk": [2, 1],
    "model.moe_router_num_groups": [None, 2], "model.moe_router_group_topk": [None, 1], "model.moe_router_pre_softmax": [False, True],
    "model.moe_router_topk_scaling_factor": [None, 2.5], "model.moe_router_score_function": ["softmax", "sigmoid"],
    "model.moe_router_dtype": [None, "fp32", "fp64"], "model.moe_router_enable_expert_bias": [False, True],
    "model.moe_router_bias_update_rate": [0.001, 0.5],
    "model.moe_expert_capacity_factor": [None, 1.0], "model.moe_pad_expert_input_to_capacity": [False, True],
    "model.moe_token_drop_policy": ["probs", "position"], "model.moe_apply_probs_on_input": [False, True],
    "model.mtp_num_layers": [None, 1, 2], "model.mtp_loss_scaling_factor": [0.1, 1.0],
}

# Who computes, and when: a reference is the case with all of these at their first choices.
LAYOUT = {
    "layout.tp": [1, 2, 4], "layout.cp": [1, 2, 4], "layout.dp": [1, 2, 4], "layout.pp": [1, 2, 4], "layout.vpp": [1, 2], "layout.ep": [1, 2, 4],
    "layout.etp": [1, 2, 4], "layout.sp": [False, True], "layout.distributed_optimizer": [False, True],
    "layout.overlap_grad_reduce": [False, True], "layout.bucket_size": [0, 500],
    "layout.pad_buckets_for_high_nccl_busbw": [False, True],
    "model.parallel_output": [True, False], "model.moe_token_dispatcher_type": ["alltoall", "allgather"],
    "model.recompute_granularity": [None, "full", "selective"], "model.recompute_method": [None, "uniform", "block"],
    "model.recompute_num_layers": [None, 1],
    "model.recompute_modules": [None, "core_attn", "layernorm", "mlp", "mla_up_proj", "moe", "shared_experts"],
    "model.distribute_saved_activations": [False, True], "model.num_layers_in_first_pipeline_stage": [None, 1],
    "model.num_layers_in_last_pipeline_stage": [None, 1], "model.account_for_embedding_in_pipeline_split": [False, True],
    "model.account_for_loss_in_pipeline_split": [False, True], "model.pipeline_model_parallel_layout": [None, "Ettt|tL", "E|ttL", "E|t|t|ttL"],
    "model.variable_seq_lengths": [False, True], "model.batch_p2p_comm": [True, False],
    "model.microbatch_group_size_per_vp_stage": [None, 2, 4], "model.overlap_p2p_comm_warmup_flush": [False, True],
    "model.clone_scatter_output_in_embedding": [True, False],
}
OF_STAGES = ("num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage", "account_for_embedding_in_pipeline_split",
             "account_for_loss_in_pipeline_split", "pipeline_model_parallel_layout")  # below model: without pipeline stages the package refuses them
RANKS = ["layout.tp", "layout.cp", "layout.dp", "layout.pp"]      # a candidate has as many ranks as these multiply to

ATTENTION, EXPERTS = {"model.experimental_attention_variant": [None]}, {"model.num_moe_experts": [4, 2, 8]}
OWN_KEYS = {"model.multi_latent_attention": [False]}
ROTARY = {"model.position_embedding_type": ["rope"]}
YARN = {"model.multi_latent_attention": [True], "model.rope_type": ["yarn"]}
LINEAR = {"model.experimental_attention_variant": ["gated_delta_net"]}
STAGES, INTERLEAVED = {"layout.pp": [2, 4]}, {"layout.pp": [2, 4], "layout.vpp": [2]}
AUXILIARY = ["aux_loss", "seq_aux_loss", "global_aux_loss"]
# Where a field does something: elsewhere its choices compute the same, so that a campaign draws it together with these.
NEEDS = {
    "data.padding": EXPERTS,                                      # padding_mask: of the router alone
    "data.microbatches": {"model.moe_router_load_balancing_type": ["global_aux_loss"]},
    "model.num_query_groups": OWN_KEYS, "model.kv_channels": OWN_KEYS, "model.attention_output_gate": OWN_KEYS,
    "model.softmax_type": ATTENTION, "model.window_size": ATTENTION, "model.apply_query_key_layer_scaling": ATTENTION,
    "model.window_attn_skip_freq": {"model.window_size": [3]},
    "model.rotary_interleaved": ROTARY, "model.rotary_percent": {**ROTARY, **OWN_KEYS},
    "model.rope_scaling": {**ROTARY, **OWN_KEYS}, "model.seq_len_interpolation_factor": {**ROTARY, **OWN_KEYS}, "model.no_rope_freq": ROTARY,
    "model.activation_func_clamp_value": {"model.gated_linear_unit": [True]},
    "model.glu_linear_offset": {"model.gated_linear_unit": [True]},
    "model.qk_l2_norm": {**ATTENTION, **OWN_KEYS}, "model.softmax_scale": {**ATTENTION, **OWN_KEYS}, "model.attention_softmax_in_fp32": ATTENTION,
    "model.rotary_base": ROTARY, "model.rope_scaling_factor": {**ROTARY, **OWN_KEYS, "model.rope_scaling": [True]},
    **{f"model.{name}": YARN for name in (
        "rotary_scaling_factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "mscale", "mscale_all_dim")},
    **{f"model.{name}": {"model.multi_latent_attention": [True]} for name in ("kv_lora_rank", "qk_head_dim", "v_head_dim")},
    **{f"model.{name}": LINEAR for name in ("linear_num_key_heads", "linear_num_value_heads", "linear_conv_kernel_dim", "linear_key_head_dim",
                                            "linear_value_head_dim")},
    "model.q_lora_rank": {"model.multi_latent_attention": [True]}, "model.rope_type": {"model.multi_latent_attention": [True]},
    "model.moe_shared_expert_gate": {**EXPERTS, "model.moe_shared_expert_intermediate_size": [16]},
    "model.moe_shared_expert_overlap": {**EXPERTS, "model.moe_shared_expert_intermediate_size": [16]},
    "model.moe_router_load_balancing_type": EXPERTS, "model.moe_aux_loss_coeff": {**EXPERTS, "model.moe_router_load_balancing_type": AUXILIARY},
    "model.moe_router_group_topk": {**EXPERTS, "model.moe_router_num_groups": [2]}, "model.moe_router_num_groups": {**EXPERTS, "model.moe_router_group_topk": [1]},
    "model.moe_pad_expert_input_to_capacity": {**EXPERTS, "model.moe_expert_capacity_factor": [1.0]},
    "model.moe_token_drop_policy": {**EXPERTS, "model.moe_expert_capacity_factor": [1.0]},
    **{f"model.{name}": EXPERTS for name in (
        "moe_ffn_hidden_size", "moe_layer_freq", "moe_shared_expert_intermediate_size", "moe_z_loss_coeff", "moe_router_topk", "moe_router_pre_softmax",
        "moe_router_topk_scaling_factor", "moe_router_score_function", "moe_router_dtype", "moe_router_enable_expert_bias",
        "moe_expert_capacity_factor", "moe_apply_probs_on_input")},
    "model.moe_router_bias_update_rate": {**EXPERTS, "model.moe_router_enable_expert_bias": [True], "steps": [2]},
    "model.mtp_loss_scaling_factor": {"model.mtp_num_layers": [1, 2]},
    "optimizer.adam_beta1": {"optimizer.name": ["adam"]}, "optimizer.adam_beta2": {"optimizer.name": ["adam"]},
    "optimizer.sgd_momentum": {"optimizer.name": ["sgd"], "steps": [2]},
    "optimizer.decoupled_weight_decay": {"optimizer.name": ["adam"], "optimizer.weight_decay": [0.1]},
    "optimizer.apply_wd_to_qk_layernorm": {"optimizer.weight_decay": [0.1], "model.qk_layernorm": [True]},
    "layout.pad_buckets_for_high_nccl_busbw": {"layout.distributed_optimizer": [True]},
    **{f"model.{name}": STAGES for name in ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split",
                                            "pipeline_model_parallel_layout", "variable_seq_lengths", "batch_p2p_comm")},
    **{f"model.{name}": INTERLEAVED for name in ("microbatch_group_size_per_vp_stage", "overlap_p2p_comm_warmup_flush")},
    "model.clone_scatter_output_in_embedding": {"layout.tp": [2, 4], "layout.sp": [True]},
    "layout.vpp": {"layout.pp": [2, 4]}, "layout.sp": {"layout.tp": [2, 4]}, "layout.ep": EXPERTS, "layout.etp": EXPERTS,
    "model.moe_token_dispatcher_type": EXPERTS, "model.recompute_method": {"model.recompute_granularity": ["full"]},
    "model.recompute_num_layers": {"model.recompute_granularity": ["full"]}, "model.recompute_modules": {"model.recompute_granularity": ["selective"]},
    "model.distribute_saved_activations": {"model.recompute_granularity": ["full"], "layout.tp": [2, 4]},
    "model.num_layers_in_first_pipeline_stage": {"layout.pp": [2, 4]}, "model.num_layers_in_last_pipeline_stage": {"layout.pp": [2, 4]},
}

# What a file may set and no campaign draws.
FIXED = {
    "target": "megatron-core", "optimizer.lr": 0.01, "optimizer.eps": 0.001, "model.qk_pos_emb_head_dim": 4, "model.linear_attention_freq": None,
}
GPT = ("vocab_size", "position_embedding_type", "rotary_percent", "rotary_base", "parallel_output", "share_embeddings_and_output_weights",
       "rope_scaling", "rope_scaling_factor", "seq_len_interpolation_factor")                            # below model: arguments of GPTModel
SEED = {"min": 1, "max": 2**31 - 1}
CHOICES = {**FUNCTION, **LAYOUT}


def value_of(case, path):
    """The value at a path of a complete case."""
    for part in path.split("."):
        case = case[part]
    return case


def with_value(document, path, value):
    """Sets a path of nested objects, which are made where they lack. Returns `document`."""
    *outer, last = path.split(".")
    inner = document
    for part in outer:
        inner = inner.setdefault(part, {})
    inner[last] = value
    return document


def defaults():
    """A complete case with every field at its first choice, seed 1."""
    case = {}
    for path, value in FIXED.items():
        with_value(case, path, value)
    for path, choices in CHOICES.items():
        with_value(case, path, choices[0])
    return with_value(case, "seed", SEED["min"])


def on_one_device(case):
    """The case as its reference runs: what says who computes at its first choice."""
    case = {key: dict(value) if isinstance(value, dict) else value for key, value in case.items()}
    for path, choices in LAYOUT.items():
        with_value(case, path, choices[0])
    return case
