#include "tests/unit/spec/catalog_test.h"

#include "harness/base/alloc.h"

/* Beside the LLaMA-like case a GPT-like one. */
static struct sf_case gpt_case(void) {
  struct sf_case c = llama_case();
  c.model.norm = SF_NORM_LAYER, c.model.activation = SF_ACT_GELU, c.model.positions = SF_POS_LEARNED;
  c.model.bias = c.model.tied = c.model.adapter = true;
  c.train.frozen = SF_FROZEN_QKV | SF_FROZEN_NORMS;
  return c;
}

/* --- modules and parameters --------------------------------------------------------------------------------------- */

static void test_catalog_create_lists_modules_in_execution_order(void **state) {
  (void)state;
  static const char *const LLAMA[] = {
      "embedding.word_embeddings", "decoder.layers.0.input_layernorm", "decoder.layers.0.self_attention.linear_qkv",
      "decoder.layers.0.self_attention.rotary", "decoder.layers.0.self_attention.core_attention",
      "decoder.layers.0.self_attention.linear_proj", "decoder.layers.0.self_attn_bda", "decoder.layers.0.pre_mlp_layernorm",
      "decoder.layers.0.mlp.linear_fc1", "decoder.layers.0.mlp.activation", "decoder.layers.0.mlp.linear_fc2", "decoder.layers.0.mlp_bda",
      "decoder.layers.1.input_layernorm"};
  static const char *const GPT_TAIL[] = {"decoder.layers.1.mlp_bda", "adapter", "adapter_bda", "decoder.final_layernorm", "output_layer",
                                         "loss", "optimizer"};
  struct sf_case c = llama_case();
  struct sf_catalog *catalog = create(&c);
  assert_int_equal(catalog->module_count, 1 + 2 * 11 + 4);
  for (size_t i = 0; i < sizeof LLAMA / sizeof LLAMA[0]; i++) assert_string_equal(catalog->modules[i].name, LLAMA[i]);
  sf_catalog_destroy(catalog);
  c = gpt_case();
  catalog = create(&c);
  assert_int_equal(catalog->module_count, 2 + 2 * 10 + 6);
  assert_string_equal(catalog->modules[1].name, "embedding");
  for (size_t i = 0; i < sizeof GPT_TAIL / sizeof GPT_TAIL[0]; i++)
    assert_string_equal(catalog->modules[catalog->module_count - 7 + (int)i].name, GPT_TAIL[i]);
  sf_catalog_destroy(catalog);
}

static void check_params(const struct sf_case *c, const struct param_row *rows, int count) {
  struct sf_catalog *catalog = create(c);
  assert_int_equal(catalog->param_count, count);
  for (int i = 0; i < count; i++) check_param(catalog, i, &rows[i]);
  sf_catalog_destroy(catalog);
}

static void test_catalog_create_lists_the_parameters_of_a_llama(void **state) {
  (void)state;
  struct sf_case c = llama_case();
  c.model.layers = 1;
  static const struct param_row ROWS[] = {
      {"embedding.word_embeddings.weight", 32, 16, SF_CUT_EVEN, SF_CUT_NONE, 0.5f, 0, false, true},
      {"decoder.layers.0.input_layernorm.weight", 1, 16, SF_CUT_NONE, SF_CUT_NONE, 0.125f, 1, false, false},
      {"decoder.layers.0.self_attention.linear_qkv.weight", 48, 16, SF_CUT_QKV, SF_CUT_NONE, 0.25f, 0, false, true},
      {"decoder.layers.0.self_attention.linear_proj.weight", 16, 24, SF_CUT_NONE, SF_CUT_EVEN, 0.25f, 0, false, true},
      {"decoder.layers.0.pre_mlp_layernorm.weight", 1, 16, SF_CUT_NONE, SF_CUT_NONE, 0.125f, 1, false, false},
      {"decoder.layers.0.mlp.linear_fc1.weight", 40, 16, SF_CUT_GATE_UP, SF_CUT_NONE, 0.25f, 0, false, true},
      {"decoder.layers.0.mlp.linear_fc2.weight", 16, 20, SF_CUT_NONE, SF_CUT_EVEN, 0.25f, 0, false, true},
      {"decoder.final_layernorm.weight", 1, 16, SF_CUT_NONE, SF_CUT_NONE, 0.125f, 1, false, false},
      {"output_layer.weight", 32, 16, SF_CUT_EVEN, SF_CUT_NONE, 0.25f, 0, false, true},
  };
  check_params(&c, ROWS, (int)(sizeof ROWS / sizeof ROWS[0]));
}

static void test_catalog_create_lists_the_parameters_of_a_gpt(void **state) {
  (void)state;
  struct sf_case c = gpt_case();
  c.model.layers = 1;
  static const struct param_row ROWS[] = {
      {"embedding.word_embeddings.weight", 32, 16, SF_CUT_EVEN, SF_CUT_NONE, 0.25f, 0, false, true},
      {"embedding.position_embeddings.weight", 10, 16, SF_CUT_NONE, SF_CUT_NONE, 0.5f, 0, false, true},
      {"decoder.layers.0.input_layernorm.weight", 1, 16, SF_CUT_NONE, SF_CUT_NONE, 0.125f, 1, true, false},
      {"decoder.layers.0.input_layernorm.bias", 1, 16, SF_CUT_NONE, SF_CUT_NONE, 0.125f, 0, true, false},
      {"decoder.layers.0.self_attention.linear_qkv.weight", 48, 16, SF_CUT_QKV, SF_CUT_NONE, 0.25f, 0, true, true},
      {"decoder.layers.0.self_attention.linear_qkv.bias", 1, 48, SF_CUT_NONE, SF_CUT_QKV, 0.125f, 0, true, false},
      {"decoder.layers.0.self_attention.linear_proj.weight", 16, 24, SF_CUT_NONE, SF_CUT_EVEN, 0.25f, 0, false, true},
      {"decoder.layers.0.self_attention.linear_proj.bias", 1, 16, SF_CUT_NONE, SF_CUT_NONE, 0.125f, 0, false, false},
      {"decoder.layers.0.pre_mlp_layernorm.weight", 1, 16, SF_CUT_NONE, SF_CUT_NONE, 0.125f, 1, true, false},
      {"decoder.layers.0.pre_mlp_layernorm.bias", 1, 16, SF_CUT_NONE, SF_CUT_NONE, 0.125f, 0, true, false},
      {"decoder.layers.0.mlp.linear_fc1.weight", 20, 16, SF_CUT_EVEN, SF_CUT_NONE, 0.25f, 0, false, true},
      {"decoder.layers.0.mlp.linear_fc1.bias", 1, 20, SF_CUT_NONE, SF_CUT_EVEN, 0.125f, 0, false, false},
      {"decoder.layers.0.mlp.linear_fc2.weight", 16, 20, SF_CUT_NONE, SF_CUT_EVEN, 0.25f, 0, false, true},
      {"decoder.layers.0.mlp.linear_fc2.bias", 1, 16, SF_CUT_NONE, SF_CUT_NONE, 0.125f, 0, false, false},
      {"adapter.weight", 16, 16, SF_CUT_NONE, SF_CUT_NONE, 0.25f, 0, false, true},
      {"decoder.final_layernorm.weight", 1, 16, SF_CUT_NONE, SF_CUT_NONE, 0.125f, 1, true, false},
      {"decoder.final_layernorm.bias", 1, 16, SF_CUT_NONE, SF_CUT_NONE, 0.125f, 0, true, false},
  };
  check_params(&c, ROWS, (int)(sizeof ROWS / sizeof ROWS[0]));
}

static void test_catalog_create_lists_the_parameters_of_attention_features(void **state) {
  (void)state;
  struct sf_case c = gpt_case();
  c.model.qk_norm = c.model.sinks = true;
  struct sf_catalog *catalog = create(&c);
  static const struct param_row ROWS[] = {
      {"decoder.layers.1.self_attention.qk_layernorm.q.weight", 1, 6, SF_CUT_NONE, SF_CUT_NONE, 0.125f, 1, true, false},
      {"decoder.layers.1.self_attention.qk_layernorm.k.weight", 1, 6, SF_CUT_NONE, SF_CUT_NONE, 0.125f, 1, true, false},
      {"decoder.layers.1.self_attention.qk_layernorm.q.bias", 1, 6, SF_CUT_NONE, SF_CUT_NONE, 0.125f, 0, true, false},
      {"decoder.layers.1.self_attention.qk_layernorm.k.bias", 1, 6, SF_CUT_NONE, SF_CUT_NONE, 0.125f, 0, true, false},
      {"decoder.layers.1.self_attention.core_attention.softmax_offset", 1, 4, SF_CUT_NONE, SF_CUT_EVEN, 1, 0, true, false},
  };
  const int32_t first = sf_catalog_param(catalog, SF_MODULE_QK_NORM, 1, 0);
  for (int i = 0; i < 5; i++) check_param(catalog, first + i, &ROWS[i]);
  for (int i = 0; i < 4; i++) assert_int_equal(sf_catalog_param(catalog, SF_MODULE_QK_NORM, 1, i), first + i);
  assert_int_equal(sf_catalog_param(catalog, SF_MODULE_QK_NORM, 1, 4), -1);
  assert_int_equal(sf_catalog_param(catalog, SF_MODULE_CORE_ATTENTION, 1, 0), first + 4);
  assert_int_equal(sf_catalog_param(catalog, SF_MODULE_CORE_ATTENTION, 1, 1), -1);
  sf_catalog_destroy(catalog);
  c.model.norm = SF_NORM_RMS;
  catalog = create(&c);
  const int32_t weights = sf_catalog_param(catalog, SF_MODULE_QK_NORM, 0, 0);
  assert_string_equal(catalog->params[weights + 1].name, "decoder.layers.0.self_attention.qk_layernorm.k.weight");
  assert_int_equal(sf_catalog_param(catalog, SF_MODULE_QK_NORM, 0, 2), -1);
  assert_int_equal(sf_catalog_param(catalog, SF_MODULE_CORE_ATTENTION, 0, 0), weights + 2);
  assert_int_equal(sf_catalog_module(catalog, SF_MODULE_QK_NORM, 0), sf_catalog_module(catalog, SF_MODULE_LINEAR_QKV, 0) + 1);
  sf_catalog_destroy(catalog);
}

static void test_catalog_create_lists_the_parameters_of_cross_attention(void **state) {
  (void)state;
  struct sf_case c = gpt_case();
  c.model.memory_seq = 5;
  struct sf_catalog *catalog = create(&c);
  static const struct param_row ROWS[] = {
      {"decoder.layers.1.pre_cross_attn_layernorm.weight", 1, 16, SF_CUT_NONE, SF_CUT_NONE, 0.125f, 1, true, false},
      {"decoder.layers.1.pre_cross_attn_layernorm.bias", 1, 16, SF_CUT_NONE, SF_CUT_NONE, 0.125f, 0, true, false},
      {"decoder.layers.1.cross_attention.linear_q.weight", 24, 16, SF_CUT_EVEN, SF_CUT_NONE, 0.25f, 0, true, true},
      {"decoder.layers.1.cross_attention.linear_q.bias", 1, 24, SF_CUT_NONE, SF_CUT_EVEN, 0.125f, 0, true, false},
      {"decoder.layers.1.cross_attention.linear_kv.weight", 48, 16, SF_CUT_EVEN, SF_CUT_NONE, 0.25f, 0, true, true},
      {"decoder.layers.1.cross_attention.linear_kv.bias", 1, 48, SF_CUT_NONE, SF_CUT_EVEN, 0.125f, 0, true, false},
      {"decoder.layers.1.cross_attention.linear_proj.weight", 16, 24, SF_CUT_NONE, SF_CUT_EVEN, 0.25f, 0, false, true},
      {"decoder.layers.1.cross_attention.linear_proj.bias", 1, 16, SF_CUT_NONE, SF_CUT_NONE, 0.125f, 0, false, false},
      {"decoder.layers.1.pre_mlp_layernorm.weight", 1, 16, SF_CUT_NONE, SF_CUT_NONE, 0.125f, 1, true, false},
  };
  const int32_t first = sf_catalog_param(catalog, SF_MODULE_PRE_CROSS_ATTN_LAYERNORM, 1, 0);
  for (int i = 0; i < (int)(sizeof ROWS / sizeof ROWS[0]); i++) check_param(catalog, first + i, &ROWS[i]);
  sf_catalog_destroy(catalog);
}

/* Cut over tp as an MLP is, without biases, whatever model.bias says; the second linear behind the experts. */
static void test_catalog_create_lists_the_parameters_of_a_shared_expert(void **state) {
  (void)state;
  struct sf_case c = llama_case();
  c.model.bias = true, c.moe.experts = 2, c.moe.shared_ffn = 6, c.train.frozen = SF_FROZEN_FC2;
  struct sf_catalog *catalog = create(&c);
  static const struct param_row ROWS[] = {
      {"decoder.layers.1.mlp.shared_experts.linear_fc1.weight", 12, 16, SF_CUT_GATE_UP, SF_CUT_NONE, 0.25f, 0, false, true},
      {"decoder.layers.1.mlp.shared_experts.linear_fc2.weight", 16, 6, SF_CUT_NONE, SF_CUT_EVEN, 0.5f, 0, true, true},
      {"decoder.final_layernorm.weight", 1, 16, SF_CUT_NONE, SF_CUT_NONE, 0.125f, 1, false, false},
  };
  const int32_t first = sf_catalog_param(catalog, SF_MODULE_SHARED_FC1, 1, 0);
  for (int i = 0; i < (int)(sizeof ROWS / sizeof ROWS[0]); i++) check_param(catalog, first + i, &ROWS[i]);
  sf_catalog_destroy(catalog);
}

/* Rows of the memory are not tokens. What core_attention reads of it has a gradient of its own, and no output. */
static void test_trace_spec_of_the_memory(void **state) {
  (void)state;
  struct sf_case c = llama_case();
  c.model.memory_seq = 5;
  struct sf_catalog *catalog = create(&c);
  struct sf_trace_spec kv, key_value, memory;
  const struct sf_trace_id kv_act = {
      .pass = SF_PASS_FWD, .kind = SF_KIND_ACT, .subject = sf_catalog_module(catalog, SF_MODULE_CROSS_LINEAR_KV, 0)};
  struct sf_trace_id id = {.pass = SF_PASS_BWD, .kind = SF_KIND_ACT_GRAD, .subject = kv_act.subject};
  assert_true(sf_trace_spec(&kv, catalog, kv_act));
  assert_true(sf_trace_spec(&memory, catalog, id));
  id.subject = sf_catalog_module(catalog, SF_MODULE_CROSS_KEY_VALUE, 0);
  assert_true(sf_trace_spec(&key_value, catalog, id));
  assert_false(sf_trace_spec(&key_value, catalog, (struct sf_trace_id){.pass = SF_PASS_FWD, .kind = SF_KIND_ACT, .subject = id.subject}));
  assert_true(kv.shape.rows == 10 && kv.shape.cols == 48 && kv.row_cut == SF_CUT_NONE && kv.col_cut == SF_CUT_EVEN);
  assert_true(key_value.shape.rows == 10 && key_value.shape.cols == 48 && key_value.row_cut == SF_CUT_NONE &&
              key_value.col_cut == SF_CUT_EVEN);
  assert_true(memory.shape.rows == 10 && memory.shape.cols == 16 && memory.row_cut == SF_CUT_SEQUENCE && memory.col_cut == SF_CUT_NONE);
  sf_catalog_destroy(catalog);
}

static void test_catalog_weight_scale_is_the_nearest_power_of_two(void **state) {
  (void)state;
  static const struct { int64_t hidden; float scale; } ROWS[] = {
      {1, 1.0f}, {2, 0.5f}, {4, 0.5f}, {7, 0.5f}, {8, 0.25f}, {16, 0.25f}, {31, 0.25f}, {32, 0.125f}, {64, 0.125f}, {65536, 0.00390625f}};
  for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
    struct sf_case c;
    sf_case_init(&c);
    c.model.hidden = ROWS[i].hidden;
    struct sf_catalog *catalog = create(&c);
    const float scale = catalog->params[sf_catalog_param(catalog, SF_MODULE_OUTPUT_LAYER, -1, 0)].scale;
    assert_true(scale == ROWS[i].scale);
    sf_catalog_destroy(catalog);
  }
}

/* Over every combination of the features that change the lists: looking up what stands at a place gives the place. */
static void test_catalog_lookup_agrees_with_the_lists_for_all_features(void **state) {
  (void)state;
  for (int features = 0; features < 288; features++) {
    struct sf_case c = llama_case();
    c.model.bias = features & 1, c.model.tied = features & 2, c.model.adapter = features & 4;
    c.model.norm = features & 8 ? SF_NORM_LAYER : SF_NORM_RMS;
    c.model.layers = features & 16 ? 3 : 1;
    c.model.positions = features / 32 % 3, c.model.mtp_depth = features / 96;
    struct sf_catalog *catalog = create(&c);
    int32_t modules = 0, params = 0;
    for (int cls = -1; cls <= SF_MODULE_CLASS_COUNT; cls++)
      for (int32_t layer = -2; layer <= c.model.layers + c.model.mtp_depth; layer++) {
        const int32_t module = sf_catalog_module(catalog, (enum sf_module_class)cls, layer);
        assert_in_range(module + 1, 0, catalog->module_count);
        if (module >= 0) assert_true((int)catalog->modules[module].cls == cls && catalog->modules[module].layer == layer);
        modules += module >= 0;
        for (int which = -1; which <= 2; which++) {
          const int32_t param = sf_catalog_param(catalog, (enum sf_module_class)cls, layer, which);
          assert_in_range(param + 1, 0, catalog->param_count);
          if (param < 0) continue;
          assert_int_equal(catalog->params[param].module, module);
          assert_int_equal(strstr(catalog->params[param].name, ".bias") != NULL, which);
          params++;
        }
      }
    assert_int_equal(modules, catalog->module_count);
    assert_int_equal(params, catalog->param_count);
    sf_catalog_destroy(catalog);
  }
}

static void test_catalog_create_without_memory_says_so(void **state) {
  (void)state;
  const struct sf_case c = gpt_case();
  for (int k = 1; k <= 3; k++) {
    struct sf_catalog *catalog = NULL;
    sf_alloc_fail_at(k);
    assert_int_equal(sf_catalog_create(&catalog, &c), SF_ENOMEM);
    assert_null(catalog);
  }
  sf_alloc_fail_at(0);
  sf_catalog_destroy(NULL);
}

/* --- trace ids ------------------------------------------------------------------------------------------------------ */

static bool same_id(struct sf_trace_id a, struct sf_trace_id b) {
  return a.step == b.step && a.microbatch == b.microbatch && a.pass == b.pass && a.kind == b.kind && a.call == b.call &&
         a.subject == b.subject;
}

static void test_trace_key_packs_each_part_and_gives_it_back(void **state) {
  (void)state;
  static const struct sf_trace_id IDS[] = {
      {.step = 0},      {.step = 3},
      {.microbatch = 1}, {.microbatch = 65535},
      {.pass = SF_PASS_STEP}, {.kind = SF_KIND_SCALAR},
      {.call = 1},      {.subject = 1},
      {.subject = INT32_MAX}, {.subject = -1},
      {.step = 3, .microbatch = 65535, .pass = 3, .kind = 6, .call = 15, .subject = -1}};
  enum { COUNT = sizeof IDS / sizeof IDS[0] };
  for (int i = 0; i < COUNT; i++) {
    assert_true(same_id(sf_trace_id_from_key(sf_trace_key(IDS[i])), IDS[i]));
    for (int k = 0; k < i; k++) assert_int_not_equal(sf_trace_key(IDS[i]), sf_trace_key(IDS[k]));
  }
}

static void expect_text(const struct sf_catalog *catalog, struct sf_trace_id id, const char *expected) {
  char text[128];
  sf_trace_id_text(text, sizeof text, catalog, id);
  assert_string_equal(text, expected);
}

static void test_trace_id_text_names_every_part(void **state) {
  (void)state;
  const struct sf_case c = gpt_case();
  struct sf_catalog *catalog = create(&c);
  const int32_t fc1 = sf_catalog_module(catalog, SF_MODULE_LINEAR_FC1, 1);
  const int32_t weight = sf_catalog_param(catalog, SF_MODULE_WORD_EMBEDDINGS, -1, 0);
  expect_text(catalog, (struct sf_trace_id){.microbatch = 1, .pass = SF_PASS_FWD, .kind = SF_KIND_ACT, .subject = fc1},
              "s0/mb1/fwd/act/decoder.layers.1.mlp.linear_fc1/0");
  expect_text(catalog, (struct sf_trace_id){.step = 1, .pass = SF_PASS_BWD, .kind = SF_KIND_WGRAD, .call = 1, .subject = weight},
              "s1/mb0/bwd/wgrad/embedding.word_embeddings.weight/1");
  expect_text(catalog, (struct sf_trace_id){.pass = SF_PASS_STEP, .kind = SF_KIND_SCALAR, .subject = SF_SCALAR_GRAD_NORM},
              "s0/mb0/step/scalar/grad_norm/0");
  expect_text(catalog, (struct sf_trace_id){.pass = 9, .kind = 9, .subject = 9999}, "s0/mb0/?/?/?/0");
  char cut[8];
  sf_trace_id_text(cut, sizeof cut, catalog, (struct sf_trace_id){.kind = SF_KIND_ACT});
  assert_string_equal(cut, "s0/mb0/");
  sf_catalog_destroy(catalog);
}

static void test_trace_names_are_those_of_the_tables(void **state) {
  (void)state;
  assert_string_equal(sf_kind_name(SF_KIND_PARAM), "param");
  assert_string_equal(sf_kind_name(SF_KIND_MAIN_GRAD), "main_grad");
  assert_string_equal(sf_kind_name(SF_KIND_SCALAR), "scalar");
  assert_string_equal(sf_scalar_name(SF_SCALAR_LOSS), "loss");
  assert_string_equal(sf_scalar_name(SF_SCALAR_CLIP), "clip");
  assert_string_equal(sf_pass_name(SF_PASS_RECOMPUTE), "recompute");
  assert_string_equal(sf_pass_name(SF_PASS_STEP), "step");
  assert_string_equal(sf_modules[SF_MODULE_FINAL_LAYERNORM].name, "decoder.final_layernorm");
}

/* --- what each traced tensor is: 20 tokens, hidden 16, qkv 48, heads 24, ffn 20, vocab 32 ------------------------------ */

/* The stream, and the gradients of what reads it; the adapter reads it in the compute format. */
static void test_trace_spec_fp32_residual_is_promised_for_the_stream_only(void **state) {
  (void)state;
  static const struct { enum sf_module_class cls; bool act, act_grad; } wide[] = {
      {SF_MODULE_WORD_EMBEDDINGS, true, false},  {SF_MODULE_EMBEDDING, true, false},        {SF_MODULE_INPUT_LAYERNORM, false, true},
      {SF_MODULE_SELF_ATTN_BDA, true, true},     {SF_MODULE_PRE_MLP_LAYERNORM, false, true}, {SF_MODULE_MLP_BDA, true, true},
      {SF_MODULE_ADAPTER_BDA, true, true},       {SF_MODULE_FINAL_LAYERNORM, false, true},  {SF_MODULE_LOSS, true, false}};
  struct sf_case c = gpt_case();
  c.precision.residual_fp32 = true;
  struct sf_catalog *catalog = create(&c);
  for (int32_t module = 0; module < catalog->module_count; module++) {
    bool act = false, act_grad = false;
    for (size_t i = 0; i < sizeof wide / sizeof wide[0]; i++)
      if (wide[i].cls == catalog->modules[module].cls) act = wide[i].act, act_grad = wide[i].act_grad;
    struct sf_trace_spec spec;
    if (sf_trace_spec(&spec, catalog, (struct sf_trace_id){.pass = SF_PASS_FWD, .kind = SF_KIND_ACT, .subject = module}))
      assert_int_equal(spec.promised, act ? SF_F32 : SF_BF16);
    if (sf_trace_spec(&spec, catalog, (struct sf_trace_id){.pass = SF_PASS_BWD, .kind = SF_KIND_ACT_GRAD, .subject = module}))
      assert_int_equal(spec.promised, act_grad ? SF_F32 : SF_BF16);
  }
  sf_catalog_destroy(catalog);
}

static void test_trace_spec_of_activations_and_their_gradients(void **state) {
  (void)state;
  static const struct spec_row LLAMA[] = {
      {SF_MODULE_WORD_EMBEDDINGS, 20, 16, SEQUENCE, NONE, 0, NONE, NONE},
      {SF_MODULE_INPUT_LAYERNORM, 20, 16, SEQUENCE, NONE, 16, SEQUENCE, NONE},
      {SF_MODULE_LINEAR_QKV, 20, 48, TOKENS, QKV, 16, SEQUENCE, NONE},
      {SF_MODULE_ROTARY, 20, 48, TOKENS, QKV, 48, TOKENS, QKV},
      {SF_MODULE_CORE_ATTENTION, 20, 24, TOKENS, EVEN, 48, TOKENS, QKV},
      {SF_MODULE_LINEAR_PROJ, 20, 16, SEQUENCE, NONE, 24, TOKENS, EVEN},
      {SF_MODULE_SELF_ATTN_BDA, 20, 16, SEQUENCE, NONE, 16, SEQUENCE, NONE},
      {SF_MODULE_PRE_MLP_LAYERNORM, 20, 16, SEQUENCE, NONE, 16, SEQUENCE, NONE},
      {SF_MODULE_LINEAR_FC1, 20, 40, TOKENS, GATE_UP, 16, SEQUENCE, NONE},
      {SF_MODULE_ACTIVATION, 20, 20, TOKENS, EVEN, 40, TOKENS, GATE_UP},
      {SF_MODULE_LINEAR_FC2, 20, 16, SEQUENCE, NONE, 20, TOKENS, EVEN},
      {SF_MODULE_MLP_BDA, 20, 16, SEQUENCE, NONE, 16, SEQUENCE, NONE},
      {SF_MODULE_FINAL_LAYERNORM, 20, 16, SEQUENCE, NONE, 16, SEQUENCE, NONE},
      {SF_MODULE_OUTPUT_LAYER, 20, 32, TOKENS, EVEN, 16, SEQUENCE, NONE},
      {SF_MODULE_LOSS, 1, 20, NONE, TOKENS, 32, TOKENS, EVEN},
  };
  static const struct spec_row GPT[] = {
      {SF_MODULE_EMBEDDING, 20, 16, SEQUENCE, NONE, 0, NONE, NONE},
      {SF_MODULE_LINEAR_FC1, 20, 20, TOKENS, EVEN, 16, SEQUENCE, NONE},
      {SF_MODULE_ACTIVATION, 20, 20, TOKENS, EVEN, 20, TOKENS, EVEN},
      {SF_MODULE_ADAPTER, 20, 16, TOKENS, NONE, 16, SEQUENCE, NONE},
      {SF_MODULE_ADAPTER_BDA, 20, 16, SEQUENCE, NONE, 16, SEQUENCE, NONE},
  };
  struct sf_case c = llama_case();
  struct sf_catalog *catalog = create(&c);
  check_specs(catalog, LLAMA, (int)(sizeof LLAMA / sizeof LLAMA[0]));
  sf_catalog_destroy(catalog);
  c = gpt_case();
  catalog = create(&c);
  check_specs(catalog, GPT, (int)(sizeof GPT / sizeof GPT[0]));
  sf_catalog_destroy(catalog);
}

/* Norms at the ends of branches: what they read and put out is the branch's, not the stream. */
static void test_catalog_create_post_norm_adds_norms_behind_both_branches(void **state) {
  (void)state;
  static const struct spec_row ROWS[] = {
      {SF_MODULE_POST_SELF_ATTN_LAYERNORM, 20, 16, SEQUENCE, NONE, 16, SEQUENCE, NONE},
      {SF_MODULE_POST_MLP_LAYERNORM, 20, 16, SEQUENCE, NONE, 16, SEQUENCE, NONE},
  };
  struct sf_case c = gpt_case();
  c.precision.residual_fp32 = true;
  struct sf_catalog *catalog = create(&c);
  assert_int_equal(sf_catalog_module(catalog, SF_MODULE_POST_MLP_LAYERNORM, 0), -1);
  sf_catalog_destroy(catalog);
  c.model.post_norm = true;
  catalog = create(&c);
  check_specs(catalog, ROWS, 2);
  const int32_t attention = sf_catalog_module(catalog, SF_MODULE_POST_SELF_ATTN_LAYERNORM, 1),
                mlp = sf_catalog_module(catalog, SF_MODULE_POST_MLP_LAYERNORM, 1);
  assert_string_equal(catalog->modules[attention].name, "decoder.layers.1.post_self_attn_layernorm");
  assert_int_equal(attention, sf_catalog_module(catalog, SF_MODULE_LINEAR_PROJ, 1) + 1);
  assert_int_equal(mlp, sf_catalog_module(catalog, SF_MODULE_MLP_BDA, 1) - 1);
  const int32_t weight = sf_catalog_param(catalog, SF_MODULE_POST_MLP_LAYERNORM, 1, 0);
  static const struct param_row PARAMS[] = {
      {"decoder.layers.1.post_mlp_layernorm.weight", 1, 16, SF_CUT_NONE, SF_CUT_NONE, 0.125f, 1, true, false},
      {"decoder.layers.1.post_mlp_layernorm.bias", 1, 16, SF_CUT_NONE, SF_CUT_NONE, 0.125f, 0, true, false},
  };
  for (int i = 0; i < 2; i++) check_param(catalog, weight + i, &PARAMS[i]);
  sf_catalog_destroy(catalog);
}

static void test_trace_spec_of_parameter_tensors(void **state) {
  (void)state;
  const struct sf_case c = gpt_case();
  struct sf_catalog *catalog = create(&c);
  for (int32_t param = 0; param < catalog->param_count; param++) {
    const struct sf_param *p = &catalog->params[param];
    static const struct { enum sf_kind kind; enum sf_pass pass; } KINDS[] = {
        {SF_KIND_PARAM, SF_PASS_STEP}, {SF_KIND_WGRAD, SF_PASS_BWD},
        {SF_KIND_MAIN_GRAD, SF_PASS_STEP}, {SF_KIND_PARAM_DELTA, SF_PASS_STEP}};
    for (int i = 0; i < 4; i++) {
      const struct sf_trace_id id = {.pass = (uint8_t)KINDS[i].pass, .kind = (uint8_t)KINDS[i].kind, .subject = param};
      struct sf_trace_spec spec;
      const bool exists = sf_trace_spec(&spec, catalog, id);
      assert_int_equal(exists, i == 0 || !p->frozen);
      if (!exists) continue;
      assert_true(spec.shape.rows == p->shape.rows && spec.shape.cols == p->shape.cols);
      assert_true(spec.row_cut == p->row_cut && spec.col_cut == p->col_cut);
      assert_int_equal(spec.promised, i == 0 ? SF_BF16 : SF_F32);
      assert_int_equal(spec.module, i == 3 ? catalog->module_count - 1 : p->module);
    }
  }
  sf_catalog_destroy(catalog);
}

static void test_trace_spec_of_scalars_blames_loss_or_optimizer(void **state) {
  (void)state;
  struct sf_case c = gpt_case();
  c.precision.loss_scale_log2 = 8;
  struct sf_catalog *catalog = create(&c);
  for (int scalar = 0; scalar < SF_SCALAR_COUNT; scalar++) {
    struct sf_trace_spec spec;
    assert_true(sf_trace_spec(&spec, catalog, (struct sf_trace_id){.pass = SF_PASS_STEP, .kind = SF_KIND_SCALAR, .subject = scalar}));
    assert_true(spec.shape.rows == 1 && spec.shape.cols == 1 && spec.promised == SF_F32);
    const enum sf_module_class blamed = scalar <= SF_SCALAR_TOKENS ? SF_MODULE_LOSS : SF_MODULE_OPTIMIZER;
    assert_int_equal(catalog->modules[spec.module].cls, blamed);
    const struct sf_trace_id after = {.step = (uint16_t)c.train.steps, .pass = SF_PASS_STEP, .kind = SF_KIND_SCALAR, .subject = scalar};
    assert_int_equal(sf_trace_spec(&spec, catalog, after), scalar == SF_SCALAR_LOSS_SCALE); /* the next step's */
  }
  sf_catalog_destroy(catalog);
}

static void test_trace_spec_without_loss_scaling_has_no_scale_and_no_overflow(void **state) {
  (void)state;
  const struct sf_case c = gpt_case();
  struct sf_catalog *catalog = create(&c);
  struct sf_trace_spec spec;
  for (int scalar = 0; scalar < SF_SCALAR_COUNT; scalar++) {
    const struct sf_trace_id id = {.pass = SF_PASS_STEP, .kind = SF_KIND_SCALAR, .subject = scalar};
    assert_int_equal(sf_trace_spec(&spec, catalog, id), scalar != SF_SCALAR_LOSS_SCALE && scalar != SF_SCALAR_OVERFLOW);
  }
  sf_catalog_destroy(catalog);
}

static void test_trace_spec_of_second_calls_exists_where_a_stage_may_begin_or_a_head_is_tied(void **state) {
  (void)state;
  struct sf_case c = gpt_case();
  struct sf_catalog *catalog = create(&c);
  struct sf_trace_spec spec;
  struct sf_trace_id id = {.pass = SF_PASS_FWD, .kind = SF_KIND_ACT, .call = 1};
  int found = 0;
  for (id.subject = 0; id.subject < catalog->module_count; id.subject++) found += sf_trace_spec(&spec, catalog, id);
  assert_int_equal(found, 1);
  id.subject = sf_catalog_module(catalog, SF_MODULE_MLP_BDA, 0);
  assert_true(sf_trace_spec(&spec, catalog, id));
  id.kind = SF_KIND_ACT_GRAD, id.pass = SF_PASS_BWD, found = 0;
  for (id.subject = 0; id.subject < catalog->module_count; id.subject++) found += sf_trace_spec(&spec, catalog, id);
  assert_int_equal(found, 1);
  id.subject = sf_catalog_module(catalog, SF_MODULE_SELF_ATTN_BDA, 1);
  assert_true(sf_trace_spec(&spec, catalog, id));
  id.kind = SF_KIND_WGRAD, id.subject = sf_catalog_param(catalog, SF_MODULE_WORD_EMBEDDINGS, -1, 0);
  assert_true(sf_trace_spec(&spec, catalog, id));
  assert_int_equal(catalog->modules[spec.module].cls, SF_MODULE_OUTPUT_LAYER);
  sf_catalog_destroy(catalog);
  c.model.tied = false;
  catalog = create(&c);
  assert_false(sf_trace_spec(&spec, catalog, id));
  sf_catalog_destroy(catalog);
}

/* Each use of a shared weight is a call of its own, and to blame on the module that uses it. */
static void test_trace_spec_of_mtp_names_the_module_of_each_use(void **state) {
  (void)state;
  struct sf_case c = llama_case();
  c.model.mtp_depth = 2;
  for (int tied = 0; tied < 2; tied++) {
    c.model.tied = tied;
    struct sf_catalog *catalog = create(&c);
    const int32_t word = sf_catalog_param(catalog, SF_MODULE_WORD_EMBEDDINGS, -1, 0),
                  head = sf_catalog_param(catalog, SF_MODULE_OUTPUT_LAYER, -1, 0);
    const int32_t layers = (int32_t)c.model.layers;
    const struct {
      int32_t param;
      uint8_t call;
      enum sf_module_class cls; /* OPTIMIZER: no such tensor */
      int32_t layer;
    } rows[] = {{word, 2, SF_MODULE_MTP_EMBEDDING, layers},
                {word, 4, SF_MODULE_MTP_EMBEDDING, layers + 1},
                {tied ? word : head, 3, SF_MODULE_MTP_OUTPUT_LAYER, layers},
                {tied ? word : head, 5, SF_MODULE_MTP_OUTPUT_LAYER, layers + 1},
                {tied ? word : head, 7, SF_MODULE_OPTIMIZER, -1},
                {word, 6, SF_MODULE_OPTIMIZER, -1},
                {sf_catalog_param(catalog, SF_MODULE_MTP_EH_PROJ, layers, 0), 0, SF_MODULE_MTP_EH_PROJ, layers},
                {sf_catalog_param(catalog, SF_MODULE_MTP_EH_PROJ, layers, 0), 3, SF_MODULE_OPTIMIZER, -1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
      struct sf_trace_spec spec;
      const struct sf_trace_id id = {.kind = SF_KIND_WGRAD, .pass = SF_PASS_BWD, .call = rows[i].call, .subject = rows[i].param};
      const bool exists = rows[i].cls != SF_MODULE_OPTIMIZER;
      assert_int_equal(sf_trace_spec(&spec, catalog, id), exists);
      if (exists) assert_int_equal(spec.module, sf_catalog_module(catalog, rows[i].cls, rows[i].layer));
    }
    assert_string_equal(catalog->modules[sf_catalog_module(catalog, SF_MODULE_MTP_EH_PROJ, layers + 1)].name, "mtp.layers.1.eh_proj");
    assert_string_equal(catalog->modules[sf_catalog_module(catalog, SF_MODULE_MLP_BDA, layers)].name,
                        "mtp.layers.0.transformer_layer.mlp_bda");
    sf_catalog_destroy(catalog);
  }
}

static void test_trace_spec_of_what_the_model_has_not_is_false_and_writes_nothing(void **state) {
  (void)state;
  const struct sf_case c = llama_case();
  struct sf_catalog *catalog = create(&c);
  const int32_t fc1 = sf_catalog_module(catalog, SF_MODULE_LINEAR_FC1, 0), head = sf_catalog_module(catalog, SF_MODULE_OUTPUT_LAYER, -1);
  const struct sf_trace_id ids[] = {
      {.kind = SF_KIND_ACT, .subject = -1},
      {.kind = SF_KIND_ACT, .subject = catalog->module_count},
      {.kind = SF_KIND_ACT, .subject = catalog->module_count - 1}, /* the optimizer puts nothing out */
      {.kind = SF_KIND_ACT, .subject = fc1, .step = 2},
      {.kind = SF_KIND_ACT, .subject = fc1, .microbatch = 3},
      {.kind = SF_KIND_ACT, .subject = fc1, .call = 1},
      {.kind = SF_KIND_ACT, .subject = fc1, .pass = SF_PASS_BWD},
      {.kind = SF_KIND_ACT, .subject = fc1, .pass = 4},
      {.kind = SF_KIND_ACT, .subject = head, .pass = SF_PASS_RECOMPUTE},
      {.kind = SF_KIND_ACT_GRAD, .subject = fc1, .pass = SF_PASS_FWD},
      {.kind = SF_KIND_ACT_GRAD, .subject = 0, .pass = SF_PASS_BWD},
      {.kind = SF_KIND_WGRAD, .subject = 0, .pass = SF_PASS_FWD},
      {.kind = SF_KIND_WGRAD, .subject = catalog->param_count, .pass = SF_PASS_BWD},
      {.kind = SF_KIND_MAIN_GRAD, .subject = 0, .pass = SF_PASS_BWD},
      {.kind = SF_KIND_MAIN_GRAD, .subject = 0, .pass = SF_PASS_STEP, .microbatch = 1},
      {.kind = SF_KIND_MAIN_GRAD, .subject = 0, .pass = SF_PASS_STEP, .step = 2},
      {.kind = SF_KIND_PARAM, .subject = 0, .pass = SF_PASS_STEP, .step = 3},
      {.kind = SF_KIND_PARAM, .subject = 0, .pass = SF_PASS_STEP, .call = 1},
      {.kind = SF_KIND_SCALAR, .subject = SF_SCALAR_COUNT, .pass = SF_PASS_STEP},
      {.kind = SF_KIND_SCALAR, .subject = -1, .pass = SF_PASS_STEP},
      {.kind = SF_KIND_COUNT, .subject = 0},
  };
  struct sf_trace_spec spec, before;
  memset(&spec, 0x5a, sizeof spec);
  before = spec;
  for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
    char text[128];
    sf_trace_id_text(text, sizeof text, catalog, ids[i]);
    if (sf_trace_spec(&spec, catalog, ids[i])) fail_msg("%s exists", text);
  }
  assert_memory_equal(&spec, &before, sizeof spec);
  assert_true(sf_trace_spec(&spec, catalog, (struct sf_trace_id){.kind = SF_KIND_PARAM, .pass = SF_PASS_STEP, .step = 2}));
  assert_true(sf_trace_spec(&spec, catalog, (struct sf_trace_id){.kind = SF_KIND_ACT, .pass = SF_PASS_RECOMPUTE, .subject = fc1}));
  sf_catalog_destroy(catalog);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_catalog_create_lists_modules_in_execution_order),
      cmocka_unit_test(test_catalog_create_lists_the_parameters_of_a_llama),
      cmocka_unit_test(test_catalog_create_lists_the_parameters_of_a_gpt),
      cmocka_unit_test(test_catalog_create_lists_the_parameters_of_attention_features),
      cmocka_unit_test(test_catalog_create_lists_the_parameters_of_cross_attention),
      cmocka_unit_test(test_catalog_create_lists_the_parameters_of_a_shared_expert),
      cmocka_unit_test(test_trace_spec_of_the_memory),
      cmocka_unit_test(test_catalog_weight_scale_is_the_nearest_power_of_two),
      cmocka_unit_test(test_catalog_lookup_agrees_with_the_lists_for_all_features),
      cmocka_unit_test(test_catalog_create_without_memory_says_so),
      cmocka_unit_test(test_trace_key_packs_each_part_and_gives_it_back),
      cmocka_unit_test(test_trace_id_text_names_every_part),
      cmocka_unit_test(test_trace_names_are_those_of_the_tables),
      cmocka_unit_test(test_trace_spec_fp32_residual_is_promised_for_the_stream_only),
      cmocka_unit_test(test_trace_spec_of_activations_and_their_gradients),
      cmocka_unit_test(test_catalog_create_post_norm_adds_norms_behind_both_branches),
      cmocka_unit_test(test_trace_spec_of_parameter_tensors),
      cmocka_unit_test(test_trace_spec_of_scalars_blames_loss_or_optimizer),
      cmocka_unit_test(test_trace_spec_without_loss_scaling_has_no_scale_and_no_overflow),
      cmocka_unit_test(test_trace_spec_of_second_calls_exists_where_a_stage_may_begin_or_a_head_is_tied),
      cmocka_unit_test(test_trace_spec_of_mtp_names_the_module_of_each_use),
      cmocka_unit_test(test_trace_spec_of_what_the_model_has_not_is_false_and_writes_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
