/* Verdicts, findings and shrink counts: writing, reading, summing. */
#include "harness/base/assert.h"
#include "harness/run/store/store_internal.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* --- writing -------------------------------------------------------------------------------------------------------------- */

/* Starts a batch and gets a statement of it. */
static enum sf_status batch_statement(struct sf_store *store, sqlite3_stmt **out, enum sf_store_statement which, struct sf_error *error) {
  const enum sf_status status = sf_store_batch(store, error);
  return status == SF_OK ? sf_store_statement(store, out, which, error) : status;
}

/* The first failure of several bindings; parameters are numbered from 1 in the order of the calls. */
struct binder {
  sqlite3_stmt *statement;
  int at, code;
};

static void bind_int(struct binder *binder, int64_t value) {
  binder->at++;
  if (binder->code == SQLITE_OK) binder->code = sqlite3_bind_int64(binder->statement, binder->at, value);
}

static void bind_text(struct binder *binder, const char *text) {
  binder->at++;
  if (binder->code == SQLITE_OK) binder->code = sf_store_bind_text(binder->statement, binder->at, text);
}

static void bind_real(struct binder *binder, double value) {
  binder->at++;
  if (binder->code == SQLITE_OK) binder->code = sqlite3_bind_double(binder->statement, binder->at, value);
}

enum sf_status sf_store_add_verdict(struct sf_store *store, const struct sf_store_verdict *verdict, struct sf_error *error) {
  SF_ASSERT_LE(0, verdict->index);
  const int64_t count = verdict->count ? verdict->count : 1;
  SF_ASSERT(count == 1 || verdict->verdict == SF_VERDICT_PASS);
  SF_ASSERT_LE(verdict->index + count, store->high_water);
  SF_ASSERT_LT(verdict->cls, SF_CLASS_COUNT);
  struct binder binder = {0};
  enum sf_status status = batch_statement(store, &binder.statement, SF_STORE_SQL_VERDICT_INSERT, error);
  if (status != SF_OK) return sf_store_batch_drop(store, status);
  bind_int(&binder, verdict->index);
  bind_text(&binder, sf_verdict_name(verdict->verdict));
  bind_text(&binder, verdict->cls < 0 ? NULL : sf_finding_class_name((enum sf_finding_class)verdict->cls));
  bind_text(&binder, verdict->shrink_key);
  bind_text(&binder, verdict->signature);
  bind_text(&binder, verdict->label);
  bind_text(&binder, verdict->module);
  bind_int(&binder, verdict->rank);
  bind_int(&binder, verdict->ranks);
  bind_int(&binder, verdict->layers);
  for (int i = 0; i < 2; i++) bind_int(&binder, (int64_t)verdict->features.words[i]);
  bind_int(&binder, verdict->checked);
  bind_int(&binder, verdict->unchecked);
  bind_real(&binder, verdict->seconds >= 0 ? verdict->seconds : 0); /* SQLite would store NaN as NULL */
  bind_int(&binder, verdict->flaky);
  bind_text(&binder, verdict->reason);
  bind_int(&binder, count);
  status = sf_store_step_done(store, binder.statement, binder.code, error);
  if (status != SF_OK && sqlite3_extended_errcode(store->db) == SQLITE_CONSTRAINT_PRIMARYKEY) {
    status = sf_error_set(error, SF_EUSAGE, "%s: case %" PRId64 " has a verdict already", store->path, verdict->index);
  }
  return status == SF_OK ? SF_OK : sf_store_batch_drop(store, status);
}

enum sf_status sf_store_set_signature(struct sf_store *store, int64_t index, const char *signature, struct sf_error *error) {
  struct binder binder = {0};
  enum sf_status status = batch_statement(store, &binder.statement, SF_STORE_SQL_VERDICT_SIGN, error);
  if (status != SF_OK) return sf_store_batch_drop(store, status);
  bind_int(&binder, index);
  bind_text(&binder, signature);
  status = sf_store_step_done(store, binder.statement, binder.code, error);
  if (status != SF_OK) return sf_store_batch_drop(store, status);
  if (sqlite3_changes(store->db) == 0) return sf_error_set(error, SF_ENOTFOUND, "%s: case %" PRId64 " has no verdict", store->path, index);
  return SF_OK;
}

enum sf_status sf_store_add_finding(struct sf_store *store, const struct sf_store_finding *finding, struct sf_error *error) {
  SF_ASSERT(finding->signature != NULL && finding->signature[0] != '\0');
  SF_ASSERT(finding->shrink_key != NULL && finding->shrink_key[0] != '\0');
  SF_ASSERT(finding->case_json != NULL && finding->case_json[0] != '\0');
  struct binder binder = {0};
  enum sf_status status = batch_statement(store, &binder.statement, SF_STORE_SQL_FINDING_UPSERT, error);
  if (status != SF_OK) return sf_store_batch_drop(store, status);
  bind_text(&binder, finding->signature);
  bind_text(&binder, finding->shrink_key);
  bind_int(&binder, finding->index);
  bind_text(&binder, finding->case_json);
  bind_text(&binder, finding->min_json);
  if (finding->min_json)
    bind_int(&binder, finding->min_index);
  else
    bind_text(&binder, NULL);
  bind_int(&binder, finding->trials);
  bind_int(&binder, finding->trials_max);
  bind_int(&binder, finding->minimal);
  bind_text(&binder, finding->report);
  bind_text(&binder, finding->known ? "known" : "new");
  bind_text(&binder, *finding->diagnosis.text ? sf_diagnosis_class_name(finding->diagnosis.cls) : NULL);
  bind_text(&binder, finding->diagnosis.text);
  bind_real(&binder, finding->diagnosis.left);
  bind_text(&binder, finding->what);
  status = sf_store_step_done(store, binder.statement, binder.code, error);
  return status == SF_OK ? SF_OK : sf_store_batch_drop(store, status);
}

enum sf_status sf_store_add_further(struct sf_store *store, const struct sf_store_further *further, struct sf_error *error) {
  SF_ASSERT(further->shrink_key[0] != '\0' && further->signature[0] != '\0');
  struct binder binder = {0};
  enum sf_status status = batch_statement(store, &binder.statement, SF_STORE_SQL_FURTHER_INSERT, error);
  if (status != SF_OK) return sf_store_batch_drop(store, status);
  bind_int(&binder, further->index);
  bind_text(&binder, further->shrink_key);
  bind_text(&binder, further->signature);
  status = sf_store_step_done(store, binder.statement, binder.code, error);
  return status == SF_OK ? SF_OK : sf_store_batch_drop(store, status);
}

enum sf_status sf_store_set_folder(struct sf_store *store, const char *signature, const char *folder, struct sf_error *error) {
  struct binder binder = {0};
  enum sf_status status = batch_statement(store, &binder.statement, SF_STORE_SQL_FOLDER_SET, error);
  if (status != SF_OK) return sf_store_batch_drop(store, status);
  bind_text(&binder, signature);
  bind_text(&binder, folder);
  status = sf_store_step_done(store, binder.statement, binder.code, error);
  return status == SF_OK ? sf_store_commit(store, error) : sf_store_batch_drop(store, status);
}

enum sf_status sf_store_add_shrinks(struct sf_store *store, const char *shrink_key, int64_t count, struct sf_error *error) {
  SF_ASSERT(shrink_key[0] != '\0');
  struct binder binder = {0};
  enum sf_status status = batch_statement(store, &binder.statement, SF_STORE_SQL_SHRINK_ADD, error);
  if (status != SF_OK) return sf_store_batch_drop(store, status);
  bind_text(&binder, shrink_key);
  bind_int(&binder, count);
  status = sf_store_step_done(store, binder.statement, binder.code, error);
  return status == SF_OK ? SF_OK : sf_store_batch_drop(store, status);
}

enum sf_status sf_store_add_shrink(struct sf_store *store, const char *shrink_key, struct sf_error *error) {
  return sf_store_add_shrinks(store, shrink_key, 1, error);
}

/* --- reading -------------------------------------------------------------------------------------------------------------- */

static const char *column_text(sqlite3_stmt *statement, int at) { return (const char *)sqlite3_column_text(statement, at); }

/* -1 when the text is no name. */
static int32_t verdict_from_name(const char *name) {
  for (int32_t verdict = 0; name != NULL && verdict < SF_VERDICT_COUNT; verdict++) {
    if (strcmp(name, sf_verdict_name((enum sf_verdict)verdict)) == 0) return verdict;
  }
  return -1;
}

static int32_t class_from_name(const char *name) {
  for (int32_t cls = 0; name != NULL && cls < SF_CLASS_COUNT; cls++) {
    if (strcmp(name, sf_finding_class_name((enum sf_finding_class)cls)) == 0) return cls;
  }
  return -1;
}

static enum sf_diagnosis_class diagnosis_from_name(const char *name) {
  for (int cls = 0; name != NULL && cls < SF_DIAGNOSIS_COUNT; cls++) {
    if (strcmp(name, sf_diagnosis_class_name((enum sf_diagnosis_class)cls)) == 0) return (enum sf_diagnosis_class)cls;
  }
  return SF_DIAGNOSIS_UNKNOWN;
}

/* Columns in the order of store_sql.c. */
static enum sf_status verdict_from_row(const struct sf_store *store, struct sf_store_verdict *out, sqlite3_stmt *row,
                                       struct sf_error *error) {
  const int32_t verdict = verdict_from_name(column_text(row, 1)), cls = class_from_name(column_text(row, 2));
  if (verdict < 0 || (cls < 0 && column_text(row, 2) != NULL)) {
    return sf_error_set(error, SF_EINPUT, "%s: damaged: case %" PRId64 " has an unknown verdict or class", store->path,
                        (int64_t)sqlite3_column_int64(row, 0));
  }
  *out = (struct sf_store_verdict){
      .index = sqlite3_column_int64(row, 0),
      .verdict = (enum sf_verdict)verdict,
      .cls = cls,
      .shrink_key = column_text(row, 3),
      .signature = column_text(row, 4),
      .label = column_text(row, 5),
      .module = column_text(row, 6),
      .rank = sqlite3_column_int(row, 7),
      .ranks = sqlite3_column_int(row, 8),
      .layers = sqlite3_column_int(row, 9),
      .features = {{(uint64_t)sqlite3_column_int64(row, 10), (uint64_t)sqlite3_column_int64(row, 11)}},
      .checked = sqlite3_column_int64(row, 12),
      .unchecked = sqlite3_column_int64(row, 13),
      .seconds = sqlite3_column_double(row, 14),
      .flaky = sqlite3_column_int(row, 15) != 0,
      .reason = column_text(row, 16),
      .count = sqlite3_column_int64(row, 17),
  };
  return SF_OK;
}

/* Whether the name is one component of a path, or NULL. */
static bool is_folder(const char *name) {
  return !name || (*name && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && strlen(name) <= NAME_MAX);
}

static enum sf_status finding_from_row(const struct sf_store *store, struct sf_store_finding *out, sqlite3_stmt *row,
                                       struct sf_error *error) {
  const char *state = column_text(row, 6);
  static const int needed[] = {0, 1, 3}; /* signature, shrink_key, case_json */
  for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
    const int at = needed[i];
    if (column_text(row, at) && *column_text(row, at)) continue;
    return sf_error_set(error, SF_EINPUT, "%s: damaged: the finding of case %" PRId64 " has no %s", store->path,
                        (int64_t)sqlite3_column_int64(row, 2), sqlite3_column_name(row, at));
  }
  if (!is_folder(column_text(row, 15))) return sf_error_set(error, SF_EINPUT, "%s: damaged: a folder's name is none", store->path);
  *out = (struct sf_store_finding){
      .signature = column_text(row, 0),
      .shrink_key = column_text(row, 1),
      .index = sqlite3_column_int64(row, 2),
      .case_json = column_text(row, 3),
      .min_json = column_text(row, 4),
      .report = column_text(row, 5),
      .known = state != NULL && strcmp(state, "known") == 0,
      .count = sqlite3_column_int64(row, 7),
      .min_index = sqlite3_column_int64(row, 11),
      .trials = sqlite3_column_int(row, 12),
      .trials_max = sqlite3_column_int(row, 13),
      .minimal = sqlite3_column_int(row, 14) != 0,
      .folder = column_text(row, 15),
      .what = column_text(row, 16),
  };
  if (!column_text(row, 9)) return SF_OK;
  out->diagnosis.cls = diagnosis_from_name(column_text(row, 8));
  snprintf(out->diagnosis.text, sizeof out->diagnosis.text, "%s", column_text(row, 9));
  out->diagnosis.left = sqlite3_column_double(row, 10);
  return SF_OK;
}

/* Steps to the only row of a bound query and holds it for the caller. */
static enum sf_status hold_row(struct sf_store *store, sqlite3_stmt *statement, int code, bool *found, struct sf_error *error) {
  if (code == SQLITE_OK) code = sqlite3_step(statement);
  if (code != SQLITE_ROW && code != SQLITE_DONE) {
    const enum sf_status status = sf_store_error(store, code, error);
    sqlite3_reset(statement);
    return status;
  }
  store->held = statement;
  *found = code == SQLITE_ROW;
  return SF_OK;
}

enum sf_status sf_store_verdict_one(struct sf_store *store, struct sf_store_verdict *out, bool *found, int64_t index,
                                    struct sf_error *error) {
  sqlite3_stmt *statement = NULL;
  bool has_row = false;
  enum sf_status status = sf_store_statement(store, &statement, SF_STORE_SQL_VERDICT_ONE, error);
  if (status == SF_OK) status = hold_row(store, statement, sqlite3_bind_int64(statement, 1, index), &has_row, error);
  if (status == SF_OK && has_row) status = verdict_from_row(store, out, statement, error);
  if (status == SF_OK) *found = has_row;
  return status;
}

enum sf_status sf_store_verdict_next(struct sf_store *store, int64_t *out, int64_t index, struct sf_error *error) {
  sqlite3_stmt *statement = NULL;
  bool found = false;
  enum sf_status status = sf_store_statement(store, &statement, SF_STORE_SQL_VERDICT_NEXT, error);
  if (status == SF_OK) status = hold_row(store, statement, sqlite3_bind_int64(statement, 1, index), &found, error);
  if (status == SF_OK) *out = found && sqlite3_column_type(statement, 0) != SQLITE_NULL ? sqlite3_column_int64(statement, 0) : INT64_MAX;
  return status;
}

enum sf_status sf_store_find(struct sf_store *store, struct sf_store_finding *out, bool *found, const char *signature,
                             struct sf_error *error) {
  sqlite3_stmt *statement = NULL;
  enum sf_status status = sf_store_statement(store, &statement, SF_STORE_SQL_FINDING_ONE, error);
  if (status == SF_OK) status = hold_row(store, statement, sf_store_bind_text(statement, 1, signature), found, error);
  if (status == SF_OK && *found) status = finding_from_row(store, out, statement, error);
  return status;
}

enum sf_status sf_store_folder(struct sf_store *store, char *out, size_t size, const char *signature, struct sf_error *error) {
  sqlite3_stmt *statement = NULL;
  bool found = false;
  enum sf_status status = sf_store_statement(store, &statement, SF_STORE_SQL_FOLDER_ONE, error);
  if (status == SF_OK) status = hold_row(store, statement, sf_store_bind_text(statement, 1, signature), &found, error);
  const char *name = status == SF_OK && found ? column_text(statement, 0) : NULL;
  if (!is_folder(name)) return sf_error_set(error, SF_EINPUT, "%s: damaged: a folder's name is none", store->path);
  if (status == SF_OK) snprintf(out, size, "%s", name ? name : "");
  return status;
}

enum sf_status sf_store_shrink_count(struct sf_store *store, int64_t *out, const char *shrink_key, struct sf_error *error) {
  sqlite3_stmt *statement = NULL;
  bool found = false;
  enum sf_status status = sf_store_statement(store, &statement, SF_STORE_SQL_SHRINK_ONE, error);
  if (status == SF_OK) status = hold_row(store, statement, sf_store_bind_text(statement, 1, shrink_key), &found, error);
  if (status == SF_OK) *out = found ? sqlite3_column_int64(statement, 0) : 0;
  return status;
}

enum sf_status sf_store_each_verdict(struct sf_store *store, sf_store_visit_verdict visit, void *context, struct sf_error *error) {
  sqlite3_stmt *statement = NULL;
  enum sf_status status = sf_store_statement(store, &statement, SF_STORE_SQL_VERDICT_ALL, error);
  if (status != SF_OK) return status;
  while (sf_store_next_row(store, statement, &status, error)) {
    struct sf_store_verdict verdict;
    status = verdict_from_row(store, &verdict, statement, error);
    if (status == SF_OK) status = visit(context, &verdict);
  }
  return status;
}

enum sf_status sf_store_each_finding(struct sf_store *store, sf_store_visit_finding visit, void *context, struct sf_error *error) {
  sqlite3_stmt *statement = NULL;
  enum sf_status status = sf_store_statement(store, &statement, SF_STORE_SQL_FINDING_ALL, error);
  if (status != SF_OK) return status;
  while (sf_store_next_row(store, statement, &status, error)) {
    struct sf_store_finding finding;
    status = finding_from_row(store, &finding, statement, error);
    if (status == SF_OK) status = visit(context, &finding);
  }
  return status;
}

enum sf_status sf_store_each_further(struct sf_store *store, sf_store_visit_further visit, void *context, struct sf_error *error) {
  sqlite3_stmt *statement = NULL;
  enum sf_status status = sf_store_statement(store, &statement, SF_STORE_SQL_FURTHER_ALL, error);
  if (status != SF_OK) return status;
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
