/* An MLP that does not hand over what lies between its linears. */
#define BUG NO_TRACE
#include "tests/plugins/layer_parts.h"

static const struct shardfuzz_layer layers[] = {LAYER("mlp", mlp)};
LAYERS(layers)
