/* Softmax without the row maximum taken off. */
#include "tests/plugins/kernel.h"

static int forward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *s = &call->tensors[0], *p = &call->tensors[1];
  const int64_t rows = s->shape[0], cols = s->shape[1];
  for (int64_t r = 0; r < rows; r++) {
    const int64_t end = whole(call, "causal") ? cols - rows + r + 1 : cols;
    float sum = 0;
    for (int64_t j = 0; j < end; j++) sum += expf(get(s, r, j)); /* the bug */
    for (int64_t j = 0; j < cols; j++) put(p, r, j, j < end ? expf(get(s, r, j)) / sum : 0.0f);
  }
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_operation operations[] = {
    {.name = "softmax_fwd", .dtypes = FORMATS, .takes = SHARDFUZZ_TAKES_STRIDED, .forward = forward}};
PLUGIN(operations)
