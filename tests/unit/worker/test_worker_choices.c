#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "harness/worker/choices.h"

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

/* Rows that are drawn come in test_run_framework_table. */
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_space_set_wrong_assignments_are_refused, open_space, close_space),
      cmocka_unit_test_setup_teardown(test_choices_of_a_case_and_back, open_space, close_space),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
