/* Right, but takes 400 ms a call. */
#include "tests/plugins/kernel.h"

#include <unistd.h>

static int forward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *a = &call->tensors[0], *b = &call->tensors[1], *out = &call->tensors[2];
  usleep(400000);
  for (int64_t i = 0; i < out->shape[0]; i++)
    for (int64_t j = 0; j < out->shape[1]; j++) put(out, i, j, get(a, i, j) + get(b, i, j));
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_operation operations[] = {{.name = "add", .dtypes = FORMATS, .takes = TAKES_ALL, .forward = forward}};
PLUGIN(operations)
