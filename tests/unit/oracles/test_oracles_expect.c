/* Expectations (values, noise, levels), the loops below them, cut plans, and the comparison rule on tensors made by hand. */
#include "oracles/judge/collector.h"
#include "oracles/noise/norms.h"
#include "tests/unit/oracles/candidate.h"

#include <math.h>

static void test_sums_of_squares_equal_plain_loops(void **state) {
  (void)state;
  float a[67], b[67];
  const struct sf_fill fill = {.key = sf_fill_key(7, 1, 2), .dist = SF_DIST_NORMAL, .scale = 1, .dtype = SF_F32};
  sf_fill_range(a, &fill, 0, 67);
  sf_fill_range(b, &fill, 100, 67);
  for (int64_t count = 0; count <= 67; count++) {
    double squares = 0, differences = 0;
    for (int64_t i = 0; i < count; i++) {
      squares += (double)a[i] * (double)a[i];
      differences += (double)(a[i] - b[i]) * (double)(a[i] - b[i]);
    }
    assert_true(fabs(sf_sum_squares(a, count) - squares) <= 1e-14 * squares);
    assert_true(fabs(sf_diff_squares(a, b, count) - differences) <= 1e-14 * differences);
  }
  b[66] = NAN;
  assert_true(isnan(sf_diff_squares(a, b, 67)));
  a[3] = 1e38f, b[3] = -1e38f;
  assert_true(isfinite(sf_diff_squares(a, b, 66)));
  a[3] = 1e-38f, b[3] = 0, memcpy(b + 4, a + 4, 8 * sizeof *b), memcpy(b, a, 3 * sizeof *b);
  assert_true(sf_diff_squares(a, b, 12) > 0); /* no underflow */
}

static void test_larger_of_nan_is_nan(void **state) {
  (void)state;
  assert_true(sf_larger(1, 2) == 2 && sf_larger(2, 1) == 2);
  assert_true(isnan(sf_larger(NAN, 1)) && isnan(sf_larger(1, NAN)));
}

/* --- expectations ----------------------------------------------------------------------------------------------- */

static void test_expectations_hold_the_reference_run(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, SMALL_MODEL E2E "train.steps=2");
  assert_int_equal(sf_expectations_count(t.expectations), t.candidate.count);
  size_t floats = 0;
  for (int32_t i = 0; i < t.candidate.count; i++) {
    const struct tensor *tensor = &t.candidate.tensors[i];
    const struct sf_expected *e = sf_expectations_at(t.expectations, i);
    assert_ptr_equal(e, sf_expectations_find(t.expectations, tensor->id));
    assert_int_equal(e->ordinal, i);
    assert_int_equal(e->level, SF_LEVEL_NONE);
    assert_memory_equal(e->x, tensor->values, (size_t)tensor->count * sizeof(float));
    double squares = 0;
    for (int64_t r = 0; r < e->spec.shape.rows; r++) squares += e->row_norm[r] * e->row_norm[r];
    assert_true(fabs(sqrt(squares) - e->norm) <= 1e-12 * e->norm);
    assert_true(e->noise[SF_LEVEL_FIRST] == 0 && e->noise[SF_LEVEL_FULL] == 0);
    floats += (size_t)tensor->count;
  }
  assert_null(sf_expectations_find(t.expectations, (struct sf_trace_id){.step = 7, .kind = SF_KIND_ACT}));
  assert_true(sf_expectations_bytes(t.expectations) >= floats * sizeof(float));
  trial_close(&t);
}

/* What a tensor's noise and its third row's are at each level that was reached, NaN else. */
struct levels {
  double noise[SF_LEVEL_COUNT], row[SF_LEVEL_COUNT];
};

static struct levels levels_of(const struct sf_expected *e) {
  struct levels levels;
  for (int level = SF_LEVEL_FIRST; level < SF_LEVEL_COUNT; level++) {
    const bool reached = level <= (int)e->level;
    levels.noise[level] = reached ? e->noise[level] : NAN;
    levels.row[level] = reached ? e->row_noise[level][2] : NAN;
  }
  return levels;
}

static void test_raise_keeps_each_levels_noise_and_never_lowers(void **state) {
  (void)state;
  static const int64_t runs[SF_LEVEL_COUNT] = {1, 3, 9, 24, 72}; /* 2 draws, 3 from the second round on */
  struct trial t;
  trial_open(&t, SMALL_MODEL ISOLATED "");
  const struct sf_expected *e =
      sf_expectations_find(t.expectations, module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_OUTPUT_LAYER, -1)->id);
  struct levels last = {0};
  for (enum sf_level level = SF_LEVEL_FIRST; level < SF_LEVEL_COUNT; level++) {
    assert_int_equal(sf_expectations_raise(t.expectations, level, NULL, 0), SF_OK);
    assert_int_equal(e->level, level);
    assert_int_equal(sf_expectations_runs(t.expectations), runs[level]);
    const struct levels now = levels_of(e);
    assert_true(now.noise[level] > 0 && now.noise[level] < 1e-4 * e->norm && now.row[level] > 0 && now.row[level] <= now.noise[level]);
    for (enum sf_level below = SF_LEVEL_FIRST; below < level; below++) {
      assert_true(now.noise[below] == last.noise[below] && now.row[below] == last.row[below]);
      assert_true(now.noise[below] <= now.noise[level] && now.row[below] <= now.row[level]);
    }
    last = now;
  }
  assert_true(last.row[SF_LEVEL_FULL] > last.row[SF_LEVEL_FIRST]);
  assert_int_equal(sf_expectations_raise(t.expectations, SF_LEVEL_FIRST, NULL, 0), SF_OK);
  assert_int_equal(e->level, SF_LEVEL_SURE);
  struct sf_expectations *other = NULL; /* straight to the last level: the same numbers */
  assert_int_equal(sf_expectations_create(&other, t.catalog, &loops_table), SF_OK);
  assert_int_equal(sf_expectations_raise(other, SF_LEVEL_SURE, NULL, 0), SF_OK);
  for (int32_t i = 0; i < t.candidate.count; i++)
    for (int level = SF_LEVEL_FIRST; level < SF_LEVEL_COUNT; level++)
      assert_true(sf_expectations_at(other, i)->noise[level] == sf_expectations_at(t.expectations, i)->noise[level]);
  sf_expectations_destroy(other);
  trial_close(&t);
}

/* Every `every`-th tensor with noise, from the first-th on. Returns how many. */
static int32_t some_ordinals(int32_t *out, const struct sf_expectations *expectations, int32_t first, int32_t every) {
  int32_t count = 0, seen = 0;
  for (int32_t i = 0; i < sf_expectations_count(expectations); i++)
    if (sf_kind_has_noise((enum sf_kind)sf_expectations_at(expectations, i)->id.kind) && seen++ % every == first) out[count++] = i;
  return count;
}

/* Raises some tensors in turns, each of them by itself or with others: what the run leaves out must not show in their noise. */
static void test_raise_of_some_tensors_gives_the_noise_of_a_whole_run(void **state) {
  (void)state;
  static const char *const cases[] = {
      SMALL_MODEL ISOLATED "precision.compute=bf16 train.steps=2 train.microbatches=3",
      SMALL_MODEL ISOLATED "model.tied=on model.positions=learned train.microbatches=2",
      SMALL_MODEL ISOLATED "precision.compute=fp16 precision.loss_scale_log2=8 precision.loss_scale_window=1 train.steps=2",
      SMALL_MODEL ISOLATED "precision.compute=fp8 precision.fp8_recipe=delayed train.steps=2",
      SMALL_MODEL ISOLATED "moe.experts=4 moe.topk=2 train.microbatches=2",
  };
  for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
    struct trial t;
    trial_open(&t, cases[n]);
    assert_int_equal(sf_expectations_raise(t.expectations, SF_LEVEL_SECOND, NULL, 0), SF_OK);
    int32_t *ordinals = calloc((size_t)sf_expectations_count(t.expectations), sizeof *ordinals);
    static const int32_t strides[] = {1, 2, 7, 1000};
    for (size_t k = 0; k < sizeof strides / sizeof *strides; k++) {
      struct sf_expectations *some = NULL;
      assert_int_equal(sf_expectations_create(&some, t.catalog, &loops_table), SF_OK);
      for (int32_t first = 0; first < strides[k] && first < 12; first += k == 3 ? 5 : 1) {
        const int32_t count = some_ordinals(ordinals, some, first, strides[k]);
        assert_true(count > 0);
        assert_int_equal(sf_expectations_raise(some, SF_LEVEL_SECOND, ordinals, count), SF_OK);
        for (int32_t i = 0; i < count; i++) {
          const struct sf_expected *e = sf_expectations_at(some, ordinals[i]), *whole = sf_expectations_at(t.expectations, ordinals[i]);
          assert_int_equal(e->level, SF_LEVEL_SECOND);
          for (int level = SF_LEVEL_FIRST; level <= SF_LEVEL_SECOND; level++) {
            if (e->noise[level] != whole->noise[level]) print_message("case %zu, tensor %d of every %d\n", n, ordinals[i], strides[k]);
            assert_true(e->noise[level] == whole->noise[level]);
            assert_memory_equal(e->row_noise[level], whole->row_noise[level], (size_t)e->spec.shape.rows * sizeof(double));
          }
        }
      }
      sf_expectations_destroy(some);
    }
    free(ordinals);
    trial_close(&t);
  }
}

/* Module inputs are equal by construction in isolated mode, so nothing may perturb the embedding's output there. */
static void test_raise_in_isolated_mode_leaves_sums_of_injected_gradients_alone(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, SMALL_MODEL ISOLATED "precision.compute=bf16");
  assert_int_equal(sf_expectations_raise(t.expectations, SF_LEVEL_FULL, NULL, 0), SF_OK);
  const struct sf_expected *grad =
      sf_expectations_find(t.expectations, param_tensor(&t.candidate, SF_KIND_MAIN_GRAD, SF_MODULE_LINEAR_FC1, 0, 0)->id);
  assert_true(grad->noise[SF_LEVEL_FULL] <= 1e-5 * grad->norm); /* an fp32 sum of equal summands, in a bf16 run */
  trial_close(&t);
}

static void test_logits_gradient_has_a_floor_by_token_weight(void **state) {
  (void)state;
  static const char *const norms[] = {SMALL_MODEL "train.loss_norm=per_token", SMALL_MODEL "train.loss_norm=per_microbatch"};
  for (int i = 0; i < 2; i++) {
    struct trial t;
    trial_open(&t, norms[i]);
    const struct sf_expected *e =
        sf_expectations_find(t.expectations, module_tensor(&t.candidate, SF_KIND_ACT_GRAD, SF_MODULE_LOSS, -1)->id);
    float mask[16];
    double kept = 0;
    sf_data_microbatch(NULL, NULL, mask, &t.catalog->logical, 0, 0);
    for (int k = 0; k < 16; k++) kept += (double)mask[k];
    for (int k = 0; k < 16; k++) {
      const double weight = i == 0 ? (double)mask[k] : (double)mask[k] / (kept * 2);
      assert_true(fabs((double)e->row_floor[k] - weight * 0x1p-23) <= 1e-6 * weight);
    }
    assert_null(sf_expectations_at(t.expectations, 0)->row_floor);
    trial_close(&t);
  }
}

/* --- the comparison rule ---------------------------------------------------------------------------------------- */

enum { ROWS = 4, COLS = 8 };
struct hand {
  struct sf_expected e;
  float x[ROWS * COLS], c[ROWS * COLS];
  double norm[ROWS], noise[ROWS], scratch[ROWS];
};

/* x of about unit elements, noise the same in all rows. */
static void hand_make(struct hand *h, double row_noise) {
  const struct sf_fill fill = {.key = sf_fill_key(3, 4, 5), .dist = SF_DIST_NORMAL, .scale = 1, .dtype = SF_F32};
  *h = (struct hand){0};
  sf_fill_range(h->x, &fill, 0, ROWS * COLS);
  memcpy(h->c, h->x, sizeof h->c);
  h->e = (struct sf_expected){.spec = {.shape = {ROWS, COLS}, .promised = SF_F32}, .x = h->x, .row_norm = h->norm};
  h->e.row_noise[SF_LEVEL_FULL] = h->noise;
  h->e.norm = sf_row_norms(h->norm, h->x, ROWS, COLS);
  h->e.rolled = h->e.norm;
  for (int r = 0; r < ROWS; r++) h->noise[r] = row_noise;
  h->e.noise[SF_LEVEL_FULL] = row_noise * sqrt(ROWS);
}

static struct sf_comparison compare(struct hand *h) {
  struct sf_comparison comparison;
  sf_compare(&comparison, &h->e, h->c, SF_LEVEL_FULL, h->scratch);
  return comparison;
}

static void test_compare_tensor_factor_is_three(void **state) {
  (void)state;
  struct hand h;
  for (int over = 0; over < 2; over++) {
    hand_make(&h, 0.01);
    for (int r = 0; r < ROWS; r++) h.c[r * COLS + 1] += over ? 0.0301f : 0.0299f;
    const struct sf_comparison c = compare(&h);
    assert_true(fabs(c.fro_ratio - (over ? 3.01 : 2.99)) < 1e-3);
    assert_int_equal(c.flagged, over);
    assert_null(c.why_not);
  }
}

/* All of the error in one row: noise 0.01 + half the rms of 0.01 there; the tensor's 0.02 allows 0.06. */
static void test_compare_row_factor_is_six(void **state) {
  (void)state;
  struct hand h;
  hand_make(&h, 0.01);
  h.e.noise[SF_LEVEL_FULL] = 0.1; /* lets the tensor as a whole pass */
  for (int r = 0; r < ROWS; r++) h.norm[r] = 3;
  h.c[2 * COLS] += 0.089f; /* 5.93 times the row's level */
  struct sf_comparison c = compare(&h);
  assert_true(!c.flagged && c.row == 2 && fabs(c.row_ratio - 5.933) < 1e-2 && c.fro_ratio < 1);
  h.c[2 * COLS] += 0.002f; /* 6.07 */
  c = compare(&h);
  assert_true(c.flagged && c.row == 2 && fabs(c.row_ratio - 6.067) < 1e-2);
  h.e.spec.shape = (struct sf_shape){1, ROWS * COLS}; /* a vector has no rows */
  h.e.row_norm[0] = h.e.norm;
  c = compare(&h);
  assert_true(!c.flagged && c.row == -1 && c.row_ratio == 0);
}

/* Row 1 is a thousand times larger, noise and all: the others must not inherit its noise. */
static void test_compare_outlier_row_does_not_hide_the_others(void **state) {
  (void)state;
  struct hand h;
  hand_make(&h, 0.01);
  for (int k = 0; k < COLS; k++) h.x[COLS + k] *= 1000, h.c[COLS + k] *= 1000;
  h.e.norm = sf_row_norms(h.norm, h.x, ROWS, COLS);
  h.noise[1] = 10;
  h.e.noise[SF_LEVEL_FULL] = 10;
  assert_false(compare(&h).flagged);
  for (int k = 0; k < COLS; k++) h.c[2 * COLS + k] *= 1.1f;
  struct sf_comparison c = compare(&h);
  assert_true(c.flagged && c.row == 2 && c.fro_ratio < 1);
  h.norm[2] = 0; /* nothing to scale by: what the rows show together is all there is */
  assert_false(compare(&h).flagged);
}

static void test_compare_zero_noise_still_has_the_floor_of_the_format(void **state) {
  (void)state;
  struct hand h;
  hand_make(&h, 0);
  for (int i = 0; i < ROWS * COLS; i++) h.c[i] *= 1 + 0x1p-23f; /* two units: within three */
  assert_false(compare(&h).flagged);
  for (int i = 0; i < ROWS * COLS; i++) h.c[i] *= 1 + 0x1p-22f; /* six units in all */
  assert_true(compare(&h).flagged);
  h.e.spec.promised = SF_BF16;
  assert_false(compare(&h).flagged);
}

static void test_compare_says_why_nothing_is_proven(void **state) {
  (void)state;
  struct hand h;
  hand_make(&h, 0.01);
  assert_null(compare(&h).why_not);
  h.e.rolled = 0.01;
  for (int i = 0; i < ROWS * COLS; i++) h.x[i] = h.c[i] = h.x[i % COLS]; /* all rows the same */
  assert_string_equal(compare(&h).why_not, "values alike");
  hand_make(&h, 10);
  h.c[0] += 1000;
  struct sf_comparison c = compare(&h);
  assert_true(!c.flagged && c.fro_ratio > 3);
  assert_string_equal(c.why_not, "ill-conditioned");
  hand_make(&h, NAN);
  assert_string_equal(compare(&h).why_not, "ill-conditioned");
  hand_make(&h, 0);
  memset(h.x, 0, sizeof h.x);
  memset(h.c, 0, sizeof h.c);
  h.e.norm = sf_row_norms(h.norm, h.x, ROWS, COLS);
  assert_string_equal(compare(&h).why_not, "zero");
  h.c[9] = 1e-30f;
  c = compare(&h);
  assert_true(c.flagged && isinf(c.fro_ratio));
}

/* Tokens whose p - onehot has cancelled: the row's floor, and for a tensor of nothing else also the tensor's. */
static void test_compare_cancelled_logits_gradient_uses_the_floor(void **state) {
  (void)state;
  struct hand h;
  float floors[ROWS];
  hand_make(&h, 0);
  for (int i = 0; i < ROWS * COLS; i++) h.c[i] = h.x[i] *= 1e-4f;
  h.e.norm = sf_row_norms(h.norm, h.x, ROWS, COLS);
  h.c[3] += 3e-7f;
  assert_true(compare(&h).flagged);
  for (int r = 0; r < ROWS; r++) floors[r] = 0x1p-23f; /* weight 1 */
  h.e.row_floor = floors;
  assert_false(compare(&h).flagged);
  h.c[3] += 2e-6f;
  assert_true(compare(&h).flagged);
}

static void test_bf16_bits_needs_a_reference_without_them(void **state) {
  (void)state;
  static float x[600], c[600];
  const struct sf_fill fill = {.key = sf_fill_key(1, 2, 3), .dist = SF_DIST_NORMAL, .scale = 1.0f / 3, .dtype = SF_F32};
  sf_fill_range(x, &fill, 0, 600);
  struct sf_expected e = {.spec = {.shape = {20, 30}, .promised = SF_F32}, .x = x};
  memcpy(c, x, sizeof c);
  assert_false(sf_has_bits_of(SF_BF16, &e, c));
  sf_round_array(c, 530, SF_BF16);
  assert_false(sf_has_bits_of(SF_BF16, &e, c)); /* 88 % */
  sf_round_array(c, 550, SF_BF16);
  assert_true(sf_has_bits_of(SF_BF16, &e, c));
  memset(c, 0, 500 * sizeof *c); /* of the 100 that are left half are on the grid */
  assert_false(sf_has_bits_of(SF_BF16, &e, c));
  sf_round_array(c, 600, SF_BF16);
  assert_true(sf_has_bits_of(SF_BF16, &e, c));
  e.spec.promised = SF_BF16;
  assert_false(sf_has_bits_of(SF_BF16, &e, c));
  e.spec.promised = SF_F32;
  e.spec.shape.rows = 17; /* 510 elements */
  assert_false(sf_has_bits_of(SF_BF16, &e, c));
  e.spec.shape.rows = 20;
  sf_round_array(x, 330, SF_BF16);
  assert_false(sf_has_bits_of(SF_BF16, &e, c)); /* more than half of the reference's values lie on the grid too */
}

/* The weight gradient of one token: a product of fp8 numbers times one number, which for the candidate happens to be a short one. Where
 * there are more mantissas than such products have, it was rounding. */
static void test_bf16_bits_says_nothing_of_products_of_short_numbers(void **state) {
  (void)state;
  static float x[600], c[600];
  struct sf_expected e = {.spec = {.shape = {20, 30}, .promised = SF_F32}, .x = x};
  for (int i = 0; i < 600; i++) {
    c[i] = (float)(8 + i % 8) * (float)(4 + i / 8 % 4) * 0x1p-9f;
    x[i] = c[i] * 1.000001f;
  }
  assert_false(sf_has_bits_of(SF_BF16, &e, c));
  for (int i = 0; i < 600; i++) x[i] *= 1 + (float)i * 1e-5f;
  assert_true(sf_has_bits_of(SF_BF16, &e, c));
}

/* --- cut plans -------------------------------------------------------------------------------------------------- */

/* How many of a piece's indices a rank holds. */
static int64_t held_of(const struct sf_case *c, enum sf_cut cut, const struct sf_cut_piece *piece, int32_t tp, int32_t cp) {
  const struct sf_dim_map dim = sf_canonical_dim(c, cut, 48, tp, cp);
  int64_t held = 0;
  for (int32_t run = 0; run < dim.count; run++)
    for (int64_t at = dim.runs[run].start; at < dim.runs[run].start + dim.runs[run].len; at++)
      held += at >= piece->start && at < piece->start + piece->len;
  return held;
}

static void test_cut_plan_with_context_parallelism_names_exactly_the_holders(void **state) {
  (void)state;
  struct sf_catalog *catalog = catalog_of(SMALL_MODEL "layout.tp=2 layout.sp=on layout.cp=3 model.seq=12");
  const struct sf_case *c = &catalog->logical;
  struct sf_arena *arena = sf_arena_create(4096, true);
  static const enum sf_cut cuts[] = {SF_CUT_NONE, SF_CUT_EVEN, SF_CUT_SEQUENCE, SF_CUT_TOKENS};
  for (size_t k = 0; k < sizeof cuts / sizeof *cuts; k++) {
    struct sf_cut_plan plan;
    assert_int_equal(sf_cut_plan_create(&plan, c, cuts[k], 48, arena), SF_OK);
    for (int32_t place = 0; place < 6; place++) {
      const struct sf_cut_rank *rank = sf_cut_rank_at(&plan, place % 2, place / 2);
      int64_t local = 0;
      for (int32_t i = 0; i < rank->count; i++) {
        const struct sf_cut_piece *piece = &rank->pieces[i];
        assert_int_equal(piece->local, local);
        local += piece->len;
        for (int32_t other = 0; other < 6; other++) {
          const bool named =
              other % 2 >= piece->tp_first && other % 2 <= piece->tp_last && other / 2 >= piece->cp_first && other / 2 <= piece->cp_last;
          assert_int_equal(held_of(c, cuts[k], piece, other % 2, other / 2), named ? piece->len : 0);
        }
      }
      assert_int_equal(local, rank->length);
    }
  }
  sf_arena_destroy(arena);
  sf_catalog_destroy(catalog);
}

static void test_cut_plan_names_exactly_the_holders(void **state) {
  (void)state;
  struct sf_catalog *catalog = catalog_of(SMALL_MODEL "layout.tp=4 layout.sp=on model.kv_heads=2 model.head_dim=4");
  const struct sf_case *c = &catalog->logical;
  struct sf_arena *arena = sf_arena_create(4096, true);
  static const enum sf_cut cuts[] = {SF_CUT_NONE, SF_CUT_EVEN, SF_CUT_QKV, SF_CUT_GATE_UP, SF_CUT_SEQUENCE};
  for (size_t k = 0; k < sizeof cuts / sizeof *cuts; k++) {
    struct sf_cut_plan plan;
    assert_int_equal(sf_cut_plan_create(&plan, c, cuts[k], 32, arena), SF_OK);
    for (int32_t tp = 0; tp < 4; tp++) {
      int64_t local = 0;
      for (int32_t i = 0; i < plan.ranks[tp].count; i++) {
        const struct sf_cut_piece *piece = &plan.ranks[tp].pieces[i];
        assert_int_equal(piece->local, local);
        local += piece->len;
        assert_true(piece->tp_first <= tp && tp <= piece->tp_last);
        for (int32_t other = 0; other < 4; other++) {
          const struct sf_dim_map dim = sf_canonical_dim(c, cuts[k], 32, other, 0);
          int64_t held = 0;
          for (int32_t run = 0; run < dim.count; run++)
            for (int64_t at = dim.runs[run].start; at < dim.runs[run].start + dim.runs[run].len; at++)
              held += at >= piece->start && at < piece->start + piece->len;
          assert_int_equal(held, other >= piece->tp_first && other <= piece->tp_last ? piece->len : 0);
        }
      }
      assert_int_equal(local, plan.ranks[tp].length);
    }
  }
  sf_arena_destroy(arena);
  sf_catalog_destroy(catalog);
}

static void test_names_of_verdicts_and_classes(void **state) {
  (void)state;
  assert_string_equal(sf_verdict_name(SF_VERDICT_PASS), "PASS");
  assert_string_equal(sf_verdict_name(SF_VERDICT_SKIP), "SKIP");
  assert_string_equal(sf_finding_class_name(SF_CLASS_NONFINITE), "nonfinite");
  assert_string_equal(sf_finding_class_name(SF_CLASS_FLAKY), "flaky");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sums_of_squares_equal_plain_loops),
      cmocka_unit_test(test_larger_of_nan_is_nan),
      cmocka_unit_test(test_expectations_hold_the_reference_run),
      cmocka_unit_test(test_raise_keeps_each_levels_noise_and_never_lowers),
      cmocka_unit_test(test_raise_of_some_tensors_gives_the_noise_of_a_whole_run),
      cmocka_unit_test(test_raise_in_isolated_mode_leaves_sums_of_injected_gradients_alone),
      cmocka_unit_test(test_logits_gradient_has_a_floor_by_token_weight),
      cmocka_unit_test(test_compare_tensor_factor_is_three),
      cmocka_unit_test(test_compare_row_factor_is_six),
      cmocka_unit_test(test_compare_outlier_row_does_not_hide_the_others),
      cmocka_unit_test(test_compare_zero_noise_still_has_the_floor_of_the_format),
      cmocka_unit_test(test_compare_says_why_nothing_is_proven),
      cmocka_unit_test(test_compare_cancelled_logits_gradient_uses_the_floor),
      cmocka_unit_test(test_bf16_bits_needs_a_reference_without_them),
      cmocka_unit_test(test_bf16_bits_says_nothing_of_products_of_short_numbers),
      cmocka_unit_test(test_cut_plan_names_exactly_the_holders),
      cmocka_unit_test(test_cut_plan_with_context_parallelism_names_exactly_the_holders),
      cmocka_unit_test(test_names_of_verdicts_and_classes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
