/* Structure and promises of equal bits: what ranks must hold, and parts that are missing, repeated, misplaced, or differ. */
#include "tests/unit/oracles/candidate.h"

#include "oracles/judge/collector.h"

static const char *const WIDE = SMALL_MODEL ISOLATED "layout.tp=2 layout.dp=2 layout.pp=2 train.recompute_layers=1 train.steps=2";

static void judge_parts(struct trial *t) { trial_judge_parts(t, &t->catalog->logical, BY_TENSOR, true); }

/* The first finding is this one, about this tensor and rank. */
static void judge_blames(struct trial *t, enum sf_finding_class cls, const struct tensor *tensor, int32_t rank) {
  judge_parts(t);
  assert_int_equal(assert_first_at(t, cls, tensor)->rank, rank);
}

static void judge_passes(struct trial *t) {
  judge_parts(t);
  assert_passes(t);
}

/* Opens the case and cuts it. */
static void cut_open(struct trial *t, const char *words) {
  trial_open(t, words);
  trial_cut(t, &t->catalog->logical);
}

static void test_judge_lost_part_is_gap(void **state) {
  (void)state;
  struct trial t;
  cut_open(&t, WIDE);
  const struct tensor *lost[] = {module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_LINEAR_FC1, 0),
                                 param_tensor(&t.candidate, SF_KIND_MAIN_GRAD, SF_MODULE_LINEAR_PROJ, 0, 0),
                                 scalar_tensor(&t.candidate, SF_SCALAR_CLIP, 1)};
  for (size_t i = 0; i < sizeof lost / sizeof *lost; i++) {
    part_of(&t, lost[i]->id, 1)->times = 0;
    judge_blames(&t, SF_CLASS_GAP, lost[i], 1);
    assert_null(sf_collector_tensor(t.collector, lost[i]->id));
    part_of(&t, lost[i]->id, 1)->times = 1;
  }
  judge_passes(&t);
  trial_close(&t);
}

static void test_judge_lost_part_of_a_run_cut_short_is_no_finding(void **state) {
  (void)state;
  struct trial t;
  cut_open(&t, WIDE);
  part_of(&t, module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_LINEAR_FC1, 0)->id, 1)->times = 0;
  trial_judge_parts(&t, &t.catalog->logical, BY_TENSOR, false);
  assert_passes(&t);
  assert_int_equal(t.judgement.result_count, t.candidate.count - 1);
  trial_close(&t);
}

static void test_judge_repeated_part_is_overlap(void **state) {
  (void)state;
  struct trial t;
  cut_open(&t, WIDE);
  const struct tensor *grad = param_tensor(&t.candidate, SF_KIND_WGRAD, SF_MODULE_LINEAR_QKV, 1, 0);
  const int32_t rank = 5; /* tp 1, dp 0, pp 1 */
  part_of(&t, grad->id, rank)->times = 2;
  judge_blames(&t, SF_CLASS_OVERLAP, grad, rank);
  assert_int_equal(t.judgement.finding_count, 1);
  trial_close(&t);
}

static void test_judge_part_from_a_rank_that_does_not_hold_it_is_overlap(void **state) {
  (void)state;
  struct trial t;
  cut_open(&t, WIDE);
  const struct tensor *act = module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_LINEAR_FC2, 0);
  part_of(&t, act->id, 0)->rank = 4; /* the last stage, whose layer this is not */
  judge_parts(&t);
  assert_first_at(&t, SF_CLASS_GAP, act);
  assert_int_equal(t.judgement.findings[1].cls, SF_CLASS_OVERLAP);
  assert_int_equal(t.judgement.findings[1].rank, 4);
  trial_close(&t);
}

static void test_judge_unknown_tensor_is_overlap_and_comes_last(void **state) {
  (void)state;
  struct trial t;
  cut_open(&t, WIDE);
  struct part extra = *part_of(&t, scalar_tensor(&t.candidate, SF_SCALAR_LOSS, 0)->id, 0);
  assert_int_equal(sf_collector_reset(t.collector, &t.catalog->logical), SF_OK);
  parts_hand_over(&t.parts, t.collector, 8, BY_TENSOR);
  extra.id.step = 9;
  for (int32_t rank = 3; rank >= 1; rank--) sf_collector_add(t.collector, rank, extra.id, &extra.map, extra.data, 1, 1);
  const struct tensor *act = module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_LINEAR_FC2, 0); /* inside a stage: nobody receives it */
  struct sf_trace_id received = act->id;
  received.call = 1;
  const struct part *part = part_of(&t, act->id, 0);
  sf_collector_add(t.collector, 4, received, &part->map, part->data, part->rows, part->cols);
  assert_int_equal(sf_judge(t.collector, true, &t.judgement), SF_OK);
  assert_int_equal(t.judgement.finding_count, 2);
  assert_first(&t, SF_CLASS_OVERLAP, received, act->spec.module);
  const struct sf_finding *last = &t.judgement.findings[1];
  assert_int_equal(last->cls, SF_CLASS_OVERLAP);
  assert_int_equal(last->ordinal, t.candidate.count);
  assert_int_equal(last->rank, 1);
  trial_close(&t);
}

/* --- maps ------------------------------------------------------------------------------------------------------- */

static void test_judge_neighbours_map_is_map(void **state) {
  (void)state;
  struct trial t;
  cut_open(&t, WIDE);
  const struct tensor *act = module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_LINEAR_QKV, 0);
  struct part *part = part_of(&t, act->id, 1);
  part->map = part_of(&t, act->id, 0)->map;
  judge_blames(&t, SF_CLASS_MAP, act, 1);
  trial_close(&t);
}

static void test_judge_map_of_another_size_or_outside_is_map(void **state) {
  (void)state;
  struct trial t;
  cut_open(&t, WIDE);
  const struct tensor *act = module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_LINEAR_FC1, 0);
  struct part *part = part_of(&t, act->id, 0);
  const struct part good = *part;
  for (int spoil = 0; spoil < 4; spoil++) {
    *part = good;
    if (spoil == 0) part->cols -= 1;
    if (spoil == 1) part->map.cols.runs[0].start = -1;
    if (spoil == 2) part->map.rows.count = SF_RUNS_MAX + 1;
    if (spoil == 3) part->map.rows.runs[0].partial = true; /* no activation is ever a partial sum at its trace point */
    judge_blames(&t, SF_CLASS_MAP, act, 0);
  }
  *part = good;
  trial_close(&t);
}

static void test_judge_map_cut_into_more_runs_passes(void **state) {
  (void)state;
  struct trial t;
  cut_open(&t, WIDE);
  struct part *part = part_of(&t, module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_LINEAR_FC1, 0)->id, 1);
  struct sf_dim_map *rows = &part->map.rows;
  rows->runs[1] = (struct sf_run){.start = rows->runs[0].start + 3, .len = rows->runs[0].len - 3};
  rows->runs[0].len = 3;
  rows->count = 2;
  judge_passes(&t);
  trial_close(&t);
}

/* The data of the neighbour's shard under one's own map: only the values can show it. */
static void test_judge_neighbours_shard_is_tolerance(void **state) {
  (void)state;
  struct trial t;
  cut_open(&t, WIDE);
  const struct tensor *act = module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_ACTIVATION, 1);
  struct sf_trace_id id = act->id;
  for (int pass = 0; pass < 2; pass++) { /* recomputation goes wrong in the same way */
    struct part *part = part_of(&t, id, 5);
    const struct part *other = part_of(&t, id, 4);
    memcpy(part->data, other->data, (size_t)(part->rows * part->cols) * sizeof *part->data);
    id.pass = SF_PASS_RECOMPUTE;
  }
  judge_parts(&t);
  assert_first_at(&t, SF_CLASS_TOLERANCE, act);
  assert_int_equal(t.judgement.finding_count, 1);
  trial_close(&t);
}

/* --- replicas --------------------------------------------------------------------------------------------------- */

static void flip_bit(float *value) {
  uint32_t bits;
  memcpy(&bits, value, sizeof bits);
  bits ^= 1;
  memcpy(value, &bits, sizeof bits);
}

static void test_judge_replica_that_differs_in_one_bit_is_conflict(void **state) {
  (void)state;
  struct trial t;
  cut_open(&t, WIDE);
  const struct tensor *tensors[] = {param_tensor(&t.candidate, SF_KIND_PARAM, SF_MODULE_INPUT_LAYERNORM, 0, 1),
                                    module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_MLP_BDA, 0),
                                    param_tensor(&t.candidate, SF_KIND_MAIN_GRAD, SF_MODULE_LINEAR_FC1, 0, 0),
                                    param_tensor(&t.candidate, SF_KIND_PARAM_DELTA, SF_MODULE_LINEAR_QKV, 0, 1),
                                    scalar_tensor(&t.candidate, SF_SCALAR_GRAD_NORM, 0)};
  const int32_t ranks[] = {3, 1, 3, 2, 7};
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
    struct part *part = part_of(&t, tensors[i]->id, ranks[i]);
    flip_bit(&part->data[part->rows * part->cols - 1]);
    for (int order = BY_TENSOR; order <= BY_RANK_DOWN; order++) {
      trial_judge_parts(&t, &t.catalog->logical, (enum order)order, true);
      assert_int_equal(t.judgement.finding_count, 1);
      assert_int_equal(assert_first_at(&t, SF_CLASS_CONFLICT, tensors[i])->rank, ranks[i]);
      assert_non_null(strstr(t.judgement.findings[0].text, "1 elements"));
    }
    flip_bit(&part->data[part->rows * part->cols - 1]);
  }
  trial_close(&t);
}

/* Rank i holds key and value columns together with rank i + 1, and nobody else its query columns. */
static void test_judge_shared_key_columns_that_differ_are_conflict(void **state) {
  (void)state;
  struct trial t;
  cut_open(&t, SMALL_MODEL ISOLATED "layout.tp=4");
  const struct tensor *act = module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_LINEAR_QKV, 0);
  struct part *part = part_of(&t, act->id, 3);
  flip_bit(&part->data[part->cols - 1]); /* a value column */
  judge_blames(&t, SF_CLASS_CONFLICT, act, 3);
  assert_int_equal(t.judgement.finding_count, 1);
  flip_bit(&part->data[part->cols - 1]);
  flip_bit(&part->data[0]); /* a query column: rounding, as far as anyone can tell */
  judge_passes(&t);
  trial_close(&t);
}

static void test_judge_weight_gradient_replicas_may_differ_by_noise_only(void **state) {
  (void)state;
  struct trial t;
  cut_open(&t, SMALL_MODEL ISOLATED "layout.tp=2");
  const struct tensor *grad = param_tensor(&t.candidate, SF_KIND_WGRAD, SF_MODULE_INPUT_LAYERNORM, 1, 0);
  struct part *part = part_of(&t, grad->id, 1);
  flip_bit(&part->data[0]);
  judge_passes(&t);
  part->data[0] *= 1.01f;
  judge_blames(&t, SF_CLASS_CONFLICT, grad, 1);
  part->data[0] = NAN;
  judge_blames(&t, SF_CLASS_CONFLICT, grad, 1);
  trial_close(&t);
}

/* Also where each is a sum over cp. Where draws of the reference overflow, an infinity alone is no finding. */
static void test_judge_equal_infinities_of_replicas_do_not_differ(void **state) {
  (void)state;
  static const char *const cases[] = {SMALL_MODEL ISOLATED "layout.tp=2", SMALL_MODEL ISOLATED "layout.tp=2 layout.cp=2"};
  for (int i = 0; i < 2; i++) {
    struct trial t;
    cut_open(&t, cases[i]);
    const struct tensor *grad = param_tensor(&t.candidate, SF_KIND_WGRAD, SF_MODULE_INPUT_LAYERNORM, 1, 0);
    for (int32_t rank = 0; rank < 2 + 2 * i; rank++) part_of(&t, grad->id, rank)->data[0] = INFINITY;
    judge_parts(&t);
    const struct sf_tensor_result *result = result_of(&t, grad->id);
    assert_true(sf_slot_at(t.collector, result->expected->ordinal, SF_SLOT_FIRST)->replica_rank < 0);
    assert_first_at(&t, SF_CLASS_NONFINITE, grad);
    for (int32_t rank = 1; rank < 2 + 2 * i; rank += 2) part_of(&t, grad->id, rank)->data[0] = 1;
    judge_parts(&t);
    assert_true(sf_slot_at(t.collector, result->expected->ordinal, SF_SLOT_FIRST)->replica_rank >= 0);
    trial_close(&t);
  }
}

static void put_nans(struct trial *t, struct sf_trace_id id, int32_t negative) {
  int32_t holders = 0;
  for (int32_t i = 0; i < t->parts.count; i++)
    if (sf_trace_key(t->parts.items[i].id) == sf_trace_key(id)) t->parts.items[i].data[0] = holders++ % 2 == negative ? -NAN : NAN;
  assert_true(holders > 1);
}

/* Machines differ in the sign and payload that a NaN comes out with. In copies and in what is computed again, and in ranges of a flat
 * buffer. */
static void test_judge_nans_of_replicas_do_not_differ(void **state) {
  (void)state;
  for (int flat = 0; flat < 2; flat++) {
    struct trial t;
    cut_open(&t, flat ? SMALL_MODEL ISOLATED "layout.tp=2 layout.dp=2 layout.zero=2" : WIDE);
    const struct tensor *tensor = flat ? param_tensor(&t.candidate, SF_KIND_MAIN_GRAD, SF_MODULE_INPUT_LAYERNORM, 0, 0)
                                       : module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_MLP_BDA, 1);
    struct sf_trace_id again = tensor->id;
    again.pass = SF_PASS_RECOMPUTE;
    put_nans(&t, tensor->id, 0);
    if (!flat) put_nans(&t, again, 1);
    judge_parts(&t);
    assert_first_at(&t, SF_CLASS_NONFINITE, tensor);
    for (int32_t f = 0; f < t.judgement.finding_count; f++)
      assert_true(t.judgement.findings[f].cls != SF_CLASS_CONFLICT && t.judgement.findings[f].cls != SF_CLASS_EXACT);
    trial_close(&t);
  }
}

/* --- repeated tensors ------------------------------------------------------------------------------------------- */

static void test_judge_recomputed_activation_that_differs_is_exact(void **state) {
  (void)state;
  struct trial t;
  cut_open(&t, WIDE);
  const struct tensor *act = module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_CORE_ATTENTION, 1);
  struct sf_trace_id id = act->id;
  id.pass = SF_PASS_RECOMPUTE;
  flip_bit(&part_of(&t, id, 5)->data[1]);
  judge_parts(&t);
  assert_int_equal(assert_first(&t, SF_CLASS_EXACT, id, act->spec.module)->rank, 5);
  assert_int_equal(t.judgement.finding_count, 1);
  flip_bit(&part_of(&t, id, 5)->data[1]);
  part_of(&t, id, 4)->times = 0;
  judge_parts(&t);
  assert_int_equal(assert_first(&t, SF_CLASS_GAP, id, act->spec.module)->rank, 4);
  trial_close(&t);
}

static void received_check(const char *words, enum sf_kind kind, enum sf_module_class cls, int32_t layer, int32_t rank) {
  struct trial t;
  cut_open(&t, words);
  const struct tensor *sent = module_tensor(&t.candidate, kind, cls, layer);
  struct sf_trace_id id = sent->id;
  id.call = 1;
  struct part *part = part_of(&t, id, rank);
  flip_bit(&part->data[7]);
  judge_parts(&t);
  const struct sf_finding *first = assert_first(&t, SF_CLASS_EXACT, id, sent->spec.module);
  assert_int_equal(first->rank, rank);
  assert_int_equal(first->row, part->map.rows.runs[0].start + 7 / part->cols);
  assert_int_equal(t.judgement.finding_count, 1);
  flip_bit(&part->data[7]);
  judge_passes(&t);
  trial_close(&t);
}

static void test_judge_received_tensor_that_differs_is_exact(void **state) {
  (void)state;
  received_check(SMALL_MODEL E2E "layout.pp=2", SF_KIND_ACT, SF_MODULE_MLP_BDA, 0, 1);
  received_check(SMALL_MODEL E2E "layout.pp=2", SF_KIND_ACT_GRAD, SF_MODULE_SELF_ATTN_BDA, 1, 0);
  received_check(SMALL_MODEL ISOLATED "layout.pp=2 layout.tp=2 layout.sp=on", SF_KIND_ACT, SF_MODULE_MLP_BDA, 0, 3);
  received_check(SMALL_MODEL ISOLATED "layout.pp=2 layout.tp=2 layout.sp=on", SF_KIND_ACT_GRAD, SF_MODULE_SELF_ATTN_BDA, 1, 1);
}

/* --- partial sums ----------------------------------------------------------------------------------------------- */

/* Splits a value over the parts that hold it: the shares are powers of two, so their sum is exact. */
static void make_partial(struct part *part, struct sf_dim_map *dim, int32_t run, float share) {
  assert_true(dim == &part->map.rows || dim == &part->map.cols);
  int64_t before = 0;
  for (int32_t i = 0; i < run; i++) before += dim->runs[i].len;
  dim->runs[run].partial = true;
  for (int64_t r = 0; r < part->rows; r++)
    for (int64_t c = 0; c < part->cols; c++) {
      const int64_t at = dim == &part->map.rows ? r : c;
      if (at >= before && at < before + dim->runs[run].len) part->data[r * part->cols + c] *= share;
    }
}

static void test_judge_partial_sums_are_added(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, SMALL_MODEL ISOLATED "layout.tp=2 layout.sp=on");
  const struct tensor *grad = param_tensor(&t.candidate, SF_KIND_WGRAD, SF_MODULE_FINAL_LAYERNORM, -1, 0);
  for (int order = BY_TENSOR; order <= BY_RANK_DOWN; order++) {
    trial_cut(&t, &t.catalog->logical);
    for (int32_t rank = 0; rank < 2; rank++) make_partial(part_of(&t, grad->id, rank), &part_of(&t, grad->id, rank)->map.cols, 0, 0.5f);
    trial_judge_parts(&t, &t.catalog->logical, (enum order)order, true);
    assert_passes(&t);
    assert_memory_equal(sf_collector_tensor(t.collector, grad->id), grad->values, (size_t)grad->count * sizeof(float));
  }
  part_of(&t, grad->id, 1)->data[0] *= 2;
  judge_parts(&t);
  assert_first_at(&t, SF_CLASS_TOLERANCE, grad);
  part_of(&t, grad->id, 1)->times = 0;
  judge_parts(&t);
  assert_first_at(&t, SF_CLASS_GAP, grad);
  trial_close(&t);
}

/* Key and value columns that two ranks share are partial, query columns are each rank's own. */
static void test_judge_partial_key_gradients_are_added(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, SMALL_MODEL ISOLATED "layout.tp=4");
  const struct tensor *grad = module_tensor(&t.candidate, SF_KIND_ACT_GRAD, SF_MODULE_CORE_ATTENTION, 0);
  trial_cut(&t, &t.catalog->logical);
  for (int32_t rank = 0; rank < 4; rank++) {
    struct part *part = part_of(&t, grad->id, rank);
    struct sf_dim_map *cols = &part->map.cols; /* every second rank's query columns adjoin the key's: one canonical run */
    if (cols->count == 1) {
      const struct sf_run whole = cols->runs[0];
      cols->runs[0].len = 4;
      cols->runs[1] = (struct sf_run){.start = whole.start + 4, .len = whole.len - 4};
      cols->count = 2;
    }
    make_partial(part, cols, 1, 0.5f);
  }
  judge_passes(&t);
  assert_memory_equal(sf_collector_tensor(t.collector, grad->id), grad->values, (size_t)grad->count * sizeof(float));
  trial_close(&t);
}

static const char *const CONTEXT_LAYOUTS[] = {
    "layout.cp=2 model.seq=8",
    "layout.cp=2 layout.tp=2 layout.sp=on model.seq=8 layout.order=cp-tp-ep-dp-pp",
    "layout.cp=2 layout.tp=2 layout.dp=2 layout.pp=2 model.seq=8 train.recompute_layers=1",
    "layout.cp=4 layout.cp_comm=allgather model.seq=8",
};

static void test_judge_context_parallel_parts_pass_in_any_order(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof CONTEXT_LAYOUTS / sizeof CONTEXT_LAYOUTS[0]; i++)
    for (int order = BY_TENSOR; order <= BY_RANK_DOWN; order++) {
      char sets[512];
      struct trial t;
      snprintf(sets, sizeof sets, SMALL_MODEL ISOLATED "%s", CONTEXT_LAYOUTS[i]);
      trial_open(&t, sets);
      trial_cut(&t, &t.catalog->logical);
      trial_judge_parts(&t, &t.catalog->logical, (enum order)order, true);
      assert_passes(&t);
      trial_close(&t);
    }
}

/* tp 2, cp 2: a norm's weight gradient is a sum over cp that both tp ranks hold. */
static void test_judge_sums_over_cp_count_once_and_must_agree(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, SMALL_MODEL ISOLATED "layout.cp=2 layout.tp=2 model.seq=8");
  const struct tensor *grad = param_tensor(&t.candidate, SF_KIND_WGRAD, SF_MODULE_FINAL_LAYERNORM, -1, 0);
  trial_cut(&t, &t.catalog->logical);
  judge_passes(&t);
  assert_memory_equal(sf_collector_tensor(t.collector, grad->id), grad->values, (size_t)grad->count * sizeof(float));
  part_of(&t, grad->id, 3)->data[0] += 1.0f; /* the second tp rank's second summand */
  judge_parts(&t);
  assert_int_equal(assert_first_at(&t, SF_CLASS_CONFLICT, grad)->rank, 1);
  part_of(&t, grad->id, 3)->times = 0;
  judge_parts(&t);
  assert_first_at(&t, SF_CLASS_GAP, grad);
  trial_close(&t);
}

static void test_judge_gradient_that_is_no_sum_over_cp_is_map(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, SMALL_MODEL ISOLATED "layout.cp=2 layout.tp=2 model.seq=8");
  const struct tensor *grad = param_tensor(&t.candidate, SF_KIND_WGRAD, SF_MODULE_LINEAR_FC1, 0, 0);
  trial_cut(&t, &t.catalog->logical);
  sf_dim_map_set_partial(&part_of(&t, grad->id, 2)->map.rows, 0);
  judge_parts(&t);
  assert_int_equal(assert_first_at(&t, SF_CLASS_MAP, grad)->rank, 2);
  trial_close(&t);
  trial_open(&t, SMALL_MODEL ISOLATED "layout.cp=2 model.seq=8");
  const struct tensor *act = module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_LINEAR_FC1, 0);
  trial_cut(&t, &t.catalog->logical);
  sf_dim_map_set_partial(&part_of(&t, act->id, 1)->map.rows, SF_AXES(SF_AXIS_CP));
  judge_parts(&t);
  assert_int_equal(assert_first_at(&t, SF_CLASS_MAP, act)->rank, 1);
  trial_close(&t);
}

static void test_judge_ranks_that_disagree_about_partial_sums_are_map(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, SMALL_MODEL ISOLATED "layout.tp=2 layout.sp=on");
  const struct tensor *grad = param_tensor(&t.candidate, SF_KIND_WGRAD, SF_MODULE_FINAL_LAYERNORM, -1, 0);
  for (int order = BY_TENSOR; order <= BY_RANK_DOWN; order++) {
    trial_cut(&t, &t.catalog->logical);
    make_partial(part_of(&t, grad->id, 1), &part_of(&t, grad->id, 1)->map.cols, 0, 0.5f);
    trial_judge_parts(&t, &t.catalog->logical, (enum order)order, true);
    assert_int_equal(assert_first_at(&t, SF_CLASS_MAP, grad)->rank, 1);
    assert_int_equal(t.judgement.finding_count, 1);
  }
  trial_close(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_judge_lost_part_is_gap),
      cmocka_unit_test(test_judge_lost_part_of_a_run_cut_short_is_no_finding),
      cmocka_unit_test(test_judge_repeated_part_is_overlap),
      cmocka_unit_test(test_judge_part_from_a_rank_that_does_not_hold_it_is_overlap),
      cmocka_unit_test(test_judge_unknown_tensor_is_overlap_and_comes_last),
      cmocka_unit_test(test_judge_neighbours_map_is_map),
      cmocka_unit_test(test_judge_map_of_another_size_or_outside_is_map),
      cmocka_unit_test(test_judge_map_cut_into_more_runs_passes),
      cmocka_unit_test(test_judge_neighbours_shard_is_tolerance),
      cmocka_unit_test(test_judge_replica_that_differs_in_one_bit_is_conflict),
      cmocka_unit_test(test_judge_shared_key_columns_that_differ_are_conflict),
      cmocka_unit_test(test_judge_weight_gradient_replicas_may_differ_by_noise_only),
      cmocka_unit_test(test_judge_equal_infinities_of_replicas_do_not_differ),
      cmocka_unit_test(test_judge_nans_of_replicas_do_not_differ),
      cmocka_unit_test(test_judge_recomputed_activation_that_differs_is_exact),
      cmocka_unit_test(test_judge_received_tensor_that_differs_is_exact),
      cmocka_unit_test(test_judge_partial_sums_are_added),
      cmocka_unit_test(test_judge_partial_key_gradients_are_added),
      cmocka_unit_test(test_judge_context_parallel_parts_pass_in_any_order),
      cmocka_unit_test(test_judge_sums_over_cp_count_once_and_must_agree),
      cmocka_unit_test(test_judge_gradient_that_is_no_sum_over_cp_is_map),
      cmocka_unit_test(test_judge_ranks_that_disagree_about_partial_sums_are_map),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
