/* Opening and closing a store, batches, and handing out indices. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* F_OFD_SETLK */
#endif
#include "harness/run/store/store.h"

#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/base/bytes.h"
#include "harness/run/store/store_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BUSY_TIMEOUT_MS = 10000, LOCK_TRIES = 20, LOCK_PAUSE_MS = 100, MAKING_TRIES = BUSY_TIMEOUT_MS / LOCK_PAUSE_MS };

/* --- opening ------------------------------------------------------------------------------------------------------------ */

static enum sf_status file_check(const struct sf_store *store, int code, const struct stat *info, struct sf_error *error) {
  if (code != 0) {
    return sf_error_set(error, errno == ENOENT ? SF_ENOTFOUND : SF_EINPUT, "%s: cannot open: %s", store->path, sf_errno_text(errno).text);
  }
  return S_ISREG(info->st_mode) ? SF_OK : sf_error_set(error, SF_EINPUT, "%s: not a regular file", store->path);
}

/* Takes the writer's lock: a lock of the open file on a byte that SQLite never touches. (SQLite would drop a POSIX lock of the process
 * whenever it unlocks the whole file.) Forked processes share it. They end with a killed parent, which may take a moment. */
static const struct flock writer_lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = INT64_MAX - 1, .l_len = 1};
static const struct timespec lock_pause = {.tv_nsec = LOCK_PAUSE_MS * 1000000L};

static enum sf_status lock_take(const struct sf_store *store, struct sf_error *error) {
  for (int try = 0;; try++) {
    struct flock lock = writer_lock;
    if (fcntl(store->lock_file, F_OFD_SETLK, &lock) == 0) return SF_OK;
    if (errno != EACCES && errno != EAGAIN) return sf_error_set(error, SF_EIO, "%s: cannot lock: %s", store->path, strerror(errno));
    if (try == LOCK_TRIES) return sf_error_set(error, SF_EUSAGE, "%s: another process is writing to it", store->path);
    nanosleep(&lock_pause, NULL);
  }
}

/* Whether a process holds the writer's lock. Only while this process has no database of the file open: closing any of its descriptors
 * would end SQLite's own locks. */
static bool lock_is_held(const struct sf_store *store) {
  struct flock lock = writer_lock;
  const int file = open(store->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  const bool held = file >= 0 && fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  if (file >= 0) close(file);
  return held;
}

/* Opens or creates the file that SQLite is to write, and locks it. */
static enum sf_status file_claim(struct sf_store *store, enum sf_store_mode mode, bool *created, struct sf_error *error) {
  struct stat info;
  store->lock_file = open(store->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  *created = store->lock_file >= 0;
  if (!*created && errno == EEXIST && mode == SF_STORE_CREATE) {
    return sf_error_set(error, SF_EUSAGE, "%s: exists already; continue it with --resume or name another store", store->path);
  }
  if (!*created && errno == EEXIST) store->lock_file = open(store->path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
  const enum sf_status status = file_check(store, store->lock_file < 0 ? -1 : fstat(store->lock_file, &info), &info, error);
  return status == SF_OK ? lock_take(store, error) : status;
}

static enum sf_status db_open(struct sf_store *store, const char *name, int flags, struct sf_error *error) {
  const int code = sqlite3_open_v2(name, &store->db, flags, NULL);
  if (code != SQLITE_OK) return sf_store_error(store, code, error);
  sqlite3_extended_result_codes(store->db, 1);
  sqlite3_busy_timeout(store->db, BUSY_TIMEOUT_MS);
  return SF_OK;
}

/* A store in a folder that cannot be written (an archive) has no room for SQLite's shared memory file. Without a log beside it the file is
 * complete, and is opened as unchangeable. */
static enum sf_status db_open_archived(struct sf_store *store, struct sf_error *error) {
  struct sf_text name = {0};
  sf_text_append(&name, "%s-wal", store->path);
  const bool has_log = !name.failed && access(name.data, F_OK) == 0;
  name.length = 0;
  sf_text_append(&name, "file:");
  for (const char *at = store->path; *at != '\0'; at++) {
    if (strchr("%?#", *at) != NULL) {
      sf_text_append(&name, "%%%02x", (unsigned)*at);
    } else {
      sf_text_append(&name, "%c", *at);
    }
  }
  sf_text_append(&name, "?immutable=1");
  enum sf_status status = SF_OK;
  if (name.failed) {
    status = sf_error_set(error, SF_ENOMEM, "%s: out of memory", store->path);
  } else if (has_log) {
    status = sf_error_set(error, SF_EINPUT, "%s: its log must be read first, and its folder cannot be written", store->path);
  } else {
    sqlite3_close(store->db);
    store->db = NULL;
    status = db_open(store, name.data, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, error);
  }
  sf_text_destroy(&name);
  return status;
}

static enum sf_status db_open_to_read(struct sf_store *store, struct sf_error *error) {
  struct stat info;
  enum sf_status status = file_check(store, stat(store->path, &info), &info, error);
  /* Opens for writing if possible: closing then removes the log and its index, and a killed writer's log is recovered. */
  if (status == SF_OK) status = db_open(store, store->path, SQLITE_OPEN_READWRITE, error);
  if (status == SF_OK) status = sf_store_exec(store, "PRAGMA query_only = ON", error);
  if (status != SF_OK) return status;
  const int code = sqlite3_exec(store->db, "SELECT count(*) FROM sqlite_master", NULL, NULL, NULL) & 0xff;
  return code == SQLITE_CANTOPEN || code == SQLITE_READONLY ? db_open_archived(store, error) : SF_OK;
}

static void db_close(struct sf_store *store) {
  for (int i = 0; i < SF_STORE_STATEMENTS_MAX; i++) {
    sqlite3_finalize(store->statements[i].prepared);
    store->statements[i].prepared = NULL;
  }
  sqlite3_close(store->db); /* rolls an open batch back */
  store->db = NULL;
}

/* A writer creates the file, locks it, and gives it its tables. A reader that comes meanwhile waits for the tables. */
static enum sf_status db_open_when_made(struct sf_store *store, struct sf_error *error) {
  for (int try = 0; try < MAKING_TRIES; try++) {
    int64_t version = 0;
    enum sf_status status = db_open_to_read(store, error);
    if (status == SF_OK) status = sf_store_schema_check(store, &version, error);
    if (status != SF_OK || version != 0) return status;
    db_close(store);
    if (try > 0 && !lock_is_held(store)) break;
    nanosleep(&lock_pause, NULL);
  }
  return sf_error_set(error, SF_EINPUT, "%s: not a shardfuzz store", store->path);
}

/* Compares the one text that a statement gives. */
static enum sf_status expect_text(struct sf_store *store, const char *sql, const char *expected, enum sf_status status_else,
                                  const char *text_else, struct sf_error *error) {
  char *text = NULL;
  enum sf_status status = sf_store_query_text(store, &text, sql, "a value", error);
  if (status == SF_OK && strcmp(text, expected) != 0)
    status = sf_error_set(error, status_else, "%s: %s: %.*s", store->path, text_else, (int)strcspn(text, "\n"), text);
  sf_free(text);
  return status;
}

/* An earlier store that is only read stays as it is: what this version adds is given to a copy in memory. */
static enum sf_status read_copy(struct sf_store *store, struct sf_error *error) {
  sqlite3 *copy = NULL, *const file = store->db;
  int code = sqlite3_open_v2(":memory:", &copy, SQLITE_OPEN_READWRITE, NULL);
  sqlite3_backup *backup = code == SQLITE_OK ? sqlite3_backup_init(copy, "main", file, "main") : NULL;
  if (backup != NULL) sqlite3_backup_step(backup, -1);
  if (backup != NULL) sqlite3_backup_finish(backup);
  store->db = copy;
  code = sqlite3_errcode(copy);
  sqlite3_close(file);
  return code == SQLITE_OK ? SF_OK : sf_store_error(store, code, error);
}

static enum sf_status prepare_to_write(struct sf_store *store, int64_t size_bytes_max, struct sf_error *error) {
  enum sf_status status =
      expect_text(store, "PRAGMA journal_mode = WAL", "wal", SF_EIO, "no write-ahead log on this file system; journal", error);
  /* A lease must survive a power cut; batches are rare enough to be treated alike. */
  if (status == SF_OK) status = sf_store_exec(store, "PRAGMA synchronous = FULL", error);
  if (status != SF_OK || size_bytes_max == 0) return status;
  int64_t page_bytes = 0, reached = 0;
  char text[64];
  status = sf_store_query_int(store, &page_bytes, "PRAGMA page_size", error);
  if (status != SF_OK) return status;
  const int64_t pages = size_bytes_max / page_bytes;
  sqlite3_snprintf(sizeof text, text, "PRAGMA max_page_count = %lld", (long long)(pages > 0 ? pages : 1));
  return sf_store_query_int(store, &reached, text, error);
}

/* Checks that each row of the table is of a case that was handed out, since readers rely on it. last: SQL for the end of its cases. */
static enum sf_status check_cases_of(struct sf_store *store, const char *table, const char *last, const char *what,
                                     struct sf_error *error) {
  static const char strays[] = "SELECT %s FROM %s WHERE typeof(idx) <> 'integer' OR idx < 0 OR %s > %lld";
  char count[160], first[160];
  int64_t stray_count = 0, index = 0;
  sqlite3_snprintf(sizeof count, count, strays, "count(*)", table, last, (long long)store->high_water);
  sqlite3_snprintf(sizeof first, first, strays, "coalesce(min(idx), 0)", table, last, (long long)store->high_water);
  enum sf_status status = sf_store_query_int(store, &stray_count, count, error);
  if (status == SF_OK) status = sf_store_query_int(store, &index, first, error);
  if (status != SF_OK || stray_count == 0) return status;
  return sf_error_set(error, SF_EINPUT,
                      "%s: damaged: case %" PRId64 " has a %s, but only the cases from 0 to below %" PRId64 " were handed out", store->path,
                      index, what, store->high_water);
}

static enum sf_status check_cases(struct sf_store *store, struct sf_error *error) {
  static const char twice[] =
      "SELECT count(*) FROM (SELECT idx, lag(idx + count) OVER (ORDER BY idx) AS last FROM verdict) WHERE idx < last";
  int64_t overlaps = 0;
  enum sf_status status = check_cases_of(store, "verdict", "idx + count", "verdict", error);
  if (status == SF_OK) status = sf_store_query_int(store, &overlaps, twice, error);
  if (status == SF_OK && overlaps) return sf_error_set(error, SF_EINPUT, "%s: damaged: a case has two verdicts", store->path);
  if (status == SF_OK) status = check_cases_of(store, "finding", "idx + 1", "finding", error);
  return status == SF_OK ? check_cases_of(store, "further", "idx + 1", "further culprit", error) : status;
}

static enum sf_status lost_find(struct sf_store *store, struct sf_error *error);

/* Gives the store the tables of this version, unless it has them. A store that is refused below stays as it is, since the batch is dropped.
 */
static enum sf_status bring_up_to_date(struct sf_store *store, const struct sf_store_options *options, struct sf_error *error) {
  int64_t version = 0;
  enum sf_status status = sf_store_schema_check(store, &version, error);
  if (status == SF_OK && version > 0 && options->mode != SF_STORE_PEEK)
    status = expect_text(store, "PRAGMA quick_check(1)", "ok", SF_EINPUT, "damaged", error);
  if (status == SF_OK && store->writable) status = prepare_to_write(store, options->size_bytes_max, error);
  if (status != SF_OK || version == SF_STORE_VERSION) return status;
  status = store->writable ? sf_store_batch(store, error) : read_copy(store, error);
  if (status != SF_OK) return status;
  return version == 0 ? sf_store_schema_create(store, options, error) : sf_store_schema_upgrade(store, version, error);
}

static enum sf_status open_checked(struct sf_store *store, const struct sf_store_options *options, struct sf_error *error) {
  enum sf_status status = bring_up_to_date(store, options, error);
  if (status == SF_OK) status = sf_store_meta_read(store, error);
  if (status == SF_OK && options->mode != SF_STORE_PEEK) status = check_cases(store, error);
  if (status == SF_OK && store->writable) status = sf_store_meta_compare(store, options, error);
  if (status == SF_OK) status = sf_store_commit(store, error);
  return status == SF_OK && store->writable ? lost_find(store, error) : status;
}

static void options_assert(const struct sf_store_options *options) {
  SF_ASSERT(options->path != NULL);
  if (options->mode >= SF_STORE_READ) return;
  SF_ASSERT(options->campaign != NULL);
  SF_ASSERT_LE(options->feature_count, SF_STORE_FEATURES_MAX);
  for (int32_t bit = 0; bit < options->feature_count; bit++) SF_ASSERT(strchr(options->feature_names[bit], '\n') == NULL);
  SF_ASSERT_LE(0, options->share_index);
  SF_ASSERT_LT(options->share_index, options->share_count == 0 ? 1 : options->share_count);
  SF_ASSERT_LE(0, options->size_bytes_max);
}

void sf_store_remove_files(const char *path) {
  static const char *const ends[] = {"", "-wal", "-shm", "-journal"};
  struct sf_text name = {0};
  for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
    name.length = 0;
    sf_text_append(&name, "%s%s", path, ends[i]);
    if (!name.failed) unlink(name.data);
  }
  sf_text_destroy(&name);
}

enum sf_status sf_store_open(struct sf_store **out, const struct sf_store_options *options, struct sf_error *error) {
  options_assert(options);
  bool created = false;
  struct sf_store *store = sf_alloc(sizeof *store);
  if (store == NULL) return sf_error_set(error, SF_ENOMEM, "%s: out of memory", options->path);
  store->lock_file = -1;
  store->writable = options->mode < SF_STORE_READ;
  store->path = sf_strdup(options->path);
  enum sf_status status = store->path == NULL ? sf_error_set(error, SF_ENOMEM, "%s: out of memory", options->path) : SF_OK;
  if (status == SF_OK && store->writable) status = file_claim(store, options->mode, &created, error);
  if (status == SF_OK && store->writable) status = db_open(store, store->path, SQLITE_OPEN_READWRITE, error);
  if (status == SF_OK && !store->writable) status = db_open_when_made(store, error);
  if (status == SF_OK) status = open_checked(store, options, error);
  if (status == SF_OK) {
    *out = store;
  } else {
    db_close(store); /* on a full disk it leaves its log */
    if (created) sf_store_remove_files(store->path);
    sf_store_close(store);
  }
  return status;
}

/* Closing the file alone would leave the lock with forked processes that still live. */
static void lock_release(int lock_file) {
  struct flock lock = {.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = INT64_MAX - 1, .l_len = 1};
  (void)fcntl(lock_file, F_OFD_SETLK, &lock);
  close(lock_file);
}

void sf_store_close(struct sf_store *store) {
  if (store == NULL) return;
  db_close(store);
  if (store->lock_file >= 0) lock_release(store->lock_file);
  sf_free(store->lost);
  sf_free(store->feature_text);
  sf_free(store->campaign);
  sf_free(store->features);
  sf_free(store->share);
  sf_free(store->path);
  sf_free(store);
}

/* --- batches -------------------------------------------------------------------------------------------------------------- */

enum sf_status sf_store_batch(struct sf_store *store, struct sf_error *error) {
  SF_ASSERT(store->writable);
  if (store->in_batch) return SF_OK;
  const enum sf_status status = sf_store_exec(store, "BEGIN IMMEDIATE", error);
  if (status != SF_OK) return status;
  store->in_batch = true;
  store->batch_high_water = store->high_water;
  return SF_OK;
}

enum sf_status sf_store_batch_drop(struct sf_store *store, enum sf_status status) {
  if (!store->in_batch) return status;
  store->in_batch = false;
  store->high_water = store->batch_high_water;
  /* On some failures, a full disk among them, SQLite has rolled back already. */
  if (sqlite3_get_autocommit(store->db) == 0 && sf_store_exec(store, "ROLLBACK", NULL) != SF_OK) return SF_EIO;
  return status;
}

enum sf_status sf_store_commit(struct sf_store *store, struct sf_error *error) {
  if (!store->in_batch) return SF_OK;
  const enum sf_status status = sf_store_exec(store, "COMMIT", error);
  if (status != SF_OK) return sf_store_batch_drop(store, status);
  store->in_batch = false;
  return SF_OK;
}

/* --- indices -------------------------------------------------------------------------------------------------------------- */

static int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }

/* The smallest index of this store's share that is not below index. */
static int64_t share_next(const struct sf_store *store, int64_t index) {
  const int64_t block = index / store->share_block;
  const int64_t ahead = (store->share_index - block % store->share_count + store->share_count) % store->share_count;
  return ahead == 0 ? index : (block + ahead) * store->share_block;
}

/* The end of the run of consecutive indices of this share that contains index. */
static int64_t share_end(const struct sf_store *store, int64_t index) {
  return store->share_count == 1 ? INT64_MAX : (index / store->share_block + 1) * store->share_block;
}

/* Adds the indices of this share within [from, to). */
static bool lost_add(struct sf_store *store, int64_t from, int64_t to) {
  for (int64_t first = share_next(store, from); first < to;) {
    const int64_t end = min_i64(to, share_end(store, first));
    struct sf_store_range *lost = sf_grown(store->lost, store->lost_count, sizeof *lost);
    if (lost == NULL) return false;
    store->lost = lost;
    lost[store->lost_count++] = (struct sf_store_range){first, end};
    first = share_next(store, end);
  }
  return true;
}

/* Finds the indices of this share below the high-water mark that have no row. */
static enum sf_status lost_find(struct sf_store *store, struct sf_error *error) {
  sqlite3_stmt *statement = NULL;
  int64_t next = 0;
  bool has_memory = true;
  enum sf_status status =
      sf_store_query(store, &statement, error, "SELECT idx, count FROM verdict WHERE idx < ? ORDER BY idx", "i", store->high_water);
  while (sf_store_next_row(store, statement, &status, error)) {
    const int64_t index = sqlite3_column_int64(statement, 0);
    has_memory = has_memory && lost_add(store, next, index);
    next = index + sqlite3_column_int64(statement, 1);
  }
  if (status == SF_OK) has_memory = has_memory && lost_add(store, next, store->high_water);
  return has_memory ? status : sf_error_set(error, SF_ENOMEM, "%s: out of memory", store->path);
}

enum sf_status sf_store_high_water_raise(struct sf_store *store, int64_t high_water, struct sf_error *error) {
  const enum sf_status status = sf_store_write(store, error, "UPDATE meta SET value = ? WHERE key = 'high_water'", "i", high_water);
  if (status == SF_OK) store->high_water = high_water;
  return status;
}

enum sf_status sf_store_lease(struct sf_store *store, int64_t *first, int64_t *count, int64_t want, int64_t end, struct sf_error *error) {
  SF_ASSERT(store->writable);
  SF_ASSERT_LT(0, want);
  struct sf_store_range *lost = store->lost_next < store->lost_count ? &store->lost[store->lost_next] : NULL;
  int64_t from = 0, to = 0;
  enum sf_status status = SF_OK;
  if (lost != NULL && lost->first < end) {
    /* Below the mark already: nothing to write down. */
    from = lost->first;
    to = min_i64(min_i64(lost->end, end), want > INT64_MAX - from ? INT64_MAX : from + want);
  } else {
    lost = NULL;
    from = share_next(store, store->high_water);
    to = from < end ? min_i64(min_i64(share_end(store, from), end), want > INT64_MAX - from ? INT64_MAX : from + want) : from;
    if (to > from) status = sf_store_high_water_raise(store, to, error);
  }
  if (status == SF_OK) status = sf_store_commit(store, error);
  if (status != SF_OK) return status;
  if (lost != NULL) {
    lost->first = to;
    if (lost->first == lost->end) store->lost_next++;
  }
  *first = from;
  *count = to - from;
  return SF_OK;
}
