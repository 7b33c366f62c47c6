/* Contrast: conditions from values that failed and passed; which fields are named for predicates that stand for real bugs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "generators/codec.h"
#include "generators/contrast.h"
#include "generators/shrink.h"

#include <stdio.h>
#include <string.h>

/* --- deduction ---------------------------------------------------------------------------------------------------- */

enum { END = -1 };
struct row {
  int64_t failed[SF_CONTRAST_VALUES], passed[SF_CONTRAST_VALUES]; /* up to END; the first that failed is the smallest case's */
  bool is_number, is_closed;
  struct sf_condition wanted;
};

#define KIND(name, ...)                                                                                                                    \
  { .kind = SF_CONDITION_##name, __VA_ARGS__ }
static const struct row ROWS[] = {
    {{2, 3, END}, {END}, true, true, KIND(NONE, .number = 0)},
    {{2, 3, 8, END}, {1, END}, true, true, KIND(AT_LEAST, .number = 2)},
    {{4, 8, END}, {1, END}, true, false, KIND(NOT, .number = 1)}, /* 2 and 3 were not tried */
    {{4, 8, END}, {1, 2, END}, true, false, KIND(ONE_OF, .number = 0)},
    {{2, END}, {1, END}, true, true, KIND(NOT, .number = 1)}, /* nothing larger was tried */
    {{1, 2, 3, END}, {4, 8, END}, true, true, KIND(AT_MOST, .number = 3)},
    {{2, END}, {1, 3, 4, END}, true, true, KIND(EQUAL, .number = 2)},
    {{2, END}, {0, 1, END}, true, true, KIND(ONE_OF, .number = 0)},
    {{1, 2, 3, 4, 7, 9, 12, 17, END}, {8, 16, 24, END}, true, false, KIND(NOT_MULTIPLE, .number = 8)},
    {{1, 3, 9, 17, END}, {16, 32, END}, true, false, KIND(ONE_OF, .number = 0)}, /* 2, 4, 8 or 16 */
    {{1, 3, 8, 9, 17, END}, {16, 32, END}, true, false, KIND(NOT_MULTIPLE, .number = 16)},
    {{2, 4, 8, 6, END}, {1, 3, 5, 7, END}, true, false, KIND(MULTIPLE, .number = 2)},
    {{9, 12, 15, 17, END}, {1, 4, 8, 16, 24, END}, true, false, KIND(NOT_MULTIPLE, .number = 8, .has_least = true, .least = 9)},
    {{9, 12, 15, 17, END}, {1, 4, 16, 24, END}, true, false, KIND(ONE_OF, .number = 0)}, /* 5 to 8 were not tried */
    {{1, 5, 6, END}, {2, 4, 7, END}, true, false, KIND(ONE_OF, .number = 0)},
    {{3, END}, {0, 1, END}, false, false, KIND(EQUAL, .number = 3)},
    {{3, END}, {0, END}, false, false, KIND(EQUAL, .number = 3)},
    {{0, 1, 2, END}, {3, END}, false, false, KIND(NOT, .number = 3)},
    {{0, 1, END}, {2, 3, END}, false, false, KIND(ONE_OF, .number = 0)},
};

static void add(struct sf_contrast_tries *tries, const int64_t *values, bool fails) {
  for (; *values != END; values++) tries->at[tries->count++] = (struct sf_contrast_try){*values, *values, fails};
}

static void test_condition_of_tries_says_what_they_decide(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
    struct sf_contrast_tries tries = {.is_number = ROWS[i].is_number};
    add(&tries, ROWS[i].failed, true);
    add(&tries, ROWS[i].passed, false);
    const struct sf_condition got = sf_condition_of(&tries, ROWS[i].is_closed), want = ROWS[i].wanted;
    if (got.kind != want.kind || got.number != want.number || got.has_least != want.has_least || got.least != want.least)
      fail_msg("row %zu: kind %d, number %d, least %d", i, (int)got.kind, (int)got.number, (int)got.least);
  }
}

static void test_gap_of_mixed_tries_is_none(void **state) {
  (void)state;
  struct sf_contrast_tries tries = {.is_number = true, .count = 2, .at = {{8, 8, true}, {2, 2, false}}};
  int64_t below, above;
  bool at_least;
  assert_true(sf_contrast_gap(&below, &above, &at_least, &tries));
  assert_true(below == 2 && above == 8 && at_least);
  tries.at[tries.count++] = (struct sf_contrast_try){16, 16, false};
  assert_false(sf_contrast_gap(&below, &above, &at_least, &tries));
}

/* --- trials ------------------------------------------------------------------------------------------------------- */

static bool needs_bias(const struct sf_case *c) { return c->layout.tp >= 2 && c->model.bias; }
static bool needs_nothing(const struct sf_case *c) { return c->model.layers > 0; }
static bool needs_ring(const struct sf_case *c) { return c->layout.cp >= 2 && c->layout.cp_comm == SF_CP_RING && c->model.window != 1; }
static bool needs_tail(const struct sf_case *c) { return c->model.ffn % 8 != 0; }
static bool needs_sp(const struct sf_case *c) { return c->layout.sp; }
static bool needs_seed(const struct sf_case *c) { return c->layout.dp >= 2 && c->seed % 2 == 0; }
static bool needs_fp8_late(const struct sf_case *c) { return c->precision.compute == SF_COMPUTE_FP8 && c->train.steps >= 2; }

static const struct target {
  bool (*fails)(const struct sf_case *c);
  const char *named; /* in the order of the table; "" none; "~" in front of a field that is tied to another one */
  const char *path;  /* whose condition is looked at */
  struct sf_condition condition;
} TARGETS[] = {
    {needs_bias, "model.bias layout.tp", "layout.tp", KIND(AT_LEAST, .number = 2)},
    {needs_nothing, "", "model.bias", KIND(NONE, .number = 0)},
    {needs_ring, "model.window layout.cp layout.cp_comm", "model.window", KIND(NOT, .number = 1)},
    {needs_tail, "model.ffn", "model.ffn", KIND(NOT_MULTIPLE, .number = 8)},
    {needs_fp8_late, "precision.compute train.steps", "precision.compute", KIND(EQUAL, .number = SF_COMPUTE_FP8)},
    {needs_sp, "~layout.tp layout.sp", "layout.tp", KIND(AT_LEAST, .number = 2)},
    {needs_seed, "layout.dp seed", "layout.dp", KIND(AT_LEAST, .number = 2)},
};

struct probe {
  bool (*fails)(const struct sf_case *c);
  int32_t calls, most;
  bool unclear;
};

static bool ask(void *ctx, enum sf_contrast_answer *answer, const struct sf_case *c) {
  struct probe *probe = ctx;
  assert_int_equal(sf_case_validate(c, NULL), SF_OK);
  if (probe->calls == probe->most) return false;
  probe->calls++;
  *answer = probe->fails(c) ? SF_CONTRAST_FAILS : probe->unclear ? SF_CONTRAST_UNCLEAR : SF_CONTRAST_PASSES;
  return true;
}

static bool still_fails(void *ctx, const struct sf_case *c) { return ((struct probe *)ctx)->fails(c); }

/* Some drawn case that fails, and the smallest case that the predicate leaves of it. */
static void find_smallest(struct sf_case *out, struct sf_case *from, const struct sf_table *table, const struct sf_space *space,
                          struct probe *probe) {
  struct sf_draw draw;
  for (uint64_t i = 0;; i++) {
    sf_draw_from_pcg(&draw, 23, i);
    assert_true(i < 20000);
    if (sf_codec_decode(from, &draw, space, NULL) == SF_OK && probe->fails(from)) break;
  }
  assert_int_equal(sf_shrink_run(out, from, table, still_fails, probe, 1000, NULL), SF_OK);
}

static const struct sf_contrast_field *field_of(const struct sf_contrast *contrast, const struct sf_table *table, const char *path) {
  for (int32_t i = 0; i < contrast->count; i++)
    if (strcmp(table->rules->fields[i].path, path) == 0) return &contrast->at[i];
  fail_msg("no field %s", path);
  return NULL;
}

static void names_of(char *out, size_t size, const struct sf_contrast *contrast, const struct sf_table *table) {
  size_t length = 0;
  *out = '\0';
  for (int32_t i = 0; i < contrast->count; i++) {
    const bool is_tied = contrast->at[i].state == SF_CONTRAST_TIED;
    if (is_tied || contrast->at[i].state == SF_CONTRAST_MATTERS)
      length +=
          (size_t)snprintf(out + length, size - length, "%s%s%s", length > 0 ? " " : "", is_tied ? "~" : "", table->rules->fields[i].path);
  }
}

static struct sf_contrast contrast, again;

static void test_run_names_the_fields_that_a_bug_needs(void **state) {
  (void)state;
  struct sf_space space;
  sf_space_init(&space);
  const struct sf_table table = sf_layers_table(&space);
  for (size_t i = 0; i < sizeof TARGETS / sizeof TARGETS[0]; i++) {
    const struct target *target = &TARGETS[i];
    struct probe probe = {.fails = target->fails, .most = 1000};
    const struct sf_contrast_asker asker = {.ask = ask, .ctx = &probe};
    struct sf_case found, min;
    char named[400];
    find_smallest(&min, &found, &table, &space, &probe);
    assert_int_equal(sf_contrast_run(&contrast, &min, &found, &table, &asker, SF_CONTRAST_BUDGET), SF_OK);
    assert_int_equal(contrast.trials, probe.calls);
    assert_true(contrast.trials <= SF_CONTRAST_BUDGET && !contrast.cut_short);
    names_of(named, sizeof named, &contrast, &table);
    assert_string_equal(named, target->named);
    const struct sf_condition got = field_of(&contrast, &table, target->path)->condition;
    assert_int_equal(got.kind, target->condition.kind);
    assert_int_equal(got.number, target->condition.number);
    assert_int_equal(sf_contrast_run(&again, &min, &found, &table, &asker, SF_CONTRAST_BUDGET), SF_OK);
    assert_memory_equal(&contrast, &again, sizeof contrast);
  }
}

/* What fails in another way says nothing: no field matters then, and those that were changed are not called free. */
static void test_run_unclear_answers_decide_nothing(void **state) {
  (void)state;
  struct sf_space space;
  sf_space_init(&space);
  const struct sf_table table = sf_layers_table(&space);
  struct probe probe = {.fails = needs_bias, .most = 1000, .unclear = true};
  const struct sf_contrast_asker asker = {.ask = ask, .ctx = &probe};
  struct sf_case found, min;
  char named[400];
  find_smallest(&min, &found, &table, &space, &probe);
  assert_int_equal(sf_contrast_run(&contrast, &min, &found, &table, &asker, SF_CONTRAST_BUDGET), SF_OK);
  names_of(named, sizeof named, &contrast, &table);
  assert_string_equal(named, "");
  assert_int_equal(field_of(&contrast, &table, "model.bias")->state, SF_CONTRAST_UNDECIDED);
}

static bool needs_bias_and_qk_norm(const struct sf_case *c) { return c->model.bias && c->model.qk_norm; }
static bool needs_bias_and_qk_norm_or_layers(const struct sf_case *c) { return c->model.bias && (c->model.qk_norm || c->model.layers > 1); }

/* What was found in a case with two layers needs no norm of queries and keys, though its smallest case does. */
static void test_run_tells_what_the_smallest_case_alone_needs(void **state) {
  (void)state;
  struct sf_space space;
  sf_space_init(&space);
  const struct sf_table table = sf_layers_table(&space);
  struct probe probe = {.fails = needs_bias_and_qk_norm, .most = 1000};
  const struct sf_contrast_asker asker = {.ask = ask, .ctx = &probe};
  struct sf_case found, min;
  find_smallest(&min, &found, &table, &space, &probe);
  found = min;
  found.model.layers = 2;
  probe.fails = needs_bias_and_qk_norm_or_layers;
  assert_int_equal(sf_contrast_run(&contrast, &min, &found, &table, &asker, SF_CONTRAST_BUDGET), SF_OK);
  assert_int_equal(field_of(&contrast, &table, "model.qk_norm")->state, SF_CONTRAST_SMALLEST);
  assert_int_equal(field_of(&contrast, &table, "model.bias")->state, SF_CONTRAST_MATTERS);
  assert_int_equal(sf_contrast_run(&contrast, &min, &min, &table, &asker, SF_CONTRAST_BUDGET), SF_OK);
  assert_int_equal(field_of(&contrast, &table, "model.qk_norm")->state, SF_CONTRAST_MATTERS);
}

static bool needs_overlap(const struct sf_case *c) {
  return c->layout.tp_overlap || (c->reload.after_step > 0 && c->reload.layout.tp_overlap);
}

/* What was found after a reload needs a field of either layout: it does not fail without that field, whichever layout has it. */
static void test_run_asks_both_layouts_of_the_case_that_was_found(void **state) {
  (void)state;
  struct sf_space space;
  sf_space_init(&space);
  const struct sf_table table = sf_layers_table(&space);
  struct probe probe = {.fails = needs_overlap, .most = 1000};
  const struct sf_contrast_asker asker = {.ask = ask, .ctx = &probe};
  struct sf_case found, min;
  find_smallest(&min, &found, &table, &space, &probe);
  assert_int_equal(min.reload.after_step, 0);
  for (int first_has_it = 0; first_has_it < 2; first_has_it++) {
    found = min;
    found.train.steps = 2;
    found.reload = (struct sf_reload){.after_step = 1, .layout = min.layout};
    found.layout.tp_overlap = first_has_it;
    assert_int_equal(sf_case_validate(&found, NULL), SF_OK);
    assert_int_equal(sf_contrast_run(&contrast, &min, &found, &table, &asker, SF_CONTRAST_BUDGET), SF_OK);
    assert_int_equal(field_of(&contrast, &table, "layout.tp_overlap")->state, SF_CONTRAST_MATTERS);
  }
}

/* Without trials nothing is said; what was not reached is told. */
static void test_run_ends_with_its_budget_or_its_asker(void **state) {
  (void)state;
  struct sf_space space;
  sf_space_init(&space);
  const struct sf_table table = sf_layers_table(&space);
  struct probe probe = {.fails = needs_bias, .most = 1000};
  const struct sf_contrast_asker asker = {.ask = ask, .ctx = &probe};
  struct sf_case found, min;
  find_smallest(&min, &found, &table, &space, &probe);
  assert_int_equal(sf_contrast_run(&contrast, &min, &found, &table, &asker, 3), SF_OK);
  assert_true(contrast.trials == 3 && !contrast.cut_short);
  assert_int_equal(field_of(&contrast, &table, "model.norm")->state, SF_CONTRAST_NOT_TRIED);
  assert_int_equal(field_of(&contrast, &table, "model.bias")->state, SF_CONTRAST_NOT_TRIED);
  probe.calls = 0, probe.most = 5;
  assert_int_equal(sf_contrast_run(&contrast, &min, &found, &table, &asker, SF_CONTRAST_BUDGET), SF_OK);
  assert_true(contrast.trials == 5 && contrast.cut_short);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_condition_of_tries_says_what_they_decide),
      cmocka_unit_test(test_gap_of_mixed_tries_is_none),
      cmocka_unit_test(test_run_names_the_fields_that_a_bug_needs),
      cmocka_unit_test(test_run_unclear_answers_decide_nothing),
      cmocka_unit_test(test_run_tells_what_the_smallest_case_alone_needs),
      cmocka_unit_test(test_run_asks_both_layouts_of_the_case_that_was_found),
      cmocka_unit_test(test_run_ends_with_its_budget_or_its_asker),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
