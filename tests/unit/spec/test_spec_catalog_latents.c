/* The catalogue of multi-latent attention. */
#include "tests/unit/spec/catalog_test.h"

/* 4 heads of 6 columns, of which the last 2 are rotated. */
static struct sf_case latent_case(void) {
  struct sf_case c = llama_case();
  c.model.kv_heads = c.model.heads;
  c.model.kv_lora_rank = 10, c.model.q_lora_rank = 5, c.model.qk_rope_dim = 2;
  return c;
}

static void test_catalog_create_lists_the_parameters_of_latent_attention(void **state) {
  (void)state;
  struct sf_case c = latent_case();
  static const struct param_row ROWS[] = {
      {"decoder.layers.1.self_attention.linear_q_down_proj.weight", 5, 16, SF_CUT_NONE, SF_CUT_NONE, 0.25f, 0, false, true},
      {"decoder.layers.1.self_attention.q_layernorm.weight", 1, 5, SF_CUT_NONE, SF_CUT_NONE, 0.125f, 1, false, false},
      {"decoder.layers.1.self_attention.linear_q_up_proj.weight", 24, 5, SF_CUT_EVEN, SF_CUT_NONE, 0.5f, 0, false, true},
      {"decoder.layers.1.self_attention.linear_kv_down_proj.weight", 12, 16, SF_CUT_NONE, SF_CUT_NONE, 0.25f, 0, false, true},
      {"decoder.layers.1.self_attention.kv_layernorm.weight", 1, 10, SF_CUT_NONE, SF_CUT_NONE, 0.125f, 1, false, false},
      {"decoder.layers.1.self_attention.linear_kv_up_proj.weight", 40, 10, SF_CUT_EVEN, SF_CUT_NONE, 0.25f, 0, false, true},
  };
  struct sf_catalog *catalog = create(&c);
  const int32_t first = sf_catalog_param(catalog, SF_MODULE_LINEAR_Q_DOWN, 1, 0);
  for (int i = 0; i < 6; i++) check_param(catalog, first + i, &ROWS[i]);
  assert_int_equal(sf_catalog_param(catalog, SF_MODULE_LINEAR_Q, 1, 0), -1);
  assert_int_equal(sf_catalog_param(catalog, SF_MODULE_LINEAR_QKV, 1, 0), -1);
  sf_catalog_destroy(catalog);
  c.model.q_lora_rank = 0, c.model.norm = SF_NORM_LAYER, c.train.frozen = SF_FROZEN_QKV;
  catalog = create(&c);
  const struct param_row query = {
      "decoder.layers.0.self_attention.linear_q_proj.weight", 24, 16, SF_CUT_EVEN, SF_CUT_NONE, 0.25f, 0, true, true};
  check_param(catalog, sf_catalog_param(catalog, SF_MODULE_LINEAR_Q, 0, 0), &query);
  const struct param_row bias = {
      "decoder.layers.0.self_attention.kv_layernorm.bias", 1, 10, SF_CUT_NONE, SF_CUT_NONE, 0.125f, 0, false, false};
  check_param(catalog, sf_catalog_param(catalog, SF_MODULE_KV_LAYERNORM, 0, 1), &bias);
  assert_int_equal(sf_catalog_module(catalog, SF_MODULE_LINEAR_Q_DOWN, 0), -1);
  sf_catalog_destroy(catalog);
}

static void test_trace_spec_of_latents(void **state) {
  (void)state;
  static const struct spec_row LATENT[] = {
      {SF_MODULE_LINEAR_Q_DOWN, 20, 5, SEQUENCE, NONE, 16, SEQUENCE, NONE},
      {SF_MODULE_Q_LAYERNORM, 20, 5, SEQUENCE, NONE, 5, SEQUENCE, NONE},
      {SF_MODULE_LINEAR_Q_UP, 20, 24, TOKENS, EVEN, 5, SEQUENCE, NONE},
      {SF_MODULE_LINEAR_KV_DOWN, 20, 12, SEQUENCE, NONE, 16, SEQUENCE, NONE},
      {SF_MODULE_KV_LAYERNORM, 20, 10, SEQUENCE, NONE, 10, SEQUENCE, NONE},
      {SF_MODULE_LINEAR_KV_UP, 20, 40, TOKENS, EVEN, 10, SEQUENCE, NONE},
      {SF_MODULE_ROTARY, 20, 72, TOKENS, QKV, 72, TOKENS, QKV},
  };
  struct sf_case c = latent_case();
  struct sf_catalog *catalog = create(&c);
  check_specs(catalog, LATENT, (int)(sizeof LATENT / sizeof LATENT[0]));
  sf_catalog_destroy(catalog);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_catalog_create_lists_the_parameters_of_latent_attention),
                                     cmocka_unit_test(test_trace_spec_of_latents)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
