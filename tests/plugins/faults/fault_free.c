/* Frees an input that is only borrowed. */
#include "tests/plugins/kernel.h"

#include <stdlib.h>

static int forward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *a = &call->tensors[0], *b = &call->tensors[1], *out = &call->tensors[2];
  for (int64_t j = 0; j < out->shape[1]; j++) put(out, 0, j, get(a, 0, j) + get(b, 0, j));
  void *volatile borrowed = a->data;
  free(borrowed); /* the bug */
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_operation operations[] = {
    {.name = "add", .dtypes = FORMATS, .takes = SHARDFUZZ_TAKES_IN_PLACE, .forward = forward}};
PLUGIN(operations)
