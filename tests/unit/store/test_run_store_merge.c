/* Joining stores. */
#include "tests/unit/store/store_fixture.h"

#include <stdio.h>

static void test_store_merge_joins_and_counts_duplicates(void **state) {
  const struct fixture *f = *state;
  const char *const inputs[] = {f->path, f->other};
  struct sf_store_merge_report report;
  store_make(f->path, 10, 30, 25, "s");
  store_make(f->other, 0, 12, 3, "s");
  assert_int_equal(sf_store_merge(&report, f->joined, inputs, 2, false, NULL), SF_OK);
  assert_int_equal(report.verdicts, 30);
  assert_int_equal(report.duplicates, 2);
  assert_int_equal(report.conflicts, 0);
  assert_string_equal(report.first_conflict, "");
  assert_int_equal(file_count(f), 3);
  integrity_is_ok(f->joined);
  struct sf_store *store = open_ok(f->joined, SF_STORE_RESUME);
  struct sf_store_finding finding;
  bool found = false;
  int64_t shrinks = 0;
  assert_int_equal(sf_store_find(store, &finding, &found, "s", NULL), SF_OK);
  assert_true(found);
  assert_int_equal(finding.index, 3);
  assert_string_equal(finding.case_json, "{\"case\":3}");
  assert_int_equal(finding.count, 2);
  assert_int_equal(sf_store_shrink_count(store, &shrinks, "key", NULL), SF_OK);
  assert_int_equal(shrinks, 2);
  lease_is(store, 5, 100, 30, 5);
  sf_store_close(store);
}

static void pairs_are(struct sf_store *store, const char *expected) {
  char *pairs = NULL;
  assert_int_equal(sf_store_pairs(store, &pairs, NULL), SF_OK);
  assert_string_equal(pairs, expected);
  sf_free(pairs);
}

static void test_store_merge_joins_the_pairs_that_ran(void **state) {
  static const struct {
    const char *one, *two, *joined;
  } table[] = {{"- a=1\no b=1\n", "- a=1\nx b=1\n", "- a=1\nx b=1\n"},
               {"- a=1\nx b=1\no. c=1\n", "- a=1\no b=1\no. c=1\n", "- a=1\nx b=1\no. c=1\n"},
               {"- a=1\nx b=1\n", "", ""},
               {"", "- a=1\nx b=1\n", ""},
               {"- a=1\nx b=1\n", "- a=2\nx b=1\n", ""}};
  const struct fixture *f = *state;
  const char *const inputs[] = {f->path, f->other};
  for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
    const char *const notes[] = {table[i].one, table[i].two};
    struct sf_store_merge_report report;
    for (int k = 0; k < 2; k++) {
      struct sf_store *store = open_ok(inputs[k], SF_STORE_CREATE);
      if (*notes[k]) assert_int_equal(sf_store_set_pairs(store, "an earlier note", NULL), SF_OK);
      if (*notes[k]) assert_int_equal(sf_store_set_pairs(store, notes[k], NULL), SF_OK);
      commit_ok(store);
      sf_store_close(store);
    }
    assert_int_equal(sf_store_merge(&report, f->joined, inputs, 2, false, NULL), SF_OK);
    struct sf_store *joined = open_ok(f->joined, SF_STORE_READ);
    pairs_are(joined, table[i].joined);
    assert_string_equal(sf_store_campaign(joined), campaign);
    sf_store_close(joined);
    for (int k = 0; k < 2; k++) sf_store_remove_files(inputs[k]);
    sf_store_remove_files(f->joined);
  }
}

/* Rows that are cut otherwise: each case is there once, and every number adds up. */
static void test_store_merge_rows_of_many_cut_otherwise(void **state) {
  const struct fixture *f = *state;
  const char *const inputs[] = {f->path, f->other};
  static const int64_t first[][2] = {{0, 10}, {20, 5}, {25, 75}}, other[][2] = {{5, 25}, {30, 1}, {90, 30}};
  struct sf_store_merge_report report;
  for (int which = 0; which < 2; which++) {
    struct sf_store *store = open_ok(inputs[which], SF_STORE_CREATE);
    lease_is(store, 120, 120, 0, 120);
    for (int i = 0; i < 3; i++) add_ok(store, which ? passes_make(other[i][0], other[i][1]) : passes_make(first[i][0], first[i][1]));
    if (which) add_ok(store, finding_make(31, "s"));
    commit_ok(store);
    sf_store_close(store);
  }
  assert_int_equal(sf_store_merge(&report, f->joined, inputs, 2, false, NULL), SF_OK);
  assert_int_equal(report.verdicts, 120);
  assert_int_equal(report.duplicates, 5 + 10 + 1 + 10);
  assert_int_equal(report.conflicts, 1);
  assert_non_null(strstr(report.first_conflict, "case 31: verdict differs"));
  integrity_is_ok(f->joined);
  struct sf_store *store = open_ok(f->joined, SF_STORE_RESUME);
  const struct sf_store_summary summary = summary_of(store);
  assert_int_equal(summary.cases, 120);
  assert_int_equal(summary.checked, 1200);
  lease_is(store, 5, 500, 120, 5);
  sf_store_close(store);
}

static void test_store_merge_conflict_is_reported_first_kept(void **state) {
  const struct fixture *f = *state;
  const char *const inputs[] = {f->path, f->other};
  struct sf_store_merge_report report;
  store_make(f->path, 0, 10, 4, "s");
  store_make(f->other, 0, 10, 5, "t");
  assert_int_equal(sf_store_merge(&report, f->joined, inputs, 2, false, NULL), SF_OK);
  assert_int_equal(report.verdicts, 10);
  assert_int_equal(report.duplicates, 8);
  assert_int_equal(report.conflicts, 2);
  assert_non_null(strstr(report.first_conflict, "case 4: verdict differs"));
  assert_int_equal(query(f->joined, "SELECT count(*) FROM verdict WHERE verdict = 'FINDING' AND idx = 4"), 1);
  assert_int_equal(query(f->joined, "SELECT count(*) FROM verdict WHERE verdict = 'FINDING' AND idx = 5"), 0);
}

/* Machines with other kernels judge other tensors: that is no conflict. Another verdict, class or signature is. */
static void test_store_merge_what_may_differ_between_machines_is_no_conflict(void **state) {
  const struct fixture *f = *state;
  const char *const inputs[] = {f->path, f->other};
  struct sf_store_merge_report report;
  static const struct { const char *change; int conflicts; } rows[] = {
      {"UPDATE verdict SET checked = checked + 1, unchecked = 7, seconds = 9 WHERE idx < 5", 0},
      {"UPDATE verdict SET rank = 3, label = 'elsewhere', module = 'other', shrink_key = 'another' WHERE idx = 4", 0},
      {"UPDATE verdict SET class = 'exact' WHERE idx = 4", 1},
      {"UPDATE verdict SET signature = 't' WHERE idx = 4", 1},
      {"UPDATE verdict SET verdict = 'INCONCLUSIVE' WHERE idx = 3", 1},
      {"UPDATE verdict SET layers = 17 WHERE idx = 3", 1}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    store_make(f->path, 0, 10, 4, "s");
    store_make(f->other, 0, 10, 4, "s");
    execute(f->other, rows[i].change);
    assert_int_equal(sf_store_merge(&report, f->joined, inputs, 2, false, NULL), SF_OK);
    if (report.conflicts != rows[i].conflicts)
      fail_msg("%s: %d conflicts: %s", rows[i].change, (int)report.conflicts, report.first_conflict);
    for (int which = 0; which < 3; which++) sf_store_remove_files(((const char *const[]){f->path, f->other, f->joined})[which]);
  }
}

static void set_seed(const char *path, const char *seeds) {
  char sql[120];
  snprintf(sql, sizeof sql, "UPDATE meta SET value = replace(value, 'seed=7', 'seed=%s') WHERE key = 'campaign'", seeds);
  execute(path, sql);
}

/* Campaigns of different seeds keep their cases apart; joined stores can be joined again, in another order. */
static void test_store_merge_seeds_stay_apart(void **state) {
  const struct fixture *f = *state;
  const char *const inputs[] = {f->path, f->other};
  struct sf_store_merge_report report;
  char seeds[16];
  store_make(f->path, 0, 10, 4, "s");
  store_make(f->other, 0, 12, 3, "s");
  set_seed(f->other, "8");
  assert_int_equal(sf_store_merge(&report, f->joined, inputs, 2, false, NULL), SF_OK);
  assert_int_equal(report.verdicts, 22);
  assert_int_equal(report.duplicates + report.conflicts, 0);
  assert_int_equal(report.campaigns, 2);
  assert_string_equal(report.seeds, "7,8");
  integrity_is_ok(f->joined);
  const struct sf_store_options resume = options_make(f->joined, SF_STORE_RESUME);
  open_refused(&resume, SF_EUSAGE, "\"seed=7,8\", not \"seed=7\"");

  for (int i = 0; i < 2; i++) sf_store_remove_files(inputs[i]);
  assert_int_equal(rename(f->joined, f->other), 0);
  store_make(f->path, 0, 5, 2, "t");
  set_seed(f->path, "8");
  assert_int_equal(sf_store_merge(&report, f->joined, inputs, 2, false, NULL), SF_OK);
  assert_int_equal(report.verdicts, 22);
  assert_int_equal(report.duplicates, 3);
  assert_int_equal(report.conflicts, 2); /* cases 2 and 3 of seed 8 */
  struct sf_store *store = open_ok(f->joined, SF_STORE_READ);
  struct sf_store_finding finding;
  bool found = false;
  sf_store_seeds(seeds, sizeof seeds, store);
  assert_string_equal(seeds, "8,7");
  assert_int_equal(sf_store_find(store, &finding, &found, "s", NULL), SF_OK);
  assert_int_equal(finding.index, SF_STORE_SEED_CASES + 4); /* of seed 7, which comes second now */
  assert_int_equal(finding.count, 1); /* that of seed 8 is one of the conflicts */
  sf_store_close(store);
  assert_int_equal(query(f->joined, "SELECT count(*) FROM verdict WHERE idx < 12"), 12);
  assert_int_equal(query(f->joined, "SELECT count(*) FROM verdict WHERE idx BETWEEN 1000000000 AND 1000000009"), 10);
  assert_int_equal(query(f->joined, "SELECT idx FROM verdict WHERE signature = 's'"), 1000000004);

  sf_store_remove_files(f->joined);
  execute(f->path, "UPDATE meta SET value = replace(value, 'seed=8', 'seed=8x') WHERE key = 'campaign'");
  merge_refused(f, f->joined, SF_EINPUT, "damaged: seed \"8x\"", 2);
}

static void test_store_merge_refusals_leave_nothing(void **state) {
  const struct fixture *f = *state;
  store_make(f->path, 0, 10, 4, "s");
  merge_refused(f, f->joined, SF_ENOTFOUND, "two.sqlite", 1);
  struct sf_store_options options = options_make(f->other, SF_STORE_CREATE);
  options.campaign = "seed=8\nbackend=mpi\nmax-ranks=8\n";
  struct sf_store *store = NULL;
  assert_int_equal(sf_store_open(&store, &options, NULL), SF_OK);
  sf_store_close(store);
  merge_refused(f, f->joined, SF_EUSAGE, "\"backend=mpi\", not \"backend=sim\"", 2);
  merge_refused(f, f->path, SF_EUSAGE, "exists already", 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      STORE_TEST(test_store_merge_joins_and_counts_duplicates),
      STORE_TEST(test_store_merge_joins_the_pairs_that_ran),
      STORE_TEST(test_store_merge_seeds_stay_apart),
      STORE_TEST(test_store_merge_rows_of_many_cut_otherwise),
      STORE_TEST(test_store_merge_conflict_is_reported_first_kept),
      STORE_TEST(test_store_merge_what_may_differ_between_machines_is_no_conflict),
      STORE_TEST(test_store_merge_refusals_leave_nothing),
  };
  return cmocka_run_group_tests_name("run/store_merge", tests, NULL, NULL);
}
