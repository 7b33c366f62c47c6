/* Which case stands at an index of a campaign. */
#include "harness/base/alloc.h"
#include "harness/base/bytes.h"
#include "harness/base/hash.h"
#include "harness/run/campaign/campaign.h"
#include "harness/run/framework/framework_table.h"
#include "harness/run/opfuzz/op_target.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A case that contains the trigger of a known finding is drawn again, except in this share of the logical functions. */
enum { KNOWN_PERCENT = 10, REDRAWS_MAX = 16, RELAYOUTS = 8 };

/* Versions of the generator: raised when the same seed begins to draw other cases. */
enum { GENERATOR_VERSION = 4, FRAMEWORK_VERSION = 4 };

struct sf_table sf_campaign_table(const struct sf_campaign_options *options) {
  return options->framework ? sf_framework_table(options->framework) : sf_layers_table(&options->space);
}

enum sf_status sf_campaign_cover(struct sf_campaign_options *options, struct sf_error *error) {
  sf_cover_destroy(options->cover);
  options->cover = NULL;
  if (options->pool.operations) return SF_OK;
  const struct sf_table table = sf_campaign_table(options);
  return sf_cover_create(&options->cover, &table, options->seed, options->layouts, error);
}

static bool is_wanted(const struct sf_campaign_options *options, const struct sf_case *c, uint64_t block) {
  const bool known_allowed = sf_hash_u64(options->seed, block) % 100 < KNOWN_PERCENT;
  return known_allowed || !sf_known_triggered(&options->known, c);
}

enum sf_status sf_campaign_case(struct sf_case *out, const struct sf_campaign_options *options, int64_t index, struct sf_error *error) {
  const uint64_t block = (uint64_t)(index / options->layouts);
  if (options->pool.operations) {
    struct sf_op_case c;
    sf_op_case_draw(&c, options->pool.operations, options->seed, (uint64_t)index);
    sf_op_case_put(out, options->pool.operations, &c);
    return SF_OK;
  }
  /* A framework's reference costs most, so another layout of the same function is tried first. */
  const uint64_t relayouts = options->framework ? RELAYOUTS : 1;
  const struct sf_table table = sf_campaign_table(options);
  for (uint64_t attempt = 0;; attempt++) {
    /* A second draw follows no row of the covering table, whose limits may contradict it. */
    const uint64_t function = attempt / relayouts, seed = function ? sf_hash_u64(options->seed, function) : options->seed;
    const enum sf_status status =
        sf_cover_draw(out, function ? NULL : options->cover, &table, seed, options->layouts, index, attempt % relayouts, error);
    if (status != SF_OK) return status;
    if (options->plant_count) snprintf(out->plant, sizeof out->plant, "%s", options->plants[block % (uint64_t)options->plant_count]);
    if (attempt == REDRAWS_MAX * relayouts || is_wanted(options, out, block)) return SF_OK;
  }
}

enum sf_status sf_campaign_job(struct sf_job *job, const struct sf_campaign_options *options, int64_t tag, int64_t index,
                               struct sf_error *error) {
  memset(job, 0, sizeof *job);
  job->tag = tag;
  job->deadline = options->deadline;
  return sf_campaign_case(&job->c, options, index, error);
}

void sf_campaign_shrink_job(struct sf_job *job, const struct sf_campaign_options *options, int64_t tag, const struct sf_case *c,
                            const struct sf_outcome *found) {
  memset(job, 0, sizeof *job);
  job->tag = tag;
  job->kind = SF_JOB_SHRINK;
  job->budget = options->shrink_budget;
  job->contrast = options->shrink_budget < SF_CONTRAST_BUDGET ? (int32_t)options->shrink_budget : SF_CONTRAST_BUDGET;
  job->deadline = options->deadline;
  job->c = *c;
  job->was_hang = found->cls == SF_CLASS_HANG;
  memcpy(job->shrink_key, found->shrink_key, sizeof job->shrink_key);
}

static uint64_t hash_known(uint64_t hash, const struct sf_known_entry *entry) {
  hash = sf_hash_string(hash, entry->signature);
  if (entry->has_case && *entry->c.fields) return sf_hash_string(hash, entry->c.fields);
  for (int i = 0; entry->has_case && i < sf_case_field_count; i++) {
    if (sf_case_fields[i].type != SF_FIELD_TEXT) hash = sf_hash_u64(hash, (uint64_t)sf_case_field_get(&entry->c, &sf_case_fields[i]));
  }
  return hash;
}

/* Includes the worker's fields: another version of the worker draws other cases. */
static void append_framework(struct sf_text *text, const struct sf_choice_space *space) {
  const struct sf_description *description = space->description;
  uint64_t fields = 0;
  for (int32_t i = 0; i < sf_description_field_count(description); i++) {
    fields = sf_hash_u64(sf_hash_string(fields, sf_description_field_path(description, i)),
                         (uint64_t)sf_description_choice_count(description, i));
  }
  sf_text_append(text, "framework=%s\nfields=%016" PRIx64 "\nframework_ranks=%d\n", sf_description_name(description), fields,
                 space->ranks_max);
  for (int32_t i = 0; i < sf_description_field_count(description); i++) {
    if (space->is_fixed[i]) sf_text_append(text, "%s=choice %d\n", sf_description_field_path(description, i), space->fixed[i]);
  }
}

enum sf_status sf_campaign_text(char **out, const struct sf_campaign_options *options) {
  struct sf_text text = {0};
  const struct sf_space *space = &options->space;
  uint64_t known = 0;
  for (int32_t i = 0; i < options->known.count; i++) known = hash_known(known, &options->known.entries[i]);
  sf_text_append(&text, "generator=%d\nseed=%" PRIu64 "\nlayouts=%" PRId64 "\nmax_ranks=%" PRId64 "\n",
                 options->framework ? FRAMEWORK_VERSION : GENERATOR_VERSION, options->seed, options->layouts, space->max_ranks);
  if (options->pool.operations)
    sf_text_append(&text, "known=%016" PRIx64 "\ntarget=%s\nmax_elements=%" PRId64 "\n", known, options->pool.operations->name,
                   options->pool.operations->max_elements);
  else
    sf_text_append(&text, "known=%016" PRIx64 "\ntarget=%s\n", known, space->target);
  const bool is_real = options->pool.launcher || options->inside_mpi;
  sf_text_append(&text, "backend=%s\n", !is_real ? "sim" : options->pool.nccl ? "nccl" : "mpi");
  if (options->cover) sf_text_append(&text, "cover=pairs\n");
  for (int32_t i = 0; i < options->plant_count; i++) sf_text_append(&text, "plant=%s\n", options->plants[i]);
  for (int i = 0; i < SF_CASE_DRAWN; i++) {
    if (!space->is_set[i]) continue;
    sf_text_append(&text, "%s=%" PRId64 "..%" PRId64 "\n", sf_case_fields[i].path, space->set[i].lo, space->set[i].hi);
  }
  if (options->framework) append_framework(&text, options->framework);
  if (text.failed) {
    sf_text_destroy(&text);
    return SF_ENOMEM;
  }
  *out = text.data;
  return SF_OK;
}
