/* Opening a store, and what can go wrong with its file. */
#include "tests/unit/store/store_fixture.h"

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
  assert_int_equal(summary_of(store).high_water, 4);
  assert_int_equal(summary_of(store).cases, 1);
  sf_store_close(store);
  assert_int_equal(query(f->path, "SELECT value = 'seed=7' || char(10) || 'backend=sim' || char(10) || 'max-ranks=8' || char(10)"
                                  " FROM meta WHERE key = 'campaign'"),
                   1);
  assert_int_equal(query(f->path, "SELECT value = 'moe' || char(10) || 'sp' || char(10) || 'zero1' || char(10)"
                                  " FROM meta WHERE key = 'features'"),
                   1);
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
  execute(f->path, "PRAGMA user_version = 11");
  const struct sf_store_options options = options_make(f->path, SF_STORE_RESUME);
  open_refused(&options, SF_EINPUT, "schema version 11; this shardfuzz reads versions 2 to 10");
  execute(f->path, "PRAGMA user_version = 1");
  open_refused(&options, SF_EINPUT, "schema version 1; this shardfuzz reads versions 2 to 10");
}

/* Takes away what came after a version. */
#define WITHOUT(column) "ALTER TABLE finding DROP COLUMN " column ";"
#define TO_VERSION_9 WITHOUT("operation") "PRAGMA user_version = 9;"
#define TO_VERSION_8 TO_VERSION_9 WITHOUT("contrast") "PRAGMA user_version = 8;"
#define TO_VERSION_7                                                                                                                       \
  TO_VERSION_8 WITHOUT(                                                                                                                    \
      "steps") "ALTER TABLE verdict DROP COLUMN closest; ALTER TABLE verdict DROP COLUMN unjudged; PRAGMA user_version = 7;"
#define TO_VERSION_6 TO_VERSION_7 WITHOUT("diagnosis_cause") "PRAGMA user_version = 6;"
#define TO_VERSION_5 TO_VERSION_6 WITHOUT("shown") "PRAGMA user_version = 5;"
#define TO_VERSION_4 TO_VERSION_5 WITHOUT("what") "ALTER TABLE verdict DROP COLUMN count; PRAGMA user_version = 4;"
#define TO_VERSION_3                                                                                                                       \
  TO_VERSION_4 WITHOUT("min_idx") WITHOUT("trials") WITHOUT("trials_max")                                                                  \
      WITHOUT("minimal") "ALTER TABLE verdict DROP COLUMN reason; DROP TABLE further; DROP TABLE folder; PRAGMA user_version = 3;"
#define TO_VERSION_2 TO_VERSION_3 WITHOUT("diagnosis_class") WITHOUT("diagnosis") WITHOUT("diagnosis_left") "PRAGMA user_version = 2;"

/* A store as version 2 wrote it, with one finding. */
static void make_version_2(const char *path) {
  struct sf_store *store = open_ok(path, SF_STORE_CREATE);
  lease_is(store, 10, 10, 0, 10);
  add_ok(store, finding_make(3, "s"));
  struct sf_store_finding seen = seen_make("s", 3, "{\"case\":3}", "{\"min\":3}");
  seen.report = "signature    s\nwhat         the third is wrong\ncase         3\n";
  add_finding_ok(store, seen);
  commit_ok(store);
  sf_store_close(store);
  execute(path, TO_VERSION_2);
}

/* Reading leaves it as it is, and so does a campaign of other options; resuming gives it what it lacks. */
static void test_store_open_version_2_is_read_and_upgraded(void **state) {
  const struct fixture *f = *state;
  struct sf_store_finding finding;
  bool found = false;
  make_version_2(f->path);
  struct sf_store *store = open_ok(f->path, SF_STORE_READ);
  assert_int_equal(sf_store_find(store, &finding, &found, "s", NULL), SF_OK);
  assert_true(found && finding.count == 1);
  assert_string_equal(finding.min_json, "{\"min\":3}");
  assert_string_equal(finding.diagnosis.text, "");
  assert_string_equal(finding.what, "the third is wrong");
  sf_store_close(store);
  struct sf_store_options other = options_make(f->path, SF_STORE_RESUME);
  other.campaign = "seed=8\n";
  open_refused(&other, SF_EUSAGE, "made with another option");
  assert_int_equal(query(f->path, "PRAGMA user_version"), 2);
  store = open_ok(f->path, SF_STORE_RESUME);
  assert_int_equal(sf_store_find(store, &finding, &found, "s", NULL), SF_OK);
  assert_string_equal(finding.what, "the third is wrong");
  add_ok(store, finding_make(2, "s"));
  struct sf_store_finding seen = seen_make("s", 2, "{\"case\":2}", "{\"min\":2}");
  seen.what = "the second is wrong";
  seen.diagnosis = (struct sf_diagnosis){.cls = SF_DIAGNOSIS_SCALE, .left = 0.5, .text = "twice"};
  add_finding_ok(store, seen);
  commit_ok(store);
  sf_store_close(store);
  assert_int_equal(query(f->path, "PRAGMA user_version"), 10);
  assert_int_equal(query(f->path, "SELECT count(*) FROM verdict"), 2);
  integrity_is_ok(f->path);
  store = open_ok(f->path, SF_STORE_RESUME);
  assert_int_equal(sf_store_find(store, &finding, &found, "s", NULL), SF_OK);
  assert_true(found && finding.index == 2 && finding.count == 2);
  assert_int_equal(finding.diagnosis.cls, SF_DIAGNOSIS_SCALE);
  assert_string_equal(finding.diagnosis.text, "twice");
  assert_true(finding.diagnosis.left > 0.49 && finding.diagnosis.left < 0.51);
  assert_string_equal(finding.what, "the second is wrong");
  sf_store_close(store);
}

/* A store of version 3 from before reasons were kept: the same. */
static void test_store_open_without_reasons_is_read_and_upgraded(void **state) {
  const struct fixture *f = *state;
  struct sf_store_summary summary;
  struct sf_store_verdict why = pass_make(1);
  why.verdict = SF_VERDICT_INCONCLUSIVE;
  why.reason = "no memory";
  struct sf_store *store = open_ok(f->path, SF_STORE_CREATE);
  lease_is(store, 10, 10, 0, 10);
  add_ok(store, why);
  commit_ok(store);
  sf_store_close(store);
  execute(f->path, TO_VERSION_3);
  store = open_ok(f->path, SF_STORE_READ);
  assert_int_equal(sf_store_summarise(store, &summary, NULL), SF_OK);
  assert_int_equal(summary.by_verdict[SF_VERDICT_INCONCLUSIVE], 1);
  assert_string_equal(summary.inconclusive_reason, "");
  sf_store_close(store);
  store = open_ok(f->path, SF_STORE_RESUME);
  why.index = 0;
  add_ok(store, why);
  commit_ok(store);
  sf_store_close(store);
  assert_int_equal(query(f->path, "PRAGMA user_version"), 10);
  store = open_ok(f->path, SF_STORE_READ);
  assert_int_equal(sf_store_summarise(store, &summary, NULL), SF_OK);
  assert_string_equal(summary.inconclusive_reason, "no memory"); /* an earlier index than the one without */
  assert_string_equal(summary.skip_reason, "");
  sf_store_close(store);
  integrity_is_ok(f->path);
  const char *const paths[] = {f->path};
  struct sf_store_merge_report report;
  assert_int_equal(sf_store_merge(&report, f->joined, paths, 1, false, NULL), SF_OK);
  assert_int_equal(query(f->joined, "SELECT count(*) FROM verdict WHERE reason = 'no memory'"), 1);
}

/* A store of version 4: each row is one case, also once it has been upgraded. */
static void test_store_open_version_4_is_read_and_upgraded(void **state) {
  const struct fixture *f = *state;
  struct sf_store_summary summary;
  struct sf_store *store = open_ok(f->path, SF_STORE_CREATE);
  lease_is(store, 10, 10, 0, 10);
  for (int64_t i = 0; i < 4; i++) add_ok(store, pass_make(i));
  commit_ok(store);
  sf_store_close(store);
  execute(f->path, TO_VERSION_4);
  store = open_ok(f->path, SF_STORE_READ);
  assert_int_equal(sf_store_summarise(store, &summary, NULL), SF_OK);
  assert_int_equal(summary.cases, 4);
  sf_store_close(store);
  store = open_ok(f->path, SF_STORE_RESUME);
  lease_is(store, 10, 10, 4, 6);
  sf_store_close(store);
  assert_int_equal(query(f->path, "PRAGMA user_version"), 10);
  assert_int_equal(query(f->path, "SELECT sum(count) FROM verdict"), 4);
}

/* Stores of versions 5 to 9: which operation went wrong is not known, before version 9 why their findings fail, before version 7 the causes
 * of their diagnoses, and before version 6 what their smallest cases show. */
static void is_upgraded(const struct fixture *f, const char *to_version, int32_t version) {
  struct sf_store_finding finding, seen = seen_make("s", 3, "{\"case\":3}", "{\"min\":3}");
  bool found = false;
  seen.shown = "a/b/c\nd/e/f\n";
  seen.contrast = "{\"why\":\"fails only with a=1\"}";
  seen.diagnosis =
      (struct sf_diagnosis){.cls = SF_DIAGNOSIS_SCALE, .text = "scaled by 2 = tp", .cause = "scaled: tp", .operation = "aten.mm"};
  struct sf_store *store = open_ok(f->path, SF_STORE_CREATE);
  lease_is(store, 10, 10, 0, 10);
  add_finding_ok(store, seen);
  commit_ok(store);
  sf_store_close(store);
  execute(f->path, to_version);
  store = open_ok(f->path, SF_STORE_READ);
  assert_int_equal(sf_store_find(store, &finding, &found, "s", NULL), SF_OK);
  assert_true(found && (finding.shown != NULL) == (version > 5) && (finding.contrast != NULL) == (version > 8) &&
              strcmp(finding.diagnosis.text, seen.diagnosis.text) == 0);
  assert_string_equal(finding.diagnosis.cause, version > 6 ? seen.diagnosis.cause : "");
  assert_string_equal(finding.diagnosis.operation, "");
  sf_store_close(store);
  store = open_ok(f->path, SF_STORE_RESUME);
  seen.index = seen.min_index = 2;
  add_finding_ok(store, seen);
  commit_ok(store);
  assert_int_equal(sf_store_find(store, &finding, &found, "s", NULL), SF_OK);
  assert_true(found && strcmp(finding.shown, seen.shown) == 0 && strcmp(finding.diagnosis.cause, "scaled: tp") == 0);
  assert_string_equal(finding.contrast, seen.contrast);
  assert_string_equal(finding.diagnosis.operation, seen.diagnosis.operation);
  sf_store_close(store);
  assert_int_equal(query(f->path, "PRAGMA user_version"), 10);
}

static void test_store_open_version_5_is_read_and_upgraded(void **state) { is_upgraded(*state, TO_VERSION_5, 5); }

static void test_store_open_version_6_is_read_and_upgraded(void **state) { is_upgraded(*state, TO_VERSION_6, 6); }

static void test_store_open_version_8_is_read_and_upgraded(void **state) { is_upgraded(*state, TO_VERSION_8, 8); }

static void test_store_open_version_9_is_read_and_upgraded(void **state) { is_upgraded(*state, TO_VERSION_9, 9); }

/* Two rows that both have a case are no store of ours. */
static void test_store_open_overlapping_rows_refused(void **state) {
  const struct fixture *f = *state;
  struct sf_store *store = open_ok(f->path, SF_STORE_CREATE);
  lease_is(store, 10, 10, 0, 10);
  add_ok(store, pass_make(2));
  add_ok(store, pass_make(5));
  commit_ok(store);
  sf_store_close(store);
  execute(f->path, "UPDATE verdict SET count = 4 WHERE idx = 2");
  const struct sf_store_options options = options_make(f->path, SF_STORE_RESUME);
  open_refused(&options, SF_EINPUT, "damaged: a case has two verdicts");
  execute(f->path, "UPDATE verdict SET count = 9 WHERE idx = 5; DELETE FROM verdict WHERE idx = 2");
  open_refused(&options, SF_EINPUT, "damaged: case 5 has a verdict, but only the cases from 0 to below 10");
}

/* Joined with one of this version. */
static void test_store_merge_takes_a_store_of_version_2(void **state) {
  const struct fixture *f = *state;
  const char *const paths[] = {f->path, f->other};
  struct sf_store_merge_report report;
  make_version_2(f->path);
  sf_store_close(open_ok(f->other, SF_STORE_CREATE));
  assert_int_equal(sf_store_merge(&report, f->joined, paths, 2, false, NULL), SF_OK);
  assert_int_equal(report.verdicts, 1);
  assert_int_equal(query(f->joined, "PRAGMA user_version"), 10);
  assert_int_equal(query(f->joined, "SELECT count(*) FROM finding WHERE diagnosis IS NULL"), 1);
  assert_int_equal(query(f->path, "PRAGMA user_version"), 2);
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
struct progress {
  int64_t leased_end, committed;
};

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
    progress.leased_end = summary_of(store).high_water;
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

int main(void) {
  const struct CMUnitTest tests[] = {
      STORE_TEST(test_store_open_create_existing_refused),
      STORE_TEST(test_store_open_resume_creates_and_continues),
      STORE_TEST(test_store_open_resume_other_options_names_first_difference),
      STORE_TEST(test_store_open_no_store_refused_and_unchanged),
      STORE_TEST(test_store_open_newer_schema_refused),
      STORE_TEST(test_store_open_version_2_is_read_and_upgraded),
      STORE_TEST(test_store_open_without_reasons_is_read_and_upgraded),
      STORE_TEST(test_store_open_version_4_is_read_and_upgraded),
      STORE_TEST(test_store_open_version_5_is_read_and_upgraded),
      STORE_TEST(test_store_open_version_6_is_read_and_upgraded),
      STORE_TEST(test_store_open_version_8_is_read_and_upgraded),
      STORE_TEST(test_store_open_version_9_is_read_and_upgraded),
      STORE_TEST(test_store_open_overlapping_rows_refused),
      STORE_TEST(test_store_merge_takes_a_store_of_version_2),
      STORE_TEST(test_store_open_damaged_refused),
      STORE_TEST(test_store_open_read_only_folder_is_read_not_written),
      STORE_TEST(test_store_commit_disk_full_drops_batch_alone),
      STORE_TEST(test_store_write_fails_on_file_size_limit_file_stays_sound),
      STORE_TEST(test_store_resume_after_kills_one_row_per_index),
      STORE_TEST(test_store_open_each_allocation_failing_is_a_status),
  };
  return cmocka_run_group_tests_name("run/store_open", tests, NULL, NULL);
}
