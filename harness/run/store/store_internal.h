/* What the files of the store share. */
#ifndef SF_RUN_STORE_INTERNAL_H
#define SF_RUN_STORE_INTERNAL_H

#include "harness/run/store/store.h"

#include <sqlite3.h>

struct sf_store_range {
  int64_t first, end;
};

enum { SF_STORE_STATEMENTS_MAX = 32 };
struct sf_store {
  sqlite3 *db;
  /* Each statement of a store's life is prepared once, when it is first needed. sql: a constant of the program. */
  struct {
    const char *sql;
    sqlite3_stmt *prepared;
  } statements[SF_STORE_STATEMENTS_MAX];
  sqlite3_stmt *held; /* its current row's texts were given out; reset by the next call. NULL = none */
  char *path;
  int lock_file; /* -1 when only reading */
  bool writable, in_batch;
  char *campaign, *features, *share;                /* as stored; features: names with a newline after each */
  const char *feature_names[SF_STORE_FEATURES_MAX]; /* into feature_text */
  char *feature_text;
  int32_t feature_count;
  int32_t share_index, share_count;
  int64_t share_block;
  int64_t high_water;
  int64_t batch_high_water;    /* high_water before the open batch: what a rollback goes back to */
  struct sf_store_range *lost; /* handed out by an earlier process, not judged; ascending */
  int64_t lost_count, lost_next;
};

/* --- store_sql.c ------------------------------------------------------------------------------------------------------------ */

/* Turns an SQLite result code into a status and a line that names the file. SF_EUSAGE: a row with this primary key is there already. */
enum sf_status sf_store_error(const struct sf_store *store, int code, struct sf_error *error);
/* A statement, ready for sf_store_next_row; also resets what is held. types: how its parameters are bound, in order, by one argument each:
 * 'i' an int64_t, 'n' one that is SQL's NULL when it is negative, 'r' a double, 't' a text, which is not copied; NULL and an empty one are
 * SQL's NULL. */
enum sf_status sf_store_query(struct sf_store *store, sqlite3_stmt **out, struct sf_error *error, const char *sql, const char *types,
                              ...) SF_MUST_USE;
/* Steps to the next row of a query. False at its end, or where *status is or becomes a failure: the statement is reset then. */
bool sf_store_next_row(struct sf_store *store, sqlite3_stmt *statement, enum sf_status *status, struct sf_error *error);
/* Steps to the only row of a query and holds it for the caller; *found says whether there is one. */
enum sf_status sf_store_hold_row(struct sf_store *store, sqlite3_stmt *statement, bool *found, struct sf_error *error);
/* Runs SQL that changes the store, in the open batch, which it begins if need be; parameters are bound as by sf_store_query. A failure
 * drops the batch. */
enum sf_status sf_store_write(struct sf_store *store, struct sf_error *error, const char *sql, const char *types, ...) SF_MUST_USE;
/* Runs SQL that gives no rows, perhaps several statements. */
enum sf_status sf_store_exec(struct sf_store *store, const char *sql, struct sf_error *error) SF_MUST_USE;
/* First column of the first row of a query, which is run once: a number; a text, for sf_free. SF_EINPUT when there is no row: `what` is
 * then missing. */
enum sf_status sf_store_query_int(struct sf_store *store, int64_t *out, const char *sql, struct sf_error *error) SF_MUST_USE;
enum sf_status sf_store_query_text(struct sf_store *store, char **out, const char *sql, const char *what,
                                   struct sf_error *error) SF_MUST_USE;

/* --- store.c ---------------------------------------------------------------------------------------------------------------- */

/* Starts a batch if none is open. */
enum sf_status sf_store_batch(struct sf_store *store, struct sf_error *error) SF_MUST_USE;
/* Ends a batch that failed; returns status. */
enum sf_status sf_store_batch_drop(struct sf_store *store, enum sf_status status);
/* Raises the high-water mark within the open batch. */
enum sf_status sf_store_high_water_raise(struct sf_store *store, int64_t high_water, struct sf_error *error) SF_MUST_USE;

/* --- store_rows.c ----------------------------------------------------------------------------------------------------------- */

/* Creates the tables of cases, findings, further culprits, folders and shrink counts, as this version has them. */
extern const char sf_store_tables[], sf_store_further_tables[]; /* the latter: what version 4 added */
/* Counts `count` more shrinks of a key, in the open batch. */
enum sf_status sf_store_add_shrinks(struct sf_store *store, const char *shrink_key, int64_t count, struct sf_error *error) SF_MUST_USE;
/* The row that an index lies in; *found says whether there is one. Its texts live until the statement is used again. */
enum sf_status sf_store_verdict_one(struct sf_store *store, struct sf_store_verdict *out, bool *found, int64_t index,
                                    struct sf_error *error) SF_MUST_USE;
/* The smallest index above `index` that has a row; INT64_MAX when none has. */
enum sf_status sf_store_verdict_next(struct sf_store *store, int64_t *out, int64_t index, struct sf_error *error) SF_MUST_USE;

/* --- store_schema.c --------------------------------------------------------------------------------------------------------- */

/* Version of the tables. 3: a finding has its diagnosis; 4: and says which case its smallest one comes from, in how many trials and in
 * which folder its files are; a case has further culprits; 5: neighbours that passed may share a row; 6: a finding says what its smallest
 * case shows; 7: and its diagnosis names the cause; 8: and how it was shrunk, and a case how near a clean tensor came and which modules
 * have tensors that were not judged; 9: and why its smallest case fails; 10: and which operation went wrong. */
enum { SF_STORE_VERSION = 10, SF_STORE_VERSION_MIN = 2 };
/* *version: that of the tables, 0 when the file holds none and nobody has marked it. SF_EINPUT for one that is neither fresh nor a store
 * that this version reads. */
enum sf_status sf_store_schema_check(struct sf_store *store, int64_t *version, struct sf_error *error) SF_MUST_USE;
/* Writes tables, features, share and campaign into a fresh file, within the open batch. */
enum sf_status sf_store_schema_create(struct sf_store *store, const struct sf_store_options *options, struct sf_error *error) SF_MUST_USE;
/* Gives the tables of an earlier version the columns that they lack. */
enum sf_status sf_store_schema_upgrade(struct sf_store *store, int64_t version, struct sf_error *error) SF_MUST_USE;
/* Reads campaign, features, share and high-water mark into the store. */
enum sf_status sf_store_meta_read(struct sf_store *store, struct sf_error *error) SF_MUST_USE;
/* SF_EUSAGE naming the first difference between what is stored and what is wanted. */
enum sf_status sf_store_meta_compare(const struct sf_store *store, const struct sf_store_options *options,
                                     struct sf_error *error) SF_MUST_USE;
/* The same between two stores; shares and seeds may differ. */
enum sf_status sf_store_meta_compare_stores(const struct sf_store *first, const struct sf_store *other, struct sf_error *error) SF_MUST_USE;
/* A store's options with this text as their seed; for sf_free. NULL: out of memory. */
char *sf_store_campaign_of_seeds(const struct sf_store *store, const char *seeds);

#endif
