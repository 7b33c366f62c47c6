/* What a run emits, in which order and format; isolated mode; the perturbed reruns; memory failures. */
#include "tests/unit/oracles/reference_test.h"

#include "harness/base/alloc.h"

#define GPT                                                                                                                                \
  "seed=3 model.layers=2 model.hidden=24 model.heads=4 model.kv_heads=2 model.head_dim=6 model.ffn=40 model.vocab=30 "                     \
  "model.vocab_padded=32 model.seq=12 model.norm=layer model.positions=learned model.bias=on model.tied=on model.adapter=on "              \
  "train.microbatches=2 train.microbatch_size=2 data.mask=uneven "
#define LLAMA                                                                                                                              \
  "seed=4 model.layers=2 model.hidden=32 model.heads=4 model.kv_heads=4 model.head_dim=8 model.ffn=48 model.vocab=32 "                     \
  "model.vocab_padded=32 model.seq=16 model.activation=swiglu model.positions=rotary train.microbatches=2 "

static struct sf_trace_id act_of(const struct sf_catalog *catalog, enum sf_module_class cls, int32_t layer, enum sf_kind kind) {
  return (struct sf_trace_id){
      .pass = kind == SF_KIND_ACT ? SF_PASS_FWD : SF_PASS_BWD, .kind = (uint8_t)kind, .subject = sf_catalog_module(catalog, cls, layer)};
}

static int64_t count_of(const struct kept *kept) { return kept->shape.rows * kept->shape.cols; }

static double relative_move(const struct kept *a, const struct kept *b) {
  assert_true(sf_trace_key(a->id) == sf_trace_key(b->id));
  const double move = distance(a->values, b->values, count_of(a));
  return move == 0 ? 0 : move / norm_of(a->values, count_of(a));
}

/* --- what is emitted --------------------------------------------------------------------------------------------- */

/* Ids of the catalogue with the passes and calls that the reference promises. */
static int32_t promised_count(const struct sf_catalog *catalog) {
  struct sf_trace_spec spec;
  int32_t count = 0;
  for (uint16_t step = 0; step < 4; step++)
    for (uint16_t microbatch = 0; microbatch < 4; microbatch++)
      for (uint8_t kind = 0; kind < SF_KIND_COUNT; kind++)
        for (uint8_t call = 0; call < (kind == SF_KIND_WGRAD ? 2 : 1); call++)
          for (int32_t subject = 0; subject < catalog->module_count + catalog->param_count; subject++) {
            const uint8_t pass = kind == SF_KIND_ACT                                 ? SF_PASS_FWD
                                 : kind == SF_KIND_ACT_GRAD || kind == SF_KIND_WGRAD ? SF_PASS_BWD
                                                                                     : SF_PASS_STEP;
            const struct sf_trace_id id = {
                .step = step, .microbatch = microbatch, .pass = pass, .kind = kind, .call = call, .subject = subject};
            count += sf_trace_spec(&spec, catalog, id);
          }
  return count;
}

static void test_reference_run_emits_each_promised_tensor_once(void **state) {
  (void)state;
  static const char *const cases[] = {GPT "mode=e2e train.steps=2", LLAMA "mode=isolated train.frozen=qkv+norms",
                                      GPT "train.frozen=embedding"};
  for (int n = 0; n < 3; n++) {
    struct sf_catalog *catalog = catalog_of(cases[n]);
    struct keeper keeper = keep_run(catalog, false, SF_PERTURB_NONE, 0);
    for (int32_t i = 0; i < keeper.count; i++) {
      struct sf_trace_spec spec;
      assert_true(sf_trace_spec(&spec, catalog, keeper.items[i].id));
      assert_int_equal(spec.shape.rows, keeper.items[i].shape.rows);
      assert_int_equal(spec.shape.cols, keeper.items[i].shape.cols);
      assert_ptr_equal(keeper_find(&keeper, keeper.items[i].id), &keeper.items[i]);
    }
    assert_int_equal(keeper.count, promised_count(catalog));
    keeper_destroy(&keeper);
    sf_catalog_destroy(catalog);
  }
}

static void test_reference_run_order_is_program_order(void **state) {
  (void)state;
  struct sf_catalog *catalog = catalog_of(GPT);
  struct keeper keeper = keep_run(catalog, false, SF_PERTURB_NONE, 0);
  for (int32_t i = 1; i < keeper.count; i++) {
    const struct sf_trace_id before = keeper.items[i - 1].id, id = keeper.items[i].id;
    const bool same_pass = before.microbatch == id.microbatch && before.kind == id.kind;
    if (same_pass && id.kind == SF_KIND_ACT) assert_true(before.subject < id.subject);
    if (id.kind == SF_KIND_ACT && id.microbatch == 1 && before.microbatch == 0) assert_int_equal(before.kind, SF_KIND_WGRAD);
    if (id.kind == SF_KIND_PARAM_DELTA) assert_true(before.kind == SF_KIND_PARAM_DELTA || before.subject == SF_SCALAR_CLIP);
  }
  assert_int_equal(keeper.items[0].id.kind, SF_KIND_PARAM);
  assert_int_equal(keeper.items[keeper.count - 1].id.kind, SF_KIND_PARAM);
  assert_int_equal(keeper.items[keeper.count - 1].id.step, 1);
  keeper_destroy(&keeper);
  sf_catalog_destroy(catalog);
}

/* --- formats ------------------------------------------------------------------------------------------------------ */

static void test_reference_run_fp32_is_near_fp64(void **state) {
  (void)state;
  static const char *const cases[] = {GPT "mode=e2e", LLAMA "mode=e2e", GPT "mode=isolated", LLAMA "mode=isolated"};
  for (int n = 0; n < 4; n++) {
    struct sf_catalog *catalog = catalog_of(cases[n]);
    struct keeper single = keep_run(catalog, false, SF_PERTURB_NONE, 0), exact = keep_run(catalog, true, SF_PERTURB_NONE, 0);
    double largest = 0;
    for (int32_t i = 0; i < single.count; i++) {
      const struct sf_trace_id id = single.items[i].id;
      if (id.kind == SF_KIND_PARAM_DELTA || (id.kind == SF_KIND_PARAM && id.step > 0)) continue; /* Adam's first step is about lr sign(g) */
      const double move = relative_move(&exact.items[i], &single.items[i]);
      largest = largest > move ? largest : move;
      assert_true(move <= 5e-6);
    }
    assert_true(largest > 1e-9);
    keeper_destroy(&single);
    keeper_destroy(&exact);
    sf_catalog_destroy(catalog);
  }
}

static int64_t on_grid(const struct kept *kept, enum sf_dtype format) {
  int64_t count = 0;
  for (int64_t i = 0; i < count_of(kept); i++) count += (double)sf_round((float)kept->values[i], format) == kept->values[i];
  return count;
}

static void test_reference_run_stores_on_the_grid(void **state) {
  (void)state;
  static const char *const cases[] = {GPT "mode=e2e precision.compute=bf16", LLAMA "mode=isolated precision.compute=bf16",
                                      GPT "mode=isolated precision.compute=fp16", LLAMA "mode=e2e precision.compute=fp16 data.mask=uneven"};
  for (int n = 0; n < 4; n++) {
    const enum sf_dtype format = n < 2 ? SF_BF16 : SF_F16;
    struct sf_catalog *catalog = catalog_of(cases[n]);
    struct keeper keeper = keep_run(catalog, false, SF_PERTURB_NONE, 0);
    for (int32_t i = 0; i < keeper.count; i++) {
      const struct kept *kept = &keeper.items[i];
      struct sf_trace_spec spec;
      assert_true(sf_trace_spec(&spec, catalog, kept->id));
      if (spec.promised == format)
        assert_int_equal(on_grid(kept, format), count_of(kept));
      else if (kept->id.kind == SF_KIND_MAIN_GRAD && kept->shape.rows > 1)
        assert_true(on_grid(kept, format) < count_of(kept) / 2);
    }
    keeper_destroy(&keeper);
    sf_catalog_destroy(catalog);
  }
}

static double scalar_of(const struct keeper *keeper, enum sf_scalar scalar, uint16_t step) {
  const struct kept *kept = keeper_find(keeper, (struct sf_trace_id){.step = step, .pass = SF_PASS_STEP, .kind = SF_KIND_SCALAR, .subject = (int32_t)scalar});
  return kept != NULL ? kept->values[0] : NAN;
}

/* A power of two rounds nowhere in fp32: gradients of microbatches are scaled exactly, all else has the same bits. */
static void test_reference_run_scaled_loss_changes_only_gradients_before_the_step(void **state) {
  (void)state;
  static const char *const words[] = {GPT "mode=e2e train.steps=2 ", LLAMA "mode=e2e train.steps=2 train.loss_norm=per_microbatch "};
  for (int n = 0; n < 2; n++) {
    char scaled_words[512];
    snprintf(scaled_words, sizeof scaled_words, "%sprecision.loss_scale_log2=12 precision.loss_scale_window=1", words[n]);
    struct sf_catalog *catalog = catalog_of(words[n]), *scaled_catalog = catalog_of(scaled_words);
    struct keeper plain = keep_run(catalog, false, SF_PERTURB_NONE, 0), scaled = keep_run(scaled_catalog, false, SF_PERTURB_NONE, 0);
    assert_int_equal(scaled.count, plain.count + 4);
    for (uint16_t step = 0; step < 2; step++) {
      assert_true(scalar_of(&scaled, SF_SCALAR_LOSS_SCALE, step) == (step == 0 ? 4096 : 8192));
      assert_true(scalar_of(&scaled, SF_SCALAR_OVERFLOW, step) == 0);
    }
    for (int32_t i = 0; i < plain.count; i++) {
      const struct kept *was = &plain.items[i], *is = keeper_find(&scaled, was->id);
      const bool of_backward = was->id.kind == SF_KIND_ACT_GRAD || was->id.kind == SF_KIND_WGRAD;
      const double factor = !of_backward ? 1 : was->id.step == 0 ? 4096 : 8192;
      for (int64_t k = 0; k < count_of(was); k++) assert_true(is->values[k] == factor * was->values[k]);
    }
    keeper_destroy(&plain);
    keeper_destroy(&scaled);
    sf_catalog_destroy(catalog);
    sf_catalog_destroy(scaled_catalog);
  }
}

/* 2^24 overflows in every step of fp16: nothing is learnt, and the scale is halved. */
static void test_reference_run_step_that_overflows_is_skipped(void **state) {
  (void)state;
  for (int dynamic = 0; dynamic <= 1; dynamic++) {
    struct sf_catalog *catalog = catalog_of(dynamic ? LLAMA "mode=e2e train.steps=2 precision.compute=fp16 precision.loss_scale_log2=24 precision.loss_scale_window=1"
                                                    : LLAMA "mode=e2e train.steps=2 precision.compute=fp16 precision.loss_scale_log2=24");
    struct keeper keeper = keep_run(catalog, false, SF_PERTURB_NONE, 0);
    for (uint16_t step = 0; step < 2; step++) {
      assert_true(scalar_of(&keeper, SF_SCALAR_OVERFLOW, step) == 1);
      assert_true(scalar_of(&keeper, SF_SCALAR_GRAD_NORM, step) == 0 && scalar_of(&keeper, SF_SCALAR_CLIP, step) == 1);
      assert_true(scalar_of(&keeper, SF_SCALAR_LOSS_SCALE, step) == ldexp(1, dynamic ? 24 - step : 24));
    }
    for (int32_t i = 0; i < keeper.count; i++) {
      struct kept *kept = &keeper.items[i];
      if (kept->id.kind == SF_KIND_PARAM_DELTA)
        for (int64_t k = 0; k < count_of(kept); k++) assert_true(kept->values[k] == 0);
      if (kept->id.kind != SF_KIND_PARAM || kept->id.step == 0) continue;
      struct sf_trace_id before = kept->id;
      before.step--;
      assert_memory_equal(kept->values, keeper_find(&keeper, before)->values, (size_t)count_of(kept) * sizeof(double));
    }
    keeper_destroy(&keeper);
    sf_catalog_destroy(catalog);
  }
}

static void test_reference_run_twice_gives_equal_bytes(void **state) {
  (void)state;
  static const enum sf_perturb kinds[] = {SF_PERTURB_NONE, SF_PERTURB_INPUT, SF_PERTURB_STORED, SF_PERTURB_SPLIT};
  struct sf_catalog *catalog = catalog_of(LLAMA "mode=e2e precision.compute=bf16 train.steps=2");
  for (int k = 0; k < 4; k++) {
    struct keeper a = keep_run(catalog, false, kinds[k], 7), b = keep_run(catalog, false, kinds[k], 7);
    assert_int_equal(a.count, b.count);
    for (int32_t i = 0; i < a.count; i++)
      assert_memory_equal(a.items[i].values, b.items[i].values, (size_t)count_of(&a.items[i]) * sizeof(double));
    keeper_destroy(&a);
    keeper_destroy(&b);
  }
  sf_catalog_destroy(catalog);
}

/* --- isolated mode ------------------------------------------------------------------------------------------------ */

static float *trace_fill(const struct sf_catalog *catalog, struct sf_trace_id id, int64_t count) {
  float *values = malloc((size_t)count * sizeof *values);
  assert_non_null(values);
  const struct sf_fill fill = sf_fill_for_trace(catalog, id);
  sf_fill_range(values, &fill, 0, count);
  return values;
}

/* out must be a + b, where a and b are what the trace points of two other tensors were overwritten with. */
static void check_sum(const struct sf_catalog *catalog, const struct keeper *keeper, struct sf_trace_id out, struct sf_trace_id a,
                      struct sf_trace_id b) {
  const struct kept *kept = keeper_find(keeper, out);
  assert_non_null(kept);
  float *x = trace_fill(catalog, a, count_of(kept)), *y = trace_fill(catalog, b, count_of(kept));
  for (int64_t i = 0; i < count_of(kept); i++) assert_true(kept->values[i] == (double)sf_bf16_round(x[i] + y[i]));
  free(x);
  free(y);
}

static void test_reference_run_isolated_uses_overwritten_tensors(void **state) {
  (void)state;
  struct sf_catalog *catalog = catalog_of(GPT "mode=isolated precision.compute=bf16");
  struct keeper keeper = keep_run(catalog, false, SF_PERTURB_NONE, 0);
  const enum sf_kind act = SF_KIND_ACT, grad = SF_KIND_ACT_GRAD;
  check_sum(catalog, &keeper, act_of(catalog, SF_MODULE_SELF_ATTN_BDA, 0, act), act_of(catalog, SF_MODULE_EMBEDDING, -1, act),
            act_of(catalog, SF_MODULE_LINEAR_PROJ, 0, act));
  check_sum(catalog, &keeper, act_of(catalog, SF_MODULE_SELF_ATTN_BDA, 1, act), act_of(catalog, SF_MODULE_MLP_BDA, 0, act),
            act_of(catalog, SF_MODULE_LINEAR_PROJ, 1, act));
  check_sum(catalog, &keeper, act_of(catalog, SF_MODULE_ADAPTER_BDA, -1, act), act_of(catalog, SF_MODULE_MLP_BDA, 1, act),
            act_of(catalog, SF_MODULE_ADAPTER, -1, act));
  check_sum(catalog, &keeper, act_of(catalog, SF_MODULE_ADAPTER_BDA, -1, grad), act_of(catalog, SF_MODULE_FINAL_LAYERNORM, -1, grad),
            act_of(catalog, SF_MODULE_ADAPTER, -1, grad));
  check_sum(catalog, &keeper, act_of(catalog, SF_MODULE_MLP_BDA, 1, grad), act_of(catalog, SF_MODULE_ADAPTER_BDA, -1, grad),
            act_of(catalog, SF_MODULE_PRE_MLP_LAYERNORM, 1, grad));
  check_sum(catalog, &keeper, act_of(catalog, SF_MODULE_MLP_BDA, 0, grad), act_of(catalog, SF_MODULE_SELF_ATTN_BDA, 1, grad),
            act_of(catalog, SF_MODULE_PRE_MLP_LAYERNORM, 0, grad));
  keeper_destroy(&keeper);
  sf_catalog_destroy(catalog);
}

/* out must be a + b unrounded, and dbias of fc2 the sum of what round(g) is, g the fp32 gradient that the branch is given. */
static void test_reference_run_fp32_residual_adds_unrounded_and_gives_branches_the_compute_format(void **state) {
  (void)state;
  struct sf_catalog *catalog = catalog_of(GPT "mode=isolated precision.compute=bf16 precision.residual_fp32=on");
  struct keeper keeper = keep_run(catalog, false, SF_PERTURB_NONE, 0);
  const struct sf_trace_id bda = act_of(catalog, SF_MODULE_SELF_ATTN_BDA, 1, SF_KIND_ACT);
  const struct kept *sum = keeper_find(&keeper, bda);
  float *x = trace_fill(catalog, act_of(catalog, SF_MODULE_MLP_BDA, 0, SF_KIND_ACT), count_of(sum)),
        *y = trace_fill(catalog, act_of(catalog, SF_MODULE_LINEAR_PROJ, 1, SF_KIND_ACT), count_of(sum));
  for (int64_t i = 0; i < count_of(sum); i++) assert_true(sum->values[i] == (double)(x[i] + y[i]));
  assert_true(on_grid(sum, SF_BF16) < count_of(sum) / 2);
  free(x);
  free(y);
  const int32_t bias = sf_catalog_param(catalog, SF_MODULE_LINEAR_FC2, 1, 1);
  const struct kept *wgrad = keeper_find(&keeper, (struct sf_trace_id){.pass = SF_PASS_BWD, .kind = SF_KIND_WGRAD, .subject = bias});
  float *g = trace_fill(catalog, act_of(catalog, SF_MODULE_ADAPTER_BDA, -1, SF_KIND_ACT_GRAD), count_of(sum));
  const int64_t cols = sum->shape.cols;
  for (int64_t j = 0; j < cols; j++) {
    float column = 0;
    for (int64_t i = 0; i < sum->shape.rows; i++) column += sf_bf16_round(g[i * cols + j]);
    assert_true(wgrad->values[j] == (double)column);
  }
  free(g);
  keeper_destroy(&keeper);
  sf_catalog_destroy(catalog);
}

static void test_reference_run_isolated_main_grad_sums_overwritten_wgrads(void **state) {
  (void)state;
  struct sf_catalog *catalog = catalog_of(GPT "mode=isolated train.loss_norm=per_microbatch");
  struct keeper keeper = keep_run(catalog, false, SF_PERTURB_NONE, 0);
  const int32_t param = sf_catalog_param(catalog, SF_MODULE_WORD_EMBEDDINGS, -1, 0);
  const struct kept *main_grad =
      keeper_find(&keeper, (struct sf_trace_id){.pass = SF_PASS_STEP, .kind = SF_KIND_MAIN_GRAD, .subject = param});
  assert_non_null(main_grad);
  const int64_t count = count_of(main_grad);
  double *sum = calloc((size_t)count, sizeof *sum);
  for (int use = 0; use < 4; use++) { /* two microbatches, and the tied weight's two uses */
    const struct sf_trace_id id = {
        .microbatch = (uint16_t)(use / 2), .pass = SF_PASS_BWD, .kind = SF_KIND_WGRAD, .call = (uint8_t)(use % 2), .subject = param};
    float *term = trace_fill(catalog, id, count);
    for (int64_t i = 0; i < count; i++) sum[i] += (double)term[i];
    free(term);
  }
  assert_true(distance(sum, main_grad->values, count) <= 1e-6 * norm_of(sum, count));
  free(sum);
  keeper_destroy(&keeper);
  sf_catalog_destroy(catalog);
}

static void test_reference_run_isolated_nudged_weight_moves_its_module_only(void **state) {
  (void)state;
  struct sf_catalog *catalog = catalog_of(LLAMA "mode=isolated");
  const int32_t param = sf_catalog_param(catalog, SF_MODULE_LINEAR_QKV, 0, 0), module = catalog->params[param].module;
  const int64_t size = catalog->params[param].shape.rows * catalog->params[param].shape.cols;
  double *direction = malloc((size_t)size * sizeof *direction);
  for (int64_t i = 0; i < size; i++) direction[i] = 1;
  const struct sf_reference_nudge nudge = {.param = param, .amount = 0.125, .direction = direction};
  struct keeper plain = keep_run(catalog, false, SF_PERTURB_NONE, 0), nudged = {0};
  const struct sf_reference_options options = {.gemm = &loops_table};
  const struct sf_reference_sink sink = {.ctx = &nudged, .emit = keeper_emit};
  assert_int_equal(sf_reference_run_nudged(catalog, &options, &sink, &nudge), SF_OK);
  for (int32_t i = 0; i < plain.count; i++) {
    const uint8_t kind = plain.items[i].id.kind;
    if (kind == SF_KIND_PARAM || kind == SF_KIND_PARAM_DELTA) continue;
    const bool own = (kind == SF_KIND_ACT || kind == SF_KIND_ACT_GRAD) && plain.items[i].id.subject == module;
    assert_int_equal(relative_move(&plain.items[i], &nudged.items[i]) > 0, own);
  }
  free(direction);
  keeper_destroy(&plain);
  keeper_destroy(&nudged);
  sf_catalog_destroy(catalog);
}

static void test_reference_run_isolated_second_step_loads_fresh_params(void **state) {
  (void)state;
  struct sf_catalog *catalog = catalog_of(GPT "mode=isolated train.steps=2");
  struct keeper keeper = keep_run(catalog, false, SF_PERTURB_NONE, 0);
  const int32_t param = sf_catalog_param(catalog, SF_MODULE_EMBEDDING, -1, 0);
  const struct sf_trace_id step = {.pass = SF_PASS_STEP, .subject = param};
  struct sf_trace_id old_id = step, new_id = step, delta_id = step, act = act_of(catalog, SF_MODULE_EMBEDDING, -1, SF_KIND_ACT);
  old_id.kind = new_id.kind = SF_KIND_PARAM, delta_id.kind = SF_KIND_PARAM_DELTA;
  new_id.step = act.step = 1;
  const struct kept *old = keeper_find(&keeper, old_id), *new = keeper_find(&keeper, new_id), *delta = keeper_find(&keeper, delta_id);
  for (int64_t i = 0; i < count_of(old); i++) assert_true(fabs(old->values[i] + delta->values[i] - new->values[i]) <= 1e-7);
  struct sf_trace_id words = act_of(catalog, SF_MODULE_WORD_EMBEDDINGS, -1, SF_KIND_ACT);
  words.step = 1;
  const struct kept *out = keeper_find(&keeper, act);
  float *word = trace_fill(catalog, words, count_of(out)), *table = malloc((size_t)count_of(old) * sizeof *table);
  const struct sf_fill fill = sf_fill_for_param(catalog, param, 1);
  sf_fill_range(table, &fill, 0, count_of(old));
  for (int64_t i = 0; i < count_of(out); i++) {
    const int64_t position = i / out->shape.cols / catalog->logical.train.microbatch_size, column = i % out->shape.cols;
    assert_true(out->values[i] == (double)(word[i] + table[position * out->shape.cols + column]));
  }
  free(word);
  free(table);
  keeper_destroy(&keeper);
  sf_catalog_destroy(catalog);
}

/* --- perturbed reruns --------------------------------------------------------------------------------------------- */

static const struct {
  const char *text;
  double unit;
} FORMATS[] = {{"precision.compute=fp32 ", 0x1p-24}, {"precision.compute=bf16 ", 0x1p-8}};

static struct sf_catalog *catalog_of_format(const char *words, int format) {
  char text[1024];
  snprintf(text, sizeof text, "%s%s", FORMATS[format].text, words);
  return catalog_of(text);
}

static void test_reference_run_input_perturbed_moves_from_the_embedding_on(void **state) {
  (void)state;
  for (int f = 0; f < 2; f++) {
    struct sf_catalog *catalog = catalog_of_format(GPT "mode=e2e", f);
    struct keeper plain = keep_run(catalog, false, SF_PERTURB_NONE, 0), moved = keep_run(catalog, false, SF_PERTURB_INPUT, 1);
    const int32_t input = sf_catalog_module(catalog, SF_MODULE_EMBEDDING, -1);
    for (int32_t i = 0; i < plain.count; i++) {
      const struct sf_trace_id id = plain.items[i].id;
      if (id.step > 0 || (id.kind != SF_KIND_PARAM && id.kind != SF_KIND_ACT)) continue;
      const double move = relative_move(&plain.items[i], &moved.items[i]) / FORMATS[f].unit;
      if (id.kind == SF_KIND_PARAM || id.subject < input)
        assert_true(move == 0);
      else if (id.subject == input)
        assert_true(move > 0.5 && move < 3);
      else
        assert_true(move > 0 && move < 100);
    }
    keeper_destroy(&plain);
    keeper_destroy(&moved);
    sf_catalog_destroy(catalog);
  }
}

static bool is_norm(const struct sf_catalog *catalog, int32_t module) {
  const enum sf_module_class cls = catalog->modules[module].cls;
  return cls == SF_MODULE_INPUT_LAYERNORM || cls == SF_MODULE_POST_SELF_ATTN_LAYERNORM || cls == SF_MODULE_PRE_MLP_LAYERNORM ||
         cls == SF_MODULE_POST_MLP_LAYERNORM || cls == SF_MODULE_FINAL_LAYERNORM;
}

/* Numbers inside a module that cancel: values 8 standard deviations from zero lose 8 times as much in x - mean as in the norm's output. */
static void test_reference_run_stored_perturbed_reaches_inside_a_norm(void **state) {
  (void)state;
  struct sf_catalog *catalog = catalog_of(GPT "mode=isolated data.acts=offset data.grads=offset");
  struct keeper plain = keep_run(catalog, false, SF_PERTURB_NONE, 0), moved = keep_run(catalog, false, SF_PERTURB_STORED, 1);
  for (int32_t i = 0; i < plain.count; i++) {
    const struct sf_trace_id id = plain.items[i].id;
    if ((id.kind != SF_KIND_ACT && id.kind != SF_KIND_ACT_GRAD) || !is_norm(catalog, id.subject)) continue;
    assert_true(relative_move(&plain.items[i], &moved.items[i]) > 4 * 0x1p-24); /* 1.2 when only what is stored moves */
  }
  keeper_destroy(&plain);
  keeper_destroy(&moved);
  sf_catalog_destroy(catalog);
}

/* Numbers that are in fp32 already move by half an ulp at least, or a tensor of one number would often not move at all. */
static void test_reference_run_stored_perturbed_in_fp32_moves_every_number(void **state) {
  (void)state;
  struct sf_catalog *catalog = catalog_of(GPT "mode=isolated");
  struct keeper plain = keep_run(catalog, false, SF_PERTURB_NONE, 0), moved = keep_run(catalog, false, SF_PERTURB_STORED, 1);
  int64_t numbers = 0, still = 0;
  for (int32_t i = 0; i < plain.count; i++) {
    const struct sf_trace_id id = plain.items[i].id;
    if (id.kind != SF_KIND_ACT || catalog->modules[id.subject].cls != SF_MODULE_SELF_ATTN_BDA) continue;
    for (int64_t k = 0; k < count_of(&plain.items[i]); k++) {
      numbers += plain.items[i].values[k] != 0;
      still += plain.items[i].values[k] != 0 && plain.items[i].values[k] == moved.items[i].values[k];
    }
  }
  assert_true(numbers > 1000 && 200 * still < numbers);
  keeper_destroy(&plain);
  keeper_destroy(&moved);
  sf_catalog_destroy(catalog);
}

/* A share near 1 makes its gradient nearly the mean of the gradients, which follows it: what is left of their difference must move although
 * both move alike. Here the gradients are single products of bf16 numbers, so nothing else is rounded. */
static void test_reference_run_stored_perturbed_moves_what_is_left_of_a_share_near_one(void **state) {
  (void)state;
  enum { DRAWS = 64, ROW = 17, CHOSEN = 3 };
  struct sf_catalog *catalog = catalog_of("seed=953238542 mode=isolated model.layers=2 model.hidden=40 model.heads=1 model.kv_heads=1 "
                                          "model.head_dim=4 model.ffn=8 model.vocab=8 model.vocab_padded=8 model.seq=18 moe.experts=8 "
                                          "moe.topk=2 moe.ffn=8 precision.compute=bf16 data.acts=sparse");
  const struct sf_trace_id weights = act_of(catalog, SF_MODULE_ROUTING, 1, SF_KIND_ACT);
  const struct sf_trace_id id = act_of(catalog, SF_MODULE_ROUTING, 1, SF_KIND_ACT_GRAD);
  struct keeper plain = keep_run(catalog, false, SF_PERTURB_NONE, 0);
  const double share = keeper_find(&plain, weights)->values[ROW * 8 + CHOSEN], grad = keeper_find(&plain, id)->values[ROW * 8 + CHOSEN];
  assert_true(share > 0.98 && share < 1 && grad != 0);
  int still = 0;
  for (uint64_t draw = 1; draw <= DRAWS; draw++) {
    struct keeper moved = keep_run(catalog, false, SF_PERTURB_STORED, draw);
    still += fabs(keeper_find(&moved, id)->values[ROW * 8 + CHOSEN] - grad) < 0x1p-31; /* half an ulp of the mean */
    keeper_destroy(&moved);
  }
  assert_in_range(still, 0, DRAWS / 8); /* 8; 9 where either terms or shares stay as they are, 15 where both do */
  keeper_destroy(&plain);
  sf_catalog_destroy(catalog);
}

static void test_reference_run_stored_perturbed_moves_each_tensor_by_its_roundoff(void **state) {
  (void)state;
  for (int f = 0; f < 2; f++) {
    struct sf_catalog *catalog = catalog_of_format(LLAMA "mode=isolated", f);
    struct keeper plain = keep_run(catalog, false, SF_PERTURB_NONE, 0), moved = keep_run(catalog, false, SF_PERTURB_STORED, 1);
    struct keeper other = keep_run(catalog, false, SF_PERTURB_STORED, 2);
    for (int32_t i = 0; i < plain.count; i++) {
      const struct sf_trace_id id = plain.items[i].id;
      const double move = relative_move(&plain.items[i], &moved.items[i]);
      struct sf_trace_spec spec;
      assert_true(sf_trace_spec(&spec, catalog, id));
      if (id.kind == SF_KIND_PARAM && id.step == 0) assert_true(move == 0);
      if (id.kind != SF_KIND_ACT && id.kind != SF_KIND_ACT_GRAD && id.kind != SF_KIND_WGRAD && id.kind != SF_KIND_MAIN_GRAD) continue;
      assert_true(move > 0.4 * sf_dtype_unit_roundoff(spec.promised) && relative_move(&moved.items[i], &other.items[i]) > 0);
      /* bf16: fp32 sums of bf16 tensors, which are inputs: terms and result move, 2.4; a norm has fp32 numbers of its own, and draw 1 moves equal ones
       * alike */
      const bool of_bf16_inside = f == 1 && id.kind == SF_KIND_WGRAD;
      assert_true(move < (!of_bf16_inside ? 6 : is_norm(catalog, spec.module) ? 5 : 3) * sf_dtype_unit_roundoff(spec.promised));
    }
    keeper_destroy(&plain);
    keeper_destroy(&moved);
    keeper_destroy(&other);
    sf_catalog_destroy(catalog);
  }
}

/* What is left of terms that cancel moves as far as they do, not as an fp32 number of its own size (2^-23 of it). */
static void test_reference_run_stored_perturbed_moves_the_terms_of_sums(void **state) {
  (void)state;
  static const struct {
    enum sf_module_class cls;
    int ordinal;
  } sums[] = {{SF_MODULE_LINEAR_FC2, 0}, {SF_MODULE_LINEAR_FC2, 1}, {SF_MODULE_FINAL_LAYERNORM, 1}}; /* a product, sums of rows */
  struct sf_catalog *catalog = catalog_of(GPT "mode=isolated");
  struct keeper plain = keep_run(catalog, false, SF_PERTURB_NONE, 0), moved = keep_run(catalog, false, SF_PERTURB_STORED, 2);
  for (size_t s = 0; s < sizeof sums / sizeof sums[0]; s++) {
    const int32_t layer = sums[s].cls == SF_MODULE_LINEAR_FC2 ? 0 : -1;
    const struct sf_trace_id id = {.pass = SF_PASS_BWD, .kind = SF_KIND_WGRAD, .subject = sf_catalog_param(catalog, sums[s].cls, layer, sums[s].ordinal)};
    const struct kept *before = keeper_find(&plain, id), *after = keeper_find(&moved, id);
    double squares = 0;
    int64_t cancelled = 0, far = 0;
    for (int64_t k = 0; k < count_of(before); k++) squares += before->values[k] * before->values[k];
    for (int64_t k = 0; k < count_of(before); k++) {
      const double value = fabs(before->values[k]);
      if (value > 0.2 * sqrt(squares / (double)count_of(before))) continue;
      cancelled++;
      far += fabs(after->values[k] - before->values[k]) > 0x1p-22 * value;
    }
    assert_true(cancelled > 0 && 2 * far > cancelled);
  }
  keeper_destroy(&plain);
  keeper_destroy(&moved);
  sf_catalog_destroy(catalog);
}

static bool is_product(enum sf_module_class cls) {
  return cls == SF_MODULE_LINEAR_QKV || cls == SF_MODULE_LINEAR_PROJ || cls == SF_MODULE_LINEAR_FC1 || cls == SF_MODULE_LINEAR_FC2 ||
         cls == SF_MODULE_OUTPUT_LAYER || cls == SF_MODULE_CORE_ATTENTION;
}

static void test_reference_run_split_moves_products_only(void **state) {
  (void)state;
  for (int f = 0; f < 2; f++) {
    struct sf_catalog *catalog = catalog_of_format(LLAMA "mode=isolated", f);
    struct keeper plain = keep_run(catalog, false, SF_PERTURB_NONE, 0), moved = keep_run(catalog, false, SF_PERTURB_SPLIT, 1);
    for (int32_t i = 0; i < plain.count; i++) {
      const struct sf_trace_id id = plain.items[i].id;
      const double move = relative_move(&plain.items[i], &moved.items[i]);
      if (id.kind == SF_KIND_ACT || id.kind == SF_KIND_ACT_GRAD) {
        const bool product = is_product(catalog->modules[id.subject].cls);
        assert_int_equal(move > 0.1 * FORMATS[f].unit, product);
        assert_true(move < 10 * FORMATS[f].unit);
      }
      if (id.kind == SF_KIND_WGRAD && catalog->params[id.subject].row_cut != SF_CUT_EVEN) assert_true(move > 0 && move < 10 * 0x1p-24);
      if (id.kind == SF_KIND_MAIN_GRAD) assert_true(move == 0);
    }
    keeper_destroy(&plain);
    keeper_destroy(&moved);
    sf_catalog_destroy(catalog);
  }
}

static void test_split_shuffled_any_size_covers_each_index_once(void **state) {
  (void)state;
  int wholes = 0;
  for (int64_t size = 1; size <= 40; size++)
    for (uint64_t number = 0; number < 20; number++) {
      int32_t order[40];
      bool seen[40] = {false};
      const bool in_parts = number % 2 == 0;
      const struct sf_split split = sf_split_shuffled(order, 5, number, size, in_parts);
      for (int64_t i = 0; i < size; i++) {
        assert_in_range(order[i], 0, size - 1);
        assert_false(seen[order[i]]);
        seen[order[i]] = true;
      }
      for (int32_t p = 0; p < split.count; p++) assert_true(split.cut[p] < split.cut[p + 1]);
      assert_int_equal(split.cut[0], 0);
      assert_int_equal(split.cut[split.count], size);
      if (in_parts)
        assert_true(split.count == 2 || split.count == 4 || split.count == 8 || split.count == size);
      else
        wholes += split.count == 1;
    }
  assert_in_range(wholes, 40 * 10 * 6 / 10, 40 * 10 * 9 / 10); /* three in four */
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static void emit_nothing(void *ctx, struct sf_trace_id id, const void *values, struct sf_shape shape) {
  (void)ctx, (void)id, (void)values, (void)shape;
}

static void test_reference_run_out_of_memory_is_reported_for_each_allocation(void **state) {
  (void)state;
  /* Tensors larger than the arena's first block, so that it has to grow. */
  struct sf_catalog *catalog =
      catalog_of("model.layers=2 model.hidden=256 model.ffn=1100 model.vocab=1100 model.vocab_padded=1100 train.steps=2");
  for (int fp64 = 0; fp64 < 2; fp64++) {
    const struct sf_reference_options options = {.fp64 = fp64 != 0, .perturb = SF_PERTURB_SPLIT, .gemm = &loops_table};
    const struct sf_reference_sink sink = {.ctx = NULL, .emit = emit_nothing};
    int64_t failures = 0;
    for (bool failed = true; failed; failures += failed) {
      sf_alloc_fail_at(failures + 1);
      const enum sf_status status = sf_reference_run(catalog, &options, &sink);
      failed = sf_alloc_did_fail();
      sf_alloc_fail_at(0);
      assert_int_equal(status, failed ? SF_ENOMEM : SF_OK);
    }
    assert_true(failures >= 5);
  }
  sf_catalog_destroy(catalog);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_reference_run_emits_each_promised_tensor_once),
      cmocka_unit_test(test_reference_run_order_is_program_order),
      cmocka_unit_test(test_reference_run_fp32_is_near_fp64),
      cmocka_unit_test(test_reference_run_stores_on_the_grid),
      cmocka_unit_test(test_reference_run_scaled_loss_changes_only_gradients_before_the_step),
      cmocka_unit_test(test_reference_run_step_that_overflows_is_skipped),
      cmocka_unit_test(test_reference_run_twice_gives_equal_bytes),
      cmocka_unit_test(test_reference_run_isolated_uses_overwritten_tensors),
      cmocka_unit_test(test_reference_run_fp32_residual_adds_unrounded_and_gives_branches_the_compute_format),
      cmocka_unit_test(test_reference_run_isolated_main_grad_sums_overwritten_wgrads),
      cmocka_unit_test(test_reference_run_isolated_nudged_weight_moves_its_module_only),
      cmocka_unit_test(test_reference_run_isolated_second_step_loads_fresh_params),
      cmocka_unit_test(test_reference_run_input_perturbed_moves_from_the_embedding_on),
      cmocka_unit_test(test_reference_run_stored_perturbed_reaches_inside_a_norm),
      cmocka_unit_test(test_reference_run_stored_perturbed_in_fp32_moves_every_number),
      cmocka_unit_test(test_reference_run_stored_perturbed_moves_what_is_left_of_a_share_near_one),
      cmocka_unit_test(test_reference_run_stored_perturbed_moves_each_tensor_by_its_roundoff),
      cmocka_unit_test(test_reference_run_stored_perturbed_moves_the_terms_of_sums),
      cmocka_unit_test(test_reference_run_split_moves_products_only),
      cmocka_unit_test(test_split_shuffled_any_size_covers_each_index_once),
      cmocka_unit_test(test_reference_run_out_of_memory_is_reported_for_each_allocation),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
