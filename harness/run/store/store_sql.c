/* Running SQL: statements that are prepared once, and the meaning of SQLite's result codes. */
#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/run/store/store_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

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
  case SQLITE_CONSTRAINT:
    return sf_error_set(error, code == SQLITE_CONSTRAINT_PRIMARYKEY ? SF_EUSAGE : SF_EIO, "%s: %s", store->path, detail);
  case SQLITE_ERROR: /* our statements are sound, so the tables are not what they were */
  case SQLITE_SCHEMA:
  case SQLITE_MISMATCH:
    return sf_error_set(error, SF_EINPUT, "%s: damaged: %s", store->path, detail);
  default:
    return sf_error_set(error, SF_EIO, "%s: %s", store->path, detail);
  }
}

/* The statement, prepared, reset and without bindings; also resets what is held. */
static enum sf_status prepare(struct sf_store *store, sqlite3_stmt **out, struct sf_error *error, const char *sql) {
  int32_t at = 0;
  if (store->held != NULL) sqlite3_reset(store->held);
  store->held = NULL;
  while (at < SF_STORE_STATEMENTS_MAX && store->statements[at].sql != NULL && store->statements[at].sql != sql) at++;
  SF_ASSERT_LT(at, SF_STORE_STATEMENTS_MAX);
  if (store->statements[at].prepared == NULL) {
    const int code = sqlite3_prepare_v3(store->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &store->statements[at].prepared, NULL);
    if (code != SQLITE_OK) return sf_store_error(store, code, error);
    store->statements[at].sql = sql;
  }
  *out = store->statements[at].prepared;
  sqlite3_reset(*out);
  sqlite3_clear_bindings(*out);
  return SF_OK;
}

static int bind_next(sqlite3_stmt *statement, int at, char type, va_list *arguments) {
  if (type == 'i') return sqlite3_bind_int64(statement, at, va_arg(*arguments, int64_t));
  if (type == 'n') {
    const int64_t value = va_arg(*arguments, int64_t);
    return value < 0 ? sqlite3_bind_null(statement, at) : sqlite3_bind_int64(statement, at, value);
  }
  if (type == 'r') return sqlite3_bind_double(statement, at, va_arg(*arguments, double));
  const char *text = va_arg(*arguments, const char *);
  return text == NULL || *text == '\0' ? sqlite3_bind_null(statement, at) : sqlite3_bind_text(statement, at, text, -1, SQLITE_STATIC);
}

static enum sf_status bind_all(struct sf_store *store, sqlite3_stmt *statement, struct sf_error *error, const char *types,
                               va_list *arguments) {
  int code = SQLITE_OK;
  for (int at = 0; types[at] != '\0' && code == SQLITE_OK; at++) code = bind_next(statement, at + 1, types[at], arguments);
  return code == SQLITE_OK ? SF_OK : sf_store_error(store, code, error);
}

enum sf_status sf_store_query(struct sf_store *store, sqlite3_stmt **out, struct sf_error *error, const char *sql, const char *types, ...) {
  va_list arguments;
  enum sf_status status = prepare(store, out, error, sql);
  if (status != SF_OK) return status;
  va_start(arguments, types);
  status = bind_all(store, *out, error, types, &arguments);
  va_end(arguments);
  return status;
}

bool sf_store_next_row(struct sf_store *store, sqlite3_stmt *statement, enum sf_status *status, struct sf_error *error) {
  const int code = *status == SF_OK ? sqlite3_step(statement) : SQLITE_DONE;
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) *status = sf_store_error(store, code, error);
  sqlite3_reset(statement);
  return false;
}

enum sf_status sf_store_hold_row(struct sf_store *store, sqlite3_stmt *statement, bool *found, struct sf_error *error) {
  enum sf_status status = SF_OK;
  const bool has_row = sf_store_next_row(store, statement, &status, error);
  if (has_row) store->held = statement;
  if (status == SF_OK) *found = has_row;
  return status;
}

enum sf_status sf_store_write(struct sf_store *store, struct sf_error *error, const char *sql, const char *types, ...) {
  sqlite3_stmt *statement = NULL;
  va_list arguments;
  enum sf_status status = sf_store_batch(store, error);
  if (status == SF_OK) status = prepare(store, &statement, error, sql);
  if (status == SF_OK) {
    va_start(arguments, types);
    status = bind_all(store, statement, error, types, &arguments);
    va_end(arguments);
  }
  if (statement != NULL) sf_store_next_row(store, statement, &status, error);
  return status == SF_OK ? SF_OK : sf_store_batch_drop(store, status);
}

enum sf_status sf_store_exec(struct sf_store *store, const char *sql, struct sf_error *error) {
  const int code = sqlite3_exec(store->db, sql, NULL, NULL, NULL);
  return code == SQLITE_OK ? SF_OK : sf_store_error(store, code, error);
}

/* Runs a query once, up to its first row. */
static enum sf_status first_row(struct sf_store *store, sqlite3_stmt **out, const char *sql, const char *what, struct sf_error *error) {
  int code = sqlite3_prepare_v2(store->db, sql, -1, out, NULL);
  if (code == SQLITE_OK) code = sqlite3_step(*out);
  if (code == SQLITE_ROW) return SF_OK;
  return code == SQLITE_DONE ? sf_error_set(error, SF_EINPUT, "%s: damaged: %s is missing", store->path, what)
                             : sf_store_error(store, code, error);
}

enum sf_status sf_store_query_int(struct sf_store *store, int64_t *out, const char *sql, struct sf_error *error) {
  sqlite3_stmt *statement = NULL;
  const enum sf_status status = first_row(store, &statement, sql, "a value", error);
  if (status == SF_OK) *out = sqlite3_column_int64(statement, 0);
  sqlite3_finalize(statement);
  return status;
}

enum sf_status sf_store_query_text(struct sf_store *store, char **out, const char *sql, const char *what, struct sf_error *error) {
  sqlite3_stmt *statement = NULL;
  enum sf_status status = first_row(store, &statement, sql, what, error);
  const char *text = status == SF_OK ? (const char *)sqlite3_column_text(statement, 0) : NULL;
  *out = text != NULL ? sf_strdup(text) : NULL;
  if (status == SF_OK && *out == NULL) status = sf_error_set(error, SF_ENOMEM, "%s: out of memory", store->path);
  sqlite3_finalize(statement);
  return status;
}
