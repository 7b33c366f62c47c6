/* What 20,000 cases of the default space look like: the shares that harness/docs/tolerance.md counts on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "generators/codec.h"
#include "harness/spec/mesh.h"
#include "tests/rounds.h"

#include <stdio.h>
#include <string.h>

enum { CASES = SF_ROUNDS(20000) };

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

/* What is kept from step to step and is overwritten, sizes beyond the blocks that products are computed in, and what stages share. */
static bool is_delayed(const struct sf_case *c) { return c->precision.fp8_recipe == SF_FP8_DELAYED; }
static bool overwrites_scales(const struct sf_case *c) { return is_delayed(c) && c->train.steps > c->precision.fp8_history + 1; }
static bool overwrites_longer_ring(const struct sf_case *c) { return overwrites_scales(c) && c->precision.fp8_history > 1; }
static bool overwrites_scales_end_to_end(const struct sf_case *c) { return overwrites_scales(c) && c->mode == SF_MODE_E2E; }
static bool reloads_full_ring(const struct sf_case *c) { return is_delayed(c) && c->reload.after_step > c->precision.fp8_history; }
static bool grows_twice(const struct sf_case *c) {
  return c->precision.loss_scale_window > 0 && c->train.steps > 2 * c->precision.loss_scale_window;
}
static bool grows_after_overflow(const struct sf_case *c) {
  return c->precision.loss_scale_window > 0 && c->data.overflow && c->train.steps > c->precision.loss_scale_window + 1;
}
static bool reloads_between_growths(const struct sf_case *c) {
  return is_reloaded(c) && c->reload.after_step < c->precision.loss_scale_window && c->precision.loss_scale_window < c->train.steps;
}
static bool has_wide_ffn(const struct sf_case *c) { return c->model.ffn > 256; }
static bool has_wide_vocab(const struct sf_case *c) { return c->model.vocab > 256; }
static bool has_many_tokens(const struct sf_case *c) { return c->model.seq * c->train.microbatch_size > 256; }
static bool has_more_microbatches(const struct sf_case *c) {
  return has_pp(c) && is_per_microbatch(c) && c->train.microbatches / c->layout.dp > c->layout.pp;
}
static bool is_tied_over_stages(const struct sf_case *c) { return has_pp(c) && is_tied(c) && is_vocab_padded(c); }

static const struct {
  const char *name;
  bool (*holds)(const struct sf_case *c);
  int least_permille;
} SHARES[] = {
    {"two axes", has_two_axes, 500},
    {"tp", has_tp, 250},
    {"dp", has_dp, 250},
    {"pp", has_pp, 250},
    {"sp", has_sp, 250},
    {"layers >= 2", has_layers, 500},
    {"fp32", is_fp32, 500},
    {"fp8", is_fp8, 100},
    {"isolated", is_isolated, 500},
    {"other order", has_other_order, 300},
    {"bias", is_biased, 100},
    {"tied", is_tied, 100},
    {"adapter", has_adapter, 100},
    {"swiglu", is_swiglu, 100},
    {"rotary", is_rotary, 100},
    {"learned", is_learned, 100},
    {"rmsnorm", is_rmsnorm, 100},
    {"layernorm", is_layernorm, 100},
    {"gqa", is_gqa, 100},
    {"mqa", is_mqa, 100},
    {"kv_heads < tp", has_few_kv_heads, 100},
    {"vocab padded", is_vocab_padded, 100},
    {"vocab % tp != 0", is_vocab_indivisible, 100},
    {"recompute", is_recomputed, 100},
    {"recompute chunks", has_chunks, 100},
    {"clipping", is_clipped, 100},
    {"weight decay", is_decayed, 100},
    {"frozen", is_frozen, 100},
    {"microbatches", has_microbatches, 100},
    {"steps", has_steps, 100},
    {"buckets, dp", has_buckets, 100},
    {"overlap, dp", has_overlap, 100},
    {"uneven stages", has_uneven_stages, 100},
    {"interleaved stages", is_interleaved, 30},
    {"zero 1", is_zero1, 80},
    {"zero 2", is_zero2, 80},
    {"uneven mask", is_uneven_mask, 100},
    {"sparse mask", is_sparse_mask, 100},
    {"edge tokens", is_edge, 100},
    {"loss per microbatch", is_per_microbatch, 100},
    {"schedule", is_scheduled, 500},
    {"reload", is_reloaded, 40},
    {"reload, other sizes", is_resized, 20},
    {"scales overwritten", overwrites_scales, 5},
    {"longer ring overwritten", overwrites_longer_ring, 5},
    {"scales overwritten, e2e", overwrites_scales_end_to_end, 5},
    {"loss scale grows twice", grows_twice, 5},
    {"overflow, then growth", grows_after_overflow, 5},
    {"reload of full ring", reloads_full_ring, 5},
    {"reload between growths", reloads_between_growths, 5},
    {"wide ffn", has_wide_ffn, 5},
    {"wide vocabulary", has_wide_vocab, 5},
    {"many tokens", has_many_tokens, 5},
    {"microbatches > stages", has_more_microbatches, 20},
    {"tied, padded, stages", is_tied_over_stages, 20},
};
enum { SHARE_COUNT = sizeof SHARES / sizeof SHARES[0] };

/* Shares of several percent are kept with half a percent to spare. */
static void check_share(const char *name, int count, int least_permille) {
  const double permille = 1000.0 * count / CASES;
  print_message("%-24s %6.1f per mille\n", name, permille);
  if (!(permille >= least_permille + (least_permille >= 20 ? 5 : 0)))
    fail_msg("%s: %.1f per mille of the cases, promised %d", name, permille, least_permille);
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
  for (int k = 0; k < SHARE_COUNT; k++) check_share(SHARES[k].name, counts[k], SHARES[k].least_permille);
  for (int kind = 0; kind < 3; kind++) {
    for (int dist = 0; dist < SF_DIST_COUNT; dist++) {
      char name[32];
      const bool drawn = kind > 0 || (dist != SF_DIST_OUTLIERS && dist != SF_DIST_OFFSET);
      snprintf(name, sizeof name, "%s dist %d", kinds[kind], dist);
      check_share(name, dists[kind][dist], drawn ? 100 : 0);
      if (!drawn) assert_int_equal(dists[kind][dist], 0);
    }
  }
  print_message("mean world size %.2f, mean multiply-adds %.2e\n", ranks, work);
  assert_true(ranks >= 4);
  assert_true(work < 4e7);
}

/* A token has a choice among experts in every mode and precision. */
static void test_decode_experts_are_mostly_not_all_taken(void **state) {
  (void)state;
  int all[2] = {0}, some[2] = {0};
  struct sf_space space;
  sf_space_init(&space);
  for (uint64_t i = 0; i < CASES; i++) {
    struct sf_draw draw;
    struct sf_case c;
    sf_draw_from_pcg(&draw, 2, i);
    assert_int_equal(sf_codec_decode(&c, &draw, &space, NULL), SF_OK);
    if (c.moe.experts < 3) continue;
    const bool below = c.mode == SF_MODE_E2E && c.precision.compute != SF_COMPUTE_FP32;
    c.moe.topk == c.moe.experts ? all[below]++ : some[below]++;
  }
  print_message("all experts taken: %d of %d, elsewhere %d of %d\n", all[1], all[1] + some[1], all[0], all[0] + some[0]);
  assert_true(some[1] > 4 * all[1]);
  assert_true(some[0] > 4 * all[0]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_decode_default_space_meets_the_promised_shares),
                                     cmocka_unit_test(test_decode_experts_are_mostly_not_all_taken)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
