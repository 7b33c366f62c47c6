#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "harness/worker/choice_cover.h"

#include <stdlib.h>
#include <string.h>

/* Experts need sequence parallelism under tensor parallelism; ranks are a product. Single quotes stand for double ones. */
static const char fields[] =
    "{'name': 'm', 'ranks': ['layout.tp', 'layout.dp'], 'fields': {"
    "'layout.tp': {'choices': [1, 2, 4], 'layout': true}, 'layout.dp': {'choices': [1, 2], 'layout': true}, 'layout.sp': {'choices': [false, true], 'layout': true},"
    "'experts': {'choices': [null, 4]}, 'topk': {'choices': [1, 2]}, 'hidden': {'min': 8, 'max': 64, 'step': 8}, 'seed': {'min': 0, 'max': 99},"
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

/* Owned by the caller. */
static char *drawn_text(const struct fixture *f, uint64_t function, int64_t place, struct sf_choices *choices) {
  assert_int_equal(sf_choices_draw(choices, &f->space, function, place, 0, NULL), SF_OK);
  json_t *c = sf_choices_case(choices, f->description, true);
  char *text = json_dumps(c, JSON_COMPACT);
  json_decref(c);
  return text;
}

static void test_draw_every_choice_comes_and_every_case_is_allowed(void **state) {
  const struct fixture *f = *state;
  int64_t seen[8][8] = {{0}}, plain_layouts = 0;
  for (uint64_t i = 0; i < 900; i++) {
    struct sf_choices choices;
    free(drawn_text(f, i, (int64_t)i % 4, &choices));
    assert_true(sf_choices_allowed(&choices, &f->space));
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
    struct sf_choices a, b;
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
  struct sf_choices choices;
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

static void test_draw_what_is_fixed_against_the_rules_is_refused(void **state) {
  struct fixture *f = *state;
  struct sf_choices choices;
  struct sf_error error = {SF_OK, ""};
  assert_int_equal(sf_choice_space_set(&f->space, "topk=2", NULL), SF_OK);
  assert_int_equal(sf_choice_space_set(&f->space, "experts=null", NULL), SF_OK);
  assert_int_equal(sf_choices_draw(&choices, &f->space, 1, 1, 0, &error), SF_EINPUT);
  assert_non_null(strstr(error.text, "does not go together"));
}

static void test_draw_neighbouring_places_begin_with_different_axes(void **state) {
  const struct fixture *f = *state;
  for (uint64_t i = 0; i < 100; i++) {
    bool tp = false, dp = false;
    for (int64_t place = 0; place < 2; place++) {
      struct sf_choices c;
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
    struct sf_choices a, b;
    assert_int_equal(sf_choices_draw(&a, &f->space, i, 0, 0, NULL), SF_OK);
    assert_int_equal(sf_choices_draw(&b, &f->space, i, 0, 1, NULL), SF_OK);
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
    struct sf_choices c;
    assert_int_equal(sf_choices_draw(&c, &space, i, 0, 0, NULL), SF_OK);
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
    struct sf_choices c;
    assert_int_equal(sf_choices_draw(&c, &fixed, i, 0, 0, NULL), SF_OK);
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
      "{'name': 'm', 'fields': {'ranks': {'choices': [1, 2], 'layout': true}, 'a': {'choices': [0, 1, 2]}, 'b': {'choices': [0, 1, 2]}, 'c': {'choices': [0, 1, 2]},"
      "'d': {'choices': [0, 1, 2]}, 'e': {'choices': [0, 1, 2]}, 'f': {'choices': [0, 1, 2]}, 'g': {'choices': [0, 1, 2]}, 'h': {'choices': [0, 1, 2]}}}";
  struct sf_description *description = describe(wide);
  const struct sf_choice_space space = {.description = description, .ranks_max = 2};
  int64_t met[2] = {0, 0};
  for (uint64_t seed = 1; seed < 6; seed++) {
    struct sf_choice_cover *cover = NULL, *again = NULL;
    assert_int_equal(sf_choice_cover_create(&cover, &space, seed, NULL), SF_OK);
    assert_int_equal(sf_choice_cover_create(&again, &space, seed, NULL), SF_OK);
    assert_int_equal(sf_choice_cover_rows(cover), sf_choice_cover_rows(again));
    for (int covering = 0; covering < 2; covering++) {
      bool had[27][27] = {{false}};
      for (int64_t row = 0; row < 40 && row < sf_choice_cover_rows(cover); row++) {
        struct sf_choices c;
        assert_true(sf_choice_cover_function(cover, row) == sf_choice_cover_function(again, row));
        assert_int_equal(
            sf_choices_draw(&c, &space, covering ? sf_choice_cover_function(cover, row) : seed * 1000 + (uint64_t)row, 0, 0, NULL), SF_OK);
        for (int32_t i = 1; i < 9; i++)
          for (int32_t k = 1; k < i; k++)
            if (c.at[i] && c.at[k] && !had[3 * i + c.at[i]][3 * k + c.at[k]]) had[3 * i + c.at[i]][3 * k + c.at[k]] = true, met[covering]++;
      }
    }
    sf_choice_cover_destroy(cover);
    sf_choice_cover_destroy(again);
  }
  assert_true(met[1] * 10 > met[0] * 12);
  sf_description_destroy(description);
}

static void test_choices_of_a_case_and_back(void **state) {
  const struct fixture *f = *state;
  struct sf_choices choices, again;
  for (uint64_t i = 0; i < 50; i++) {
    free(drawn_text(f, i, (int64_t)i, &choices));
    for (int all = 0; all < 2; all++) {
      json_t *c = sf_choices_case(&choices, f->description, all == 1);
      assert_int_equal(sf_choices_of_case(&again, f->description, c, NULL), SF_OK);
      assert_memory_equal(&choices, &again, sizeof choices);
      json_decref(c);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_draw_every_choice_comes_and_every_case_is_allowed, open_space, close_space),
      cmocka_unit_test_setup_teardown(test_draw_layouts_of_a_function_differ_in_layout_alone, open_space, close_space),
      cmocka_unit_test_setup_teardown(test_space_set_fixes_fields_and_limits_ranks, open_space, close_space),
      cmocka_unit_test_setup_teardown(test_space_set_wrong_assignments_are_refused, open_space, close_space),
      cmocka_unit_test_setup_teardown(test_draw_what_is_fixed_against_the_rules_is_refused, open_space, close_space),
      cmocka_unit_test_setup_teardown(test_draw_neighbouring_places_begin_with_different_axes, open_space, close_space),
      cmocka_unit_test_setup_teardown(test_draw_another_layout_is_of_the_same_function, open_space, close_space),
      cmocka_unit_test(test_draw_fields_come_with_what_they_need),
      cmocka_unit_test(test_cover_rows_meet_pairs_sooner_than_draws),
      cmocka_unit_test_setup_teardown(test_choices_of_a_case_and_back, open_space, close_space),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
