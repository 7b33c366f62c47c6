/* RMSNorm with epsilon added outside of the root. */
#include "tests/plugins/kernel.h"

static int forward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *x = &call->tensors[0], *w = &call->tensors[1], *y = &call->tensors[3], *stats = &call->tensors[4];
  const int64_t cols = x->shape[1];
  for (int64_t r = 0; r < x->shape[0]; r++) {
    float sum = 0;
    for (int64_t j = 0; j < cols; j++) sum += get(x, r, j) * get(x, r, j);
    const float rstd = 1.0f / (sqrtf(sum / (float)cols) + 1e-5f); /* the bug */
    put(stats, r, 0, 0.0f);
    put(stats, r, 1, rstd);
    for (int64_t j = 0; j < cols; j++) put(y, r, j, get(x, r, j) * rstd * get(w, 0, j));
  }
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_attribute fixed[] = {{"norm", 0, 0}};
static const struct shardfuzz_operation operations[] = {
    {.name = "norm_fwd", .dtypes = FORMATS, .takes = TAKES_ALL, .forward = forward, .fixed = fixed, .fixed_count = 1}};
PLUGIN(operations)
