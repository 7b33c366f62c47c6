/* Rotary embedding on neighbouring columns instead of the two halves. */
#include "tests/plugins/kernel.h"

static int forward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *x = &call->tensors[0], *table = &call->tensors[1], *y = &call->tensors[2];
  const int64_t half = x->shape[1] / 2;
  for (int64_t r = 0; r < x->shape[0]; r++) {
    const int64_t position = whole(call, "first") + r / (whole(call, "repeat") + 1);
    for (int64_t j = 0; j < half; j++) {
      const float c = get(table, position, j), sine = get(table, position, half + j), s = whole(call, "inverse") ? -sine : sine;
      const float a = get(x, r, 2 * j), b = get(x, r, 2 * j + 1); /* the bug: j and half + j */
      put(y, r, 2 * j, a * c - b * s);
      put(y, r, 2 * j + 1, b * c + a * s);
    }
  }
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_operation operations[] = {{.name = "rotate", .dtypes = FORMATS, .takes = TAKES_ALL, .forward = forward}};
PLUGIN(operations)
