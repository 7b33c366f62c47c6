/* The norms of queries and keys, and the router, without a bug. */
#include "tests/plugins/layer_more.h"

static const struct shardfuzz_layer layers[] = {LAYER("self_attention.qk_layernorm", heads), LAYER("mlp.router", linear_whole)};
LAYERS(layers)
