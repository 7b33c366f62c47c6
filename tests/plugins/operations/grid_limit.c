/* A row for each block, of which a grid has at most 65,535. */
#include "tests/plugins/kernel.h"

static int forward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *x = &call->tensors[0], *bias = &call->tensors[1], *y = &call->tensors[2];
  const int64_t blocks = x->shape[0] < 65535 ? x->shape[0] : 65535; /* the bug */
  for (int64_t r = 0; r < blocks; r++)
    for (int64_t j = 0; j < x->shape[1]; j++) put(y, r, j, get(x, r, j) + get(bias, 0, j));
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_operation operations[] = {
    {.name = "bias_add", .dtypes = SHARDFUZZ_BIT(SHARDFUZZ_F32), .takes = SHARDFUZZ_TAKES_UNALIGNED, .forward = forward}};
PLUGIN(operations)
