#include "tests/unit/run/store_fixture.h"

#include <signal.h>
#include <sys/resource.h>

/* --- indices --------------------------------------------------------------------------------------------------------------- */

static void test_store_lease_after_resume_hands_out_lost_first(void **state) {
  const struct fixture *f = *state;
  struct sf_store *store = open_ok(f->path, SF_STORE_CREATE);
  lease_is(store, 10, 30, 0, 10);
  lease_is(store, 10, 30, 10, 10);
  static const int64_t judged[] = {0, 1, 4, 5, 6, 12, 19};
  for (size_t i = 0; i < sizeof judged / sizeof judged[0]; i++) add_ok(store, pass_make(judged[i]));
  commit_ok(store);
  add_ok(store, pass_make(2)); /* never committed */
  sf_store_close(store);
  store = open_ok(f->path, SF_STORE_RESUME);
  lease_is(store, 1, 30, 2, 1);
  lease_is(store, 10, 30, 3, 1);
  lease_is(store, 10, 30, 7, 5);
  lease_is(store, 10, 15, 13, 2); /* a smaller total hides what is above it */
  lease_is(store, 10, 15, 0, 0);
  lease_is(store, 10, 30, 15, 4);
  lease_is(store, 7, 30, 20, 7);
  lease_is(store, 7, 30, 27, 3);
  lease_is(store, 7, 30, 0, 0);
  sf_store_close(store);
}

static void test_store_lease_shares_partition_the_indices(void **state) {
  const struct fixture *f = *state;
  const char *const paths[] = {f->path, f->other};
  enum { END = 5 * SF_STORE_SHARE_BLOCK + 100 };
  unsigned char *seen = sf_alloc(END);
  for (int share = 0; share < 2; share++) {
    struct sf_store_options options = options_make(paths[share], SF_STORE_CREATE);
    options.share_index = share;
    options.share_count = 2;
    struct sf_store *store = NULL;
    for (int round = 0; round < 2; round++) { /* the second round gets all of the first again, as lost */
      assert_int_equal(sf_store_open(&store, &options, NULL), SF_OK);
      for (int64_t first = 0, count = 1;;) {
        assert_int_equal(sf_store_lease(store, &first, &count, 300, END, NULL), SF_OK);
        if (count == 0) break;
        assert_true(count <= 300);
        for (int64_t i = first; i < first + count; i++) seen[i] = (unsigned char)(seen[i] + 1 + 9 * share);
      }
      sf_store_close(store);
      options.mode = SF_STORE_RESUME;
    }
  }
  for (int64_t i = 0; i < END; i++) assert_int_equal(seen[i], i / SF_STORE_SHARE_BLOCK % 2 == 0 ? 2 : 20);
  sf_free(seen);
}

/* --- rows ------------------------------------------------------------------------------------------------------------------- */

struct rows {
  int64_t count;
  struct sf_store_verdict last;
  char texts[4][64];
};

static enum sf_status rows_visit(void *context, const struct sf_store_verdict *verdict) {
  struct rows *rows = context;
  const char *texts[4] = {verdict->shrink_key, verdict->signature, verdict->label, verdict->module};
  rows->count++;
  rows->last = *verdict;
  for (int i = 0; i < 4; i++) snprintf(rows->texts[i], sizeof rows->texts[i], "%s", texts[i] == NULL ? "(null)" : texts[i]);
  return SF_OK;
}

static void test_store_add_verdict_every_field_comes_back(void **state) {
  const struct fixture *f = *state;
  const struct sf_store_verdict verdict = {.index = 5,
                                           .verdict = SF_VERDICT_FINDING,
                                           .cls = SF_CLASS_DEADLOCK,
                                           .shrink_key = "k'ey",
                                           .signature = "sig \xc3\xa9",
                                           .label = "pipeline.fwd.recv",
                                           .rank = 3,
                                           .ranks = 8,
                                           .layers = 4,
                                           .features = {{UINT64_C(0x8000000000000005), UINT64_C(0x4000000000000001)}},
                                           .checked = 123,
                                           .unchecked = 7,
                                           .seconds = 1.5,
                                           .closest = 0.75,
                                           .unjudged = "loss=2",
                                           .flaky = true};
  struct sf_store *store = open_ok(f->path, SF_STORE_CREATE);
  lease_is(store, 6, 6, 0, 6);
  add_ok(store, verdict);
  commit_ok(store);
  sf_store_close(store);
  store = open_ok(f->path, SF_STORE_READ);
  struct rows rows = {0};
  assert_int_equal(sf_store_each_verdict(store, rows_visit, &rows, NULL), SF_OK);
  assert_int_equal(rows.count, 1);
  assert_int_equal(rows.last.index, 5);
  assert_int_equal(rows.last.verdict, SF_VERDICT_FINDING);
  assert_int_equal(rows.last.cls, SF_CLASS_DEADLOCK);
  assert_string_equal(rows.texts[0], "k'ey");
  assert_string_equal(rows.texts[1], "sig \xc3\xa9");
  assert_string_equal(rows.texts[2], "pipeline.fwd.recv");
  assert_string_equal(rows.texts[3], "(null)");
  assert_int_equal(rows.last.rank, 3);
  assert_int_equal(rows.last.ranks, 8);
  assert_int_equal(rows.last.layers, 4);
  assert_true(rows.last.features.words[0] == UINT64_C(0x8000000000000005));
  assert_true(rows.last.features.words[1] == UINT64_C(0x4000000000000001));
  assert_int_equal(rows.last.checked, 123);
  assert_int_equal(rows.last.unchecked, 7);
  assert_true(rows.last.seconds == 1.5);
  assert_true(rows.last.closest == 0.75);
  assert_true(rows.last.flaky);
  const struct sf_store_summary summary = summary_of(store);
  assert_int_equal(summary.by_feature[63], 1);
  assert_int_equal(summary.by_feature[64], 1);
  assert_int_equal(summary.by_feature[126], 1);
  assert_int_equal(summary.by_feature[127], 0);
  sf_store_close(store);
}

static void test_store_add_verdict_twice_refused_and_batch_dropped(void **state) {
  const struct fixture *f = *state;
  struct sf_store *store = open_ok(f->path, SF_STORE_CREATE);
  struct sf_error error = {0};
  const struct sf_store_verdict again = pass_make(1);
  lease_is(store, 6, 6, 0, 6);
  add_ok(store, pass_make(1));
  commit_ok(store);
  add_ok(store, pass_make(2));
  assert_int_equal(sf_store_add_verdict(store, &again, &error), SF_EUSAGE);
  assert_non_null(strstr(error.text, "case 1 has a verdict already"));
  assert_int_equal(summary_of(store).cases, 1);
  add_ok(store, pass_make(3)); /* the store is usable as before */
  commit_ok(store);
  assert_int_equal(summary_of(store).cases, 2);
  sf_store_close(store);
}

static void test_store_add_finding_again_keeps_smallest_index(void **state) {
  const struct fixture *f = *state;
  struct sf_store *store = open_ok(f->path, SF_STORE_CREATE);
  struct sf_store_finding finding;
  bool found = true;
  lease_is(store, 10, 10, 0, 10);
  assert_int_equal(sf_store_find(store, &finding, &found, "s", NULL), SF_OK);
  assert_false(found);
  add_ok(store, finding_make(6, "s"));
  struct sf_store_finding first = seen_make("s", 6, "{\"case\":6}", "{\"min\":6}");
  first.steps = "+layout.tp: 4 -> 2\n";
  add_finding_ok(store, first);
  add_ok(store, finding_make(4, "s"));
  add_finding_ok(store, seen_make("s", 4, "{\"case\":4}", NULL));
  add_ok(store, finding_make(8, "s"));
  struct sf_store_finding late = seen_make("s", 8, "{\"case\":8}", NULL);
  late.steps = "+of the last\n";
  late.known = true;
  add_finding_ok(store, late);
  add_ok(store, finding_make(9, "s"));
  commit_ok(store);
  assert_int_equal(sf_store_find(store, &finding, &found, "s", NULL), SF_OK);
  assert_true(found);
  assert_int_equal(finding.index, 4);
  assert_string_equal(finding.case_json, "{\"case\":4}");
  assert_string_equal(finding.report, "{\"case\":6}"); /* of what is shown: the smallest case */
  assert_string_equal(finding.min_json, "{\"min\":6}");
  assert_int_equal(finding.min_index, 6);
  assert_string_equal(finding.steps, "+layout.tp: 4 -> 2\n");
  assert_true(finding.known);
  assert_int_equal(finding.count, 4);
  assert_int_equal(summary_of(store).signatures, 1);
  assert_int_equal(summary_of(store).signatures_known, 1);
  sf_store_close(store);
}

static void test_store_shrink_count_counts_batch_and_survives(void **state) {
  const struct fixture *f = *state;
  struct sf_store *store = open_ok(f->path, SF_STORE_CREATE);
  int64_t count = -1;
  assert_int_equal(sf_store_shrink_count(store, &count, "key", NULL), SF_OK);
  assert_int_equal(count, 0);
  assert_int_equal(sf_store_add_shrink(store, "key", NULL), SF_OK);
  assert_int_equal(sf_store_add_shrink(store, "key", NULL), SF_OK);
  assert_int_equal(sf_store_shrink_count(store, &count, "key", NULL), SF_OK);
  assert_int_equal(count, 2);
  commit_ok(store);
  assert_int_equal(sf_store_add_shrink(store, "key", NULL), SF_OK);
  sf_store_close(store);
  store = open_ok(f->path, SF_STORE_RESUME);
  assert_int_equal(sf_store_shrink_count(store, &count, "key", NULL), SF_OK);
  assert_int_equal(count, 2);
  sf_store_close(store);
}

static void test_store_summarise_counts_every_kind(void **state) {
  const struct fixture *f = *state;
  struct sf_store *store = open_ok(f->path, SF_STORE_CREATE);
  lease_is(store, 20, 20, 0, 20);
  for (int64_t i = 0; i < 12; i++) {
    struct sf_store_verdict v = i % 4 == 1 ? finding_make(i, "s") : pass_make(i);
    if (i % 4 != 1) v.verdict = (enum sf_verdict[]){SF_VERDICT_PASS, SF_VERDICT_FINDING, SF_VERDICT_INCONCLUSIVE, SF_VERDICT_SKIP}[i % 4];
    v.features.words[0] = (uint64_t)i % 8;
    v.features.words[1] = (uint64_t)i % 2;
    v.unchecked = 2;
    v.flaky = i == 5;
    add_ok(store, v);
  }
  commit_ok(store);
  const struct sf_store_summary summary = summary_of(store);
  assert_int_equal(summary.cases, 12);
  for (int verdict = 0; verdict <= SF_VERDICT_SKIP; verdict++) assert_int_equal(summary.by_verdict[verdict], 3);
  assert_int_equal(summary.by_class[SF_CLASS_TOLERANCE], 3);
  assert_int_equal(summary.by_class[SF_CLASS_GAP], 0);
  assert_int_equal(summary.flaky, 1);
  assert_int_equal(summary.checked, 120);
  assert_int_equal(summary.unchecked, 24);
  assert_true(summary.seconds == 3.0);
  assert_int_equal(summary.by_feature[0], 6);
  assert_int_equal(summary.by_feature[1], 6);
  assert_int_equal(summary.by_feature[2], 4);
  assert_int_equal(summary.by_feature[3], 0);
  assert_int_equal(summary.by_feature[64], 6);
  assert_int_equal(summary.high_water, 20);
  sf_store_close(store);
}

/* --- merge ------------------------------------------------------------------------------------------------------------------- */

/* A store that has judged [first, end), with a finding at each index of `found`. */
static void store_make(const char *path, int64_t first, int64_t end, int64_t found, const char *signature) {
  struct sf_store *store = open_ok(path, SF_STORE_CREATE);
  lease_is(store, end, end, 0, end);
  for (int64_t i = first; i < end; i++) add_ok(store, i == found ? finding_make(i, signature) : pass_make(i));
  char json[32];
  snprintf(json, sizeof json, "{\"case\":%d}", (int)found);
  add_finding_ok(store, seen_make(signature, found, json, NULL));
  assert_int_equal(sf_store_add_shrink(store, "key", NULL), SF_OK);
  commit_ok(store);
  sf_store_close(store);
}

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

static struct sf_store_verdict passes_make(int64_t index, int64_t count) {
  struct sf_store_verdict v = pass_make(index);
  v.count = count;
  v.checked = 10 * count;
  return v;
}

/* Neighbours that passed have a row together: counted one by one, and only what lies between rows is handed out again. */
static void test_store_row_of_many_counts_each_case_and_leaves_holes(void **state) {
  const struct fixture *f = *state;
  struct sf_store *store = open_ok(f->path, SF_STORE_CREATE);
  lease_is(store, 100, 100, 0, 100);
  add_ok(store, passes_make(0, 40));
  add_ok(store, finding_make(40, "s"));
  add_ok(store, passes_make(45, 55));
  commit_ok(store);
  const struct sf_store_summary summary = summary_of(store);
  assert_int_equal(summary.cases, 96);
  assert_int_equal(summary.by_verdict[SF_VERDICT_PASS], 95);
  assert_int_equal(summary.checked, 960);
  sf_store_close(store);
  store = open_ok(f->path, SF_STORE_RESUME);
  lease_is(store, 100, 200, 41, 4);
  lease_is(store, 100, 200, 100, 100);
  sf_store_close(store);
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

static void merge_refused(const struct fixture *f, const char *out_path, enum sf_status status, const char *text, int files) {
  const char *const inputs[] = {f->path, f->other};
  struct sf_store_merge_report report = {.verdicts = -1};
  struct sf_error error = {0};
  assert_int_equal(sf_store_merge(&report, out_path, inputs, 2, false, &error), status);
  assert_non_null(strstr(error.text, text));
  assert_int_equal(report.verdicts, -1);
  assert_int_equal(file_count(f), files);
}

static void resume_refused(const char *path, enum sf_status status, const char *says) {
  const struct sf_store_options options = options_make(path, SF_STORE_RESUME);
  struct sf_store *store = NULL;
  struct sf_error error = {0};
  assert_int_equal(sf_store_open(&store, &options, &error), status);
  assert_non_null(strstr(error.text, says));
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
  resume_refused(f->joined, SF_EUSAGE, "\"seed=7,8\", not \"seed=7\"");

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

/* What somebody wrote into a store is one line, whoever reads it. */
static void test_store_damaged_rows_are_refused(void **state) {
  const struct fixture *f = *state;
  static const struct {
    const char *change, *says;
    bool of_cases; /* found when the store is opened: others, when the rows are read */
  } rows[] = {
      {"UPDATE verdict SET idx = 10 WHERE idx = 9", "damaged: case 10 has a verdict, but only the cases from 0 to below 10 were handed out",
       true},
      {"UPDATE verdict SET idx = 9223372036854775806 WHERE idx = 9", "damaged: case 9223372036854775806 has a verdict", true},
      {"PRAGMA ignore_check_constraints = ON; UPDATE verdict SET idx = -1 WHERE idx = 0", "damaged: ", true},
      {"UPDATE meta SET value = 3 WHERE key = 'high_water'", "damaged: case 3 has a verdict", true},
      {"UPDATE finding SET signature = ''", "damaged: the finding of case 4 has no signature", false},
      {"UPDATE finding SET shrink_key = ''", "damaged: the finding of case 4 has no shrink_key", false},
      {"UPDATE finding SET case_json = ''", "damaged: the finding of case 4 has no case_json", false},
      {"UPDATE finding SET idx = 10", "damaged: case 10 has a finding, but only the cases from 0 to below 10 were handed out", true},
      {"UPDATE finding SET idx = -3", "damaged: case -3 has a finding", true},
      {"INSERT INTO further VALUES(10, 'k', 's')", "damaged: case 10 has a further culprit, but only", true},
      {"INSERT INTO further VALUES(9223372036854775807, 'k', 's')", "damaged: case 9223372036854775807 has a further culprit", true},
      {"INSERT INTO further VALUES('four', 'k', 's')", "damaged: case 0 has a further culprit", true},
      {"INSERT INTO further VALUES(4, '', 's')", "damaged: a further culprit of case 4 has no key or no signature", false},
      {"INSERT INTO further VALUES(4, 'k', '')", "damaged: a further culprit of case 4 has no key or no signature", false},
      {"INSERT INTO folder VALUES('s', '../elsewhere')", "damaged: a folder's name is none", false},
      {"INSERT INTO folder VALUES('s', '..')", "damaged: a folder's name is none", false},
      {"UPDATE shrink SET shrink_key = ''", "damaged: a count of shrinks without a key", false}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    store_make(f->path, 0, 10, 4, "s");
    store_make(f->other, 0, 10, 4, "s");
    execute(f->other, rows[i].change);
    merge_refused(f, f->joined, SF_EINPUT, rows[i].says, 2);
    if (rows[i].of_cases) resume_refused(f->other, SF_EINPUT, rows[i].says);
    sf_store_remove_files(f->path);
    sf_store_remove_files(f->other);
  }
}

/* Files that may grow to so many bytes stand for a disk that is full: whatever was made of a new store goes. */
static void test_store_open_create_on_a_full_disk_leaves_nothing(void **state) {
  const struct fixture *f = *state;
  const struct sf_store_options options = options_make(f->path, SF_STORE_CREATE);
  struct rlimit before;
  int refused = 0;
  bool created = false;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, SIG_IGN);
  for (rlim_t limit = 0; !created; limit += 2048) {
    const struct rlimit small = {limit, before.rlim_max};
    struct sf_store *store = NULL;
    struct sf_error error = {0};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const enum sf_status status = sf_store_open(&store, &options, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    created = status == SF_OK;
    if (created) {
      sf_store_close(store);
    } else {
      assert_int_equal(status, SF_EIO);
      assert_non_null(strstr(error.text, f->path));
      assert_int_equal(file_count(f), 0);
      refused++;
    }
  }
  signal(SIGXFSZ, SIG_DFL);
  assert_true(refused > 5);
}

/* Findings of one signature in every order: the smallest case is that of the smallest index that was shrunk, and the diagnosis is its own.
 */
static void test_store_add_finding_keeps_the_same_smallest_case_in_any_order(void **state) {
  const struct fixture *f = *state;
  static const struct {
    int64_t index;
    const char *min, *text;
  } rows[] = {{7, "{\"min\":7}", "{\"min\":7}"}, {3, NULL, "not shrunk"}, {9, "{\"min\":9}", "{\"min\":9}"}};
  static const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  struct sf_store *store = open_ok(f->path, SF_STORE_CREATE);
  struct sf_store_finding finding;
  lease_is(store, 10, 10, 0, 10);
  for (int order = 0; order < 6; order++) {
    bool found = false;
    char signature[8];
    snprintf(signature, sizeof signature, "s%d", order);
    for (int i = 0; i < 3; i++) {
      struct sf_store_finding seen = seen_make(signature, rows[orders[order][i]].index, "{}", rows[orders[order][i]].min);
      seen.diagnosis = (struct sf_diagnosis){.cls = SF_DIAGNOSIS_PART, .left = (double)seen.index};
      snprintf(seen.diagnosis.text, sizeof seen.diagnosis.text, "%s", rows[orders[order][i]].text);
      add_finding_ok(store, seen);
    }
    assert_int_equal(sf_store_find(store, &finding, &found, signature, NULL), SF_OK);
    assert_true(found);
    assert_int_equal(finding.index, 3);
    assert_int_equal(finding.min_index, 7);
    assert_string_equal(finding.min_json, rows[0].min);
    assert_string_equal(finding.diagnosis.text, finding.min_json);
    assert_int_equal(finding.diagnosis.cls, SF_DIAGNOSIS_PART);
    assert_int_equal((int)finding.diagnosis.left, finding.min_json[7] - '0');
    add_finding_ok(store, seen_make(signature, 1, "{}", NULL)); /* nothing was said of it */
    assert_int_equal(sf_store_find(store, &finding, &found, signature, NULL), SF_OK);
    assert_string_equal(finding.diagnosis.text, finding.min_json);
  }
  sf_store_close(store);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      STORE_TEST(test_store_lease_after_resume_hands_out_lost_first),
      STORE_TEST(test_store_lease_shares_partition_the_indices),
      STORE_TEST(test_store_add_verdict_every_field_comes_back),
      STORE_TEST(test_store_add_verdict_twice_refused_and_batch_dropped),
      STORE_TEST(test_store_add_finding_again_keeps_smallest_index),
      STORE_TEST(test_store_add_finding_keeps_the_same_smallest_case_in_any_order),
      STORE_TEST(test_store_shrink_count_counts_batch_and_survives),
      STORE_TEST(test_store_summarise_counts_every_kind),
      STORE_TEST(test_store_merge_joins_and_counts_duplicates),
      STORE_TEST(test_store_merge_joins_the_pairs_that_ran),
      STORE_TEST(test_store_merge_seeds_stay_apart),
      STORE_TEST(test_store_row_of_many_counts_each_case_and_leaves_holes),
      STORE_TEST(test_store_merge_rows_of_many_cut_otherwise),
      STORE_TEST(test_store_merge_conflict_is_reported_first_kept),
      STORE_TEST(test_store_merge_what_may_differ_between_machines_is_no_conflict),
      STORE_TEST(test_store_damaged_rows_are_refused),
      STORE_TEST(test_store_open_create_on_a_full_disk_leaves_nothing),
      STORE_TEST(test_store_merge_refusals_leave_nothing),
  };
  return cmocka_run_group_tests_name("run/store", tests, NULL, NULL);
}
