/* What the programs that test the store share: a folder of its own for each test, and calls that must succeed. */
#ifndef TESTS_UNIT_STORE_STORE_FIXTURE_H
#define TESTS_UNIT_STORE_STORE_FIXTURE_H

#include "harness/base/alloc.h"
#include "harness/base/bytes.h"
#include "harness/base/pcg.h"
#include "harness/run/store/store.h"

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

static inline int fixture_create(void **state) {
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

static inline int fixture_destroy(void **state) {
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

static inline int file_count(const struct fixture *f) {
  int count = 0;
  DIR *folder = opendir(f->folder);
  assert_non_null(folder);
  for (struct dirent *entry; (entry = readdir(folder)) != NULL;) count += entry->d_name[0] != '.';
  closedir(folder);
  return count;
}

static inline struct sf_store_options options_make(const char *path, enum sf_store_mode mode) {
  return (struct sf_store_options){.path = path, .mode = mode, .campaign = campaign, .feature_names = features, .feature_count = 3};
}

static inline struct sf_store *open_ok(const char *path, enum sf_store_mode mode) {
  const struct sf_store_options options = options_make(path, mode);
  struct sf_store *store = NULL;
  struct sf_error error = {0};
  const enum sf_status status = sf_store_open(&store, &options, &error);
  if (status != SF_OK) print_error("%s\n", error.text);
  assert_int_equal(status, SF_OK);
  return store;
}

static inline void open_refused(const struct sf_store_options *options, enum sf_status status, const char *text) {
  struct sf_store *store = NULL;
  struct sf_error error = {0};
  assert_int_equal(sf_store_open(&store, options, &error), status);
  assert_null(store);
  if (strstr(error.text, text) == NULL) print_error("\"%s\" has no \"%s\"\n", error.text, text);
  assert_non_null(strstr(error.text, text));
  assert_null(strchr(error.text, '\n'));
}

static inline struct sf_store_verdict pass_make(int64_t index) {
  return (struct sf_store_verdict){
      .index = index, .verdict = SF_VERDICT_PASS, .cls = -1, .rank = -1, .ranks = 2, .layers = 1, .checked = 10, .seconds = 0.25};
}

static inline struct sf_store_verdict finding_make(int64_t index, const char *signature) {
  struct sf_store_verdict v = pass_make(index);
  v.verdict = SF_VERDICT_FINDING;
  v.cls = SF_CLASS_TOLERANCE;
  v.shrink_key = "tolerance/act/mlp.linear_fc1";
  v.signature = signature;
  return v;
}

static inline void add_ok(struct sf_store *store, struct sf_store_verdict verdict) {
  assert_int_equal(sf_store_add_verdict(store, &verdict, NULL), SF_OK);
}
static inline void commit_ok(struct sf_store *store) { assert_int_equal(sf_store_commit(store, NULL), SF_OK); }

static inline void lease_is(struct sf_store *store, int64_t want, int64_t end, int64_t first_expected, int64_t count_expected) {
  int64_t first = -1, count = -1;
  assert_int_equal(sf_store_lease(store, &first, &count, want, end, NULL), SF_OK);
  assert_int_equal(count, count_expected);
  if (count_expected > 0) assert_int_equal(first, first_expected);
}

static inline struct sf_store_finding seen_make(const char *signature, int64_t index, const char *case_json, const char *min_json) {
  return (struct sf_store_finding){.signature = signature,
                                   .shrink_key = "key",
                                   .index = index,
                                   .case_json = case_json,
                                   .min_json = min_json,
                                   .min_index = index,
                                   .report = case_json};
}

static inline void add_finding_ok(struct sf_store *store, struct sf_store_finding finding) {
  assert_int_equal(sf_store_add_finding(store, &finding, NULL), SF_OK);
}

/* A store that has judged [first, end), with a finding at each index of `found`. */
static inline void store_make(const char *path, int64_t first, int64_t end, int64_t found, const char *signature) {
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

static inline struct sf_store_verdict passes_make(int64_t index, int64_t count) {
  struct sf_store_verdict v = pass_make(index);
  v.count = count;
  v.checked = 10 * count;
  return v;
}

static inline struct sf_store_summary summary_of(struct sf_store *store) {
  struct sf_store_summary summary;
  assert_int_equal(sf_store_summarise(store, &summary, NULL), SF_OK);
  return summary;
}

static inline int64_t query(const char *path, const char *sql) {
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

static inline void execute(const char *path, const char *sql) {
  sqlite3 *db = NULL;
  assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
  assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
  sqlite3_close(db);
}

static inline void integrity_is_ok(const char *path) {
  assert_int_equal(query(path, "SELECT integrity_check = 'ok' FROM pragma_integrity_check"), 1);
}

static inline void merge_refused(const struct fixture *f, const char *out_path, enum sf_status status, const char *text, int files) {
  const char *const inputs[] = {f->path, f->other};
  struct sf_store_merge_report report = {.verdicts = -1};
  struct sf_error error = {0};
  assert_int_equal(sf_store_merge(&report, out_path, inputs, 2, false, &error), status);
  assert_non_null(strstr(error.text, text));
  assert_int_equal(report.verdicts, -1);
  assert_int_equal(file_count(f), files);
}

/* Exit code of body run in a child; body never returns. */
static inline int child_exit(void (*body)(const struct fixture *f), const struct fixture *f) {
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

#define STORE_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_create, fixture_destroy)

#endif
