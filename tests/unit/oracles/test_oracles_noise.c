/* Noise levels against runs that are right: the exact result, and the reference's own arithmetic with products summed in another order.
 * Each is a candidate without a bug, so each must pass, whatever values the tensors have. */
#include "oracles/judge/collector.h"
#include "tests/rounds.h"
#include "tests/unit/oracles/candidate.h"

#include <math.h>

#define MODEL                                                                                                                              \
  "model.layers=1 model.hidden=32 model.heads=4 model.head_dim=8 model.vocab=48 model.vocab_padded=48 model.seq=16 model.bias=on "

static const char *const MODELS[] = {
    MODEL "model.norm=layer model.kv_heads=1 model.ffn=96 model.positions=learned ",
    MODEL "model.norm=rms model.kv_heads=4 model.ffn=80 model.activation=swiglu model.positions=rotary model.tied=on ",
};
static const char *const VALUES[] = {"normal", "uniform", "heavy", "outliers", "offset", "sparse"};
enum { MODEL_COUNT = 2, VALUE_COUNT = 6 };

/* c = op(a) op(b), each element one chain of additions that begins or ends with the largest term. Begins: all later terms are rounded at
 * its size, and small ones are lost. Wherever the large term lies in the reference's order, a layout may bring it to either end. */
static float term_of(const struct sf_product *p, int64_t i, int64_t j, int64_t q) {
  const float *a = p->a, *b = p->b;
  return (p->trans_a ? a[q * p->lda + i] : a[i * p->lda + q]) * (p->trans_b ? b[j * p->ldb + q] : b[q * p->ldb + j]);
}

static void multiply_in_order_of_size(bool front, const struct sf_product *p) {
  for (int64_t i = 0; i < p->m; i++)
    for (int64_t j = 0; j < p->n; j++) {
      float largest = 0, sum = 0;
      int64_t at = 0;
      for (int64_t q = 0; q < p->k; q++)
        if (fabsf(term_of(p, i, j, q)) > fabsf(largest)) largest = term_of(p, i, j, q), at = q;
      if (front) sum = largest;
      for (int64_t q = 0; q < p->k; q++)
        if (q != at) sum += term_of(p, i, j, q);
      ((float *)p->c)[i * p->ldc + j] = front ? sum : sum + largest;
    }
}

static void multiply_largest_first(const struct sf_product *p) { multiply_in_order_of_size(true, p); }
static void multiply_largest_last(const struct sf_product *p) { multiply_in_order_of_size(false, p); }

static struct keeper keep_ordered(const struct sf_catalog *catalog, const struct sf_gemm_table *gemm) {
  struct keeper keeper = {0};
  const struct sf_reference_options options = {.gemm = gemm};
  const struct sf_reference_sink sink = {.ctx = &keeper, .emit = keeper_emit};
  assert_int_equal(sf_reference_run(catalog, &options, &sink), SF_OK);
  return keeper;
}

static struct keeper keep_largest_first(const struct sf_catalog *catalog) {
  static const struct sf_gemm_table table = {.multiply = multiply_largest_first};
  return keep_ordered(catalog, &table);
}

static struct keeper keep_largest_last(const struct sf_catalog *catalog) {
  static const struct sf_gemm_table table = {.multiply = multiply_largest_last};
  return keep_ordered(catalog, &table);
}

/* The run's tensor, in floats that stay until the next call. */
struct tensors {
  const struct keeper *run;
  float *values;
};

static const float *tensor_given(void *ctx, struct sf_trace_id id) {
  struct tensors *tensors = ctx;
  const struct kept *kept = keeper_find(tensors->run, id);
  if (kept == NULL) return NULL; /* a weight of the next step, while that run goes on */
  const int64_t count = kept->shape.rows * kept->shape.cols;
  tensors->values = realloc(tensors->values, (size_t)count * sizeof *tensors->values);
  assert_non_null(tensors->values);
  for (int64_t k = 0; k < count; k++) tensors->values[k] = (float)kept->values[k];
  return tensors->values;
}

static const float *no_parts(void *ctx, struct sf_trace_id id) {
  (void)ctx, (void)id;
  return NULL;
}

/* Tensors of the run that the comparison flags at the full level. */
static int count_flagged(const struct sf_expectations *expectations, const struct sf_catalog *catalog, const struct keeper *run) {
  int flagged = 0;
  for (int32_t i = 0; i < run->count; i++) {
    const struct kept *kept = &run->items[i];
    const int64_t count = kept->shape.rows * kept->shape.cols;
    if (!sf_kind_has_noise((enum sf_kind)kept->id.kind)) continue;
    float *values = malloc((size_t)count * sizeof *values);
    double *scratch = malloc((size_t)kept->shape.rows * sizeof *scratch);
    assert_true(values != NULL && scratch != NULL);
    for (int64_t k = 0; k < count; k++) values[k] = (float)kept->values[k];
    struct sf_comparison comparison;
    sf_compare(&comparison, sf_expectations_find(expectations, kept->id), values, SF_LEVEL_FULL, scratch);
    flagged += comparison.flagged;
    if (comparison.flagged) {
      char name[160];
      sf_trace_id_text(name, sizeof name, catalog, kept->id);
      print_message("%s: tensor %.2f, row %.2f times its noise\n", name, comparison.fro_ratio, comparison.row_ratio);
    }
    free(values);
    free(scratch);
  }
  return flagged;
}

/* Compares the run, in isolated mode with the reference, end to end with what the reference makes of the run's own tensors. */
static void check_case(const char *words, struct keeper (*right)(const struct sf_catalog *catalog)) {
  struct sf_catalog *catalog = catalog_of(words);
  struct sf_expectations *expectations = NULL, *anchored = NULL;
  assert_int_equal(sf_expectations_create(&expectations, catalog, &loops_table), SF_OK);
  struct keeper run = right(catalog);
  struct tensors tensors = {.run = &run};
  const struct sf_given tensors_of_run = {tensor_given, no_parts, &tensors};
  if (catalog->logical.mode == SF_MODE_E2E) assert_int_equal(sf_expectations_create_given(&anchored, expectations, &tensors_of_run), SF_OK);
  struct sf_expectations *compared_with = anchored != NULL ? anchored : expectations;
  assert_int_equal(sf_expectations_raise(compared_with, SF_LEVEL_FULL, NULL, 0), SF_OK);
  const int flagged = count_flagged(compared_with, catalog, &run);
  if (flagged > 0) print_message("%s\n", words);
  assert_int_equal(flagged, 0);
  free(tensors.values);
  keeper_destroy(&run);
  sf_expectations_destroy(anchored);
  sf_expectations_destroy(expectations);
  sf_catalog_destroy(catalog);
}

/* every: of the models and distributions, one in so many. */
static void check(const char *more, struct keeper (*right)(const struct sf_catalog *catalog), int32_t every) {
  for (int32_t i = 0; i < MODEL_COUNT * VALUE_COUNT * VALUE_COUNT; i += every) {
    if ((i / every + i / VALUE_COUNT) % SF_STRIDE != 0) continue;
    char words[1024];
    const char *acts = VALUES[i % VALUE_COUNT], *grads = VALUES[i / VALUE_COUNT % VALUE_COUNT];
    snprintf(words, sizeof words, "%s data.acts=%s data.grads=%s data.weights=%s seed=%d %s", MODELS[i / (VALUE_COUNT * VALUE_COUNT)], acts,
             grads, VALUES[(i / 2 + i / VALUE_COUNT) % VALUE_COUNT], 100 + i, more);
    check_case(words, right);
  }
}

/* Each module's exact result: end to end of what the modules before it stored. */
static struct keeper keep_exact(const struct sf_catalog *catalog) {
  if (catalog->logical.mode == SF_MODE_ISOLATED) return keep_run(catalog, true, SF_PERTURB_NONE, 0);
  struct sf_case alone = catalog->logical;
  alone.mode = SF_MODE_ISOLATED;
  struct sf_catalog *modules;
  assert_int_equal(sf_catalog_create(&modules, &alone), SF_OK);
  struct keeper keeper = {.fp64 = true};
  struct tensors tensors = {.run = &keeper};
  const struct sf_given stored = {tensor_given, no_parts, &tensors};
  const struct sf_reference_options options = {.fp64 = true, .gemm = &loops_table, .given = &stored};
  const struct sf_reference_sink sink = {.ctx = &keeper, .emit = keeper_emit};
  assert_int_equal(sf_reference_run(modules, &options, &sink), SF_OK);
  sf_catalog_destroy(modules);
  free(tensors.values);
  return keeper;
}

static void test_noise_isolated_fp32_lets_the_exact_result_pass(void **state) {
  (void)state;
  check(ISOLATED, keep_exact, 1);
}

static void test_noise_end_to_end_fp32_lets_the_exact_result_pass_in_every_step(void **state) {
  (void)state;
  check(E2E "train.steps=2", keep_exact, 5);
}

static void test_noise_lets_another_order_of_sums_pass(void **state) {
  (void)state;
  check(ISOLATED, keep_largest_first, 5);
  check(ISOLATED, keep_largest_last, 5);
  check(E2E "train.steps=2", keep_largest_first, 5);
}

/* Long sums of which one term makes up most: a tensor's error then hangs on a few elements and on where that term stands. */
static void test_noise_isolated_fp32_lets_long_sums_with_a_large_term_pass(void **state) {
  (void)state;
  for (int seed = 1; seed <= SF_ROUNDS(16); seed++) {
    char words[1024];
    snprintf(words, sizeof words,
             "model.hidden=16 model.seq=4 model.ffn=1000 data.acts=outliers data.grads=outliers data.weights=outliers seed=%d " ISOLATED,
             seed);
    check_case(words, keep_largest_first);
    check_case(words, keep_largest_last);
  }
}

enum { QK_TOKENS = 20, QK_HEADS = 4, QK_WIDTH = 8, QKV_WIDTH = (QK_HEADS + 2) * QK_WIDTH };

/* wgrad of qk_layernorm.q.bias as two tp ranks have it: each the sum over its half of the heads, then both added. */
static void sum_queries_of_two_ranks(float *out, const float *g) {
  float sums[2][QK_WIDTH] = {{0}};
  for (int64_t t = 0; t < QK_TOKENS; t++)
    for (int64_t head = 0; head < QK_HEADS; head++)
      for (int64_t j = 0; j < QK_WIDTH; j++) sums[head / 2][j] += g[t * QKV_WIDTH + head * QK_WIDTH + j];
  for (int64_t j = 0; j < QK_WIDTH; j++) out[j] = sums[0][j] + sums[1][j];
}

/* Sums over rows are chains of additions as products are: beside a large term all that is added after it is rounded at its size. With the
 * first seed two large terms make one rank's sum exceed 1 and the whole sum stay below; orders that leave such terms where chance puts them
 * show a third of that rank's error. */
static void test_noise_isolated_fp32_lets_sums_over_rows_with_large_terms_pass(void **state) {
  (void)state;
  static const int seeds[] = {785058495, 1, 2, 3, 4, 5, 6, 7, 8};
  for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
    char words[1024];
    snprintf(words, sizeof words,
             "model.layers=1 model.hidden=8 model.heads=4 model.kv_heads=1 model.head_dim=8 model.ffn=8 model.vocab=8 model.vocab_padded=8 "
             "model.seq=20 model.norm=layer model.positions=learned model.qk_norm=on model.sinks=on train.steps=2 data.grads=outliers "
             "seed=%d " ISOLATED,
             seeds[i]);
    struct sf_catalog *catalog = catalog_of(words);
    struct sf_expectations *expectations = NULL;
    assert_int_equal(sf_expectations_create(&expectations, catalog, &loops_table), SF_OK);
    assert_int_equal(sf_expectations_raise(expectations, SF_LEVEL_FULL, NULL, 0), SF_OK);
    const struct sf_trace_id read = {
        .step = 1, .pass = SF_PASS_BWD, .kind = SF_KIND_ACT_GRAD, .subject = sf_catalog_module(catalog, SF_MODULE_CORE_ATTENTION, 0)};
    const struct sf_trace_id id = {
        .step = 1, .pass = SF_PASS_BWD, .kind = SF_KIND_WGRAD, .subject = sf_catalog_param(catalog, SF_MODULE_QK_NORM, 0, 2)};
    float g[QK_TOKENS * QKV_WIDTH], sums[QK_WIDTH];
    const struct sf_fill how = sf_fill_for_trace(catalog, read);
    sf_fill_range(g, &how, 0, QK_TOKENS * QKV_WIDTH);
    sum_queries_of_two_ranks(sums, g);
    struct sf_comparison comparison;
    double scratch;
    sf_compare(&comparison, sf_expectations_find(expectations, id), sums, SF_LEVEL_FULL, &scratch);
    if (comparison.flagged) print_message("seed %d: %.2f times its noise\n", seeds[i], comparison.fro_ratio);
    assert_true(comparison.error > 0);
    assert_false(comparison.flagged);
    sf_expectations_destroy(expectations);
    sf_catalog_destroy(catalog);
  }
}

static void assert_tokens_equal(const char *words, int64_t count) {
  int32_t tokens[128];
  assert_in_range(count, 1, sizeof tokens / sizeof *tokens);
  struct sf_catalog *catalog = catalog_of(words);
  sf_data_microbatch(tokens, NULL, NULL, &catalog->logical, 0, 0);
  for (int64_t i = 1; i < count; i++) assert_int_equal(tokens[i], tokens[0]);
  sf_catalog_destroy(catalog);
}

enum { GELU_TOKENS = 6, GELU_WIDTH = 8, GELU_COUNT = GELU_TOKENS * GELU_WIDTH };

static void given(float *out, const struct sf_catalog *catalog, enum sf_kind kind, enum sf_module_class cls) {
  const struct sf_trace_id id = {
      .pass = kind == SF_KIND_ACT ? SF_PASS_FWD : SF_PASS_BWD, .kind = kind, .subject = sf_catalog_module(catalog, cls, 0)};
  const struct sf_fill how = sf_fill_for_trace(catalog, id);
  sf_fill_range(out, &how, 0, GELU_COUNT);
}

static int flagged_at_activation(const struct sf_expectations *expectations, const struct sf_catalog *catalog, enum sf_kind kind,
                                 const float *values) {
  const struct sf_trace_id id = {.pass = kind == SF_KIND_ACT ? SF_PASS_FWD : SF_PASS_BWD,
                                 .kind = kind,
                                 .subject = sf_catalog_module(catalog, SF_MODULE_ACTIVATION, 0)};
  struct sf_comparison comparison;
  double scratch[GELU_TOKENS];
  sf_compare(&comparison, sf_expectations_find(expectations, id), values, SF_LEVEL_FULL, scratch);
  if (comparison.flagged)
    print_message("kind %d: tensor %.2f, row %.2f times its noise\n", (int)kind, comparison.fro_ratio, comparison.row_ratio);
  return comparison.flagged;
}

/* Most kernels have Phi as (1 + erf) / 2, which the left tail shows: erf rounds near -1. */
static void test_noise_isolated_fp32_lets_gelu_by_erf_pass(void **state) {
  (void)state;
  int flagged = 0;
  for (int seed = 1; seed <= 200; seed++) {
    char words[1024];
    snprintf(
        words, sizeof words,
        "model.layers=1 model.hidden=8 model.heads=2 model.kv_heads=2 model.head_dim=4 model.ffn=8 model.vocab=8 model.vocab_padded=8 "
        "model.seq=6 train.microbatches=1 train.microbatch_size=1 model.activation=gelu data.acts=sparse data.grads=sparse "
        "seed=%d " ISOLATED,
        seed);
    struct sf_catalog *catalog = catalog_of(words);
    struct sf_expectations *expectations = NULL;
    assert_int_equal(sf_expectations_create(&expectations, catalog, &loops_table), SF_OK);
    assert_int_equal(sf_expectations_raise(expectations, SF_LEVEL_FULL, NULL, 0), SF_OK);
    float x[GELU_COUNT], g[GELU_COUNT], y[GELU_COUNT], x_grad[GELU_COUNT];
    given(x, catalog, SF_KIND_ACT, SF_MODULE_LINEAR_FC1);
    given(g, catalog, SF_KIND_ACT_GRAD, SF_MODULE_LINEAR_FC2);
    for (int i = 0; i < GELU_COUNT; i++) {
      const float below = 0.5f * (1.0f + erff(x[i] * 0.70710678f)), density = 0.39894228f * expf(-0.5f * x[i] * x[i]);
      y[i] = x[i] * below;
      x_grad[i] = g[i] * (below + x[i] * density);
    }
    flagged += flagged_at_activation(expectations, catalog, SF_KIND_ACT, y);
    flagged += flagged_at_activation(expectations, catalog, SF_KIND_ACT_GRAD, x_grad);
    sf_expectations_destroy(expectations);
    sf_catalog_destroy(catalog);
  }
  assert_int_equal(flagged, 0);
}

/* Where all tokens are the same, the terms of a gradient's sum over tokens are alike and so are their roundings, whatever the order: a
 * chain of additions drifts, and only sums in parts show how far. Of the first 64 seeds 17 have equal tokens; without such parts 16 of
 * them are flagged, with them one (54). */
static void test_noise_end_to_end_fp32_lets_sums_of_equal_terms_pass(void **state) {
  (void)state;
  static const int seeds[] = {1, 6, 16, 17, 20, 23};
  for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++) {
    char words[1024];
    snprintf(words, sizeof words,
             "model.layers=1 model.hidden=8 model.heads=2 model.head_dim=4 model.kv_heads=1 model.ffn=8 model.vocab=2 model.vocab_padded=8 "
             "model.seq=64 model.positions=none model.bias=on train.microbatch_size=2 data.tokens=few seed=%d " E2E,
             seeds[i]);
    assert_tokens_equal(words, 128);
    check_case(words, keep_exact);
  }
}

/* --- steps that follow another ------------------------------------------------------------------------------------ */

#define NO_MEMORY "model.layers=1 model.hidden=8 model.ffn=8 model.seq=4 train.steps=3 train.beta1_milli=900 train.beta2_milli=0 seed=4 "

/* Runs that part are compared by what the reference makes of the candidate's own weights. */
static void test_judge_after_references_part_judges_every_step(void **state) {
  (void)state;
  for (int step = 0; step <= 2; step++) {
    struct trial t;
    trial_open(&t, NO_MEMORY E2E);
    struct tensor *tensor = tensor_at(&t.candidate, SF_KIND_ACT, sf_catalog_module(t.catalog, SF_MODULE_LINEAR_FC1, 0), step, 0);
    for (int64_t i = 0; i < tensor->count && step > 0; i++) tensor->values[i] *= 1.01f;
    trial_judge(&t);
    if (step > 0)
      assert_first_at(&t, SF_CLASS_TOLERANCE, tensor);
    else
      assert_passes(&t);
    trial_close(&t);
  }
}

/* Gradients of 1e20: their squares are infinite or not, depending on the order of products. */
static void test_judge_gradients_whose_squares_overflow_leaves_updates_unchecked(void **state) {
  (void)state;
  struct trial t;
  trial_open(&t, "model.layers=8 model.hidden=8 model.ffn=8 model.seq=8 model.tied=on data.weights=sparse train.steps=2 seed=3 " E2E);
  assert_int_equal(sf_expectations_overflow_step(t.expectations), 0);
  trial_judge(&t);
  assert_passes(&t);
  int32_t unchecked = 0;
  for (int32_t i = 0; i < t.judgement.result_count; i++) {
    const struct sf_tensor_result *result = &t.judgement.results[i];
    if (result->id.kind != SF_KIND_PARAM_DELTA) continue;
    assert_false(result->judged);
    unchecked++;
  }
  assert_int_equal(unchecked, 2 * t.catalog->param_count);
  trial_close(&t);
  trial_open(&t, SMALL_MODEL E2E);
  assert_int_equal(sf_expectations_overflow_step(t.expectations), INT32_MAX);
  trial_close(&t);
}

/* --- losses of a router over tokens that are all alike ------------------------------------------------------------- */

static double squared_log_sum(const float *logits, int64_t experts) {
  double sum = 0;
  for (int64_t e = 0; e < experts; e++) sum += exp((double)logits[e]);
  return log(sum) * log(sum);
}

/* Terms that are all alike are rounded alike: a chain of 512 in fp32 is off by tens of units of the last place, and so is every
 * candidate's, by another number of them. What they are compared with is the sum itself. */
static void test_plain_run_z_loss_of_tokens_alike_is_their_mean(void **state) {
  (void)state;
  for (int seed = 0; seed < 8; seed++) {
    char words[512];
    snprintf(words, sizeof words,
             "mode=e2e seed=%d model.seq=64 model.vocab=2 train.microbatch_size=8 data.tokens=few moe.experts=6 moe.z_micro=1000", seed);
    struct sf_catalog *catalog = catalog_of(words);
    struct keeper run = keep_run(catalog, false, SF_PERTURB_NONE, 0);
    struct sf_trace_id id = {.pass = SF_PASS_FWD, .kind = SF_KIND_ACT, .subject = sf_catalog_module(catalog, SF_MODULE_ROUTER, 0)};
    const struct kept *logits = keeper_find(&run, id);
    id.subject = sf_catalog_module(catalog, SF_MODULE_AUX_LOSS, 0);
    const struct kept *loss = keeper_find(&run, id);
    assert_true(logits != NULL && loss != NULL);
    double sum = 0;
    for (int64_t r = 0; r < logits->shape.rows; r++) {
      float row[6];
      for (int64_t e = 0; e < 6; e++) row[e] = (float)logits->values[r * 6 + e];
      sum += squared_log_sum(row, 6);
    }
    const double mean = sum / (double)logits->shape.rows;
    if (!(fabs(loss->values[0] - mean) <= 0x1p-21 * mean)) fail_msg("seed %d: %.9g, the mean is %.9g", seed, loss->values[0], mean);
    keeper_destroy(&run);
    sf_catalog_destroy(catalog);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_noise_isolated_fp32_lets_the_exact_result_pass),
      cmocka_unit_test(test_noise_end_to_end_fp32_lets_the_exact_result_pass_in_every_step),
      cmocka_unit_test(test_noise_lets_another_order_of_sums_pass),
      cmocka_unit_test(test_noise_isolated_fp32_lets_long_sums_with_a_large_term_pass),
      cmocka_unit_test(test_noise_isolated_fp32_lets_sums_over_rows_with_large_terms_pass),
      cmocka_unit_test(test_noise_isolated_fp32_lets_gelu_by_erf_pass),
      cmocka_unit_test(test_noise_end_to_end_fp32_lets_sums_of_equal_terms_pass),
      cmocka_unit_test(test_judge_after_references_part_judges_every_step),
      cmocka_unit_test(test_judge_gradients_whose_squares_overflow_leaves_updates_unchecked),
      cmocka_unit_test(test_plain_run_z_loss_of_tokens_alike_is_their_mean),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
