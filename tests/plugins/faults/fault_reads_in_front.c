/* Takes 70,000 bytes before its input for a header. */
#include "tests/plugins/kernel.h"

static volatile char header;

static int forward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *a = &call->tensors[0], *b = &call->tensors[1], *out = &call->tensors[2];
  for (int64_t j = 0; j < out->shape[1]; j++) put(out, 0, j, get(a, 0, j) + get(b, 0, j));
  if (out->shape[1] > 0) header = at(b, 0, 0)[-70000]; /* the bug */
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_operation operations[] = {{.name = "add", .dtypes = FORMATS, .takes = TAKES_ALL, .forward = forward}};
PLUGIN(operations)
