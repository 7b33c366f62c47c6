/* Stochastic rounding of weights: the change is recomputed from the candidate's own tensors and rounded with the same bits. */
#include "harness/tensor/rounding_bits.h"
#include "tests/unit/oracles/candidate.h"

#include <math.h>

#define STOCHASTIC SMALL_MODEL "precision.compute=bf16 precision.stochastic=true train.lr_micro=1000 layout.tp=2 "

/* How a candidate rounds: as it must, or by one of the mistakes. */
enum rounding { RIGHT, OFF_BY_256, EIGHT_BITS, CUT, NEAREST, NEXT_STEPS_BITS, NEXT_ELEMENTS_BITS, ROUNDING_COUNT };

static uint16_t spoil(enum rounding rounding, const uint16_t *random, int64_t i, int64_t count) {
  switch (rounding) {
  case OFF_BY_256:
    return (uint16_t)(random[i] > 0xfeff ? 0xffff : random[i] + 256);
  case EIGHT_BITS:
    return random[i] & 0xff00;
  case CUT:
    return 0;
  case NEAREST:
    return 0x8000;
  case NEXT_ELEMENTS_BITS:
    return random[(i + 1) % count];
  default:
    return random[i];
  }
}

/* The first step of Adam in double from the candidate's own gradients, its change times (1 + off), rounded so. */
static void restep(struct trial *t, enum rounding rounding, double off) {
  const struct sf_train *train = &t->catalog->logical.train;
  const double clip = (double)scalar_tensor(&t->candidate, SF_SCALAR_CLIP, 0)->values[0];
  for (int32_t p = 0; p < t->catalog->param_count; p++) {
    const struct sf_param *param = &t->catalog->params[p];
    const struct tensor *before = tensor_at(&t->candidate, SF_KIND_PARAM, p, 0, 0),
                        *grad = tensor_at(&t->candidate, SF_KIND_MAIN_GRAD, p, 0, 0);
    struct tensor *after = tensor_at(&t->candidate, SF_KIND_PARAM, p, 1, 0),
                  *delta = tensor_at(&t->candidate, SF_KIND_PARAM_DELTA, p, 0, 0);
    uint16_t *random = malloc((size_t)delta->count * sizeof *random);
    assert_non_null(random);
    sf_rounding_bits_range(random, sf_rounding_key(t->catalog, p, rounding == NEXT_STEPS_BITS), 0, delta->count);
    for (int64_t i = 0; i < delta->count; i++) {
      const double g = clip * (double)grad->values[i], w = (double)before->values[i];
      const double decay = param->decayed ? (double)train->weight_decay_milli / 1000 * w : 0;
      const double change = -(double)train->lr_micro * 1e-6 * (g / (fabs(g) + 1e-8) + decay) * (1 + off);
      after->values[i] = sf_bf16_round_stochastic((float)(w + change), spoil(rounding, random, i, delta->count));
      delta->values[i] = after->values[i] - before->values[i];
    }
    free(random);
  }
}

static void test_judge_stochastic_weights_of_the_reference_pass(void **state) {
  (void)state;
  static const char *const cases[] = {STOCHASTIC ISOLATED "train.steps=2", STOCHASTIC E2E "train.steps=3 model.tied=on",
                                      STOCHASTIC E2E "train.steps=2 train.frozen=fc1",
                                      STOCHASTIC E2E "precision.loss_scale_log2=8 train.steps=2"};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct trial t;
    trial_open(&t, cases[i]);
    trial_judge(&t);
    assert_passes(&t);
    trial_close(&t);
  }
}

static void test_judge_stochastic_biased_thresholds_and_wrong_bits_are_found(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, STOCHASTIC ISOLATED);
  for (int rounding = RIGHT; rounding < ROUNDING_COUNT; rounding++) {
    restep(&t, (enum rounding)rounding, 0);
    trial_judge(&t);
    if (rounding == RIGHT) {
      assert_passes(&t);
      continue;
    }
    assert_true(t.judgement.finding_count > 0);
    for (int32_t i = 0; i < t.judgement.finding_count; i++) assert_int_equal(t.judgement.findings[i].id.kind, SF_KIND_PARAM_DELTA);
  }
  trial_close(&t);
}

/* What rounding of Adam explains may carry a sum over a threshold; a hundred times as much may not. */
static void test_judge_stochastic_sum_at_a_threshold_may_go_either_way(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, STOCHASTIC ISOLATED);
  const double offs[] = {-0.5e-4, 0.5e-4, -1e-2, 1e-2};
  for (int i = 0; i < 4; i++) {
    restep(&t, RIGHT, offs[i]);
    trial_judge(&t);
    if (i < 2)
      assert_passes(&t);
    else
      assert_true(t.judgement.finding_count > 0);
  }
  trial_close(&t);
}

/* One step of bf16 in one weight, told consistently. */
static void test_judge_stochastic_weight_one_step_off_is_named(void **state) {
  (void)state;
  static const char *const cases[] = {STOCHASTIC ISOLATED "train.steps=2", STOCHASTIC E2E "train.steps=2"};
  for (int i = 0; i < 2; i++) {
    struct trial t;
    trial_open(&t, cases[i]);
    for (int step = 0; step < 2; step++) {
      const struct tensor *before = param_tensor(&t.candidate, SF_KIND_PARAM, SF_MODULE_LINEAR_PROJ, 1, step);
      struct tensor *after = param_tensor(&t.candidate, SF_KIND_PARAM, SF_MODULE_LINEAR_PROJ, 1, step + 1);
      struct tensor *delta = param_tensor(&t.candidate, SF_KIND_PARAM_DELTA, SF_MODULE_LINEAR_PROJ, 1, step);
      const float held = after->values[21], held_delta = delta->values[21];
      after->values[21] = sf_bf16_value((uint16_t)(sf_bf16_bits(held) + 1));
      trial_judge(&t);
      assert_first_at(&t, SF_CLASS_EXACT, after); /* weight and change contradict each other */
      delta->values[21] += after->values[21] - held;
      trial_judge(&t);
      const struct sf_finding *first = assert_first_at(&t, SF_CLASS_TOLERANCE, delta);
      assert_non_null(strstr(first->text, "1 elements"));
      after->values[21] = held, delta->values[21] = held_delta;
      assert_true(before->count == after->count);
    }
    trial_close(&t);
  }
}

/* The reference keeps no wider weight: what it puts out is bf16, and changes are differences of such weights. */
static void test_reference_stochastic_weights_are_bf16_and_unbiased(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, STOCHASTIC ISOLATED "train.lr_micro=100 train.weight_decay_milli=0");
  const double clip = (double)scalar_tensor(&t.candidate, SF_SCALAR_CLIP, 0)->values[0], lr = 1e-4;
  double moved = 0, asked = 0,
         variance = 0; /* along what Adam asks for: less than a tenth of a step of bf16, which rounding to nearest loses */
  for (int32_t p = 0; p < t.catalog->param_count; p++) {
    const struct tensor *before = tensor_at(&t.candidate, SF_KIND_PARAM, p, 0, 0), *after = tensor_at(&t.candidate, SF_KIND_PARAM, p, 1, 0);
    const struct tensor *delta = tensor_at(&t.candidate, SF_KIND_PARAM_DELTA, p, 0, 0),
                        *grad = tensor_at(&t.candidate, SF_KIND_MAIN_GRAD, p, 0, 0);
    for (int64_t i = 0; i < delta->count; i++) {
      const float w = after->values[i];
      assert_true(w == sf_bf16_round(w) && delta->values[i] == w - before->values[i]);
      const double g = clip * (double)grad->values[i], share = fabs(g) / (fabs(g) + 1e-8);
      moved += (g > 0 ? -1 : 1) * (double)delta->values[i];
      asked += lr * share;
      variance += lr * share * 0x1p-7 * fabs((double)w); /* probability lr / step, size step */
    }
  }
  assert_true(asked > 12 * sqrt(variance));
  assert_true(fabs(moved - asked) < 4 * sqrt(variance));
  trial_close(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_judge_stochastic_weights_of_the_reference_pass),
      cmocka_unit_test(test_judge_stochastic_biased_thresholds_and_wrong_bits_are_found),
      cmocka_unit_test(test_judge_stochastic_sum_at_a_threshold_may_go_either_way),
      cmocka_unit_test(test_judge_stochastic_weight_one_step_off_is_named),
      cmocka_unit_test(test_reference_stochastic_weights_are_bf16_and_unbiased),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
