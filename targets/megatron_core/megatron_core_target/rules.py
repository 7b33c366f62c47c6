"""What the target refuses, and where the package differs from one device by design. Each rule: a test of the completed case, and a reason."""


def _experts(case):
    return case["model"]["num_moe_experts"] is not None


def _aux(case):
    kinds = case["model"]["moe_router_load_balancing_type"]
    return [kinds] if isinstance(kinds, str) else kinds


def _pieces(case):
    """Pieces that tensor, context and sequence parallelism cut the sequence into."""
    layout = case["layout"]
    return layout["tp"] * (2 * layout["cp"] if layout["cp"] > 1 else 1) if layout["sp"] else 2 * layout["cp"] if layout["cp"] > 1 else 1


def _groups(case):
    return case["model"]["num_query_groups"] or case["model"]["num_attention_heads"]


# What cannot run on a CPU, or what the package itself refuses later and less clearly.
SUPPORTS = [
    (lambda c: c["layout"]["sp"] and c["layout"]["tp"] == 1, "sp needs tp above 1"),
    (lambda c: _experts(c) and c["layout"]["tp"] > 1 and not c["layout"]["sp"], "experts with tp need sp: MoELayer refuses to train without"),
    (lambda c: _experts(c) and c["model"]["add_bias_linear"], "experts with biases: these are added into a view, and autograd refuses"),
    (lambda c: not _experts(c) and c["layout"]["ep"] > 1, "ep needs experts"),
    (lambda c: not _experts(c) and c["layout"]["etp"] > 1, "etp needs experts"),
    (lambda c: _experts(c) and c["model"]["num_moe_experts"] % c["layout"]["ep"], "ep must divide the experts"),
    (lambda c: c["layout"]["tp"] * c["layout"]["cp"] * c["layout"]["dp"] % (c["layout"]["ep"] * c["layout"]["etp"]),
     "ep * etp must divide tp * cp * dp"),
    (lambda c: c["sequence_length"] % _pieces(c), "the sequence must be cut evenly by sp and, twice, by cp"),
    (lambda c: c["model"]["num_attention_heads"] % c["layout"]["tp"], "tp must divide the heads"),
    (lambda c: not c["model"]["multi_latent_attention"] and _groups(c) % c["layout"]["tp"],
     "tp must divide the query groups: DotProductAttention counts them by rank"),
    (lambda c: c["model"]["vocab_size"] % c["layout"]["tp"], "tp must divide the vocabulary"),
    (lambda c: c["microbatches"] % c["layout"]["dp"], "dp must divide the microbatches"),
    (lambda c: c["layout"]["vpp"] > 1 and c["layout"]["pp"] == 1, "vpp needs pp above 1"),
    (lambda c: c["layout"]["vpp"] > 1 and c["microbatches"] // c["layout"]["dp"] % c["layout"]["pp"],
     "the interleaved schedule needs microbatches of a replica that pp divides"),
    (lambda c: c["model"]["num_layers"] % (c["layout"]["pp"] * c["layout"]["vpp"]) and not
     c["model"]["num_layers_in_first_pipeline_stage"] and not c["model"]["num_layers_in_last_pipeline_stage"], "pp * vpp must divide the layers"),
    (lambda c: c["layout"]["distributed_optimizer"] and c["optimizer"]["name"] != "adam", "the distributed optimizer has Adam only"),
    (lambda c: "mlp" in (c["model"]["recompute_modules"] or []) and c["model"]["add_bias_linear"],
     "recomputing mlp with a bias never ends: the bias is an output of the checkpoint, whose backward pass then enters itself"),
    (lambda c: c["model"]["experimental_attention_variant"] not in (None, "gated_delta_net"), "only gated_delta_net has a CPU path"),
    (lambda c: c["model"]["experimental_attention_variant"] and c["layout"]["cp"] > 1, "GatedDeltaNet has no context parallelism"),
    (lambda c: not c["model"]["parallel_output"] and c["precision"] == "fp32",
     "gathered logits in fp32: the loss writes into a view of them, and autograd refuses"),
    (lambda c: c["model"]["window_size"] and c["layout"]["cp"] > 1, "sliding windows under cp are Transformer Engine's"),
    (lambda c: c["model"]["multi_latent_attention"] and _groups(c) != c["model"]["num_attention_heads"], "MLA has as many key as query heads"),
    (lambda c: c["model"]["multi_latent_attention"] and (c["model"]["rotary_interleaved"] or c["model"]["attention_output_gate"]),
     "MLA has neither interleaved rotary positions nor an output gate"),
    (lambda c: _experts(c) and c["model"]["moe_router_topk"] == 1 and c["model"]["moe_router_score_function"] == "softmax" and not
     c["model"]["moe_router_pre_softmax"], "a softmax over the one chosen expert is constant: the package wants moe_router_pre_softmax"),
    (lambda c: c["model"]["position_embedding_type"] == "learned_absolute" and c["model"]["multi_latent_attention"],
     "MLA has rotary positions of its own"),
]

# Differences by design: (test, reason with its source). `strict` runs them all the same.
BY_DESIGN = [
    (lambda c: c["model"]["moe_expert_capacity_factor"] and _token_ranks(c) > 1,
     "an expert's capacity counts the tokens of one rank (moe_utils.get_capacity)"),
    (lambda c: "global_aux_loss" in _aux(c) and c["layout"]["dp"] > 1 and c["data"]["microbatches"] == "drawn",
     "the global auxiliary loss counts the tokens since the step began (TopKRouter._apply_global_aux_loss): replicas see others than one device"),
    (lambda c: c["model"]["mtp_num_layers"] and c["model"]["share_embeddings_and_output_weights"] and c["layout"]["pp"] > 1,
     "the last stage of a model with MTP and tied embeddings keeps an output layer that nothing reads (GPTModel.__init__)"),
]


def _token_ranks(case):
    layout = case["layout"]
    return layout["dp"] * layout["cp"] * (layout["tp"] if layout["sp"] else 1)


def refusals(case, strict=False):
    """Reasons why a case cannot be judged; empty if it can. `strict` leaves out what differs by design."""
    rules = SUPPORTS if strict else SUPPORTS + BY_DESIGN
    return [reason for test, reason in rules if test(case)]
