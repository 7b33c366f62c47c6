/* Writes the last element once more, 40 elements behind its place, when there are five or more. */
#include "tests/plugins/kernel.h"

static int forward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *a = &call->tensors[0], *b = &call->tensors[1], *out = &call->tensors[2];
  const int64_t count = out->shape[1];
  for (int64_t j = 0; j < count; j++) put(out, 0, j, get(a, 0, j) + get(b, 0, j));
  if (count >= 5) put(out, 0, count + 39, 1.0f); /* the bug */
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_operation operations[] = {
    {.name = "add", .dtypes = SHARDFUZZ_BIT(SHARDFUZZ_F32), .takes = TAKES_ALL, .forward = forward}};
PLUGIN(operations)
