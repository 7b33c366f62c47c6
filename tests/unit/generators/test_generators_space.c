/* What 20,000 cases of the default space look like: the shares that harness/docs/tolerance.md counts on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "generators/codec.h"
#include "harness/spec/mesh.h"

#include <stdio.h>
#include <string.h>

enum { CASES = 20000 };

static bool is_fp32(const struct sf_case *c) { return c->precision.compute == SF_F32; }
static bool is_fp8(const struct sf_case *c) { return c->precision.compute == SF_COMPUTE_FP8; }
static bool is_isolated(const struct sf_case *c) { return c->mode == SF_MODE_ISOLATED; }
static bool has_tp(const struct sf_case *c) { return c->layout.tp > 1; }
static bool has_dp(const struct sf_case *c) { return c->layout.dp > 1; }
static bool has_pp(const struct sf_case *c) { return c->layout.pp > 1; }
static bool has_sp(const struct sf_case *c) { return c->layout.sp; }
static bool has_two_axes(const struct sf_case *c) { return has_tp(c) + has_dp(c) + has_pp(c) >= 2; }
static bool has_layers(const struct sf_case *c) { return c->model.layers >= 2; }
static bool is_biased(const struct sf_case *c) { return c->model.bias; }
static bool is_tied(const struct sf_case *c) { return c->model.tied; }
static bool has_adapter(const struct sf_case *c) { return c->model.adapter; }
static bool is_swiglu(const struct sf_case *c) { return c->model.activation == SF_ACT_SWIGLU; }
static bool is_rotary(const struct sf_case *c) { return c->model.positions == SF_POS_ROTARY; }
static bool is_learned(const struct sf_case *c) { return c->model.positions == SF_POS_LEARNED; }
static bool is_rmsnorm(const struct sf_case *c) { return c->model.norm == SF_NORM_RMS; }
static bool is_layernorm(const struct sf_case *c) { return c->model.norm == SF_NORM_LAYER; }
static bool is_gqa(const struct sf_case *c) { return c->model.kv_heads > 1 && c->model.kv_heads < c->model.heads; }
static bool is_mqa(const struct sf_case *c) { return c->model.kv_heads == 1 && c->model.heads > 1; }
static bool has_few_kv_heads(const struct sf_case *c) { return c->model.kv_heads < c->layout.tp; }
static bool is_vocab_padded(const struct sf_case *c) { return c->model.vocab_padded > c->model.vocab; }
static bool is_vocab_indivisible(const struct sf_case *c) { return c->model.vocab % c->layout.tp != 0; }
static bool is_recomputed(const struct sf_case *c) { return c->train.recompute_layers > 0; }
static bool has_chunks(const struct sf_case *c) { return c->train.recompute_layers >= 2; }
static bool is_clipped(const struct sf_case *c) { return c->train.clip_milli > 0; }
static bool is_decayed(const struct sf_case *c) { return c->train.weight_decay_milli > 0; }
static bool is_frozen(const struct sf_case *c) { return c->train.frozen != 0; }
static bool has_microbatches(const struct sf_case *c) { return c->train.microbatches > 1; }
static bool has_steps(const struct sf_case *c) { return c->train.steps > 1; }
static bool has_buckets(const struct sf_case *c) { return c->layout.bucket_elements > 0 && has_dp(c); }
static bool has_overlap(const struct sf_case *c) { return c->layout.overlap && has_dp(c); }
static bool is_uneven_mask(const struct sf_case *c) { return c->data.mask == SF_MASK_UNEVEN; }
static bool is_sparse_mask(const struct sf_case *c) { return c->data.mask == SF_MASK_SPARSE; }
static bool is_edge(const struct sf_case *c) { return c->data.tokens == SF_TOKENS_EDGE; }
static bool is_per_microbatch(const struct sf_case *c) { return c->train.loss_norm == SF_LOSS_PER_MICROBATCH; }
static bool is_reloaded(const struct sf_case *c) { return c->reload.after_step > 0; }
static bool is_resized(const struct sf_case *c) {
  const struct sf_layout *a = &c->layout, *b = &c->reload.layout;
  return is_reloaded(c) && (a->tp != b->tp || a->cp != b->cp || a->dp != b->dp || a->pp != b->pp);
}
static bool is_scheduled(const struct sf_case *c) { return c->schedule > 0; }

static bool is_interleaved(const struct sf_case *c) { return c->layout.vpp > 1; }

static bool is_zero1(const struct sf_case *c) { return c->layout.zero == 1; }
static bool is_zero2(const struct sf_case *c) { return c->layout.zero == 2; }

static bool has_uneven_stages(const struct sf_case *c) {
  for (int64_t stage = 1; stage < c->layout.pp; stage++) {
    int64_t first, a, b;
    sf_case_stage_layers(c, 0, &first, &a);
    sf_case_stage_layers(c, stage, &first, &b);
    if (a != b) return true;
  }
  return false;
}

/* Whether tp, dp and pp follow each other otherwise than by default. */
static bool has_other_order(const struct sf_case *c) {
  const struct sf_mesh mesh = sf_mesh_from_layout(&c->layout);
  int field[SF_AXIS_COUNT];
  for (int i = 0; i < SF_AXIS_COUNT; i++) field[mesh.order[i]] = i;
  return !(field[SF_AXIS_TP] < field[SF_AXIS_DP] && field[SF_AXIS_DP] < field[SF_AXIS_PP]);
}

static const struct {
  const char *name;
  bool (*holds)(const struct sf_case *c);
  int least_percent;
} SHARES[] = {
    {"two axes", has_two_axes, 50},
    {"tp", has_tp, 25},
    {"dp", has_dp, 25},
    {"pp", has_pp, 25},
    {"sp", has_sp, 25},
    {"layers >= 2", has_layers, 50},
    {"fp32", is_fp32, 50},
    {"fp8", is_fp8, 10},
    {"isolated", is_isolated, 50},
    {"other order", has_other_order, 30},
    {"bias", is_biased, 10},
    {"tied", is_tied, 10},
    {"adapter", has_adapter, 10},
    {"swiglu", is_swiglu, 10},
    {"rotary", is_rotary, 10},
    {"learned", is_learned, 10},
    {"rmsnorm", is_rmsnorm, 10},
    {"layernorm", is_layernorm, 10},
    {"gqa", is_gqa, 10},
    {"mqa", is_mqa, 10},
    {"kv_heads < tp", has_few_kv_heads, 10},
    {"vocab padded", is_vocab_padded, 10},
    {"vocab % tp != 0", is_vocab_indivisible, 10},
    {"recompute", is_recomputed, 10},
    {"recompute chunks", has_chunks, 10},
    {"clipping", is_clipped, 10},
    {"weight decay", is_decayed, 10},
    {"frozen", is_frozen, 10},
    {"microbatches", has_microbatches, 10},
    {"steps", has_steps, 10},
    {"buckets, dp", has_buckets, 10},
    {"overlap, dp", has_overlap, 10},
    {"uneven stages", has_uneven_stages, 10},
    {"interleaved stages", is_interleaved, 3},
    {"zero 1", is_zero1, 8},
    {"zero 2", is_zero2, 8},
    {"uneven mask", is_uneven_mask, 10},
    {"sparse mask", is_sparse_mask, 10},
    {"edge tokens", is_edge, 10},
    {"loss per microbatch", is_per_microbatch, 10},
    {"schedule", is_scheduled, 50},
    {"reload", is_reloaded, 4},
    {"reload, other sizes", is_resized, 2},
};
enum { SHARE_COUNT = sizeof SHARES / sizeof SHARES[0] };

static void check_share(const char *name, int count, int least_percent) {
  const double percent = 100.0 * count / CASES;
  print_message("%-22s %5.1f %%\n", name, percent);
  if (!(percent >= least_percent + (least_percent > 0 ? 0.5 : 0)))
    fail_msg("%s: %.1f %% of the cases, promised %d %%", name, percent, least_percent);
}

static double multiply_adds(const struct sf_case *c) {
  const struct sf_model *m = &c->model;
  const double tokens = (double)(m->seq * c->train.microbatch_size * c->train.microbatches * c->train.steps);
  const double layer =
      (double)(m->hidden * (2 * m->heads + 2 * m->kv_heads) * m->head_dim + m->hidden * m->ffn * 3 + 2 * m->seq * m->heads * m->head_dim);
  return tokens * ((double)m->layers * layer + (double)(m->hidden * m->vocab_padded)) * 3;
}

static void test_decode_default_space_meets_the_promised_shares(void **state) {
  (void)state;
  static const char *const kinds[3] = {"weights", "acts", "grads"};
  int counts[SHARE_COUNT] = {0}, dists[3][SF_DIST_COUNT] = {{0}};
  double ranks = 0, work = 0;
  struct sf_space space;
  sf_space_init(&space);
  for (uint64_t i = 0; i < CASES; i++) {
    struct sf_draw draw;
    struct sf_case c;
    sf_draw_from_pcg(&draw, 1, i);
    assert_int_equal(sf_codec_decode(&c, &draw, &space, NULL), SF_OK);
    for (int k = 0; k < SHARE_COUNT; k++) counts[k] += SHARES[k].holds(&c);
    dists[0][c.data.weights]++, dists[1][c.data.acts]++, dists[2][c.data.grads]++;
    assert_in_range(sf_case_ranks(&c), 1, 8);
    ranks += (double)sf_case_ranks(&c) / CASES;
    work += multiply_adds(&c) / CASES;
  }
  for (int k = 0; k < SHARE_COUNT; k++) check_share(SHARES[k].name, counts[k], SHARES[k].least_percent);
  for (int kind = 0; kind < 3; kind++) {
    for (int dist = 0; dist < SF_DIST_COUNT; dist++) {
      char name[32];
      const bool drawn = kind > 0 || (dist != SF_DIST_OUTLIERS && dist != SF_DIST_OFFSET);
      snprintf(name, sizeof name, "%s dist %d", kinds[kind], dist);
      check_share(name, dists[kind][dist], drawn ? 10 : 0);
      if (!drawn) assert_int_equal(dists[kind][dist], 0);
    }
  }
  print_message("mean world size %.2f, mean multiply-adds %.2e\n", ranks, work);
  assert_true(ranks >= 4);
  assert_true(work < 4e7);
}

/* Where rounding may turn a choice among experts, half of the cases leave none, with any number of experts; elsewhere most have one. */
static void test_decode_experts_end_to_end_below_fp32_half_are_all_taken(void **state) {
  (void)state;
  int all[2] = {0}, some[2] = {0}, many = 0;
  struct sf_space space;
  sf_space_init(&space);
  for (uint64_t i = 0; i < CASES; i++) {
    struct sf_draw draw;
    struct sf_case c;
    sf_draw_from_pcg(&draw, 2, i);
    assert_int_equal(sf_codec_decode(&c, &draw, &space, NULL), SF_OK);
    if (c.moe.experts < 3) continue;
    const bool below = c.mode == SF_MODE_E2E && c.precision.compute != SF_COMPUTE_FP32, whole = c.moe.topk == c.moe.experts;
    whole ? all[below]++ : some[below]++;
    many += below && whole && c.moe.experts > 4;
  }
  print_message("all experts taken: %d of %d, elsewhere %d of %d\n", all[1], all[1] + some[1], all[0], all[0] + some[0]);
  assert_true(2 * some[1] > all[1] && 2 * all[1] > some[1] && many > 0);
  assert_true(some[0] > 4 * all[0]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_decode_default_space_meets_the_promised_shares),
                                     cmocka_unit_test(test_decode_experts_end_to_end_below_fp32_half_are_all_taken)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
