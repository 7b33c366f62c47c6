#include "harness/run/command_common.h"
#include "harness/run/commands.h"
#include "harness/run/power.h"
#include "harness/run/report_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct power_flags {
  struct sf_common_flags common;
  int64_t cases, clean, seeds;
};

static const struct sf_option options[] = {
    SF_OPTION_AT(struct power_flags, "plant", TEXTS, common.plants, "ID", "search this plant only; default: every plant"),
    SF_NUMBER_AT(struct power_flags, "cases", cases, 1, 1000000, "cases at most in each search; default 200"),
    SF_NUMBER_AT(struct power_flags, "seeds", seeds, 1, 1000, "searches for each plant, with consecutive seeds; default 1"),
    SF_NUMBER_AT(struct power_flags, "clean", clean, 0, 100000000, "cases without a plant; default 500"),
    SF_SPACE_OPTIONS(struct power_flags, common),
    SF_BACKEND_OPTIONS(struct power_flags, common),
};

static const struct sf_command command = {
    .name = "power",
    .help = "Searches planted bugs blind: the generator knows nothing of them. Says for each whether it was found, after how many cases, whether\n"
            "the first divergence was where the plant table expects it, and what it was shrunk to. Exits 1 when one was missed or on a false alarm.",
    .options = options,
    .option_count = (int32_t)(sizeof options / sizeof options[0]),
};

static void fill_plants(struct sf_power_options *out, const struct sf_campaign_options *campaign) {
  for (int32_t i = 0; i < campaign->plant_count; i++) out->plants[out->plant_count++] = sf_plant_find(campaign->plants[i]);
  for (int fault = 1; !campaign->plant_count && fault < SF_FAULT_COUNT; fault++) out->plants[out->plant_count++] = sf_plant_of((enum sf_fault)fault);
}

static void print_search(const struct sf_power_search *s) {
  if (s->found_at < 0) {
    fprintf(stderr, "%-30s seed %-6" PRIu64 " NOT FOUND; %" PRId64 " cases contained its trigger\n", s->plant->id, s->seed, s->triggered);
    return;
  }
  fprintf(stderr, "%-30s seed %-6" PRIu64 " case %-4" PRId64 " %-13s %-12s %3" PRId64 " ranks %" PRId64 " layers  %3d trials  %s\n", s->plant->id, s->seed, s->found_at + 1,
          s->localised ? "localised" : "NOT LOCALISED", s->minimal ? "minimal" : "NOT MINIMAL", sf_case_ranks(&s->min), s->min.model.layers, s->evaluations,
          s->min_outcome.signature);
}

static int report(const struct sf_power_options *used, const struct sf_power_result *r, bool json) {
  int missed = 0;
  int64_t alarms = 0;
  for (int32_t i = 0; i < r->search_count; i++) {
    print_search(&r->searches[i]);
    missed += r->searches[i].found_at < 0;
  }
  for (int i = 0; i < SF_POWER_PRECISIONS; i++) {
    const struct sf_power_clean *clean = &r->clean[i];
    fprintf(stderr, "clean %s: %" PRId64 " cases, %" PRId64 " false alarms, %" PRId64 " inconclusive\n", sf_dtype_name((enum sf_dtype)i), clean->cases, clean->false_alarms, clean->inconclusive);
    alarms += clean->false_alarms;
  }
  if (alarms) fprintf(stderr, "first false alarm: %s: %s\n", r->first_false_alarm.signature, r->first_false_alarm.text);
  const int code = missed || alarms ? 1 : 0;
  return json ? sf_exit_json(sf_json_of_power(used, r), code) : code;
}

static int run(struct power_flags *flags) {
  static struct sf_power_options used;
  struct sf_power_result result;
  struct sf_error error = {SF_OK, ""};
  enum sf_status status = sf_common_outside_mpi(&flags->common, &error);
  if (status == SF_OK) status = sf_common_campaign(&used.campaign, &flags->common, &error);
  if (status != SF_OK) return sf_exit_failure(status, &error);
  fill_plants(&used, &used.campaign);
  used.campaign.plant_count = 0;
  used.seeds = (int32_t)flags->seeds;
  used.cases = flags->cases;
  used.clean_cases = flags->clean;
  status = sf_power_run(&used, &result, &error);
  if (status != SF_OK) return sf_exit_failure(status, &error);
  const int code = report(&used, &result, flags->common.json);
  sf_power_destroy(&result);
  return code;
}

int sf_command_power(int argc, char **argv) {
  struct power_flags flags;
  memset(&flags, 0, sizeof flags);
  sf_common_defaults(&flags.common);
  flags.cases = 200;
  flags.clean = 500;
  flags.seeds = 1;
  const int ended = sf_command_begin(&command, &flags, argc, argv);
  if (ended >= 0) return ended;
  const int code = run(&flags);
  sf_command_clear(&command, &flags);
  return code;
}
