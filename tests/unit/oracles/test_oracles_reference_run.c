/* What a run emits, in which order and format; isolated mode; memory failures. */
#include "tests/unit/oracles/reference_test.h"

#include "harness/base/alloc.h"

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
  const struct kept *kept =
      keeper_find(keeper, (struct sf_trace_id){.step = step, .pass = SF_PASS_STEP, .kind = SF_KIND_SCALAR, .subject = (int32_t)scalar});
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
    assert_int_equal(scaled.count, plain.count + 5);
    for (uint16_t step = 0; step < 2; step++) {
      assert_true(scalar_of(&scaled, SF_SCALAR_LOSS_SCALE, step) == (step == 0 ? 4096 : 8192));
      assert_true(scalar_of(&scaled, SF_SCALAR_OVERFLOW, step) == 0);
    }
    assert_true(scalar_of(&scaled, SF_SCALAR_LOSS_SCALE, 2) == 16384);
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
    struct sf_catalog *catalog = catalog_of(
        dynamic ? LLAMA "mode=e2e train.steps=2 precision.compute=fp16 precision.loss_scale_log2=24 precision.loss_scale_window=1"
                : LLAMA "mode=e2e train.steps=2 precision.compute=fp16 precision.loss_scale_log2=24");
    struct keeper keeper = keep_run(catalog, false, SF_PERTURB_NONE, 0);
    for (uint16_t step = 0; step < 2; step++) {
      assert_true(scalar_of(&keeper, SF_SCALAR_OVERFLOW, step) == 1);
      assert_true(scalar_of(&keeper, SF_SCALAR_GRAD_NORM, step) == 0 && scalar_of(&keeper, SF_SCALAR_CLIP, step) == 1);
      assert_true(scalar_of(&keeper, SF_SCALAR_LOSS_SCALE, step) == ldexp(1, dynamic ? 24 - step : 24));
    }
    assert_true(scalar_of(&keeper, SF_SCALAR_LOSS_SCALE, 2) == ldexp(1, dynamic ? 22 : 24));
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
  static const enum sf_perturb kinds[] = {SF_PERTURB_NONE, SF_PERTURB_STORED, SF_PERTURB_SPLIT};
  struct sf_catalog *catalog = catalog_of(LLAMA "mode=e2e precision.compute=bf16 train.steps=2");
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
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

/* A product's terms are added up by their absolute values, so that no part of it is larger than what comes out. */
static void test_reference_run_of_sizes_adds_up_absolute_values(void **state) {
  (void)state;
  struct sf_catalog *catalog = catalog_of(LLAMA "mode=isolated");
  struct keeper keeper = keep_run(catalog, false, SF_PERTURB_SIZES, 0);
  const struct kept *out = keeper_find(&keeper, act_of(catalog, SF_MODULE_LINEAR_FC2, 1, SF_KIND_ACT));
  const int32_t param = sf_catalog_param(catalog, SF_MODULE_LINEAR_FC2, 1, 0);
  const int64_t rows = out->shape.rows, cols = out->shape.cols, terms = catalog->params[param].shape.cols;
  float *in = trace_fill(catalog, act_of(catalog, SF_MODULE_ACTIVATION, 1, SF_KIND_ACT), rows * terms);
  float *weight = malloc((size_t)(cols * terms) * sizeof *weight);
  const struct sf_fill fill = sf_fill_for_param(catalog, param, 0);
  sf_fill_range(weight, &fill, 0, cols * terms);
  for (int64_t i = 0; i < rows * cols; i++) {
    double sum = 0;
    for (int64_t k = 0; k < terms; k++) sum += fabs((double)in[i / cols * terms + k] * (double)weight[i % cols * terms + k]);
    assert_true(fabs(out->values[i] - sum) <= 1e-5 * sum);
  }
  free(in);
  free(weight);
  keeper_destroy(&keeper);
  sf_catalog_destroy(catalog);
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
      cmocka_unit_test(test_reference_run_of_sizes_adds_up_absolute_values),
      cmocka_unit_test(test_reference_run_out_of_memory_is_reported_for_each_allocation),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
