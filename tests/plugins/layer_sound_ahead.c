/* Layers of multi-token prediction, the adapter and the projection of queries beside a latent, without a bug. */
#include "tests/plugins/layer_more.h"

static const struct shardfuzz_layer layers[] = {LAYER("mtp.enorm", norm),           LAYER("mtp.hnorm", norm),
                                                LAYER("mtp.eh_proj", linear_gathered), LAYER("mtp.final_layernorm", norm),
                                                LAYER("mtp.output_layer", linear_column), LAYER("adapter", linear_adapter),
                                                LAYER("self_attention.linear_q_proj", linear_column)};
LAYERS(layers)
