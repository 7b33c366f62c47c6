/* The device contract: casts to fp8, bit for bit. */
#include "tests/contract/device_fixture.h"

#include <math.h>

void test_fp8_cast_random_same_bits_as_single_values(void **state) {
  struct fixture *f = *state;
  begin(state, "amax cast_f8");
  for (int i = 0; i < REPEATS; i++) {
    const int64_t count = any_size(f) * (1 + below(f, 3));
    const enum sf_dtype format = below(f, 2) ? SF_F8E4M3 : SF_F8E5M2;
    const float scale = ldexpf(1 + fabsf(uniform(f)), (int)below(f, 40) - 20);
    float *x = filled(f, count, any_values(f)), *cast = copy(x, count), amax = 0;
    f->dev->ops->cast_f8(f->dev, cast, below(f, 2) ? cast : x, scale, count, format);
    bool has_nan = false;
    for (int64_t j = 0; j < count; j++) {
      const float want = sf_f8_round(scale * x[j], format);
      if (!same_bits(&cast[j], &want, 1)) fail_msg("%g x %g: %g, not %g", (double)scale, (double)x[j], (double)cast[j], (double)want);
      has_nan = has_nan || isnan(x[j]);
      amax = fmaxf(amax, fabsf(x[j]));
    }
    const float got = f->dev->ops->amax(f->dev, x, count);
    assert_true(has_nan ? isnan(got) : got == amax);
    release(x, count), release(cast, count);
  }
  end(state);
}
