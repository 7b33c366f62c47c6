/* Every kind of layer, without a bug. */
#include "tests/plugins/layer_parts.h"

static const struct shardfuzz_layer layers[] = {LAYER("input_layernorm", norm),           LAYER("self_attention.linear_qkv", linear_column),
                                                LAYER("self_attention.linear_proj", linear_row), LAYER("pre_mlp_layernorm", norm),
                                                LAYER("mlp", mlp),                        LAYER("decoder.final_layernorm", norm),
                                                LAYER("output_layer", linear_column)};
LAYERS(layers)
