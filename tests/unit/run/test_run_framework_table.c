#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "generators/cover.h"
#include "generators/shrink.h"
#include "harness/run/framework/framework_table.h"

#include <stdlib.h>
#include <string.h>

/* Experts need sequence parallelism under tensor parallelism; ranks are a product. Single quotes stand for double ones. */
static const char fields[] =
    "{'name': 'm', 'ranks': ['layout.tp', 'layout.dp'], 'fields': {"
    "'layout.tp': {'choices': [1, 2, 4], 'layout': true}, 'layout.dp': {'choices': [1, 2], 'layout': true}, 'layout.sp': {'choices': "
    "[false, true], 'layout': true},"
    "'experts': {'choices': [null, 4]}, 'topk': {'choices': [1, 2]}, 'hidden': {'min': 8, 'max': 64, 'step': 8}, 'seed': {'min': 0, "
    "'max': 99},"
    "'kind': {'choices': ['gelu', 'relu', '7']}},"
    "'refuses': [{'when': {'layout.sp': [true], 'layout.tp': [1]}, 'reason': 'sp needs tp'},"
    "{'when': {'experts': [4], 'layout.tp': [2, 4], 'layout.sp': [false]}, 'reason': 'experts with tp need sp'},"
    "{'when': {'experts': [null], 'topk': [2]}, 'reason': 'topk needs experts'}]}";

struct fixture {
  struct sf_description *description;
  struct sf_choice_space space;
};

static struct sf_description *describe(const char *text) {
  struct sf_description *description = NULL;
  struct sf_error error = {SF_OK, ""};
  char *copy = strdup(text);
  for (char *at = copy; *at; at++) *at = *at == '\'' ? '"' : *at;
  json_t *value = json_loads(copy, 0, NULL);
  if (sf_description_create(&description, value, &error) != SF_OK) fail_msg("%s", error.text);
  json_decref(value);
  free(copy);
  return description;
}

static int open_space(void **state) {
  static struct fixture f;
  memset(&f, 0, sizeof f);
  f.space.description = f.description = describe(fields);
  f.space.ranks_max = 4;
  *state = &f;
  return 0;
}

static int close_space(void **state) {
  sf_description_destroy(((struct fixture *)*state)->description);
  return 0;
}

enum { LAYOUTS = 8 };
struct row {
  int64_t at[SF_SPACE_FIELDS_MAX];
};

/* The row of the case at a place of a block. */
static enum sf_status draw(struct row *row, const struct sf_choice_space *space, uint64_t block, int64_t place, uint64_t relayout,
                           struct sf_error *error) {
  const struct sf_table table = sf_framework_table(space);
  struct sf_case c;
  const enum sf_status status = sf_cover_draw(&c, NULL, &table, 1, LAYOUTS, (int64_t)block * LAYOUTS + place % LAYOUTS, relayout, error);
  memset(row, 0, sizeof *row);
  if (status == SF_OK) assert_true(table.kind->of_case(row->at, &table, &c));
  return status;
}

/* Owned by the caller. */
static char *drawn_text(const struct fixture *f, uint64_t block, int64_t place, struct row *row) {
  assert_int_equal(draw(row, &f->space, block, place, 0, NULL), SF_OK);
  json_t *c = sf_description_case(row->at, f->description, SF_DESCRIPTION_ALL);
  char *text = json_dumps(c, JSON_COMPACT);
  json_decref(c);
  return text;
}

static bool is_allowed(const struct fixture *f, const struct row *row) {
  return sf_rules_broken(sf_description_rules(f->description), row->at) == NULL &&
         sf_description_ranks_at(f->description, row->at) <= f->space.ranks_max;
}

static void test_draw_every_choice_comes_and_every_case_is_allowed(void **state) {
  const struct fixture *f = *state;
  int64_t seen[8][8] = {{0}}, plain_layouts = 0;
  for (uint64_t i = 0; i < 900; i++) {
    struct row choices;
    free(drawn_text(f, i, (int64_t)i % 4, &choices));
    assert_true(is_allowed(f, &choices));
    for (int32_t k = 0; k < 8; k++) seen[k][choices.at[k]]++;
    plain_layouts += choices.at[0] == 0 && choices.at[1] == 0;
  }
  for (int32_t k = 0; k < 8; k++) {
    const bool is_seed = strcmp(sf_description_field_path(f->description, k), "seed") == 0;
    for (int64_t choice = 0; choice < sf_description_choice_count(f->description, k) && !is_seed; choice++)
      assert_true(seen[k][choice] > 0);
    if (is_seed) assert_int_equal(seen[k][0], 900); /* the case's own seed goes there */
  }
  assert_int_equal(plain_layouts, 0); /* one rank has nothing to show */
}

static void test_draw_layouts_of_a_function_differ_in_layout_alone(void **state) {
  const struct fixture *f = *state;
  int different = 0;
  for (uint64_t i = 0; i < 50; i++) {
    struct row a, b;
    char *first = drawn_text(f, i, 1, &a), *again = drawn_text(f, i, 1, &b);
    assert_string_equal(first, again);
    free(again);
    again = drawn_text(f, i, 2, &b);
    different += strcmp(first, again) != 0;
    for (int32_t k = 0; k < 8; k++)
      if (!sf_description_field_is_layout(f->description, k)) assert_int_equal(a.at[k], b.at[k]);
    free(first);
    free(again);
  }
  assert_true(different > 20);
}

static void test_space_set_fixes_fields_and_limits_ranks(void **state) {
  struct fixture *f = *state;
  struct row choices;
  assert_int_equal(sf_choice_space_set(&f->space, "experts=4", NULL), SF_OK);
  assert_int_equal(sf_choice_space_set(&f->space, "layout.tp=2", NULL), SF_OK);
  assert_int_equal(sf_choice_space_set(&f->space, "kind=relu", NULL), SF_OK);
  f->space.ranks_max = 2;
  for (uint64_t i = 0; i < 100; i++) {
    char *text = drawn_text(f, i, (int64_t)i, &choices);
    assert_non_null(strstr(text, "\"tp\":2,\"dp\":1,\"sp\":true")); /* what is fixed needs sp, and two ranks are all there are */
    assert_non_null(strstr(text, "\"experts\":4"));
    assert_non_null(strstr(text, "\"kind\":\"relu\""));
    free(text);
  }
}

static void test_space_set_wrong_assignments_are_refused(void **state) {
  static const char *const rows[][2] = {{"hidden", "\"hidden\" is not KEY=VALUE"},
                                        {"hiden=8", "hiden: no such field of m; did you mean hidden?"},
                                        {"hidden=9", "hidden: 9 is none of its choices"},
                                        {"layout.sp=1", "layout.sp: 1 is none of its choices"},
                                        {"kind=7", "kind: 7 is none of its choices"}};
  struct fixture *f = *state;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    struct sf_error error = {SF_OK, ""};
    assert_int_equal(sf_choice_space_set(&f->space, rows[i][0], &error), SF_EINPUT);
    assert_string_equal(error.text, rows[i][1]);
  }
  assert_int_equal(sf_choice_space_set(&f->space, "kind=\"7\"", NULL), SF_OK); /* a text that looks like a number */
}

static void test_choices_of_a_case_and_back(void **state) {
  const struct fixture *f = *state;
  for (int64_t i = 0; i < 50; i++) {
    int64_t row[SF_SPACE_FIELDS_MAX] = {0}, again[SF_SPACE_FIELDS_MAX];
    for (int32_t k = 0; k < 8; k++) row[k] = (i + k) * 7 % sf_description_choice_count(f->description, k);
    for (int all = 0; all < 2; all++) {
      json_t *c = sf_description_case(row, f->description, all == 1 ? SF_DESCRIPTION_ALL : SF_DESCRIPTION_SET);
      assert_int_equal(sf_description_row(again, f->description, c, NULL), SF_OK);
      assert_memory_equal(row, again, 8 * sizeof *row);
      json_decref(c);
    }
  }
}

static void test_draw_what_is_fixed_against_the_rules_is_refused(void **state) {
  struct fixture *f = *state;
  struct row choices;
  struct sf_error error = {SF_OK, ""};
  assert_int_equal(sf_choice_space_set(&f->space, "topk=2", NULL), SF_OK);
  assert_int_equal(sf_choice_space_set(&f->space, "experts=null", NULL), SF_OK);
  assert_int_equal(draw(&choices, &f->space, 1, 1, 0, &error), SF_EINPUT);
  assert_non_null(strstr(error.text, "does not go together"));
}

static void test_draw_neighbouring_places_begin_with_different_axes(void **state) {
  const struct fixture *f = *state;
  for (uint64_t i = 0; i < 100; i++) {
    bool tp = false, dp = false;
    for (int64_t place = 0; place < 2; place++) {
      struct row c;
      free(drawn_text(f, i, place, &c));
      tp |= c.at[0] > 0;
      dp |= c.at[1] > 0;
    }
    assert_true(tp && dp);
  }
}

static void test_draw_another_layout_is_of_the_same_function(void **state) {
  const struct fixture *f = *state;
  int64_t different = 0;
  for (uint64_t i = 0; i < 100; i++) {
    struct row a, b;
    assert_int_equal(draw(&a, &f->space, i, 0, 0, NULL), SF_OK);
    assert_int_equal(draw(&b, &f->space, i, 0, 1, NULL), SF_OK);
    for (int32_t k = 3; k < 8; k++) assert_int_equal(a.at[k], b.at[k]);
    different += memcmp(&a, &b, sizeof a) != 0;
  }
  assert_true(different > 60);
}

/* b says something only where a is 1, c only where b is 2; on is refused wherever off is 0. */
static const char chained[] =
    "{'name': 'm', 'fields': {'ranks': {'choices': [1, 2], 'layout': true}, 'a': {'choices': [0, 1]},"
    "'b': {'choices': [0, 1, 2], 'needs': {'a': [1]}}, 'c': {'choices': [0, 1], 'needs': {'b': [2]}},"
    "'off': {'choices': [0, 1]}, 'on': {'choices': [0, 1]}, 'lonely': {'choices': [0, 1], 'needs': {'off': []}}},"
    "'refuses': [{'when': {'off': [0], 'on': [1]}, 'reason': 'on needs off'}, {'when': {'a': [1], 'ranks': [2]}, 'reason': 'no'}]}";

static void test_draw_fields_come_with_what_they_need(void **state) {
  (void)state;
  struct sf_description *description = describe(chained);
  const struct sf_choice_space space = {.description = description, .ranks_max = 2};
  int64_t deepest = 0, mended = 0;
  for (uint64_t i = 0; i < 400; i++) {
    struct row c;
    assert_int_equal(draw(&c, &space, i, 0, 0, NULL), SF_OK);
    assert_int_equal(c.at[1], 0); /* no rank but the first computes with a, so no such function is drawn */
    assert_int_equal(c.at[2], 0);
    assert_int_equal(c.at[3], 0);
    assert_int_equal(c.at[6], 0); /* what it needs is never there */
    mended += c.at[5] == 1 && c.at[4] == 1;
  }
  assert_true(mended > 50);
  struct sf_choice_space fixed = space;
  assert_int_equal(sf_choice_space_set(&fixed, "ranks=1", NULL), SF_OK);
  for (uint64_t i = 0; i < 400; i++) {
    struct row c;
    assert_int_equal(draw(&c, &fixed, i, 0, 0, NULL), SF_OK);
    if (c.at[2] > 0) assert_int_equal(c.at[1], 1);
    if (c.at[3] > 0) assert_int_equal(c.at[2], 2);
    deepest += c.at[3] > 0;
  }
  assert_true(deepest > 20);
  sf_description_destroy(description);
}

static void test_cover_rows_meet_pairs_sooner_than_draws(void **state) {
  (void)state;
  static const char wide[] =
      "{'name': 'm', 'fields': {'ranks': {'choices': [1, 2], 'layout': true}, 'a': {'choices': [0, 1, 2]}, 'b': {'choices': [0, 1, 2]}, "
      "'c': {'choices': [0, 1, 2]},"
      "'d': {'choices': [0, 1, 2]}, 'e': {'choices': [0, 1, 2]}, 'f': {'choices': [0, 1, 2]}, 'g': {'choices': [0, 1, 2]}, 'h': "
      "{'choices': [0, 1, 2]}}}";
  struct sf_description *description = describe(wide);
  const struct sf_choice_space space = {.description = description, .ranks_max = 2};
  const struct sf_table table = sf_framework_table(&space);
  int64_t met[2] = {0, 0};
  for (uint64_t seed = 1; seed < 6; seed++) {
    struct sf_cover *cover = NULL;
    assert_int_equal(sf_cover_create(&cover, &table, seed, 1, NULL), SF_OK);
    for (int covering = 0; covering < 2; covering++) {
      bool had[27][27] = {{false}};
      for (int64_t i = 0; i < 40; i++) {
        struct sf_case c;
        int64_t at[SF_SPACE_FIELDS_MAX];
        assert_int_equal(sf_cover_draw(&c, covering ? cover : NULL, &table, seed, 1, i, 0, NULL), SF_OK);
        assert_true(table.kind->of_case(at, &table, &c));
        for (int32_t k = 1; k < 9; k++)
          for (int32_t l = 1; l < k; l++)
            if (at[k] && at[l] && !had[3 * k + at[k]][3 * l + at[l]]) had[3 * k + at[k]][3 * l + at[l]] = true, met[covering]++;
      }
    }
    sf_cover_destroy(cover);
  }
  assert_true(met[1] * 10 > met[0] * 12);
  sf_description_destroy(description);
}

/* All feasible pairs of choices that are not plain meet in the rows, whatever the rules are. */
static void check_cover(const char *text, int32_t ranks_max, int64_t layouts) {
  struct sf_description *description = describe(text);
  const struct sf_choice_space space = {.description = description, .ranks_max = ranks_max};
  const struct sf_table table = sf_framework_table(&space);
  struct sf_cover *cover = NULL;
  struct sf_cover_count *count = NULL;
  struct sf_text missing = {0};
  assert_int_equal(sf_cover_create(&cover, &table, 3, layouts, NULL), SF_OK);
  assert_int_equal(sf_cover_count_create(&count, &table), SF_OK);
  for (int64_t i = 0; i < sf_cover_rows(cover); i++) {
    struct sf_case c;
    assert_int_equal(sf_cover_draw(&c, cover, &table, 3, layouts, i, 0, NULL), SF_OK);
    sf_cover_count_add(count, &c);
  }
  const struct sf_cover_shares shares = sf_cover_count_shares(count);
  sf_cover_count_missing(count, &missing);
  if (missing.data) fail_msg("%lld of %lld pairs: not %s", (long long)shares.pairs_run, (long long)shares.pairs, missing.data);
  assert_true(shares.pairs > 0);
  sf_cover_count_destroy(count);
  sf_cover_destroy(cover);
  sf_description_destroy(description);
}

static void test_cover_all_feasible_pairs_are_met(void **state) {
  (void)state;
  check_cover(fields, 4, 4);
  check_cover(fields, 8, 1);
  check_cover(chained, 1, 4);
  check_cover(chained, 2, 2);
}

/* Where only one field is open there are no pairs, and each of its choices still comes once. */
static void test_cover_a_lone_field_has_each_choice(void **state) {
  (void)state;
  struct sf_description *description = describe("{'name': 'm', 'fields': {'ranks': {'choices': [2], 'layout': true},"
                                                "'a': {'choices': [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}}}");
  const struct sf_choice_space space = {.description = description, .ranks_max = 2};
  const struct sf_table table = sf_framework_table(&space);
  struct sf_cover *cover = NULL;
  int64_t seen[11] = {0};
  assert_int_equal(sf_cover_create(&cover, &table, 5, 1, NULL), SF_OK);
  assert_int_equal(sf_cover_rows(cover), 10);
  for (int64_t i = 0; i < 10; i++) {
    struct sf_case c;
    int64_t row[SF_SPACE_FIELDS_MAX];
    assert_int_equal(sf_cover_draw(&c, cover, &table, 5, 1, i, 0, NULL), SF_OK);
    assert_true(table.kind->of_case(row, &table, &c));
    seen[row[1]]++;
  }
  for (int i = 1; i < 11; i++) assert_int_equal(seen[i], 1);
  sf_cover_destroy(cover);
  sf_description_destroy(description);
}

/* Whatever is fixed, and whatever a source gives, a case is drawn or is refused. */
static void test_draw_any_bytes_give_an_allowed_case(void **state) {
  const struct fixture *f = *state;
  const struct sf_table table = sf_framework_table(&f->space);
  for (unsigned seed = 0; seed < 300; seed++) {
    unsigned char bytes[40];
    struct sf_draw source;
    struct row row = {{0}}, again = {{0}};
    struct sf_case c;
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)((seed * 2654435761u + (unsigned)i * 40503u) >> 7);
    sf_draw_from_bytes(&source, bytes, seed % sizeof bytes);
    assert_int_equal(sf_table_draw(row.at, &source, &table, NULL, seed, NULL), SF_OK);
    assert_null(sf_rules_broken(table.rules, row.at));
    assert_int_equal(table.kind->to_case(&c, &table, row.at, NULL), SF_OK);
    assert_true(table.kind->of_case(again.at, &table, &c));
    assert_memory_equal(row.at, again.at, (size_t)table.field_count * sizeof *row.at);
  }
}

/* A bug that needs some fields at least as they are in a drawn case. */
struct probe {
  const struct sf_table *table;
  struct row need;
};
static bool still_fails(void *ctx, const struct sf_case *c) {
  const struct probe *probe = ctx;
  struct row row;
  assert_true(probe->table->kind->of_case(row.at, probe->table, c));
  for (int32_t i = 0; i < probe->table->field_count; i++)
    if (row.at[i] < probe->need.at[i]) return false;
  return true;
}

static void test_shrink_ends_one_minimal(void **state) {
  const struct fixture *f = *state;
  const struct sf_table table = sf_framework_table(&f->space);
  for (uint64_t i = 0; i < 60; i++) {
    struct probe probe = {.table = &table};
    struct sf_case from, to, further;
    struct sf_shrink_report report;
    bool usable;
    assert_int_equal(sf_cover_draw(&from, NULL, &table, 4, 4, (int64_t)i, 0, NULL), SF_OK);
    assert_true(table.kind->of_case(probe.need.at, &table, &from));
    for (int32_t k = 0; k < table.field_count; k++)
      if ((i + (uint64_t)k) % 3 != 0) probe.need.at[k] = 0;
    assert_int_equal(sf_shrink_run(&to, &from, &table, still_fails, &probe, 400, &report), SF_OK);
    assert_true(report.minimal);
    for (int pass = 0; table.kind->passes[pass].kind != SF_PASS_END; pass++)
      for (int64_t step = 0; sf_shrink_candidate(&table, &further, &usable, &to, pass, step); step++)
        if (usable) assert_false(still_fails(&probe, &further));
  }
}

/* A field that says so is not plain in one case of so many, whatever its group wishes. */
static void test_draw_fields_say_how_often_they_are_not_plain(void **state) {
  (void)state;
  static const char often[] =
      "{'name': 'm', 'fields': {'ranks': {'choices': [1, 2], 'layout': true}, 'op': {'choices': [0, 1, 2, 3], 'one_in': 1},"
      "'half': {'choices': [0, 1, 2], 'one_in': 2}, 'rare': {'choices': [0, 1], 'one_in': 200}, 'plain': {'choices': [0]}}}";
  enum { DRAWS = 2000 };
  struct sf_description *description = describe(often);
  const struct sf_choice_space space = {.description = description, .ranks_max = 2};
  const struct sf_table table = sf_framework_table(&space);
  int32_t counts[3] = {0};
  for (uint64_t i = 0; i < DRAWS; i++) {
    int64_t row[SF_SPACE_FIELDS_MAX];
    struct sf_draw draw;
    sf_draw_from_pcg(&draw, 1, i);
    assert_int_equal(sf_table_draw(row, &draw, &table, NULL, 0, NULL), SF_OK);
    for (int field = 0; field < 3; field++) counts[field] += row[1 + field] > 0;
  }
  assert_int_equal(counts[0], DRAWS);
  assert_in_range(counts[1], DRAWS * 2 / 5, DRAWS * 3 / 5);
  assert_in_range(counts[2], 1, DRAWS / 50);
  sf_description_destroy(description);
}

static struct sf_case framework_case(const char *fields_) {
  struct sf_case c;
  struct sf_error error = {SF_OK, ""};
  sf_case_init(&c);
  snprintf(c.target, sizeof c.target, "m");
  if (sf_case_set_framework(&c, fields_, &error) != SF_OK) fail_msg("%s", error.text);
  return c;
}

static void test_without_a_trigger_the_rest_of_the_case_stays(void **state) {
  const struct fixture *f = *state;
  const struct sf_table table = sf_framework_table(&f->space);
  const struct {
    const char *c, *trigger, *rest; /* NULL: there is no such case */
  } rows[] = {
      {"{\"hidden\":32,\"kind\":\"relu\",\"layout\":{\"dp\":2}}", "{\"kind\":\"relu\",\"layout\":{\"dp\":2}}", "{\"hidden\":32}"},
      {"{\"hidden\":32,\"kind\":\"relu\",\"layout\":{\"dp\":2}}", "{\"kind\":\"relu\"}", "{\"layout\":{\"dp\":2},\"hidden\":32}"},
      {"{\"layout\":{\"tp\":2,\"dp\":2,\"sp\":true}}", "{\"layout\":{\"tp\":2}}", "{\"layout\":{\"dp\":2}}"},
      {"{\"experts\":4,\"topk\":2,\"layout\":{\"dp\":2}}", "{\"experts\":4,\"layout\":{\"dp\":2}}", "{}"},
      {"{\"experts\":4,\"topk\":2,\"layout\":{\"dp\":2}}", "{\"experts\":4}", "{\"layout\":{\"dp\":2}}"},
      {"{\"hidden\":32,\"layout\":{\"dp\":2}}", "{\"kind\":\"relu\"}", NULL},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const struct sf_case c = framework_case(rows[i].c), trigger = framework_case(rows[i].trigger);
    struct sf_case rest;
    assert_int_equal(sf_shrink_without(&table, &rest, &c, &trigger), rows[i].rest != NULL);
    if (rows[i].rest) assert_string_equal(rest.fields, rows[i].rest);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_draw_every_choice_comes_and_every_case_is_allowed, open_space, close_space),
      cmocka_unit_test_setup_teardown(test_draw_layouts_of_a_function_differ_in_layout_alone, open_space, close_space),
      cmocka_unit_test_setup_teardown(test_space_set_fixes_fields_and_limits_ranks, open_space, close_space),
      cmocka_unit_test_setup_teardown(test_space_set_wrong_assignments_are_refused, open_space, close_space),
      cmocka_unit_test_setup_teardown(test_choices_of_a_case_and_back, open_space, close_space),
      cmocka_unit_test_setup_teardown(test_draw_what_is_fixed_against_the_rules_is_refused, open_space, close_space),
      cmocka_unit_test_setup_teardown(test_draw_neighbouring_places_begin_with_different_axes, open_space, close_space),
      cmocka_unit_test_setup_teardown(test_draw_another_layout_is_of_the_same_function, open_space, close_space),
      cmocka_unit_test(test_draw_fields_come_with_what_they_need),
      cmocka_unit_test(test_draw_fields_say_how_often_they_are_not_plain),
      cmocka_unit_test(test_cover_rows_meet_pairs_sooner_than_draws),
      cmocka_unit_test(test_cover_all_feasible_pairs_are_met),
      cmocka_unit_test(test_cover_a_lone_field_has_each_choice),
      cmocka_unit_test_setup_teardown(test_draw_any_bytes_give_an_allowed_case, open_space, close_space),
      cmocka_unit_test_setup_teardown(test_shrink_ends_one_minimal, open_space, close_space),
      cmocka_unit_test_setup_teardown(test_without_a_trigger_the_rest_of_the_case_stays, open_space, close_space),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
