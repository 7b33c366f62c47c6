/* Shrinking against predicates that stand for real bugs: how small it gets, in how many evaluations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "generators/codec_internal.h"
#include "generators/shrink.h"

#include "harness/base/alloc.h"
#include "tests/rounds.h"

#include <stdio.h>
#include <string.h>

static bool needs_nothing(const struct sf_case *c) { return c->model.layers > 0; }
static bool needs_schedule(const struct sf_case *c) { return c->schedule != 0 && c->layout.tp >= 2; }
static bool needs_recompute(const struct sf_case *c) { return c->layout.tp >= 2 && c->model.layers >= 2 && c->train.recompute_layers >= 2; }
static bool needs_last_stage(const struct sf_case *c) { return c->layout.pp >= 3 && c->layout.pp_last_layers > 0; }
static bool needs_first_stage(const struct sf_case *c) {
  return c->layout.pp >= 2 && c->layout.pp_first_layers > 0 && c->train.microbatches >= 2;
}
static bool needs_tied(const struct sf_case *c) { return c->layout.dp >= 2 && c->layout.pp >= 2 && c->model.tied; }
static bool needs_few_kv_heads(const struct sf_case *c) { return c->model.kv_heads < c->layout.tp && c->model.kv_heads >= 2; }
static bool needs_sp_norm(const struct sf_case *c) { return c->layout.sp && c->model.norm == SF_NORM_LAYER && c->train.frozen == 0; }
static bool needs_masks(const struct sf_case *c) {
  return c->layout.dp >= 2 && c->data.mask != SF_MASK_FULL && c->train.loss_norm == SF_LOSS_PER_TOKEN;
}
static bool needs_padding(const struct sf_case *c) {
  return c->layout.tp >= 2 && c->model.vocab_padded > c->model.vocab && c->data.tokens == SF_TOKENS_EDGE;
}
static bool needs_order(const struct sf_case *c) {
  return strncmp(c->layout.order, "dp", 2) == 0 && c->layout.dp >= 2 && c->layout.tp >= 2;
}
static bool needs_accumulation(const struct sf_case *c) {
  return c->train.microbatches / c->layout.dp >= 2 && c->train.steps >= 2 && c->precision.compute == SF_BF16;
}
static bool needs_buckets(const struct sf_case *c) {
  return c->layout.bucket_elements > 0 && c->layout.overlap && c->layout.dp >= 2 && c->model.bias;
}
static bool needs_clipping(const struct sf_case *c) { return c->train.clip_milli > 0 && c->train.clip_milli <= 100 && c->layout.tp >= 3; }
static bool needs_other_layout(const struct sf_case *c) {
  return c->reload.after_step > 0 && c->layout.dp >= 2 && c->reload.layout.tp >= 2;
}
static bool needs_reload(const struct sf_case *c) { return c->reload.after_step > 0 && c->layout.zero > 0 && c->model.bias; }
static bool needs_size(const struct sf_case *c) { return c->model.hidden >= 24 && c->model.seq >= 7 && c->layout.tp >= 2; }

/* Six experts hide it, and so does an odd number: the values half way and one less lead nowhere. */
static bool needs_some_experts(const struct sf_case *c) {
  return c->layout.tp >= 2 && c->moe.experts > 0 && c->moe.experts % 2 == 0 && c->moe.experts != 6;
}
/* Fewer layers need smaller buckets to be as many. */
static bool needs_several_buckets(const struct sf_case *c) {
  const bool several = c->layout.vpp > 1 || (c->layout.bucket_elements > 0 && c->layout.bucket_elements < 600 * c->model.layers);
  return c->layout.zero > 0 && several;
}

/* A smaller world shows it with other numbers only, or when messages arrive in another order. */
static bool needs_other_seed(const struct sf_case *c) { return c->layout.cp > 2 || (c->layout.cp == 2 && c->seed % 4 == 3); }
static bool needs_other_schedule(const struct sf_case *c) { return c->layout.cp > 2 || (c->layout.cp == 2 && c->schedule % 2 == 1); }

/* What the smallest failing case must look like: fields "path=value" and the number of fields not at their simplest. */
static const struct target {
  bool (*fails)(const struct sf_case *c);
  int64_t ranks, layers;
  const char *fields[6];
} TARGETS[] = {
    {needs_nothing, 1, 1, {NULL}},
    {needs_schedule, 2, 1, {"layout.tp=2", "model.heads=2", NULL}},
    {needs_recompute, 2, 2, {"layout.tp=2", "train.recompute_layers=2", "model.heads=2", NULL}},
    {needs_last_stage, 3, 3, {"layout.pp=3", "layout.pp_last_layers=1", "model.heads=1", "train.steps=1", NULL}},
    {needs_first_stage, 2, 2, {"layout.pp=2", "layout.pp_first_layers=1", "train.microbatches=2", NULL}},
    {needs_tied, 4, 2, {"layout.pp=2", "layout.dp=2", "model.tied=on", "layout.order=tp-cp-ep-dp-pp", NULL}},
    {needs_few_kv_heads, 4, 1, {"layout.tp=4", "model.kv_heads=2", "model.heads=4", "layout.sp=off", NULL}},
    {needs_sp_norm, 2, 1, {"layout.tp=2", "model.norm=layer", "model.seq=4", NULL}},
    {needs_masks, 2, 1, {"layout.dp=2", "train.microbatches=2", "data.tokens=uniform", "data.weights=normal", NULL}},
    {needs_padding, 2, 1, {"layout.tp=2", "data.tokens=edge", "model.hidden=8", NULL}},
    {needs_order, 4, 1, {"layout.tp=2", "layout.dp=2", "layout.pp=1", NULL}},
    {needs_accumulation, 1, 1, {"train.microbatches=2", "train.steps=2", "precision.compute=bf16", NULL}},
    {needs_buckets, 2, 1, {"layout.dp=2", "layout.overlap=on", "model.bias=on", "model.adapter=off", NULL}},
    {needs_clipping, 3, 1, {"layout.tp=3", "train.clip_milli=100", "model.positions=none", NULL}},
    {needs_other_layout, 2, 1, {"layout.dp=2", "layout.tp=1", "reload.after_step=1", "reload.tp=2", "reload.dp=1", "train.steps=2"}},
    {needs_reload,
     2,
     1,
     {"layout.zero=1", "reload.zero=1", "reload.after_step=1", "reload.bucket_elements=0", "reload.order=tp-cp-ep-dp-pp", "train.steps=2"}},
    {needs_some_experts, 2, 1, {"layout.tp=2", "moe.experts=2", NULL}},
    {needs_several_buckets, 2, 1, {"layout.vpp=1", "layout.zero=1", NULL}},
    {needs_other_seed, 2, 1, {"layout.cp=2", "schedule=0", NULL}},
    {needs_other_schedule, 2, 1, {"layout.cp=2", "seed=0", NULL}},
    {needs_size, 2, 1, {"model.hidden=24", "model.seq=7", "model.ffn=8", NULL}},
};
enum { TARGET_COUNT = sizeof TARGETS / sizeof TARGETS[0], CASES_EACH = SF_ROUNDS(12), EVALUATIONS_MAX = 150 };

/* Counts the calls and remembers the cases, to see that none comes twice. */
enum { SEEN_MAX = 1000 };
struct probe {
  bool (*fails)(const struct sf_case *c);
  int64_t calls;
  struct sf_case seen[SEEN_MAX];
};

static bool still_fails(void *ctx, const struct sf_case *c) {
  struct probe *probe = ctx;
  assert_int_equal(sf_case_validate(c, NULL), SF_OK);
  assert_true(probe->calls < SEEN_MAX);
  for (int64_t i = 0; i < probe->calls; i++) assert_memory_not_equal(&probe->seen[i], c, sizeof *c);
  probe->seen[probe->calls++] = *c;
  return probe->fails(c);
}

/* The next drawn case from *index on that fails. */
static bool find_failing(struct sf_case *out, const struct sf_space *space, bool (*fails)(const struct sf_case *), uint64_t *index) {
  for (uint64_t i = *index; i < *index + 20000; i++) {
    struct sf_draw draw;
    sf_draw_from_pcg(&draw, 17, i);
    if (sf_codec_decode(out, &draw, space, NULL) != SF_OK || !fails(out)) continue;
    *index = i + 1;
    return true;
  }
  return false;
}

static void check_minimum(const struct target *target, const struct sf_case *c, const char *which) {
  assert_true(target->fails(c));
  if (sf_case_ranks(c) != target->ranks || c->model.layers != target->layers)
    fail_msg("%s: %d ranks, %d layers", which, (int)sf_case_ranks(c), (int)c->model.layers);
  for (int i = 0; i < 6 && target->fields[i] != NULL; i++) {
    struct sf_space space;
    sf_space_init(&space);
    assert_int_equal(sf_space_set(&space, target->fields[i], NULL), SF_OK);
    for (int field = 0; field < SF_CASE_DRAWN; field++)
      if (space.is_set[field] && space.set[field].lo != sf_drawn_get(c, (enum sf_case_field)field))
        fail_msg("%s: not %s", which, target->fields[i]);
  }
}

/* No step of any pass leads to a simpler failing case. */
static void check_one_minimal(const struct sf_case *c, const struct sf_space *space, bool (*fails)(const struct sf_case *)) {
  const struct sf_table table = sf_layers_table(space);
  struct sf_case candidate;
  bool usable;
  for (int pass = 0; table.kind->passes[pass].kind != SF_PASS_END; pass++)
    for (int64_t step = 0; sf_shrink_candidate(&table, &candidate, &usable, c, pass, step); step++)
      if (usable && fails(&candidate)) fail_msg("pass %d, step %d goes further", pass, (int)step);
}

static void test_run_synthetic_bugs_reach_their_minimum_in_few_evaluations(void **state) {
  (void)state;
  struct sf_space space;
  sf_space_init(&space);
  const struct sf_table table = sf_layers_table(&space);
  for (int t = 0; t < TARGET_COUNT; t++) {
    int64_t most = 0, total = 0;
    uint64_t index = 0;
    for (int k = 0; k < CASES_EACH; k++) {
      struct sf_case from, to;
      struct sf_shrink_report report;
      static struct probe probe;
      probe.fails = TARGETS[t].fails, probe.calls = 0;
      char which[64];
      snprintf(which, sizeof which, "target %d, case %d", t, k);
      if (!find_failing(&from, &space, TARGETS[t].fails, &index)) fail_msg("%s was never drawn", which);
      assert_int_equal(sf_shrink_run(&to, &from, &table, still_fails, &probe, 300, &report), SF_OK);
      if (!report.minimal) fail_msg("%s: the budget ran out", which);
      assert_int_equal(report.evaluations, probe.calls);
      check_minimum(&TARGETS[t], &to, which);
      check_one_minimal(&to, &space, TARGETS[t].fails);
      most = report.evaluations > most ? report.evaluations : most;
      total += report.evaluations;
    }
    print_message("target %2d: %5.1f evaluations on average, %3d at most\n", t, (double)total / CASES_EACH, (int)most);
    assert_true(most <= EVALUATIONS_MAX);
  }
}

static void test_candidate_every_step_is_valid_simpler_and_pure(void **state) {
  (void)state;
  struct sf_space space;
  sf_space_init(&space);
  const struct sf_table table = sf_layers_table(&space);
  for (uint64_t i = 0; i < 60; i++) {
    struct sf_draw draw;
    struct sf_case c, candidate, again;
    bool usable, usable_again;
    sf_draw_from_pcg(&draw, 5, i);
    assert_int_equal(sf_codec_decode(&c, &draw, &space, NULL), SF_OK);
    for (int pass = 0; table.kind->passes[pass].kind != SF_PASS_END; pass++) {
      int64_t step = 0;
      for (; sf_shrink_candidate(&table, &candidate, &usable, &c, pass, step); step++) {
        assert_true(step < 300);
        assert_true(sf_shrink_candidate(&table, &again, &usable_again, &c, pass, step));
        assert_int_equal(usable, usable_again);
        if (!usable) continue;
        assert_memory_equal(&candidate, &again, sizeof again);
        assert_int_equal(sf_case_validate(&candidate, NULL), SF_OK);
        int64_t row[SF_CASE_DRAWN], simpler[SF_CASE_DRAWN];
        (void)sf_layers_row(row, &table, &c);
        (void)sf_layers_row(simpler, &table, &candidate);
        assert_true(sf_layers_is_simpler(&table, simpler, row));
        assert_false(sf_layers_is_simpler(&table, row, simpler));
      }
      assert_false(sf_shrink_candidate(&table, &candidate, &usable, &c, pass, step + 1));
    }
  }
}

static void test_run_fields_of_the_space_stay(void **state) {
  (void)state;
  struct sf_space space;
  struct sf_case from, to;
  static struct probe probe = {.fails = needs_nothing};
  uint64_t index = 0;
  sf_space_init(&space);
  assert_int_equal(sf_space_set(&space, "layout.dp=2", NULL), SF_OK);
  assert_int_equal(sf_space_set(&space, "model.layers=2..4", NULL), SF_OK);
  const struct sf_table table = sf_layers_table(&space);
  assert_true(find_failing(&from, &space, needs_nothing, &index));
  assert_int_equal(sf_shrink_run(&to, &from, &table, still_fails, &probe, 300, NULL), SF_OK);
  assert_int_equal(to.layout.dp, 2);
  assert_int_equal(to.train.microbatches, 2);
  assert_int_equal(to.model.layers, 2);
  assert_int_equal(sf_case_ranks(&to), 2);
}

/* A bug of any run with cp, first met behind a checkpoint: what was before it goes away. */
static bool has_cp(const struct sf_case *c) { return c->layout.cp >= 2 || (c->reload.after_step > 0 && c->reload.layout.cp >= 2); }
static bool has_cp_behind_a_checkpoint(const struct sf_case *c) { return has_cp(c) && c->layout.cp == 1; }

static void test_run_layout_behind_a_checkpoint_becomes_the_only_one(void **state) {
  (void)state;
  struct sf_space space;
  uint64_t index = 0;
  sf_space_init(&space);
  const struct sf_table table = sf_layers_table(&space);
  for (int i = 0; i < 10; i++) {
    struct sf_case from, to;
    static struct probe probe = {.fails = has_cp};
    struct sf_shrink_report report;
    probe.calls = 0;
    assert_true(find_failing(&from, &space, has_cp_behind_a_checkpoint, &index));
    assert_int_equal(sf_shrink_run(&to, &from, &table, still_fails, &probe, 300, &report), SF_OK);
    assert_true(report.minimal && to.reload.after_step == 0 && to.layout.cp == 2 && sf_case_ranks(&to) == 2);
  }
}

static void test_run_case_outside_the_generators_range_shrinks(void **state) {
  (void)state;
  struct sf_space space;
  struct sf_case from, to;
  static struct probe probe = {.fails = needs_recompute};
  struct sf_shrink_report report;
  sf_space_init(&space);
  const struct sf_table table = sf_layers_table(&space);
  sf_case_init(&from);
  from.model.layers = 32, from.model.hidden = 4096, from.model.heads = 32, from.model.kv_heads = 32, from.model.ffn = 11008;
  from.model.vocab = from.model.vocab_padded = 32000, from.model.seq = 4096, from.model.head_dim = 128;
  from.layout.tp = 8, from.layout.pp = 4, from.layout.sp = true, from.train.recompute_layers = 4, from.train.microbatches = 48;
  strcpy(from.plant, "some-fault");
  from.expect.present = true;
  assert_int_equal(sf_shrink_run(&to, &from, &table, still_fails, &probe, 300, &report), SF_OK);
  assert_true(report.minimal && report.evaluations <= EVALUATIONS_MAX);
  assert_true(to.layout.tp == 2 && sf_case_ranks(&to) == 2 && to.model.layers == 2 && to.train.recompute_layers == 2);
  assert_true(to.model.hidden == 8 && to.model.ffn == 8 && to.model.vocab == 8 && to.model.seq == 4 && to.train.microbatches == 1);
  assert_string_equal(to.plant, "some-fault");
  assert_true(to.expect.present);
}

static void test_run_small_budget_says_so_and_no_case_is_tried_twice(void **state) {
  (void)state;
  struct sf_space space;
  struct sf_case from, to, whole;
  struct sf_shrink_report report;
  uint64_t index = 0;
  sf_space_init(&space);
  const struct sf_table table = sf_layers_table(&space);
  assert_true(find_failing(&from, &space, needs_tied, &index));
  static struct probe probe = {.fails = needs_tied};
  assert_int_equal(sf_shrink_run(&to, &from, &table, still_fails, &probe, 5, &report), SF_OK);
  assert_int_equal(probe.calls, 5);
  assert_false(report.minimal);
  assert_true(needs_tied(&to));
  probe.calls = 0;
  assert_int_equal(sf_shrink_run(&whole, &from, &table, still_fails, &probe, 1000, &report), SF_OK);
  assert_true(report.minimal);
  probe.calls = 0;
  assert_int_equal(sf_shrink_run(&to, &from, &table, still_fails, &probe, report.evaluations, &report), SF_OK);
  assert_true(report.minimal);
  assert_memory_equal(&to, &whole, sizeof to);
}

static void test_run_invalid_case_and_no_memory_are_statuses(void **state) {
  (void)state;
  struct sf_space space;
  struct sf_case c, to = {.seed = -5};
  static struct probe probe = {.fails = needs_nothing};
  sf_space_init(&space);
  const struct sf_table table = sf_layers_table(&space);
  sf_case_init(&c);
  c.layout.dp = 2;
  assert_int_equal(sf_shrink_run(&to, &c, &table, still_fails, &probe, 10, NULL), SF_EINPUT);
  c.train.microbatches = 2;
  sf_alloc_fail_at(1);
  assert_int_equal(sf_shrink_run(&to, &c, &table, still_fails, &probe, 10, NULL), SF_ENOMEM);
  sf_alloc_fail_at(0);
  assert_int_equal(to.seed, -5);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_run_synthetic_bugs_reach_their_minimum_in_few_evaluations),
      cmocka_unit_test(test_candidate_every_step_is_valid_simpler_and_pure),
      cmocka_unit_test(test_run_fields_of_the_space_stay),
      cmocka_unit_test(test_run_layout_behind_a_checkpoint_becomes_the_only_one),
      cmocka_unit_test(test_run_case_outside_the_generators_range_shrinks),
      cmocka_unit_test(test_run_small_budget_says_so_and_no_case_is_tried_twice),
      cmocka_unit_test(test_run_invalid_case_and_no_memory_are_statuses),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
