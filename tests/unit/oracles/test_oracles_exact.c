/* Exact mode: what is promised exact is exact in the reference, by any order of its sums, and nothing else is judged so. */
#include "tests/unit/oracles/reference_test.h"

#include "harness/tensor/consistent.h"

#define EXACT                                                                                                                              \
  "mode=isolated data.exact=true model.layers=2 model.heads=4 model.kv_heads=2 model.bias=true model.adapter=true train.microbatches=2 "

static bool is_exact_kind(struct sf_trace_id id) {
  return id.kind == SF_KIND_ACT || id.kind == SF_KIND_ACT_GRAD || id.kind == SF_KIND_WGRAD;
}

/* fp32 sums in random order and in parts, rounded to the format between, against fp64. */
static void exact_tensors_agree(const char *words, int32_t wanted) {
  struct sf_catalog *catalog = catalog_of(words);
  struct keeper plain = keep_run(catalog, false, SF_PERTURB_NONE, 0), fp64 = keep_run(catalog, true, SF_PERTURB_NONE, 0);
  struct keeper other = keep_run(catalog, false, SF_PERTURB_SPLIT, 3);
  int32_t exact = 0, others = 0, unequal = 0;
  for (int32_t i = 0; i < plain.count; i++) {
    const struct kept *x = &plain.items[i], *y = keeper_find(&fp64, x->id), *z = keeper_find(&other, x->id);
    const int64_t count = x->shape.rows * x->shape.cols;
    const bool equal = distance(x->values, y->values, count) == 0 && distance(x->values, z->values, count) == 0;
    if (!sf_trace_is_exact(catalog, x->id)) {
      others += is_exact_kind(x->id);
      unequal += is_exact_kind(x->id) && !equal;
      continue;
    }
    exact++;
    if (equal) continue;
    char id[160];
    sf_trace_id_text(id, sizeof id, catalog, x->id);
    fail_msg("%s: %s is not exact", words, id);
  }
  assert_true(exact >= wanted);
  assert_true(others > 0 && 2 * unequal > others); /* norms, attention, activations and losses round as ever */
  keeper_destroy(&plain);
  keeper_destroy(&fp64);
  keeper_destroy(&other);
  sf_catalog_destroy(catalog);
}

static void test_exact_tensors_of_the_reference_are_those_of_fp64_in_any_order(void **state) {
  (void)state;
  exact_tensors_agree(EXACT, 100);
  exact_tensors_agree(EXACT "precision.compute=bf16 model.activation=swiglu model.positions=rotary", 100);
  exact_tensors_agree(
      EXACT
      "precision.compute=bf16 model.qk_norm=true precision.residual_fp32=true model.parallel_residual=true model.post_norm=true "
      "precision.loss_scale_log2=8",
      100);
  exact_tensors_agree(EXACT "precision.compute=fp16 model.tied=true model.positions=learned train.loss_norm=per_microbatch train.steps=2",
                      200);
}

static void test_exact_tensors_of_latent_attention_are_exact(void **state) {
  (void)state;
  exact_tensors_agree(
      EXACT "precision.compute=bf16 model.positions=rotary model.kv_heads=4 model.head_dim=6 model.kv_lora_rank=9 model.q_lora_rank=5"
            " model.qk_rope_dim=2",
      100);
}

/* Contractions longer than the integers of bf16. */
static void test_exact_tensors_of_long_contractions_are_exact(void **state) {
  (void)state;
  exact_tensors_agree(
      "mode=isolated data.exact=true precision.compute=bf16 model.bias=true model.ffn=700 model.hidden=272 model.vocab=600 "
      "model.vocab_padded=600",
      20);
}

static void test_exact_lattice_leaves_few_terms_in_each_row_and_column(void **state) {
  (void)state;
  struct sf_catalog *catalog = catalog_of("mode=isolated data.exact=true precision.compute=bf16 model.ffn=1024 model.hidden=16");
  const int32_t param = sf_catalog_param(catalog, SF_MODULE_LINEAR_FC1, 0, 0);
  const struct sf_shape shape = catalog->params[param].shape;
  const struct sf_fill fill = sf_fill_for_param(catalog, param, 0);
  static float w[1024 * 16];
  assert_int_equal(shape.rows * shape.cols, 1024 * 16);
  sf_fill_range(w, &fill, 0, 1024 * 16);
  int64_t nonzero = 0;
  for (int64_t col = 0; col < shape.cols; col++) {
    int64_t in_col = 0;
    for (int64_t row = 0; row < shape.rows; row++) {
      const float value = w[row * shape.cols + col];
      assert_true(value == 0 || value == 1 || value == -1);
      in_col += value != 0;
    }
    assert_true(in_col <= 255);
    nonzero += in_col;
  }
  assert_true(nonzero > 1024 * 16 / 10);
  sf_catalog_destroy(catalog);
}

static struct sf_trace_id id_of(const struct sf_catalog *catalog, enum sf_kind kind, enum sf_module_class cls) {
  const int32_t layer = cls == SF_MODULE_OUTPUT_LAYER || cls == SF_MODULE_LOSS || cls == SF_MODULE_FINAL_LAYERNORM ? -1 : 0;
  return (struct sf_trace_id){.kind = (uint8_t)kind, .subject = sf_catalog_module(catalog, cls, layer)};
}

static void test_exact_promises_linear_and_residual_modules_alone(void **state) {
  (void)state;
  struct sf_catalog *catalog = catalog_of(EXACT), *plain = catalog_of("mode=isolated"),
                    *sparse = catalog_of("mode=isolated data.exact=true model.seq=3");
  static const enum sf_module_class yes[] = {SF_MODULE_LINEAR_QKV, SF_MODULE_LINEAR_PROJ, SF_MODULE_SELF_ATTN_BDA, SF_MODULE_LINEAR_FC1,
                                             SF_MODULE_LINEAR_FC2, SF_MODULE_MLP_BDA,     SF_MODULE_OUTPUT_LAYER};
  static const enum sf_module_class no[] = {SF_MODULE_INPUT_LAYERNORM, SF_MODULE_CORE_ATTENTION, SF_MODULE_ACTIVATION,
                                            SF_MODULE_FINAL_LAYERNORM, SF_MODULE_LOSS};
  for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
    assert_true(sf_trace_is_exact(catalog, id_of(catalog, SF_KIND_ACT, yes[i])));
    assert_true(sf_trace_is_exact(catalog, id_of(catalog, SF_KIND_ACT_GRAD, yes[i])));
    assert_false(sf_trace_is_exact(plain, id_of(plain, SF_KIND_ACT, yes[i])));
  }
  for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
    assert_false(sf_trace_is_exact(catalog, id_of(catalog, SF_KIND_ACT, no[i])));
    assert_false(sf_trace_is_exact(catalog, id_of(catalog, SF_KIND_ACT_GRAD, no[i])));
  }
  /* Main gradients are divided by the step's tokens: three are not a power of two. */
  assert_false(sf_trace_is_exact(sparse, (struct sf_trace_id){.kind = SF_KIND_MAIN_GRAD}));
  assert_int_equal(sf_data_step_tokens(&catalog->logical, 0) & (sf_data_step_tokens(&catalog->logical, 0) - 1), 0);
  assert_true(sf_trace_is_exact(catalog, (struct sf_trace_id){.kind = SF_KIND_MAIN_GRAD}));
  sf_catalog_destroy(catalog);
  sf_catalog_destroy(plain);
  sf_catalog_destroy(sparse);
}

/* The shared expert is linear, what it joins is not; their sum reads what is written over both. */
static void test_exact_beside_experts_promises_the_shared_expert_and_its_sum(void **state) {
  (void)state;
  for (int post_norm = 0; post_norm < 2; post_norm++) {
    struct sf_catalog *catalog =
        catalog_of(post_norm ? EXACT " moe.experts=2 moe.shared_ffn=8 model.post_norm=on" : EXACT " moe.experts=2 moe.shared_ffn=8");
    assert_true(sf_trace_is_exact(catalog, id_of(catalog, SF_KIND_ACT, SF_MODULE_SHARED_FC1)));
    assert_true(sf_trace_is_exact(catalog, id_of(catalog, SF_KIND_ACT, SF_MODULE_SHARED_FC2)));
    assert_true(sf_trace_is_exact(catalog, id_of(catalog, SF_KIND_ACT, SF_MODULE_SHARED_ADD)));
    assert_true(sf_trace_is_exact(catalog, id_of(catalog, SF_KIND_ACT_GRAD, SF_MODULE_SHARED_FC1)));
    assert_true(sf_trace_is_exact(catalog, id_of(catalog, SF_KIND_ACT_GRAD, SF_MODULE_SHARED_FC2)));
    assert_false(sf_trace_is_exact(catalog, id_of(catalog, SF_KIND_ACT, SF_MODULE_SHARED_ACTIVATION)));
    assert_false(sf_trace_is_exact(catalog, id_of(catalog, SF_KIND_ACT, SF_MODULE_COMBINE)));
    float sum[8];
    const struct sf_fill fill = sf_fill_for_trace(catalog, id_of(catalog, SF_KIND_ACT, SF_MODULE_COMBINE));
    sf_fill_range(sum, &fill, 0, 8);
    for (int i = 0; i < 8; i++) assert_true(sum[i] == rintf(sum[i]));
    sf_catalog_destroy(catalog);
  }
}

/* Twice an integer is one, ten ninths of it is not. */
static void test_exact_with_dropout_promises_what_its_factor_allows(void **state) {
  (void)state;
  struct sf_catalog *half = catalog_of(EXACT " train.dropout_milli=500"), *tenth = catalog_of(EXACT " train.dropout_milli=100");
  static const struct {
    enum sf_kind kind;
    enum sf_module_class cls;
    bool scaled;
  } tensors[] = {{SF_KIND_ACT, SF_MODULE_SELF_ATTN_BDA, true},      {SF_KIND_ACT, SF_MODULE_MLP_BDA, true},
                 {SF_KIND_ACT_GRAD, SF_MODULE_LINEAR_PROJ, true},   {SF_KIND_ACT_GRAD, SF_MODULE_LINEAR_FC2, true},
                 {SF_KIND_ACT_GRAD, SF_MODULE_SELF_ATTN_BDA, false}, {SF_KIND_ACT, SF_MODULE_LINEAR_FC2, false},
                 {SF_KIND_ACT_GRAD, SF_MODULE_LINEAR_FC1, false}};
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
    assert_true(sf_trace_is_exact(half, id_of(half, tensors[i].kind, tensors[i].cls)));
    assert_int_equal(sf_trace_is_exact(tenth, id_of(tenth, tensors[i].kind, tensors[i].cls)), !tensors[i].scaled);
  }
  struct sf_trace_id wgrad = {.kind = SF_KIND_WGRAD, .subject = sf_catalog_param(tenth, SF_MODULE_LINEAR_FC2, 0, 0)};
  assert_true(sf_trace_is_exact(half, wgrad));
  assert_false(sf_trace_is_exact(tenth, wgrad));
  wgrad.kind = SF_KIND_MAIN_GRAD;
  assert_true(sf_trace_is_exact(tenth, wgrad));
  sf_catalog_destroy(half);
  sf_catalog_destroy(tenth);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_exact_tensors_of_the_reference_are_those_of_fp64_in_any_order),
      cmocka_unit_test(test_exact_tensors_of_latent_attention_are_exact),
      cmocka_unit_test(test_exact_tensors_of_long_contractions_are_exact),
      cmocka_unit_test(test_exact_lattice_leaves_few_terms_in_each_row_and_column),
      cmocka_unit_test(test_exact_promises_linear_and_residual_modules_alone),
      cmocka_unit_test(test_exact_beside_experts_promises_the_shared_expert_and_its_sum),
      cmocka_unit_test(test_exact_with_dropout_promises_what_its_factor_allows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
