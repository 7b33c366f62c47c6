/* A bias gradient that adds up its rows in bf16. */
#include "tests/plugins/kernel.h"

static int forward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *x = &call->tensors[0], *out = &call->tensors[1];
  for (int64_t j = 0; j < x->shape[1]; j++) {
    float sum = 0;
    for (int64_t r = 0; r < x->shape[0]; r++) sum = bf16_round(sum + get(x, r, j)); /* the bug */
    put(out, 0, j, get(out, 0, j) + sum);
  }
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_operation operations[] = {{.name = "col_sum", .dtypes = FORMATS, .takes = TAKES_ALL, .forward = forward}};
PLUGIN(operations)
