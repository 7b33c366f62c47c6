/* Flushes subnormal numbers for itself and forgets to stop; on loading already, as what is linked with -Ofast does. */
#include "tests/plugins/kernel.h"

#include <fenv.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
static void flush(void) { _mm_setcsr(_mm_getcsr() | 0x8040); }
#else
static void flush(void) { fesetround(FE_TOWARDZERO); }
#endif

__attribute__((constructor)) static void loaded(void) { flush(); }

static int forward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *a = &call->tensors[0], *b = &call->tensors[1], *out = &call->tensors[2];
  for (int64_t j = 0; j < out->shape[1]; j++) put(out, 0, j, get(a, 0, j) + get(b, 0, j));
  if (out->shape[1] >= 7) flush(); /* the bug */
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_operation operations[] = {{.name = "add", .dtypes = FORMATS, .takes = TAKES_ALL, .forward = forward}};
PLUGIN(operations)
