#include "harness/run/commands/command_common.h"
#include "harness/run/commands/commands.h"
#include "harness/run/commands/report_json.h"
#include "harness/run/power/power.h"
#include "harness/run/power/power_mutants.h"
#include "harness/run/trial/mutants.h"

#include "harness/base/alloc.h"
#include "harness/base/sinks.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct power_flags {
  struct sf_common_flags common;
  int64_t cases, clean, seeds;
  bool mutants;
};

enum { CLEAN_DEFAULT = 500 };

static const struct sf_option options[] = {
    SF_OPTION_AT(struct power_flags, "plant", TEXTS, common.plants, "ID", "search this plant or mutant only; default: every plant"),
    SF_OPTION_AT(struct power_flags, "mutants", FLAG, mutants, NULL, "search every mutant of a communication call in place of plants"),
    SF_NUMBER_AT(struct power_flags, "cases", cases, 1, 1000000, "at most this many cases in each search; default 200"),
    SF_NUMBER_AT(struct power_flags, "seeds", seeds, 1, 1000, "searches for each plant, with consecutive seeds; default 1"),
    SF_NUMBER_AT(struct power_flags, "clean", clean, 0, 100000000, "cases without a plant; default 500, with mutants 0"),
    SF_SPACE_OPTIONS(struct power_flags, common),
    SF_BACKEND_OPTIONS(struct power_flags, common),
};

/* The plants and mutants to search for: those that were named, or all of one sort. */
struct searches {
  struct sf_power_options plants;
  const char **mutants; /* ids */
  char (*names)[SF_NAME_TEXT];
  int32_t mutant_count;
};

static enum sf_status fill_searches(struct searches *out, const struct sf_campaign_options *campaign, bool all_mutants,
                                    struct sf_error *error) {
  const int32_t most = sf_mutant_count() + campaign->plant_count;
  out->mutants = sf_alloc((size_t)most * sizeof *out->mutants);
  out->names = sf_alloc((size_t)most * sizeof *out->names);
  if (!out->mutants || !out->names) return SF_ENOMEM;
  for (int32_t i = 0; i < campaign->plant_count; i++) {
    const char *id = campaign->plants[i];
    if (strchr(id, ',')) return sf_error_set(error, SF_EUSAGE, "--plant: power searches for one at a time: give --plant several times");
    if (sf_mutation_is_named(id))
      out->mutants[out->mutant_count++] = id;
    else
      out->plants.plants[out->plants.plant_count++] = sf_plant_find(id);
  }
  for (int32_t i = 0; all_mutants && i < sf_mutant_count(); i++) {
    sf_mutant_name(out->names[i], i);
    out->mutants[out->mutant_count++] = out->names[i];
  }
  if (out->mutant_count || out->plants.plant_count) return SF_OK;
  for (int fault = 1; fault < SF_FAULT_COUNT; fault++) out->plants.plants[out->plants.plant_count++] = sf_plant_of((enum sf_fault)fault);
  return SF_OK;
}

static void print_flat(FILE *to, const struct sf_power_search *s) {
  if (!s->flat_asked) return;
  if (s->flat_at >= 0)
    sf_print(to, "  flat bound: case %" PRId64 "\n", s->flat_at + 1);
  else
    sf_print(to, "  flat bound: not found\n");
}

static void print_search(FILE *to, const struct sf_power_search *s) {
  if (s->found_at < 0) {
    sf_print(to, "%-30s seed %-6" PRIu64 " NOT FOUND; %" PRId64 " cases contained its trigger\n", s->plant->id, s->seed, s->triggered);
    print_flat(to, s);
    return;
  }
  sf_print(to, "%-30s seed %-6" PRIu64 " case %-4" PRId64 " %-13s %-12s %3" PRId64 " ranks %" PRId64 " layers  %3d trials  %s\n",
           s->plant->id, s->seed, s->found_at + 1, s->localised ? "localised" : "NOT LOCALISED", s->minimal ? "minimal" : "NOT MINIMAL",
           sf_case_ranks(&s->min), s->min.model.layers, s->evaluations, s->min_outcome.signature);
  print_flat(to, s);
  const struct sf_diagnosis *d = &s->min_outcome.diagnosis;
  if (s->plant->diagnosis && !*s->plant->diagnosis) return;
  sf_print(to, "  %s %s%s%s\n",
           !s->plant->diagnosis ? "diagnosis"
           : s->diagnosed       ? "diagnosed"
                                : "NOT DIAGNOSED",
           *d->text ? sf_diagnosis_class_name(d->cls) : "", *d->text ? ": " : "", d->text);
}

/* Returns whether a plant was missed, or a clean case gave a false alarm. */
static bool report_plants(FILE *to, const struct sf_power_result *r) {
  int missed = 0;
  int64_t alarms = 0;
  for (int32_t i = 0; i < r->search_count; i++) {
    print_search(to, &r->searches[i]);
    missed += r->searches[i].found_at < 0;
  }
  for (int i = 0; i < SF_POWER_PRECISIONS; i++) {
    const struct sf_power_clean *clean = &r->clean[i];
    sf_print(to,
             "clean %s: %" PRId64 " cases, %" PRId64 " false alarms, %" PRId64 " inconclusive; flat bound: %" PRId64 " of %" PRId64
             " beyond\n",
             sf_compute_name(i), clean->cases, clean->false_alarms, clean->inconclusive, clean->flat_alarms, clean->flat_cases);
    alarms += clean->false_alarms;
  }
  if (alarms) sf_print(to, "first false alarm: %s: %s\n", r->first_false_alarm.signature, r->first_false_alarm.text);
  return missed || alarms;
}

static void print_mutant(FILE *to, const struct sf_mutant_search *s) {
  sf_print(to, "%-72s %-11s fired %-4" PRId64 " ", s->id, sf_mutant_fate_name(s->fate), s->fired);
  if (s->found_at >= 0)
    sf_print(to, "case %-4" PRId64 " %s", s->found_at + 1, s->outcome.shrink_key);
  else if (s->fired > 0)
    sf_print(to, "same outputs %" PRId64 ", outputs unread %" PRId64, s->equal_outputs, s->unread_outputs);
  if (s->survived_at >= 0) sf_print(to, ", neither in case %" PRId64, s->survived_at + 1);
  sf_print(to, "\n");
}

static bool report_mutants(FILE *to, const struct sf_mutant_power_result *r) {
  int32_t counts[SF_MUTANT_FATES] = {0};
  for (int32_t i = 0; i < r->count; i++) {
    print_mutant(to, &r->searches[i]);
    counts[r->searches[i].fate]++;
  }
  sf_print(to, "%d mutants", r->count);
  for (int i = 0; i < SF_MUTANT_FATES; i++) sf_print(to, ", %d %s", counts[i], sf_mutant_fate_name((enum sf_mutant_fate)i));
  sf_print(to, "\n");
  return counts[SF_MUTANT_SURVIVED] > 0;
}

static int search(const struct searches *s, const struct power_flags *flags) {
  FILE *const to = sf_people(flags->common.json);
  struct sf_power_result plants;
  struct sf_mutant_power_result mutants;
  struct sf_error error = {SF_OK, ""};
  enum sf_status status = sf_power_run(&s->plants, &plants, &error);
  if (status != SF_OK) return sf_exit_failure(status, &error);
  const struct sf_mutant_power_options used = {s->plants.campaign, s->mutants, s->mutant_count, flags->cases};
  status = sf_mutant_power_run(&used, &mutants, &error);
  if (status != SF_OK) {
    sf_power_destroy(&plants);
    return sf_exit_failure(status, &error);
  }
  const bool missed = s->plants.plant_count + s->plants.clean_cases > 0 && report_plants(to, &plants);
  const bool survived = s->mutant_count > 0 && report_mutants(to, &mutants);
  int code = missed || survived ? 1 : 0;
  if (flags->common.json) {
    json_t *object = sf_json_of_power(&s->plants, &plants);
    if (object && json_object_set_new(object, "mutants", sf_json_of_mutants(&mutants)) != 0) {
      json_decref(object);
      object = NULL;
    }
    code = sf_exit_json(object, 0, code);
  }
  sf_mutant_power_destroy(&mutants);
  sf_power_destroy(&plants);
  return code;
}

static int run(void *context) {
  struct power_flags *flags = context;
  static struct searches s;
  struct sf_error error = {SF_OK, ""};
  enum sf_status status = sf_common_outside_mpi(&flags->common, &error);
  if (status == SF_OK) status = sf_common_campaign(&s.plants.campaign, &flags->common, &error);
  if (status == SF_OK && s.plants.campaign.pool.operations)
    status = sf_error_set(&error, SF_EUSAGE, "--target: planted bugs exist only for the built-in layers (--target builtin)");
  if (status == SF_OK) status = fill_searches(&s, &s.plants.campaign, flags->mutants, &error);
  s.plants.campaign.plant_count = 0;
  s.plants.campaign.progress = true;
  s.plants.seeds = (int32_t)flags->seeds;
  s.plants.cases = flags->cases;
  s.plants.clean_cases = flags->clean >= 0 ? flags->clean : s.mutant_count ? 0 : CLEAN_DEFAULT;
  const int code = status == SF_OK ? search(&s, flags) : sf_exit_failure(status, &error);
  sf_free(s.mutants);
  sf_free(s.names);
  return code;
}

static void set_defaults(void *context) {
  struct power_flags *flags = context;
  sf_common_defaults(&flags->common);
  flags->cases = 200;
  flags->clean = -1;
  flags->seeds = 1;
}

const struct sf_command sf_command_power = {
    .name = "power",
    .summary = "search planted bugs blind, and count false alarms",
    .help =
        "Searches for planted bugs, of which the generator knows nothing. Says for each whether it was found, after how many cases, "
        "whether\n"
        "the first divergence was where the plant table expects it, and what it was shrunk to. Mutants that are never found\n"
        "are run again to tell whether they change anything. Exits 1 when it missed a plant, a mutant survived, or a case without a plant "
        "failed.",
    SF_OPTIONS_ARE(options),
    .flags_bytes = sizeof(struct power_flags),
    .set_defaults = set_defaults,
    .run = run,
};
