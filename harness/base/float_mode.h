/* How this thread rounds: the control register of its floating-point arithmetic. Code from elsewhere may leave it changed, and what
 * computes after it would round in the same way: a reference that flushes subnormal numbers does not find a kernel that does. */
#ifndef SF_BASE_FLOAT_MODE_H
#define SF_BASE_FLOAT_MODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sf_float_mode {
  uint64_t control; /* x86-64: MXCSR without its flags; aarch64: FPCR; elsewhere fegetround() */
  uint32_t x87;     /* x86-64: control word of long double */
};

/* Sets the default (nearest, subnormal numbers kept, no traps) and returns what was set before. */
struct sf_float_mode sf_float_mode_restore(void);
void sf_float_mode_set(struct sf_float_mode mode);        /* of this thread; undoes sf_float_mode_restore */
bool sf_float_mode_is_default(struct sf_float_mode mode); /* mode: what sf_float_mode_restore returned */
/* What differs from the default: "flush-to-zero, rounding down"; "" where nothing does. */
void sf_float_mode_text(char *out, size_t size, struct sf_float_mode mode);

#endif
