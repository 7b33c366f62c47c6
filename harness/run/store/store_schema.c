/* Tables of the store, and the options it was made with. */
#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/base/bytes.h"
#include "harness/run/store/store_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* "SFZ1" in the header's application id tells a store from other SQLite files; user_version is the version of the tables. */
enum { APPLICATION_ID = 0x53465a31 };

enum sf_status sf_store_schema_check(struct sf_store *store, int64_t *version, struct sf_error *error) {
  static const char count_tables[] =
      "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN ('meta', 'verdict', 'finding', 'further', 'shrink')";
  int64_t application = 0, tables = 0, has_tables = 0;
  enum sf_status status = sf_store_query_int(store, &application, "PRAGMA application_id", error);
  if (status == SF_OK) status = sf_store_query_int(store, version, "PRAGMA user_version", error);
  if (status == SF_OK) status = sf_store_query_int(store, &tables, "SELECT count(*) FROM sqlite_master", error);
  if (status != SF_OK || (application == 0 && *version == 0 && tables == 0)) return status;
  if (application != APPLICATION_ID) return sf_error_set(error, SF_EINPUT, "%s: not a shardfuzz store", store->path);
  if (*version < SF_STORE_VERSION_MIN || *version > SF_STORE_VERSION) {
    return sf_error_set(error, SF_EINPUT, "%s: a store of schema version %" PRId64 "; this shardfuzz reads versions %d to %d", store->path,
                        *version, SF_STORE_VERSION_MIN, SF_STORE_VERSION);
  }
  status = sf_store_query_int(store, &has_tables, count_tables, error);
  if (status == SF_OK && has_tables != (*version < 4 ? 4 : 5))
    return sf_error_set(error, SF_EINPUT, "%s: damaged: tables are missing", store->path);
  return status;
}

/* The names with a newline after each: also a valid text to compare line by line. */
static void features_text(struct sf_text *out, const struct sf_store_options *options) {
  sf_text_append(out, "%s", "");
  for (int32_t bit = 0; bit < options->feature_count; bit++) sf_text_append(out, "%s\n", options->feature_names[bit]);
}

static void share_text(char *out, size_t out_size, const struct sf_store_options *options) {
  const int64_t block = options->share_block;
  const int length = snprintf(out, out_size, "%d/%d", options->share_index, options->share_count == 0 ? 1 : options->share_count);
  if (block != 0 && block != SF_STORE_SHARE_BLOCK && options->share_count > 1)
    snprintf(out + length, out_size - (size_t)length, " of %" PRId64, block);
}

enum sf_status sf_store_schema_create(struct sf_store *store, const struct sf_store_options *options, struct sf_error *error) {
  static const char insert[] = "INSERT INTO meta(key, value) VALUES('campaign', coalesce(?, '')), ('features', coalesce(?, '')),"
                               " ('share', ?), ('high_water', 0)";
  struct sf_text features = {0};
  char share[64], identity[96];
  features_text(&features, options);
  share_text(share, sizeof share, options);
  snprintf(identity, sizeof identity, "PRAGMA application_id = %d; PRAGMA user_version = %d;", APPLICATION_ID, SF_STORE_VERSION);
  enum sf_status status = features.failed ? sf_error_set(error, SF_ENOMEM, "%s: out of memory", store->path) : SF_OK;
  if (status == SF_OK) status = sf_store_exec(store, "CREATE TABLE meta(key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID", error);
  if (status == SF_OK) status = sf_store_exec(store, sf_store_tables, error);
  if (status == SF_OK) status = sf_store_exec(store, identity, error);
  if (status == SF_OK) status = sf_store_write(store, error, insert, "ttt", options->campaign, features.data, share);
  sf_text_destroy(&features);
  return status;
}

enum sf_status sf_store_schema_upgrade(struct sf_store *store, int64_t version, struct sf_error *error) {
  /* What is wrong, as the report of a finding tells it. */
#define BEHIND_WHAT "substr(report, instr(report, char(10) || 'what         ') + 14)"
#define WHAT_OF_REPORT "substr(" BEHIND_WHAT ", 1, instr(" BEHIND_WHAT " || char(10), char(10)) - 1)"
  static const char of_version_3[] = "ALTER TABLE finding ADD COLUMN diagnosis_class TEXT; ALTER TABLE finding ADD COLUMN diagnosis TEXT;"
                                     "ALTER TABLE finding ADD COLUMN diagnosis_left REAL;";
  static const char of_version_4[] = "ALTER TABLE finding ADD COLUMN min_idx INTEGER; ALTER TABLE finding ADD COLUMN trials INTEGER;"
                                     "ALTER TABLE finding ADD COLUMN trials_max INTEGER; ALTER TABLE finding ADD COLUMN minimal INTEGER;"
                                     "UPDATE finding SET min_idx = idx WHERE min_json IS NOT NULL;";
  static const char of_version_5[] = "ALTER TABLE verdict ADD COLUMN count INTEGER NOT NULL DEFAULT 1;"
                                     "ALTER TABLE finding ADD COLUMN what TEXT; UPDATE finding SET what = " WHAT_OF_REPORT ";";
  static const char of_version_6[] = "ALTER TABLE finding ADD COLUMN shown TEXT;";
  static const char of_version_7[] = "ALTER TABLE finding ADD COLUMN diagnosis_cause TEXT;";
  static const char of_version_8[] = "ALTER TABLE finding ADD COLUMN steps TEXT; ALTER TABLE verdict ADD COLUMN closest REAL;"
                                     "ALTER TABLE verdict ADD COLUMN unjudged TEXT;";
  static const char of_version_9[] = "ALTER TABLE finding ADD COLUMN contrast TEXT;";
  static const char of_version_10[] = "ALTER TABLE finding ADD COLUMN operation TEXT;";
  char identity[48];
  int64_t has_reasons = 0; /* a column that came without a new version */
  snprintf(identity, sizeof identity, "PRAGMA user_version = %d;", SF_STORE_VERSION);
  enum sf_status status =
      sf_store_query_int(store, &has_reasons, "SELECT count(*) FROM pragma_table_info('verdict') WHERE name = 'reason'", error);
  if (status == SF_OK && version < 3) status = sf_store_exec(store, of_version_3, error);
  if (status == SF_OK && version < 4) status = sf_store_exec(store, of_version_4, error);
  if (status == SF_OK && version < 4) status = sf_store_exec(store, sf_store_further_tables, error);
  if (status == SF_OK && !has_reasons) status = sf_store_exec(store, "ALTER TABLE verdict ADD COLUMN reason TEXT", error);
  if (status == SF_OK && version < 5) status = sf_store_exec(store, of_version_5, error);
  if (status == SF_OK && version < 6) status = sf_store_exec(store, of_version_6, error);
  if (status == SF_OK && version < 7) status = sf_store_exec(store, of_version_7, error);
  if (status == SF_OK && version < 8) status = sf_store_exec(store, of_version_8, error);
  if (status == SF_OK && version < 9) status = sf_store_exec(store, of_version_9, error);
  if (status == SF_OK) status = sf_store_exec(store, of_version_10, error);
  return status == SF_OK ? sf_store_exec(store, identity, error) : status;
}

static enum sf_status meta_text(struct sf_store *store, char **out, const char *key, struct sf_error *error) {
  char sql[96], what[48];
  snprintf(sql, sizeof sql, "SELECT value FROM meta WHERE key = '%s'", key);
  snprintf(what, sizeof what, "meta.%s", key);
  return sf_store_query_text(store, out, sql, what, error);
}

/* Cuts the stored names at their newlines. */
static enum sf_status feature_names_split(struct sf_store *store, struct sf_error *error) {
  store->feature_text = sf_strdup(store->features);
  if (store->feature_text == NULL) return sf_error_set(error, SF_ENOMEM, "%s: out of memory", store->path);
  for (char *at = store->feature_text; *at != '\0';) {
    char *end = strchr(at, '\n');
    if (end == NULL || store->feature_count == SF_STORE_FEATURES_MAX) {
      return sf_error_set(error, SF_EINPUT, "%s: damaged: meta.features", store->path);
    }
    *end = '\0';
    store->feature_names[store->feature_count++] = at;
    at = end + 1;
  }
  return SF_OK;
}

enum sf_status sf_store_meta_read(struct sf_store *store, struct sf_error *error) {
  enum sf_status status = meta_text(store, &store->campaign, "campaign", error);
  if (status == SF_OK) status = meta_text(store, &store->features, "features", error);
  if (status == SF_OK) status = meta_text(store, &store->share, "share", error);
  if (status == SF_OK) status = feature_names_split(store, error);
  store->share_block = SF_STORE_SHARE_BLOCK;
  if (status == SF_OK && (sscanf(store->share, "%" SCNd32 "/%" SCNd32 " of %" SCNd64, &store->share_index, &store->share_count,
                                 &store->share_block) < 2 ||
                          store->share_index < 0 || store->share_index >= store->share_count || store->share_block < 1)) {
    status = sf_error_set(error, SF_EINPUT, "%s: damaged: meta.share", store->path);
  }
  if (status == SF_OK) {
    status = sf_store_query_int(store, &store->high_water, "SELECT value FROM meta WHERE key = 'high_water' AND typeof(value) = 'integer'",
                                error);
  }
  if (status == SF_OK && store->high_water < 0) status = sf_error_set(error, SF_EINPUT, "%s: damaged: meta.high_water", store->path);
  return status;
}

/* Length of the first line of text without its newline. */
static int line_length(const char *text) { return (int)strcspn(text, "\n"); }

/* SF_EUSAGE with the first line that differs; a line "key=value" is shown as key: stored, wanted. */
static enum sf_status lines_compare(const char *path, const char *what, const char *stored, const char *wanted, struct sf_error *error) {
  while (*stored != '\0' || *wanted != '\0') {
    const int stored_length = line_length(stored), wanted_length = line_length(wanted);
    if (stored_length != wanted_length || memcmp(stored, wanted, (size_t)stored_length) != 0) {
      return sf_error_set(error, SF_EUSAGE, "%s: made with another %s: \"%.*s\", not \"%.*s\"", path, what, stored_length, stored,
                          wanted_length, wanted);
    }
    stored += stored_length + (stored[stored_length] == '\n');
    wanted += wanted_length + (wanted[wanted_length] == '\n');
  }
  return SF_OK;
}

enum sf_status sf_store_meta_compare(const struct sf_store *store, const struct sf_store_options *options, struct sf_error *error) {
  struct sf_text features = {0};
  char share[64];
  share_text(share, sizeof share, options);
  features_text(&features, options);
  enum sf_status status = features.failed ? sf_error_set(error, SF_ENOMEM, "%s: out of memory", store->path) : SF_OK;
  if (status == SF_OK) status = lines_compare(store->path, "option", store->campaign, options->campaign, error);
  if (status == SF_OK) status = lines_compare(store->path, "list of features", store->features, features.data, error);
  if (status == SF_OK) status = lines_compare(store->path, "share of the cases", store->share, share, error);
  sf_text_destroy(&features);
  return status;
}

/* What follows "seed=" in a store's options, up to the end of the line; NULL where they have no seed. */
static const char *seeds_of(const struct sf_store *store) {
  static const char key[] = "seed=";
  const char *line = store->campaign;
  while (*line != '\0' && strncmp(line, key, sizeof key - 1) != 0) line += line_length(line) + (line[line_length(line)] == '\n');
  return *line == '\0' ? NULL : line + sizeof key - 1;
}

void sf_store_seeds(char *out, size_t size, const struct sf_store *store) {
  const char *seeds = seeds_of(store);
  snprintf(out, size, "%.*s", seeds == NULL ? 0 : line_length(seeds), seeds == NULL ? "" : seeds);
}

char *sf_store_campaign_of_seeds(const struct sf_store *store, const char *seeds) {
  const char *own = seeds_of(store);
  struct sf_text text = {0};
  if (own == NULL) return sf_strdup(store->campaign);
  sf_text_append(&text, "%.*s%s%s", (int)(own - store->campaign), store->campaign, seeds, own + line_length(own));
  if (text.failed) sf_text_destroy(&text);
  return text.data;
}

enum sf_status sf_store_meta_compare_stores(const struct sf_store *first, const struct sf_store *other, struct sf_error *error) {
  struct sf_error reason = {SF_OK, ""};
  char *campaign = sf_store_campaign_of_seeds(first, ""), *other_campaign = sf_store_campaign_of_seeds(other, "");
  enum sf_status status = campaign == NULL || other_campaign == NULL ? sf_error_set(&reason, SF_ENOMEM, "%s: out of memory", other->path)
                                                                     : SF_OK;
  if (status == SF_OK) status = lines_compare(other->path, "option than the first store", other_campaign, campaign, &reason);
  if (status == SF_OK)
    status = lines_compare(other->path, "list of features than the first store", other->features, first->features, &reason);
  sf_free(campaign);
  sf_free(other_campaign);
  if (status == SF_OK) return SF_OK;
  return sf_error_set(error, status, "%.400s; stores that are joined have the same options but for --seed and --share", reason.text);
}
