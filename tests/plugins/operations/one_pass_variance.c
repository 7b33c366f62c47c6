/* LayerNorm in bf16 whose variance is E[x^2] - E[x]^2. */
#include "tests/plugins/kernel.h"

static int forward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *x = &call->tensors[0], *w = &call->tensors[1], *b = &call->tensors[2], *y = &call->tensors[3],
                                *stats = &call->tensors[4];
  const int64_t cols = x->shape[1];
  for (int64_t r = 0; r < x->shape[0]; r++) {
    float sum = 0, squares = 0;
    for (int64_t j = 0; j < cols; j++) sum += get(x, r, j), squares += get(x, r, j) * get(x, r, j);
    const float mean = sum / (float)cols, variance = squares / (float)cols - mean * mean; /* the bug */
    const float rstd = 1.0f / sqrtf((variance > 0 ? variance : 0) + 1e-5f);
    put(stats, r, 0, mean);
    put(stats, r, 1, rstd);
    for (int64_t j = 0; j < cols; j++) put(y, r, j, (get(x, r, j) - mean) * rstd * get(w, 0, j) + (b->data ? get(b, 0, j) : 0.0f));
  }
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_attribute fixed[] = {{"norm", 1, 0}};
static const struct shardfuzz_operation operations[] = {{.name = "norm_fwd",
                                                         .dtypes = SHARDFUZZ_BIT(SHARDFUZZ_BF16),
                                                         .takes = TAKES_ALL,
                                                         .forward = forward,
                                                         .fixed = fixed,
                                                         .fixed_count = 1}};
PLUGIN(operations)
