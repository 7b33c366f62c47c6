/* The MLP, with BUG. */
#include "tests/plugins/layer_parts.h"

static const struct shardfuzz_layer layers[] = {LAYER("mlp", mlp)};
LAYERS(layers)
