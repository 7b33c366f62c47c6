#include "tests/unit/store/store_fixture.h"

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
    const struct sf_store_options resume = options_make(f->other, SF_STORE_RESUME);
    if (rows[i].of_cases) open_refused(&resume, SF_EINPUT, rows[i].says);
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
      STORE_TEST(test_store_row_of_many_counts_each_case_and_leaves_holes),
      STORE_TEST(test_store_damaged_rows_are_refused),
      STORE_TEST(test_store_open_create_on_a_full_disk_leaves_nothing),
  };
  return cmocka_run_group_tests_name("run/store", tests, NULL, NULL);
}
