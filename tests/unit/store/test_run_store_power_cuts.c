/* What a store promises after a power cut, at any moment of a campaign's writing. SHARDFUZZ_POWER_CUTS: how many cuts; 400 otherwise. */
#include "tests/unit/store/recorded_disk.h"

enum { CASES = 400, STEPS = 60, BATCHES_MAX = 400, CUTS_OF_A_RUN = 250 };

/* A campaign's writing, and what was promised when. */
static struct {
  int32_t batch_of[CASES]; /* of its verdict; -1: not judged */
  bool is_dropped[BATCHES_MAX], has_finding[BATCHES_MAX];
  int32_t batch; /* that is open */
  int64_t leased;
} run;
/* A mark: all batches below it are durable, and so many indices were handed out. */
static int64_t mark_make(void) { return (int64_t)run.batch * CASES * 2 + run.leased; }
static int32_t batch_of_mark(int64_t mark) { return (int32_t)(mark / (CASES * 2)); }
static int64_t leased_of_mark(int64_t mark) { return mark % (CASES * 2); }

static void batch_ends(void) {
  run.batch++;
  assert_true(run.batch < BATCHES_MAX);
  disk_mark(mark_make());
}

static void some_verdict(struct sf_store *store, struct sf_pcg *dice) {
  if (run.leased == 0) return;
  const int64_t index = (int64_t)sf_pcg_below(dice, (uint64_t)run.leased);
  if (run.batch_of[index] >= 0) return;
  struct sf_store_verdict verdict = index % 7 == 0 ? finding_make(index, "tolerance/act/m@tp") : pass_make(index);
  verdict.seconds = (double)index + 0.5;
  add_ok(store, verdict);
  run.batch_of[index] = run.batch;
}

/* A finding with a large report: beyond 1,000 pages SQLite writes the log back, also while a campaign runs. */
static void some_finding(struct sf_store *store, struct sf_pcg *dice, uint64_t size_max) {
  if (run.leased == 0 || run.has_finding[run.batch]) return;
  const size_t size = 100 + (size_t)sf_pcg_below(dice, size_max);
  char signature[40], *json = test_malloc(size + 1);
  snprintf(signature, sizeof signature, "tolerance/act/m%d@tp", run.batch);
  memset(json, 'x', size);
  json[size] = '\0';
  add_finding_ok(store, seen_make(signature, (int64_t)sf_pcg_below(dice, (uint64_t)run.leased), json, NULL));
  run.has_finding[run.batch] = true;
  test_free(json);
}

/* Its open batch is lost, as when the process ends. */
static struct sf_store *reopened(struct sf_store *store, const char *path) {
  sf_store_close(store);
  for (int64_t i = 0; i < CASES; i++)
    if (run.batch_of[i] == run.batch) run.batch_of[i] = -1;
  run.is_dropped[run.batch] = true;
  store = open_ok(path, SF_STORE_RESUME);
  batch_ends();
  return store;
}

static void write_campaign(const char *path, uint64_t seed) {
  struct sf_pcg dice = sf_pcg_create(seed, 1);
  memset(&run, 0, sizeof run);
  for (int64_t i = 0; i < CASES; i++) run.batch_of[i] = -1;
  struct sf_store *store = open_ok(path, SF_STORE_CREATE);
  disk_mark(mark_make());
  for (int step = 0; step < STEPS; step++) {
    const uint64_t what = sf_pcg_below(&dice, 20);
    int64_t first = 0, count = 0;
    if (what < 3) {
      assert_int_equal(sf_store_lease(store, &first, &count, 1 + (int64_t)sf_pcg_below(&dice, 30), CASES, NULL), SF_OK);
      if (first + count > run.leased) run.leased = first + count;
      batch_ends();
    } else if (what < 5) {
      commit_ok(store);
      batch_ends();
    } else if (what < 8) {
      some_finding(store, &dice, seed % 4 == 3 ? 1000000 : 10000);
    } else if (what < 9) {
      store = reopened(store, path);
    } else {
      for (int i = 0; i < 6; i++) some_verdict(store, &dice);
    }
  }
  commit_ok(store);
  batch_ends();
  sf_store_close(store);
}

struct seen {
  int64_t rows_of[BATCHES_MAX];
  bool has[CASES];
};
static enum sf_status see(void *context, const struct sf_store_verdict *verdict) {
  struct seen *seen = context;
  assert_in_range(verdict->index, 0, CASES - 1);
  assert_false(seen->has[verdict->index]);
  assert_true(run.batch_of[verdict->index] >= 0);
  assert_true(verdict->seconds == (double)verdict->index + 0.5);
  seen->has[verdict->index] = true;
  seen->rows_of[run.batch_of[verdict->index]]++;
  return SF_OK;
}

/* What was promised by the mark holds: each batch whole or not at all, none lost that was durable, in order; and what is handed out now are
 * the indices without a verdict. */
static void promises_hold(const char *path, int64_t mark, const char *where) {
  static struct seen seen;
  struct sf_store *store = open_ok(path, SF_STORE_RESUME);
  memset(&seen, 0, sizeof seen);
  assert_int_equal(sf_store_each_verdict(store, see, &seen, NULL), SF_OK);
  bool may_have = true;
  for (int32_t batch = 0; batch < run.batch; batch++) {
    struct sf_store_finding finding;
    char signature[40];
    int64_t rows = 0;
    bool is_there = false;
    snprintf(signature, sizeof signature, "tolerance/act/m%d@tp", batch);
    for (int64_t i = 0; i < CASES; i++) rows += run.batch_of[i] == batch;
    assert_int_equal(sf_store_find(store, &finding, &is_there, signature, NULL), SF_OK);
    if (run.is_dropped[batch] || (rows == 0 && !run.has_finding[batch])) {
      if (is_there) fail_msg("%s: a finding of batch %d, which was dropped", where, batch);
      continue;
    }
    const bool has = seen.rows_of[batch] > 0 || is_there;
    if (has && (seen.rows_of[batch] != rows || is_there != run.has_finding[batch])) fail_msg("%s: batch %d is there in part", where, batch);
    if (has && !may_have) fail_msg("%s: batch %d is there, and an earlier one not", where, batch);
    if (!has && batch < batch_of_mark(mark)) fail_msg("%s: batch %d was lost", where, batch);
    may_have = has;
  }
  if (summary_of(store).high_water < leased_of_mark(mark)) fail_msg("%s: indices were handed out that the store does not know", where);
  for (int64_t first = 0, count = 1; count > 0;) {
    assert_int_equal(sf_store_lease(store, &first, &count, CASES, CASES, NULL), SF_OK);
    for (int64_t i = first; i < first + count; i++) {
      if (seen.has[i]) fail_msg("%s: case %d is handed out again", where, (int)i);
      seen.has[i] = true;
    }
  }
  for (int64_t i = 0; i < CASES; i++)
    if (!seen.has[i]) fail_msg("%s: case %d is never handed out", where, (int)i);
  sf_store_close(store);
  integrity_is_ok(path);
}

static void cut_power(const struct fixture *f, uint64_t seed, int64_t number) {
  struct sf_pcg dice = sf_pcg_create(seed, 1000 + (uint64_t)number);
  const int64_t end = 1 + (int64_t)sf_pcg_below(&dice, (uint64_t)disk.count);
  const enum disk_cut cut = (enum disk_cut)sf_pcg_below(&dice, DISK_CUTS);
  int64_t mark = -1;
  char where[100];
  snprintf(where, sizeof where, "run %d, cut %d after event %d, kind %d", (int)seed, (int)number, (int)end, (int)cut);
  for (int64_t i = 0; i < end; i++)
    if (disk.events[i].kind == DISK_MARK) mark = disk.events[i].size;
  for (int which = 0; which < DISK_FILES; which++) lay_out_file(f->other, (enum disk_file)which, end, cut, &dice);
  promises_hold(f->other, mark < 0 ? 0 : mark, where); /* before its tables are durable nothing is promised but that it can be used */
}

static void test_store_after_a_power_cut_keeps_its_promises(void **state) {
  const struct fixture *f = *state;
  const char *wanted = getenv("SHARDFUZZ_POWER_CUTS");
  const int64_t cuts = wanted == NULL ? 400 : strtoll(wanted, NULL, 10);
  for (int64_t done = 0; done < cuts;) {
    const uint64_t seed = (uint64_t)(done / CUTS_OF_A_RUN);
    disk_record(f->path);
    write_campaign(f->path, seed);
    disk_stop();
    sf_store_remove_files(f->path);
    for (int64_t i = 0; i < CUTS_OF_A_RUN && done < cuts; i++, done++) cut_power(f, seed, i);
    disk_forget();
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {STORE_TEST(test_store_after_a_power_cut_keeps_its_promises)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
