/* Later steps end to end of a candidate whose rounding decided the sign of Adam's change otherwise than every draw: judged from its own
 * weights. */
#include "tests/unit/oracles/candidate.h"

/* Adam without memory: its change is lr times the gradient's sign. */
#define WORDS                                                                                                                              \
  SMALL_MODEL E2E "layout.tp=2 train.steps=2 train.clip_milli=0 train.weight_decay_milli=0 train.lr_micro=10000 train.beta1_milli=0 "      \
                  "train.beta2_milli=0 "

struct turned {
  struct sf_trace_id id;
  float *change;
};

static const float *change_of(void *ctx, struct sf_trace_id id) {
  const struct turned *turned = ctx;
  return sf_trace_key(id) == sf_trace_key(turned->id) ? turned->change : NULL;
}

/* A clean run but for one weight, which step 0 moves the other way; its gradient has the other sign. Returns that gradient. */
static const struct tensor *turn_one_weight(struct trial *t, int64_t element) {
  struct tensor *delta = param_tensor(&t->candidate, SF_KIND_PARAM_DELTA, SF_MODULE_LINEAR_PROJ, 0, 0);
  struct turned turned = {.id = delta->id, .change = malloc((size_t)delta->count * sizeof(float))};
  assert_non_null(turned.change);
  memcpy(turned.change, delta->values, (size_t)delta->count * sizeof(float));
  turned.change[element] *= -1;
  candidate_destroy(&t->candidate);
  t->candidate = (struct candidate){.catalog = t->catalog};
  const struct sf_reference_options options = {.gemm = &loops_table, .change = change_of, .change_ctx = &turned};
  const struct sf_reference_sink sink = {.ctx = &t->candidate, .emit = candidate_emit};
  assert_int_equal(sf_reference_run(t->catalog, &options, &sink), SF_OK);
  free(turned.change);
  const struct tensor *grad = param_tensor(&t->candidate, SF_KIND_MAIN_GRAD, SF_MODULE_LINEAR_PROJ, 0, 0);
  grad->values[element] *= -1;
  return grad;
}

static struct tensor *later_act(struct trial *t) {
  return tensor_at(&t->candidate, SF_KIND_ACT, sf_catalog_module(t->catalog, SF_MODULE_LINEAR_QKV, 1), 1, 0);
}

static void test_judge_later_step_starts_from_the_candidates_changes(void **state) {
  (void)state;
  static const char *const layouts[] = {WORDS, WORDS "layout.pp=2 layout.sp=on model.activation=swiglu"};
  for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
    struct trial t;
    trial_open(&t, layouts[i]);
    const struct tensor *grad = turn_one_weight(&t, 7);
    trial_judge(&t);
    assert_first_at(&t, SF_CLASS_TOLERANCE, grad);
    assert_int_equal(t.judgement.finding_count, 1);
    /* Against the reference's own weights it would not pass. */
    const struct tensor *act = later_act(&t);
    const struct sf_expected *e = sf_expectations_find(t.expectations, act->id);
    double squares = 0;
    for (int64_t k = 0; k < act->count; k++) squares += pow((double)act->values[k] - (double)e->x[k], 2);
    assert_true(sqrt(squares) > sf_factors.fro * e->noise[SF_LEVEL_FULL]);
    trial_close(&t);
  }
}

static void test_judge_later_step_spoilt_beside_another_change_is_found(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, WORDS);
  turn_one_weight(&t, 7);
  struct tensor *act = later_act(&t);
  for (int64_t k = 0; k < act->count; k++) act->values[k] *= 1.001f;
  trial_judge(&t);
  assert_int_equal(t.judgement.finding_count, 2);
  assert_int_equal(sf_trace_key(t.judgement.findings[1].id), sf_trace_key(act->id));
  trial_close(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_judge_later_step_starts_from_the_candidates_changes),
      cmocka_unit_test(test_judge_later_step_spoilt_beside_another_change_is_found),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
