/* The optimizer step and the scalars, which are recomputed from the candidate's own tensors. */
#include "tests/unit/oracles/candidate.h"

#include "oracles/diagnose/diagnose.h"
#include "oracles/noise/norms.h"

#include <math.h>

/* Clipping is active (the limit is far below any norm here), so a wrong factor shows in the changes. */
#define STEP_CASE SMALL_MODEL "train.clip_milli=1 train.steps=2 model.tied=on layout.tp=2 "

static const char *const MODES[] = {STEP_CASE E2E, STEP_CASE ISOLATED, STEP_CASE E2E "precision.compute=bf16",
                                    STEP_CASE ISOLATED "precision.compute=bf16 train.loss_norm=per_microbatch"};
enum { MODE_COUNT = sizeof MODES / sizeof *MODES };

static void test_judge_wrong_scalar_is_named(void **state) {
  (void)state;
  for (size_t i = 0; i < MODE_COUNT; i++) {
    struct trial t;
    trial_open(&t, MODES[i]);
    for (int step = 0; step < 2; step++) {
      for (int s = 0; s <= SF_SCALAR_CLIP; s++) {
        struct tensor *scalar = scalar_tensor(&t.candidate, (enum sf_scalar)s, step);
        const float held = scalar->values[0];
        scalar->values[0] = s == SF_SCALAR_TOKENS ? held + 1 : held * 1.0001f;
        if (s == SF_SCALAR_LOSS) scalar->values[0] += 0.001f; /* losses of isolated mode may cancel */
        trial_judge(&t);
        const struct sf_finding *first = assert_first_at(&t, s == SF_SCALAR_TOKENS ? SF_CLASS_EXACT : SF_CLASS_TOLERANCE, scalar);
        assert_true(first->ratio > 1);
        scalar->values[0] = held;
      }
    }
    trial_judge(&t);
    assert_passes(&t);
    trial_close(&t);
  }
}

/* A norm that counts a replicated gradient twice, and a clip factor and changes that follow from it: the norm alone is to blame. */
static void test_judge_norm_that_overcounts_is_the_only_finding_of_its_scalar(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, STEP_CASE E2E "train.steps=1");
  struct tensor *norm = scalar_tensor(&t.candidate, SF_SCALAR_GRAD_NORM, 0), *clip = scalar_tensor(&t.candidate, SF_SCALAR_CLIP, 0);
  norm->values[0] *= 1.5f;
  clip->values[0] = 0.001f / (norm->values[0] + 1e-6f);
  trial_judge(&t);
  assert_first_at(&t, SF_CLASS_TOLERANCE, norm);
  for (int32_t i = 1; i < t.judgement.finding_count; i++) assert_int_not_equal(t.judgement.findings[i].id.kind, SF_KIND_SCALAR);
  trial_close(&t);
}

static void test_judge_wrong_change_of_a_weight_is_named(void **state) {
  (void)state;
  for (size_t i = 0; i < MODE_COUNT; i++) {
    struct trial t;
    trial_open(&t, MODES[i]);
    for (int step = 0; step < 2; step++) {
      struct tensor *delta = param_tensor(&t.candidate, SF_KIND_PARAM_DELTA, SF_MODULE_LINEAR_FC2, 0, step);
      for (int64_t k = 0; k < delta->count; k++) delta->values[k] *= 1.01f;
      trial_judge(&t);
      assert_first_at(&t, SF_CLASS_TOLERANCE, delta);
      for (int64_t k = 0; k < delta->count; k++) delta->values[k] /= 1.01f;
    }
    trial_close(&t);
  }
}

/* The first step of Adam in double, with bias corrections of whatever steps and so many times the weight decay; decays_all: parameters that
 * have none get it too. */
struct adam {
  int of_m, of_v;
  double decays;
  bool decays_all;
};

static void adam_step(struct tensor *delta, const struct tensor *grad, const struct sf_catalog *catalog, double clip, struct adam adam) {
  const struct sf_train *train = &catalog->logical.train;
  const struct sf_param *param = &catalog->params[delta->id.subject];
  const double beta1 = (double)train->beta1_milli / 1000, beta2 = (double)train->beta2_milli / 1000;
  const struct sf_fill fill = sf_fill_for_param(catalog, delta->id.subject, 0);
  for (int64_t i = 0; i < delta->count; i++) {
    float master;
    sf_fill_range(&master, &fill, i, 1);
    const double g = clip * (double)grad->values[i], m = (1 - beta1) * g, v = (1 - beta2) * g * g;
    const double decay = param->decayed || adam.decays_all ? adam.decays * (double)train->weight_decay_milli / 1000 * (double)master : 0;
    const double update =
        (double)train->lr_micro * 1e-6 * (m / (1 - pow(beta1, adam.of_m)) / (sqrt(v / (1 - pow(beta2, adam.of_v))) + 1e-8) + decay);
    delta->values[i] = (float)((double)master - update) - master;
  }
}

static void test_judge_bias_correction_of_the_second_step_is_found_in_every_change(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, STEP_CASE ISOLATED "train.steps=1");
  const double clip = (double)scalar_tensor(&t.candidate, SF_SCALAR_CLIP, 0)->values[0];
  for (int correction = 1; correction <= 2; correction++) {
    int32_t deltas = 0;
    for (int32_t i = 0; i < t.candidate.count; i++) {
      struct tensor *delta = &t.candidate.tensors[i];
      if (delta->id.kind != SF_KIND_PARAM_DELTA) continue;
      adam_step(delta, tensor_at(&t.candidate, SF_KIND_MAIN_GRAD, delta->id.subject, 0, 0), t.catalog, clip,
                (struct adam){correction, correction, 1, false});
      const struct tensor *after = tensor_at(&t.candidate, SF_KIND_PARAM, delta->id.subject, 1, 0);
      const struct sf_fill fill = sf_fill_for_param(t.catalog, delta->id.subject, 0);
      sf_fill_range(after->values, &fill, 0, after->count);
      for (int64_t k = 0; k < after->count; k++) after->values[k] += delta->values[k];
      deltas++;
    }
    trial_judge(&t);
    if (correction == 1)
      assert_passes(&t);
    else
      assert_int_equal(t.judgement.finding_count, deltas);
    for (int32_t i = 0; i < t.judgement.finding_count; i++) assert_int_equal(t.judgement.findings[i].id.kind, SF_KIND_PARAM_DELTA);
  }
  trial_close(&t);
}

/* clips: the gradients are multiplied by so many times the clip factor. The weight follows the change, so that the change alone is to
 * blame. */
static void diagnose_change(const char *words, int step, struct adam adam, double clips, enum sf_diagnosis_class cls, const char *text) {
  struct trial t;
  struct sf_diagnosis diagnosis;
  trial_open(&t, words);
  const double clip = (double)scalar_tensor(&t.candidate, SF_SCALAR_CLIP, step)->values[0];
  struct tensor *delta = param_tensor(&t.candidate, SF_KIND_PARAM_DELTA, SF_MODULE_LINEAR_PROJ, 0, step);
  const struct tensor *grad = tensor_at(&t.candidate, SF_KIND_MAIN_GRAD, delta->id.subject, step, 0),
                      *after = tensor_at(&t.candidate, SF_KIND_PARAM, delta->id.subject, step + 1, 0);
  const float *right = sf_expectations_find(t.expectations, delta->id)->x;
  adam_step(delta, grad, t.catalog, clips * clip, adam);
  for (int64_t k = 0; k < after->count; k++) after->values[k] += delta->values[k] - right[k];
  trial_judge(&t);
  const struct sf_finding *finding = assert_first_at(&t, SF_CLASS_TOLERANCE, delta);
  const struct sf_shape shape = delta->spec.shape;
  const struct sf_diagnosis_shard whole = {.rank = 0, .map = sf_shard_map_whole(shape), .data = delta->values};
  assert_int_equal(sf_diagnose_finding(&diagnosis, NULL, t.collector, finding, &whole, 1), SF_OK);
  if (diagnosis.cls != cls || strstr(diagnosis.text, text) == NULL) fail_msg("%s: %s", words, diagnosis.text);
  trial_close(&t);
}

static void test_diagnose_changes_are_named_by_adams_mistakes(void **state) {
  (void)state;
#define DECAYED STEP_CASE ISOLATED "train.weight_decay_milli=1000 train.lr_micro=1000 "
  diagnose_change(DECAYED, 0, (struct adam){2, 2, 1, false}, 1, SF_DIAGNOSIS_SCALE, "Adam's bias correction of the next step");
  diagnose_change(DECAYED, 0, (struct adam){2, 1, 1, false}, 1, SF_DIAGNOSIS_SCALE, "first moment's bias correction of the next step");
  diagnose_change(DECAYED, 0, (struct adam){1, 2, 1, false}, 1, SF_DIAGNOSIS_SCALE, "second moment's bias correction of the next step");
  diagnose_change(DECAYED, 0, (struct adam){1000000, 1000000, 1, false}, 1, SF_DIAGNOSIS_SCALE, "without bias correction");
  diagnose_change(DECAYED, 0, (struct adam){1, 1, 0, false}, 1, SF_DIAGNOSIS_REPEATED_TERM, "without weight decay");
  diagnose_change(DECAYED, 0, (struct adam){1, 1, 2, false}, 1, SF_DIAGNOSIS_REPEATED_TERM, "twice the weight decay");
}

/* Replicas that differ: what the wrong one did can be predicted less closely than they have to agree. */
static void test_diagnose_replica_that_decays_a_norm_is_named(void **state) {
  (void)state;
  struct trial t;
  struct sf_diagnosis diagnosis;
  trial_open(&t, DECAYED);
  const double clip = (double)scalar_tensor(&t.candidate, SF_SCALAR_CLIP, 0)->values[0];
  struct tensor *delta = param_tensor(&t.candidate, SF_KIND_PARAM_DELTA, SF_MODULE_INPUT_LAYERNORM, 0, 0);
  const float *right = sf_expectations_find(t.expectations, delta->id)->x;
  adam_step(delta, tensor_at(&t.candidate, SF_KIND_MAIN_GRAD, delta->id.subject, 0, 0), t.catalog, clip, (struct adam){1, 1, 1, true});
  trial_judge(&t);
  struct sf_finding finding = *assert_first_at(&t, SF_CLASS_TOLERANCE, delta);
  finding.cls = SF_CLASS_CONFLICT;
  const struct sf_shard_map whole = sf_shard_map_whole(delta->spec.shape);
  const struct sf_diagnosis_shard shards[2] = {{.rank = 0, .map = whole, .data = right}, {.rank = 1, .map = whole, .data = delta->values}};
  assert_int_equal(sf_diagnose_finding(&diagnosis, NULL, t.collector, &finding, shards, 2), SF_OK);
  if (strstr(diagnosis.text, "a change with weight decay, which this parameter has none of") == NULL) fail_msg("%s", diagnosis.text);
  trial_close(&t);
}

/* Adam all but divides a constant factor of its gradients out again: what is left shows where they are near its epsilon, in some elements
 * only. */
static void test_diagnose_another_clip_factor_is_named(void **state) {
  (void)state;
#define CLIPPED SMALL_MODEL ISOLATED "train.clip_milli=1 train.steps=1 layout.tp=2 "
  diagnose_change(CLIPPED, 0, (struct adam){1, 1, 1, false}, 0.5, SF_DIAGNOSIS_SCALE, "counted the squares of all parameters 4 times)");
  diagnose_change(CLIPPED, 0, (struct adam){1, 1, 1, false}, 0.001, SF_DIAGNOSIS_SCALE, "Adam with gradients times");
}

static bool is_embedding(const struct sf_param *p) { return strcmp(p->name, "embedding.word_embeddings.weight") == 0; }
static bool is_expert(const struct sf_param *p) { return sf_cut_is_expert(p->row_cut) || sf_cut_is_expert(p->col_cut); }

/* How many times the clip factor is what a norm without some parameters gives. */
static double clips_without(const char *words, bool (*is_left_out)(const struct sf_param *)) {
  struct trial t;
  double all = 0, own = 0;
  trial_open(&t, words);
  for (int32_t i = 0; i < t.catalog->param_count; i++) {
    const struct tensor *grad = tensor_at(&t.candidate, SF_KIND_MAIN_GRAD, i, 0, 0);
    const double squares = sf_sum_squares(grad->values, grad->count);
    all += squares;
    if (is_left_out(&t.catalog->params[i])) own += squares;
  }
  trial_close(&t);
  assert_true(own > 0);
  return sqrt(all / (all - own));
}

static double clips_without_clipping(const char *words) {
  struct trial t;
  trial_open(&t, words);
  const double clip = (double)scalar_tensor(&t.candidate, SF_SCALAR_CLIP, 0)->values[0];
  trial_close(&t);
  assert_true(clip < 1);
  return 1 / clip;
}

static void test_diagnose_gradients_that_are_not_clipped_are_named(void **state) {
  (void)state;
  diagnose_change(CLIPPED, 0, (struct adam){1, 1, 1, false}, clips_without_clipping(CLIPPED), SF_DIAGNOSIS_SCALE,
                  "Adam with gradients that are not clipped");
}

static void test_diagnose_norm_without_a_group_of_parameters_is_named(void **state) {
  (void)state;
  diagnose_change(CLIPPED, 0, (struct adam){1, 1, 1, false}, clips_without(CLIPPED, is_embedding), SF_DIAGNOSIS_SCALE,
                  "as if the norm left out the squares of the word embedding");
#define CLIPPED_EXPERTS CLIPPED "layout.sp=on moe.experts=2 moe.shared_ffn=16 "
  diagnose_change(CLIPPED_EXPERTS, 0, (struct adam){1, 1, 1, false}, clips_without(CLIPPED_EXPERTS, is_expert), SF_DIAGNOSIS_SCALE,
                  "as if the norm left out the squares of the experts");
}

/* The run's own norm leaves a group out; clip factor and changes follow from it. */
static void diagnose_norm(const char *words, double clips, const char *text) {
  struct trial t;
  struct sf_diagnosis diagnosis;
  trial_open(&t, words);
  struct tensor *norm = scalar_tensor(&t.candidate, SF_SCALAR_GRAD_NORM, 0);
  norm->values[0] = (float)((double)norm->values[0] / clips);
  trial_judge(&t);
  const struct sf_finding *finding = assert_first_at(&t, SF_CLASS_TOLERANCE, norm);
  const struct sf_diagnosis_shard whole = {.rank = 0, .map = sf_shard_map_whole(norm->spec.shape), .data = norm->values};
  assert_int_equal(sf_diagnose_finding(&diagnosis, NULL, t.collector, finding, &whole, 1), SF_OK);
  if (diagnosis.cls != SF_DIAGNOSIS_MISSING_TERM || strstr(diagnosis.text, text) == NULL) fail_msg("%s: %s", words, diagnosis.text);
  trial_close(&t);
}

static void test_diagnose_traced_norm_without_a_group_of_parameters_is_named(void **state) {
  (void)state;
  diagnose_norm(CLIPPED, clips_without(CLIPPED, is_embedding), "the share of the word embedding (as squares) is not added");
  diagnose_norm(CLIPPED_EXPERTS, clips_without(CLIPPED_EXPERTS, is_expert), "the share of the experts (as squares) is not added");
}

static void test_judge_weight_that_is_not_master_plus_change_is_exact(void **state) {
  (void)state;
  for (size_t i = 0; i < MODE_COUNT; i++) {
    struct trial t;
    trial_open(&t, MODES[i]);
    for (int step = 0; step <= 2; step++) {
      struct tensor *param = param_tensor(&t.candidate, SF_KIND_PARAM, SF_MODULE_LINEAR_PROJ, 1, step);
      const float held = param->values[21];
      assert_true(held != 0);
      param->values[21] = held * 1.02f;
      trial_judge(&t);
      const struct sf_finding *first = assert_first_at(&t, SF_CLASS_EXACT, param);
      assert_int_equal(first->row, 21 / param->spec.shape.cols);
      param->values[21] = held;
    }
    trial_close(&t);
  }
}

static void test_judge_stale_weight_after_the_step_is_exact(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, STEP_CASE E2E);
  struct tensor *before = param_tensor(&t.candidate, SF_KIND_PARAM, SF_MODULE_LINEAR_QKV, 0, 0),
                *after = param_tensor(&t.candidate, SF_KIND_PARAM, SF_MODULE_LINEAR_QKV, 0, 1);
  memcpy(after->values, before->values, (size_t)after->count * sizeof(float));
  trial_judge(&t);
  assert_first_at(&t, SF_CLASS_EXACT, after);
  trial_close(&t);
}

static void test_judge_frozen_weight_that_moves_is_exact(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, STEP_CASE E2E "train.frozen=fc1");
  struct tensor *param = param_tensor(&t.candidate, SF_KIND_PARAM, SF_MODULE_LINEAR_FC1, 0, 2);
  param->values[5] += 0.01f;
  trial_judge(&t);
  assert_first_at(&t, SF_CLASS_EXACT, param);
  assert_int_equal(t.judgement.finding_count, 1);
  trial_close(&t);
}

static void test_judge_initial_weight_off_by_one_bit_is_exact(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, STEP_CASE ISOLATED);
  struct tensor *param = param_tensor(&t.candidate, SF_KIND_PARAM, SF_MODULE_FINAL_LAYERNORM, -1, 0);
  param->values[2] = nextafterf(param->values[2], 10);
  trial_judge(&t);
  assert_first_at(&t, SF_CLASS_EXACT, param);
  assert_int_equal(t.judgement.finding_count, 1);
  trial_close(&t);
}

/* Without a gradient there is no telling what the step should have done: unjudged, not passed. */
static void test_judge_step_without_its_gradient_is_unjudged(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, STEP_CASE E2E);
  const struct tensor *grad = param_tensor(&t.candidate, SF_KIND_MAIN_GRAD, SF_MODULE_LINEAR_FC2, 0, 0);
  trial_cut(&t, &t.catalog->logical);
  part_of(&t, grad->id, 0)->times = 0;
  trial_judge_parts(&t, &t.catalog->logical, BY_TENSOR, false);
  int32_t missing = 0;
  for (int32_t i = 0; i < t.judgement.result_count; i++) {
    const struct sf_tensor_result *r = &t.judgement.results[i];
    missing += !r->judged && r->why_not != NULL && strcmp(r->why_not, "inputs missing") == 0;
  }
  assert_int_equal(t.judgement.finding_count, 0);
  assert_int_equal(missing, 3); /* the norm, and this weight's changes in both steps */
  trial_close(&t);
}

/* Scaling that is out of step with what overflowed, and a step that is skipped in part. */
#define SCALED_CASE STEP_CASE E2E "train.steps=3 precision.compute=fp16 precision.loss_scale_window=1 precision.loss_scale_log2="

static void test_judge_wrong_loss_scale_or_overflow_flag_is_exact(void **state) {
  (void)state;
  static const char *const cases[] = {SCALED_CASE "6", SCALED_CASE "24"};
  for (int i = 0; i < 2; i++) {
    struct trial t;
    trial_open(&t, cases[i]);
    trial_judge(&t);
    assert_passes(&t);
    for (int step = 0; step < 3; step++) {
      struct tensor *scale = scalar_tensor(&t.candidate, SF_SCALAR_LOSS_SCALE, step),
                    *overflow = scalar_tensor(&t.candidate, SF_SCALAR_OVERFLOW, step);
      assert_true(overflow->values[0] == (float)i);
      scale->values[0] *= 2;
      trial_judge(&t);
      assert_first_at(&t, SF_CLASS_EXACT, scale);
      scale->values[0] /= 2;
      overflow->values[0] = 1 - overflow->values[0];
      trial_judge(&t);
      assert_first_at(&t, SF_CLASS_EXACT, overflow);
      overflow->values[0] = 1 - overflow->values[0];
    }
    struct tensor *after = scalar_tensor(&t.candidate, SF_SCALAR_LOSS_SCALE, 3); /* that the last step leaves */
    after->values[0] *= 2;
    trial_judge(&t);
    assert_first_at(&t, SF_CLASS_EXACT, after);
    trial_close(&t);
  }
}

static void test_judge_change_in_a_skipped_step_is_exact(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, SCALED_CASE "24");
  struct tensor *delta = param_tensor(&t.candidate, SF_KIND_PARAM_DELTA, SF_MODULE_LINEAR_FC2, 0, 1);
  delta->values[3] = 1e-12f;
  trial_judge(&t);
  assert_first_at(&t, SF_CLASS_EXACT, delta);
  delta->values[3] = 0;
  struct tensor *norm = scalar_tensor(&t.candidate, SF_SCALAR_GRAD_NORM, 2);
  norm->values[0] = INFINITY;
  trial_judge(&t);
  assert_first_at(&t, SF_CLASS_NONFINITE, norm);
  trial_close(&t);
}

/* An infinity that no draw of the reference explains. */
static void test_judge_infinity_in_fp16_is_nonfinite(void **state) {
  (void)state;
  static const char *const cases[] = {STEP_CASE E2E "precision.compute=fp16", STEP_CASE ISOLATED "precision.compute=fp16"};
  for (int i = 0; i < 2; i++) {
    struct trial t;
    trial_open(&t, cases[i]);
    struct tensor *act = module_tensor(&t.candidate, SF_KIND_ACT_GRAD, SF_MODULE_LINEAR_FC1, 1);
    act->values[9] = INFINITY;
    trial_judge(&t);
    assert_first_at(&t, SF_CLASS_NONFINITE, act);
    trial_close(&t);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_judge_wrong_scalar_is_named),
      cmocka_unit_test(test_judge_norm_that_overcounts_is_the_only_finding_of_its_scalar),
      cmocka_unit_test(test_judge_wrong_change_of_a_weight_is_named),
      cmocka_unit_test(test_judge_bias_correction_of_the_second_step_is_found_in_every_change),
      cmocka_unit_test(test_diagnose_another_clip_factor_is_named),
      cmocka_unit_test(test_diagnose_gradients_that_are_not_clipped_are_named),
      cmocka_unit_test(test_diagnose_norm_without_a_group_of_parameters_is_named),
      cmocka_unit_test(test_diagnose_traced_norm_without_a_group_of_parameters_is_named),
      cmocka_unit_test(test_diagnose_changes_are_named_by_adams_mistakes),
      cmocka_unit_test(test_diagnose_replica_that_decays_a_norm_is_named),
      cmocka_unit_test(test_judge_weight_that_is_not_master_plus_change_is_exact),
      cmocka_unit_test(test_judge_stale_weight_after_the_step_is_exact),
      cmocka_unit_test(test_judge_frozen_weight_that_moves_is_exact),
      cmocka_unit_test(test_judge_initial_weight_off_by_one_bit_is_exact),
      cmocka_unit_test(test_judge_step_without_its_gradient_is_unjudged),
      cmocka_unit_test(test_judge_wrong_loss_scale_or_overflow_flag_is_exact),
      cmocka_unit_test(test_judge_change_in_a_skipped_step_is_exact),
      cmocka_unit_test(test_judge_infinity_in_fp16_is_nonfinite),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
