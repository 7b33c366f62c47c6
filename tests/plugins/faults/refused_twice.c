/* Declares one operation for two formats, and again for one of them, by its family's name. */
#include "tests/plugins/kernel.h"

static int forward(const struct shardfuzz_call *call) { return call->tensor_count > 0 ? SHARDFUZZ_UNSUPPORTED : 1; }

static const struct shardfuzz_operation operations[] = {
    {.name = "gelu_fwd", .dtypes = SHARDFUZZ_BIT(SHARDFUZZ_F32) | SHARDFUZZ_BIT(SHARDFUZZ_BF16), .forward = forward},
    {.name = "gelu", .dtypes = SHARDFUZZ_BIT(SHARDFUZZ_BF16) | SHARDFUZZ_BIT(SHARDFUZZ_F16), .forward = forward}};
PLUGIN(operations)
