#include "harness/base/assert.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

void sf_assert_fail(const char *file, int line, const char *expression) {
  fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, expression);
  abort();
}

void sf_assert_fail_int(const char *file, int line, const char *expression, int64_t left, int64_t right) {
  fprintf(stderr, "%s:%d: assertion failed: %s (%" PRId64 " against %" PRId64 ")\n", file, line, expression, left, right);
  abort();
}
