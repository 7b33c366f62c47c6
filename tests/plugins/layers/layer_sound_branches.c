/* Layers of cross-attention, of a shared expert and at a branch's end, without a bug; tp is at most 2. */
#include "tests/plugins/layer_parts.h"

static const struct shardfuzz_limit limits[] = {{"layout.tp", 2, 0}, {"model.hidden", 0, 4}};
static const struct shardfuzz_layer layers[] = {{.module = "cross_attention.linear_q",
                                                 .dtypes = FORMATS,
                                                 .takes = SHARDFUZZ_TAKES_SEQUENCE_PARALLEL,
                                                 .forward = linear_column_forward,
                                                 .backward = linear_column_backward,
                                                 .limits = limits,
                                                 .limit_count = 2},
                                                LAYER("cross_attention.linear_kv", linear_column),
                                                LAYER("cross_attention.linear_proj", linear_row),
                                                LAYER("pre_cross_attn_layernorm", norm),
                                                LAYER("mlp.shared_experts.linear_fc1", linear_column),
                                                LAYER("mlp.shared_experts.linear_fc2", linear_row),
                                                LAYER("post_self_attn_layernorm", norm),
                                                LAYER("post_mlp_layernorm", norm)};
LAYERS(layers)
