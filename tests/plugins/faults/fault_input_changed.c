/* Scales its input in place on the way. */
#include "tests/plugins/kernel.h"

static int forward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *dy = &call->tensors[0], *x = &call->tensors[1], *dx = &call->tensors[2];
  for (int64_t j = 0; j < x->shape[1]; j++) {
    put(x, 0, j, get(x, 0, j) < 0 ? 0.0f : get(x, 0, j)); /* the bug */
    put(dx, 0, j, get(dy, 0, j) * (2.0f * get(x, 0, j)));
  }
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_operation operations[] = {{.name = "relu2", .dtypes = FORMATS, .takes = TAKES_ALL, .backward = forward}};
PLUGIN(operations)
