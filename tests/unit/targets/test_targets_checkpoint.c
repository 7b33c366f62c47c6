/* Save and load: nothing is lost or changed on the way, whatever the two layouts are, and each element travels once. */
#include "tests/rounds.h"
#include "tests/unit/targets/target_world.h"
#include "tests/comm_watch.h"

static const char *const MODELS[] = {
    "model.layers=4 model.heads=4 model.kv_heads=2 model.seq=8 model.bias=true model.norm=layer model.adapter=true model.tied=true "
    "train.microbatches=4 train.clip_milli=500 train.weight_decay_milli=10",
    "model.layers=4 model.heads=4 model.kv_heads=2 model.seq=8 model.qk_norm=true model.sinks=true train.microbatches=4 "
    "precision.compute=bf16 "
    "train.frozen=qkv",
    "model.layers=4 model.heads=4 model.kv_heads=2 model.seq=8 train.microbatches=4 precision.compute=bf16 precision.stochastic=true",
    "model.layers=4 model.heads=4 model.kv_heads=2 model.seq=8 train.microbatches=4 precision.compute=fp16 precision.loss_scale_log2=10 "
    "precision.loss_scale_window=1 model.mtp_depth=1",
    "model.layers=4 model.heads=4 model.kv_heads=4 model.seq=8 train.microbatches=4 precision.compute=fp8 precision.fp8_recipe=delayed "
    "precision.fp8_history=2 precision.fp8_bf16_first=1",
};
static const char *const LAYOUTS[] = {
    "tp=4", /* above kv_heads: ranks share keys and values */
    "tp=2 sp=true dp=2 order=dp-tp-cp-ep-pp",
    "pp=4",
    "pp=2 vpp=2 dp=2 overlap=true bucket_elements=100",
    "cp=2 tp=2",
    "dp=4 zero=1 bucket_elements=300",
    "dp=2 pp=2 zero=2 overlap=true bucket_elements=1",
    "cp=2 tp=2 zero=1 order=pp-cp-tp-dp-ep",
};
enum { MODEL_COUNT = sizeof MODELS / sizeof MODELS[0], LAYOUT_COUNT = sizeof LAYOUTS / sizeof LAYOUTS[0] };

/* "tp=2 sp=true" as fields of a group. */
static void append_layout(char *text, size_t size_bytes, const char *group, const char *layout) {
  char words[160];
  snprintf(words, sizeof words, "%s", layout);
  char *rest = NULL;
  for (char *word = strtok_r(words, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
    const size_t at = strlen(text);
    snprintf(text + at, size_bytes - at, " %s.%s", group, word);
  }
}

/* second NULL: not reloaded. */
static struct sf_case case_of(const char *model, const char *first, const char *second, const char *more) {
  char text[2048];
  snprintf(text, sizeof text, "%s %s train.steps=3", model, more);
  append_layout(text, sizeof text, "layout", first);
  if (second != NULL) {
    snprintf(text + strlen(text), sizeof text - strlen(text), " reload.after_step=2");
    append_layout(text, sizeof text, "reload", second);
  }
  return world_case(text);
}

static struct world *run_clean(const struct sf_case *c) {
  struct world *w = world_run(c, SF_FAULT_NONE);
  assert_string_equal(w->report.text, "");
  assert_int_equal(w->bad_maps, 0);
  assert_int_equal(w->conflicts, 0);
  return w;
}

/* Summands are added in the order of their arrival, which is another one. */
static bool is_sum(const struct world_tensor *tensor) {
  return memchr(tensor->seen, 2, (size_t)(tensor->shape.rows * tensor->shape.cols)) != NULL;
}

/* Tensors of `b` that `a` has otherwise or not at all. only: of a kind at one step; kind < 0: all. */
static int64_t differing(const struct world *a, const struct world *b, int kind, int step, int64_t *compared) {
  int64_t count = 0;
  for (int i = 0; i < WORLD_SLOTS; i++) {
    const struct world_tensor *tensor = &b->tensors[i];
    if (!tensor->used || is_sum(tensor)) continue;
    const struct sf_trace_id id = sf_trace_id_from_key(tensor->key);
    if (kind >= 0 && (id.kind != kind || id.step != step)) continue;
    const struct world_tensor *other = world_find(a, id);
    ++*compared;
    count += other == NULL || memcmp(other->values, tensor->values, (size_t)(tensor->shape.rows * tensor->shape.cols) * sizeof(float)) != 0;
  }
  return count;
}

static void test_reload_with_the_same_layout_changes_no_bit(void **state) {
  (void)state;
  for (int m = 0; m < MODEL_COUNT; m++)
    for (int l = 0; l < LAYOUT_COUNT; l++) {
      const char *more = l % 2 ? "mode=isolated" : "mode=e2e";
      const struct sf_case plain = case_of(MODELS[m], LAYOUTS[l], NULL, more), reloaded = case_of(MODELS[m], LAYOUTS[l], LAYOUTS[l], more);
      if (sf_case_validate(&plain, NULL) != SF_OK) continue; /* fp8 and too wide tp */
      struct world *a = run_clean(&reloaded), *b = run_clean(&plain);
      int64_t compared = 0;
      if (differing(a, b, -1, 0, &compared) != 0) fail_msg("model %d, layout %d", m, l);
      assert_true(compared > 100);
      assert_int_equal(a->tensor_count, b->tensor_count);
      world_destroy(a);
      world_destroy(b);
    }
}

static void test_reload_with_another_layout_loads_what_was_there(void **state) {
  (void)state;
  for (int m = 0; m < MODEL_COUNT; m++)
    for (int l = 0; l < LAYOUT_COUNT; l++)
      for (int k = 1; k < LAYOUT_COUNT; k++) {
        const char *second = LAYOUTS[(l + k) % LAYOUT_COUNT];
        const struct sf_case plain = case_of(MODELS[m], LAYOUTS[l], NULL, "mode=e2e"),
                             reloaded = case_of(MODELS[m], LAYOUTS[l], second, "mode=e2e");
        if ((m + l + k) % SF_STRIDE != 0 || sf_case_validate(&reloaded, NULL) != SF_OK) continue;
        struct world *a = run_clean(&reloaded), *b = run_clean(&plain);
        int64_t compared = 0;
        if (differing(a, b, SF_KIND_PARAM, 2, &compared) != 0)
          fail_msg("model %d, from layout %d to %d: weights", m, l, (l + k) % LAYOUT_COUNT);
        assert_int_equal(compared, a->catalog->param_count);
        if (differing(a, b, SF_KIND_PARAM_DELTA, 1, &compared) != 0) fail_msg("model %d, layout %d: steps before", m, l);
        world_destroy(a);
        world_destroy(b);
      }
}

/* Experts are cut over another mesh. */
static void test_reload_of_experts_loads_what_was_there(void **state) {
  (void)state;
  static const char *const model =
      "model.layers=2 model.heads=4 model.kv_heads=4 model.seq=8 model.activation=swiglu moe.experts=8 moe.topk=2 moe.shared_ffn=8 "
      "train.microbatches=4 mode=e2e";
  static const char *const layouts[] = {"dp=4 ep=2 etp=2",
                                        "dp=4",
                                        "tp=2 sp=true dp=2 ep=4",
                                        "tp=4 sp=true etp=4",
                                        "cp=2 dp=2 ep=2 order=cp-ep-dp-pp-tp",
                                        "pp=2 dp=2 ep=2",
                                        "dp=4 ep=2 zero=1 bucket_elements=100",
                                        "dp=2 tp=2 sp=true ep=2 zero=2"};
  enum { COUNT = sizeof layouts / sizeof layouts[0] };
  for (int l = 0; l < COUNT; l++)
    for (int k = 0; k < COUNT; k++) {
      const struct sf_case plain = case_of(model, layouts[l], NULL, ""), reloaded = case_of(model, layouts[l], layouts[k], "");
      struct world *a = run_clean(&reloaded), *b = run_clean(&plain);
      int64_t compared = 0;
      if (differing(a, b, l == k ? -1 : SF_KIND_PARAM, 2, &compared) != 0) fail_msg("from layout %d to %d", l, k);
      assert_true(compared >= a->catalog->param_count);
      world_destroy(a);
      world_destroy(b);
    }
}

/* --- what travels -------------------------------------------------------------------------------------------------- */

static int64_t shards_elements; /* that the first rank gives */

static void count_shards(struct sf_comm *comm, const struct sf_comm_call *call) {
  if (comm->rank == 0 && strcmp(call->label, "checkpoint.shards") == 0) shards_elements += call->count;
}

static void watched_rank_main(struct sf_comm *comm, void *arg) {
  comm_watch(comm, count_shards);
  world_rank_main(comm, arg);
}

/* The weight of each parameter, two moments of those that train, three numbers of the scaler. */
static int64_t elements_of(const struct sf_catalog *catalog) {
  int64_t elements = 3;
  for (int32_t i = 0; i < catalog->param_count; i++)
    elements += catalog->params[i].shape.rows * catalog->params[i].shape.cols * (catalog->params[i].frozen ? 1 : 3);
  return elements;
}

static void test_save_contributes_each_element_once(void **state) {
  (void)state;
  for (int m = 0; m < 3; m++)
    for (int l = 0; l < LAYOUT_COUNT; l++) {
      const struct sf_case c = case_of(MODELS[m], LAYOUTS[l], "dp=4", "mode=e2e");
      struct world *w = world_create(&c, SF_FAULT_NONE);
      const struct sf_sim_options options = {.world = (int32_t)sf_case_ranks(&c)};
      shards_elements = 0;
      assert_int_equal(sf_sim_run(w->sim, &options, watched_rank_main, w->args, &w->report), SF_OK);
      assert_string_equal(w->report.text, "");
      assert_int_equal(shards_elements, elements_of(w->catalog));
      world_destroy(w);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_reload_with_the_same_layout_changes_no_bit),
      cmocka_unit_test(test_reload_with_another_layout_loads_what_was_there),
      cmocka_unit_test(test_reload_of_experts_loads_what_was_there),
      cmocka_unit_test(test_save_contributes_each_element_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
