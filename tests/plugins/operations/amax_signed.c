/* The largest value instead of the largest absolute value. */
#include "tests/plugins/kernel.h"

static int forward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *x = &call->tensors[0];
  float most = 0;
  for (int64_t j = 0; j < x->shape[1]; j++)
    most = get(x, 0, j) > most || get(x, 0, j) != get(x, 0, j) ? get(x, 0, j) : most; /* the bug: fabsf */
  put(&call->tensors[1], 0, 0, most);
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_operation operations[] = {{.name = "amax", .dtypes = FORMATS, .takes = TAKES_ALL, .forward = forward}};
PLUGIN(operations)
