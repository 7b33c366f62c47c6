/* space: what the first cases of a campaign would reach, without running them. */
#include "harness/run/commands/command_common.h"
#include "harness/run/commands/commands.h"
#include "harness/run/support/json.h"
#include "harness/run/trial/features.h"

#include "harness/base/sinks.h"
#include "targets/builtin/faults/plants.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct space_flags {
  struct sf_common_flags common;
  int64_t cases;
};

enum { CASES_DEFAULT = 1000 };

static const struct sf_option options[] = {
    SF_NUMBER_AT(struct space_flags, "cases", cases, 1, 100000000, "count this many cases; default 1000"),
    SF_DRAW_OPTIONS(struct space_flags, common),
    SF_OPTION_AT(struct space_flags, "json", FLAG, common.json, NULL, "print one JSON object as the last line of stdout"),
};

/* How many cases have something, and the index of the first; -1: none has it. */
struct tally {
  int64_t cases, first;
};
struct counts {
  int64_t cases;
  struct sf_cover_shares cover;
  struct tally plants[SF_FAULT_COUNT - 1], features[SF_FEATURES_MAX];
};

static void note(struct tally *tally, bool has, int64_t index) {
  if (!has) return;
  if (tally->cases++ == 0) tally->first = index;
}

/* Counts one case; out->cases is its index. */
static void count_case(struct counts *out, const struct sf_case *c) {
  const struct sf_feature_mask has = sf_features_of(c);
  for (int i = 0; i < SF_FAULT_COUNT - 1; i++) note(&out->plants[i], sf_plant_is_triggered(&sf_plants[i], c), out->cases);
  for (int i = 0; i < sf_feature_count; i++) note(&out->features[i], sf_feature_mask_has(&has, i), out->cases);
  out->cases++;
}

static enum sf_status count_cases(struct counts *out, const struct sf_campaign_options *draws, struct sf_error *error) {
  const struct sf_table table = sf_campaign_table(draws);
  struct sf_cover_count *cover = NULL;
  struct sf_case c;
  memset(out, 0, sizeof *out);
  for (int i = 0; i < SF_FAULT_COUNT - 1; i++) out->plants[i].first = -1;
  for (int i = 0; i < sf_feature_count; i++) out->features[i].first = -1;
  enum sf_status status = sf_cover_count_create(&cover, &table);
  while (status == SF_OK && out->cases < draws->cases && !sf_interrupted) {
    status = sf_campaign_case(&c, draws, out->cases, error);
    if (status != SF_OK) break;
    sf_cover_count_add(cover, &c);
    count_case(out, &c);
  }
  if (status == SF_OK) out->cover = sf_cover_count_shares(cover);
  sf_cover_count_destroy(cover);
  return status;
}

static void print_tally(FILE *to, const char *name, const struct tally *tally, int64_t cases) {
  if (tally->cases == 0)
    sf_print(to, "  %-30s %8d %10s\n", name, 0, "never");
  else
    sf_print(to, "  %-30s %8" PRId64 " %10.1f %8" PRId64 "\n", name, tally->cases, (double)cases / (double)tally->cases, tally->first);
}

static bool is_canary(const struct sf_plant *plant) { return *plant->label != '\0'; }

static void print_people(FILE *to, const struct counts *counts, const struct sf_campaign_options *draws) {
  sf_print(to, "%" PRId64 " cases of seed %" PRIu64 ", %" PRId64 " layout%s of each model\n", counts->cases, draws->seed, draws->layouts,
           sf_plural(draws->layouts));
  sf_print(to, "pairs of settings: %" PRId64 " of %" PRId64 ", triples: %.1f %% of %" PRId64 "\n\n", counts->cover.pairs_run,
           counts->cover.pairs, 100.0 * (double)counts->cover.triples_run / (double)counts->cover.triples, counts->cover.triples);
  sf_print(to, "  %-30s %8s %10s %8s\n", "trigger of a planted bug", "cases", "one in", "first");
  for (int i = 0; i < SF_FAULT_COUNT - 1; i++)
    if (!is_canary(&sf_plants[i])) print_tally(to, sf_plants[i].id, &counts->plants[i], counts->cases);
  sf_print(to, "\n  %-30s %8s %10s %8s\n", "feature", "cases", "one in", "first");
  for (int i = 0; i < sf_feature_count; i++) print_tally(to, sf_features[i].name, &counts->features[i], counts->cases);
}

static json_t *json_of_tally(const struct tally *tally) {
  return json_pack("{s:I, s:o}", "cases", (json_int_t)tally->cases, "first", sf_json_count(tally->first));
}

static json_t *json_of(const struct counts *counts, const struct sf_campaign_options *draws) {
  json_t *triggers = json_object(), *features = json_object();
  for (int i = 0; i < SF_FAULT_COUNT - 1; i++)
    if (!is_canary(&sf_plants[i])) json_object_set_new(triggers, sf_plants[i].id, json_of_tally(&counts->plants[i]));
  for (int i = 0; i < sf_feature_count; i++) json_object_set_new(features, sf_features[i].name, json_of_tally(&counts->features[i]));
  return json_pack("{s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "cases", (json_int_t)counts->cases, "seed", (json_int_t)draws->seed, "layouts",
                   (json_int_t)draws->layouts, "pairs", (json_int_t)counts->cover.pairs, "pairs_drawn", (json_int_t)counts->cover.pairs_run,
                   "triggers", triggers, "features", features);
}

static int run(void *context) {
  const struct space_flags *flags = context;
  static struct sf_campaign_options draws;
  static struct counts counts;
  struct sf_error error = {SF_OK, ""};
  const char *target = flags->common.target;
  if (target && (sf_framework_is_target(target) || sf_op_target_is_one(target))) {
    sf_error_set(&error, SF_EUSAGE, "space counts cases of layers; %.200s has none", target);
    return sf_exit_failure(SF_EUSAGE, &error);
  }
  enum sf_status status = sf_common_campaign(&draws, &flags->common, &error);
  if (status != SF_OK) return sf_exit_failure(status, &error);
  draws.cases = flags->cases;
  sf_watch_interrupts();
  status = sf_campaign_cover(&draws, &error);
  if (status == SF_OK) status = count_cases(&counts, &draws, &error);
  if (status == SF_OK) print_people(sf_people(flags->common.json), &counts, &draws);
  const int code = status != SF_OK      ? sf_exit_failure(status, &error)
                   : flags->common.json ? sf_exit_json(json_of(&counts, &draws), JSON_PRESERVE_ORDER, 0)
                                        : 0;
  sf_campaign_options_clear(&draws);
  return code;
}

static void set_defaults(void *flags) {
  sf_common_defaults(flags);
  ((struct space_flags *)flags)->cases = CASES_DEFAULT;
}

const struct sf_command sf_command_space = {
    .name = "space",
    .summary = "count what the first cases of a campaign reach",
    .help =
        "Draws the cases that fuzz would draw with these options, runs none, and counts how many have each feature and how many can show\n"
        "each planted bug. Says which case is the first.",
    SF_OPTIONS_ARE(options),
    .flags_bytes = sizeof(struct space_flags),
    .set_defaults = set_defaults,
    .run = run,
};
