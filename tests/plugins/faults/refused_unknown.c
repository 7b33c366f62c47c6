/* An operation that the reference does not have. */
#include "tests/plugins/kernel.h"

static int forward(const struct shardfuzz_call *call) {
  (void)call;
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_operation operations[] = {{.name = "conv3d", .dtypes = FORMATS, .forward = forward}};
PLUGIN(operations)
