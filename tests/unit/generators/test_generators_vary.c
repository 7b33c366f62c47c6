/* Variations of rows are rows that the generator draws; choices lead back to the row; numbers of pairs are those that are counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "generators/codec_internal.h"
#include "generators/cover.h"
#include "generators/vary.h"

#include "tests/rounds.h"

#include <stdlib.h>
#include <string.h>

static void draw_row(int64_t *row, const struct sf_table *table, uint64_t seed, uint64_t index) {
  struct sf_draw draw;
  struct sf_error error = {0};
  sf_draw_from_pcg(&draw, seed, index);
  if (sf_table_draw(row, &draw, table, NULL, 0, &error) != SF_OK) fail_msg("%s", error.text);
}

static void assert_same_row(const int64_t *got, const int64_t *want) {
  for (int i = 0; i < SF_CASE_DRAWN; i++)
    if (got[i] != want[i]) fail_msg("%s is %lld, want %lld", sf_case_fields[i].path, (long long)got[i], (long long)want[i]);
}

static void assert_valid(const int64_t *row, const struct sf_table *table) {
  struct sf_case c;
  struct sf_error error = {0};
  if (table->kind->to_case(&c, table, row, &error) != SF_OK) fail_msg("%s", error.text);
}

static void test_table_choices_draw_the_row_again(void **state) {
  (void)state;
  struct sf_space space;
  sf_space_init(&space);
  const struct sf_table table = sf_layers_table(&space);
  for (uint64_t i = 0; i < SF_ROUNDS(800); i++) {
    int64_t row[SF_SPACE_FIELDS_MAX], back[SF_SPACE_FIELDS_MAX];
    unsigned char bytes[SF_CHOICE_BYTES_MAX];
    struct sf_draw draw;
    draw_row(row, &table, 11, i);
    const size_t count = sf_table_choices(bytes, row, &table);
    assert_in_range(count, SF_CASE_DRAWN, sizeof bytes);
    sf_draw_from_bytes(&draw, bytes, count);
    assert_int_equal(sf_table_draw(back, &draw, &table, NULL, 0, NULL), SF_OK);
    assert_same_row(back, row);
  }
}

static void test_table_choices_of_an_undrawn_value_are_none(void **state) {
  (void)state;
  struct sf_space space;
  sf_space_init(&space);
  const struct sf_table table = sf_layers_table(&space);
  int64_t row[SF_SPACE_FIELDS_MAX];
  unsigned char bytes[SF_CHOICE_BYTES_MAX];
  draw_row(row, &table, 11, 0);
  assert_true(sf_table_choices(bytes, row, &table) > 0);
  row[SF_CASE_FFN] = 10; /* the generator draws multiples of 4 */
  assert_int_equal(sf_table_choices(bytes, row, &table), 0);
}

/* Some variations change single fields, some the layout alone, and together they reach every field of which there is a choice. */
static void test_vary_row_reaches_every_field(void **state) {
  (void)state;
  struct sf_space space;
  sf_space_init(&space);
  const struct sf_table table = sf_layers_table(&space);
  struct sf_draw draw;
  int64_t from[SF_SPACE_FIELDS_MAX], row[SF_SPACE_FIELDS_MAX];
  const int64_t rounds = 1600;
  int64_t made = 0, same = 0, single = 0, layout = 0, changed[SF_CASE_DRAWN] = {0};
  sf_draw_from_pcg(&draw, 1, 2);
  for (int64_t i = 0; i < rounds; i++) {
    int64_t differences = 0, logical = 0;
    draw_row(from, &table, 12, (uint64_t)(i / 8));
    if (!sf_vary_row(row, from, &table, &draw)) continue;
    assert_valid(row, &table);
    made++;
    for (int k = 0; k < SF_CASE_DRAWN; k++) {
      if (row[k] == from[k]) continue;
      changed[k]++;
      differences++;
      logical += !sf_table_has(&table, k, SF_TRAIT_LAYOUT);
    }
    same += differences == 0;
    single += differences == 1;
    layout += differences > 0 && logical == 0;
  }
  for (int k = 0; k < SF_CASE_DRAWN; k++)
    if (changed[k] == 0) fail_msg("%s never changed", sf_case_fields[k].path);
  assert_true(10 * made > 8 * rounds);
  assert_true(10 * same < made);
  assert_true(20 * single > made);
  assert_true(5 * layout > made);
}

/* Apart from fields that rules bind, each field has the value of one of the two rows, and both give some. */
static void test_vary_mix_takes_fields_of_both(void **state) {
  (void)state;
  struct sf_space space;
  sf_space_init(&space);
  const struct sf_table table = sf_layers_table(&space);
  struct sf_draw draw;
  int64_t from[SF_SPACE_FIELDS_MAX], other[SF_SPACE_FIELDS_MAX], row[SF_SPACE_FIELDS_MAX];
  int64_t kept = 0, taken = 0, neither = 0;
  sf_draw_from_pcg(&draw, 1, 3);
  for (uint64_t i = 0; i < SF_ROUNDS(1000); i++) {
    draw_row(from, &table, 13, i);
    draw_row(other, &table, 14, i);
    assert_true(sf_vary_mix(row, from, other, &table, &draw));
    assert_valid(row, &table);
    for (int k = 0; k < SF_CASE_DRAWN; k++) {
      if (from[k] == other[k]) continue;
      kept += row[k] == from[k];
      taken += row[k] == other[k];
      neither += row[k] != from[k] && row[k] != other[k];
    }
  }
  assert_true(kept > taken && 8 * taken > kept);
  assert_true(20 * neither < kept + taken);
}

static void mark(void *ctx, int32_t number) { ((unsigned char *)ctx)[number]++; }

static void test_cover_count_each_numbers_every_pair_once(void **state) {
  (void)state;
  struct sf_space space;
  struct sf_cover_count *count;
  sf_space_init(&space);
  const struct sf_table table = sf_layers_table(&space);
  assert_int_equal(sf_cover_count_create(&count, &table), SF_OK);
  const int32_t numbers = sf_cover_count_numbers(count);
  unsigned char *seen = calloc((size_t)numbers, 1), *once = calloc((size_t)numbers, 1);
  int64_t pairs, pairs_run, distinct = 0;
  assert_true(seen && once);
  for (uint64_t i = 0; i < 50; i++) {
    int64_t row[SF_SPACE_FIELDS_MAX];
    struct sf_case c;
    draw_row(row, &table, 15, i);
    assert_int_equal(table.kind->to_case(&c, &table, row, NULL), SF_OK);
    memset(once, 0, (size_t)numbers);
    sf_cover_count_each(count, &c, mark, once);
    sf_cover_count_add(count, &c);
    for (int32_t k = 0; k < numbers; k++) {
      assert_in_range(once[k], 0, 1);
      distinct += once[k] && !seen[k];
      seen[k] |= once[k];
    }
  }
  sf_cover_count_pairs(count, &pairs, &pairs_run);
  assert_int_equal(distinct, pairs_run);
  free(seen);
  free(once);
  sf_cover_count_destroy(count);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_table_choices_draw_the_row_again),
      cmocka_unit_test(test_table_choices_of_an_undrawn_value_are_none),
      cmocka_unit_test(test_vary_row_reaches_every_field),
      cmocka_unit_test(test_vary_mix_takes_fields_of_both),
      cmocka_unit_test(test_cover_count_each_numbers_every_pair_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
