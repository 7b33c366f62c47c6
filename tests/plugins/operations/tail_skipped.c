/* An addition in vectors of eight that leaves out the tail. */
#include "tests/plugins/kernel.h"

static int forward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *a = &call->tensors[0], *b = &call->tensors[1], *out = &call->tensors[2];
  const int64_t count = out->shape[1] > 8 ? out->shape[1] / 8 * 8 : out->shape[1]; /* the bug */
  for (int64_t j = 0; j < count; j++) put(out, 0, j, get(a, 0, j) + get(b, 0, j));
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_operation operations[] = {{.name = "add", .dtypes = FORMATS, .takes = TAKES_ALL, .forward = forward}};
PLUGIN(operations)
