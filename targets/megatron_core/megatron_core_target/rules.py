"""What the target refuses, and where the package differs from one device by design: one list, for case files and for what a worker describes.

A rule is a test of the values of some fields. For the description it is tried on all their choices.
"""
import itertools
import math
from typing import Callable, NamedTuple

from .fields import CHOICES, RANKS, value_of

RANKS_MAX = 4      # of a worker's sets


class Rule(NamedTuple):
    """fields: paths, `model.` left out. test: given their values, true if the case is refused. by_design: strict runs it all the same."""
    fields: str
    test: Callable
    reason: str
    by_design: bool = False

    def paths(self):
        return [name if name in CHOICES else f"model.{name}" for name in self.fields.split()]


def _pieces(tp, sp, cp):
    """Pieces that sequence and, twice, context parallelism cut the sequence into."""
    return (tp if sp else 1) * (2 * cp if cp > 1 else 1)


def _stages(pp, vpp, layers, first, last, embedding, loss, listed):
    """Whether pp * vpp stages cannot share the layers. first, last: layers of the first and the last pipeline stage where these are their own.
    embedding, loss: whether these count as layers; no stage is to have them alone. listed: the stages written out."""
    if pp == 1:
        return False
    if listed:
        stages = listed.split("|")
        return len(stages) != pp * vpp or listed.count("t") != layers or first or last or embedding or loss
    if embedding or loss:
        units = layers + embedding + loss
        return first or last or units % (pp * vpp) or units // (pp * vpp) < 2
    rest = layers - (first or 0) - (last or 0)
    middle = pp - (first is not None) - (last is not None)
    uneven = [n for n in (first, last) if n is not None]
    return (rest if middle == 0 else rest % middle or rest <= 0) or any(n % vpp for n in uneven + ([rest // middle] if middle else []))


def _token_ranks(tp, cp, dp, sp):
    return dp * cp * (tp if sp else 1)


def _rotary_width(hidden, heads, channels, percent):
    return int((channels or hidden // heads) * percent)


def _kinds(kind):
    return kind if isinstance(kind, list) else [kind]


# What cannot run on a CPU, or what the package itself refuses later and less clearly.
SUPPORTS = [
    ("layout.sp layout.tp", lambda sp, tp: sp and tp == 1, "sp needs tp above 1"),
    ("num_moe_experts layout.tp layout.sp", lambda e, tp, sp: e and tp > 1 and not sp,
     "experts with tp need sp: MoELayer refuses to train without"),
    ("num_moe_experts add_bias_linear", lambda e, bias: e and bias, "experts with biases: these are added into a view, and autograd refuses"),
    ("num_moe_experts layout.ep", lambda e, ep: not e and ep > 1, "ep needs experts"),
    ("num_moe_experts layout.etp", lambda e, etp: not e and etp > 1, "etp needs experts"),
    ("num_moe_experts layout.ep", lambda e, ep: e and e % ep, "ep must divide the experts"),
    ("layout.tp layout.cp layout.dp layout.ep layout.etp", lambda tp, cp, dp, ep, etp: tp * cp * dp % (ep * etp),
     "ep * etp must divide tp * cp * dp"),
    ("sequence_length layout.tp layout.sp layout.cp", lambda s, tp, sp, cp: s % _pieces(tp, sp, cp),
     "the sequence must be cut evenly by sp and, twice, by cp"),
    ("multi_latent_attention rope_type original_max_position_embeddings layout.cp",
     lambda mla, rope, length, cp: mla and rope == "yarn" and cp > 1 and length % (2 * cp),
     "yarn's table of original_max_position_embeddings rows must be cut evenly by twice cp: it is made with the model"),
    ("num_attention_heads layout.tp", lambda heads, tp: heads % tp, "tp must divide the heads"),
    ("num_attention_heads num_query_groups", lambda heads, groups: groups and heads % groups, "the query groups must divide the heads"),
    ("multi_latent_attention num_attention_heads num_query_groups layout.tp",
     lambda mla, heads, groups, tp: not mla and (groups or heads) % tp, "tp must divide the query groups: DotProductAttention counts them by rank"),
    ("vocab_size layout.tp", lambda size, tp: size % tp, "tp must divide the vocabulary"),
    ("microbatches layout.dp", lambda count, dp: count % dp, "dp must divide the microbatches"),
    ("layout.vpp layout.pp", lambda vpp, pp: vpp > 1 and pp == 1, "vpp needs pp above 1"),
    ("layout.vpp layout.pp microbatches layout.dp", lambda vpp, pp, count, dp: vpp > 1 and count // dp % pp,
     "the interleaved schedule needs microbatches of a replica that pp divides"),
    ("layout.pp layout.vpp num_layers num_layers_in_first_pipeline_stage num_layers_in_last_pipeline_stage "
     "account_for_embedding_in_pipeline_split account_for_loss_in_pipeline_split pipeline_model_parallel_layout", _stages,
     "the stages cannot share the layers evenly"),
    ("pipeline_model_parallel_layout layout.pp precision fp32_residual_connection",
     lambda listed, pp, precision, wide: listed and listed.startswith("E|") and pp > 1 and precision == "bf16" and wide,
     "a stage that embeds alone sends fp32_residual_connection's fp32, where the next stage expects pipeline_dtype, and Gloo ends the rank"),
    ("pipeline_model_parallel_layout mtp_num_layers", lambda listed, depth: listed and depth, "the stages written out say where MTP's layers are: these have none"),
    ("microbatch_group_size_per_vp_stage layout.pp layout.vpp microbatches layout.dp",
     lambda size, pp, vpp, count, dp: vpp > 1 and size and not pp <= size <= count // dp,
     "the interleaved schedule takes groups of at least pp microbatches, and of no more than a replica has"),
    ("variable_seq_lengths moe_token_dispatcher_type", lambda varies, kind: varies and kind == "allgather",
     "the allgather dispatcher takes no variable sequence lengths"),
    ("qk_l2_norm qk_layernorm", lambda l2, norm: l2 and norm, "qk_l2_norm takes the place of qk_layernorm"),
    ("qk_l2_norm multi_latent_attention", lambda l2, mla: l2 and mla, "MLA has no L2 norm: the package's specification refuses it"),
    ("attention_softmax_in_fp32 apply_query_key_layer_scaling", lambda wide, scaled: not wide and scaled, "scaling by layers makes the softmax fp32"),
    ("layout.distributed_optimizer optimizer.name", lambda on, name: on and name != "adam", "the distributed optimizer has Adam only"),
    ("recompute_modules add_bias_linear", lambda modules, bias: "mlp" in (modules or []) and bias,
     "recomputing mlp with a bias never ends: the bias is an output of the checkpoint, whose backward pass then enters itself"),
    ("recompute_granularity recompute_num_layers", lambda kind, layers: kind == "selective" and layers, "recomputed modules are of all layers"),
    ("recompute_modules multi_latent_attention", lambda modules, mla: "mla_up_proj" in (modules or []) and not mla, "mla_up_proj is MLA's"),
    ("recompute_modules moe_shared_expert_overlap", lambda modules, overlap: "shared_experts" in (modules or []) and overlap,
     "shared experts are either recomputed or overlapped"),
    ("distribute_saved_activations layout.sp", lambda cut, sp: cut and sp, "sp has cut what distribute_saved_activations would cut"),
    ("moe_shared_expert_overlap moe_token_dispatcher_type", lambda overlap, kind: overlap and kind != "alltoall",
     "shared experts overlap with the alltoall dispatcher only"),
    ("experimental_attention_variant", lambda kind: kind not in (None, "gated_delta_net"), "only gated_delta_net has a CPU path"),
    ("experimental_attention_variant layout.cp", lambda kind, cp: kind and cp > 1, "GatedDeltaNet has no context parallelism"),
    ("experimental_attention_variant linear_num_key_heads linear_num_value_heads layout.tp",
     lambda kind, keys, values, tp: kind and (values % keys or keys % tp), "GatedDeltaNet: tp must divide the key heads, these the value heads"),
    ("parallel_output precision", lambda parallel, precision: not parallel and precision == "fp32",
     "gathered logits in fp32: the loss writes into a view of them, and autograd refuses"),
    ("data.packing", lambda packing: packing != "none", "packed sequences: DotProductAttention refuses them, Transformer Engine's attention has them"),
    ("data.padding num_moe_experts", lambda padding, e: padding != "none" and not e, "padding masks are for the router of experts: nothing else reads them"),
    ("data.padding moe_router_enable_expert_bias", lambda padding, bias: padding != "none" and bias,
     "expert biases with a padding mask: TopKRouter._apply_expert_bias masks experts in place of tokens, and the shapes do not fit"),
    ("data.padding layout.sp layout.pp", lambda padding, sp, pp: padding != "none" and sp and pp > 1,
     "a padding mask with sp on later stages: GPTModel cuts it on the stage that embeds alone, and the shapes do not fit"),
    ("window_size layout.cp", lambda window, cp: window and cp > 1, "sliding windows under cp are Transformer Engine's"),
    ("multi_latent_attention num_query_groups num_attention_heads", lambda mla, groups, heads: mla and groups not in (None, heads),
     "MLA has as many key as query heads"),
    ("multi_latent_attention rotary_interleaved attention_output_gate", lambda mla, interleaved, gate: mla and (interleaved or gate),
     "MLA has neither interleaved rotary positions nor an output gate"),
    ("moe_router_topk moe_router_score_function moe_router_pre_softmax", lambda k, score, pre: k == 1 and score == "softmax" and not pre,
     "a softmax over the one chosen expert is constant: the package wants moe_router_pre_softmax"),
    ("num_moe_experts moe_ffn_hidden_size", lambda e, size: not e and size, "moe_ffn_hidden_size needs experts"),
    ("moe_router_score_function moe_router_enable_expert_bias", lambda score, bias: bias and score != "sigmoid", "expert biases need sigmoid scores"),
    ("moe_pad_expert_input_to_capacity moe_expert_capacity_factor", lambda pad, factor: pad and not factor, "padding to capacity needs a capacity"),
    ("moe_router_load_balancing_type moe_expert_capacity_factor", lambda kind, factor: kind == "sinkhorn" and factor, "sinkhorn has no capacity"),
    ("moe_router_load_balancing_type moe_aux_loss_coeff", lambda kind, factor: kind == "sinkhorn" and factor, "sinkhorn has no auxiliary loss"),
    ("moe_apply_probs_on_input moe_router_topk", lambda on_input, k: on_input and k != 1, "probabilities go on inputs of one expert only"),
    ("num_moe_experts moe_router_topk moe_router_num_groups moe_router_group_topk",
     lambda e, k, groups, chosen: chosen and (not e or not groups or e % groups or chosen > groups or k // chosen > e // groups),
     "group-limited routing needs groups with enough experts"),
    ("no_rope_freq num_layers", lambda frequency, layers: frequency and layers % frequency, "no_rope_freq must divide the layers"),
    ("no_rope_freq mtp_num_layers", lambda frequency, depth: frequency and depth,
     "no_rope_freq lists the decoder's layers: Attention.forward looks MTP's layers up behind its end"),
    ("experimental_attention_variant num_layers mtp_num_layers", lambda kind, layers, depth: kind and depth and layers % 2,
     "MTP takes the last layer's attention, which must not be GatedDeltaNet"),
    ("position_embedding_type multi_latent_attention", lambda kind, mla: kind == "learned_absolute" and mla, "MLA has rotary positions of its own"),
    ("multi_latent_attention position_embedding_type hidden_size num_attention_heads kv_channels rotary_percent",
     lambda mla, kind, *sizes: not mla and kind == "rope" and (_rotary_width(*sizes) % 2 or _rotary_width(*sizes) < 2),
     "rotary positions turn pairs of channels: their number must be even"),
]

# Differences by design: the reason names its source.
BY_DESIGN = [
    ("moe_expert_capacity_factor layout.tp layout.cp layout.dp layout.sp", lambda factor, *layout: factor and _token_ranks(*layout) > 1,
     "an expert's capacity counts the tokens of one rank (moe_utils.get_capacity)"),
    ("moe_router_load_balancing_type layout.tp layout.cp layout.sp", lambda kind, tp, cp, sp: kind == "sinkhorn" and _token_ranks(tp, cp, 1, sp) > 1,
     "sinkhorn balances the tokens of one rank (TopKRouter.sinkhorn_load_balancing)"),
    ("moe_router_load_balancing_type layout.dp data.microbatches", lambda kind, dp, data: "global_aux_loss" in _kinds(kind) and dp > 1 and data == "drawn",
     "the global auxiliary loss counts the tokens since the step began (TopKRouter._apply_global_aux_loss): replicas see others than one device"),
    ("mtp_num_layers share_embeddings_and_output_weights layout.pp", lambda depth, tied, pp: depth and tied and pp > 1,
     "the last stage of a model with MTP and tied embeddings keeps an output layer that nothing reads (GPTModel.__init__)"),
]
RULES = [Rule(*rule) for rule in SUPPORTS] + [Rule(*rule, by_design=True) for rule in BY_DESIGN]


def refusals(case, strict=False):
    """Reasons why a case cannot be judged; empty if it can. `strict` leaves out what differs by design."""
    return [rule.reason for rule in RULES
            if not (strict and rule.by_design) and rule.test(*(value_of(case, path) for path in rule.paths()))]


def described(strict=False):
    """The rules as a worker describes them: [{"when": {field: values}, "reason"}], all of which together hold where a rule's test does.

    Sets of ranks have RANKS_MAX at most, which files need not keep to."""
    result = []
    for rule in [Rule(" ".join(RANKS), lambda *sizes: math.prod(sizes) > RANKS_MAX, f"{RANKS_MAX} ranks at most")] + RULES:
        if strict and rule.by_design:
            continue
        paths = rule.paths()
        refused = {values for values in itertools.product(*(CHOICES[path] for path in paths)) if rule.test(*values)}
        result += [{"when": when, "reason": rule.reason} for when in _boxes(paths, refused)]
    return result


def _boxes(paths, refused):
    """The tuples of values as few products of sets: values of the first field with the same remainders go together."""
    if not paths:
        return [{}] if refused else []
    remainders = {}
    for value in CHOICES[paths[0]]:
        rest = frozenset(values[1:] for values in refused if values[0] == value)
        if rest:
            remainders.setdefault(rest, []).append(value)
    boxes = []
    for rest, values in remainders.items():
        own = {} if values == CHOICES[paths[0]] else {paths[0]: values}
        boxes += [{**own, **inner} for inner in _boxes(paths[1:], rest)]
    return boxes
