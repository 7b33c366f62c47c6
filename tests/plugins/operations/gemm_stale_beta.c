/* A matrix product whose last, incomplete tile of columns adds to C although it should not. */
#include "tests/plugins/kernel.h"

static int forward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *a = &call->tensors[0], *b = &call->tensors[1], *c = &call->tensors[2];
  const bool ta = whole(call, "trans_a"), tb = whole(call, "trans_b"), accumulate = whole(call, "accumulate");
  const int64_t n = c->shape[1], k = ta ? a->shape[0] : a->shape[1];
  for (int64_t i = 0; i < c->shape[0]; i++)
    for (int64_t j = 0; j < n; j++) {
      float sum = 0;
      for (int64_t p = 0; p < k; p++) sum += (ta ? get(a, p, i) : get(a, i, p)) * (tb ? get(b, j, p) : get(b, p, j));
      const bool adds = accumulate || (n > 4 && j >= n / 4 * 4); /* the bug */
      put(c, i, j, (k ? real(call, "alpha") * sum : 0.0f) + (adds ? get(c, i, j) : 0.0f));
    }
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_operation operations[] = {{.name = "gemm", .dtypes = FORMATS, .takes = TAKES_ALL, .forward = forward}};
PLUGIN(operations)
