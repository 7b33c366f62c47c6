/* Tensors whose bits should agree: a share of elements that are off by a rounding in most rows is a finding, rare ones are not. */
#include "tests/unit/oracles/candidate.h"

#include "oracles/judge/collector.h"

#define BF16 SMALL_MODEL "precision.compute=bf16 "

/* To the next number of the format, away from zero. */
static float next_number(float x, enum sf_dtype format) {
  for (float step = 0x1p-24f;; step *= 2) {
    const float next = sf_round(x + step * x, format);
    if (next != x) return next;
  }
}

/* Moves every `step`-th element of the first `rows` rows by one ulp. */
static void flip(const struct tensor *t, int64_t rows, int64_t step) {
  for (int64_t i = 0; i < rows * t->spec.shape.cols; i += step)
    if (t->values[i] != 0) t->values[i] = next_number(t->values[i], t->spec.promised);
}

static void trial_open_alike(struct trial *t, const char *words) {
  trial_open(t, words);
  sf_collector_rounds_alike(t->collector, true);
}

static void test_judge_a_third_of_all_elements_off_by_an_ulp_is_rounding(void **state) {
  (void)state;
  static const char *const cases[] = {BF16 ISOLATED "layout.tp=2", BF16 E2E "layout.tp=2", SMALL_MODEL E2E "precision.compute=fp16",
                                      SMALL_MODEL ISOLATED "precision.compute=fp8"};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct trial t;
    trial_open_alike(&t, cases[i]);
    trial_judge(&t);
    assert_passes(&t);
    const struct tensor *act = module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_CORE_ATTENTION, 1);
    flip(act, act->spec.shape.rows, 3);
    trial_judge(&t);
    const struct sf_finding *first = assert_first_at(&t, SF_CLASS_ROUNDING, act);
    assert_int_equal(first->anchored, t.catalog->logical.mode == SF_MODE_E2E);
    assert_true(first->ratio > 5 && first->ratio < 8); /* a third of what 5 % are explained of */
    assert_non_null(strstr(first->text, "in 16 of 16 rows"));
    assert_true(result_of(&t, act->id)->flagged);
    trial_close(&t);
  }
}

static void test_judge_targets_that_may_round_otherwise_pass(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, BF16 ISOLATED "layout.tp=2");
  const struct tensor *act = module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_CORE_ATTENTION, 1);
  flip(act, act->spec.shape.rows, 3);
  trial_judge(&t);
  assert_passes(&t);
  sf_collector_rounds_alike(t.collector, true);
  trial_judge(&t);
  assert_first_at(&t, SF_CLASS_ROUNDING, act);
  assert_int_equal(t.judgement.finding_count, 1);
  trial_close(&t);
}

/* As many elements, but in few rows: one number inside that was rounded the other way may move a whole row. */
static void test_judge_few_rows_off_pass(void **state) {
  (void)state;
  struct trial t;
  trial_open_alike(&t, BF16 ISOLATED "layout.tp=2");
  const struct tensor *grad = module_tensor(&t.candidate, SF_KIND_ACT_GRAD, SF_MODULE_CORE_ATTENTION, 0);
  flip(grad, 5, 1);
  trial_judge(&t);
  assert_passes(&t);
  trial_close(&t);
}

/* Where ranks add up parts that each of them has rounded, and where the promise is fp32, bits need not agree. */
static void test_judge_sums_over_ranks_and_fp32_tensors_are_left_out(void **state) {
  (void)state;
  static const struct {
    const char *words;
    enum sf_kind kind;
    enum sf_module_class module;
    bool found;
  } table[] = {
      {BF16 ISOLATED "layout.tp=2", SF_KIND_ACT, SF_MODULE_LINEAR_PROJ, false},
      {BF16 ISOLATED "layout.dp=2", SF_KIND_ACT, SF_MODULE_LINEAR_PROJ, true},
      {BF16 ISOLATED "layout.tp=2", SF_KIND_ACT, SF_MODULE_LINEAR_QKV, true},
      {BF16 ISOLATED "layout.tp=2", SF_KIND_ACT_GRAD, SF_MODULE_LINEAR_QKV, false},
      {BF16 ISOLATED "layout.pp=2", SF_KIND_ACT_GRAD, SF_MODULE_OUTPUT_LAYER, true},
      {BF16 ISOLATED "layout.tp=2", SF_KIND_ACT_GRAD, SF_MODULE_OUTPUT_LAYER, false},
      {BF16 ISOLATED "precision.residual_fp32=on", SF_KIND_ACT, SF_MODULE_SELF_ATTN_BDA, false},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    struct trial t;
    trial_open_alike(&t, table[i].words);
    const struct tensor *tensor =
        module_tensor(&t.candidate, table[i].kind, table[i].module, table[i].module == SF_MODULE_OUTPUT_LAYER ? -1 : 0);
    for (int64_t k = 0; k < tensor->count; k += 2) tensor->values[k] = next_number(tensor->values[k], tensor->spec.promised);
    trial_judge(&t);
    if (table[i].found)
      assert_first_at(&t, SF_CLASS_ROUNDING, tensor);
    else
      assert_passes(&t);
    trial_close(&t);
  }
}

static void test_judge_what_is_out_of_tolerance_is_not_said_twice(void **state) {
  (void)state;
  struct trial t;
  trial_open_alike(&t, BF16 ISOLATED "layout.tp=2");
  const struct tensor *act = module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_CORE_ATTENTION, 0);
  for (int64_t i = 0; i < act->count; i++) act->values[i] = sf_round(1.05f * act->values[i], SF_BF16);
  trial_judge(&t);
  assert_first_at(&t, SF_CLASS_TOLERANCE, act);
  assert_int_equal(t.judgement.finding_count, 1);
  trial_close(&t);
}

/* Moving the reference's own numbers is done for all tensors in doubt at once: there may be thousands, and a case has a deadline. */
static void test_judge_many_tensors_in_doubt_take_the_runs_of_one(void **state) {
  (void)state;
  struct trial t;
  int64_t runs[3];
  trial_open_alike(&t, BF16 ISOLATED "layout.tp=2");
  trial_judge(&t); /* raises the levels that it needs */
  for (int32_t layer = 0; layer < 3; layer++) {
    const int64_t before = sf_expectations_runs(t.expectations);
    if (layer > 0) {
      const struct tensor *act = module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_CORE_ATTENTION, layer - 1);
      flip(act, act->spec.shape.rows, 3);
    }
    trial_judge(&t);
    assert_int_equal(t.judgement.finding_count, layer);
    runs[layer] = sf_expectations_runs(t.expectations) - before;
  }
  assert_int_equal(runs[0], 0);
  assert_true(runs[1] > 0);
  assert_int_equal(runs[2], runs[1]);
  trial_close(&t);
}

/* --- the statistic ------------------------------------------------------------------------------------------------ */

enum { ROWS = 24, COLS = 40 };
struct bits {
  struct sf_expected e;
  float x[ROWS * COLS], candidate[ROWS * COLS];
  double row_norm[ROWS];
};

/* Row r is that of `alike` others. Every eighth element is small beside its row. */
static void bits_fill(struct bits *b, int64_t alike) {
  *b = (struct bits){.e = {.spec = {.shape = {ROWS, COLS}, .promised = SF_BF16}}};
  for (int64_t r = 0; r < ROWS; r++) {
    double squares = 0;
    for (int64_t k = 0; k < COLS; k++) {
      const float value = k % 8 == 7 ? 0x1p-6f : 1 + (float)((r / alike * 31 + k * 7) % 64) / 64;
      b->x[r * COLS + k] = b->candidate[r * COLS + k] = value;
      squares += (double)value * (double)value;
    }
    b->row_norm[r] = sqrt(squares);
  }
  b->e.x = b->x;
  b->e.row_norm = b->row_norm;
}

static struct sf_roundings compare(const struct bits *b) {
  struct sf_roundings roundings;
  sf_compare_roundings(&roundings, &b->e, b->candidate);
  return roundings;
}

static void move_column(struct bits *b, int64_t column, int64_t rows) {
  for (int64_t r = 0; r < rows; r++) b->candidate[r * COLS + column] = next_number(b->x[r * COLS + column], SF_BF16);
}

static void test_compare_roundings_counts_elements_and_rows(void **state) {
  (void)state;
  struct bits b;
  bits_fill(&b, 1);
  for (int64_t k = 0; k < 4; k++) move_column(&b, k, 13);
  const struct sf_roundings roundings = compare(&b);
  assert_int_equal(roundings.elements, ROWS * COLS * 7 / 8);
  assert_int_equal(roundings.elements_off, 4 * 13);
  assert_int_equal(roundings.rows, ROWS);
  assert_int_equal(roundings.rows_off, 13);
  assert_true(roundings.share == 13.0 / 12); /* of half of the rows; 10 different ones would do */
  assert_true(roundings.flagged);
}

static void test_compare_roundings_needs_most_rows_and_a_share_of_each(void **state) {
  (void)state;
  struct bits b;
  bits_fill(&b, 1);
  move_column(&b, 0, ROWS); /* one of 35 elements a row */
  assert_false(compare(&b).flagged);
  move_column(&b, 1, ROWS / 2); /* two of 35, in half of the rows */
  assert_int_equal(compare(&b).rows_off, ROWS / 2);
  assert_false(compare(&b).flagged);
  move_column(&b, 1, ROWS / 2 + 1);
  assert_true(compare(&b).flagged);
}

static void test_compare_roundings_counts_equal_rows_once(void **state) {
  (void)state;
  for (int64_t alike = 2; alike <= 3; alike++) {
    struct bits b;
    bits_fill(&b, alike);
    for (int64_t k = 0; k < 4; k++) move_column(&b, k, ROWS);
    assert_int_equal(compare(&b).rows_off, ROWS);
    assert_int_equal(compare(&b).flagged, ROWS / alike >= sf_factors.rounding_rows_min);
  }
}

static void test_compare_roundings_leaves_out_what_cancelled(void **state) {
  (void)state;
  struct bits b;
  bits_fill(&b, 1);
  for (int64_t k = 7; k < COLS; k += 8) move_column(&b, k, ROWS);
  assert_int_equal(compare(&b).elements_off, 0);
  assert_false(compare(&b).flagged);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_judge_a_third_of_all_elements_off_by_an_ulp_is_rounding),
      cmocka_unit_test(test_judge_targets_that_may_round_otherwise_pass),
      cmocka_unit_test(test_judge_few_rows_off_pass),
      cmocka_unit_test(test_judge_sums_over_ranks_and_fp32_tensors_are_left_out),
      cmocka_unit_test(test_judge_what_is_out_of_tolerance_is_not_said_twice),
      cmocka_unit_test(test_judge_many_tensors_in_doubt_take_the_runs_of_one),
      cmocka_unit_test(test_compare_roundings_counts_elements_and_rows),
      cmocka_unit_test(test_compare_roundings_needs_most_rows_and_a_share_of_each),
      cmocka_unit_test(test_compare_roundings_counts_equal_rows_once),
      cmocka_unit_test(test_compare_roundings_leaves_out_what_cancelled),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
