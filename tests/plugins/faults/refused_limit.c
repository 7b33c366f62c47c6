/* A limit on a dimension that the operation does not have. */
#include "tests/plugins/kernel.h"

static int forward(const struct shardfuzz_call *call) {
  (void)call;
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_limit limits[] = {{"columns", 64, 2}};
static const struct shardfuzz_operation operations[] = {
    {.name = "col_sum", .dtypes = FORMATS, .forward = forward, .limits = limits, .limit_count = 1}};
PLUGIN(operations)
