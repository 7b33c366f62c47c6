/* The same logical case on many layouts and schedules: everything traced is complete, well declared and equal to the one-rank run within
 * rounding. */
#include "tests/rounds.h"
#include "tests/unit/targets/target_compare.h"

static const char *const MODELS[] = {
    "model.layers=4 model.heads=4 model.kv_heads=2 model.seq=8 model.vocab=16 model.vocab_padded=16 model.bias=true model.norm=layer "
    "model.positions=rotary "
    "model.adapter=true train.microbatches=4 train.microbatch_size=2 data.mask=uneven train.clip_milli=500 mode=e2e",
    "model.layers=4 model.heads=8 model.kv_heads=1 model.seq=8 model.vocab=15 model.vocab_padded=16 model.activation=swiglu "
    "model.positions=learned model.tied=true "
    "train.microbatches=4 train.loss_norm=per_microbatch data.mask=sparse mode=e2e",
    "model.layers=4 model.heads=4 model.kv_heads=4 model.seq=8 model.positions=rotary model.activation=swiglu train.microbatches=4 "
    "train.frozen=qkv+norms+embedding "
    "model.bias=true model.tied=true mode=e2e",
    "model.layers=4 model.heads=8 model.kv_heads=2 model.seq=8 model.vocab=15 model.vocab_padded=16 model.positions=rotary "
    "model.norm=layer "
    "model.activation=relu2 model.qk_norm=true model.sinks=true model.window=3 model.parallel_residual=true model.post_norm=true "
    "train.label_smoothing_milli=100 train.microbatches=4 train.microbatch_size=2 mode=e2e",
    "model.layers=4 model.heads=8 model.kv_heads=2 model.seq=8 model.memory_seq=4 model.norm=layer model.bias=true model.positions=rotary "
    "train.dropout_milli=200 train.microbatches=4 train.microbatch_size=2 mode=e2e",
    "model.layers=4 model.heads=8 model.kv_heads=8 model.head_dim=6 model.seq=8 model.positions=rotary model.norm=layer model.bias=true "
    "model.kv_lora_rank=10 model.q_lora_rank=6 model.qk_rope_dim=2 model.sinks=true train.microbatches=4 train.microbatch_size=2 mode=e2e",
};

static const char *const LAYOUTS[] = {
    "layout.tp=2",
    "layout.tp=2 layout.sp=true",
    "layout.tp=4",
    "layout.tp=4 layout.sp=true",
    "layout.dp=4 layout.overlap=true layout.bucket_elements=100",
    "layout.dp=2 layout.bucket_elements=1",
    "layout.pp=2",
    "layout.pp=4",
    "layout.pp=3 layout.pp_first_layers=1 layout.pp_last_layers=2",
    "layout.pp=2 layout.pp_last_layers=1 layout.tp=2",
    "train.recompute_layers=1",
    "train.recompute_layers=3 layout.pp=2 layout.pp_first_layers=3",
    "train.recompute_layers=2 layout.tp=4 layout.sp=true layout.pp=2",
    "layout.tp=2 layout.sp=true layout.dp=2 layout.pp=2 layout.overlap=true",
    "layout.tp=4 layout.sp=true layout.dp=2 layout.pp=2 layout.overlap=true layout.bucket_elements=64 layout.order=pp-dp-tp-cp-ep",
    "layout.tp=2 layout.sp=true layout.dp=2 layout.order=dp-tp-cp-ep-pp",
    "layout.pp=2 layout.vpp=2",
    "layout.dp=2 layout.zero=1",
    "layout.dp=4 layout.zero=1 layout.overlap=true layout.bucket_elements=100",
    "layout.dp=2 layout.zero=2",
    "layout.dp=2 layout.zero=2 layout.overlap=true layout.bucket_elements=1",
    "layout.tp=4 layout.sp=true layout.dp=2 layout.zero=2 layout.overlap=true layout.bucket_elements=64",
    "layout.tp=2 layout.dp=2 layout.pp=2 layout.zero=1 layout.overlap=true",
    "layout.pp=2 layout.vpp=2 layout.dp=2 layout.zero=2 layout.overlap=true layout.bucket_elements=100",
    "layout.pp=2 layout.vpp=2 layout.dp=2 layout.zero=1 layout.tp=2 layout.sp=true layout.bucket_elements=100",
    "layout.pp=2 layout.vpp=2 layout.dp=2 layout.overlap=true layout.bucket_elements=100",
    "layout.pp=2 layout.vpp=2 layout.tp=2 layout.sp=true train.recompute_layers=1 layout.overlap=true",
    "layout.tp=4 layout.sp=true layout.tp_overlap=true",
    "layout.tp=2 layout.sp=true layout.tp_overlap=true layout.pp=2 train.recompute_layers=1 layout.order=pp-tp-dp-cp-ep",
    "layout.tp=2 layout.sp=true layout.tp_overlap=true layout.cp=2 layout.dp=2 layout.overlap=true",
    "layout.tp=4 train.recompute_layers=2 layout.recompute_sharded=true layout.cp=2",
    "layout.tp=2 train.recompute_layers=1 layout.recompute_sharded=true layout.pp=2 layout.vpp=2 layout.order=pp-dp-tp-cp-ep",
    "layout.cp=2",
    "layout.cp=4",
    "layout.cp=2 layout.cp_comm=allgather layout.dp=2",
    "layout.cp=4 layout.cp_comm=allgather layout.pp=2 train.recompute_layers=1",
    "layout.cp=2 layout.tp=4 layout.pp=2 layout.overlap=true layout.bucket_elements=64",
    "layout.cp=2 layout.tp=2 layout.sp=true layout.dp=2 layout.order=cp-dp-tp-pp-ep",
    "layout.cp=2 layout.cp_comm=allgather layout.tp=2 layout.sp=true layout.order=pp-ep-cp-tp-dp",
    "layout.cp=2 layout.zero=1 layout.pp=2",
    "layout.cp=2 layout.dp=2 layout.zero=2 layout.overlap=true layout.bucket_elements=100 layout.order=dp-pp-cp-ep-tp",
};
enum { MODEL_COUNT = sizeof MODELS / sizeof MODELS[0], LAYOUT_COUNT = sizeof LAYOUTS / sizeof LAYOUTS[0] };

/* Measured on these cases: at most 6.2e-6 in fp32. */
static const double LIMIT = 1e-4;

/* Cross-attention has no context parallelism. */
static bool goes_with(const char *model, const char *layout) { return !strstr(model, "memory_seq") || !strstr(layout, "layout.cp="); }

static struct sf_case joined(const char *model, const char *layout, int64_t schedule) {
  char text[4096];
  snprintf(text, sizeof text, "%s %s schedule=%d", model, layout, (int)schedule);
  return world_case(text);
}

static void check_recomputed_in_every_bit(const struct world *w) {
  int recomputed = 0;
  for (int i = 0; i < WORLD_SLOTS; i++) {
    struct sf_trace_id id = sf_trace_id_from_key(w->tensors[i].key);
    if (!w->tensors[i].used || id.pass != SF_PASS_RECOMPUTE) continue;
    id.pass = SF_PASS_FWD;
    const struct world_tensor *first = world_find(w, id);
    assert_non_null(first);
    assert_memory_equal(w->tensors[i].values, first->values, (size_t)(first->shape.rows * first->shape.cols) * sizeof(float));
    recomputed++;
  }
  assert_int_equal(recomputed > 0, w->c.train.recompute_layers > 0);
}

static void check_like_plain(const struct sf_case *c, const struct world *plain) {
  struct world *w = world_run(c, SF_FAULT_NONE);
  assert_string_equal(w->report.text, "");
  assert_int_equal(w->report.status, SF_OK);
  assert_int_equal(w->bad_maps, 0);
  assert_int_equal(w->conflicts, 0);
  check_recomputed_in_every_bit(w);
  const struct world_comparison comparison = world_compare(w, plain);
  assert_int_equal(comparison.missing, 0);
  assert_int_equal(comparison.incomplete, 0);
  assert_int_equal(comparison.extra, 0);
  assert_int_equal(comparison.not_injected, 0);
  if (!(comparison.worst <= LIMIT)) {
    char name[160];
    sf_trace_id_text(name, sizeof name, w->catalog, comparison.worst_id);
    fail_msg("%s differs by %g (tp %d sp %d cp %d dp %d pp %d schedule %d)", name, comparison.worst, (int)c->layout.tp, c->layout.sp,
             (int)c->layout.cp, (int)c->layout.dp, (int)c->layout.pp, (int)c->schedule);
  }
  world_destroy(w);
}

static void check_model(const char *model) {
  static const int64_t schedules[] = {0, 1, 7};
  const struct sf_case alone = world_case(model);
  struct world *plain = world_run(&alone, SF_FAULT_NONE);
  assert_int_equal(plain->report.status, SF_OK);
  for (int i = 0; i < LAYOUT_COUNT; i++)
    for (int k = 0; k < 3 && goes_with(model, LAYOUTS[i]); k++) {
      if ((i + k) % SF_STRIDE != 0) continue;
      const struct sf_case c = joined(model, LAYOUTS[i], schedules[k]);
      check_like_plain(&c, plain);
    }
  world_destroy(plain);
}

static void test_run_layouts_of_biased_rotary_model_equal_one_rank(void **state) {
  (void)state;
  check_model(MODELS[0]);
}
static void test_run_layouts_of_tied_mqa_model_equal_one_rank(void **state) {
  (void)state;
  check_model(MODELS[1]);
}
/* Heads are traded only where there are key/value heads enough. */
static void test_run_layouts_that_trade_heads_equal_one_rank(void **state) {
  (void)state;
  static const struct {
    int model;
    const char *layout;
  } table[] = {
      {0, "layout.cp=2"},
      {0, "layout.cp=2 layout.dp=2 layout.pp=2 train.recompute_layers=2"},
      {3, "layout.cp=2"},
      {3, "layout.cp=2 layout.dp=2 layout.overlap=true"},
      {2, "layout.cp=4 layout.order=cp-dp-tp-pp-ep"},
      {2, "layout.cp=2 layout.tp=2 layout.sp=true layout.dp=2 layout.order=pp-cp-ep-dp-tp"},
  };
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
    const struct sf_case alone = world_case(MODELS[table[i].model]);
    struct world *plain = world_run(&alone, SF_FAULT_NONE);
    for (int64_t schedule = 0; schedule < 3; schedule++) {
      char layout[160];
      snprintf(layout, sizeof layout, "%s layout.cp_comm=a2a", table[i].layout);
      const struct sf_case c = joined(MODELS[table[i].model], layout, schedule);
      check_like_plain(&c, plain);
    }
    world_destroy(plain);
  }
}
/* The last tp ranks keep fewer rows of a chunk's input than the others, or none. */
static void test_run_sharded_recomputation_of_uneven_rows_equals_one_rank(void **state) {
  (void)state;
  static const char *const table[] = {"model.seq=7 train.microbatch_size=1", "model.seq=4 train.microbatch_size=1",
                                      "model.seq=5 train.microbatch_size=3"};
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
    char model[256];
    snprintf(model, sizeof model, "model.layers=3 model.heads=6 model.kv_heads=3 model.ffn=12 model.vocab_padded=12 mode=e2e %s", table[i]);
    const struct sf_case alone = world_case(model);
    const struct sf_case c = joined(model, "layout.tp=3 train.recompute_layers=2 layout.recompute_sharded=true", (int64_t)i);
    struct world *plain = world_run(&alone, SF_FAULT_NONE);
    check_like_plain(&c, plain);
    world_destroy(plain);
  }
}
static void test_run_layouts_of_partly_frozen_model_equal_one_rank(void **state) {
  (void)state;
  check_model(MODELS[2]);
}

static void test_run_layouts_of_parallel_residual_model_equal_one_rank(void **state) {
  (void)state;
  check_model(MODELS[3]);
}

/* --- experts ------------------------------------------------------------------------------------------------------ */

static const char *const MOE_MODELS[] = {
    "model.layers=2 model.heads=4 model.kv_heads=4 model.seq=8 model.activation=swiglu moe.experts=8 moe.topk=2 train.microbatches=4 "
    "data.mask=uneven train.clip_milli=500 mode=e2e",
    "model.layers=2 model.heads=4 model.kv_heads=4 model.seq=8 moe.experts=4 moe.topk=3 moe.router=sigmoid moe.capacity_milli=700 "
    "train.microbatches=4 train.microbatch_size=2 model.tied=true mode=e2e",
    "model.layers=2 model.heads=4 model.kv_heads=4 model.seq=8 model.activation=swiglu moe.experts=4 moe.topk=2 moe.shared_ffn=12 "
    "train.microbatches=4 model.post_norm=true model.bias=true mode=e2e",
    "model.layers=2 model.heads=4 model.kv_heads=4 model.seq=8 model.mtp_depth=2 model.tied=true moe.experts=4 moe.topk=2 "
    "train.microbatches=4 mode=e2e",
    "model.layers=2 model.heads=4 model.kv_heads=4 model.seq=8 model.activation=relu2 moe.experts=4 moe.scope=microbatch "
    "moe.capacity_milli=1000 train.microbatches=4 train.loss_norm=per_microbatch train.frozen=fc1 mode=e2e",
    "model.layers=2 model.heads=4 model.kv_heads=4 model.seq=8 moe.experts=4 moe.topk=2 moe.aux_micro=1000000 moe.z_micro=100000 "
    "train.microbatches=4 train.microbatch_size=2 data.padding=5 data.mask=uneven mode=e2e",
    "model.layers=2 model.heads=4 model.kv_heads=4 model.seq=8 moe.experts=4 moe.topk=2 moe.router=sigmoid moe.scope=microbatch "
    "moe.aux_micro=1000000 train.microbatches=4 train.loss_norm=per_microbatch data.padding=3 mode=e2e",
};
static const char *const MOE_LAYOUTS[] = {
    "layout.tp=2 layout.sp=true",
    "layout.tp=2 layout.sp=true layout.etp=2",
    "layout.dp=2 layout.ep=2",
    "layout.dp=4 layout.ep=2 layout.overlap=true layout.bucket_elements=100",
    "layout.dp=4 layout.ep=2 layout.etp=2",
    "layout.tp=2 layout.sp=true layout.dp=2 layout.ep=4",
    "layout.tp=2 layout.sp=true layout.dp=2 layout.ep=2 layout.etp=2 layout.pp=2 layout.order=dp-pp-ep-tp-cp",
    "layout.tp=4 layout.sp=true layout.ep=2 layout.etp=2 layout.pp=2 train.recompute_layers=1",
    "layout.tp=2 layout.sp=true layout.dp=2 layout.ep=2 layout.order=ep-dp-tp-cp-pp train.recompute_layers=2",
    "layout.dp=2 layout.etp=2 layout.pp=2",
    "layout.dp=2 layout.ep=2 layout.zero=1",
    "layout.dp=4 layout.ep=2 layout.zero=2 layout.overlap=true layout.bucket_elements=100",
    "layout.dp=4 layout.etp=2 layout.zero=1 layout.bucket_elements=64",
    "layout.tp=2 layout.sp=true layout.dp=2 layout.ep=2 layout.etp=2 layout.zero=2",
    "layout.tp=2 layout.sp=true layout.cp=2 layout.dp=2 layout.ep=2 layout.zero=1 layout.order=ep-dp-tp-cp-pp layout.overlap=true",
    "layout.dp=2 layout.pp=2 layout.etp=2 layout.zero=2 layout.order=dp-pp-ep-tp-cp",
    "layout.cp=2 layout.ep=2",
    "layout.cp=2 layout.cp_comm=a2a layout.tp=2 layout.sp=true layout.ep=2 layout.etp=2",
    "layout.cp=2 layout.cp_comm=allgather layout.dp=2 layout.etp=2 layout.ep=2 layout.order=cp-ep-dp-pp-tp",
};
enum { MOE_MODEL_COUNT = sizeof MOE_MODELS / sizeof MOE_MODELS[0], MOE_LAYOUT_COUNT = sizeof MOE_LAYOUTS / sizeof MOE_LAYOUTS[0] };

static void check_experts(const char *more) {
  for (int m = 0; m < MOE_MODEL_COUNT; m++) {
    char model[1024];
    snprintf(model, sizeof model, "%s %s", MOE_MODELS[m], more);
    const struct sf_case alone = world_case(model);
    struct world *plain = world_run(&alone, SF_FAULT_NONE);
    assert_int_equal(plain->report.status, SF_OK);
    for (int i = 0; i < MOE_LAYOUT_COUNT; i++) {
      if ((m + i) % SF_STRIDE != 0) continue;
      const struct sf_case c = joined(model, MOE_LAYOUTS[i], i % 3);
      check_like_plain(&c, plain);
    }
    world_destroy(plain);
  }
}

static void test_run_layouts_of_experts_equal_one_rank(void **state) {
  (void)state;
  check_experts("");
}

static void test_run_isolated_experts_are_complete_and_equal(void **state) {
  (void)state;
  check_experts("mode=isolated train.steps=2");
}

static void test_run_layouts_of_cross_attention_equal_one_rank(void **state) {
  (void)state;
  check_model(MODELS[4]);
}

/* Inputs of every module are rewritten, so later steps are equal too; what is received stays what was sent. */
static void test_run_isolated_mode_is_complete_and_equal(void **state) {
  (void)state;
  for (int m = 0; m < MODEL_COUNT; m++) {
    char model[1024];
    snprintf(model, sizeof model, "%s mode=isolated train.steps=2", MODELS[m]);
    const struct sf_case alone = world_case(model);
    struct world *plain = world_run(&alone, SF_FAULT_NONE);
    for (int i = 0; i < LAYOUT_COUNT; i++) {
      if ((m + i) % SF_STRIDE != 0 || !goes_with(model, LAYOUTS[i])) continue;
      const struct sf_case c = joined(model, LAYOUTS[i], i % 2);
      check_like_plain(&c, plain);
    }
    world_destroy(plain);
  }
}

/* Warm-up, steady part and cool-down of every length, each kind of group and seam: nobody waits for ever, all is there and right. */
static void test_run_interleaved_stages_of_all_sizes_equal_one_rank(void **state) {
  (void)state;
  static const int64_t sizes[][2] = {{2, 2}, {2, 3}, {2, 4}, {3, 2}, {3, 3}, {4, 2}, {4, 3}, {5, 2}};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
    for (int64_t groups = 1; groups <= 4; groups++) {
      const int64_t pp = sizes[i][0], vpp = sizes[i][1];
      char model[256], layout[128];
      snprintf(model, sizeof model, "model.layers=%d train.microbatches=%d mode=isolated model.tied=true", (int)(pp * vpp),
               (int)(pp * groups));
      snprintf(layout, sizeof layout, "layout.pp=%d layout.vpp=%d", (int)pp, (int)vpp);
      const struct sf_case alone = world_case(model), c = joined(model, layout, groups - 1);
      struct world *plain = world_run(&alone, SF_FAULT_NONE);
      check_like_plain(&c, plain);
      world_destroy(plain);
    }
}

static struct sf_trace_id step_id(enum sf_kind kind, int32_t subject, int step) {
  return (struct sf_trace_id){.step = (uint16_t)step, .pass = SF_PASS_STEP, .kind = (uint8_t)kind, .subject = subject};
}

static float scalar_of(const struct world *w, enum sf_scalar scalar, int step) {
  const struct world_tensor *tensor = world_find(w, step_id(SF_KIND_SCALAR, (int32_t)scalar, step));
  assert_non_null(tensor);
  return tensor->values[0];
}

static void assert_params_stay(const struct world *w, int step) {
  for (int32_t p = 0; p < w->catalog->param_count; p++) {
    const struct world_tensor *before = world_find(w, step_id(SF_KIND_PARAM, p, step)),
                              *after = world_find(w, step_id(SF_KIND_PARAM, p, step + 1));
    assert_non_null(before);
    assert_non_null(after);
    assert_memory_equal(before->values, after->values, (size_t)(before->shape.rows * before->shape.cols) * sizeof(float));
  }
}

/* Gradients overflow fp16, first near the input, at larger scales everywhere: ranks that see nothing of it in their shards skip the step
 * with the others. A rank that does not would differ from them in the flag. */
static void test_run_overflow_with_shards_skips_the_step_on_every_rank(void **state) {
  (void)state;
  static const char *const table[] = {"layout.zero=1 layout.dp=4", "layout.zero=1 layout.dp=2 layout.pp=2 layout.bucket_elements=1",
                                      "layout.zero=2 layout.cp=2 layout.dp=2 layout.overlap=true"};
  int skipped = 0, applied = 0;
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
    for (int log2 = 10; log2 <= 18; log2++) {
      char model[1024];
      snprintf(model, sizeof model, "%s precision.compute=fp16 precision.loss_scale_log2=%d precision.loss_scale_window=1", MODELS[0],
               log2);
      const struct sf_case c = joined(model, table[i], (int64_t)i);
      struct world *w = world_run(&c, SF_FAULT_NONE);
      assert_int_equal(w->report.status, SF_OK);
      assert_int_equal(w->bad_maps, 0);
      assert_int_equal(w->conflicts, 0);
      const bool overflow = scalar_of(w, SF_SCALAR_OVERFLOW, 0) != 0.0f;
      if (overflow) assert_params_stay(w, 0);
      skipped += overflow;
      applied += !overflow;
      world_destroy(w);
    }
  assert_true(skipped > 0 && applied > 0);
}

static void assert_same_bits(const struct world *a, const struct world *b) {
  assert_int_equal(a->tensor_count, b->tensor_count);
  for (int i = 0; i < WORLD_SLOTS; i++) {
    if (!a->tensors[i].used) continue;
    const struct world_tensor *other = world_find(b, sf_trace_id_from_key(a->tensors[i].key));
    assert_non_null(other);
    assert_memory_equal(a->tensors[i].values, other->values, (size_t)(other->shape.rows * other->shape.cols) * sizeof(float));
  }
}

static void test_run_twice_gives_same_bytes(void **state) {
  (void)state;
  const struct sf_case c = joined(MODELS[0], LAYOUTS[14], 5);
  struct world *first = world_run(&c, SF_FAULT_NONE), *second = world_run(&c, SF_FAULT_NONE);
  assert_same_bits(first, second);
  world_destroy(first);
  world_destroy(second);
}

/* All ranks of a pipeline and of data parallelism compute in the same order as one rank: nothing but the sums over microbatches may differ.
 */
static void test_run_bf16_activations_on_pipeline_equal_one_rank_in_every_bit(void **state) {
  (void)state;
  char model[1024];
  snprintf(model, sizeof model, "%s precision.compute=bf16", MODELS[0]);
  const struct sf_case alone = world_case(model), c = joined(model, "layout.pp=4 layout.dp=2", 3);
  struct world *plain = world_run(&alone, SF_FAULT_NONE), *w = world_run(&c, SF_FAULT_NONE);
  int compared = 0;
  for (int i = 0; i < WORLD_SLOTS; i++) {
    if (!w->tensors[i].used) continue;
    const struct sf_trace_id id = sf_trace_id_from_key(w->tensors[i].key);
    if (id.kind != SF_KIND_ACT && id.kind != SF_KIND_ACT_GRAD && id.kind != SF_KIND_WGRAD) continue;
    const struct world_tensor *other = world_find(plain, world_plain_id(id));
    assert_non_null(other);
    assert_memory_equal(w->tensors[i].values, other->values, (size_t)(other->shape.rows * other->shape.cols) * sizeof(float));
    compared++;
  }
  assert_true(compared > 500);
  world_destroy(plain);
  world_destroy(w);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_run_layouts_of_biased_rotary_model_equal_one_rank),
      cmocka_unit_test(test_run_layouts_of_tied_mqa_model_equal_one_rank),
      cmocka_unit_test(test_run_layouts_that_trade_heads_equal_one_rank),
      cmocka_unit_test(test_run_sharded_recomputation_of_uneven_rows_equals_one_rank),
      cmocka_unit_test(test_run_layouts_of_partly_frozen_model_equal_one_rank),
      cmocka_unit_test(test_run_layouts_of_parallel_residual_model_equal_one_rank),
      cmocka_unit_test(test_run_layouts_of_experts_equal_one_rank),
      cmocka_unit_test(test_run_isolated_experts_are_complete_and_equal),
      cmocka_unit_test(test_run_layouts_of_cross_attention_equal_one_rank),
      cmocka_unit_test(test_run_isolated_mode_is_complete_and_equal),
      cmocka_unit_test(test_run_interleaved_stages_of_all_sizes_equal_one_rank),
      cmocka_unit_test(test_run_overflow_with_shards_skips_the_step_on_every_rank),
      cmocka_unit_test(test_run_twice_gives_same_bytes),
      cmocka_unit_test(test_run_bf16_activations_on_pipeline_equal_one_rank_in_every_bit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
