/* Tensors that ranks hold in ranges, as with ZeRO: who holds which is free, but each element of a place has one holder. */
#include "tests/unit/oracles/candidate.h"
#include "tests/shard_copy.h"

static const char *const SHARDED = SMALL_MODEL ISOLATED
    "layout.tp=2 layout.dp=2 layout.pp=2 layout.zero=1 model.tied=true model.norm=layer train.steps=2";

/* Opens the case and cuts it. */
static void cut_open(struct trial *t, const char *words) {
  trial_open(t, words);
  trial_cut(t, &t->catalog->logical);
}

static void judge_blames(struct trial *t, enum sf_finding_class cls, const struct tensor *tensor, int32_t rank) {
  for (int order = BY_TENSOR; order <= BY_RANK_DOWN; order++) {
    trial_judge_parts(t, &t->catalog->logical, (enum order)order, true);
    assert_int_equal(assert_first_at(t, cls, tensor)->rank, rank);
    assert_int_equal(t->judgement.finding_count, 1);
  }
}

static void judge_passes(struct trial *t) {
  for (int order = BY_TENSOR; order <= BY_RANK_DOWN; order++) {
    trial_judge_parts(t, &t->catalog->logical, (enum order)order, true);
    assert_passes(t);
  }
}

/* Another range of the same tensor on the same rank. */
static void move_range(struct trial *t, const struct tensor *tensor, int32_t rank, int64_t first, int64_t count) {
  struct part *part = part_of(t, tensor->id, rank);
  assert_true(part->map.flat);
  part->map.first = first;
  part->map.count = part->cols = count;
  part->data = realloc(part->data, (size_t)(count + 1) * sizeof *part->data);
  assert_non_null(part->data);
  shard_gather(part->data, tensor->values, tensor->spec.shape, &part->map);
}

static int64_t box_count(struct trial *t, const struct tensor *tensor, int32_t rank) {
  return sf_shard_map_box_count(&part_of(t, tensor->id, rank)->map);
}

/* Ranks of the default order: tp fastest, then dp, then pp. dp partners of rank r: r and r + 2. */
static const struct tensor *fc1_grad(struct trial *t) { return param_tensor(&t->candidate, SF_KIND_MAIN_GRAD, SF_MODULE_LINEAR_FC1, 0, 0); }

static void test_judge_ranges_of_all_layouts_pass(void **state) {
  (void)state;
  static const char *const layouts[] = {
      "layout.tp=2 layout.dp=2 layout.pp=2 layout.zero=1 model.tied=true",
      "layout.dp=2 layout.zero=2",
      "layout.tp=4 layout.dp=2 layout.zero=1",
      "layout.tp=2 layout.sp=true layout.dp=2 layout.zero=2 model.activation=swiglu mode=e2e",
      "layout.dp=4 layout.ep=2 moe.experts=4 layout.zero=1 train.microbatches=4",
      "layout.tp=2 layout.sp=true layout.dp=2 layout.etp=2 layout.pp=2 moe.experts=2 layout.zero=2 layout.order=dp-tp-cp-ep-pp"};
  for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
    char words[1024];
    struct trial t;
    snprintf(words, sizeof words, "%s%s%s", SMALL_MODEL, ISOLATED, layouts[i]);
    cut_open(&t, words);
    judge_passes(&t);
    trial_close(&t);
  }
}

static void test_judge_uneven_and_empty_ranges_pass(void **state) {
  (void)state;
  struct trial t;
  cut_open(&t, SHARDED);
  const struct tensor *grad = fc1_grad(&t);
  const int64_t box = box_count(&t, grad, 0);
  move_range(&t, grad, 0, 0, 5);
  move_range(&t, grad, 2, 5, box - 5);
  move_range(&t, grad, 1, 0, 0);
  move_range(&t, grad, 3, 0, box);
  judge_passes(&t);
  move_range(&t, grad, 0, 7, box - 7); /* the higher rank has the first elements */
  move_range(&t, grad, 2, 0, 7);
  judge_passes(&t);
  trial_close(&t);
}

static void test_judge_ranges_that_leave_elements_out_are_gap(void **state) {
  (void)state;
  struct trial t;
  cut_open(&t, SHARDED);
  const struct tensor *grad = fc1_grad(&t);
  const int64_t box = box_count(&t, grad, 0), half = part_of(&t, grad->id, 0)->map.count;
  move_range(&t, grad, 0, 0, half - 1);
  judge_blames(&t, SF_CLASS_GAP, grad, 2);
  move_range(&t, grad, 0, 1, half - 1);
  judge_blames(&t, SF_CLASS_GAP, grad, 0);
  move_range(&t, grad, 0, 0, half);
  move_range(&t, grad, 2, half, box - half - 1);
  judge_blames(&t, SF_CLASS_GAP, grad, 2);
  move_range(&t, grad, 0, 0, 0);
  move_range(&t, grad, 2, 0, 0);
  judge_blames(&t, SF_CLASS_GAP, grad, 0);
  trial_close(&t);
}

static void test_judge_ranges_that_share_elements_are_overlap(void **state) {
  (void)state;
  struct trial t;
  cut_open(&t, SHARDED);
  const struct tensor *delta = param_tensor(&t.candidate, SF_KIND_PARAM_DELTA, SF_MODULE_LINEAR_QKV, 0, 1);
  const int64_t half = part_of(&t, delta->id, 1)->map.count;
  move_range(&t, delta, 1, 0, half + 1);
  judge_blames(&t, SF_CLASS_OVERLAP, delta, 3);
  trial_close(&t);
}

static void test_judge_rank_without_its_range_is_gap(void **state) {
  (void)state;
  struct trial t;
  cut_open(&t, SHARDED);
  const struct tensor *grad = fc1_grad(&t);
  part_of(&t, grad->id, 3)->times = 0;
  judge_blames(&t, SF_CLASS_GAP, grad, 3);
  trial_close(&t);
}

/* A norm's gradient is replicated over tp, the tied embedding's over the stages. */
static void test_judge_replicated_ranges_that_differ_are_conflict(void **state) {
  (void)state;
  struct trial t;
  cut_open(&t, SHARDED);
  const struct tensor *tensors[] = {param_tensor(&t.candidate, SF_KIND_MAIN_GRAD, SF_MODULE_INPUT_LAYERNORM, 0, 0),
                                    param_tensor(&t.candidate, SF_KIND_MAIN_GRAD, SF_MODULE_WORD_EMBEDDINGS, -1, 0)};
  const int32_t ranks[] = {3, 6};
  for (int i = 0; i < 2; i++) {
    struct part *part = part_of(&t, tensors[i]->id, ranks[i]);
    float *last = &part->data[part->cols - 1];
    const float kept = *last;
    *last = nextafterf(kept, 1e9f);
    judge_blames(&t, SF_CLASS_CONFLICT, tensors[i], ranks[i]);
    assert_non_null(strstr(t.judgement.findings[0].text, "1 elements"));
    *last = kept;
  }
  trial_close(&t);
}

static void test_judge_wrong_range_is_tolerance_and_nan_names_its_holder(void **state) {
  (void)state;
  struct trial t;
  cut_open(&t, SHARDED);
  const struct tensor *grad = fc1_grad(&t);
  struct part *part = part_of(&t, grad->id, 2);
  for (int64_t i = 0; i < part->cols; i++) part->data[i] *= 2;
  trial_judge_parts(&t, &t.catalog->logical, BY_TENSOR, true);
  assert_first_at(&t, SF_CLASS_TOLERANCE, grad);
  part->data[0] = NAN;
  trial_judge_parts(&t, &t.catalog->logical, BY_TENSOR, true);
  assert_int_equal(assert_first_at(&t, SF_CLASS_NONFINITE, grad)->rank, 2);
  trial_close(&t);
}

/* Ranks 0 and 2 have the first two experts, 1 and 3 the others: ranges tile over edp, not over dp. */
static void test_judge_ranges_of_experts_tile_over_their_own_group(void **state) {
  (void)state;
  struct trial t;
  cut_open(&t, SMALL_MODEL ISOLATED "layout.dp=4 layout.ep=2 moe.experts=4 layout.zero=1 train.microbatches=4");
  const struct tensor *grad = param_tensor(&t.candidate, SF_KIND_MAIN_GRAD, SF_MODULE_EXPERTS_FC1, 0, 0);
  const int64_t box = box_count(&t, grad, 0), half = part_of(&t, grad->id, 0)->map.count;
  assert_int_equal(2 * half, box);
  move_range(&t, grad, 0, 0, 3);
  judge_blames(&t, SF_CLASS_GAP, grad, 2);
  move_range(&t, grad, 2, 3, box - 3);
  judge_passes(&t);
  move_range(&t, grad, 1, 0, half + 1);
  judge_blames(&t, SF_CLASS_OVERLAP, grad, 3);
  trial_close(&t);
}

static void test_judge_box_for_range_and_range_for_box_are_map(void **state) {
  (void)state;
  struct trial t;
  cut_open(&t, SHARDED);
  const struct tensor *grad = fc1_grad(&t), *param = param_tensor(&t.candidate, SF_KIND_PARAM, SF_MODULE_LINEAR_FC1, 0, 0);
  struct part *part = part_of(&t, grad->id, 0), *whole = part_of(&t, param->id, 0);
  const struct part kept = *part;
  move_range(&t, grad, 0, 0, box_count(&t, grad, 0));
  part->map.flat = false;
  part->rows = whole->rows, part->cols = whole->cols;
  judge_blames(&t, SF_CLASS_MAP, grad, 0);
  part->map = kept.map;
  part->rows = 1, part->cols = kept.cols + 1; /* another size than the range's */
  judge_blames(&t, SF_CLASS_MAP, grad, 0);
  part->cols = kept.cols;
  whole->map = sf_shard_map_flat(&whole->map, 0, whole->rows * whole->cols);
  whole->cols *= whole->rows, whole->rows = 1;
  judge_blames(&t, SF_CLASS_MAP, param, 0);
  trial_close(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_judge_ranges_of_all_layouts_pass),
      cmocka_unit_test(test_judge_uneven_and_empty_ranges_pass),
      cmocka_unit_test(test_judge_ranges_that_leave_elements_out_are_gap),
      cmocka_unit_test(test_judge_ranges_that_share_elements_are_overlap),
      cmocka_unit_test(test_judge_rank_without_its_range_is_gap),
      cmocka_unit_test(test_judge_replicated_ranges_that_differ_are_conflict),
      cmocka_unit_test(test_judge_wrong_range_is_tolerance_and_nan_names_its_holder),
      cmocka_unit_test(test_judge_ranges_of_experts_tile_over_their_own_group),
      cmocka_unit_test(test_judge_box_for_range_and_range_for_box_are_map),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
