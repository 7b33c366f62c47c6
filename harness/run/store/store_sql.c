/* Statements of the store: their texts, preparing them once, and the meaning of SQLite's result codes. */
#include "harness/base/assert.h"
#include "harness/run/store/store_internal.h"

#include <errno.h>
#include <string.h>

#define VERDICT_COLUMNS                                                                                                                    \
  "idx, verdict, class, shrink_key, signature, label, module, rank, ranks, layers, features, more_features, checked, unchecked, "          \
  "seconds, flaky"
/* REASON, COUNT: their columns, or what replaces them in a store that lacks them. */
#define VERDICT_ALL(REASON, COUNT) "SELECT " VERDICT_COLUMNS ", " REASON ", " COUNT " FROM verdict ORDER BY idx"
#define FINDING_COLUMNS "f.signature, f.shrink_key, f.idx, f.case_json, f.min_json, f.report, f.state"
#define FOLDER "(SELECT name FROM folder WHERE folder.signature = f.signature)"
#define VERDICT_COUNT "(SELECT count(*) FROM verdict v WHERE v.signature = f.signature)"
#define FURTHER_COUNT "(SELECT count(*) FROM further u WHERE u.signature = f.signature)"
/* LATER: the count of cases and the columns that earlier versions lack, or what replaces them. */
#define FINDING_ONE(LATER) "SELECT " FINDING_COLUMNS ", " LATER " FROM finding f WHERE f.signature = ?1"
#define FINDING_ALL(LATER) "SELECT " FINDING_COLUMNS ", " LATER " FROM finding f ORDER BY f.idx, f.signature"
#define LATER_COLUMNS(WHAT)                                                                                                                \
  VERDICT_COUNT " + " FURTHER_COUNT                                                                                                        \
                ", f.diagnosis_class, f.diagnosis, f.diagnosis_left, f.min_idx, f.trials, f.trials_max, f.minimal, " FOLDER ", " WHAT
#define LATER_COLUMNS_3 VERDICT_COUNT ", f.diagnosis_class, f.diagnosis, f.diagnosis_left, f.idx, 0, 0, 0, NULL, " SF_STORE_WHAT_OF_REPORT
#define LATER_COLUMNS_2 VERDICT_COUNT ", NULL, NULL, NULL, f.idx, 0, 0, 0, NULL, " SF_STORE_WHAT_OF_REPORT
/* FINDING_ONE or FINDING_ALL, for a store of this version. */
#define FINDINGS(ONE_OR_ALL, VERSION)                                                                                                      \
  ((VERSION) < 3   ? ONE_OR_ALL(LATER_COLUMNS_2)                                                                                           \
   : (VERSION) < 4 ? ONE_OR_ALL(LATER_COLUMNS_3)                                                                                           \
   : (VERSION) < 5 ? ONE_OR_ALL(LATER_COLUMNS(SF_STORE_WHAT_OF_REPORT))                                                                    \
                   : ONE_OR_ALL(LATER_COLUMNS("f.what")))
/* Which of two cases of a signature is shown: a shrunk case rather than any other, then the one with the smallest index. */
#define IS_SHOWN                                                                                                                           \
  "CASE WHEN excluded.min_json IS NULL THEN min_json IS NULL AND excluded.idx <= idx ELSE min_json IS NULL OR excluded.min_idx <= min_idx END"
#define NEW_DIAGNOSIS(COLUMN)                                                                                                              \
  " " COLUMN " = CASE WHEN excluded.diagnosis IS NOT NULL AND (diagnosis IS NULL OR " IS_SHOWN ") THEN excluded." COLUMN " ELSE " COLUMN   \
  " END,"
#define NEW_SHOWN(COLUMN) " " COLUMN " = CASE WHEN " IS_SHOWN " THEN excluded." COLUMN " ELSE " COLUMN " END,"

static const char *const statement_texts[SF_STORE_SQL_COUNT] = {
    [SF_STORE_SQL_BEGIN] = "BEGIN IMMEDIATE",
    [SF_STORE_SQL_COMMIT] = "COMMIT",
    [SF_STORE_SQL_ROLLBACK] = "ROLLBACK",
    [SF_STORE_SQL_HIGH_WATER_SET] = "UPDATE meta SET value = ?1 WHERE key = 'high_water'",
    [SF_STORE_SQL_VERDICT_INSERT] = "INSERT INTO verdict(" VERDICT_COLUMNS ", reason, count)"
                                    " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)",
    [SF_STORE_SQL_VERDICT_ONE] = "SELECT " VERDICT_COLUMNS ", reason, count FROM verdict"
                                 " WHERE idx = (SELECT max(idx) FROM verdict WHERE idx <= ?1) AND idx + count > ?1",
    [SF_STORE_SQL_VERDICT_NEXT] = "SELECT min(idx) FROM verdict WHERE idx > ?1",
    [SF_STORE_SQL_VERDICT_ALL] = VERDICT_ALL("reason", "count"),
    [SF_STORE_SQL_VERDICT_SIGN] = "UPDATE verdict SET signature = ?2 WHERE idx = ?1",
    /* The right-hand sides see the old row, so their order does not matter. */
    [SF_STORE_SQL_FINDING_UPSERT] =
        "INSERT INTO finding(signature, shrink_key, idx, case_json, min_json, min_idx, trials, trials_max, minimal, report, state, diagnosis_class, diagnosis, diagnosis_left, what)"
        " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)"
        " ON CONFLICT(signature) DO UPDATE SET"
        " case_json = CASE WHEN excluded.idx <= idx THEN excluded.case_json ELSE case_json END," NEW_SHOWN("min_json") NEW_SHOWN("min_idx")
            NEW_SHOWN("trials") NEW_SHOWN("trials_max") NEW_SHOWN("minimal") NEW_SHOWN("report") NEW_SHOWN("what")
                NEW_DIAGNOSIS("diagnosis_class") NEW_DIAGNOSIS("diagnosis")
                    NEW_DIAGNOSIS("diagnosis_left") " state = CASE WHEN excluded.state = 'known' THEN 'known' ELSE state END,"
                                                    " idx = min(idx, excluded.idx)",
    [SF_STORE_SQL_FURTHER_INSERT] = "INSERT OR IGNORE INTO further(idx, shrink_key, signature) VALUES(?1, ?2, ?3)",
    [SF_STORE_SQL_FURTHER_ALL] = "SELECT idx, shrink_key, signature FROM further ORDER BY idx, shrink_key",
    [SF_STORE_SQL_FOLDER_SET] =
        "INSERT INTO folder(signature, name) VALUES(?1, ?2) ON CONFLICT(signature) DO UPDATE SET name = excluded.name",
    [SF_STORE_SQL_FOLDER_ONE] = "SELECT name FROM folder WHERE signature = ?1",
    [SF_STORE_SQL_SHRINK_ADD] = "INSERT INTO shrink(shrink_key, count) VALUES(?1, ?2)"
                                " ON CONFLICT(shrink_key) DO UPDATE SET count = count + excluded.count",
    [SF_STORE_SQL_SHRINK_ONE] = "SELECT count FROM shrink WHERE shrink_key = ?1",
    [SF_STORE_SQL_SHRINK_ALL] = "SELECT shrink_key, count FROM shrink ORDER BY shrink_key",
};

/* An earlier store that is only read stays as it is. */
static const char *text_of(const struct sf_store *store, enum sf_store_statement which) {
  SF_ASSERT((unsigned)which < SF_STORE_SQL_COUNT);
  if (store->version < 5 && which == SF_STORE_SQL_VERDICT_ALL)
    return store->has_reasons ? VERDICT_ALL("reason", "1") : VERDICT_ALL("NULL", "1");
  if (which == SF_STORE_SQL_FINDING_ONE) return FINDINGS(FINDING_ONE, store->version);
  if (which == SF_STORE_SQL_FINDING_ALL) return FINDINGS(FINDING_ALL, store->version);
  if (which == SF_STORE_SQL_FURTHER_ALL && store->version < 4) return "SELECT NULL, NULL, NULL WHERE 0";
  return statement_texts[which];
}

enum sf_status sf_store_error(const struct sf_store *store, int code, struct sf_error *error) {
  const char *detail = store->db == NULL ? sqlite3_errstr(code) : sqlite3_errmsg(store->db);
  switch (code & 0xff) {
  case SQLITE_NOMEM:
    return sf_error_set(error, SF_ENOMEM, "%s: out of memory", store->path);
  case SQLITE_FULL:
    return sf_error_set(error, SF_EIO, "%s: cannot write: disk full or size limit reached", store->path);
  case SQLITE_BUSY:
  case SQLITE_LOCKED:
    return sf_error_set(error, SF_EIO, "%s: locked by another process", store->path);
  case SQLITE_NOTADB:
    return sf_error_set(error, SF_EINPUT, "%s: not a shardfuzz store", store->path);
  case SQLITE_CORRUPT:
    return sf_error_set(error, SF_EINPUT, "%s: damaged: %s", store->path, detail);
  case SQLITE_READONLY:
  case SQLITE_PERM:
  case SQLITE_AUTH:
    return sf_error_set(error, SF_EINPUT, "%s: cannot be written: %s", store->path, detail);
  case SQLITE_CANTOPEN:
    if (store->db && sqlite3_system_errno(store->db) == EMFILE)
      return sf_error_set(error, SF_EIO, "%s: cannot open: %s", store->path, sf_errno_text(EMFILE).text);
    return sf_error_set(error, SF_EINPUT, "%s: cannot open: %s", store->path, detail);
  case SQLITE_ERROR: /* our statements are sound, so the tables are not what they were */
  case SQLITE_SCHEMA:
  case SQLITE_MISMATCH:
    return sf_error_set(error, SF_EINPUT, "%s: damaged: %s", store->path, detail);
  default:
    return sf_error_set(error, SF_EIO, "%s: %s", store->path, detail);
  }
}

enum sf_status sf_store_statement(struct sf_store *store, sqlite3_stmt **out, enum sf_store_statement which, struct sf_error *error) {
  if (store->held != NULL) sqlite3_reset(store->held);
  store->held = NULL;
  if (store->statements[which] == NULL) {
    const int code = sqlite3_prepare_v3(store->db, text_of(store, which), -1, SQLITE_PREPARE_PERSISTENT, &store->statements[which], NULL);
    if (code != SQLITE_OK) return sf_store_error(store, code, error);
  }
  sqlite3_reset(store->statements[which]);
  sqlite3_clear_bindings(store->statements[which]);
  *out = store->statements[which];
  return SF_OK;
}

int sf_store_bind_text(sqlite3_stmt *statement, int at, const char *text) {
  return text == NULL || text[0] == '\0' ? sqlite3_bind_null(statement, at) : sqlite3_bind_text(statement, at, text, -1, SQLITE_STATIC);
}

enum sf_status sf_store_step_done(struct sf_store *store, sqlite3_stmt *statement, int code, struct sf_error *error) {
  if (code == SQLITE_OK) code = sqlite3_step(statement);
  /* The message must be read before the reset below. */
  const enum sf_status status = code == SQLITE_DONE || code == SQLITE_ROW ? SF_OK : sf_store_error(store, code, error);
  sqlite3_reset(statement);
  return status;
}

bool sf_store_next_row(struct sf_store *store, sqlite3_stmt *statement, enum sf_status *status, struct sf_error *error) {
  const int code = *status == SF_OK ? sqlite3_step(statement) : SQLITE_DONE;
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) *status = sf_store_error(store, code, error);
  sqlite3_reset(statement);
  return false;
}

enum sf_status sf_store_exec(struct sf_store *store, const char *sql, struct sf_error *error) {
  const int code = sqlite3_exec(store->db, sql, NULL, NULL, NULL);
  return code == SQLITE_OK ? SF_OK : sf_store_error(store, code, error);
}

enum sf_status sf_store_query_int(struct sf_store *store, int64_t *out, const char *sql, struct sf_error *error) {
  sqlite3_stmt *statement = NULL;
  int code = sqlite3_prepare_v2(store->db, sql, -1, &statement, NULL);
  if (code == SQLITE_OK) code = sqlite3_step(statement);
  enum sf_status status = SF_OK;
  if (code == SQLITE_ROW) {
    *out = sqlite3_column_int64(statement, 0);
  } else {
    status = code == SQLITE_DONE ? sf_error_set(error, SF_EINPUT, "%s: damaged: a value is missing", store->path)
                                 : sf_store_error(store, code, error);
  }
  sqlite3_finalize(statement);
  return status;
}
