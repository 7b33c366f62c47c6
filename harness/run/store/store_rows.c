/* Tables of verdicts, findings, further culprits, folders and shrink counts: making, writing, reading and summing them. */
#include "harness/base/assert.h"
#include "harness/run/store/store_internal.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* --- columns ---------------------------------------------------------------------------------------------------------------- */

/* Column, its declaration, how it is kept (below), member of struct sf_store_verdict. */
#define VERDICT_COLUMNS(FIRST, X)                                                                                                          \
  FIRST(idx, "INTEGER PRIMARY KEY CHECK(idx >= 0)", NUMBER, index)                                                                         \
  X(verdict, "TEXT NOT NULL", VERDICT, verdict)                                                                                            \
  X(class, "TEXT", CLASS, cls)                                                                                                             \
  X(shrink_key, "TEXT", TEXT, shrink_key)                                                                                                  \
  X(signature, "TEXT", TEXT, signature)                                                                                                    \
  X(label, "TEXT", TEXT, label)                                                                                                            \
  X(module, "TEXT", TEXT, module)                                                                                                          \
  X(rank, "INTEGER NOT NULL", NUMBER, rank)                                                                                                \
  X(ranks, "INTEGER NOT NULL", NUMBER, ranks)                                                                                              \
  X(layers, "INTEGER NOT NULL", NUMBER, layers)                                                                                            \
  X(features, "INTEGER NOT NULL", NUMBER, features.words[0])                                                                               \
  X(more_features, "INTEGER NOT NULL", NUMBER, features.words[1])                                                                          \
  X(checked, "INTEGER NOT NULL", NUMBER, checked)                                                                                          \
  X(unchecked, "INTEGER NOT NULL", NUMBER, unchecked)                                                                                      \
  X(seconds, "REAL NOT NULL", REAL, seconds)                                                                                               \
  X(flaky, "INTEGER NOT NULL", NUMBER, flaky)                                                                                              \
  X(reason, "TEXT", TEXT, reason)                                                                                                          \
  X(count, "INTEGER NOT NULL DEFAULT 1", NUMBER, count)                                                                                    \
  X(closest, "REAL", REAL, closest)                                                                                                        \
  X(unjudged, "TEXT", TEXT, unjudged)

/* The same of struct sf_store_finding, and what becomes of the column when the signature is seen again: KEEP; SHOWN: it is that of the case
 * that is shown; SAID: so, unless that one has no diagnosis; LOWEST, CASE, KNOWN: for one column alone. */
#define FINDING_COLUMNS(FIRST, X)                                                                                                          \
  FIRST(signature, "TEXT PRIMARY KEY", TEXT, signature, KEEP)                                                                              \
  X(shrink_key, "TEXT NOT NULL", TEXT, shrink_key, KEEP)                                                                                   \
  X(idx, "INTEGER NOT NULL", NUMBER, index, LOWEST)                                                                                        \
  X(case_json, "TEXT NOT NULL", TEXT, case_json, CASE)                                                                                     \
  X(min_json, "TEXT", TEXT, min_json, SHOWN)                                                                                               \
  X(report, "TEXT", TEXT, report, SHOWN)                                                                                                   \
  X(state, "TEXT NOT NULL CHECK(state IN ('new', 'known'))", STATE, known, KNOWN)                                                          \
  X(diagnosis_class, "TEXT", DIAGNOSIS, diagnosis, SAID)                                                                                   \
  X(diagnosis, "TEXT", LINE, diagnosis.text, SAID)                                                                                         \
  X(diagnosis_left, "REAL", REAL, diagnosis.left, SAID)                                                                                    \
  X(min_idx, "INTEGER", NUMBER, min_index, SHOWN)                                                                                          \
  X(trials, "INTEGER", NUMBER, trials, SHOWN)                                                                                              \
  X(trials_max, "INTEGER", NUMBER, trials_max, SHOWN)                                                                                      \
  X(minimal, "INTEGER", NUMBER, minimal, SHOWN)                                                                                            \
  X(what, "TEXT", TEXT, what, SHOWN)                                                                                                       \
  X(shown, "TEXT", TEXT, shown, SHOWN)                                                                                                     \
  X(diagnosis_cause, "TEXT", LINE, diagnosis.cause, SAID)                                                                                  \
  X(steps, "TEXT", TEXT, steps, SHOWN)                                                                                                     \
  X(contrast, "TEXT", TEXT, contrast, SHOWN)                                                                                               \
  X(operation, "TEXT", LINE, diagnosis.operation, SAID)

#define DECLARE_FIRST(column, declaration, ...) #column " " declaration
#define DECLARE(...) ", " DECLARE_FIRST(__VA_ARGS__)
#define NAME_FIRST(column, ...) #column
#define NAME(...) ", " NAME_FIRST(__VA_ARGS__)
#define PARAMETER_FIRST(...) "?"
#define PARAMETER(...) ", ?"

/* What is bound of `row`, by sf_store_write's letters. */
#define TYPE(column, declaration, kind, ...) TYPE_##kind
#define TYPE_NUMBER "i"
#define TYPE_PLACE "n"
#define TYPE_REAL "r"
#define TYPE_TEXT "t"
#define TYPE_LINE "t"
#define TYPE_VERDICT "t"
#define TYPE_CLASS "t"
#define TYPE_STATE "t"
#define TYPE_DIAGNOSIS "t"
#define BOUND(column, declaration, kind, member, ...) , BOUND_##kind(row.member)
#define BOUND_NUMBER(value) (int64_t)(value)
#define BOUND_PLACE(value) (row.min_json ? (value) : -1)
#define BOUND_REAL(value) (value)
#define BOUND_TEXT(value) (value)
#define BOUND_LINE(value) (value)
#define BOUND_VERDICT(value) sf_verdict_name(value)
#define BOUND_CLASS(value) ((value) < 0 ? NULL : sf_finding_class_name((enum sf_finding_class)(value)))
#define BOUND_STATE(value) ((value) ? "known" : "new")
#define BOUND_DIAGNOSIS(value) (*(value).text ? sf_diagnosis_class_name((value).cls) : NULL)

/* How column `at` of `statement` comes back into *out. */
#define READ(column, declaration, kind, member, ...)                                                                                       \
  READ_##kind(out->member);                                                                                                                \
  at++;
#define READ_NUMBER(value) value = (__typeof__(value))sqlite3_column_int64(statement, at)
#define READ_PLACE READ_NUMBER
#define READ_REAL(value) value = sqlite3_column_double(statement, at)
#define READ_TEXT(value) value = column_text(statement, at)
#define READ_LINE(value) snprintf(value, sizeof value, "%s", column_text(statement, at) ? column_text(statement, at) : "")
#define READ_VERDICT(value) value = (enum sf_verdict)verdict_of_name(column_text(statement, at))
#define READ_CLASS(value) value = class_of_name(column_text(statement, at))
#define READ_STATE(value) value = column_text(statement, at) && strcmp(column_text(statement, at), "known") == 0
#define READ_DIAGNOSIS(value) (value).cls = diagnosis_of_name(column_text(statement, at))

static const char *column_text(sqlite3_stmt *statement, int at) { return (const char *)sqlite3_column_text(statement, at); }

/* The number of a name; `none` without one, `unknown` when this version does not know it. */
#define DEFINE_OF_NAME(function, type, count, name_of, none, unknown)                                                                      \
  static type function(const char *name) {                                                                                                 \
    for (int32_t i = 0; name != NULL && i < (int32_t)(count); i++)                                                                         \
      if (strcmp(name, name_of) == 0) return (type)i;                                                                                      \
    return name == NULL ? none : unknown;                                                                                                  \
  }
enum { UNKNOWN_NAME = -2 };
DEFINE_OF_NAME(verdict_of_name, int32_t, SF_VERDICT_COUNT, sf_verdict_name((enum sf_verdict)i), UNKNOWN_NAME, UNKNOWN_NAME)
DEFINE_OF_NAME(class_of_name, int32_t, SF_CLASS_COUNT, sf_finding_class_name((enum sf_finding_class)i), -1, UNKNOWN_NAME)
DEFINE_OF_NAME(diagnosis_of_name, enum sf_diagnosis_class, SF_DIAGNOSIS_COUNT, sf_diagnosis_class_name((enum sf_diagnosis_class)i),
               SF_DIAGNOSIS_UNKNOWN, SF_DIAGNOSIS_UNKNOWN)

#define FURTHER_TABLES                                                                                                                     \
  "CREATE TABLE further(idx INTEGER NOT NULL CHECK(idx >= 0), shrink_key TEXT NOT NULL, signature TEXT NOT NULL,"                          \
  " PRIMARY KEY(idx, shrink_key)) WITHOUT ROWID; CREATE INDEX further_signature ON further(signature);"                                    \
  "CREATE TABLE folder(signature TEXT PRIMARY KEY, name TEXT NOT NULL) WITHOUT ROWID;"
const char sf_store_further_tables[] = FURTHER_TABLES;
const char sf_store_tables[] = "CREATE TABLE verdict(" VERDICT_COLUMNS(
    DECLARE_FIRST, DECLARE) ");"
                            "CREATE INDEX verdict_signature ON verdict(signature) WHERE signature IS NOT NULL;"
                            "CREATE TABLE finding(" FINDING_COLUMNS(
                                DECLARE_FIRST,
                                DECLARE) ");" FURTHER_TABLES
                                         "CREATE TABLE shrink(shrink_key TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;";

/* --- writing ---------------------------------------------------------------------------------------------------------------- */

enum sf_status sf_store_add_verdict(struct sf_store *store, const struct sf_store_verdict *verdict, struct sf_error *error) {
  static const char insert[] =
      "INSERT INTO verdict(" VERDICT_COLUMNS(NAME_FIRST, NAME) ") VALUES(" VERDICT_COLUMNS(PARAMETER_FIRST, PARAMETER) ")";
  struct sf_store_verdict row = *verdict;
  if (row.count == 0) row.count = 1;
  if (!(row.seconds >= 0)) row.seconds = 0; /* SQLite would store NaN as NULL */
  SF_ASSERT_LE(0, row.index);
  SF_ASSERT(row.count == 1 || row.verdict == SF_VERDICT_PASS);
  SF_ASSERT_LE(row.index + row.count, store->high_water);
  SF_ASSERT_LT(row.cls, SF_CLASS_COUNT);
  const enum sf_status status = sf_store_write(store, error, insert, VERDICT_COLUMNS(TYPE, TYPE) VERDICT_COLUMNS(BOUND, BOUND));
  return status == SF_EUSAGE ? sf_error_set(error, status, "%s: case %" PRId64 " has a verdict already", store->path, row.index) : status;
}

/* Which of two cases of a signature is shown: a shrunk case rather than any other, then the one with the smallest index. */
#define IS_SHOWN                                                                                                                           \
  "CASE WHEN excluded.min_json IS NULL THEN min_json IS NULL AND excluded.idx <= idx "                                                     \
  "ELSE min_json IS NULL OR excluded.min_idx <= min_idx END"
#define NEW_WHERE(column, condition) column " = CASE WHEN " condition " THEN excluded." column " ELSE " column " END"
#define AGAIN_FIRST(column, declaration, kind, member, how) AGAIN_##how(#column)
#define AGAIN(...) ", " AGAIN_FIRST(__VA_ARGS__)
#define AGAIN_KEEP(column) column " = " column
#define AGAIN_LOWEST(column) column " = min(" column ", excluded." column ")"
#define AGAIN_CASE(column) NEW_WHERE(column, "excluded.idx <= idx")
#define AGAIN_SHOWN(column) NEW_WHERE(column, IS_SHOWN)
#define AGAIN_KNOWN(column) NEW_WHERE(column, "excluded.state = 'known'")
#define AGAIN_SAID(column) NEW_WHERE(column, "excluded.diagnosis IS NOT NULL AND (diagnosis IS NULL OR " IS_SHOWN ")")

enum sf_status sf_store_add_finding(struct sf_store *store, const struct sf_store_finding *finding, struct sf_error *error) {
  /* The right-hand sides see the old row, so their order does not matter. */
  static const char upsert[] = "INSERT INTO finding(" FINDING_COLUMNS(NAME_FIRST, NAME) ") VALUES(" FINDING_COLUMNS(
      PARAMETER_FIRST, PARAMETER) ")"
                                  " ON CONFLICT(signature) DO UPDATE SET " FINDING_COLUMNS(AGAIN_FIRST, AGAIN);
  const struct sf_store_finding row = *finding;
  SF_ASSERT(row.signature != NULL && row.signature[0] != '\0');
  SF_ASSERT(row.shrink_key != NULL && row.shrink_key[0] != '\0');
  SF_ASSERT(row.case_json != NULL && row.case_json[0] != '\0');
  return sf_store_write(store, error, upsert, FINDING_COLUMNS(TYPE, TYPE) FINDING_COLUMNS(BOUND, BOUND));
}

enum sf_status sf_store_add_further(struct sf_store *store, const struct sf_store_further *further, struct sf_error *error) {
  SF_ASSERT(further->shrink_key[0] != '\0' && further->signature[0] != '\0');
  return sf_store_write(store, error, "INSERT OR IGNORE INTO further(idx, shrink_key, signature) VALUES(?, ?, ?)", "itt", further->index,
                        further->shrink_key, further->signature);
}

enum sf_status sf_store_set_folder(struct sf_store *store, const char *signature, const char *folder, struct sf_error *error) {
  const enum sf_status status = sf_store_write(
      store, error, "INSERT INTO folder(signature, name) VALUES(?, ?) ON CONFLICT(signature) DO UPDATE SET name = excluded.name", "tt",
      signature, folder);
  return status == SF_OK ? sf_store_commit(store, error) : status;
}

enum sf_status sf_store_add_shrinks(struct sf_store *store, const char *shrink_key, int64_t count, struct sf_error *error) {
  SF_ASSERT(shrink_key[0] != '\0');
  return sf_store_write(
      store, error,
      "INSERT INTO shrink(shrink_key, count) VALUES(?, ?) ON CONFLICT(shrink_key) DO UPDATE SET count = count + excluded.count", "ti",
      shrink_key, count);
}

enum sf_status sf_store_add_shrink(struct sf_store *store, const char *shrink_key, struct sf_error *error) {
  return sf_store_add_shrinks(store, shrink_key, 1, error);
}

enum sf_status sf_store_set_pairs(struct sf_store *store, const char *pairs, struct sf_error *error) {
  return sf_store_write(
      store, error, "INSERT INTO meta(key, value) VALUES('pairs', coalesce(?, '')) ON CONFLICT(key) DO UPDATE SET value = excluded.value",
      "t", pairs);
}

/* --- reading ---------------------------------------------------------------------------------------------------------------- */

#define SELECT_VERDICT "SELECT " VERDICT_COLUMNS(NAME_FIRST, NAME) " FROM verdict"
#define CASES_IN(table) "(SELECT count(*) FROM " table " WHERE " table ".signature = finding.signature)"
#define SELECT_FINDING                                                                                                                     \
  "SELECT " FINDING_COLUMNS(NAME_FIRST, NAME) ", " CASES_IN("verdict") " + " CASES_IN(                                                     \
      "further") ", (SELECT name FROM folder WHERE folder.signature = finding.signature) FROM finding"

static enum sf_status verdict_read(const struct sf_store *store, struct sf_store_verdict *out, sqlite3_stmt *statement,
                                   struct sf_error *error) {
  int at = 0;
  VERDICT_COLUMNS(READ, READ)
  if ((int32_t)out->verdict >= 0 && out->cls != UNKNOWN_NAME) return SF_OK;
  return sf_error_set(error, SF_EINPUT, "%s: damaged: case %" PRId64 " has an unknown verdict or class", store->path, out->index);
}

/* Whether the name is one component of a path, or NULL. */
static bool is_folder(const char *name) {
  return !name || (*name && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && strlen(name) <= NAME_MAX);
}

static enum sf_status finding_read(const struct sf_store *store, struct sf_store_finding *out, sqlite3_stmt *statement,
                                   struct sf_error *error) {
  int at = 0;
  FINDING_COLUMNS(READ, READ)
  out->count = sqlite3_column_int64(statement, at++);
  out->folder = column_text(statement, at);
  const char *const needed[][2] = {{out->signature, "signature"}, {out->shrink_key, "shrink_key"}, {out->case_json, "case_json"}};
  for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++)
    if (!needed[i][0] || !*needed[i][0])
      return sf_error_set(error, SF_EINPUT, "%s: damaged: the finding of case %" PRId64 " has no %s", store->path, out->index,
                          needed[i][1]);
  return is_folder(out->folder) ? SF_OK : sf_error_set(error, SF_EINPUT, "%s: damaged: a folder's name is none", store->path);
}

enum sf_status sf_store_verdict_one(struct sf_store *store, struct sf_store_verdict *out, bool *found, int64_t index,
                                    struct sf_error *error) {
  static const char select[] = SELECT_VERDICT " WHERE idx = (SELECT max(idx) FROM verdict WHERE idx <= ?1) AND idx + count > ?1";
  sqlite3_stmt *statement = NULL;
  enum sf_status status = sf_store_query(store, &statement, error, select, "i", index);
  if (status == SF_OK) status = sf_store_hold_row(store, statement, found, error);
  return status == SF_OK && *found ? verdict_read(store, out, statement, error) : status;
}

enum sf_status sf_store_verdict_next(struct sf_store *store, int64_t *out, int64_t index, struct sf_error *error) {
  sqlite3_stmt *statement = NULL;
  bool found = false;
  enum sf_status status =
      sf_store_query(store, &statement, error, "SELECT idx FROM verdict WHERE idx > ? ORDER BY idx LIMIT 1", "i", index);
  if (status == SF_OK) status = sf_store_hold_row(store, statement, &found, error);
  if (status == SF_OK) *out = found ? sqlite3_column_int64(statement, 0) : INT64_MAX;
  return status;
}

enum sf_status sf_store_find(struct sf_store *store, struct sf_store_finding *out, bool *found, const char *signature,
                             struct sf_error *error) {
  sqlite3_stmt *statement = NULL;
  enum sf_status status = sf_store_query(store, &statement, error, SELECT_FINDING " WHERE signature = ?", "t", signature);
  if (status == SF_OK) status = sf_store_hold_row(store, statement, found, error);
  return status == SF_OK && *found ? finding_read(store, out, statement, error) : status;
}

enum sf_status sf_store_folder(struct sf_store *store, char *out, size_t size, const char *signature, struct sf_error *error) {
  sqlite3_stmt *statement = NULL;
  bool found = false;
  enum sf_status status = sf_store_query(store, &statement, error, "SELECT name FROM folder WHERE signature = ?", "t", signature);
  if (status == SF_OK) status = sf_store_hold_row(store, statement, &found, error);
  const char *name = status == SF_OK && found ? column_text(statement, 0) : NULL;
  if (!is_folder(name)) return sf_error_set(error, SF_EINPUT, "%s: damaged: a folder's name is none", store->path);
  if (status == SF_OK) snprintf(out, size, "%s", name ? name : "");
  return status;
}

enum sf_status sf_store_shrink_count(struct sf_store *store, int64_t *out, const char *shrink_key, struct sf_error *error) {
  sqlite3_stmt *statement = NULL;
  bool found = false;
  enum sf_status status = sf_store_query(store, &statement, error, "SELECT count FROM shrink WHERE shrink_key = ?", "t", shrink_key);
  if (status == SF_OK) status = sf_store_hold_row(store, statement, &found, error);
  if (status == SF_OK) *out = found ? sqlite3_column_int64(statement, 0) : 0;
  return status;
}

enum sf_status sf_store_each_verdict(struct sf_store *store, sf_store_visit_verdict visit, void *context, struct sf_error *error) {
  struct sf_store_verdict verdict;
  sqlite3_stmt *statement = NULL;
  enum sf_status status = sf_store_query(store, &statement, error, SELECT_VERDICT " ORDER BY idx", "");
  while (sf_store_next_row(store, statement, &status, error)) {
    status = verdict_read(store, &verdict, statement, error);
    if (status == SF_OK) status = visit(context, &verdict);
  }
  return status;
}

enum sf_status sf_store_each_finding(struct sf_store *store, sf_store_visit_finding visit, void *context, struct sf_error *error) {
  struct sf_store_finding finding;
  sqlite3_stmt *statement = NULL;
  enum sf_status status = sf_store_query(store, &statement, error, SELECT_FINDING " ORDER BY idx, signature", "");
  while (sf_store_next_row(store, statement, &status, error)) {
    status = finding_read(store, &finding, statement, error);
    if (status == SF_OK) status = visit(context, &finding);
  }
  return status;
}

enum sf_status sf_store_each_further(struct sf_store *store, sf_store_visit_further visit, void *context, struct sf_error *error) {
  static const char select[] = "SELECT idx, shrink_key, signature FROM further ORDER BY idx, shrink_key";
  sqlite3_stmt *statement = NULL;
  enum sf_status status = sf_store_query(store, &statement, error, select, "");
  while (sf_store_next_row(store, statement, &status, error)) {
    const struct sf_store_further further = {
        .index = sqlite3_column_int64(statement, 0), .shrink_key = column_text(statement, 1), .signature = column_text(statement, 2)};
    if (!further.shrink_key || !*further.shrink_key || !further.signature || !*further.signature || further.index < 0)
      status = sf_error_set(error, SF_EINPUT, "%s: damaged: a further culprit of case %" PRId64 " has no key or no signature", store->path,
                            further.index);
    else
      status = visit(context, &further);
  }
  return status;
}

enum sf_status sf_store_each_unused_folder(struct sf_store *store, sf_store_visit_folder visit, void *context, struct sf_error *error) {
  static const char select[] =
      "SELECT signature, name FROM folder WHERE signature NOT IN (SELECT signature FROM finding) ORDER BY signature";
  sqlite3_stmt *statement = NULL;
  enum sf_status status = sf_store_query(store, &statement, error, select, "");
  while (sf_store_next_row(store, statement, &status, error)) {
    const char *signature = column_text(statement, 0), *name = column_text(statement, 1);
    if (!signature || !name || !is_folder(name))
      status = sf_error_set(error, SF_EINPUT, "%s: damaged: a folder's name is none", store->path);
    else
      status = visit(context, signature, name);
  }
  return status;
}

enum sf_status sf_store_pairs(struct sf_store *store, char **out, struct sf_error *error) {
  return sf_store_query_text(store, out, "SELECT coalesce((SELECT value FROM meta WHERE key = 'pairs'), '')", "meta.pairs", error);
}

const char *sf_store_campaign(const struct sf_store *store) { return store->campaign; }

static enum sf_status summary_add(void *context, const struct sf_store_verdict *verdict) {
  struct sf_store_summary *summary = context;
  char *last = verdict->verdict == SF_VERDICT_SKIP           ? summary->skip_reason
               : verdict->verdict == SF_VERDICT_INCONCLUSIVE ? summary->inconclusive_reason
                                                             : NULL;
  if (last && verdict->reason) snprintf(last, SF_STORE_REASON_TEXT, "%s", verdict->reason);
  summary->cases += verdict->count;
  summary->by_verdict[verdict->verdict] += verdict->count;
  if (verdict->cls >= 0) summary->by_class[verdict->cls]++;
  summary->flaky += verdict->flaky;
  summary->checked += verdict->checked;
  summary->unchecked += verdict->unchecked;
  summary->seconds += verdict->seconds;
  for (int i = 0; i < SF_FEATURES_MAX; i++) summary->by_feature[i] += sf_feature_mask_has(&verdict->features, i);
  return SF_OK;
}

enum sf_status sf_store_summarise(struct sf_store *store, struct sf_store_summary *out, struct sf_error *error) {
  struct sf_store_summary summary = {.high_water = store->high_water};
  enum sf_status status = sf_store_each_verdict(store, summary_add, &summary, error);
  if (status == SF_OK) status = sf_store_query_int(store, &summary.signatures, "SELECT count(*) FROM finding", error);
  if (status == SF_OK)
    status = sf_store_query_int(store, &summary.signatures_known, "SELECT count(*) FROM finding WHERE state = 'known'", error);
  if (status == SF_OK) *out = summary;
  return status;
}
