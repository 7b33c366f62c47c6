#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "harness/tensor/consistent.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS_MAX = 512 };

static struct sf_case make_case(void) {
  struct sf_case c;
  sf_case_init(&c);
  c.seed = 5;
  c.model.layers = 2;
  c.model.vocab = 27;
  c.model.vocab_padded = 32;
  c.model.seq = 32;
  c.model.tied = true;
  c.train.microbatches = 5;
  c.train.microbatch_size = 2;
  c.train.steps = 2;
  return c;
}

static struct sf_catalog *make_catalog(const struct sf_case *c) {
  struct sf_catalog *catalog = NULL;
  assert_int_equal(sf_catalog_create(&catalog, c), SF_OK);
  return catalog;
}

static void test_fill_for_param_distinct_params_and_steps_differ_in_key(void **state) {
  (void)state;
  const struct sf_case c = make_case();
  struct sf_catalog *catalog = make_catalog(&c);
  for (int32_t a = 0; a < 2 * catalog->param_count; a++) {
    for (int32_t b = 0; b < a; b++) {
      const struct sf_fill x = sf_fill_for_param(catalog, a / 2, a % 2), y = sf_fill_for_param(catalog, b / 2, b % 2);
      assert_true(x.key != y.key);
    }
  }
  const int32_t norm = sf_catalog_param(catalog, SF_MODULE_INPUT_LAYERNORM, 1, 0);
  const struct sf_fill fill = sf_fill_for_param(catalog, norm, 0);
  assert_true(fill.scale == 0.125f && fill.offset == 1.0f);
  assert_int_equal(fill.dtype, SF_F32);
  sf_catalog_destroy(catalog);
}

static void test_fill_for_param_layout_and_more_layers_keep_the_key(void **state) {
  (void)state;
  struct sf_case c = make_case();
  struct sf_catalog *small = make_catalog(&c);
  c.model.layers = 4;
  c.layout.dp = 5;
  struct sf_catalog *large = make_catalog(&c);
  const int32_t a = sf_catalog_param(small, SF_MODULE_LINEAR_FC2, 1, 0), b = sf_catalog_param(large, SF_MODULE_LINEAR_FC2, 1, 0);
  assert_true(sf_fill_for_param(small, a, 0).key == sf_fill_for_param(large, b, 0).key);
  sf_catalog_destroy(small);
  sf_catalog_destroy(large);
}

static void test_fill_for_trace_repeated_tensors_share_a_key(void **state) {
  (void)state;
  struct sf_case c = make_case();
  c.precision.compute = SF_BF16;
  c.data.grads = SF_DIST_UNIFORM;
  struct sf_catalog *catalog = make_catalog(&c);
  const struct sf_trace_id act = {.microbatch = 1, .kind = SF_KIND_ACT, .subject = sf_catalog_module(catalog, SF_MODULE_MLP_BDA, 0)};
  struct sf_trace_id again = act, received = act, other = act, grad = act;
  again.pass = SF_PASS_RECOMPUTE;
  received.call = 1;
  other.microbatch = 2;
  grad.kind = SF_KIND_ACT_GRAD;
  grad.pass = SF_PASS_BWD;
  assert_true(sf_fill_for_trace(catalog, act).key == sf_fill_for_trace(catalog, again).key);
  assert_true(sf_fill_for_trace(catalog, act).key == sf_fill_for_trace(catalog, received).key);
  assert_true(sf_fill_for_trace(catalog, act).key != sf_fill_for_trace(catalog, other).key);
  assert_true(sf_fill_for_trace(catalog, act).key != sf_fill_for_trace(catalog, grad).key);
  const struct sf_fill fill = sf_fill_for_trace(catalog, grad);
  assert_true(fill.scale == 0x1p-6f && sf_fill_for_trace(catalog, act).scale == 1.0f);
  assert_int_equal(fill.dist, SF_DIST_UNIFORM);
  assert_int_equal(fill.dtype, SF_BF16);
  const int32_t embedding = sf_catalog_param(catalog, SF_MODULE_WORD_EMBEDDINGS, -1, 0);
  const struct sf_trace_id use = {.kind = SF_KIND_WGRAD, .pass = SF_PASS_BWD, .subject = embedding},
                           head = {.kind = SF_KIND_WGRAD, .pass = SF_PASS_BWD, .subject = embedding, .call = 1};
  assert_true(sf_fill_for_trace(catalog, use).key != sf_fill_for_trace(catalog, head).key);
  assert_int_equal(sf_fill_for_trace(catalog, use).dtype, SF_F32);
  sf_catalog_destroy(catalog);
}

static void test_fill_for_trace_offset_is_small_before_differences(void **state) {
  (void)state;
  enum { COUNT = 256 };
  static const struct {
    enum sf_kind kind;
    enum sf_module_class module;
    double mean; /* in spreads */
  } rows[] = {{SF_KIND_ACT, SF_MODULE_LINEAR_QKV, 1},       {SF_KIND_ACT, SF_MODULE_LINEAR_PROJ, 8},
              {SF_KIND_ACT, SF_MODULE_LINEAR_FC1, 8},       {SF_KIND_ACT_GRAD, SF_MODULE_LINEAR_PROJ, 1},
              {SF_KIND_ACT_GRAD, SF_MODULE_LINEAR_FC1, 1},  {SF_KIND_ACT_GRAD, SF_MODULE_OUTPUT_LAYER, 1},
              {SF_KIND_ACT_GRAD, SF_MODULE_ACTIVATION, 8},  {SF_KIND_ACT_GRAD, SF_MODULE_MLP_BDA, 8}};
  struct sf_case c = make_case();
  c.data.acts = c.data.grads = SF_DIST_OFFSET;
  struct sf_catalog *catalog = make_catalog(&c);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    float values[COUNT];
    const int32_t layer = rows[i].module == SF_MODULE_OUTPUT_LAYER ? -1 : 0;
    const struct sf_trace_id id = {.pass = rows[i].kind == SF_KIND_ACT ? SF_PASS_FWD : SF_PASS_BWD,
                                   .kind = (uint8_t)rows[i].kind,
                                   .subject = sf_catalog_module(catalog, rows[i].module, layer)};
    const struct sf_fill fill = sf_fill_for_trace(catalog, id);
    double sum = 0;
    sf_fill_range(values, &fill, 0, COUNT);
    for (int k = 0; k < COUNT; k++) sum += (double)values[k];
    assert_true(fabs(sum / COUNT / (double)fill.scale - rows[i].mean) < 0.3);
  }
  sf_catalog_destroy(catalog);
}

/* Rows as described in consistent.h: 128 to 255 of either sign, one column of 256 more in about a quarter. */
static void check_shifted_rows(const float *values, int64_t rows, int64_t cols) {
  int64_t above = 0, peaked = 0;
  for (int64_t r = 0; r < rows; r++) {
    const float *row = values + r * cols;
    int64_t peaks = 0;
    float low = row[0];
    for (int64_t j = 1; j < cols; j++) low = row[j] < low ? row[j] : low;
    for (int64_t j = 0; j < cols; j++) peaks += row[j] > low + 200;
    const float size = low > 0 ? low : -low;
    assert_true(peaks <= 1 && size > 120 && size < 261);
    above += low > 0;
    peaked += peaks;
  }
  assert_in_range(above, rows * 3 / 8, rows * 5 / 8);
  assert_in_range(peaked, rows / 8, rows * 3 / 8);
}

static void test_fill_for_trace_offset_logits_are_large_and_differ_by_row(void **state) {
  (void)state;
  static const enum sf_dtype formats[] = {SF_F32, SF_BF16, SF_F16};
  static const enum sf_module_class heads[] = {SF_MODULE_OUTPUT_LAYER, SF_MODULE_MTP_OUTPUT_LAYER};
  for (int i = 0; i < 6; i++) {
    struct sf_case c = make_case();
    c.data.acts = SF_DIST_OFFSET;
    c.model.mtp_depth = 1;
    c.precision.compute = formats[i / 2];
    struct sf_catalog *catalog = make_catalog(&c);
    const struct sf_trace_id id = {.kind = SF_KIND_ACT,
                                   .subject = sf_catalog_module(catalog, heads[i % 2], i % 2 ? (int32_t)c.model.layers : -1)};
    const struct sf_fill fill = sf_fill_for_trace(catalog, id);
    enum { ROWS = 256 };
    const int64_t cols = c.model.vocab_padded, count = ROWS * cols, part = cols + 3;
    float *whole = test_calloc((size_t)count, sizeof *whole), *parts = test_calloc((size_t)count, sizeof *parts);
    sf_fill_range(whole, &fill, 0, count);
    check_shifted_rows(whole, ROWS, cols);
    for (int64_t at = 0; at < count; at += part) sf_fill_range(parts + at, &fill, at, count - at < part ? count - at : part);
    assert_memory_equal(whole, parts, (size_t)count * sizeof *whole);
    test_free(whole);
    test_free(parts);
    sf_catalog_destroy(catalog);
  }
}

/* How many numbers of a tensor that is given are infinite. */
static int64_t count_infinite(const struct sf_catalog *catalog, struct sf_trace_id id) {
  static float values[1 << 16];
  struct sf_trace_spec spec;
  assert_true(sf_trace_spec(&spec, catalog, id));
  const int64_t count = spec.shape.rows * spec.shape.cols;
  const struct sf_fill fill = sf_fill_for_trace(catalog, id);
  int64_t infinite = 0;
  assert_in_range(count, 1, sizeof values / sizeof values[0]);
  sf_fill_range(values, &fill, 0, count);
  for (int64_t i = 0; i < count; i++) infinite += isinf(values[i]);
  return infinite;
}

/* One number of all weight gradients and of what experts begin their backward with: in a dense model of a parameter, of experts' half of
 * the time. */
static void test_fill_for_trace_overflow_is_one_number_of_a_step_before_the_last(void **state) {
  (void)state;
  enum { SEEDS = 40 };
  for (int64_t experts = 0; experts <= 2; experts += 2) {
    int of_experts = 0;
    for (int64_t seed = 0; seed < SEEDS; seed++) {
      struct sf_case c = make_case();
      c.seed = seed, c.train.steps = 2, c.train.frozen = SF_FROZEN_QKV, c.precision.loss_scale_log2 = 8, c.data.overflow = true;
      c.moe.experts = experts, c.moe.topk = experts > 0 ? 2 : 1;
      struct sf_catalog *catalog = make_catalog(&c);
      int64_t infinite = 0, later = 0;
      for (int64_t m = 0; m < 2 * c.train.microbatches; m++) {
        struct sf_trace_id id = {.step = (uint16_t)(m % 2), .microbatch = (uint16_t)(m / 2), .pass = SF_PASS_BWD, .kind = SF_KIND_WGRAD};
        for (id.subject = 0; id.subject < catalog->param_count; id.subject++) {
          const enum sf_module_class cls = catalog->modules[catalog->params[id.subject].module].cls;
          if (catalog->params[id.subject].frozen || cls == SF_MODULE_EXPERTS_FC1 || cls == SF_MODULE_EXPERTS_FC2) continue;
          *(id.step == 0 ? &infinite : &later) += count_infinite(catalog, id);
        }
        id.kind = SF_KIND_ACT_GRAD;
        for (int32_t layer = 0; layer < (experts > 0 ? c.model.layers : 0); layer++) {
          id.subject = sf_catalog_module(catalog, SF_MODULE_COMBINE, layer);
          const int64_t here = count_infinite(catalog, id);
          *(id.step == 0 ? &infinite : &later) += here;
          of_experts += here > 0;
        }
      }
      assert_int_equal(infinite, 1);
      assert_int_equal(later, 0);
      sf_catalog_destroy(catalog);
    }
    assert_in_range(of_experts, experts > 0 ? SEEDS / 4 : 0, experts > 0 ? SEEDS * 7 / 8 : 0);
  }
}

static double mean_of_fill(const struct sf_fill *fill) {
  enum { COUNT = 256 };
  float values[COUNT];
  double sum = 0;
  sf_fill_range(values, fill, 0, COUNT);
  for (int k = 0; k < COUNT; k++) sum += (double)values[k];
  return sum / COUNT;
}

static void test_fill_for_memory_differs_by_microbatch_and_is_normal_end_to_end(void **state) {
  (void)state;
  struct sf_case c = make_case();
  c.model.memory_seq = 5;
  c.data.acts = SF_DIST_OFFSET;
  c.mode = SF_MODE_ISOLATED;
  struct sf_catalog *catalog = make_catalog(&c);
  const struct sf_fill first = sf_fill_for_memory(catalog, 0, 0);
  assert_true(first.key != sf_fill_for_memory(catalog, 0, 1).key && first.key != sf_fill_for_memory(catalog, 1, 0).key);
  assert_int_equal(first.dtype, sf_case_storage(&c));
  assert_true(fabs(mean_of_fill(&first) - 8) < 0.3);
  sf_catalog_destroy(catalog);
  c.mode = SF_MODE_E2E;
  catalog = make_catalog(&c);
  const struct sf_fill free_running = sf_fill_for_memory(catalog, 0, 0);
  assert_true(fabs(mean_of_fill(&free_running)) < 0.3);
  sf_catalog_destroy(catalog);
}

static int64_t kept_tokens(const float *mask, int64_t count) {
  int64_t kept = 0;
  for (int64_t i = 0; i < count; i++) {
    assert_true(mask[i] == 0.0f || mask[i] == 1.0f);
    kept += mask[i] == 1.0f;
  }
  return kept;
}

static void test_data_step_tokens_equals_the_sum_of_masks(void **state) {
  (void)state;
  float mask[TOKENS_MAX];
  struct sf_case c = make_case();
  for (c.data.mask = 0; c.data.mask <= SF_MASK_SPARSE; c.data.mask++) {
    for (c.seed = 0; c.seed < 50; c.seed++) {
      int64_t sum = 0;
      for (int64_t m = 0; m < c.train.microbatches; m++) {
        sf_data_microbatch(NULL, NULL, mask, &c, 1, m);
        const int64_t kept = kept_tokens(mask, 64);
        assert_true(kept >= 1);
        if (c.data.mask == SF_MASK_FULL) assert_int_equal(kept, 64);
        if (c.data.mask == SF_MASK_SPARSE) assert_true(kept <= 3);
        sum += kept;
      }
      assert_int_equal(sf_data_step_tokens(&c, 1), sum);
    }
  }
}

static void test_data_microbatch_uneven_neighbours_keep_different_shares(void **state) {
  (void)state;
  float mask[TOKENS_MAX];
  struct sf_case c = make_case();
  c.data.mask = SF_MASK_UNEVEN;
  c.model.seq = 256;
  int64_t least = 512, most = 0;
  for (c.seed = 0; c.seed < 20; c.seed++) {
    int64_t before = -1000;
    for (int64_t m = 0; m < 5; m++) {
      sf_data_microbatch(NULL, NULL, mask, &c, 0, m);
      const int64_t kept = kept_tokens(mask, 512);
      assert_true(llabs(kept - before) > 50);
      before = kept;
      least = kept < least ? kept : least;
      most = kept > most ? kept : most;
    }
  }
  assert_true(least > 32 && least < 80);
  assert_int_equal(most, 512);
}

static bool is_edge(int64_t token, const struct sf_model *model) {
  if (token == model->vocab - 1) return true;
  for (int64_t parts = 2; parts <= 8; parts *= 2) {
    const int64_t length = model->vocab_padded / parts;
    if (token / length < parts && (token % length == 0 || token % length == length - 1)) return true;
  }
  return false;
}

static void test_data_microbatch_tokens_are_in_the_vocabulary_and_on_edges(void **state) {
  (void)state;
  int32_t tokens[TOKENS_MAX], labels[TOKENS_MAX];
  struct sf_case c = make_case();
  for (c.data.tokens = 0; c.data.tokens <= SF_TOKENS_FEW; c.data.tokens++) {
    bool seen[32] = {0};
    int distinct = 0, differ = 0;
    for (int64_t m = 0; m < 5; m++) {
      sf_data_microbatch(tokens, labels, NULL, &c, 0, m);
      for (int i = 0; i < 64; i++) {
        assert_in_range(tokens[i], 0, 26);
        assert_in_range(labels[i], 0, 26);
        if (c.data.tokens == SF_TOKENS_EDGE) assert_true(is_edge(tokens[i], &c.model) && is_edge(labels[i], &c.model));
        distinct += !seen[tokens[i]];
        seen[tokens[i]] = true;
        differ += tokens[i] != labels[i];
      }
    }
    const int least[] = {24, 10, 2}, most[] = {27, 16, 3};
    if (distinct < least[c.data.tokens] || distinct > most[c.data.tokens]) fail_msg("tokens %d: %d distinct", (int)c.data.tokens, distinct);
    assert_true(differ > 100);
  }
}

static void test_data_microbatch_layout_and_null_outputs_change_nothing(void **state) {
  (void)state;
  int32_t tokens[TOKENS_MAX], again[TOKENS_MAX], other[TOKENS_MAX];
  struct sf_case c = make_case();
  sf_data_microbatch(tokens, NULL, NULL, &c, 1, 3);
  sf_data_microbatch(NULL, NULL, NULL, &c, 1, 3);
  c.layout.tp = 2;
  c.layout.dp = 5;
  float mask[TOKENS_MAX];
  sf_data_microbatch(again, other, mask, &c, 1, 3);
  assert_memory_equal(tokens, again, 64 * sizeof tokens[0]);
  sf_data_microbatch(other, NULL, NULL, &c, 1, 2);
  assert_memory_not_equal(tokens, other, 64 * sizeof tokens[0]);
  sf_data_microbatch(other, NULL, NULL, &c, 0, 3);
  assert_memory_not_equal(tokens, other, 64 * sizeof tokens[0]);
}

/* Another seed, step, microbatch or module: another mask. A part of it is the same whoever draws it, and shares are those asked for. */
static void test_dropout_mask_elements_have_random_access_and_the_share(void **state) {
  (void)state;
  enum { COUNT = 20000 };
  static float whole[COUNT], part[COUNT];
  struct sf_case c = make_case();
  for (int64_t milli = 0; milli <= 999; milli += 111) {
    c.train.dropout_milli = milli;
    struct sf_catalog *catalog = make_catalog(&c);
    const struct sf_dropout dropout = sf_dropout_for_module(catalog, sf_catalog_module(catalog, SF_MODULE_MLP_BDA, 1), 1, 2);
    assert_true(dropout.factor == 1000.0f / (float)(1000 - milli));
    sf_dropout_mask(whole, &dropout, 0, COUNT);
    sf_dropout_mask(part, &dropout, 777, COUNT - 777);
    assert_memory_equal(part, whole + 777, (COUNT - 777) * sizeof *part);
    double kept = 0;
    for (int64_t i = 0; i < COUNT; i++) kept += (double)whole[i];
    const double share = 1 - (double)milli / 1000, spread = sqrt(COUNT * share * (1 - share));
    if (!(fabs(kept - COUNT * share) <= 4 * spread)) fail_msg("milli %lld: %.0f kept", (long long)milli, kept);
    sf_catalog_destroy(catalog);
  }
}

static void test_dropout_for_module_each_use_has_its_own_key(void **state) {
  (void)state;
  struct sf_case c = make_case();
  struct sf_catalog *catalog = make_catalog(&c);
  uint64_t keys[16];
  int count = 0;
  for (int32_t layer = 0; layer < 2; layer++)
    for (int mlp = 0; mlp < 2; mlp++)
      for (int64_t place = 0; place < 4; place++) {
        const int32_t module = sf_catalog_module(catalog, mlp ? SF_MODULE_MLP_BDA : SF_MODULE_SELF_ATTN_BDA, layer);
        keys[count] = sf_dropout_for_module(catalog, module, place / 2, place % 2).key;
        for (int i = 0; i < count; i++) assert_true(keys[i] != keys[count]);
        count++;
      }
  c.seed++;
  struct sf_catalog *other = make_catalog(&c);
  assert_true(sf_dropout_for_module(other, sf_catalog_module(other, SF_MODULE_SELF_ATTN_BDA, 0), 0, 0).key != keys[0]);
  sf_catalog_destroy(other);
  sf_catalog_destroy(catalog);
}

/* Documents begin where they say, one after the other; padding tokens are alone; lengths and cuts take every value. */
static void test_data_documents_partition_each_sequence(void **state) {
  (void)state;
  enum { SEQ = 12, BATCH = 3, PADDING = 5 };
  int32_t first[SEQ * BATCH], again[SEQ * BATCH];
  struct sf_case c = make_case();
  c.model.seq = SEQ, c.train.microbatch_size = BATCH, c.data.documents = 3, c.data.padding = PADDING;
  bool cut_seen[SEQ] = {false}, length_seen[SEQ + 1] = {false};
  for (int64_t step = 0; step < 3; step++)
    for (int64_t microbatch = 0; microbatch < 40; microbatch++) {
      sf_data_documents(first, &c, step, microbatch);
      sf_data_documents(again, &c, step, microbatch);
      assert_memory_equal(first, again, sizeof first);
      for (int64_t sequence = 0; sequence < BATCH; sequence++) {
        const int64_t length = sf_data_sequence_length(&c, step, microbatch, sequence);
        const int32_t *of = first + sequence * SEQ;
        int documents = 1;
        assert_in_range(length, SEQ - PADDING, SEQ);
        length_seen[length] = true;
        assert_int_equal(of[0], 0);
        for (int32_t i = 1; i < SEQ; i++) {
          assert_true(of[i] == i || (i < length && of[i] == of[i - 1]));
          if (of[i] != i || i >= length) continue;
          cut_seen[i] = true;
          documents++;
        }
        assert_in_range(documents, 1, 3);
      }
    }
  for (int i = 1; i < SEQ; i++) assert_true(cut_seen[i]);
  for (int i = SEQ - PADDING; i <= SEQ; i++) assert_true(length_seen[i]);
}

static void test_data_documents_absent_or_longer_than_the_sequence(void **state) {
  (void)state;
  int32_t first[6];
  struct sf_case c = make_case();
  c.model.seq = 3, c.train.microbatch_size = 2, c.data.documents = 1, c.data.padding = 0;
  assert_false(sf_data_has_documents(&c));
  sf_data_documents(first, &c, 0, 0);
  for (int i = 0; i < 6; i++) assert_int_equal(first[i], 0);
  c.data.padding = 1000;
  assert_true(sf_data_has_documents(&c));
  for (int64_t m = 0; m < 50; m++) assert_in_range(sf_data_sequence_length(&c, 0, m, 1), 1, 3);
  c.model.seq = 1, c.data.documents = 64;
  sf_data_documents(first, &c, 0, 0);
  assert_int_equal(first[0], 0);
  assert_int_equal(first[1], 0);
}

/* Whatever the mask, padding is never kept and something always is; the step's count is that of the masks. */
static void test_data_microbatch_mask_keeps_no_padding(void **state) {
  (void)state;
  enum { SEQ = 7, BATCH = 4 };
  float mask[SEQ * BATCH];
  struct sf_case c = make_case();
  c.model.seq = SEQ, c.train.microbatch_size = BATCH, c.data.padding = 9, c.train.microbatches = 5;
  for (c.data.mask = SF_MASK_FULL; c.data.mask <= SF_MASK_SPARSE; c.data.mask++) {
    int64_t of_step = 0, dropped = 0;
    for (int64_t microbatch = 0; microbatch < 5; microbatch++) {
      int64_t kept = 0;
      sf_data_microbatch(NULL, NULL, mask, &c, 1, microbatch);
      for (int64_t i = 0; i < SEQ * BATCH; i++) {
        const bool padding = i / BATCH >= sf_data_sequence_length(&c, 1, microbatch, i % BATCH);
        if (padding) assert_true(mask[i] == 0.0f);
        dropped += padding;
        if (c.data.mask == SF_MASK_FULL && !padding) assert_true(mask[i] == 1.0f);
        kept += mask[i] > 0.0f;
      }
      assert_in_range(kept, 1, SEQ * BATCH);
      of_step += kept;
    }
    assert_true(dropped > 0);
    assert_int_equal(sf_data_step_tokens(&c, 1), of_step);
  }
}

/* What lies ahead is what sf_data_microbatch has there, unless the document ends before. */
static void test_data_ahead_takes_later_tokens_of_the_document(void **state) {
  (void)state;
  enum { SEQ = 9, BATCH = 2, COUNT = SEQ * BATCH };
  int32_t tokens[COUNT], labels[COUNT], first[COUNT], tokens_ahead[COUNT], labels_ahead[COUNT];
  float mask[COUNT], mask_ahead[COUNT];
  struct sf_case c = make_case();
  c.model.seq = SEQ, c.train.microbatch_size = BATCH, c.train.microbatches = 6, c.data.documents = 3, c.data.padding = 3,
  c.data.mask = SF_MASK_UNEVEN;
  for (int64_t depth = 0; depth < 2; depth++) {
    int64_t kept = 0, within_count = 0;
    for (int64_t m = 0; m < c.train.microbatches; m++) {
      sf_data_microbatch(tokens, labels, mask, &c, 1, m);
      sf_data_documents(first, &c, 1, m);
      sf_data_ahead(tokens_ahead, labels_ahead, mask_ahead, &c, 1, m, depth);
      for (int64_t i = 0; i < COUNT; i++) {
        const int64_t position = i / BATCH, sequence = i % BATCH, to = position + depth + 1;
        const int32_t *of = first + sequence * SEQ;
        const bool within = to < SEQ && of[to] == of[position];
        assert_int_equal(tokens_ahead[i], within ? tokens[to * BATCH + sequence] : 0);
        assert_int_equal(labels_ahead[i], within ? labels[to * BATCH + sequence] : 0);
        assert_true(mask_ahead[i] == (within ? mask[to * BATCH + sequence] : 0.0f));
        kept += mask_ahead[i] > 0.0f;
        within_count += within;
      }
    }
    assert_int_equal(sf_data_step_tokens_ahead(&c, 1, depth), kept);
    assert_true(kept > 0 && kept < within_count);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_dropout_mask_elements_have_random_access_and_the_share),
      cmocka_unit_test(test_dropout_for_module_each_use_has_its_own_key),
      cmocka_unit_test(test_data_documents_partition_each_sequence),
      cmocka_unit_test(test_data_ahead_takes_later_tokens_of_the_document),
      cmocka_unit_test(test_data_documents_absent_or_longer_than_the_sequence),
      cmocka_unit_test(test_data_microbatch_mask_keeps_no_padding),
      cmocka_unit_test(test_fill_for_param_distinct_params_and_steps_differ_in_key),
      cmocka_unit_test(test_fill_for_param_layout_and_more_layers_keep_the_key),
      cmocka_unit_test(test_fill_for_trace_repeated_tensors_share_a_key),
      cmocka_unit_test(test_fill_for_trace_offset_is_small_before_differences),
      cmocka_unit_test(test_fill_for_trace_offset_logits_are_large_and_differ_by_row),
      cmocka_unit_test(test_fill_for_trace_overflow_is_one_number_of_a_step_before_the_last),
      cmocka_unit_test(test_fill_for_memory_differs_by_microbatch_and_is_normal_end_to_end),
      cmocka_unit_test(test_data_step_tokens_equals_the_sum_of_masks),
      cmocka_unit_test(test_data_microbatch_uneven_neighbours_keep_different_shares),
      cmocka_unit_test(test_data_microbatch_tokens_are_in_the_vocabulary_and_on_edges),
      cmocka_unit_test(test_data_microbatch_layout_and_null_outputs_change_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
