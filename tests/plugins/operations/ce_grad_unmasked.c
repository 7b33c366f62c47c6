/* The gradient of cross-entropy without the mask of tokens. */
#include "tests/plugins/kernel.h"

static int forward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *logits = &call->tensors[0], *max = &call->tensors[1], *sum = &call->tensors[2],
                                *labels = &call->tensors[3], *out = &call->tensors[5];
  for (int64_t r = 0; r < logits->shape[0]; r++)
    for (int64_t j = 0; j < logits->shape[1]; j++) {
      const float p = expf(get(logits, r, j) - get(max, 0, r)) / get(sum, 0, r);
      const float share =
          real(call, "other_share") + (get_int(labels, 0, r) - whole(call, "first") == j ? real(call, "label_share") : 0.0f);
      put(out, r, j, p - share); /* the bug: times the weight, tensor 4 */
    }
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_operation operations[] = {{.name = "ce_grad", .dtypes = FORMATS, .takes = TAKES_ALL, .forward = forward}};
PLUGIN(operations)
