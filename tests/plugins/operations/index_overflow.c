/* Where a row begins is counted in 32 bits. */
#include "tests/plugins/kernel.h"

static float *element(const struct shardfuzz_tensor *t, int64_t row, int64_t col) {
  const int32_t index = (int32_t)((uint32_t)row * (uint32_t)t->strides[0] + (uint32_t)col); /* the bug */
  return (float *)t->data + index;
}

static int forward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *x = &call->tensors[0], *table = &call->tensors[1], *y = &call->tensors[2];
  const int64_t half = x->shape[1] / 2, repeat = whole(call, "repeat") + 1, first = whole(call, "first");
  const float sign = whole(call, "inverse") ? -1.0f : 1.0f;
  for (int64_t r = 0; r < x->shape[0]; r++)
    for (int64_t j = 0; j < half; j++) {
      const float c = get(table, first + r / repeat, j), s = sign * get(table, first + r / repeat, half + j);
      const float a = *element(x, r, j), b = *element(x, r, half + j);
      *element(y, r, j) = a * c - b * s;
      *element(y, r, half + j) = b * c + a * s;
    }
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_operation operations[] = {
    {.name = "rotate", .dtypes = SHARDFUZZ_BIT(SHARDFUZZ_F32), .takes = TAKES_ALL, .forward = forward}};
PLUGIN(operations)
