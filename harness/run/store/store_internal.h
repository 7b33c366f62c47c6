/* What the files of the store share. */
#ifndef SF_RUN_STORE_INTERNAL_H
#define SF_RUN_STORE_INTERNAL_H

#include "harness/run/store/store.h"

#include <sqlite3.h>

/* Each statement of a store's life is prepared once, when it is first needed. */
enum sf_store_statement {
  SF_STORE_SQL_BEGIN,
  SF_STORE_SQL_COMMIT,
  SF_STORE_SQL_ROLLBACK,
  SF_STORE_SQL_HIGH_WATER_SET,
  SF_STORE_SQL_VERDICT_INSERT,
  SF_STORE_SQL_VERDICT_ONE,
  SF_STORE_SQL_VERDICT_NEXT,
  SF_STORE_SQL_VERDICT_ALL,
  SF_STORE_SQL_VERDICT_SIGN,
  SF_STORE_SQL_FINDING_UPSERT,
  SF_STORE_SQL_FINDING_ONE,
  SF_STORE_SQL_FINDING_ALL,
  SF_STORE_SQL_FURTHER_INSERT,
  SF_STORE_SQL_FURTHER_ALL,
  SF_STORE_SQL_FOLDER_SET,
  SF_STORE_SQL_FOLDER_ONE,
  SF_STORE_SQL_SHRINK_ADD,
  SF_STORE_SQL_SHRINK_ONE,
  SF_STORE_SQL_SHRINK_ALL,
  SF_STORE_SQL_COUNT
};

/* SQL: what is wrong, as the report of a finding tells it. */
#define SF_STORE_BEHIND_WHAT "substr(report, instr(report, char(10) || 'what         ') + 14)"
#define SF_STORE_WHAT_OF_REPORT "substr(" SF_STORE_BEHIND_WHAT ", 1, instr(" SF_STORE_BEHIND_WHAT " || char(10), char(10)) - 1)"

struct sf_store_range {
  int64_t first, end;
};

struct sf_store {
  sqlite3 *db;
  sqlite3_stmt *statements[SF_STORE_SQL_COUNT];
  sqlite3_stmt *held; /* its current row's texts were given out; reset by the next call. NULL = none */
  char *path;
  int lock_file; /* -1 when only reading */
  bool writable, in_batch;
  int32_t version;  /* of the tables; an earlier one only when reading */
  bool has_reasons; /* the verdicts' table has that column, which came without a new version: who does not know it leaves it alone */
  char *campaign, *features, *share;                /* as stored; features: names with a newline after each */
  const char *feature_names[SF_STORE_FEATURES_MAX]; /* into feature_text */
  char *feature_text;
  int32_t feature_count;
  int32_t share_index, share_count;
  int64_t high_water;
  int64_t batch_high_water;    /* high_water before the open batch: what a rollback goes back to */
  struct sf_store_range *lost; /* handed out by an earlier process, not judged; ascending */
  int64_t lost_count, lost_capacity, lost_next;
};

/* Turns an SQLite result code into a status and a line that names the file. */
enum sf_status sf_store_error(const struct sf_store *store, int code, struct sf_error *error);
/* A statement, reset and without bindings; also resets what is held. */
enum sf_status sf_store_statement(struct sf_store *store, sqlite3_stmt **out, enum sf_store_statement which,
                                  struct sf_error *error) SF_MUST_USE;
/* Binds a text, NULL for an empty one; SQLite's result code. The text is not copied. */
int sf_store_bind_text(sqlite3_stmt *statement, int at, const char *text);
/* Runs a bound statement that returns no rows; code: the result of binding. */
enum sf_status sf_store_step_done(struct sf_store *store, sqlite3_stmt *statement, int code, struct sf_error *error) SF_MUST_USE;
/* Steps to the next row of a query. False at its end, or where *status is or becomes a failure: the statement is reset then. */
bool sf_store_next_row(struct sf_store *store, sqlite3_stmt *statement, enum sf_status *status, struct sf_error *error);
/* Runs SQL that gives no rows. */
enum sf_status sf_store_exec(struct sf_store *store, const char *sql, struct sf_error *error) SF_MUST_USE;
/* First column of the first row of a query. */
enum sf_status sf_store_query_int(struct sf_store *store, int64_t *out, const char *sql, struct sf_error *error) SF_MUST_USE;

/* Starts a batch if none is open. */
enum sf_status sf_store_batch(struct sf_store *store, struct sf_error *error) SF_MUST_USE;
/* Ends a batch that failed; returns status. */
enum sf_status sf_store_batch_drop(struct sf_store *store, enum sf_status status);

/* Counts `count` more shrinks of a key, in the open batch. */
enum sf_status sf_store_add_shrinks(struct sf_store *store, const char *shrink_key, int64_t count, struct sf_error *error) SF_MUST_USE;
/* The row that an index lies in; *found says whether there is one. Its texts live until the statement is used again. */
enum sf_status sf_store_verdict_one(struct sf_store *store, struct sf_store_verdict *out, bool *found, int64_t index,
                                    struct sf_error *error) SF_MUST_USE;

/* The smallest index above `index` that has a row; INT64_MAX when none has. */
enum sf_status sf_store_verdict_next(struct sf_store *store, int64_t *out, int64_t index, struct sf_error *error) SF_MUST_USE;

enum {
  SF_STORE_VERSION = 5,
  SF_STORE_VERSION_MIN = 2
}; /* 3: a finding has its diagnosis; 4: and says which case its smallest one comes from, in how many trials and in which folder its files
      are; a case has further culprits; 5: neighbours that passed may share a row */
/* *is_fresh: the file holds no tables and nobody has marked it. SF_EINPUT for one that is neither fresh nor a store that this version
 * reads. */
enum sf_status sf_store_schema_check(struct sf_store *store, bool *is_fresh, struct sf_error *error) SF_MUST_USE;
/* Writes tables, features, share and campaign into a fresh file. */
enum sf_status sf_store_schema_create(struct sf_store *store, const struct sf_store_options *options, struct sf_error *error) SF_MUST_USE;
/* Gives the tables of an earlier version the columns that they lack; whole or not at all. */
enum sf_status sf_store_schema_upgrade(struct sf_store *store, struct sf_error *error) SF_MUST_USE;
/* Reads campaign, features, share and high-water mark into the store. */
enum sf_status sf_store_meta_read(struct sf_store *store, struct sf_error *error) SF_MUST_USE;
/* SF_EUSAGE naming the first difference between what is stored and what is wanted. */
enum sf_status sf_store_meta_compare(const struct sf_store *store, const struct sf_store_options *options,
                                     struct sf_error *error) SF_MUST_USE;
/* The same between two stores; shares may differ. */
enum sf_status sf_store_meta_compare_stores(const struct sf_store *first, const struct sf_store *other, struct sf_error *error) SF_MUST_USE;

/* Finds the indices of this share below the high-water mark that have no row. */
enum sf_status sf_store_lost_find(struct sf_store *store, struct sf_error *error) SF_MUST_USE;
/* Raises the high-water mark within the open batch. */
enum sf_status sf_store_high_water_raise(struct sf_store *store, int64_t high_water, struct sf_error *error) SF_MUST_USE;

#endif
