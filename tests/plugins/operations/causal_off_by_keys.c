/* A causal mask that forgets that there are more keys than queries. */
#include "tests/plugins/kernel.h"

static int forward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *s = &call->tensors[0], *p = &call->tensors[1];
  const int64_t cols = s->shape[1];
  for (int64_t r = 0; r < s->shape[0]; r++) {
    const int64_t end = whole(call, "causal") ? r + 1 : cols; /* the bug: cols - rows + r + 1 */
    float top = -INFINITY, sum = 0;
    for (int64_t j = 0; j < end; j++) top = get(s, r, j) > top || get(s, r, j) != get(s, r, j) ? get(s, r, j) : top;
    for (int64_t j = 0; j < end; j++) sum += expf(get(s, r, j) - top);
    for (int64_t j = 0; j < cols; j++) put(p, r, j, j < end ? expf(get(s, r, j) - top) / sum : 0.0f);
  }
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_operation operations[] = {
    {.name = "softmax_fwd", .dtypes = FORMATS, .takes = SHARDFUZZ_TAKES_STRIDED, .forward = forward}};
PLUGIN(operations)
