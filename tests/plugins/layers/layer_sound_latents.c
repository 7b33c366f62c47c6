/* Layers of multi-latent attention, without a bug: with a latent of queries and without. */
#include "tests/plugins/layer_more.h"

static const struct shardfuzz_layer layers[] = {LAYER("self_attention.linear_q_down_proj", linear_whole),
                                                LAYER("self_attention.q_layernorm", norm),
                                                LAYER("self_attention.linear_q_up_proj", linear_column),
                                                LAYER("self_attention.linear_kv_down_proj", linear_whole),
                                                LAYER("self_attention.kv_layernorm", norm),
                                                LAYER("self_attention.linear_kv_up_proj", linear_column),
                                                LAYER("self_attention.linear_q_proj", linear_column)};
LAYERS(layers)
