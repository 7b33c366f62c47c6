"""A case: a JSON object that says what is computed and on which layout. Read strictly; what cannot run is refused with a reason."""
import json

from .rules import refusals


class CaseError(ValueError):
    """A case that cannot be read or run; its text is one line for the user."""


LAYOUT = {"tp": 1, "cp": 1, "dp": 1, "pp": 1, "vpp": 1, "ep": 1, "etp": 1, "sp": False, "distributed_optimizer": False,
          "overlap_grad_reduce": False, "bucket_size": 0}
OPTIMIZER = {"name": "adam", "lr": 0.01, "eps": 0.001, "weight_decay": 0.0, "clip_grad": 0.1}
DATA = {"loss_mask": "full", "documents": 1, "microbatches": "drawn"}
EXPECT = {"verdict": "", "first": ""}      # for those who replay the case: PASS or FINDING, and the name of the first finding
CHOICES = {"loss": ("mean", "sum_and_count", "per_token"), "precision": ("fp32", "bf16"), "data.loss_mask": ("full", "uneven"),
           "data.microbatches": ("drawn", "equal"), "expect.verdict": ("", "PASS", "FINDING"),
           "optimizer.name": ("adam", "sgd")}

# Fields of the package's TransformerConfig (and MLATransformerConfig) that a case may set, with the adapter's defaults.
MODEL = {
    "num_layers": 1, "hidden_size": 16, "num_attention_heads": 4, "num_query_groups": None, "kv_channels": None, "ffn_hidden_size": None,
    "add_bias_linear": True, "add_qkv_bias": False, "gated_linear_unit": False, "activation_func": "gelu", "normalization": "LayerNorm",
    "layernorm_zero_centered_gamma": False, "apply_residual_connection_post_layernorm": False, "fp32_residual_connection": False,
    "qk_layernorm": False, "softmax_type": "vanilla", "window_size": None, "apply_query_key_layer_scaling": False,
    "attention_output_gate": False, "rotary_interleaved": False, "multi_latent_attention": False, "q_lora_rank": None, "kv_lora_rank": 8,
    "qk_head_dim": 8, "qk_pos_emb_head_dim": 4, "v_head_dim": 8, "rope_type": "rope", "experimental_attention_variant": None,
    "linear_attention_freq": None, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "linear_num_key_heads": 4, "linear_num_value_heads": 4,
    "num_moe_experts": None, "moe_ffn_hidden_size": None, "moe_layer_freq": 1, "moe_shared_expert_intermediate_size": None,
    "moe_shared_expert_gate": False, "moe_shared_expert_overlap": False, "moe_router_load_balancing_type": "none", "moe_router_topk": 2,
    "moe_router_num_groups": None, "moe_router_group_topk": None, "moe_router_pre_softmax": False, "moe_router_topk_scaling_factor": None,
    "moe_router_score_function": "softmax", "moe_router_dtype": None, "moe_router_enable_expert_bias": False, "moe_aux_loss_coeff": 0.0,
    "moe_z_loss_coeff": None, "moe_token_dispatcher_type": "alltoall", "moe_expert_capacity_factor": None,
    "moe_pad_expert_input_to_capacity": False, "moe_token_drop_policy": "probs", "moe_apply_probs_on_input": False,
    "mtp_num_layers": None, "mtp_loss_scaling_factor": 0.1,
    "recompute_granularity": None, "recompute_method": None, "recompute_num_layers": None, "recompute_modules": None,
    "distribute_saved_activations": False, "num_layers_in_first_pipeline_stage": None, "num_layers_in_last_pipeline_stage": None,
}
# Arguments of GPTModel that a case may set.
GPT = {"vocab_size": 32, "position_embedding_type": "rope", "rotary_percent": 1.0, "parallel_output": True,
       "share_embeddings_and_output_weights": False}

TOP = {"target": "megatron-core", "seed": 1, "steps": 1, "microbatches": 2, "microbatch_size": 2, "sequence_length": 8, "loss": "mean",
       "precision": "fp32", "mode": "e2e", "model": {**MODEL, **GPT}, "layout": LAYOUT, "optimizer": OPTIMIZER, "data": DATA, "expect": EXPECT}
COUNTS = ("steps", "microbatches", "microbatch_size", "sequence_length")


def read_case(path, strict=False):
    """The case in a file with every field filled in. Raises CaseError."""
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file, object_pairs_hook=_unique)
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, CaseError) as error:
        raise CaseError(f"{path}: {error}") from error
    try:
        return complete(document, strict)
    except CaseError as error:
        raise CaseError(f"{path}: {error}") from error


def complete(document, strict=False):
    """A case with defaults filled in. Raises CaseError for unknown fields, wrong types and what the target does not support."""
    case = _filled(document, TOP, "")
    for path, choices in CHOICES.items():
        value = case
        for part in path.split("."):
            value = value[part]
        if value not in choices:
            raise CaseError(f"{path}: {value!r} is none of {', '.join(choices)}")
    if case["target"] != "megatron-core" or case["mode"] != "e2e":
        raise CaseError("target must be megatron-core, mode e2e")
    for key in COUNTS:
        if case[key] < 1:
            raise CaseError(f"{key}: {case[key]} is below 1")
    for axis in ("tp", "cp", "dp", "pp", "vpp", "ep", "etp"):
        if case["layout"][axis] < 1:
            raise CaseError(f"layout.{axis}: {case['layout'][axis]} is below 1")
    reasons = refusals(case, strict)
    if reasons:
        raise CaseError("not supported: " + "; ".join(reasons))
    return case


def _unique(pairs):
    keys = [key for key, _ in pairs]
    if len(set(keys)) != len(keys):
        raise CaseError(f"repeated key {next(key for key in keys if keys.count(key) > 1)!r}")
    return dict(pairs)


def _filled(document, defaults, path):
    """`document` over `defaults`; keys that those lack and values of another type are refused. None as default admits any value."""
    if not isinstance(document, dict):
        raise CaseError(f"{path or 'the case'}: not an object")
    result = dict(defaults)
    for key, value in document.items():
        here = f"{path}.{key}" if path else key
        if key not in defaults:
            raise CaseError(f"{here}: unknown key")
        default = defaults[key]
        if isinstance(default, dict):
            result[key] = _filled(value, default, here)
        elif default is None or value is None and path == "model":
            result[key] = value
        elif isinstance(default, bool) != isinstance(value, bool) or not isinstance(value, _types(default)):
            raise CaseError(f"{here}: {value!r} is of another type than {default!r}")
        else:
            result[key] = value
    for key, default in defaults.items():
        if isinstance(default, dict) and key not in document:
            result[key] = dict(default)
    return result


def _types(default):
    if isinstance(default, float):
        return (int, float, list)
    return (str, list) if isinstance(default, str) else (int, list) if isinstance(default, int) else type(default)
