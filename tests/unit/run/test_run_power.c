#include "tests/unit/run/run_fixture.h"

#include "harness/run/power/power.h"
#include "tests/rounds.h"

#define TIED_ZERO "model.layers=2 layout.pp=2 layout.dp=2 layout.zero=1 model.tied=true train.microbatches=2"

static void test_power_is_minimal_asks_for_ranks_layers_and_fields(void **state) {
  (void)state;
  static const struct {
    const char *plant;
    bool expected;
    const char *assignments, *key;
  } rows[] = {
      {"attn-dq-wrong", true, "", NULL},
      {"attn-dq-wrong", true, "model.bias=true", NULL},
      {"attn-dq-wrong", false, "model.layers=2", NULL},
      {"attn-dq-wrong", false, "model.heads=2 layout.tp=2", NULL},
      {"rowparallel-bias-xtp", true, CASE_TP2, NULL},
      {"rowparallel-bias-xtp", false, "model.heads=2 model.kv_heads=2 layout.tp=2", NULL},
      {"rowparallel-bias-xtp", false, "model.bias=true layout.dp=2 train.microbatches=2", NULL},
      {"sp-final-ln-nosync", true, CASE_TP2 " layout.sp=true", NULL},
      {"sp-final-ln-nosync", false, CASE_TP2, NULL},
      {"pp-uneven-offset", true, "model.layers=3 layout.pp=2 layout.pp_last_layers=1", NULL},
      {"pp-uneven-offset", false, "model.layers=3 layout.pp=2 layout.pp_last_layers=2", NULL},
      {"pp-uneven-offset", false, "model.layers=4 layout.pp=2 layout.pp_last_layers=1", NULL},
      {"group-order-crosstalk", true, "model.layers=2 layout.pp=2 layout.dp=2 model.tied=true train.microbatches=2", NULL},
      {"group-order-crosstalk", false, "model.layers=2 layout.pp=2 layout.cp=2 model.tied=true train.microbatches=2", NULL},
      {"reduce-before-wgrad", true, "layout.cp=2 layout.overlap=true model.seq=8", NULL},
      {"reduce-before-wgrad", false, "layout.cp=2 model.seq=8", NULL},
      {"canary-deadlock", true, CASE_TP2, NULL},
      {"canary-deadlock", false, "", NULL},
      {"shared-buf-overzero", true, "layout.dp=2 layout.zero=1 train.microbatches=2", "exact/param/embedding.word_embeddings"},
      {"shared-buf-overzero", false, TIED_ZERO, "exact/param/embedding.word_embeddings"},
      {"shared-buf-overzero", true, TIED_ZERO, "conflict/param/embedding.word_embeddings"},
      {"shared-buf-overzero", false, TIED_ZERO " model.layers=4", "conflict/param/embedding.word_embeddings"},
      {"rng-sp-same-seed", true, CASE_TP2 " layout.sp=true train.dropout_milli=500", "exact/act/self_attn_bda"},
      {"rng-sp-same-seed", false, CASE_TP2 " layout.sp=true train.dropout_milli=500", "tolerance/act/self_attn_bda"},
      {"xattn-qkv-wrong-tp-group", true, CASE_TP2 " layout.dp=2 train.microbatches=2 model.memory_seq=1",
       "conflict/act_grad/cross_attention.linear_q"},
      {"xattn-qkv-wrong-tp-group", false, CASE_TP2 " layout.dp=2 train.microbatches=2 model.memory_seq=2",
       "conflict/act_grad/cross_attention.linear_q"},
      {"xattn-qkv-wrong-tp-group", true, CASE_TP2 " layout.sp=true layout.dp=2 train.microbatches=2 model.memory_seq=2",
       "exact/act/cross_attention.linear_q"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const struct sf_case c = case_make(rows[i].assignments);
    const char *key = rows[i].key != NULL ? rows[i].key : "";
    if (sf_power_is_minimal(sf_plant_find(rows[i].plant), &c, key) != rows[i].expected)
      fail_msg("%s: %s", rows[i].plant, rows[i].assignments);
  }
}

/* A case with what a row names: ranks that it says nothing about may be of any axis. */
static struct sf_case smallest_of(const struct sf_plant_minimal *minimal) {
  struct sf_case c;
  char fields[256], *rest = NULL;
  sf_case_init(&c);
  c.model.layers = minimal->layers;
  snprintf(fields, sizeof fields, "%s", minimal->fields);
  for (char *word = strtok_r(fields, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
    char *value = strchr(word, '=');
    assert_non_null(value);
    *value = '\0';
    assert_int_equal(sf_case_field_parse(&c, word, value + 1, NULL), SF_OK);
  }
  *(c.layout.tp > 1 ? &c.layout.dp : &c.layout.tp) *= minimal->ranks / sf_case_ranks(&c);
  return c;
}

/* Every row of the plant table can be met: its fields exist and fit its ranks. */
static void test_power_is_minimal_every_plants_fields_can_be_read(void **state) {
  (void)state;
  for (int fault = 1; fault < SF_FAULT_COUNT; fault++) {
    const struct sf_plant *plant = sf_plant_of((enum sf_fault)fault);
    const struct sf_plant_minimal *const both[] = {&plant->minimal, &plant->also};
    for (int i = 0; i < 2 && both[i]->ranks > 0; i++) {
      struct sf_case c = smallest_of(both[i]);
      const char *key = both[i]->key ? both[i]->key : "";
      if (!sf_power_is_minimal(plant, &c, key)) fail_msg("%s", plant->id);
      c.model.layers++;
      assert_false(sf_power_is_minimal(plant, &c, key));
    }
  }
}

static void test_power_is_diagnosed_asks_for_one_of_the_declared_classes(void **state) {
  (void)state;
  const struct sf_plant *bias = sf_plant_find("rowparallel-bias-xtp"), *scatter = sf_plant_find("embed-scatter-wrong-tp-group");
  struct sf_diagnosis d = {.cls = SF_DIAGNOSIS_REPEATED_TERM, .text = "the bias"};
  assert_true(sf_power_is_diagnosed(bias, &d));
  assert_false(sf_power_is_diagnosed(scatter, &d));
  d.cls = SF_DIAGNOSIS_PERMUTED;
  assert_false(sf_power_is_diagnosed(bias, &d));
  assert_true(sf_power_is_diagnosed(scatter, &d));
  d.cls = SF_DIAGNOSIS_NEIGHBOUR;
  assert_true(sf_power_is_diagnosed(scatter, &d));
  d.text[0] = '\0';
  assert_false(sf_power_is_diagnosed(scatter, &d));
  assert_true(sf_power_is_diagnosed(sf_plant_find("canary-crash"), &d));
}

/* What the plant table declares are names that the oracle has. */
static void test_power_every_declared_diagnosis_is_a_class(void **state) {
  (void)state;
  for (int fault = 1; fault < SF_FAULT_COUNT; fault++) {
    const struct sf_plant *plant = sf_plant_of((enum sf_fault)fault);
    struct sf_diagnosis d = {.text = "x"};
    bool named = plant->diagnosis == NULL || (!*plant->diagnosis && *plant->label);
    for (int cls = 0; cls < SF_DIAGNOSIS_COUNT; cls++) {
      d.cls = (enum sf_diagnosis_class)cls;
      named |= sf_power_is_diagnosed(plant, &d);
    }
    if (!named) fail_msg("%s", plant->id);
  }
}

static void test_power_is_localised_asks_for_kind_and_module(void **state) {
  (void)state;
  const struct sf_plant *bias = sf_plant_find("rowparallel-bias-xtp"), *crash = sf_plant_find("canary-crash");
  struct sf_outcome o;
  memset(&o, 0, sizeof o);
  o.verdict = SF_VERDICT_FINDING;
  o.kind = SF_KIND_ACT;
  o.module_class = SF_MODULE_LINEAR_PROJ;
  assert_true(sf_power_is_localised(bias, &o));
  o.module_class = SF_MODULE_LINEAR_FC2;
  assert_true(sf_power_is_localised(bias, &o));
  o.module_class = SF_MODULE_LINEAR_FC1;
  assert_false(sf_power_is_localised(bias, &o));
  o.module_class = SF_MODULE_LINEAR_PROJ;
  o.kind = SF_KIND_ACT_GRAD;
  assert_false(sf_power_is_localised(bias, &o));
  o.kind = -1;
  o.module_class = -1;
  assert_false(sf_power_is_localised(bias, &o));
  snprintf(o.label, sizeof o.label, "parallel_mlp.bwd.canary");
  assert_true(sf_power_is_localised(crash, &o));
  o.rank = -1;
  assert_false(sf_power_is_localised(crash, &o));
  o.rank = 0;
  snprintf(o.label, sizeof o.label, "elsewhere");
  assert_false(sf_power_is_localised(crash, &o));
  o.verdict = SF_VERDICT_PASS;
  o.kind = SF_KIND_ACT;
  o.module_class = SF_MODULE_LINEAR_PROJ;
  assert_false(sf_power_is_localised(bias, &o));
}

/* A search of 1,000 cases meets every planted bug's trigger some times. */
static void test_power_every_trigger_is_drawn_often_enough(void **state) {
  (void)state;
  enum { CASES = 4000, LEAST = 12 };
  struct sf_campaign_options *options = test_calloc(1, sizeof *options);
  int32_t met[SF_FAULT_COUNT] = {0};
  sf_space_init(&options->space);
  options->layouts = 4;
  options->seed = 11;
  for (int64_t i = 0; i < CASES; i++) {
    struct sf_case c;
    assert_int_equal(sf_campaign_case(&c, options, i, NULL), SF_OK);
    for (int fault = 1; fault < SF_FAULT_COUNT; fault++)
      if (met[fault] < LEAST) met[fault] += sf_plant_is_triggered(sf_plant_of((enum sf_fault)fault), &c);
  }
  for (int fault = 1; fault < SF_FAULT_COUNT; fault++)
    if (met[fault] < LEAST) fail_msg("%s: its trigger is in %d of %d cases", sf_plant_of((enum sf_fault)fault)->id, met[fault], CASES);
  test_free(options);
}

static struct sf_power_options *options_make(const char *first, const char *second, int32_t workers) {
  static struct sf_space space;
  struct sf_power_options *o = test_calloc(1, sizeof *o);
  sf_space_init(&o->campaign.space);
  o->campaign.space.max_ranks = 4;
  for (size_t i = 0; i < sizeof small_sizes / sizeof small_sizes[0]; i++)
    assert_int_equal(sf_space_set(&o->campaign.space, small_sizes[i], NULL), SF_OK);
  space = o->campaign.space;
  o->campaign.layouts = 4;
  o->campaign.seed = 3;
  o->campaign.shrink_budget = 150;
  o->campaign.pool = (struct sf_pool_options){.processes = workers, .gemm = sf_cpu_gemm_default(), .space = &space};
  o->plants[o->plant_count++] = sf_plant_find(first);
  o->plants[o->plant_count++] = sf_plant_find(second);
  o->seeds = 2;
  o->cases = 60;
  o->clean_cases = 6;
  return o;
}

static void test_power_run_same_with_one_and_three_workers(void **state) {
  (void)state;
  struct sf_power_result results[2];
  static const int32_t workers[] = {1, 3};
  for (int i = SF_FIRST_RUN; i < 2; i++) {
    struct sf_power_options *o = options_make("rowparallel-bias-xtp", "canary-mismatch", workers[i]);
    struct sf_error error = {SF_OK, ""};
    if (sf_power_run(o, &results[i], &error) != SF_OK) fail_msg("%s", error.text);
    assert_int_equal(results[i].search_count, 4);
    int64_t clean = 0;
    for (int k = 0; k < SF_POWER_PRECISIONS; k++) clean += results[i].clean[k].cases;
    assert_int_equal(clean, 6);
    test_free(o);
  }
  for (int32_t i = 0; i < 4; i++) {
    const struct sf_power_search *a = &results[SF_FIRST_RUN].searches[i], *b = &results[1].searches[i];
    assert_true(a->found_at >= 0);
    assert_true(a->localised);
    assert_true(a->minimal);
    assert_int_equal(a->seed, 3 + i % 2);
    assert_int_equal(a->found_at, b->found_at);
    assert_int_equal(a->flat_at, b->flat_at);
    assert_int_equal(a->flat_asked, a->plant->fault == SF_FAULT_ROWPARALLEL_BIAS_XTP);
    if (a->flat_asked) assert_true(a->flat_at >= 0);
    assert_string_equal(a->outcome.signature, b->outcome.signature);
    assert_string_equal(a->min_outcome.signature, b->min_outcome.signature);
    assert_int_equal(a->evaluations, b->evaluations);
  }
  for (int i = SF_FIRST_RUN; i < 2; i++) sf_power_destroy(&results[i]);
}

/* Gradients are right, and what the step makes of them is not: what the flat bound finds fault with then is there without the plant too. */
static void test_power_run_flat_bound_misses_what_is_not_in_its_tensors(void **state) {
  (void)state;
  struct sf_power_options *o = options_make("norm-replica-overcount", "attn-dq-wrong", 2);
  struct sf_power_result result;
  struct sf_error error = {SF_OK, ""};
  assert_int_equal(sf_space_set(&o->campaign.space, "mode=isolated", NULL), SF_OK);
  if (sf_power_run(o, &result, &error) != SF_OK) fail_msg("%s", error.text);
  for (int32_t i = 0; i < 4; i++) {
    const struct sf_power_search *s = &result.searches[i];
    assert_true(s->flat_asked);
    assert_true(s->found_at >= 0);
    assert_int_equal(s->flat_at >= 0, s->plant->fault == SF_FAULT_ATTN_DQ_WRONG);
  }
  assert_true(result.clean[SF_F32].flat_cases + result.clean[SF_BF16].flat_cases + result.clean[SF_F16].flat_cases > 0);
  sf_power_destroy(&result);
  test_free(o);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_power_is_minimal_asks_for_ranks_layers_and_fields),
      cmocka_unit_test(test_power_is_minimal_every_plants_fields_can_be_read),
      cmocka_unit_test(test_power_is_diagnosed_asks_for_one_of_the_declared_classes),
      cmocka_unit_test(test_power_every_declared_diagnosis_is_a_class),
      cmocka_unit_test(test_power_is_localised_asks_for_kind_and_module),
      cmocka_unit_test(test_power_every_trigger_is_drawn_often_enough),
      cmocka_unit_test(test_power_run_same_with_one_and_three_workers),
      cmocka_unit_test(test_power_run_flat_bound_misses_what_is_not_in_its_tensors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
