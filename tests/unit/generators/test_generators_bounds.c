/* Bounds: what they call feasible is what some valid case has. */
#include "generators/bounds_internal.h"
#include "harness/spec/case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { LAYERS = 9, STAGES = 6, ENDS = 6, COUNT = ENDS + 1 };

/* valid[f][l]: so many layers divide over pp stages with f in the first and l in the last one (0: an even share). */
static void valid_ends(bool valid[COUNT][COUNT], int64_t layers, int64_t pp) {
  struct sf_case c;
  sf_case_init(&c);
  c.model.layers = layers;
  c.layout.pp = pp;
  for (int64_t f = 0; f <= ENDS; f++)
    for (int64_t l = 0; l <= ENDS; l++) {
      c.layout.pp_first_layers = f;
      c.layout.pp_last_layers = l;
      valid[f][l] = sf_case_validate(&c, NULL) == SF_OK;
    }
}

static bool any_valid(bool valid[COUNT][COUNT], struct sf_range first, struct sf_range last) {
  for (int64_t f = first.lo; f <= first.hi; f++)
    for (int64_t l = last.lo; l <= last.hi; l++)
      if (valid[f][l]) return true;
  return false;
}

static int check_ends(int64_t layers, int64_t pp) {
  bool valid[COUNT][COUNT];
  struct sf_range at[SF_WALK_COUNT] = {{0, 0}};
  int possible = 0;
  valid_ends(valid, layers, pp);
  for (int64_t range = 0; range < COUNT * COUNT * COUNT * COUNT; range++) {
    const struct sf_range first = {range % COUNT, range / COUNT % COUNT},
                          last = {range / (COUNT * COUNT) % COUNT, range / (COUNT * COUNT * COUNT)};
    if (first.lo > first.hi || last.lo > last.hi) continue;
    at[SF_WALK_PP_FIRST] = first;
    at[SF_WALK_PP_LAST] = last;
    const bool expected = any_valid(valid, first, last);
    if (sf_bounds_stages_fit(at, layers, pp) != expected)
      fail_msg("%d layers, %d stages, first %d..%d, last %d..%d: expected %d", (int)layers, (int)pp, (int)first.lo, (int)first.hi,
               (int)last.lo, (int)last.hi, expected);
    possible += expected;
  }
  return possible;
}

static void test_stages_fit_any_ranges_as_some_valid_case(void **state) {
  (void)state;
  int possible = 0;
  for (int64_t layers = 1; layers <= LAYERS; layers++)
    for (int64_t pp = 1; pp <= STAGES; pp++) possible += check_ends(layers, pp);
  assert_true(possible > 1000);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_stages_fit_any_ranges_as_some_valid_case)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
