/* Covering campaigns: the first cases have every feasible pair, a block shares its logical function, and counting is exact. */
#include "generators/cover.h"
#include "generators/codec_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { LAYOUTS = 4, FIRST_CASES = 2000 };

static struct sf_space space_of(const char *const *sets) {
  struct sf_space space;
  struct sf_error error = {SF_OK, ""};
  sf_space_init(&space);
  for (; sets && *sets; sets++)
    if (sf_space_set(&space, *sets, &error) != SF_OK) fail_msg("%s", error.text);
  return space;
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void check_covers(const struct sf_space *space, uint64_t seed, int64_t layouts) {
  const struct sf_table table = sf_layers_table(space);
  struct sf_cover *cover;
  struct sf_cover_count *count;
  struct sf_error error = {SF_OK, ""};
  struct sf_text missing = {0};
  const double start = seconds();
  if (sf_cover_create(&cover, &table, seed, layouts, &error) != SF_OK) fail_msg("%s", error.text);
  const double built = seconds() - start;
  assert_int_equal(sf_cover_count_create(&count, &table), SF_OK);
  const int64_t rows = sf_cover_rows(cover);
  for (int64_t i = 0; i < rows; i++) {
    struct sf_case c;
    if (sf_cover_draw(&c, cover, &table, seed, layouts, i, 0, &error) != SF_OK) fail_msg("%s", error.text);
    assert_int_equal(sf_case_validate(&c, NULL), SF_OK);
    sf_cover_count_add(count, &c);
  }
  const struct sf_cover_shares shares = sf_cover_count_shares(count);
  sf_cover_count_missing(count, &missing);
  print_message("%lld pairs after %lld cases, table made in %.0f ms; %.1f %% of %lld triples\n", (long long)shares.pairs_run,
                (long long)rows, 1e3 * built, 100.0 * (double)shares.triples_run / (double)shares.triples, (long long)shares.triples);
  if (shares.pairs_run != shares.pairs)
    fail_msg("%lld of %lld pairs; not %s", (long long)shares.pairs_run, (long long)shares.pairs, missing.data);
  assert_null(missing.data);
  assert_true(rows <= FIRST_CASES);
  assert_true(shares.triples_run <= shares.triples);
  sf_cover_count_destroy(count);
  sf_cover_destroy(cover);
}

/* Both halves of "A with B", as --set takes them. */
static void assert_settings(const struct sf_space *space, const char *missing) {
  char first[256];
  const char *with = strstr(missing, " with ");
  struct sf_error error = {0};
  assert_non_null(with);
  snprintf(first, sizeof first, "%.*s", (int)(with - missing), missing);
  const char *const halves[] = {first, with + 6};
  for (int i = 0; i < 2; i++) {
    struct sf_space copy = *space;
    if (sf_space_set(&copy, halves[i], &error) != SF_OK) fail_msg("\"%s\" of \"%s\": %s", halves[i], missing, error.text);
  }
}

/* The letters of all lines say as many pairs, and as many that ran, as the shares do. */
static void test_cover_append_has_each_pair_once(void **state) {
  (void)state;
  const struct sf_space space = space_of(NULL);
  const struct sf_table table = sf_layers_table(&space);
  struct sf_error error = {0};
  struct sf_cover_count *count = NULL;
  struct sf_text text = {0};
  int64_t ran = 0, open = 0, lines = 0;
  assert_int_equal(sf_cover_count_create(&count, &table), SF_OK);
  for (int64_t i = 0; i < 20; i++) {
    struct sf_case c;
    assert_int_equal(sf_cover_draw(&c, NULL, &table, 1, LAYOUTS, i, 0, &error), SF_OK);
    sf_cover_count_add(count, &c);
  }
  sf_cover_count_append(count, &text);
  for (const char *line = text.data; *line; line += strcspn(line, "\n") + 1, lines++) {
    const size_t states = strcspn(line, " ");
    assert_int_equal(states, lines == 0 ? 1 : lines);
    for (size_t k = 0; k < states; k++) ran += line[k] == 'x', open += line[k] == 'o';
    const char *end = strchr(line, '\n'), *value = strchr(line + states, '=');
    assert_true(end != NULL && value != NULL && value < end);
  }
  const struct sf_cover_shares shares = sf_cover_count_shares(count);
  assert_int_equal(ran, shares.pairs_run);
  assert_int_equal(ran + open, shares.pairs);
  sf_cover_count_destroy(count);
  sf_text_destroy(&text);
}

static void test_cover_missing_pair_is_told_as_settings(void **state) {
  (void)state;
  const struct sf_space space = space_of(NULL);
  const struct sf_table table = sf_layers_table(&space);
  struct sf_error error = {0};
  struct sf_cover *cover = NULL;
  struct sf_cover_count *count = NULL;
  assert_int_equal(sf_cover_create(&cover, &table, 1, LAYOUTS, &error), SF_OK);
  assert_int_equal(sf_cover_count_create(&count, &table), SF_OK);
  for (int64_t i = 0; i < sf_cover_rows(cover); i++) {
    struct sf_text missing = {0};
    struct sf_case c;
    sf_cover_count_missing(count, &missing);
    if (i == 0) assert_string_equal(missing.data, "mode=isolated with precision.compute=fp32");
    if (missing.data) assert_settings(&space, missing.data);
    sf_text_destroy(&missing);
    assert_int_equal(sf_cover_draw(&c, cover, &table, 1, LAYOUTS, i, 0, &error), SF_OK);
    sf_cover_count_add(count, &c);
  }
  sf_cover_count_destroy(count);
  sf_cover_destroy(cover);
}

static void test_cover_default_space_first_cases_have_all_pairs(void **state) {
  (void)state;
  const struct sf_space space = space_of(NULL);
  for (uint64_t seed = 1; seed <= 3; seed++) check_covers(&space, seed, LAYOUTS);
}

static void test_cover_narrow_spaces_first_cases_have_all_pairs(void **state) {
  (void)state;
  static const char *const one_rank[] = {"layout.tp=1", "layout.dp=1", "layout.pp=1", NULL};
  static const char *const stages[] = {"layout.pp=3..4", "model.layers=4..6", "train.recompute_layers=1..2", NULL};
  static const char *const wide[] = {"layout.tp=8", "model.heads=8", "model.tied=true", NULL};
  static const char *const *const sets[] = {one_rank, stages, wide};
  for (int i = 0; i < 3; i++) {
    const struct sf_space space = space_of(sets[i]);
    check_covers(&space, 5, LAYOUTS);
    check_covers(&space, 6, 1);
  }
  struct sf_space large = space_of(NULL);
  large.max_ranks = 16;
  check_covers(&large, 7, LAYOUTS);
}

static bool same_logical(const struct sf_case *a, const struct sf_case *b) {
  for (int i = 0; i < sf_case_field_count; i++) {
    const struct sf_field *field = &sf_case_fields[i];
    const bool is_layout = strncmp(field->path, "layout.", 7) == 0 || strncmp(field->path, "reload.", 7) == 0;
    if (field->type == SF_FIELD_TEXT || is_layout || strcmp(field->path, "schedule") == 0) continue;
    if (sf_case_field_get(a, field) != sf_case_field_get(b, field)) return false;
  }
  return true;
}

/* In covering rows and behind them; and a table is a function of its arguments. */
static void test_cover_draw_blocks_share_the_logical_function(void **state) {
  (void)state;
  const struct sf_space space = space_of(NULL);
  const struct sf_table table = sf_layers_table(&space);
  struct sf_cover *cover, *again;
  assert_int_equal(sf_cover_create(&cover, &table, 9, LAYOUTS, NULL), SF_OK);
  assert_int_equal(sf_cover_create(&again, &table, 9, LAYOUTS, NULL), SF_OK);
  struct sf_case first, c, other, plain;
  memset(&first, 0, sizeof first);
  int differs = 0;
  for (int64_t i = 0; i < sf_cover_rows(cover) + 40; i++) {
    assert_int_equal(sf_cover_draw(&c, cover, &table, 9, LAYOUTS, i, 0, NULL), SF_OK);
    assert_int_equal(sf_cover_draw(&other, again, &table, 9, LAYOUTS, i, 0, NULL), SF_OK);
    assert_int_equal(sf_cover_draw(&plain, NULL, &table, 9, LAYOUTS, i, 0, NULL), SF_OK);
    assert_memory_equal(&c, &other, sizeof c);
    if (i % LAYOUTS == 0) first = c;
    assert_true(same_logical(&first, &c));
    const bool same = memcmp(&c, &plain, sizeof c) == 0;
    if (i >= (sf_cover_rows(cover) / LAYOUTS + 1) * LAYOUTS) assert_true(same);
    differs += !same;
  }
  assert_true(differs > sf_cover_rows(cover) / 2);
  sf_cover_destroy(cover);
  sf_cover_destroy(again);
}

static void test_cover_levels_are_ascending_disjoint_and_few(void **state) {
  (void)state;
  const struct sf_space space = space_of(NULL);
  const struct sf_table table = sf_layers_table(&space);
  for (int field = 0; field < SF_CASE_DRAWN; field++) {
    struct sf_range ranges[SF_BINS_MAX];
    const int32_t count = sf_layers_bins(ranges, &table, field);
    for (int32_t i = 0; i < count; i++) {
      assert_true(ranges[i].lo <= ranges[i].hi);
      if (i > 0) assert_true(ranges[i - 1].hi < ranges[i].lo);
    }
  }
  struct sf_range tp[SF_BINS_MAX];
  assert_int_equal(sf_layers_bins(tp, &table, SF_CASE_TP), 3);
  assert_int_equal(tp[2].lo, 3);
  assert_int_equal(tp[2].hi, 8);
}

/* Counting against pairs written out by hand: a space of two switches and nothing else that is open. */
static void test_cover_count_is_exact(void **state) {
  (void)state;
  static const char *const sets[] = {"layout.dp=1", "layout.pp=1", NULL};
  const struct sf_space space = space_of(sets);
  const struct sf_table table = sf_layers_table(&space);
  struct sf_cover_count *count;
  assert_int_equal(sf_cover_count_create(&count, &table), SF_OK);
  const struct sf_cover_shares none = sf_cover_count_shares(count);
  assert_int_equal(none.pairs_run, 0);
  assert_int_equal(none.triples_run, 0);
  struct sf_case c;
  sf_case_init(&c);
  sf_cover_count_add(count, &c);
  const struct sf_cover_shares one = sf_cover_count_shares(count);
  /* n factors have n (n - 1) / 2 pairs and n (n - 1) (n - 2) / 6 triples in one case. */
  int64_t n = 2;
  while (n * (n - 1) / 2 < one.pairs_run) n++;
  assert_int_equal(n * (n - 1) / 2, one.pairs_run);
  assert_int_equal(n * (n - 1) * (n - 2) / 6, one.triples_run);
  sf_cover_count_add(count, &c);
  assert_int_equal(sf_cover_count_shares(count).pairs_run, one.pairs_run);
  c.model.bias = !c.model.bias;
  sf_cover_count_add(count, &c);
  assert_int_equal(sf_cover_count_shares(count).pairs_run, one.pairs_run + n - 1);
  assert_int_equal(sf_cover_count_shares(count).triples_run, one.triples_run + (n - 1) * (n - 2) / 2);
  assert_int_equal(sf_cover_count_shares(count).pairs, one.pairs);
  sf_cover_count_destroy(count);
}

static void test_cover_create_contradicting_space_refused(void **state) {
  (void)state;
  static const char *const sets[] = {"layout.tp=3", "model.heads=4", NULL};
  const struct sf_space space = space_of(sets);
  const struct sf_table table = sf_layers_table(&space);
  struct sf_cover *cover = NULL;
  struct sf_case c;
  struct sf_error error = {SF_OK, ""};
  const enum sf_status status = sf_cover_create(&cover, &table, 1, LAYOUTS, &error);
  if (status == SF_OK) assert_int_equal(sf_cover_draw(&c, cover, &table, 1, LAYOUTS, 0, 0, &error), SF_EINPUT);
  sf_cover_destroy(cover);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_cover_append_has_each_pair_once),
      cmocka_unit_test(test_cover_missing_pair_is_told_as_settings),
      cmocka_unit_test(test_cover_default_space_first_cases_have_all_pairs),
      cmocka_unit_test(test_cover_narrow_spaces_first_cases_have_all_pairs),
      cmocka_unit_test(test_cover_draw_blocks_share_the_logical_function),
      cmocka_unit_test(test_cover_levels_are_ascending_disjoint_and_few),
      cmocka_unit_test(test_cover_count_is_exact),
      cmocka_unit_test(test_cover_create_contradicting_space_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
