/* The flat bound: one relative distance for all tensors, and what it leaves out. */
#include "tests/unit/oracles/candidate.h"

#include "oracles/judge/flat_bound.h"

static struct sf_flat_result flat_of(struct trial *t) {
  struct sf_flat_result result;
  trial_judge(t);
  sf_flat_bound_judge(&result, t->collector);
  return result;
}

static void scale(struct tensor *t, float factor) {
  for (int64_t i = 0; i < t->count; i++) t->values[i] *= factor;
}

static bool is_all_zero(const struct tensor *t) {
  for (int64_t i = 0; i < t->count; i++)
    if (t->values[i] != 0) return false;
  return true;
}

static int32_t count_compared(const struct candidate *c) {
  int32_t count = 0;
  for (int32_t i = 0; i < c->count; i++) count += sf_kind_has_noise((enum sf_kind)c->tensors[i].id.kind);
  return count;
}

static void test_flat_bound_is_the_published_one(void **state) {
  (void)state;
  assert_true(fabs(sf_flat_bound() - 0.08288) < 1e-5);
}

static void test_flat_bound_equal_tensors_are_at_no_distance(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, SMALL_MODEL E2E "layout.tp=2 layout.sp=on train.steps=2");
  const struct sf_flat_result r = flat_of(&t);
  assert_int_equal(r.tensors, count_compared(&t.candidate));
  assert_true(r.tensors > 50);
  assert_int_equal(r.beyond, 0);
  assert_true(r.worst == 0);
  trial_close(&t);
}

/* The same in every format and kind; what lies between its bound and ours is what it misses. */
static void test_flat_bound_between_8_and_9_percent(void **state) {
  (void)state;
  static const char *const cases[] = {SMALL_MODEL E2E "layout.tp=2", SMALL_MODEL ISOLATED "layout.tp=2 precision.compute=bf16"};
  for (size_t i = 0; i < 2; i++) {
    struct trial t;
    trial_open(&t, cases[i]);
    struct tensor *spoilt[] = {module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_LINEAR_QKV, 1),
                               module_tensor(&t.candidate, SF_KIND_ACT_GRAD, SF_MODULE_CORE_ATTENTION, 0),
                               param_tensor(&t.candidate, SF_KIND_WGRAD, SF_MODULE_LINEAR_FC1, 1, 0),
                               param_tensor(&t.candidate, SF_KIND_MAIN_GRAD, SF_MODULE_LINEAR_FC2, 0, 0)};
    for (size_t k = 0; k < sizeof spoilt / sizeof *spoilt; k++) {
      scale(spoilt[k], 1.08f);
      struct sf_flat_result r = flat_of(&t);
      assert_int_equal(r.beyond, 0);
      assert_true(fabs(r.worst - 0.08 / sf_flat_bound()) < 1e-5);
      assert_int_equal(t.judgement.verdict, SF_VERDICT_FINDING);
      scale(spoilt[k], 1.09f / 1.08f);
      r = flat_of(&t);
      assert_int_equal(r.beyond, 1);
      assert_true(sf_trace_key(r.first) == sf_trace_key(spoilt[k]->id));
      scale(spoilt[k], 1 / 1.09f);
    }
    trial_close(&t);
  }
}

static void test_flat_bound_the_first_is_first_in_the_references_order(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, SMALL_MODEL ISOLATED "layout.tp=2");
  struct tensor *late = module_tensor(&t.candidate, SF_KIND_ACT_GRAD, SF_MODULE_LINEAR_FC1, 0),
                *early = module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_LINEAR_PROJ, 1);
  scale(late, 3);
  scale(early, 2);
  const struct sf_flat_result r = flat_of(&t);
  assert_int_equal(r.beyond, 2);
  assert_true(sf_trace_key(r.first) == sf_trace_key(early->id));
  assert_true(fabs(r.worst - 2 / sf_flat_bound()) < 1e-4);
  trial_close(&t);
}

static void test_flat_bound_nan_and_a_zero_reference_are_beyond_it(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, SMALL_MODEL ISOLATED "layout.tp=2");
  struct tensor *act = module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_MLP_BDA, 0);
  const float held = act->values[3];
  act->values[3] = NAN;
  struct sf_flat_result r = flat_of(&t);
  assert_int_equal(r.beyond, 1);
  assert_true(isinf(r.worst));
  act->values[3] = held;
  trial_close(&t);
  trial_open(&t, ISOLATED "model.seq=1 model.hidden=8 train.microbatch_size=2 data.grads=sparse data.mask=sparse");
  struct tensor *zero = NULL;
  for (int32_t i = 0; i < t.candidate.count; i++)
    if (sf_kind_has_noise((enum sf_kind)t.candidate.tensors[i].id.kind) && is_all_zero(&t.candidate.tensors[i]))
      zero = &t.candidate.tensors[i];
  assert_non_null(zero);
  assert_int_equal(flat_of(&t).beyond, 0);
  zero->values[0] = 1e-30f;
  r = flat_of(&t);
  assert_int_equal(r.beyond, 1);
  assert_true(isinf(r.worst));
  trial_close(&t);
}

/* What the other oracle looks at besides: replicas, and what the step made of the gradients. */
static void test_flat_bound_does_not_see_replicas_scalars_or_changes(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, SMALL_MODEL E2E "layout.tp=2");
  scale(param_tensor(&t.candidate, SF_KIND_PARAM_DELTA, SF_MODULE_LINEAR_FC1, 0, 0), 2);
  for (int32_t i = 0; i < t.candidate.count; i++)
    if (t.candidate.tensors[i].id.kind == SF_KIND_SCALAR) scale(&t.candidate.tensors[i], 2);
  const struct sf_flat_result r = flat_of(&t);
  assert_int_equal(r.beyond, 0);
  assert_int_equal(t.judgement.verdict, SF_VERDICT_FINDING);
  trial_close(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_flat_bound_is_the_published_one),
      cmocka_unit_test(test_flat_bound_equal_tensors_are_at_no_distance),
      cmocka_unit_test(test_flat_bound_between_8_and_9_percent),
      cmocka_unit_test(test_flat_bound_the_first_is_first_in_the_references_order),
      cmocka_unit_test(test_flat_bound_nan_and_a_zero_reference_are_beyond_it),
      cmocka_unit_test(test_flat_bound_does_not_see_replicas_scalars_or_changes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
