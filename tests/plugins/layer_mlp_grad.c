/* The gradient of an MLP's input is not summed over tp. */
#define BUG NO_GRAD_SUM
#include "tests/plugins/layer_parts.h"

static const struct shardfuzz_layer layers[] = {LAYER("mlp", mlp)};
LAYERS(layers)
