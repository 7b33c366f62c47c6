#include "harness/base/alloc.h"
#include "harness/base/bytes.h"
#include "harness/base/pcg.h"
#include "harness/run/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char campaign[] = "seed=7\nbackend=sim\nmax-ranks=8\n";
static const char *const features[] = {"moe", "sp", "zero1"};

struct fixture {
  char folder[96];
  char path[128], other[128], joined[128];
};

static int fixture_create(void **state) {
  struct fixture *f = test_calloc(1, sizeof *f);
  const char *base = getenv("TMPDIR");
  snprintf(f->folder, sizeof f->folder, "%.60s/sf_store_XXXXXX", base == NULL ? P_tmpdir : base);
  assert_non_null(mkdtemp(f->folder));
  snprintf(f->path, sizeof f->path, "%s/one.sqlite", f->folder);
  snprintf(f->other, sizeof f->other, "%s/two.sqlite", f->folder);
  snprintf(f->joined, sizeof f->joined, "%s/joined.sqlite", f->folder);
  *state = f;
  return 0;
}

static int fixture_destroy(void **state) {
  struct fixture *f = *state;
  DIR *folder = opendir(f->folder);
  assert_non_null(folder);
  for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    if (entry->d_name[0] != '.') unlinkat(dirfd(folder), entry->d_name, 0);
  }
  closedir(folder);
  assert_int_equal(rmdir(f->folder), 0);
  test_free(f);
  return 0;
}

static int file_count(const struct fixture *f) {
  int count = 0;
  DIR *folder = opendir(f->folder);
  assert_non_null(folder);
  for (struct dirent *entry; (entry = readdir(folder)) != NULL;) count += entry->d_name[0] != '.';
  closedir(folder);
  return count;
}

static struct sf_store_options options_make(const char *path, enum sf_store_mode mode) {
  return (struct sf_store_options){.path = path, .mode = mode, .campaign = campaign, .feature_names = features, .feature_count = 3};
}

static struct sf_store *open_ok(const char *path, enum sf_store_mode mode) {
  const struct sf_store_options options = options_make(path, mode);
  struct sf_store *store = NULL;
  struct sf_error error = {0};
  const enum sf_status status = sf_store_open(&store, &options, &error);
  if (status != SF_OK) print_error("%s\n", error.text);
  assert_int_equal(status, SF_OK);
  return store;
}

static void open_refused(const struct sf_store_options *options, enum sf_status status, const char *text) {
  struct sf_store *store = NULL;
  struct sf_error error = {0};
  assert_int_equal(sf_store_open(&store, options, &error), status);
  assert_null(store);
  if (strstr(error.text, text) == NULL) print_error("\"%s\" has no \"%s\"\n", error.text, text);
  assert_non_null(strstr(error.text, text));
  assert_null(strchr(error.text, '\n'));
}

static struct sf_store_verdict pass_make(int64_t index) {
  return (struct sf_store_verdict){.index = index, .verdict = SF_VERDICT_PASS, .cls = -1, .rank = -1, .ranks = 2, .layers = 1, .checked = 10, .seconds = 0.25};
}

static struct sf_store_verdict finding_make(int64_t index, const char *signature) {
  struct sf_store_verdict v = pass_make(index);
  v.verdict = SF_VERDICT_FINDING;
  v.cls = SF_CLASS_TOLERANCE;
  v.shrink_key = "tolerance/act/mlp.linear_fc1";
  v.signature = signature;
  return v;
}

static void add_ok(struct sf_store *store, struct sf_store_verdict verdict) { assert_int_equal(sf_store_add_verdict(store, &verdict, NULL), SF_OK); }
static void commit_ok(struct sf_store *store) { assert_int_equal(sf_store_commit(store, NULL), SF_OK); }

static void lease_is(struct sf_store *store, int64_t want, int64_t end, int64_t first_expected, int64_t count_expected) {
  int64_t first = -1, count = -1;
  assert_int_equal(sf_store_lease(store, &first, &count, want, end, NULL), SF_OK);
  assert_int_equal(count, count_expected);
  if (count_expected > 0) assert_int_equal(first, first_expected);
}

static struct sf_store_summary summary_of(struct sf_store *store) {
  struct sf_store_summary summary;
  assert_int_equal(sf_store_summarise(store, &summary, NULL), SF_OK);
  return summary;
}

static int64_t query(const char *path, const char *sql) {
  sqlite3 *db = NULL;
  sqlite3_stmt *statement = NULL;
  assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
  assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &statement, NULL), SQLITE_OK);
  assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
  const int64_t value = sqlite3_column_int64(statement, 0);
  sqlite3_finalize(statement);
  sqlite3_close(db);
  return value;
}

static void execute(const char *path, const char *sql) {
  sqlite3 *db = NULL;
  assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
  assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
  sqlite3_close(db);
}

static void integrity_is_ok(const char *path) { assert_int_equal(query(path, "SELECT integrity_check = 'ok' FROM pragma_integrity_check"), 1); }

/* Exit code of body run in a child; body never returns. */
static int child_exit(void (*body)(const struct fixture *f), const struct fixture *f) {
  fflush(NULL);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    body(f);
    _exit(99);
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

/* --- opening ------------------------------------------------------------------------------------------------------------- */

static void test_store_open_create_existing_refused(void **state) {
  const struct fixture *f = *state;
  sf_store_close(open_ok(f->path, SF_STORE_CREATE));
  const struct sf_store_options again = options_make(f->path, SF_STORE_CREATE);
  open_refused(&again, SF_EUSAGE, "exists already");
  integrity_is_ok(f->path);
}

static void test_store_open_resume_creates_and_continues(void **state) {
  const struct fixture *f = *state;
  struct sf_store *store = open_ok(f->path, SF_STORE_RESUME);
  lease_is(store, 4, 100, 0, 4);
  add_ok(store, pass_make(0));
  commit_ok(store);
  sf_store_close(store);
  store = open_ok(f->path, SF_STORE_RESUME);
  assert_int_equal(sf_store_high_water(store), 4);
  assert_int_equal(summary_of(store).cases, 1);
  assert_string_equal(sf_store_campaign(store), campaign);
  assert_int_equal(sf_store_feature_count(store), 3);
  assert_string_equal(sf_store_feature_name(store, 2), "zero1");
  sf_store_close(store);
}

static void test_store_open_resume_other_options_names_first_difference(void **state) {
  const struct fixture *f = *state;
  static const char *const other_features[] = {"moe", "cp", "zero1"};
  sf_store_close(open_ok(f->path, SF_STORE_CREATE));
  struct sf_store_options options = options_make(f->path, SF_STORE_RESUME);
  options.campaign = "seed=7\nbackend=mpi\nmax-ranks=4\n";
  open_refused(&options, SF_EUSAGE, "\"backend=sim\", not \"backend=mpi\"");
  options.campaign = "seed=7\nbackend=sim\n";
  open_refused(&options, SF_EUSAGE, "\"max-ranks=8\", not \"\"");
  options.campaign = "seed=7\nbackend=sim\nmax-ranks=8\nplant=x\n";
  open_refused(&options, SF_EUSAGE, "\"\", not \"plant=x\"");
  options = options_make(f->path, SF_STORE_RESUME);
  options.feature_names = other_features;
  open_refused(&options, SF_EUSAGE, "\"sp\", not \"cp\"");
  options = options_make(f->path, SF_STORE_RESUME);
  options.share_count = 2;
  open_refused(&options, SF_EUSAGE, "\"0/1\", not \"0/2\"");
}

static void test_store_open_no_store_refused_and_unchanged(void **state) {
  const struct fixture *f = *state;
  static const char note[] = "These are notes, no store; long enough to have the hundred bytes of an SQLite file's header, and then some.";
  struct sf_store_options options = options_make(f->path, SF_STORE_RESUME);
  assert_int_equal(sf_bytes_write_file(f->path, note, sizeof note, NULL), SF_OK);
  open_refused(&options, SF_EINPUT, "not a shardfuzz store");
  execute(f->other, "CREATE TABLE mine(x); INSERT INTO mine VALUES(1)");
  struct sf_bytes before = {0}, after = {0};
  assert_int_equal(sf_bytes_read_file(&before, f->other, 1 << 20, NULL), SF_OK);
  options.path = f->other;
  open_refused(&options, SF_EINPUT, "not a shardfuzz store");
  options.mode = SF_STORE_READ;
  open_refused(&options, SF_EINPUT, "not a shardfuzz store");
  assert_int_equal(sf_bytes_read_file(&after, f->other, 1 << 20, NULL), SF_OK);
  assert_int_equal(before.size_bytes, after.size_bytes);
  assert_memory_equal(before.data, after.data, before.size_bytes);
  sf_bytes_destroy(&before);
  sf_bytes_destroy(&after);
  options.path = f->folder;
  open_refused(&options, SF_EINPUT, "not a regular file");
  options.mode = SF_STORE_RESUME;
  open_refused(&options, SF_EINPUT, "s a directory");
  options = options_make(f->joined, SF_STORE_READ);
  open_refused(&options, SF_ENOTFOUND, "No such file");
}

static void test_store_open_newer_schema_refused(void **state) {
  const struct fixture *f = *state;
  sf_store_close(open_ok(f->path, SF_STORE_CREATE));
  execute(f->path, "PRAGMA user_version = 2");
  const struct sf_store_options options = options_make(f->path, SF_STORE_RESUME);
  open_refused(&options, SF_EINPUT, "schema version 2");
}

static void test_store_open_damaged_refused(void **state) {
  const struct fixture *f = *state;
  struct sf_store *store = open_ok(f->path, SF_STORE_CREATE);
  lease_is(store, 2000, 2000, 0, 2000);
  for (int64_t i = 0; i < 2000; i++) add_ok(store, finding_make(i, "tolerance/act/mlp.linear_fc1@tp"));
  commit_ok(store);
  sf_store_close(store);
  struct sf_bytes bytes = {0};
  assert_int_equal(sf_bytes_read_file(&bytes, f->path, 1 << 24, NULL), SF_OK);
  memset(bytes.data + bytes.size_bytes / 2, 0x5a, 8192);
  assert_int_equal(sf_bytes_write_file(f->path, bytes.data, bytes.size_bytes, NULL), SF_OK);
  const struct sf_store_options options = options_make(f->path, SF_STORE_RESUME);
  open_refused(&options, SF_EINPUT, "damaged");
  assert_int_equal(sf_bytes_write_file(f->path, bytes.data, bytes.size_bytes / 3, NULL), SF_OK);
  open_refused(&options, SF_EINPUT, "damaged");
  sf_bytes_destroy(&bytes);
}

static void body_second_writer(const struct fixture *f) {
  const struct sf_store_options options = options_make(f->path, SF_STORE_RESUME);
  struct sf_store *store = NULL;
  struct sf_error error = {0};
  const enum sf_status status = sf_store_open(&store, &options, &error);
  if (status != SF_EUSAGE || strstr(error.text, "another process is writing") == NULL) {
    fprintf(stderr, "%s: %s\n", sf_status_text(status), error.text);
    _exit(1);
  }
  _exit(0);
}

static void body_reader(const struct fixture *f) {
  const struct sf_store_options options = options_make(f->path, SF_STORE_READ);
  struct sf_store *store = NULL;
  struct sf_store_summary summary;
  if (sf_store_open(&store, &options, NULL) != SF_OK || sf_store_summarise(store, &summary, NULL) != SF_OK) _exit(1);
  _exit(summary.cases == 1 && summary.high_water == 3 ? 0 : 2);
}

static void test_store_open_while_written_one_writer_many_readers(void **state) {
  const struct fixture *f = *state;
  struct sf_store *store = open_ok(f->path, SF_STORE_CREATE);
  lease_is(store, 3, 100, 0, 3);
  add_ok(store, pass_make(0));
  commit_ok(store);
  add_ok(store, pass_make(1)); /* not committed: a reader must not see it, nor wait for it */
  assert_int_equal(child_exit(body_second_writer, f), 0);
  assert_int_equal(child_exit(body_reader, f), 0);
  sf_store_close(store);
  store = open_ok(f->path, SF_STORE_RESUME);
  assert_int_equal(summary_of(store).cases, 1);
  sf_store_close(store);
}

static void body_archived(const struct fixture *f) {
  if (getuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(1);
  struct sf_store_options options = options_make(f->path, SF_STORE_RESUME);
  struct sf_store *store = NULL;
  struct sf_error error = {0};
  if (sf_store_open(&store, &options, &error) != SF_EINPUT || strstr(error.text, "Permission denied") == NULL) _exit(2);
  options.mode = SF_STORE_READ;
  struct sf_store_summary summary;
  if (sf_store_open(&store, &options, &error) != SF_OK || sf_store_summarise(store, &summary, &error) != SF_OK) {
    fprintf(stderr, "%s\n", error.text);
    _exit(3);
  }
  _exit(summary.cases == 1 ? 0 : 4);
}

static void test_store_open_read_only_folder_is_read_not_written(void **state) {
  const struct fixture *f = *state;
  struct sf_store *store = open_ok(f->path, SF_STORE_CREATE);
  lease_is(store, 1, 100, 0, 1);
  add_ok(store, pass_make(0));
  commit_ok(store);
  sf_store_close(store);
  assert_int_equal(chmod(f->path, 0444), 0);
  assert_int_equal(chmod(f->folder, 0555), 0);
  const int code = child_exit(body_archived, f);
  assert_int_equal(chmod(f->folder, 0755), 0);
  assert_int_equal(code, 0);
}

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

struct rows { int64_t count; struct sf_store_verdict last; char texts[4][64]; };

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
  const struct sf_store_verdict verdict = {.index = 5, .verdict = SF_VERDICT_FINDING, .cls = SF_CLASS_DEADLOCK, .shrink_key = "k'ey", .signature = "sig \xc3\xa9",
                                           .label = "pipeline.fwd.recv", .rank = 3, .ranks = 8, .layers = 4, .features = UINT64_C(0x8000000000000005),
                                           .checked = 123, .unchecked = 7, .seconds = 1.5, .flaky = true};
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
  assert_true(rows.last.features == UINT64_C(0x8000000000000005));
  assert_int_equal(rows.last.checked, 123);
  assert_int_equal(rows.last.unchecked, 7);
  assert_true(rows.last.seconds == 1.5);
  assert_true(rows.last.flaky);
  assert_int_equal(summary_of(store).by_feature[63], 1);
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

static struct sf_store_finding seen_make(const char *signature, int64_t index, const char *case_json, const char *min_json) {
  return (struct sf_store_finding){.signature = signature, .shrink_key = "key", .index = index, .case_json = case_json, .min_json = min_json, .report = case_json};
}

static void add_finding_ok(struct sf_store *store, struct sf_store_finding finding) { assert_int_equal(sf_store_add_finding(store, &finding, NULL), SF_OK); }

static void test_store_add_finding_again_keeps_smallest_index(void **state) {
  const struct fixture *f = *state;
  struct sf_store *store = open_ok(f->path, SF_STORE_CREATE);
  struct sf_store_finding finding;
  bool found = true;
  lease_is(store, 10, 10, 0, 10);
  assert_int_equal(sf_store_find(store, &finding, &found, "s", NULL), SF_OK);
  assert_false(found);
  add_ok(store, finding_make(6, "s"));
  add_finding_ok(store, seen_make("s", 6, "{\"case\":6}", "{\"min\":6}"));
  add_ok(store, finding_make(4, "s"));
  add_finding_ok(store, seen_make("s", 4, "{\"case\":4}", NULL));
  add_ok(store, finding_make(8, "s"));
  struct sf_store_finding late = seen_make("s", 8, "{\"case\":8}", NULL);
  late.known = true;
  add_finding_ok(store, late);
  add_ok(store, finding_make(9, NULL));
  assert_int_equal(sf_store_set_signature(store, 9, "s", NULL), SF_OK);
  commit_ok(store);
  assert_int_equal(sf_store_set_signature(store, 3, "s", NULL), SF_ENOTFOUND);
  assert_int_equal(sf_store_find(store, &finding, &found, "s", NULL), SF_OK);
  assert_true(found);
  assert_int_equal(finding.index, 4);
  assert_string_equal(finding.case_json, "{\"case\":4}");
  assert_string_equal(finding.report, "{\"case\":4}");
  assert_string_equal(finding.min_json, "{\"min\":6}");
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
    v.features = (uint64_t)i % 8;
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
  assert_int_equal(sf_store_merge(&report, f->joined, inputs, 2, NULL), SF_OK);
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

static void test_store_merge_conflict_is_reported_first_kept(void **state) {
  const struct fixture *f = *state;
  const char *const inputs[] = {f->path, f->other};
  struct sf_store_merge_report report;
  store_make(f->path, 0, 10, 4, "s");
  store_make(f->other, 0, 10, 5, "t");
  assert_int_equal(sf_store_merge(&report, f->joined, inputs, 2, NULL), SF_OK);
  assert_int_equal(report.verdicts, 10);
  assert_int_equal(report.duplicates, 8);
  assert_int_equal(report.conflicts, 2);
  assert_non_null(strstr(report.first_conflict, "case 4: verdict differs"));
  assert_int_equal(query(f->joined, "SELECT count(*) FROM verdict WHERE verdict = 'FINDING' AND idx = 4"), 1);
  assert_int_equal(query(f->joined, "SELECT count(*) FROM verdict WHERE verdict = 'FINDING' AND idx = 5"), 0);
}

static void merge_refused(const struct fixture *f, const char *out_path, enum sf_status status, const char *text, int files) {
  const char *const inputs[] = {f->path, f->other};
  struct sf_store_merge_report report = {.verdicts = -1};
  struct sf_error error = {0};
  assert_int_equal(sf_store_merge(&report, out_path, inputs, 2, &error), status);
  assert_non_null(strstr(error.text, text));
  assert_int_equal(report.verdicts, -1);
  assert_int_equal(file_count(f), files);
}

static void test_store_merge_refusals_leave_nothing(void **state) {
  const struct fixture *f = *state;
  store_make(f->path, 0, 10, 4, "s");
  merge_refused(f, f->joined, SF_ENOTFOUND, "two.sqlite", 1);
  struct sf_store_options options = options_make(f->other, SF_STORE_CREATE);
  options.campaign = "seed=8\nbackend=sim\nmax-ranks=8\n";
  struct sf_store *store = NULL;
  assert_int_equal(sf_store_open(&store, &options, NULL), SF_OK);
  sf_store_close(store);
  merge_refused(f, f->joined, SF_EUSAGE, "\"seed=8\", not \"seed=7\"", 2);
  merge_refused(f, f->path, SF_EUSAGE, "exists already", 2);
}

/* --- what goes wrong ----------------------------------------------------------------------------------------------------------- */

static void test_store_commit_disk_full_drops_batch_alone(void **state) {
  const struct fixture *f = *state;
  struct sf_store_options options = options_make(f->path, SF_STORE_CREATE);
  options.size_bytes_max = 256 * 1024;
  struct sf_store *store = NULL;
  struct sf_error error = {0};
  enum sf_status status = sf_store_open(&store, &options, &error);
  assert_int_equal(status, SF_OK);
  int64_t committed = 0;
  while (status == SF_OK && committed < 1000000) {
    int64_t first = 0, count = 0;
    status = sf_store_lease(store, &first, &count, 64, INT64_MAX, &error);
    for (int64_t i = 0; status == SF_OK && i < count; i++) {
      const struct sf_store_verdict v = finding_make(first + i, "tolerance/act/mlp.linear_fc1@tp+sp");
      status = sf_store_add_verdict(store, &v, &error);
    }
    if (status == SF_OK) status = sf_store_commit(store, &error);
    if (status == SF_OK) committed += count;
  }
  assert_int_equal(status, SF_EIO);
  assert_non_null(strstr(error.text, "disk full"));
  assert_true(committed > 500);
  assert_int_equal(summary_of(store).cases, committed);
  sf_store_close(store);
  integrity_is_ok(f->path);
  store = open_ok(f->path, SF_STORE_RESUME); /* without the limit: goes on where it stopped */
  lease_is(store, 64, INT64_MAX, committed, 64);
  sf_store_close(store);
}

enum { LIMIT_BYTES = 300 * 1024 };

/* Fills a store under a limit on file sizes until writing fails. */
static void body_limited(const struct fixture *f) {
  signal(SIGXFSZ, SIG_IGN);
  const struct rlimit limit = {LIMIT_BYTES, LIMIT_BYTES};
  const struct sf_store_options options = options_make(f->path, SF_STORE_CREATE);
  struct sf_store *store = NULL;
  struct sf_error error = {0};
  if (setrlimit(RLIMIT_FSIZE, &limit) != 0 || sf_store_open(&store, &options, &error) != SF_OK) _exit(1);
  enum sf_status status = SF_OK;
  for (int64_t first = 0, count = 0; status == SF_OK && first < 1000000;) {
    status = sf_store_lease(store, &first, &count, 64, INT64_MAX, &error);
    for (int64_t i = 0; status == SF_OK && i < count; i++) {
      const struct sf_store_verdict v = finding_make(first + i, "tolerance/act/mlp.linear_fc1@tp+sp");
      status = sf_store_add_verdict(store, &v, &error);
    }
    if (status == SF_OK) status = sf_store_commit(store, &error);
  }
  _exit(status == SF_EIO && error.text[0] != '\0' ? 0 : 2);
}

static void test_store_write_fails_on_file_size_limit_file_stays_sound(void **state) {
  const struct fixture *f = *state;
  assert_int_equal(child_exit(body_limited, f), 0);
  struct sf_store *store = open_ok(f->path, SF_STORE_RESUME);
  const int64_t cases = summary_of(store).cases;
  assert_true(cases >= 64);
  assert_int_equal(cases % 64, 0); /* whole batches only */
  sf_store_close(store);
  integrity_is_ok(f->path);
}

enum { KILL_END = 3000, KILL_BATCH = 7 };

/* One line of the writer's progress, as its reader must find it true after any later kill. */
struct progress { int64_t leased_end, committed; };

/* Judges cases as a campaign does, telling its progress after each lease and commit; never returns. */
static void writer_run(const char *path, int progress_pipe) {
  struct sf_store *store = NULL;
  const struct sf_store_options options = options_make(path, SF_STORE_RESUME);
  if (sf_store_open(&store, &options, NULL) != SF_OK) _exit(1);
  struct progress progress = {0};
  for (;;) {
    int64_t first = 0, count = 0;
    if (sf_store_lease(store, &first, &count, 16, KILL_END, NULL) != SF_OK) _exit(2);
    if (count == 0) break;
    progress.leased_end = sf_store_high_water(store);
    if (write(progress_pipe, &progress, sizeof progress) != (ssize_t)sizeof progress) _exit(3);
    for (int64_t i = first; i < first + count; i++) {
      const struct sf_store_verdict v = i % 50 == 0 ? finding_make(i, "s") : pass_make(i);
      const struct sf_store_finding finding = seen_make("s", i, "{}", NULL);
      if (sf_store_add_verdict(store, &v, NULL) != SF_OK) _exit(4);
      if (i % 50 == 0 && sf_store_add_finding(store, &finding, NULL) != SF_OK) _exit(5);
      if (i % KILL_BATCH != 0) continue;
      if (sf_store_commit(store, NULL) != SF_OK) _exit(6);
      progress.committed = i;
      if (write(progress_pipe, &progress, sizeof progress) != (ssize_t)sizeof progress) _exit(7);
    }
  }
  sf_store_close(store);
  _exit(0);
}

/* Runs the writer and kills it after `steps` lines of progress, in the middle of what it does next. True when it finished by itself. */
static bool writer_run_and_kill(const struct fixture *f, uint64_t steps, struct progress *last) {
  int ends[2], status = 0;
  assert_int_equal(pipe(ends), 0);
  fflush(NULL);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    close(ends[0]);
    writer_run(f->path, ends[1]);
  }
  close(ends[1]);
  struct progress progress;
  uint64_t seen = 0;
  while (seen < steps && read(ends[0], &progress, sizeof progress) == (ssize_t)sizeof progress) {
    *last = progress;
    seen++;
  }
  kill(child, SIGKILL);
  close(ends[0]);
  assert_int_equal(waitpid(child, &status, 0), child);
  if (WIFEXITED(status)) assert_int_equal(WEXITSTATUS(status), 0);
  return WIFEXITED(status);
}

static void test_store_resume_after_kills_one_row_per_index(void **state) {
  const struct fixture *f = *state;
  struct sf_pcg pcg = sf_pcg_create(20260, 1);
  int kills = 0;
  for (bool finished = false; !finished;) {
    struct progress last = {0};
    finished = writer_run_and_kill(f, 1 + sf_pcg_below(&pcg, 60), &last);
    kills += !finished;
    integrity_is_ok(f->path);
    assert_true(query(f->path, "SELECT value FROM meta WHERE key = 'high_water'") >= last.leased_end);
    char sql[128];
    snprintf(sql, sizeof sql, "SELECT count(*) FROM verdict WHERE idx = %lld", (long long)last.committed);
    if (last.committed > 0) assert_int_equal(query(f->path, sql), 1);
    assert_int_equal(query(f->path, "SELECT count(*) FROM verdict WHERE idx >= (SELECT value FROM meta WHERE key = 'high_water')"), 0);
    assert_true(kills < 1000);
  }
  assert_true(kills >= 5);
  struct sf_store *store = open_ok(f->path, SF_STORE_RESUME);
  lease_is(store, 16, KILL_END, 0, 0);
  const struct sf_store_summary summary = summary_of(store);
  assert_int_equal(summary.cases, KILL_END);
  assert_int_equal(summary.by_verdict[SF_VERDICT_FINDING], KILL_END / 50);
  struct sf_store_finding finding;
  bool found = false;
  assert_int_equal(sf_store_find(store, &finding, &found, "s", NULL), SF_OK);
  assert_true(found);
  assert_int_equal(finding.count, KILL_END / 50);
  assert_int_equal(finding.index, 0);
  sf_store_close(store);
  assert_int_equal(query(f->path, "SELECT count(DISTINCT idx) FROM verdict"), KILL_END);
}

static void test_store_open_each_allocation_failing_is_a_status(void **state) {
  const struct fixture *f = *state;
  struct sf_store *store = open_ok(f->path, SF_STORE_CREATE);
  lease_is(store, 10, 10, 0, 10);
  sf_store_close(store);
  const struct sf_store_options options = options_make(f->path, SF_STORE_RESUME);
  int failures = 0;
  for (int64_t k = 1;; k++) {
    sf_alloc_fail_at(k);
    store = NULL;
    const enum sf_status status = sf_store_open(&store, &options, NULL);
    const bool did_fail = sf_alloc_did_fail();
    sf_alloc_fail_at(0);
    sf_store_close(store);
    if (!did_fail) {
      assert_int_equal(status, SF_OK);
      break;
    }
    assert_int_equal(status, SF_ENOMEM);
    failures++;
  }
  assert_true(failures >= 6);
}

#define STORE_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_create, fixture_destroy)

int main(void) {
  const struct CMUnitTest tests[] = {
      STORE_TEST(test_store_open_create_existing_refused),
      STORE_TEST(test_store_open_resume_creates_and_continues),
      STORE_TEST(test_store_open_resume_other_options_names_first_difference),
      STORE_TEST(test_store_open_no_store_refused_and_unchanged),
      STORE_TEST(test_store_open_newer_schema_refused),
      STORE_TEST(test_store_open_damaged_refused),
      STORE_TEST(test_store_open_while_written_one_writer_many_readers),
      STORE_TEST(test_store_open_read_only_folder_is_read_not_written),
      STORE_TEST(test_store_lease_after_resume_hands_out_lost_first),
      STORE_TEST(test_store_lease_shares_partition_the_indices),
      STORE_TEST(test_store_add_verdict_every_field_comes_back),
      STORE_TEST(test_store_add_verdict_twice_refused_and_batch_dropped),
      STORE_TEST(test_store_add_finding_again_keeps_smallest_index),
      STORE_TEST(test_store_shrink_count_counts_batch_and_survives),
      STORE_TEST(test_store_summarise_counts_every_kind),
      STORE_TEST(test_store_merge_joins_and_counts_duplicates),
      STORE_TEST(test_store_merge_conflict_is_reported_first_kept),
      STORE_TEST(test_store_merge_refusals_leave_nothing),
      STORE_TEST(test_store_commit_disk_full_drops_batch_alone),
      STORE_TEST(test_store_write_fails_on_file_size_limit_file_stays_sound),
      STORE_TEST(test_store_resume_after_kills_one_row_per_index),
      STORE_TEST(test_store_open_each_allocation_failing_is_a_status),
  };
  return cmocka_run_group_tests_name("run/store", tests, NULL, NULL);
}
