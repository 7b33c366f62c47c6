/* One kernel for 16-bit formats and one for fp32; of a norm one for each kind. What is wrong is in the second ones. */
#include "tests/plugins/kernel.h"

static int add(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *a = &call->tensors[0], *b = &call->tensors[1], *out = &call->tensors[2];
  for (int64_t j = 0; j < out->shape[1]; j++) put(out, 0, j, get(a, 0, j) + get(b, 0, j));
  return SHARDFUZZ_OK;
}

static int add_wide(const struct shardfuzz_call *call) {
  const int result = add(call);
  const struct shardfuzz_tensor *out = &call->tensors[2];
  if (out->shape[1] > 3) put(out, 0, 3, get(out, 0, 3) + 1); /* the bug */
  return result;
}

/* of: 0 RMS, 1 layer */
static int norm(const struct shardfuzz_call *call, int of, float scale) {
  const struct shardfuzz_tensor *x = &call->tensors[0], *w = &call->tensors[1], *b = &call->tensors[2], *y = &call->tensors[3],
                                *stats = &call->tensors[4];
  const int64_t cols = x->shape[1];
  if (whole(call, "norm") != of) return 5;
  for (int64_t r = 0; r < x->shape[0]; r++) {
    double mean = 0, squares = 0;
    for (int64_t j = 0; of && j < cols; j++) mean += (double)get(x, r, j) / (double)cols;
    for (int64_t j = 0; j < cols; j++) squares += ((double)get(x, r, j) - mean) * ((double)get(x, r, j) - mean) / (double)cols;
    const float rstd = (float)(1 / sqrt(squares + 1e-5));
    put(stats, r, 0, (float)mean);
    put(stats, r, 1, rstd);
    for (int64_t j = 0; j < cols; j++)
      put(y, r, j, (float)((double)get(x, r, j) - mean) * rstd * get(w, 0, j) * scale + (of && b->data ? get(b, 0, j) : 0.0f));
  }
  return SHARDFUZZ_OK;
}
static int norm_rms(const struct shardfuzz_call *call) { return norm(call, 0, 1); }
static int norm_layer(const struct shardfuzz_call *call) { return norm(call, 1, 1.5f); /* the bug */ }

static const struct shardfuzz_attribute rms[] = {{"norm", 0, 0}}, layer[] = {{"norm", 1, 0}};
static const struct shardfuzz_operation operations[] = {
    {.name = "add", .dtypes = SHARDFUZZ_BIT(SHARDFUZZ_BF16) | SHARDFUZZ_BIT(SHARDFUZZ_F16), .forward = add},
    {.name = "add", .dtypes = SHARDFUZZ_BIT(SHARDFUZZ_F32), .forward = add_wide},
    {.name = "norm", .dtypes = SHARDFUZZ_BIT(SHARDFUZZ_F32), .forward = norm_rms, .fixed = rms, .fixed_count = 1},
    {.name = "norm", .dtypes = SHARDFUZZ_BIT(SHARDFUZZ_F32), .forward = norm_layer, .fixed = layer, .fixed_count = 1}};
PLUGIN(operations)
