/* Suppositions of the diagnosis: candidates are runs of the reference that make one mistake, which the diagnosis has to name. */
#include "tests/rounds.h"
#include "tests/unit/oracles/candidate.h"

#include "oracles/diagnose/diagnose.h"

/* Takes the tensors of another run, of the same model, as the candidate's. */
static void take_run(struct trial *t, const struct sf_catalog *catalog, const struct sf_supposed *supposed) {
  struct candidate other = {.catalog = catalog};
  const struct sf_reference_options options = {.gemm = &loops_table, .supposed = supposed};
  const struct sf_reference_sink sink = {.ctx = &other, .emit = candidate_emit};
  assert_int_equal(sf_reference_run(catalog, &options, &sink), SF_OK);
  assert_int_equal(other.count, t->candidate.count);
  for (int32_t i = 0; i < other.count; i++)
    memcpy(t->candidate.tensors[i].values, other.tensors[i].values, (size_t)other.tensors[i].count * sizeof(float));
  candidate_destroy(&other);
}

/* Judges what the layout's ranks have, and diagnoses the first finding by the whole tensor. */
static void diagnose_first(struct trial *t, const struct sf_case *layout, struct sf_diagnosis *out) {
  trial_cut(t, layout);
  trial_judge_parts(t, layout, BY_TENSOR, true);
  assert_string_equal(sf_verdict_name(t->judgement.verdict), "FINDING");
  const struct sf_finding *first = &t->judgement.findings[0];
  for (int32_t i = 0; i < t->candidate.count; i++) {
    const struct tensor *tensor = &t->candidate.tensors[i];
    if (sf_trace_key(tensor->id) != sf_trace_key(first->id)) continue;
    const struct sf_diagnosis_shard whole = {.rank = 0, .map = sf_shard_map_whole(tensor->spec.shape), .data = tensor->values};
    assert_int_equal(sf_diagnose_finding(out, NULL, t->collector, first, &whole, 1), SF_OK);
    return;
  }
  fail_msg("the finding is about no tensor");
}

static void expect(struct trial *t, const struct sf_case *layout, enum sf_diagnosis_class cls, const char *text) {
  struct sf_diagnosis diagnosis;
  diagnose_first(t, layout, &diagnosis);
  if (diagnosis.cls != cls || strstr(diagnosis.text, text) == NULL)
    fail_msg("%s in place of %s: %s (%s)", sf_diagnosis_class_name(diagnosis.cls), text, diagnosis.text,
             sf_finding_class_name(t->judgement.findings[0].cls));
}

/* The module that reads the field is blamed, and the field is named. */
static void other_setting(const char *mode, const char *words, const char *other_words, const char *text) {
  char own[640], other[640];
  struct trial t;
  snprintf(own, sizeof own, SMALL_MODEL "%s%s", mode, words);
  snprintf(other, sizeof other, SMALL_MODEL "%s%s", mode, other_words);
  struct sf_catalog *catalog = catalog_of(other);
  trial_open(&t, own);
  take_run(&t, catalog, NULL);
  expect(&t, &t.catalog->logical, SF_DIAGNOSIS_OTHER_SETTING, text);
  trial_close(&t);
  sf_catalog_destroy(catalog);
}

static void test_field_that_has_no_effect_is_named(void **state) {
  (void)state;
  other_setting(ISOLATED, "model.window=3 ", "", "the value is as if model.window were 0: here it is 3;");
  other_setting(ISOLATED, "model.window=3 ", "model.window=4 ", "as if model.window were 4: here it is 3;");
  other_setting(ISOLATED, "model.activation=relu2 ", "", "as if model.activation were gelu: here it is relu2;");
  other_setting(E2E, "model.activation=relu2 ", "", "as if model.activation were gelu: here it is relu2;");
  other_setting(E2E, "data.documents=3 ", "", "as if data.documents were 1: here it is 3;");
  other_setting(ISOLATED, "train.label_smoothing_milli=100 ", "", "as if train.label_smoothing_milli were 0: here it is 100;");
}

/* On tp x cp ranks, with sequence parallelism where tp > 1. */
static void supposed_on_ranks(int64_t tp, int64_t cp, const char *words, const struct sf_supposed *supposed, enum sf_diagnosis_class cls,
                              const char *text) {
  char own[640];
  struct trial t;
  snprintf(own, sizeof own, SMALL_MODEL ISOLATED "%s", words);
  trial_open(&t, own);
  struct sf_case layout = t.catalog->logical;
  layout.layout.tp = tp;
  layout.layout.sp = tp > 1;
  layout.layout.cp = cp;
  take_run(&t, t.catalog, supposed);
  expect(&t, &layout, cls, text);
  trial_close(&t);
}

static void supposed(const char *words, const struct sf_supposed *supposed, enum sf_diagnosis_class cls, const char *text) {
  supposed_on_ranks(1, 1, words, supposed, cls, text);
}

static void test_data_of_another_moment_are_named(void **state) {
  (void)state;
  const struct sf_supposed labels = {.parts = 1 << SF_DATA_LABELS}, mask = {.parts = 1 << SF_DATA_MASK},
                           documents = {.parts = 1 << SF_DATA_DOCUMENTS}, dropout = {.parts = 1 << SF_DATA_DROPOUT};
  supposed("", &labels, SF_DIAGNOSIS_STALE, "as if the labels were those of microbatch 0;");
  supposed("", &mask, SF_DIAGNOSIS_STALE, "as if the loss mask was that of microbatch 0;");
  supposed("data.documents=3 ", &documents, SF_DIAGNOSIS_STALE, "as if the documents were those of microbatch 0;");
  supposed("train.dropout_milli=500 ", &dropout, SF_DIAGNOSIS_STALE, "as if the dropout mask was that of microbatch 0;");
}

static void test_weights_of_another_step_are_named(void **state) {
  (void)state;
  const struct sf_supposed weights = {.parts = 1 << SF_DATA_WEIGHTS};
  supposed("train.steps=2 train.microbatches=1 ", &weights, SF_DIAGNOSIS_STALE, "as if the weights were those of step 0;");
}

/* Of one formula after the other, in a model in which it matters. */
static void test_formula_that_is_taken_for_the_right_one_is_named(void **state) {
  (void)state;
  static const struct {
    enum sf_slip slip;
    const char *words, *text;
  } slips[] = {
      {SF_SLIP_ROUTER_RAW, "moe.experts=4 moe.topk=2 moe.router=sigmoid ", "not divided by their sum;"},
      {SF_SLIP_SCORES_RAW, "", "the scores were not divided by the root"},
      {SF_SLIP_SCORES_BY_SIZE, "", "the scores were divided by the head size"},
      {SF_SLIP_INTERLEAVED, "model.positions=rotary model.head_dim=8 ", "neighbouring columns as pairs"},
      {SF_SLIP_NEXT_POSITION, "model.positions=rotary model.head_dim=8 ", "counted from 1;"},
      {SF_SLIP_GROUPS_BY_TURN, "", "query heads took the heads of keys and values by turns"},
      {SF_SLIP_FIRST_GROUP, "", "all query heads took the first head"},
      {SF_SLIP_NO_ROTATION, "model.positions=rotary model.head_dim=8 ", "nothing was rotated"},
      {SF_SLIP_ROTATION_BACKWARD, "model.positions=rotary model.head_dim=8 ", "the rotation went the other way"},
      {SF_SLIP_LAST_HEAD_ALONE, "", "its last query head alone"},
      {SF_SLIP_FIRST_HEAD_ALONE, "", "its first query head alone"},
      {SF_SLIP_SINK_NOT_SUMMED, "model.sinks=on ", "left out of the sum of exponentials"},
      {SF_SLIP_CAUSAL_MEMORY, "model.memory_seq=8 ", "up to their own position alone"},
      {SF_SLIP_NO_MEAN, "model.norm=layer ", "did not subtract the mean"},
      {SF_SLIP_MEAN_TOO, "model.norm=rms ", "subtracted the mean too"},
      {SF_SLIP_NEXT_KEY, "", "one key beyond their own"},
      {SF_SLIP_ALL_KEYS, "", "queries saw all keys"},
      {SF_SLIP_NOT_OWN_KEY, "", "did not see their own key"},
      {SF_SLIP_ROUTER_SHARED, "moe.experts=4 moe.topk=2 ", "were divided by their sum"},
      {SF_SLIP_ROUTER_ALL, "moe.experts=4 moe.topk=2 moe.router=sigmoid ", "by the sum of all experts' scores"},
      {SF_SLIP_NEXT_EXPERT, "moe.experts=4 moe.topk=2 ", "the expert beside theirs"},
      {SF_SLIP_SLOTS_IN_TURN, "moe.experts=4 moe.topk=2 ", "modulo the number of tokens"},
      {SF_SLIP_LOAD_BY_BLOCKS, "moe.experts=4 moe.topk=2 moe.scope=sequence moe.capacity_milli=800 ", "sequence by sequence when the load"},
      {SF_SLIP_ONE_CHOICE_COUNTS, "moe.experts=4 moe.topk=2 moe.aux_micro=10000 ", "one of the experts that a token chose"},
      {SF_SLIP_RAW_SHARES, "moe.experts=4 moe.topk=2 moe.aux_micro=10000 moe.router=sigmoid ", "not divided by their sum"},
      {SF_SLIP_PADDING_COUNTS, "moe.experts=4 moe.topk=2 moe.aux_micro=10000 data.padding=3 ", "padding had gradients"},
      {SF_SLIP_SMOOTHING_UNPADDED, "train.label_smoothing_milli=500 ", "without its padding"},
      {SF_SLIP_NO_FP8, "precision.compute=fp8 ", "nothing was cast to fp8"},
      {SF_SLIP_CAPACITY_DOWN, "moe.experts=4 moe.topk=2 moe.capacity_milli=700 ", "rounded down"},
      {SF_SLIP_DIVISOR_FIXED, "moe.experts=4 moe.topk=2 moe.router=sigmoid ", "were a constant"},
      {SF_SLIP_SCALE_OF_E5M2, "precision.compute=fp8 ", "the largest number of E5M2"},
      {SF_SLIP_AMAX_OF_LAST, "precision.compute=fp8 precision.fp8_recipe=delayed train.steps=2 train.microbatches=4 ",
       "its last microbatch"},
      {SF_SLIP_GRADS_E4M3, "precision.compute=fp8 ", "gradients were cast to E4M3"},
      {SF_SLIP_ALL_E5M2, "precision.compute=fp8 ", "inputs and weights were cast to E5M2"},
      {SF_SLIP_DROPOUT_BARE, "train.dropout_milli=500 model.activation=gelu ", "not scaled up"},
      {SF_SLIP_GELU_QUICK, "", "1.702"},
      {SF_SLIP_GELU_TANH, "", "GELU were computed by its approximation"},
      {SF_SLIP_EPSILON_NONE, "", "the norm had no epsilon"},
      {SF_SLIP_EPSILON_SMALL, "", "epsilon were 1e-6"},
      {SF_SLIP_SAMPLE_VARIANCE, "", "divided by n - 1;"},
      {SF_SLIP_SMOOTHING_ALL, "train.label_smoothing_milli=500 ", "over all columns"},
  };
  assert_int_equal(sizeof slips / sizeof *slips, SF_SLIP_COUNT - 1);
  for (size_t i = 0; i < sizeof slips / sizeof *slips; i += SF_STRIDE) {
    const struct sf_supposed slip = {.slip = slips[i].slip};
    supposed(slips[i].words, &slip, SF_DIAGNOSIS_OTHER_FORMULA, slips[i].text);
  }
}

/* Of positions 0 to 7 the first rank of cp has the outer chunks. */
static const int32_t of_cp[8] = {0, 0, 1, 1, 1, 1, 0, 0};

static void test_what_a_rank_takes_from_its_own_tokens_is_named(void **state) {
  (void)state;
  static const struct {
    uint32_t within;
    const char *words, *text;
  } mistakes[] = {
      {1 << SF_WITHIN_KEYS, "", "queries saw the keys of their own rank of cp alone;"},
      {1 << SF_WITHIN_CAPACITY | 1 << SF_WITHIN_LOAD, "moe.experts=4 moe.topk=2 moe.capacity_milli=1000 ",
       "each rank of cp gave experts room by its own tokens"},
      {1 << SF_WITHIN_LOAD, "moe.experts=4 moe.topk=2 moe.capacity_milli=500 ",
       "each rank of cp counted by itself how full the experts are;"},
      {1 << SF_WITHIN_CAPACITY, "moe.experts=4 moe.topk=2 moe.capacity_milli=1500 ", "the number of tokens of one rank of cp"},
  };
  for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
    const struct sf_supposed own = {.within = mistakes[i].within, .set_of = of_cp, .sets = 2};
    supposed_on_ranks(1, 2, mistakes[i].words, &own, i == 0 ? SF_DIAGNOSIS_MISSING_TERM : SF_DIAGNOSIS_MISSING_REDUCTION, mistakes[i].text);
  }
}

static void test_positions_that_a_rank_counts_are_named(void **state) {
  (void)state;
  static const int32_t on_cp[16] = {0, 1, 0, 1, 2, 3, 2, 3, 0, 1, 0, 1, 2, 3, 2, 3},
                       next_on_cp[16] = {0, 1, 4, 5, 6, 7, 2, 3, 0, 1, 4, 5, 6, 7, 2, 3},
                       by_sequence[16] = {0, 2, 4, 6, 0, 2, 4, 6, 1, 3, 5, 7, 1, 3, 5, 7};
  const struct sf_supposed counted = {.positions = on_cp}, consecutive = {.positions = next_on_cp}, mixed = {.positions = by_sequence};
  supposed_on_ranks(1, 2, "model.positions=learned ", &counted, SF_DIAGNOSIS_OTHER_FORMULA,
                    "positions were counted on each rank of cp from 0;");
  supposed_on_ranks(1, 2, "model.positions=rotary model.head_dim=8 ", &consecutive, SF_DIAGNOSIS_OTHER_FORMULA,
                    "each rank of cp had consecutive positions;");
  supposed("model.positions=learned ", &mixed, SF_DIAGNOSIS_OTHER_FORMULA, "tokens were counted sequence by sequence");
}

/* Of 16 columns. */
static const int32_t of_columns[16] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};

static void test_largest_logit_of_a_ranks_columns_is_named(void **state) {
  (void)state;
  const struct sf_supposed own = {.within = 1 << SF_WITHIN_MAX, .set_of = of_columns, .sets = 2};
  supposed_on_ranks(2, 1, "", &own, SF_DIAGNOSIS_MISSING_REDUCTION, "relative to the largest one of its own columns;");
}

static void test_data_in_another_order_are_named(void **state) {
  (void)state;
  static const int32_t consecutive[8] = {0, 1, 4, 5, 6, 7, 2, 3}, ahead[8] = {1, 2, 3, 4, 5, 6, 7, 0};
  const struct sf_supposed mask = {.parts = 1 << SF_DATA_MASK, .order = consecutive},
                           labels = {.parts = 1 << SF_DATA_LABELS, .order = ahead};
  supposed_on_ranks(1, 2, "", &mask, SF_DIAGNOSIS_PERMUTED, "the loss mask came cut for cp as if its ranks had consecutive positions;");
  supposed("", &labels, SF_DIAGNOSIS_SHIFTED, "the labels came one position ahead;");
}

enum { VALUES_MAX = 4096 };

/* What a module reads: its input, or a gradient, with the rows of the position behind each. */
static void test_input_that_comes_a_position_early_is_named(void **state) {
  (void)state;
  struct sf_catalog *catalog = catalog_of(SMALL_MODEL ISOLATED);
  const int32_t qkv = sf_catalog_module(catalog, SF_MODULE_LINEAR_QKV, 0);
  const struct sf_trace_id id = {.pass = SF_PASS_FWD, .kind = SF_KIND_ACT, .subject = qkv};
  const struct sf_fill fill = sf_fill_for_trace(catalog, id);
  enum { ROWS = 16, COLS = 32, BATCH = 2 };
  float own[ROWS * COLS], ahead[ROWS * COLS];
  sf_fill_range(own, &fill, 0, ROWS * COLS);
  for (int i = 0; i < ROWS * COLS; i++) ahead[i] = own[(i + BATCH * COLS) % (ROWS * COLS)];
  const struct sf_supposed reads = {.reads = true, .kind = SF_KIND_ACT, .module = qkv, .from = qkv, .values = ahead};
  supposed("", &reads, SF_DIAGNOSIS_SHIFTED, "the output of self_attention.linear_qkv came one position ahead;");
  sf_catalog_destroy(catalog);
}

static void test_scale_of_scores_is_fitted(void **state) {
  (void)state;
  const struct sf_supposed scaled = {.score_times = 1.5};
  supposed("", &scaled, SF_DIAGNOSIS_SCALE, "as if the scores of attention were scaled by 1.5");
}

static void test_weight_that_is_not_applied_is_named(void **state) {
  (void)state;
  struct sf_catalog *catalog = catalog_of(SMALL_MODEL ISOLATED);
  float ones[VALUES_MAX];
  for (int i = 0; i < VALUES_MAX; i++) ones[i] = 1;
  const struct sf_supposed weight = {.weight = ones, .param = sf_catalog_param(catalog, SF_MODULE_INPUT_LAYERNORM, 1, 0)};
  supposed("", &weight, SF_DIAGNOSIS_MISSING_TERM, "input_layernorm.weight were 1;");
  sf_catalog_destroy(catalog);
}

/* Of the fused projection the keys alone. */
static void test_mistake_in_a_part_is_named_with_the_part(void **state) {
  (void)state;
  const struct sf_supposed unturned = {.slip = SF_SLIP_NO_ROTATION};
  struct trial t;
  trial_open(&t, SMALL_MODEL ISOLATED "model.positions=rotary model.head_dim=8 ");
  const struct tensor *rotary = module_tensor(&t.candidate, SF_KIND_ACT, SF_MODULE_ROTARY, 0);
  take_run(&t, t.catalog, &unturned);
  const int64_t cols = rotary->spec.shape.cols, head_dim = 8, group = 4 * head_dim; /* two queries, key, value */
  for (int32_t i = 0; i < t.candidate.count; i++) {
    struct tensor *tensor = &t.candidate.tensors[i];
    const struct sf_expected *e = sf_expectations_find(t.expectations, tensor->id);
    for (int64_t k = 0; k < tensor->count; k++) {
      const bool is_key = tensor == rotary && k % cols % group / head_dim == 2;
      if (!is_key) tensor->values[k] = e->x[k];
    }
  }
  expect(&t, &t.catalog->logical, SF_DIAGNOSIS_OTHER_FORMULA, "nothing was rotated by its position; only the key part is wrong;");
  trial_close(&t);
}

static void test_first_group_of_a_rank_is_named(void **state) {
  (void)state;
  const struct sf_supposed first = {.slip = SF_SLIP_FIRST_GROUP, .head_parts = 2};
  supposed_on_ranks(2, 1, "model.heads=8 model.kv_heads=4 ", &first, SF_DIAGNOSIS_OTHER_FORMULA,
                    "all query heads of a rank took its first head of keys and values;");
}

static void test_documents_of_the_first_sequence_are_named(void **state) {
  (void)state;
  const struct sf_supposed first = {.of_first_sequence = true};
  supposed("data.documents=3 ", &first, SF_DIAGNOSIS_NEIGHBOUR, "documents and padding of the first sequence were those of every one");
}

static void test_gradient_that_is_left_out_or_taken_twice_is_named(void **state) {
  (void)state;
  struct sf_catalog *catalog = catalog_of(SMALL_MODEL ISOLATED);
  const int32_t norm = sf_catalog_module(catalog, SF_MODULE_PRE_MLP_LAYERNORM, 0);
  struct sf_supposed reads = {.reads = true, .kind = SF_KIND_ACT_GRAD, .module = norm, .from = norm, .times = 0};
  supposed("", &reads, SF_DIAGNOSIS_MISSING_TERM, "as if the gradient of pre_mlp_layernorm were left out;");
  reads.times = 2;
  supposed("", &reads, SF_DIAGNOSIS_REPEATED_TERM, "as if the gradient of pre_mlp_layernorm were taken twice;");
  sf_catalog_destroy(catalog);
}

static void test_module_that_another_one_stands_for_is_named(void **state) {
  (void)state;
  struct sf_catalog *catalog = catalog_of(SMALL_MODEL ISOLATED);
  const int32_t attention = sf_catalog_module(catalog, SF_MODULE_SELF_ATTN_BDA, 1), mlp = sf_catalog_module(catalog, SF_MODULE_MLP_BDA, 0);
  const struct sf_supposed reads = {.reads = true, .kind = SF_KIND_ACT, .module = attention, .from = mlp, .times = 1};
  supposed("", &reads, SF_DIAGNOSIS_OTHER_SETTING,
           "as if model.parallel_residual were on: here it is off, or as if the output of layer 0's mlp_bda stood in place of that of "
           "self_attn_bda;");
  sf_catalog_destroy(catalog);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_field_that_has_no_effect_is_named),
      cmocka_unit_test(test_data_of_another_moment_are_named),
      cmocka_unit_test(test_weights_of_another_step_are_named),
      cmocka_unit_test(test_formula_that_is_taken_for_the_right_one_is_named),
      cmocka_unit_test(test_what_a_rank_takes_from_its_own_tokens_is_named),
      cmocka_unit_test(test_positions_that_a_rank_counts_are_named),
      cmocka_unit_test(test_largest_logit_of_a_ranks_columns_is_named),
      cmocka_unit_test(test_data_in_another_order_are_named),
      cmocka_unit_test(test_input_that_comes_a_position_early_is_named),
      cmocka_unit_test(test_scale_of_scores_is_fitted),
      cmocka_unit_test(test_weight_that_is_not_applied_is_named),
      cmocka_unit_test(test_mistake_in_a_part_is_named_with_the_part),
      cmocka_unit_test(test_first_group_of_a_rank_is_named),
      cmocka_unit_test(test_documents_of_the_first_sequence_are_named),
      cmocka_unit_test(test_gradient_that_is_left_out_or_taken_twice_is_named),
      cmocka_unit_test(test_module_that_another_one_stands_for_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
