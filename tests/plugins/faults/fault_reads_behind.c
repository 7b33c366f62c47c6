/* Looks ahead by a tile of 16 columns, in the last row too. */
#include "tests/plugins/kernel.h"

static volatile float ahead;

static int forward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *x = &call->tensors[0], *b = &call->tensors[1], *y = &call->tensors[2];
  for (int64_t r = 0; r < y->shape[0]; r++)
    for (int64_t j = 0; j < y->shape[1]; j++) {
      ahead = get(x, r, j + 16); /* the bug */
      put(y, r, j, get(x, r, j) + get(b, 0, j));
    }
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_operation operations[] = {{.name = "bias_add", .dtypes = SHARDFUZZ_BIT(SHARDFUZZ_F32), .forward = forward}};
PLUGIN(operations)
