/* Verdicts of the oracle on whole logical tensors: clean runs pass, spoilt tensors are found, named and ordered. */
#include "tests/unit/oracles/candidate.h"

static void test_judge_clean_run_on_any_layout_passes(void **state) {
  (void)state;
  static const char *const cases[] = {
      SMALL_MODEL E2E "layout.tp=1",
      SMALL_MODEL E2E "layout.tp=2 layout.sp=on train.steps=3",
      SMALL_MODEL E2E "layout.tp=4 model.bias=on model.norm=layer precision.compute=bf16 train.steps=2",
      SMALL_MODEL E2E "layout.dp=2 layout.pp=2 model.tied=on train.steps=2",
      SMALL_MODEL E2E "layout.tp=2 layout.pp=2 layout.dp=2 layout.order=pp-dp-tp-ep-cp train.recompute_layers=1",
      SMALL_MODEL ISOLATED "layout.tp=1 train.steps=2",
      SMALL_MODEL ISOLATED "layout.tp=4 layout.sp=on model.activation=swiglu model.positions=rotary",
      SMALL_MODEL ISOLATED "layout.pp=2 layout.dp=2 train.recompute_layers=2 train.loss_norm=per_microbatch train.steps=2",
      SMALL_MODEL ISOLATED "layout.tp=2 layout.pp=2 precision.compute=bf16 model.adapter=on model.positions=learned",
      SMALL_MODEL ISOLATED "layout.tp=2 train.frozen=qkv+norms train.steps=2",
      SMALL_MODEL E2E "layout.tp=2 train.frozen=embedding model.tied=on precision.compute=bf16 train.steps=3",
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct trial t;
    trial_open(&t, cases[i]);
    trial_judge(&t);
    if (t.judgement.verdict != SF_VERDICT_PASS) print_message("case %zu: %s\n", i, cases[i]);
    assert_passes(&t);
    assert_int_equal(t.judgement.result_count, t.candidate.count);
    assert_true(t.judgement.checked > t.judgement.unchecked);
    /* Nothing was suspicious: no perturbed run was needed. */
    for (int32_t k = 0; k < sf_expectations_count(t.expectations); k++)
      assert_int_equal(sf_expectations_at(t.expectations, k)->level, SF_LEVEL_NONE);
    trial_close(&t);
  }
}

/* The noise that the levels are made of must not alarm: runs that are perturbed with other draws are clean runs too. */
static void test_judge_perturbed_reference_passes(void **state) {
  (void)state;
  static const char *const cases[] = {SMALL_MODEL E2E "layout.tp=2", SMALL_MODEL ISOLATED "layout.tp=2",
                                      SMALL_MODEL ISOLATED "precision.compute=bf16"};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct trial t;
    trial_open(&t, cases[i]);
    struct candidate perturbed;
    candidate_run(&perturbed, t.catalog, SF_PERTURB_SPLIT, 987654321);
    for (int32_t k = 0; k < t.candidate.count; k++) {
      const enum sf_kind kind = (enum sf_kind)t.candidate.tensors[k].id.kind;
      if (!sf_kind_has_noise(kind) || (kind == SF_KIND_ACT && t.candidate.tensors[k].spec.shape.rows == 1) || kind == SF_KIND_MAIN_GRAD)
        continue;
      memcpy(t.candidate.tensors[k].values, perturbed.tensors[k].values, (size_t)perturbed.tensors[k].count * sizeof(float));
    }
    trial_judge(&t);
    assert_passes(&t);
    candidate_destroy(&perturbed);
    trial_close(&t);
  }
}

/* --- spoilt tensors --------------------------------------------------------------------------------------------- */

static void scale(struct tensor *t, float factor) {
  for (int64_t i = 0; i < t->count; i++) t->values[i] *= factor;
}

static void test_judge_tensor_scaled_by_a_thousandth_is_tolerance(void **state) {
  (void)state;
  static const char *const modes[] = {SMALL_MODEL E2E "layout.tp=2", SMALL_MODEL ISOLATED "layout.tp=2 layout.sp=on"};
  for (size_t i = 0; i < 2; i++) {
    struct trial t;
    trial_open(&t, modes[i]);
    struct tensor *spoilt[] = {module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_LINEAR_QKV, 1),
                               module_tensor(&t.candidate, SF_KIND_ACT_GRAD, SF_MODULE_CORE_ATTENTION, 0),
                               param_tensor(&t.candidate, SF_KIND_WGRAD, SF_MODULE_LINEAR_FC1, 1, 0),
                               param_tensor(&t.candidate, SF_KIND_MAIN_GRAD, SF_MODULE_LINEAR_FC2, 0, 0)};
    for (size_t k = 0; k < sizeof spoilt / sizeof *spoilt; k++) {
      scale(spoilt[k], 1.001f);
      trial_judge(&t);
      const struct sf_finding *first = assert_first_at(&t, SF_CLASS_TOLERANCE, spoilt[k]);
      assert_true(first->ratio > sf_factors.fro);
      assert_int_equal(sf_expectations_find(t.expectations, spoilt[k]->id)->level, i == 0 ? SF_LEVEL_NONE : SF_LEVEL_FULL);
      assert_int_equal(first->anchored, i == 0);
      scale(spoilt[k], 1 / 1.001f);
    }
    trial_close(&t);
  }
}

/* A quick judgement finds the same in fewer runs of the reference; what passes, or is near its bound, gets all of them. */
static void test_judge_quick_takes_fewer_runs(void **state) {
  (void)state;
  static const struct {
    float factor;
    enum sf_level quick, full;
  } rows[] = {{1.5f, SF_LEVEL_FIRST, SF_LEVEL_FULL}, {1 + 2e-6f, SF_LEVEL_SURE, SF_LEVEL_SURE}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    enum sf_verdict verdicts[2];
    for (int quick = 0; quick < 2; quick++) {
      struct trial t;
      trial_open(&t, SMALL_MODEL ISOLATED "layout.tp=2");
      struct tensor *spoilt = module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_LINEAR_QKV, 1);
      scale(spoilt, rows[i].factor);
      sf_collector_be_quick(t.collector, quick == 1);
      trial_judge(&t);
      verdicts[quick] = t.judgement.verdict;
      if (i == 0) assert_first_at(&t, SF_CLASS_TOLERANCE, spoilt);
      const enum sf_level level = sf_expectations_find(t.expectations, spoilt->id)->level;
      if (level > (quick ? rows[i].quick : rows[i].full) || (i == 0 && !quick && level != rows[i].full))
        fail_msg("scaled by %g, quick %d: level %d", (double)rows[i].factor, quick, level);
      trial_close(&t);
    }
    assert_int_equal(verdicts[0], verdicts[1]);
  }
}

static void test_judge_one_row_doubled_names_the_row(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, SMALL_MODEL ISOLATED "layout.tp=2");
  struct tensor *act = module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_MLP_BDA, 0);
  for (int64_t j = 0; j < act->spec.shape.cols; j++) act->values[5 * act->spec.shape.cols + j] *= 2;
  trial_judge(&t);
  const struct sf_finding *first = assert_first_at(&t, SF_CLASS_TOLERANCE, act);
  assert_int_equal(t.judgement.finding_count, 1);
  assert_int_equal(first->row, 5);
  trial_close(&t);
}

static void test_judge_rows_swapped_is_tolerance(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, SMALL_MODEL ISOLATED "layout.pp=2 precision.compute=bf16");
  struct tensor *grad = module_tensor(&t.candidate, SF_KIND_ACT_GRAD, SF_MODULE_LINEAR_FC2, 1);
  const int64_t cols = grad->spec.shape.cols;
  for (int64_t j = 0; j < cols; j++) {
    const float held = grad->values[j];
    grad->values[j] = grad->values[cols + j];
    grad->values[cols + j] = held;
  }
  trial_judge(&t);
  assert_first_at(&t, SF_CLASS_TOLERANCE, grad);
  assert_int_equal(t.judgement.finding_count, 1);
  trial_close(&t);
}

static void test_judge_two_spoilt_tensors_the_earlier_comes_first(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, SMALL_MODEL ISOLATED "layout.tp=2");
  struct tensor *late = module_tensor(&t.candidate, SF_KIND_ACT_GRAD, SF_MODULE_LINEAR_FC1, 0),
                *early = module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_LINEAR_PROJ, 1);
  scale(late, 3);
  scale(early, 1.01f);
  trial_judge(&t);
  assert_first_at(&t, SF_CLASS_TOLERANCE, early);
  assert_int_equal(t.judgement.finding_count, 2);
  assert_true(t.judgement.findings[0].ordinal < t.judgement.findings[1].ordinal);
  trial_close(&t);
}

static void set_bits(float *value, uint32_t bits) { memcpy(value, &bits, sizeof bits); }

static void test_judge_nan_is_nonfinite_and_names_rank_and_poison(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, SMALL_MODEL ISOLATED "layout.tp=2");
  struct tensor *act = module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_LINEAR_FC1, 1);
  const int64_t cols = act->spec.shape.cols;
  set_bits(&act->values[3 * cols + cols - 1], 0x7fa5a5a5u); /* the second rank's half of the columns */
  trial_judge(&t);
  const struct sf_finding *first = assert_first_at(&t, SF_CLASS_NONFINITE, act);
  assert_int_equal(t.judgement.finding_count, 1);
  assert_int_equal(first->row, 3);
  assert_int_equal(first->rank, 1);
  assert_non_null(strstr(first->text, "never written"));
  set_bits(&act->values[3 * cols + cols - 1], 0x7f800000u);
  trial_judge(&t);
  assert_non_null(strstr(assert_first_at(&t, SF_CLASS_NONFINITE, act)->text, "infinity"));
  trial_close(&t);
}

static void test_judge_nan_in_each_kind_is_nonfinite(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, SMALL_MODEL E2E "train.steps=2");
  for (int kind = 0; kind < SF_KIND_COUNT; kind++) {
    struct tensor *spoilt = NULL;
    for (int32_t i = 0; i < t.candidate.count && spoilt == NULL; i++)
      if (t.candidate.tensors[i].id.kind == kind) spoilt = &t.candidate.tensors[i];
    assert_non_null(spoilt);
    const float held = spoilt->values[0];
    set_bits(&spoilt->values[0], 0x7fc00000u);
    trial_judge(&t);
    assert_first_at(&t, SF_CLASS_NONFINITE, spoilt);
    spoilt->values[0] = held;
  }
  trial_close(&t);
}

static void test_judge_fp32_tensor_on_the_bf16_grid_is_bits(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, SMALL_MODEL ISOLATED "layout.tp=2 precision.compute=bf16");
  struct tensor *grad = param_tensor(&t.candidate, SF_KIND_WGRAD, SF_MODULE_LINEAR_FC1, 0, 0); /* fp32 is promised for it */
  assert_true(grad->count >= 512);
  sf_round_array(grad->values, grad->count, SF_BF16);
  trial_judge(&t);
  assert_first_at(&t, SF_CLASS_BITS, grad);
  struct tensor *act = module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_LINEAR_FC1, 0); /* promised in bf16: nothing to find */
  assert_int_equal(act->spec.promised, SF_BF16);
  for (int32_t i = 1; i < t.judgement.finding_count; i++) assert_true(t.judgement.findings[i].ordinal == t.judgement.findings[0].ordinal);
  trial_close(&t);
}

static void test_distance_text_tells_what_is_known(void **state) {
  (void)state;
  static const struct {
    double error, norm, noise;
    const char *text;
  } table[] = {
      {0.76, 4.62, 1.1e-6, "error norm 0.76, reference norm 4.62 (16.5 %); rounding explains at most 1.1e-06"},
      {93, 4, 0.5, "error norm 93, reference norm 4 (23.2 times); rounding explains at most 0.5"},
      {0.5, 0, 0, "error norm 0.5, reference norm 0; rounding explains at most 0"},
      {0.5, NAN, 1e-3, "error norm 0.5; rounding explains at most 0.001"},
  };
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
    char text[SF_DISTANCE_TEXT];
    assert_string_equal(sf_distance_text(text, table[i].error, table[i].norm, table[i].noise), table[i].text);
  }
}

/* --- what is not judged ----------------------------------------------------------------------------------------- */

static bool is_all_zero(const struct tensor *t) {
  for (int64_t i = 0; i < t->count; i++)
    if (t->values[i] != 0) return false;
  return true;
}

/* With one token to a sequence the softmax has one column, so its gradient, and all of dq and dk, are exactly zero. */
static void test_judge_zero_reference_is_unjudged_unless_the_candidate_is_not_zero(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, ISOLATED "model.seq=1 model.hidden=8 train.microbatch_size=2 data.grads=sparse data.mask=sparse");
  struct tensor *loss_grad = module_tensor(&t.candidate, SF_KIND_ACT_GRAD, SF_MODULE_LOSS, -1);
  const struct sf_expected *e = sf_expectations_find(t.expectations, loss_grad->id);
  assert_non_null(e);
  struct tensor *zero = NULL;
  for (int32_t i = 0; i < t.candidate.count; i++) {
    struct tensor *own = &t.candidate.tensors[i];
    if (sf_kind_has_noise((enum sf_kind)own->id.kind) && is_all_zero(own)) zero = own;
  }
  assert_non_null(zero);
  trial_judge(&t);
  assert_string_equal(result_of(&t, zero->id)->why_not, "zero");
  zero->values[0] = 1e-30f;
  trial_judge(&t);
  assert_first_at(&t, SF_CLASS_TOLERANCE, zero);
  trial_close(&t);
}

static void test_judge_one_token_model_has_rolled_copies_that_pass(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, E2E "model.seq=1 train.microbatch_size=2 data.tokens=few seed=3");
  trial_judge(&t);
  int32_t unjudged = 0;
  for (int32_t i = 0; i < t.judgement.result_count; i++) {
    const struct sf_tensor_result *r = &t.judgement.results[i];
    assert_true(r->judged == (r->why_not == NULL));
    unjudged += !r->judged;
  }
  assert_int_equal(unjudged, t.judgement.unchecked);
  assert_int_equal(t.judgement.checked + t.judgement.unchecked, t.judgement.result_count);
  trial_close(&t);
}

static void test_judge_nothing_collected_is_inconclusive_or_gaps(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, SMALL_MODEL E2E "layout.tp=2");
  trial_judge_parts(&t, &t.catalog->logical, BY_TENSOR, false);
  assert_string_equal(sf_verdict_name(t.judgement.verdict), "INCONCLUSIVE");
  assert_int_equal(t.judgement.result_count, 0);
  trial_judge_parts(&t, &t.catalog->logical, BY_TENSOR, true);
  assert_first_at(&t, SF_CLASS_GAP, &t.candidate.tensors[0]);
  assert_int_equal(t.judgement.finding_count, t.candidate.count);
  trial_close(&t);
}

/* --- independence ----------------------------------------------------------------------------------------------- */

static void assert_same_findings(const struct sf_judgement *a, const struct sf_judgement *b) {
  assert_int_equal(a->verdict, b->verdict);
  assert_int_equal(a->finding_count, b->finding_count);
  assert_int_equal(a->checked, b->checked);
  assert_int_equal(a->unchecked, b->unchecked);
  for (int32_t i = 0; i < a->finding_count; i++) {
    assert_true(sf_trace_key(a->findings[i].id) == sf_trace_key(b->findings[i].id));
    assert_int_equal(a->findings[i].cls, b->findings[i].cls);
    assert_int_equal(a->findings[i].rank, b->findings[i].rank);
    assert_memory_equal(&a->findings[i].ratio, &b->findings[i].ratio, sizeof(double));
    assert_string_equal(a->findings[i].text, b->findings[i].text);
  }
  for (int32_t i = 0; i < a->result_count; i++) {
    assert_memory_equal(&a->results[i].fro_ratio, &b->results[i].fro_ratio, sizeof(double));
    assert_memory_equal(&a->results[i].row_ratio, &b->results[i].row_ratio, sizeof(double));
  }
}

static void test_judge_order_of_arrival_changes_nothing(void **state) {
  (void)state;
  struct trial up, down;
  const char *words = SMALL_MODEL E2E "layout.tp=2 layout.dp=2 layout.pp=2 train.recompute_layers=1 model.tied=on";
  trial_open(&up, words);
  trial_open(&down, words);
  struct trial *both[] = {&up, &down};
  for (int i = 0; i < 2; i++) {
    struct trial *t = both[i];
    trial_cut(t, &t->catalog->logical);
    part_of(t, param_tensor(&t->candidate, SF_KIND_MAIN_GRAD, SF_MODULE_LINEAR_FC1, 1, 0)->id, 6)->data[0] *= 1.5f;
    part_of(t, module_tensor(&t->candidate, SF_KIND_ACT, SF_MODULE_MLP_BDA, 0)->id, 1)->data[3] += 1;
    trial_judge_parts(t, &t->catalog->logical, i == 0 ? BY_TENSOR : BY_RANK_DOWN, true);
  }
  assert_int_equal(up.judgement.verdict, SF_VERDICT_FINDING);
  assert_same_findings(&up.judgement, &down.judgement);
  trial_close(&up);
  trial_close(&down);
}

/* The same outcome whether this layout, or another one before it, made the expectations run all draws. */
static void test_judge_level_raised_before_changes_nothing(void **state) {
  (void)state;
  struct trial fresh, raised;
  const char *words = SMALL_MODEL ISOLATED "layout.tp=2 precision.compute=bf16 train.steps=2";
  trial_open(&fresh, words);
  trial_open(&raised, words);
  assert_int_equal(sf_expectations_raise(raised.expectations, SF_LEVEL_FULL, NULL, 0), SF_OK);
  trial_judge(&fresh);
  trial_judge(&raised);
  assert_same_findings(&fresh.judgement, &raised.judgement);
  scale(module_tensor(&fresh.candidate, SF_KIND_ACT, SF_MODULE_LINEAR_QKV, 1), 1.1f);
  scale(module_tensor(&raised.candidate, SF_KIND_ACT, SF_MODULE_LINEAR_QKV, 1), 1.1f);
  trial_judge(&fresh);
  trial_judge(&raised);
  assert_int_equal(fresh.judgement.verdict, SF_VERDICT_FINDING);
  assert_same_findings(&fresh.judgement, &raised.judgement);
  trial_close(&fresh);
  trial_close(&raised);
}

/* One collector serves one layout after the other. */
static void test_reset_to_other_layouts_judges_each(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, SMALL_MODEL E2E "");
  struct sf_case c = t.catalog->logical;
  for (int turn = 0; turn < 6; turn++) {
    c.layout.tp = turn % 3 == 1 ? 4 : 1;
    c.layout.sp = turn % 3 == 1;
    c.layout.dp = turn % 3 == 2 ? 2 : 1;
    trial_cut(&t, &c);
    struct tensor *act = module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_SELF_ATTN_BDA, 1);
    if (turn == 3) part_of(&t, act->id, 0)->data[0] += 1;
    trial_judge_parts(&t, &c, BY_TENSOR, true);
    if (turn == 3)
      assert_first_at(&t, SF_CLASS_TOLERANCE, act);
    else
      assert_passes(&t);
  }
  trial_close(&t);
}

/* --- memory ----------------------------------------------------------------------------------------------------- */

/* Everything once with the k-th allocation failing, for every k: SF_ENOMEM and nothing else. Returns false when nothing failed any more. */
static bool run_with_failure(const struct trial *t, int64_t k) {
  struct sf_expectations *expectations = NULL;
  struct sf_collector *collector = NULL;
  struct sf_judgement judgement = {0};
  sf_alloc_fail_at(k);
  enum sf_status status = sf_expectations_create(&expectations, t->catalog, &loops_table);
  if (status == SF_OK) status = sf_collector_create(&collector, &t->catalog->logical, expectations);
  if (status == SF_OK) {
    parts_hand_over(&t->parts, collector, (int32_t)sf_case_ranks(&t->catalog->logical), BY_TENSOR);
    status = sf_judge(collector, true, &judgement);
  }
  const bool failed = sf_alloc_did_fail();
  sf_alloc_fail_at(0);
  assert_int_equal(status, failed ? SF_ENOMEM : SF_OK);
  if (status == SF_OK)
    assert_int_equal(judgement.verdict, SF_VERDICT_FINDING);
  else
    assert_int_equal(judgement.result_count, 0);
  sf_collector_destroy(collector);
  sf_expectations_destroy(expectations);
  return failed;
}

static void test_judge_out_of_memory_anywhere_is_a_status(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, E2E "layout.tp=1 train.microbatches=1");
  scale(module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_MLP_BDA, 0), 2); /* so that the second level runs too */
  trial_cut(&t, &t.catalog->logical);
  int64_t k = 1;
  while (run_with_failure(&t, k)) k++;
  assert_true(k > 20);
  trial_close(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_judge_clean_run_on_any_layout_passes),
      cmocka_unit_test(test_judge_perturbed_reference_passes),
      cmocka_unit_test(test_judge_tensor_scaled_by_a_thousandth_is_tolerance),
      cmocka_unit_test(test_judge_quick_takes_fewer_runs),
      cmocka_unit_test(test_distance_text_tells_what_is_known),
      cmocka_unit_test(test_judge_one_row_doubled_names_the_row),
      cmocka_unit_test(test_judge_rows_swapped_is_tolerance),
      cmocka_unit_test(test_judge_two_spoilt_tensors_the_earlier_comes_first),
      cmocka_unit_test(test_judge_nan_is_nonfinite_and_names_rank_and_poison),
      cmocka_unit_test(test_judge_nan_in_each_kind_is_nonfinite),
      cmocka_unit_test(test_judge_fp32_tensor_on_the_bf16_grid_is_bits),
      cmocka_unit_test(test_judge_zero_reference_is_unjudged_unless_the_candidate_is_not_zero),
      cmocka_unit_test(test_judge_one_token_model_has_rolled_copies_that_pass),
      cmocka_unit_test(test_judge_nothing_collected_is_inconclusive_or_gaps),
      cmocka_unit_test(test_judge_order_of_arrival_changes_nothing),
      cmocka_unit_test(test_judge_level_raised_before_changes_nothing),
      cmocka_unit_test(test_reset_to_other_layouts_judges_each),
      cmocka_unit_test(test_judge_out_of_memory_anywhere_is_a_status),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
