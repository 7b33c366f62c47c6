/* Each layer's traced output and gradients against its formula in fp64, computed from the tensors traced before it. */
#include "tests/unit/targets/target_world.h"

#include "targets/builtin/parallel/buffers.h"

/* Two ranks share every layer; kv_heads 2 gives each rank whole groups. */
#define MODEL                                                                                                                              \
  "model.layers=1 model.heads=4 model.kv_heads=2 model.head_dim=4 model.seq=6 model.ffn=12 model.vocab=12 model.vocab_padded=16 "          \
  "model.bias=true model.norm=layer mode=e2e "
#define LAYOUT "layout.tp=2 layout.sp=true"
/* fp32 against fp64 on sums of at most 32 terms. */
static const double LIMIT = 3e-6;

static const float *act(const struct world *w, enum sf_module_class cls) {
  const int32_t layer = cls >= SF_MODULE_INPUT_LAYERNORM && cls <= SF_MODULE_MLP_BDA ? 0 : -1;
  const struct sf_trace_id id = {.pass = SF_PASS_FWD, .kind = SF_KIND_ACT, .subject = sf_catalog_module(w->catalog, cls, layer)};
  const struct world_tensor *tensor = world_find(w, id);
  assert_non_null(tensor);
  return tensor->values;
}

static const float *act_grad(const struct world *w, enum sf_module_class cls) {
  const int32_t layer = cls >= SF_MODULE_INPUT_LAYERNORM && cls <= SF_MODULE_MLP_BDA ? 0 : -1;
  const struct sf_trace_id id = {.pass = SF_PASS_BWD, .kind = SF_KIND_ACT_GRAD, .subject = sf_catalog_module(w->catalog, cls, layer)};
  const struct world_tensor *tensor = world_find(w, id);
  assert_non_null(tensor);
  return tensor->values;
}

static const float *param(const struct world *w, enum sf_kind kind, enum sf_module_class cls, int which) {
  const int32_t layer = cls >= SF_MODULE_INPUT_LAYERNORM && cls <= SF_MODULE_MLP_BDA ? 0 : -1;
  const enum sf_pass pass = kind == SF_KIND_WGRAD ? SF_PASS_BWD : SF_PASS_STEP;
  const struct world_tensor *tensor = world_find(
      w, (struct sf_trace_id){.pass = (uint8_t)pass, .kind = (uint8_t)kind, .subject = sf_catalog_param(w->catalog, cls, layer, which)});
  assert_non_null(tensor);
  return tensor->values;
}

static void assert_close(const float *got, const double *wanted, int64_t count) {
  double error = 0.0, norm = 0.0;
  for (int64_t i = 0; i < count; i++) {
    error += ((double)got[i] - wanted[i]) * ((double)got[i] - wanted[i]);
    norm += wanted[i] * wanted[i];
  }
  assert_true(norm > 0.0);
  if (!(sqrt(error / norm) <= LIMIT)) fail_msg("relative error %g", sqrt(error / norm));
}

/* out [m x n] = a [m x k] b^T (+ bias); b is [n x k]. */
static void product(double *out, const float *a, const float *b, const float *bias, int64_t m, int64_t n, int64_t k) {
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      double sum = bias != NULL ? (double)bias[j] : 0.0;
      for (int64_t x = 0; x < k; x++) sum += (double)a[i * k + x] * (double)b[j * k + x];
      out[i * n + j] = sum;
    }
}

/* da [m x k] = g [m x n] b; dw [n x k] = g^T a */
static void product_grads(double *da, double *dw, const float *g, const float *a, const float *b, int64_t m, int64_t n, int64_t k) {
  memset(da, 0, (size_t)(m * k) * sizeof *da);
  memset(dw, 0, (size_t)(n * k) * sizeof *dw);
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++)
      for (int64_t x = 0; x < k; x++) {
        da[i * k + x] += (double)g[i * n + j] * (double)b[j * k + x];
        dw[j * k + x] += (double)g[i * n + j] * (double)a[i * k + x];
      }
}

static void test_linears_forward_equal_formula(void **state) {
  (void)state;
  const struct sf_case c = world_case(MODEL LAYOUT);
  struct world *w = world_run(&c, SF_FAULT_NONE);
  double out[6 * 64];
  product(out, act(w, SF_MODULE_INPUT_LAYERNORM), param(w, SF_KIND_PARAM, SF_MODULE_LINEAR_QKV, 0),
          param(w, SF_KIND_PARAM, SF_MODULE_LINEAR_QKV, 1), 6, 32, 8);
  assert_close(act(w, SF_MODULE_LINEAR_QKV), out, 6 * 32);
  product(out, act(w, SF_MODULE_CORE_ATTENTION), param(w, SF_KIND_PARAM, SF_MODULE_LINEAR_PROJ, 0),
          param(w, SF_KIND_PARAM, SF_MODULE_LINEAR_PROJ, 1), 6, 8, 16);
  assert_close(act(w, SF_MODULE_LINEAR_PROJ), out, 6 * 8);
  product(out, act(w, SF_MODULE_ACTIVATION), param(w, SF_KIND_PARAM, SF_MODULE_LINEAR_FC2, 0),
          param(w, SF_KIND_PARAM, SF_MODULE_LINEAR_FC2, 1), 6, 8, 12);
  assert_close(act(w, SF_MODULE_LINEAR_FC2), out, 6 * 8);
  world_destroy(w);
}

static void test_linears_backward_equal_formula(void **state) {
  (void)state;
  const struct sf_case c = world_case(MODEL LAYOUT);
  struct world *w = world_run(&c, SF_FAULT_NONE);
  double da[6 * 32], dw[32 * 32];
  product_grads(da, dw, act_grad(w, SF_MODULE_ACTIVATION), act(w, SF_MODULE_PRE_MLP_LAYERNORM),
                param(w, SF_KIND_PARAM, SF_MODULE_LINEAR_FC1, 0), 6, 12, 8);
  assert_close(act_grad(w, SF_MODULE_LINEAR_FC1), da, 6 * 8);
  assert_close(param(w, SF_KIND_WGRAD, SF_MODULE_LINEAR_FC1, 0), dw, 12 * 8);
  /* The gradient of fc2's output is that of the last residual sum, which the final norm hands back. */
  product_grads(da, dw, act_grad(w, SF_MODULE_FINAL_LAYERNORM), act(w, SF_MODULE_ACTIVATION),
                param(w, SF_KIND_PARAM, SF_MODULE_LINEAR_FC2, 0), 6, 8, 12);
  assert_close(act_grad(w, SF_MODULE_LINEAR_FC2), da, 6 * 12);
  assert_close(param(w, SF_KIND_WGRAD, SF_MODULE_LINEAR_FC2, 0), dw, 8 * 12);
  product_grads(da, dw, act_grad(w, SF_MODULE_LOSS), act(w, SF_MODULE_FINAL_LAYERNORM), param(w, SF_KIND_PARAM, SF_MODULE_OUTPUT_LAYER, 0),
                6, 16, 8);
  assert_close(act_grad(w, SF_MODULE_OUTPUT_LAYER), da, 6 * 8);
  assert_close(param(w, SF_KIND_WGRAD, SF_MODULE_OUTPUT_LAYER, 0), dw, 16 * 8);
  world_destroy(w);
}

/* Probabilities of one query head: heads 0, 1 use group 0, heads 2, 3 group 1. Columns of a group: two queries, key, value, 4 each. */
static void probabilities(double probs[6][6], const float *qkv, int head) {
  const float *q = qkv + head / 2 * 16 + head % 2 * 4, *k = qkv + head / 2 * 16 + 8;
  for (int i = 0; i < 6; i++) {
    double sum = 0.0;
    for (int j = 0; j < 6; j++) {
      double score = 0.0;
      for (int x = 0; x < 4; x++) score += (double)q[i * 32 + x] * (double)k[j * 32 + x];
      probs[i][j] = j <= i ? exp(score / 2.0) : 0.0;
      sum += probs[i][j];
    }
    for (int j = 0; j < 6; j++) probs[i][j] /= sum;
  }
}

static void test_attention_forward_equals_formula(void **state) {
  (void)state;
  const struct sf_case c = world_case(MODEL LAYOUT);
  struct world *w = world_run(&c, SF_FAULT_NONE);
  const float *qkv = act(w, SF_MODULE_LINEAR_QKV);
  double out[6 * 16] = {0}, probs[6][6];
  for (int head = 0; head < 4; head++) {
    probabilities(probs, qkv, head);
    for (int i = 0; i < 6; i++)
      for (int j = 0; j <= i; j++)
        for (int x = 0; x < 4; x++) out[i * 16 + head * 4 + x] += probs[i][j] * (double)qkv[j * 32 + head / 2 * 16 + 12 + x];
  }
  assert_close(act(w, SF_MODULE_CORE_ATTENTION), out, 6 * 16);
  world_destroy(w);
}

static void attention_head_backward(double *dqkv, const float *qkv, const float *g, int head) {
  const int group = head / 2 * 16, query = group + head % 2 * 4;
  double probs[6][6], dp[6][6] = {0};
  probabilities(probs, qkv, head);
  for (int i = 0; i < 6; i++) {
    double row_sum = 0.0;
    for (int j = 0; j <= i; j++)
      for (int x = 0; x < 4; x++) dp[i][j] += (double)g[i * 16 + head * 4 + x] * (double)qkv[j * 32 + group + 12 + x];
    for (int j = 0; j <= i; j++) row_sum += probs[i][j] * dp[i][j];
    for (int j = 0; j <= i; j++)
      for (int x = 0; x < 4; x++) {
        const double ds = probs[i][j] * (dp[i][j] - row_sum) / 2.0;
        dqkv[i * 32 + query + x] += ds * (double)qkv[j * 32 + group + 8 + x];
        dqkv[j * 32 + group + 8 + x] += ds * (double)qkv[i * 32 + query + x];
        dqkv[j * 32 + group + 12 + x] += probs[i][j] * (double)g[i * 16 + head * 4 + x];
      }
  }
}

/* On two ranks with whole groups, and on four where two share a key/value head and its gradients are partial sums. */
static void test_attention_backward_equals_formula(void **state) {
  (void)state;
  static const char *const cases[] = {MODEL LAYOUT, MODEL "layout.tp=4"};
  for (int i = 0; i < 2; i++) {
    const struct sf_case c = world_case(cases[i]);
    struct world *w = world_run(&c, SF_FAULT_NONE);
    double dqkv[6 * 32] = {0};
    for (int head = 0; head < 4; head++)
      attention_head_backward(dqkv, act(w, SF_MODULE_LINEAR_QKV), act_grad(w, SF_MODULE_LINEAR_PROJ), head);
    assert_close(act_grad(w, SF_MODULE_CORE_ATTENTION), dqkv, 6 * 32);
    world_destroy(w);
  }
}

static void test_cross_entropy_equals_formula(void **state) {
  (void)state;
  const struct sf_case c = world_case(MODEL LAYOUT " data.mask=uneven train.loss_norm=per_microbatch");
  struct world *w = world_run(&c, SF_FAULT_NONE);
  const float *logits = act(w, SF_MODULE_OUTPUT_LAYER);
  int32_t labels[6];
  float mask[6];
  sf_data_microbatch(NULL, labels, mask, &c, 0, 0);
  double kept = 0.0, losses[6], grad[6 * 16];
  for (int t = 0; t < 6; t++) kept += (double)mask[t];
  for (int t = 0; t < 6; t++) {
    double sum = 0.0;
    for (int v = 0; v < 16; v++) sum += exp((double)logits[t * 16 + v]);
    losses[t] = log(sum) - (double)logits[t * 16 + labels[t]];
    for (int v = 0; v < 16; v++) grad[t * 16 + v] = (exp((double)logits[t * 16 + v]) / sum - (v == labels[t])) * (double)mask[t] / kept;
  }
  assert_close(act(w, SF_MODULE_LOSS), losses, 6);
  assert_close(act_grad(w, SF_MODULE_LOSS), grad, 6 * 16);
  world_destroy(w);
}

static void test_embedding_equals_table_rows(void **state) {
  (void)state;
  const struct sf_case c = world_case(MODEL LAYOUT " model.positions=learned");
  struct world *w = world_run(&c, SF_FAULT_NONE);
  int32_t tokens[6];
  sf_data_microbatch(tokens, NULL, NULL, &c, 0, 0);
  const float *words = param(w, SF_KIND_PARAM, SF_MODULE_WORD_EMBEDDINGS, 0), *positions = param(w, SF_KIND_PARAM, SF_MODULE_EMBEDDING, 0);
  const float *out = act(w, SF_MODULE_WORD_EMBEDDINGS), *sum = act(w, SF_MODULE_EMBEDDING);
  for (int t = 0; t < 6; t++)
    for (int x = 0; x < 8; x++) {
      assert_true(out[t * 8 + x] == words[tokens[t] * 8 + x]);
      assert_true(sum[t * 8 + x] == words[tokens[t] * 8 + x] + positions[t * 8 + x]);
    }
  world_destroy(w);
}

/* What a layer leaves unwritten, or reads after it gave it back, is NaN in the first use of the memory and in every later one: with an
 * earlier tensor's numbers there the same fault would have another class in each case. */
static void test_buffers_used_again_are_nan(void **state) {
  (void)state;
  struct sf_arena *arena = sf_arena_create(1 << 16, true);
  struct sf_rank_env env = {.arena = arena};
  struct sf_buffers buffers = sf_buffers_create(&env);
  float *first = sf_buffers_take(&buffers, 37);
  for (int i = 0; i < 37; i++) first[i] = 1;
  sf_buffers_give(&buffers, first);
  for (int i = 0; i < 37; i++) assert_true(isnan(first[i]));
  float *again = sf_buffers_take(&buffers, 40); /* of the same class */
  assert_ptr_equal(again, first);
  for (int i = 0; i < 40; i++) assert_true(isnan(again[i]));
  sf_arena_destroy(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_buffers_used_again_are_nan),
      cmocka_unit_test(test_linears_forward_equal_formula),    cmocka_unit_test(test_linears_backward_equal_formula),
      cmocka_unit_test(test_attention_forward_equals_formula), cmocka_unit_test(test_attention_backward_equals_formula),
      cmocka_unit_test(test_cross_entropy_equals_formula),     cmocka_unit_test(test_embedding_equals_table_rows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
