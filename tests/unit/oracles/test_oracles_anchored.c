/* Anchored comparison: end to end, what a module makes of noise that no draw has is told from what it makes wrong, and small errors are
 * seen that the noise of the whole model hides. */
#include "tests/unit/oracles/candidate.h"

#include "oracles/judge/collector.h"

#define WORDS SMALL_MODEL E2E "layout.tp=2 model.norm=layer model.qk_norm=on model.positions=learned model.bias=on data.weights=sparse "

struct moved {
  struct sf_trace_id id;
  const float *values;
};

static const float *moved_tensor(void *ctx, struct sf_trace_id id) {
  const struct moved *moved = ctx;
  return sf_trace_key(id) == sf_trace_key(moved->id) ? moved->values : NULL;
}

static const float *no_tensor(void *ctx, struct sf_trace_id id) {
  (void)ctx;
  (void)id;
  return NULL;
}

static const float *no_parts(void *ctx, struct sf_trace_id id) {
  (void)ctx;
  (void)id;
  return NULL;
}

/* The candidate becomes the run in which one tensor has these values, and all that follows from them. */
static void run_with(struct trial *t, struct moved moved) {
  struct sf_case alone = t->catalog->logical;
  struct sf_catalog *catalog;
  alone.mode = SF_MODE_ISOLATED;
  assert_int_equal(sf_catalog_create(&catalog, &alone), SF_OK);
  candidate_destroy(&t->candidate);
  t->candidate = (struct candidate){.catalog = t->catalog};
  const struct sf_given given = {moved_tensor, no_parts, &moved};
  const struct sf_reference_options options = {.gemm = &loops_table, .given = &given};
  const struct sf_reference_sink sink = {.ctx = &t->candidate, .emit = candidate_emit};
  assert_int_equal(sf_reference_run(catalog, &options, &sink), SF_OK);
  sf_catalog_destroy(catalog);
  const struct tensor *tensor = tensor_at(&t->candidate, SF_KIND_ACT, moved.id.subject, 0, 0);
  memcpy(tensor->values, moved.values, (size_t)tensor->count * sizeof *moved.values);
}

/* The noise levels of the reference's own run, module by module. */
static struct sf_expectations *levels_of(const struct trial *t) {
  static const struct sf_given given = {no_tensor, no_parts, NULL};
  struct sf_expectations *levels = NULL;
  assert_int_equal(sf_expectations_create_given(&levels, t->expectations, &given), SF_OK);
  assert_int_equal(sf_expectations_raise(levels, SF_LEVEL_SURE, NULL, 0), SF_OK);
  return levels;
}

/* Tensors further from the reference than their module's perturbed runs allow. */
static int count_far(const struct trial *t, const struct sf_expectations *levels) {
  int count = 0;
  for (int32_t i = 0; i < t->candidate.count; i++) {
    const struct tensor *tensor = &t->candidate.tensors[i];
    if (!sf_kind_has_noise((enum sf_kind)tensor->id.kind)) continue;
    struct sf_comparison comparison;
    double *scratch = malloc((size_t)tensor->spec.shape.rows * sizeof *scratch);
    assert_non_null(scratch);
    sf_compare(&comparison, sf_expectations_find(levels, tensor->id), tensor->values, SF_LEVEL_SURE, scratch);
    count += comparison.flagged && tensor->id.subject != sf_catalog_module(t->catalog, SF_MODULE_LINEAR_QKV, 0);
    free(scratch);
  }
  return count;
}

/* Moves one head's vector of one row of linear_qkv's output by `levels` of the row's noise levels, along `sign` in its first column, until
 * what follows is further from the reference than a module's rounding explains. Returns how many tensors were. */
static int move_until_amplified(struct trial *t, double levels) {
  const int64_t width = t->catalog->logical.model.head_dim;
  struct sf_trace_id id = {.kind = SF_KIND_ACT, .pass = SF_PASS_FWD, .subject = sf_catalog_module(t->catalog, SF_MODULE_LINEAR_QKV, 0)};
  struct sf_expectations *own = levels_of(t);
  const struct sf_expected *e = sf_expectations_find(own, id);
  const int64_t rows = e->spec.shape.rows, cols = e->spec.shape.cols;
  double *noise = malloc((size_t)rows * sizeof *noise);
  float *values = malloc((size_t)(rows * cols) * sizeof *values);
  assert_true(noise != NULL && values != NULL);
  sf_row_noise(noise, e, SF_LEVEL_SURE);
  int amplified = 0;
  for (int64_t i = 0; i < rows * (cols / width) && amplified == 0; i++) {
    const int64_t row = i / (cols / width), first = i % (cols / width) * width;
    memcpy(values, e->x, (size_t)(rows * cols) * sizeof *values);
    float *const at = values + row * cols + first;
    at[0] += (float)(at[0] > 0 ? -levels * noise[row] : levels * noise[row]);
    run_with(t, (struct moved){id, values});
    amplified = count_far(t, own);
    if (amplified > 0) trial_judge(t);
  }
  free(noise);
  free(values);
  sf_expectations_destroy(own);
  return amplified;
}

static void test_judge_amplified_noise_is_no_finding(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, WORDS);
  assert_true(move_until_amplified(&t, 3) > 0);
  assert_int_equal(t.judgement.verdict, SF_VERDICT_PASS);
  trial_close(&t);
}

/* The same run, and beside it one module that is wrong by less than its noise end to end. */
static void test_judge_amplified_noise_beside_a_wrong_module_is_found(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, WORDS);
  assert_true(move_until_amplified(&t, 3) > 0);
  const struct tensor *act = module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_LINEAR_FC2, 1);
  for (int64_t k = 0; k < act->count; k++) act->values[k] *= 1 + 1e-4f;
  trial_judge(&t);
  assert_first_at(&t, SF_CLASS_TOLERANCE, act);
  trial_close(&t);
}

/* No module made it of its input. */
static void test_judge_small_error_of_a_module_is_found(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, WORDS "precision.compute=bf16 ");
  const struct tensor *act = module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_LINEAR_PROJ, 0);
  struct sf_expectations *own = levels_of(&t);
  const struct sf_expected *e = sf_expectations_find(own, act->id);
  double *noise = malloc((size_t)e->spec.shape.rows * sizeof *noise);
  assert_non_null(noise);
  sf_row_noise(noise, e, SF_LEVEL_FULL);
  act->values[3] += (float)(12 * noise[0]);
  free(noise);
  sf_expectations_destroy(own);
  trial_judge(&t);
  assert_first_at(&t, SF_CLASS_TOLERANCE, act);
  trial_close(&t);
}

/* Gradients that are off by less than their noise end to end, in each low precision. */
static void test_judge_low_precision_sees_small_scales(void **state) {
  (void)state;
  static const struct {
    const char *precision;
    enum sf_kind kind;
    enum sf_module_class module;
  } rows[] = {
      {"bf16", SF_KIND_ACT_GRAD, SF_MODULE_LINEAR_FC1}, {"bf16", SF_KIND_ACT, SF_MODULE_CORE_ATTENTION},
      {"fp16", SF_KIND_ACT_GRAD, SF_MODULE_LINEAR_FC1}, {"fp8", SF_KIND_ACT_GRAD, SF_MODULE_LINEAR_FC1},
      {"fp8", SF_KIND_ACT_GRAD, SF_MODULE_LINEAR_PROJ},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    char words[640];
    struct trial t;
    snprintf(words, sizeof words, WORDS "precision.compute=%s ", rows[i].precision);
    trial_open(&t, words);
    trial_judge(&t);
    assert_int_equal(t.judgement.verdict, SF_VERDICT_PASS);
    const struct tensor *tensor = module_tensor(&t.candidate, rows[i].kind, rows[i].module, 0);
    for (int64_t k = 0; k < tensor->count; k++) tensor->values[k] *= 1.05f;
    trial_judge(&t);
    assert_first_at(&t, SF_CLASS_TOLERANCE, tensor);
    assert_true(t.judgement.findings[0].anchored);
    trial_close(&t);
  }
}

/* A step with a number that is not finite cannot be computed once more; the steps around it can. */
static void test_judge_step_with_infinity_leaves_the_others_judged(void **state) {
  (void)state;
  for (int wrong = 0; wrong < 2; wrong++) {
    struct trial t;
    trial_open(&t, WORDS "precision.compute=bf16 train.steps=3 ");
    struct tensor *infinite = tensor_at(&t.candidate, SF_KIND_ACT, sf_catalog_module(t.catalog, SF_MODULE_LINEAR_FC1, 0), 1, 0);
    infinite->values[0] = INFINITY;
    struct tensor *grad = tensor_at(&t.candidate, SF_KIND_ACT_GRAD, sf_catalog_module(t.catalog, SF_MODULE_LINEAR_FC1, 0), 2, 0);
    for (int64_t k = 0; k < grad->count && wrong; k++) grad->values[k] *= 1.05f;
    trial_judge(&t);
    int anchored = 0;
    for (int32_t i = 0; i < t.judgement.finding_count; i++) {
      const bool is_infinity = t.judgement.findings[i].cls == SF_CLASS_NONFINITE;
      anchored += !is_infinity;
      assert_int_equal(t.judgement.findings[i].id.step, is_infinity ? 1 : 2);
    }
    assert_int_equal(anchored > 0, wrong);
    trial_close(&t);
  }
}

/* Another learning rate makes other weights, which is the optimizer's fault alone: later steps are judged from the candidate's weights. */
static void test_judge_later_steps_start_from_the_candidates_weights(void **state) {
  (void)state;
  static const char *const words[] = {WORDS "train.steps=3 ", WORDS "train.steps=3 precision.compute=bf16 "};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
    struct trial t;
    trial_open(&t, words[i]);
    struct sf_case other = t.catalog->logical;
    struct sf_catalog *catalog;
    other.train.lr_micro *= 3;
    assert_int_equal(sf_catalog_create(&catalog, &other), SF_OK);
    candidate_destroy(&t.candidate);
    candidate_run(&t.candidate, catalog, SF_PERTURB_NONE, 0);
    t.candidate.catalog = t.catalog;
    sf_catalog_destroy(catalog);
    struct sf_expectations *own = levels_of(&t);
    assert_true(count_far(&t, own) > 0); /* against the reference's own weights it would not pass */
    sf_expectations_destroy(own);
    trial_judge(&t);
    assert_int_equal(t.judgement.verdict, SF_VERDICT_FINDING);
    for (int32_t k = 0; k < t.judgement.finding_count; k++) assert_int_equal(t.judgement.findings[k].id.kind, SF_KIND_PARAM_DELTA);
    trial_close(&t);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_judge_amplified_noise_is_no_finding),
      cmocka_unit_test(test_judge_amplified_noise_beside_a_wrong_module_is_found),
      cmocka_unit_test(test_judge_small_error_of_a_module_is_found),
      cmocka_unit_test(test_judge_low_precision_sees_small_scales),
      cmocka_unit_test(test_judge_step_with_infinity_leaves_the_others_judged),
      cmocka_unit_test(test_judge_later_steps_start_from_the_candidates_weights),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
