/* Each drawn case runs twice, in two engines: every traced byte, in order, must be the same. */
#include "tests/bench/bench_common.h"

#include <string.h>

struct args {
  int64_t cases, seed;
  struct sf_texts presets, sets;
};

static const struct sf_option options[] = {
    {.name = "cases", .type = SF_OPTION_INT, .offset = offsetof(struct args, cases), .help = "Cases to run.", .min = 1, .max = 1000000},
    {.name = "seed", .type = SF_OPTION_INT, .offset = offsetof(struct args, seed), .help = "Seed of the campaign."},
    {.name = "preset", .type = SF_OPTION_TEXTS, .offset = offsetof(struct args, presets), .help = "Model and precision."},
    {.name = "set", .type = SF_OPTION_KEY_VALUE, .offset = offsetof(struct args, sets), .help = "Fixes a field or narrows its range."},
};
static const struct sf_command command = {.name = "bench_replay",
                                          .help = "Runs cases twice and compares their traces.",
                                          .options = options,
                                          .option_count = (int32_t)(sizeof options / sizeof options[0])};

int main(int argc, char **argv) {
  struct args args = {.cases = 100, .seed = 1};
  const int code = sf_bench_begin(&command, &args, argc, argv);
  if (code >= 0) return code;
  struct sf_campaign_options draws;
  sf_bench_draws(&draws, (uint64_t)args.seed, 1, &args.presets, &args.sets);
  struct sf_engine *first = sf_bench_engine(false, true), *second = sf_bench_engine(false, true);
  int64_t identical = 0, same_verdict = 0, traced = 0, first_different = -1;
  for (int64_t i = 0; i < args.cases; i++) {
    struct sf_case c;
    struct sf_outcome a, b;
    sf_bench_case(&c, &draws, i);
    sf_engine_run(first, &c, NULL, &a);
    sf_engine_run(second, &c, NULL, &b);
    const bool same = a.trace_hash == b.trace_hash && a.trace_hash != 0;
    identical += same;
    traced += a.trace_hash != 0;
    same_verdict += a.status == b.status && a.verdict == b.verdict && strcmp(a.signature, b.signature) == 0;
    if (!same && first_different < 0) first_different = i;
  }
  sf_engine_destroy(first);
  sf_engine_destroy(second);
  struct sf_json_out *json = sf_bench_report("bench_replay", argc, argv);
  sf_json_out_int(json, "cases", args.cases);
  sf_json_out_int(json, "traced", traced);
  sf_json_out_int(json, "identical_traces", identical);
  sf_json_out_int(json, "same_verdict_and_signature", same_verdict);
  sf_json_out_int(json, "first_different", first_different);
  return sf_bench_end(json, false);
}
