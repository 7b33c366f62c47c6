/* The fp64 reference against itself: main gradients and central differences of the loss, over random small cases. */
#include "tests/unit/oracles/reference_test.h"

#include "harness/base/pcg.h"
#include "tests/rounds.h"

enum { RANDOM_CASES = SF_ROUNDS(24), MOE_CASES = SF_ROUNDS(24), LATENT_CASES = SF_ROUNDS(10) };

static int pick(struct sf_pcg *pcg, int bound) { return (int)sf_pcg_below(pcg, (uint64_t)bound); }

/* Words that make a random case one of experts. */
static void random_moe(char *words, size_t size, struct sf_pcg *pcg) {
  static const char *const routers[] = {"softmax", "sigmoid"}, *const scopes[] = {"sequence", "microbatch"};
  const int experts = 2 + pick(pcg, 5), topk = 1 + pick(pcg, experts);
  snprintf(words, size,
           " moe.experts=%d moe.topk=%d moe.ffn=%d moe.router=%s moe.scope=%s moe.capacity_milli=%d moe.shared_ffn=%d moe.aux_micro=%d "
           "moe.z_micro=%d",
           experts, topk, 4 + pick(pcg, 6), routers[pick(pcg, 2)], scopes[pick(pcg, 2)], pick(pcg, 2) * (400 + pick(pcg, 1000)),
           pick(pcg, 2) * (3 + pick(pcg, 6)), pick(pcg, 3) * 400000, pick(pcg, 3) * 30000);
}

/* latents: multi-latent attention, with a latent of the queries or without. */
static struct sf_catalog *random_catalog(struct sf_pcg *pcg, bool moe, bool latents) {
  static const char *const norms[] = {"rms", "layer"}, *const activations[] = {"gelu", "swiglu", "relu2"};
  static const char *const positions[] = {"none", "learned", "rotary"}, *const losses[] = {"per_token", "per_microbatch"};
  static const char *const masks[] = {"full", "uneven", "sparse"}, *const flags[] = {"off", "on"};
  const int kv_heads = 1 + pick(pcg, 2), heads = kv_heads * (1 + pick(pcg, 3)), vocab = 5 + pick(pcg, 6);
  char words[1000];
  snprintf(
      words, sizeof words,
      "mode=e2e seed=%d model.layers=%d model.hidden=%d model.heads=%d model.kv_heads=%d model.head_dim=%d model.ffn=%d model.vocab=%d "
      "model.vocab_padded=%d model.seq=%d model.norm=%s model.activation=%s model.positions=%s model.bias=%s model.tied=%s "
      "model.adapter=%s model.qk_norm=%s model.sinks=%s model.window=%d model.parallel_residual=%s train.microbatches=%d "
      "train.microbatch_size=%d train.loss_norm=%s data.mask=%s train.label_smoothing_milli=%d",
      pick(pcg, 1000), 1 + pick(pcg, 2), 6 + pick(pcg, 6), heads, kv_heads, 2 + 2 * pick(pcg, 3), 5 + pick(pcg, 8), vocab,
      vocab + pick(pcg, 4), 3 + pick(pcg, 4), norms[pick(pcg, 2)], activations[pick(pcg, 3)], positions[pick(pcg, 3)], flags[pick(pcg, 2)],
      flags[pick(pcg, 2)], flags[pick(pcg, 2)], flags[pick(pcg, 2)], flags[pick(pcg, 2)], pick(pcg, 5), flags[pick(pcg, 2)],
      1 + pick(pcg, 3), 1 + pick(pcg, 2), losses[pick(pcg, 2)], masks[pick(pcg, 3)], 250 * pick(pcg, 4));
  const int memory_seq = strstr(words, "parallel_residual=on") != NULL ? 0 : pick(pcg, 5);
  size_t length = strlen(words);
  snprintf(
      words + length, sizeof words - length,
      " train.dropout_milli=%d data.documents=%d data.padding=%d model.mtp_depth=%d train.mtp_weight_milli=%d model.post_norm=%s "
      "model.memory_seq=%d",
      200 * pick(pcg, 3), 1 + pick(pcg, 4), pick(pcg, 4), pick(pcg, 3), 100 + pick(pcg, 2000), flags[pick(pcg, 2)], memory_seq);
  length = strlen(words);
  if (moe) random_moe(words + length, sizeof words - length, pcg);
  if (!latents) return catalog_of(words);
  const size_t dropped = strlen(words);
  snprintf(words + dropped, sizeof words - dropped,
           " model.positions=rotary model.qk_norm=off model.kv_heads=%d model.head_dim=6 model.kv_lora_rank=%d model.q_lora_rank=%d "
           "model.qk_rope_dim=%d",
           heads, 6 + pick(pcg, 6), pick(pcg, 2) * (6 + pick(pcg, 6)), 2 + 2 * pick(pcg, 2));
  return catalog_of(words);
}

/* The loss of a step: what the scalar says, the weighted losses of the tokens further ahead, and those of the routers. */
struct loss {
  const struct sf_catalog *catalog;
  double main, ahead, routers;
};

static void add_router(struct loss *loss, struct sf_trace_id id, const double *values, int64_t count) {
  const struct sf_case *c = &loss->catalog->logical;
  const int64_t z = c->moe.z_micro > 0, scopes = count - z;
  double value = z ? (double)c->moe.z_micro / 1e6 * values[scopes] : 0, tokens = 0;
  for (int64_t i = 0; i < scopes; i++) value += (double)c->moe.aux_micro / 1e6 * values[i] / (double)scopes;
  for (int64_t i = 0; i < c->train.microbatch_size; i++) tokens += (double)sf_data_sequence_length(c, id.step, id.microbatch, i);
  const bool per_token = c->train.loss_norm == SF_LOSS_PER_TOKEN;
  loss->routers += value * (per_token ? tokens / (double)sf_data_step_tokens(c, id.step) : 1 / (double)c->train.microbatches);
}

static void add_ahead(struct loss *loss, struct sf_trace_id id, const double *losses, int64_t tokens) {
  const struct sf_case *c = &loss->catalog->logical;
  const int64_t depth = loss->catalog->modules[id.subject].layer - c->model.layers;
  float mask[64];
  assert_true(tokens <= 64);
  sf_data_ahead(NULL, NULL, mask, c, id.step, id.microbatch, depth);
  double kept = 0, sum = 0;
  for (int64_t t = 0; t < tokens; t++) kept += (double)mask[t], sum += (double)mask[t] * losses[t];
  const double divisor = c->train.loss_norm == SF_LOSS_PER_MICROBATCH ? kept * (double)c->train.microbatches
                                                                      : (double)sf_data_step_tokens_ahead(c, id.step, depth);
  if (kept > 0) loss->ahead += (double)c->train.mtp_weight_milli / 1000 / (double)c->model.mtp_depth * sum / divisor;
}

static void keep_loss(void *ctx, struct sf_trace_id id, const void *values, struct sf_shape shape) {
  struct loss *loss = ctx;
  if (id.step > 0) return;
  if (id.kind == SF_KIND_SCALAR && id.subject == SF_SCALAR_LOSS) loss->main = *(const double *)values;
  if (id.kind == SF_KIND_ACT && loss->catalog->modules[id.subject].cls == SF_MODULE_MTP_LOSS) add_ahead(loss, id, values, shape.cols);
  if (id.kind == SF_KIND_ACT && loss->catalog->modules[id.subject].cls == SF_MODULE_AUX_LOSS) add_router(loss, id, values, shape.rows);
}

static double loss_at(const struct sf_catalog *catalog, int32_t param, const double *direction, double amount) {
  struct loss loss = {.catalog = catalog, .main = NAN};
  const struct sf_reference_options options = {.fp64 = true, .gemm = &loops_table};
  const struct sf_reference_sink sink = {.ctx = &loss, .emit = keep_loss};
  const struct sf_reference_nudge nudge = {.param = param, .amount = amount, .direction = direction};
  assert_int_equal(sf_reference_run_nudged(catalog, &options, &sink, &nudge), SF_OK);
  return loss.main + loss.ahead + loss.routers;
}

/* A random unit vector plus the gradient's own direction: the slope along it is of the gradient's size, and no part goes unseen. */
static double direction_draw(double *direction, const double *grad, int64_t count, struct sf_pcg *pcg) {
  for (int64_t i = 0; i < count; i++) direction[i] = (double)pick(pcg, 2001) - 1000.5;
  const double size = norm_of(direction, count), grad_size = norm_of(grad, count);
  double slope = 0;
  for (int64_t i = 0; i < count; i++) {
    direction[i] = direction[i] / size + (grad_size > 0 ? grad[i] / grad_size : 0);
    slope += direction[i] * grad[i];
  }
  return slope;
}

/* reach: a LayerNorm over the two columns of a small head bends within 1e-3, so two differences leave out the third power; loss / reach has
 * 1e-10. */
static void check_param(const struct sf_catalog *catalog, const struct keeper *keeper, int32_t param, struct sf_pcg *pcg) {
  const struct sf_trace_id id = {.pass = SF_PASS_STEP, .kind = SF_KIND_MAIN_GRAD, .subject = param};
  const struct kept *grad = keeper_find(keeper, id);
  assert_non_null(grad);
  const int64_t count = grad->shape.rows * grad->shape.cols;
  double *direction = malloc((size_t)count * sizeof *direction);
  assert_non_null(direction);
  const double slope = direction_draw(direction, grad->values, count, pcg), reach = 5e-6;
  const double near = loss_at(catalog, param, direction, reach) - loss_at(catalog, param, direction, -reach);
  const double far = loss_at(catalog, param, direction, 2 * reach) - loss_at(catalog, param, direction, -2 * reach);
  const double measured = (8 * near - far) / (12 * reach);
  if (!(fabs(measured - slope) <= 1e-6 * norm_of(grad->values, count) + 1e-9))
    fail_msg("seed %lld %s: gradient %.12g, measured %.12g", (long long)catalog->logical.seed, catalog->params[param].name, slope,
             measured);
  free(direction);
}

static void test_reference_run_main_grad_is_slope_of_loss(void **state) {
  (void)state;
  struct sf_pcg pcg = sf_pcg_create(2024, 1);
  for (int i = 0; i < RANDOM_CASES + MOE_CASES + LATENT_CASES; i++) {
    const bool latents = i >= RANDOM_CASES + MOE_CASES;
    struct sf_catalog *catalog = random_catalog(&pcg, i >= RANDOM_CASES && !latents, latents);
    struct keeper keeper = keep_run(catalog, true, SF_PERTURB_NONE, 0);
    for (int32_t p = 0; p < catalog->param_count; p++) check_param(catalog, &keeper, p, &pcg);
    keeper_destroy(&keeper);
    sf_catalog_destroy(catalog);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_reference_run_main_grad_is_slope_of_loss)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
