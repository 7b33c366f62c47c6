"""Small configurations of any model type: settings of a transformers configuration class that make a case's model."""
import dataclasses
import functools

HEAD = 8                                                 # elements of an attention head; a rotation takes pairs of them
LATENT = 16
WINDOW = 4
POSITIONS = 64

# What a setting may be called in the configurations, and what it is here; a function of the case's model.
SIZES = {
    "hidden_size n_embd d_model": lambda m: m["heads"] * HEAD,
    "intermediate_size ffn_hidden_size intermediate_size_mlp dense_intermediate_size": lambda m: m["intermediate"],
    "moe_intermediate_size shared_expert_intermediate_size shared_experts_intermediate_size shared_intermediate_size "
    "expert_ffn_hidden_size share_expert_dim moe_shared_expert_intermediate_size": lambda m: m["intermediate"] // 2,
    "num_hidden_layers n_layer num_layers num_layers_per_stack": lambda m: m["layers"],
    "num_attention_heads n_head num_heads swa_num_attention_heads num_sliding_attention_heads": lambda m: m["heads"],
    "num_key_value_heads swa_num_key_value_heads": lambda m: m["heads"] // m["queries_per_key"],
    "head_dim swa_head_dim qk_nope_head_dim qk_rope_head_dim v_head_dim index_head_dim": lambda m: HEAD,
    "qk_head_dim": lambda m: 2 * HEAD,
    "num_experts n_routed_experts num_local_experts moe_num_experts": lambda m: m["experts"],
    "num_experts_per_tok moe_topk moe_k top_k_experts": lambda m: m["active"],
    "n_shared_experts num_shared_experts moe_num_shared_experts n_group topk_group": lambda m: 1,
    "first_k_dense_replace num_dense_layers moe_layer_start_index decoder_sparse_step moe_layer_interval "
    "expert_layer_period interleave_moe_layer_step": lambda m: 1,
    "moe_layer_end_index": lambda m: m["layers"] - 1,
    "expert_layer_offset num_kv_shared_layers num_nextn_predict_layers max_window_layers": lambda m: 0,
    "mlp_only_layers": lambda m: [],
    "q_lora_rank kv_lora_rank o_lora_rank laurel_rank gated_norm_rank loop_gate_rank embedding_rank hc_lowrank d_rel "
    "router_hidden_size": lambda m: LATENT,
    "hidden_size_per_layer_input ple_embed_dim": lambda m: LATENT,
    "index_n_heads o_groups hc_mult hc_count": lambda m: 2,
    "index_topk index_topk_blocks": lambda m: POSITIONS,
    "vocab_size vocab_size_per_layer_input unpadded_vocab_size vision_vocab_size": lambda m: m["vocabulary"],
    "max_position_embeddings n_positions n_ctx original_max_position_embeddings log_scaling_n_floor rel_extent": lambda m: POSITIONS,
    "sliding_window sliding_window_size attention_chunk_size block_size keep_window_size mamba_chunk_size chunk_size "
    "index_block_size": lambda m: WINDOW,
    "mamba_n_heads mamba_num_heads linear_num_value_heads linear_num_heads": lambda m: m["heads"],
    "linear_num_key_heads": lambda m: m["heads"] // m["queries_per_key"],
    "mamba_d_head mamba_head_dim": lambda m: 2 * HEAD,
    "mamba_d_ssm": lambda m: 2 * HEAD * m["heads"],
    "linear_key_head_dim linear_value_head_dim linear_head_dim": lambda m: HEAD,
    "mamba_d_state ssm_state_size mamba_dt_rank": lambda m: HEAD,
    "n_groups mamba_n_groups n_input_layers n_recurrent_layers n_output_layers": lambda m: 1,
    "rotary_dim": lambda m: HEAD // 2,
    "hc_sinkhorn_iters": lambda m: 4,
    "pad_token_id": lambda m: 0,
    "bos_token_id": lambda m: 1,
    "eos_token_id": lambda m: 2,
    "mask_token_id sep_token_id eod_token_id document_token_id": lambda m: 3,
    "tie_word_embeddings": lambda m: m["tied"],
    "mlp_bias attention_bias use_bias": lambda m: m["bias"],
}
BY_NAME = {name: value for names, value in SIZES.items() for name in names.split()}
ZERO = ("drop", "jitter")                                # part of the names of what makes a run random


def _per_layer(value, layers, wanted):
    """A list that has an entry for each of `layers`, or numbers of layers, for `wanted` layers: its different entries in turn. None: it is
    no such list."""
    if all(isinstance(one, int) and not isinstance(one, bool) for one in value) and value == sorted(set(value)) and len(value) > 2:
        return [number for number in value if number < wanted]
    if len(value) != layers:
        return None
    different = list({str(one): one for one in value}.values())
    return [different[number % len(different)] for number in range(wanted)]


@functools.lru_cache(maxsize=None)
def defaults(config):
    """The settings of a configuration class and what each is when none is given."""
    made = config().__dict__
    return {field.name: made.get(field.name) for field in dataclasses.fields(config)}


def _settings_of(config, model):
    known = defaults(config)
    layers = next((known[name] for name in ("num_hidden_layers", "n_layer", "num_layers") if known.get(name)), 0)
    settings = {}
    for name, default in known.items():
        if name in BY_NAME and (default is not None or name in ("head_dim", "num_key_value_heads")):
            settings[name] = BY_NAME[name](model)
        elif isinstance(default, (list, tuple)) and default:
            per_layer = _per_layer(list(default), layers, model["layers"])
            settings.update({} if per_layer is None else {name: per_layer})
        elif isinstance(default, (int, float)) and default and not isinstance(default, bool) and any(part in name for part in ZERO):
            settings[name] = 0.0
    if "kv_lora_rank" in known:                          # each head has a key of its own, whose size follows from its parts
        settings.pop("head_dim", None)
        settings["num_key_value_heads"] = model["heads"]
    if isinstance(known.get("rope_parameters"), dict):
        settings["rope_parameters"] = _rotation(known["rope_parameters"])
    return settings


def _rotation(parameters):
    """Rotations as they are, but of this head's size."""
    if isinstance(parameters, dict):
        return {name: [1, 1, 2] if name == "mrope_section" else _rotation(value) for name, value in parameters.items()}
    return parameters


def settings(config, model, overrides):
    """{name: value} for a configuration class. model: of the case. overrides: {name: value} that this type needs beside the rules."""
    return {**_settings_of(config, model), **overrides}
