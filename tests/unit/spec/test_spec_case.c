#include "harness/spec/case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

/* --- the table of fields --------------------------------------------------------------------------------------- */

static void test_case_fields_cover_the_struct_without_overlap(void **state) {
  (void)state;
  /* Every byte of a case but padding and `expect` belongs to exactly one field. */
  unsigned char owners[sizeof(struct sf_case)] = {0};
  for (int i = 0; i < sf_case_field_count; i++)
    for (size_t at = 0; at < sf_case_fields[i].size_bytes; at++) owners[sf_case_fields[i].offset + at]++;
  size_t covered = 0;
  for (size_t at = 0; at < sizeof owners; at++) {
    assert_true(owners[at] <= 1);
    if (at < offsetof(struct sf_case, expect)) covered += owners[at];
    else assert_int_equal(owners[at], 0);
  }
  /* behind the flags of model, precision, data, and sp and tp_overlap of both layouts */
  const size_t padding = 1 + 6 + 6 + 2 * (7 + 5),
               of_others = SF_OPERATION_TEXT + SF_CASE_FIELDS_TEXT; /* no fields of the built-in layers */
  assert_int_equal(covered + padding + of_others, offsetof(struct sf_case, expect));
}

static void test_case_fields_have_the_sizes_that_get_and_put_use(void **state) {
  (void)state;
  for (int i = 0; i < sf_case_field_count; i++) {
    const struct sf_field *field = &sf_case_fields[i];
    if (field->type == SF_FIELD_TEXT) continue;
    assert_int_equal(field->size_bytes, field->type == SF_FIELD_BOOL ? sizeof(bool) : sizeof(int64_t));
    assert_in_range(field->smallest, field->min, field->max);
    assert_int_equal(field->names != NULL, field->type == SF_FIELD_ENUM || field->type == SF_FIELD_FLAGS);
  }
}

static void test_case_field_find_finds_each_field_and_nothing_else(void **state) {
  (void)state;
  for (int i = 0; i < sf_case_field_count; i++) assert_ptr_equal(sf_case_field_find(sf_case_fields[i].path), &sf_case_fields[i]);
  assert_null(sf_case_field_find("layout"));
  assert_null(sf_case_field_find("layout.tp "));
  assert_null(sf_case_field_find(""));
}

static void test_case_field_put_changes_only_its_field(void **state) {
  (void)state;
  for (int i = 0; i < sf_case_field_count; i++) {
    const struct sf_field *field = &sf_case_fields[i];
    struct sf_case one, other;
    if (field->type == SF_FIELD_TEXT) continue;
    sf_case_init(&one);
    other = one;
    const int64_t value = field->smallest == field->max ? field->min : field->max;
    sf_case_field_put(&other, field, value);
    assert_int_equal(sf_case_field_get(&other, field), value);
    for (int k = 0; k < sf_case_field_count; k++)
      if (k != i && sf_case_fields[k].type != SF_FIELD_TEXT)
        assert_int_equal(sf_case_field_get(&one, &sf_case_fields[k]), sf_case_field_get(&other, &sf_case_fields[k]));
  }
}

/* --- values of the command line --------------------------------------------------------------------------------- */

static void test_case_field_parse_takes_each_kind_of_value(void **state) {
  (void)state;
  struct sf_case c;
  sf_case_init(&c);
  static const char *const GOOD[][2] = {
      {"seed", "9223372036854775807"}, {"layout.tp", "4"},     {"layout.sp", "on"},
      {"model.bias", "true"},          {"mode", "e2e"},        {"precision.compute", "bf16"},
      {"train.frozen", "norms+qkv"},   {"target.name", "plugin:./Lib_x.so"}, {"layout.order", "pp-dp-ep-cp-tp"},
  };
  for (size_t i = 0; i < sizeof GOOD / sizeof GOOD[0]; i++) assert_int_equal(sf_case_field_parse(&c, GOOD[i][0], GOOD[i][1], NULL), SF_OK);
  assert_int_equal(c.seed, INT64_MAX);
  assert_int_equal(c.layout.tp, 4);
  assert_true(c.layout.sp);
  assert_true(c.model.bias);
  assert_int_equal(c.mode, SF_MODE_E2E);
  assert_int_equal(c.precision.compute, SF_BF16);
  assert_int_equal(c.train.frozen, SF_FROZEN_NORMS | SF_FROZEN_QKV);
  assert_string_equal(c.target, "plugin:./Lib_x.so");
  assert_string_equal(c.layout.order, "pp-dp-ep-cp-tp");
  assert_int_equal(sf_case_field_parse(&c, "layout.sp", "off", NULL), SF_OK);
  assert_int_equal(sf_case_field_parse(&c, "train.frozen", "none", NULL), SF_OK);
  assert_false(c.layout.sp);
  assert_int_equal(c.train.frozen, 0);
}

static void test_case_field_parse_of_a_bad_value_is_refused_and_changes_nothing(void **state) {
  (void)state;
  static const char *const BAD[][3] = {
      {"layout.tq", "1", "layout.tq: no such field; did you mean layout.tp?"},
      {"layout.tp", "", "is not a number"},
      {"layout.tp", "2x", "is not a number"},
      {"layout.tp", "-1", "is not a number"},
      {"layout.tp", "0", "0 is not in 1..65536"},
      {"layout.tp", "65537", "is not in"},
      {"seed", "9223372036854775808", "is too large"},
      {"layout.sp", "yes", "none of true, false"},
      {"mode", "E2E", "not one of its names"},
      {"mode", "isloated", "\"isloated\" is not one of its names; did you mean isolated?"},
      {"mode", "", "not one of its names"},
      {"train.frozen", "qkv+", "not one of its names"},
      {"train.frozen", "qkv+all", "\"all\" is not one of its names"},
      {"plant.id", "a b", "characters other than"},
      {"layout.order", "tp-cp-ep-dp-pp-and-so-on", "longer than 23"},
  };
  for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
    struct sf_case c, before;
    struct sf_error error = {0};
    sf_case_init(&c);
    before = c;
    if (sf_case_field_parse(&c, BAD[i][0], BAD[i][1], &error) != SF_EINPUT) fail_msg("%s=%s was taken", BAD[i][0], BAD[i][1]);
    if (strstr(error.text, BAD[i][2]) == NULL) fail_msg("\"%s\" is not in \"%s\"", BAD[i][2], error.text);
    assert_memory_equal(&c, &before, sizeof c);
  }
}

/* --- the smallest case, hash, stages ------------------------------------------------------------------------------ */

static void test_case_init_gives_the_smallest_valid_case(void **state) {
  (void)state;
  struct sf_case c;
  memset(&c, 0xee, sizeof c);
  sf_case_init(&c);
  for (int i = 0; i < sf_case_field_count; i++)
    if (sf_case_fields[i].type != SF_FIELD_TEXT) assert_int_equal(sf_case_field_get(&c, &sf_case_fields[i]), sf_case_fields[i].smallest);
  assert_string_equal(c.layout.order, "tp-cp-ep-dp-pp");
  assert_string_equal(c.target, "builtin");
  assert_string_equal(c.plant, "");
  assert_false(c.expect.present);
  assert_int_equal(sf_case_validate(&c, NULL), SF_OK);
  assert_int_equal(sf_case_ranks(&c), 1);
}

static bool is_logical(const char *path) {
  return strncmp(path, "layout.", 7) != 0 && strncmp(path, "reload.", 7) != 0 && strcmp(path, "schedule") != 0 &&
         strncmp(path, "target.", 7) != 0 && strncmp(path, "plant.", 6) != 0;
}

static void test_case_logical_hash_depends_on_the_logical_fields_only(void **state) {
  (void)state;
  struct sf_case c;
  sf_case_init(&c);
  const uint64_t hash = sf_case_logical_hash(&c);
  for (int i = 0; i < sf_case_field_count; i++) {
    const struct sf_field *field = &sf_case_fields[i];
    sf_case_init(&c);
    if (field->type == SF_FIELD_TEXT) ((char *)&c)[field->offset] = 'x';
    else sf_case_field_put(&c, field, field->smallest == field->max ? field->min : field->max);
    if ((sf_case_logical_hash(&c) != hash) != is_logical(field->path)) fail_msg("%s", field->path);
  }
}

static void test_case_after_reload_has_the_second_layout_alone(void **state) {
  (void)state;
  struct sf_case c, smallest;
  sf_case_init(&c);
  sf_case_init(&smallest);
  c.train.steps = 3, c.train.microbatches = 2;
  c.layout.dp = 2;
  c.reload.after_step = 2;
  c.reload.layout.pp = 2, c.reload.layout.pp_last_layers = 1;
  c.model.layers = 2;
  assert_int_equal(sf_case_validate(&c, NULL), SF_OK);
  const struct sf_case after = sf_case_after_reload(&c);
  assert_int_equal(after.layout.dp, 1);
  assert_int_equal(after.layout.pp, 2);
  assert_int_equal(after.layout.pp_last_layers, 1);
  assert_int_equal(after.reload.after_step, 0);
  assert_int_equal(after.reload.layout.pp, 1);
  assert_string_equal(after.reload.layout.order, smallest.reload.layout.order);
  assert_int_equal(sf_case_validate(&after, NULL), SF_OK);
  assert_true(sf_case_logical_hash(&after) == sf_case_logical_hash(&c));
  assert_false(sf_case_is_reloaded(&c, 1));
  assert_true(sf_case_is_reloaded(&c, 2));
  assert_true(sf_case_is_reloaded(&c, 3));
  assert_false(sf_case_is_reloaded(&after, 3));
}

static void check_stages(int64_t layers, int64_t pp, int64_t first, int64_t last, const int64_t *counts) {
  struct sf_case c;
  sf_case_init(&c);
  c.model.layers = layers;
  c.layout.pp = pp, c.layout.pp_first_layers = first, c.layout.pp_last_layers = last;
  assert_int_equal(sf_case_validate(&c, NULL), SF_OK);
  assert_int_equal(sf_case_ranks(&c), pp);
  int64_t expected_first = 0;
  for (int64_t stage = 0; stage < pp; stage++) {
    int64_t at = -1, count = -1;
    sf_case_stage_layers(&c, stage, &at, &count);
    assert_int_equal(at, expected_first);
    assert_int_equal(count, counts[stage]);
    expected_first += count;
  }
  assert_int_equal(expected_first, layers);
}

static void test_case_stage_layers_share_what_the_ends_leave(void **state) {
  (void)state;
  check_stages(5, 1, 0, 0, (const int64_t[]){5});
  check_stages(6, 3, 0, 0, (const int64_t[]){2, 2, 2});
  check_stages(7, 3, 1, 0, (const int64_t[]){1, 3, 3});
  check_stages(7, 3, 0, 1, (const int64_t[]){3, 3, 1});
  check_stages(8, 4, 1, 3, (const int64_t[]){1, 2, 2, 3});
  check_stages(5, 2, 2, 3, (const int64_t[]){2, 3});
  check_stages(5, 2, 4, 0, (const int64_t[]){4, 1});
  check_stages(5, 2, 0, 4, (const int64_t[]){1, 4});
}

/* Stage s is chunk s / pp of pipeline rank s mod pp. */
static void test_case_stage_layers_of_interleaved_stages_are_even(void **state) {
  (void)state;
  struct sf_case c;
  sf_case_init(&c);
  c.model.layers = 12, c.train.microbatches = 4;
  c.layout.pp = 2, c.layout.vpp = 3;
  assert_int_equal(sf_case_validate(&c, NULL), SF_OK);
  assert_int_equal(sf_case_ranks(&c), 2);
  assert_int_equal(sf_case_stage_count(&c), 6);
  for (int64_t stage = 0; stage < 6; stage++) {
    int64_t first = -1, count = -1;
    sf_case_stage_layers(&c, stage, &first, &count);
    assert_int_equal(first, 2 * stage);
    assert_int_equal(count, 2);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_case_fields_cover_the_struct_without_overlap),
      cmocka_unit_test(test_case_fields_have_the_sizes_that_get_and_put_use),
      cmocka_unit_test(test_case_field_find_finds_each_field_and_nothing_else),
      cmocka_unit_test(test_case_field_put_changes_only_its_field),
      cmocka_unit_test(test_case_field_parse_takes_each_kind_of_value),
      cmocka_unit_test(test_case_field_parse_of_a_bad_value_is_refused_and_changes_nothing),
      cmocka_unit_test(test_case_init_gives_the_smallest_valid_case),
      cmocka_unit_test(test_case_after_reload_has_the_second_layout_alone),
      cmocka_unit_test(test_case_logical_hash_depends_on_the_logical_fields_only),
      cmocka_unit_test(test_case_stage_layers_share_what_the_ends_leave),
      cmocka_unit_test(test_case_stage_layers_of_interleaved_stages_are_even),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
