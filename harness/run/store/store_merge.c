/* Joining stores. */
#include "harness/base/alloc.h"
#include "harness/base/system/directories.h"
#include "harness/base/assert.h"
#include "harness/base/bytes.h"
#include "harness/run/store/store_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The seeds of the inputs, each once, in the order of the inputs. None: their options have no seed. */
struct seeds {
  uint64_t *at;
  int64_t count;
};

struct merge {
  struct sf_store *out, *in;
  struct sf_store_merge_report *report;
  struct sf_error *error;
  struct seeds seeds, of_input;
  bool one_folder;
  bool has_merged; /* an input is in `out` already */
};

/* --- seeds ------------------------------------------------------------------------------------------------------------------- */

static int64_t position_of(const struct seeds *seeds, uint64_t seed) {
  int64_t at = 0;
  while (at < seeds->count && seeds->at[at] != seed) at++;
  return at;
}

/* Adds the seeds that a store has and *seeds has not. */
static enum sf_status seeds_add(struct seeds *seeds, const struct sf_store *store, struct sf_error *error) {
  char *text = sf_strdup(store->campaign), *at = text, *end = NULL;
  if (text == NULL) return sf_error_set(error, SF_ENOMEM, "%s: out of memory", store->path);
  sf_store_seeds(text, strlen(text) + 1, store);
  enum sf_status status = SF_OK;
  for (; status == SF_OK && *at != '\0'; at = end + (*end == ',')) {
    const uint64_t seed = strtoull(at, &end, 10);
    if (end == at || (*end != '\0' && *end != ',')) {
      status = sf_error_set(error, SF_EINPUT, "%s: damaged: seed \"%s\"", store->path, at);
      break;
    }
    if (position_of(seeds, seed) < seeds->count) continue;
    uint64_t *more = sf_realloc(seeds->at, (size_t)(seeds->count + 1) * sizeof *more);
    if (more == NULL) {
      status = sf_error_set(error, SF_ENOMEM, "%s: out of memory", store->path);
      break;
    }
    seeds->at = more;
    seeds->at[seeds->count++] = seed;
  }
  sf_free(text);
  return status;
}

/* The index that a case of the input has in the output. */
static int64_t moved(const struct merge *merge, int64_t index) {
  if (merge->seeds.count < 2 || index < 0) return index;
  const bool is_joined = merge->of_input.count > 1;
  const int64_t which = is_joined ? index / SF_STORE_SEED_CASES : 0, of_seed = is_joined ? index % SF_STORE_SEED_CASES : index;
  if (which >= merge->of_input.count) return index; /* of a damaged store */
  return position_of(&merge->seeds, merge->of_input.at[which]) * SF_STORE_SEED_CASES + of_seed;
}

/* The output hands out no case below `end` again. */
static enum sf_status raise_to(const struct merge *merge, int64_t end) {
  return end > merge->out->high_water ? sf_store_high_water_raise(merge->out, end, merge->error) : SF_OK;
}

/* Several campaigns have their cases in ranges of SF_STORE_SEED_CASES; an index beyond would be in another one's. */
static enum sf_status check_range(const struct merge *merge) {
  const int64_t campaigns = merge->of_input.count;
  if (merge->seeds.count < 2 || (campaigns > 0 && merge->in->high_water <= campaigns * SF_STORE_SEED_CASES)) return SF_OK;
  return sf_error_set(merge->error, SF_EUSAGE, "%s: more than %d cases of a seed; stores of several seeds cannot hold them",
                      merge->in->path, SF_STORE_SEED_CASES);
}

/* --- rows -------------------------------------------------------------------------------------------------------------------- */

static bool same_text(const char *a, const char *b) { return strcmp(a == NULL ? "" : a, b == NULL ? "" : b) == 0; }

/* The first field in which two rows of an index differ, NULL when they agree. It compares the case and its verdict. Machines with other
 * kernels may differ in the rest: how many tensors could be judged, the time, and the tensor and rank where the same failure showed
 * first. */
static const char *verdict_difference(const struct sf_store_verdict *a, const struct sf_store_verdict *b) {
  const struct {
    const char *name;
    bool same;
  } fields[] = {
      {"verdict", a->verdict == b->verdict},
      {"class", a->cls == b->cls},
      {"signature", same_text(a->signature, b->signature)},
      {"ranks", a->ranks == b->ranks},
      {"layers", a->layers == b->layers},
      {"features", memcmp(&a->features, &b->features, sizeof a->features) == 0},
  };
  for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
    if (!fields[i].same) return fields[i].name;
  }
  return NULL;
}

static void compare(struct merge *merge, const struct sf_store_verdict *earlier, const struct sf_store_verdict *verdict, int64_t index,
                    int64_t count) {
  struct sf_store_merge_report *report = merge->report;
  const char *difference = verdict_difference(earlier, verdict);
  if (difference == NULL) {
    report->duplicates += count;
    return;
  }
  if (report->conflicts == 0)
    snprintf(report->first_conflict, sizeof report->first_conflict,
             "%s: case %" PRId64 ": %s differs from an earlier store (%s %s, not %s %s)", merge->in->path, index, difference,
             sf_verdict_name(verdict->verdict), verdict->signature == NULL ? "" : verdict->signature, sf_verdict_name(earlier->verdict),
             earlier->signature == NULL ? "" : earlier->signature);
  report->conflicts += count;
}

/* The cases [first, first + count) of a row. Totals over all of its cases are divided evenly. */
static struct sf_store_verdict part_of(const struct sf_store_verdict *row, int64_t first, int64_t count) {
  const int64_t before = first - row->index, after = before + count;
  struct sf_store_verdict part = *row;
  part.index = first;
  part.count = count;
  part.checked = row->checked * after / row->count - row->checked * before / row->count;
  part.unchecked = row->unchecked * after / row->count - row->unchecked * before / row->count;
  part.seconds = row->seconds * (double)count / (double)row->count;
  return part;
}

static int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }

static struct sf_store_verdict verdict_moved(const struct merge *merge, const struct sf_store_verdict *row) {
  struct sf_store_verdict verdict = *row;
  verdict.index = moved(merge, row->index);
  return verdict;
}

/* Compares the row with the rows that an earlier store has for its cases, and adds the cases in between. */
static enum sf_status merge_verdict(void *context, const struct sf_store_verdict *row) {
  struct merge *merge = context;
  const struct sf_store_verdict shifted = verdict_moved(merge, row), *verdict = &shifted;
  const int64_t end = verdict->index + verdict->count;
  enum sf_status status = raise_to(merge, end);
  for (int64_t at = verdict->index, next = end; status == SF_OK && at < end; at = next) {
    struct sf_store_verdict earlier;
    bool found = false;
    status = sf_store_verdict_one(merge->out, &earlier, &found, at, merge->error);
    if (status == SF_OK && found) {
      next = min_i64(end, earlier.index + earlier.count);
      compare(merge, &earlier, verdict, at, next - at);
    } else if (status == SF_OK) {
      status = sf_store_verdict_next(merge->out, &next, at, merge->error);
      if (status != SF_OK) break;
      next = min_i64(end, next);
      const struct sf_store_verdict part = part_of(verdict, at, next - at);
      merge->report->verdicts += next - at;
      status = sf_store_add_verdict(merge->out, &part, merge->error);
    }
  }
  return status;
}

static enum sf_status merge_finding(void *context, const struct sf_store_finding *finding) {
  const struct merge *merge = context;
  char folder[SF_PATH_TEXT] = "";
  struct sf_store_finding shifted = *finding;
  shifted.index = moved(merge, finding->index);
  shifted.min_index = moved(merge, finding->min_index);
  enum sf_status status = raise_to(merge, shifted.index + 1);
  if (status == SF_OK) status = sf_store_add_finding(merge->out, &shifted, merge->error);
  if (status != SF_OK || !merge->one_folder || finding->folder == NULL) return status;
  status = sf_store_folder(merge->out, folder, sizeof folder, finding->signature, merge->error);
  if (status != SF_OK || *folder != '\0') return status; /* an earlier input's */
  return sf_store_set_folder(merge->out, finding->signature, finding->folder, merge->error);
}

static enum sf_status merge_further(void *context, const struct sf_store_further *further) {
  const struct merge *merge = context;
  struct sf_store_further shifted = *further;
  shifted.index = moved(merge, further->index);
  const enum sf_status status = raise_to(merge, shifted.index + 1);
  return status == SF_OK ? sf_store_add_further(merge->out, &shifted, merge->error) : status;
}

static enum sf_status merge_shrinks(const struct merge *merge) {
  static const char select[] = "SELECT shrink_key, count FROM shrink ORDER BY shrink_key";
  sqlite3_stmt *statement = NULL;
  enum sf_status status = sf_store_query(merge->in, &statement, merge->error, select, "");
  while (sf_store_next_row(merge->in, statement, &status, merge->error)) {
    const char *shrink_key = (const char *)sqlite3_column_text(statement, 0);
    status = shrink_key && *shrink_key
                 ? sf_store_add_shrinks(merge->out, shrink_key, sqlite3_column_int64(statement, 1), merge->error)
                 : sf_error_set(merge->error, SF_EINPUT, "%s: damaged: a count of shrinks without a key", merge->in->path);
  }
  return status;
}

/* Stores of one campaign note the same pairs, and differ only in which of them have run: 'o' here, 'x' there. False: they are not of one
 * kind. */
static bool join_pairs(char *earlier, const char *other) {
  if (strlen(earlier) != strlen(other)) return false;
  for (char *at = earlier; *at != '\0'; at++, other++) {
    if (*at == *other) continue;
    if (!((*at == 'o' && *other == 'x') || (*at == 'x' && *other == 'o'))) return false;
    *at = 'x';
  }
  return true;
}

/* Where a store has no note of pairs, or another kind, the joined one has none: it would be about a part of the cases. */
static enum sf_status merge_pairs(struct merge *merge) {
  char *earlier = NULL, *other = NULL;
  enum sf_status status = sf_store_pairs(merge->out, &earlier, merge->error);
  if (status == SF_OK) status = sf_store_pairs(merge->in, &other, merge->error);
  if (status == SF_OK && merge->has_merged)
    status = sf_store_set_pairs(merge->out, join_pairs(earlier, other) ? earlier : "", merge->error);
  else if (status == SF_OK)
    status = sf_store_set_pairs(merge->out, other, merge->error);
  merge->has_merged = true;
  sf_free(earlier);
  sf_free(other);
  return status;
}

static enum sf_status merge_one(struct merge *merge) {
  merge->of_input.count = 0;
  enum sf_status status = seeds_add(&merge->of_input, merge->in, merge->error);
  if (status == SF_OK) status = check_range(merge);
  if (status == SF_OK && merge->of_input.count < 2) status = raise_to(merge, moved(merge, merge->in->high_water - 1) + 1);
  if (status == SF_OK) status = sf_store_each_verdict(merge->in, merge_verdict, merge, merge->error);
  if (status == SF_OK) status = sf_store_each_finding(merge->in, merge_finding, merge, merge->error);
  if (status == SF_OK) status = sf_store_each_further(merge->in, merge_further, merge, merge->error);
  if (status == SF_OK) status = merge_shrinks(merge);
  if (status == SF_OK) status = merge_pairs(merge);
  return status == SF_OK ? sf_store_commit(merge->out, merge->error) : status;
}

static enum sf_status inputs_open(struct sf_store **inputs, const char *const *in_paths, int32_t in_count, struct sf_error *error) {
  for (int32_t i = 0; i < in_count; i++) {
    enum sf_status status = sf_store_open(&inputs[i], &(struct sf_store_options){.path = in_paths[i], .mode = SF_STORE_READ}, error);
    if (status == SF_OK) status = sf_store_meta_compare_stores(inputs[0], inputs[i], error);
    if (status != SF_OK) return status;
  }
  return SF_OK;
}

/* A new store of the inputs' campaigns, all shares. */
static enum sf_status output_create(struct merge *merge, const char *path, const struct sf_store *like) {
  struct sf_text seeds = {0};
  for (int64_t i = 0; i < merge->seeds.count; i++) sf_text_append(&seeds, "%s%" PRIu64, i == 0 ? "" : ",", merge->seeds.at[i]);
  char *campaign = seeds.failed ? NULL : sf_store_campaign_of_seeds(like, seeds.data == NULL ? "" : seeds.data);
  const struct sf_store_options options = {
      .path = path,
      .mode = SF_STORE_CREATE,
      .campaign = campaign,
      .feature_names = like->feature_names,
      .feature_count = like->feature_count,
  };
  const enum sf_status status = campaign == NULL ? sf_error_set(merge->error, SF_ENOMEM, "%s: out of memory", path)
                                                 : sf_store_open(&merge->out, &options, merge->error);
  sf_free(campaign);
  sf_text_destroy(&seeds);
  return status;
}

/* Empties the log into the file. Closing would do so too, but could not report a failure. */
static enum sf_status output_finish(struct sf_store *out, struct sf_error *error) {
  int64_t is_busy = 0;
  const enum sf_status status = sf_store_query_int(out, &is_busy, "PRAGMA wal_checkpoint(TRUNCATE)", error);
  if (status == SF_OK && is_busy != 0) return sf_error_set(error, SF_EIO, "%s: locked by another process", out->path);
  return status;
}

/* Moves the finished file to its path; link refuses to replace a file that appeared meanwhile. */
static enum sf_status output_publish(const char *part_path, const char *out_path, struct sf_error *error) {
  if (link(part_path, out_path) != 0)
    return sf_error_set(error, errno == EEXIST ? SF_EUSAGE : SF_EIO, "%s: cannot create: %s", out_path, strerror(errno));
  return SF_OK;
}

enum sf_status sf_store_merge(struct sf_store_merge_report *report, const char *out_path, const char *const *in_paths, int32_t in_count,
                              bool one_folder, struct sf_error *error) {
  SF_ASSERT_LT(0, in_count);
  struct sf_store_merge_report counts = {0};
  struct merge merge = {.report = &counts, .one_folder = one_folder, .error = error};
  struct sf_text part_path = {0};
  enum sf_status status = SF_OK;
  if (access(out_path, F_OK) == 0) return sf_error_set(error, SF_EUSAGE, "%s: exists already", out_path);
  struct sf_store **inputs = sf_alloc((size_t)in_count * sizeof *inputs);
  sf_text_append(&part_path, "%s.%ld.part", out_path, (long)getpid());
  if (inputs == NULL || part_path.failed) {
    status = sf_error_set(error, SF_ENOMEM, "%s: out of memory", out_path);
    goto done;
  }
  status = inputs_open(inputs, in_paths, in_count, error);
  for (int32_t i = 0; status == SF_OK && i < in_count; i++) status = seeds_add(&merge.seeds, inputs[i], error);
  if (status == SF_OK) status = output_create(&merge, part_path.data, inputs[0]);
  for (int32_t i = 0; status == SF_OK && i < in_count; i++) {
    merge.in = inputs[i];
    status = merge_one(&merge);
  }
  const bool created = merge.out != NULL;
  counts.campaigns = merge.seeds.count;
  if (status == SF_OK) sf_store_seeds(counts.seeds, sizeof counts.seeds, merge.out);
  if (status == SF_OK) status = output_finish(merge.out, error);
  sf_store_close(merge.out);
  if (status == SF_OK) status = output_publish(part_path.data, out_path, error);
  if (created) sf_store_remove_files(part_path.data);
  if (status == SF_OK) *report = counts;
done:
  for (int32_t i = 0; inputs != NULL && i < in_count; i++) sf_store_close(inputs[i]);
  sf_free(inputs);
  sf_free(merge.seeds.at);
  sf_free(merge.of_input.at);
  sf_text_destroy(&part_path);
  return status;
}
