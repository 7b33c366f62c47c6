/* Writes whole vectors of four: past the end of what is not divisible by four. */
#include "tests/plugins/kernel.h"

static int forward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *x = &call->tensors[0], *y = &call->tensors[1];
  for (int64_t j = 0; j < (x->shape[1] + 3) / 4 * 4; j++) {
    const float v = j < x->shape[1] ? get(x, 0, j) : 0.0f;
    put(y, 0, j, v > 0 || v != v ? v * v : 0.0f); /* the bug */
  }
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_operation operations[] = {{.name = "relu2_fwd", .dtypes = FORMATS, .takes = TAKES_ALL, .forward = forward}};
PLUGIN(operations)
