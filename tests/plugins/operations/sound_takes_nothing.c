/* Every case is not for it: a campaign that shows nothing. */
#include "tests/plugins/kernel.h"

static int forward(const struct shardfuzz_call *call) {
  (void)call;
  return SHARDFUZZ_UNSUPPORTED;
}

static const struct shardfuzz_operation operations[] = {{.name = "add", .dtypes = FORMATS, .takes = TAKES_ALL, .forward = forward}};
PLUGIN(operations)
