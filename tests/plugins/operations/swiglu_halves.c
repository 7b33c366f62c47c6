/* SwiGLU's backward that writes the gradients of gate and up into each other's half. */
#include "tests/plugins/kernel.h"

static int backward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *dy = &call->tensors[0], *x = &call->tensors[1], *dx = &call->tensors[2];
  const int64_t cols = dy->shape[1];
  for (int64_t r = 0; r < dy->shape[0]; r++)
    for (int64_t j = 0; j < cols; j++) {
      const float gate = get(x, r, j), up = get(x, r, cols + j), grad = get(dy, r, j), value = 1.0f / (1.0f + expf(-gate));
      put(dx, r, cols + j, grad * up * (value * (1.0f + gate * (1.0f - value)))); /* the bug: r, j */
      put(dx, r, j, grad * (gate * value));
    }
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_operation operations[] = {{.name = "swiglu", .dtypes = FORMATS, .takes = TAKES_ALL, .backward = backward}};
PLUGIN(operations)
