/* Layers of multi-token prediction and the adapter, without a bug. */
#include "tests/plugins/layer_more.h"

static const struct shardfuzz_layer layers[] = {LAYER("mtp.enorm", norm),           LAYER("mtp.hnorm", norm),
                                                LAYER("mtp.eh_proj", linear_gathered), LAYER("mtp.final_layernorm", norm),
                                                LAYER("mtp.output_layer", linear_column), LAYER("adapter", linear_adapter)};
LAYERS(layers)
