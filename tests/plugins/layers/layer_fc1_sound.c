/* mlp.linear_fc1 in fp32 and fp16, without sequence parallelism and SwiGLU. */
#include "tests/plugins/layer_parts.h"

static const struct shardfuzz_attribute fixed[] = {{"model.activation", 2, 0}};
static const struct shardfuzz_layer layers[] = {{.module = "mlp.linear_fc1",
                                                 .dtypes = SHARDFUZZ_BIT(SHARDFUZZ_F32) | SHARDFUZZ_BIT(SHARDFUZZ_F16),
                                                 .forward = linear_column_forward,
                                                 .backward = linear_column_backward,
                                                 .fixed = fixed,
                                                 .fixed_count = 1}};
LAYERS(layers)
