/* Memory of one process over a long run: cases are drawn and run as a campaign does, by one engine, and the process's resident memory is
 * read now and then. Each tenth of the run has a mean and a peak; growth compares tenths 7 to 10 with tenths 2 to 5. The engine gives
 * memory back every few thousand cases, so a run of fewer than 100,000 says little. */
#include "tests/bench/bench_common.h"

#include "harness/base/system/system_memory.h"

#include <malloc.h>

enum { TENTHS = 10, COMPARED = 4, CASES_PER_READING = 32 };

struct args {
  int64_t cases, seed, layouts, ranks;
  struct sf_texts presets, sets;
};

struct tenth {
  double sum, readings, peak; /* resident MiB */
  double live;                /* MiB that are allocated at its end */
  double cpu_seconds;
};

static void read_memory(struct tenth *tenth) {
  const double mib = sf_number_in_file("/proc/self/status", "VmRSS:") / 1024;
  tenth->sum += mib;
  tenth->readings++;
  if (mib > tenth->peak) tenth->peak = mib;
}

static void run_tenth(struct tenth *tenth, struct sf_engine *engine, const struct sf_campaign_options *draws, int64_t first, int64_t last) {
  const double start = sf_bench_cpu_seconds();
  for (int64_t i = first; i < last; i++) {
    struct sf_case c;
    struct sf_outcome outcome;
    sf_bench_case(&c, draws, i);
    sf_engine_run(engine, &c, NULL, &outcome);
    if (outcome.status != SF_OK) sf_bench_die("case %lld: %s", (long long)i, outcome.text);
    if (i % CASES_PER_READING == 0) read_memory(tenth);
  }
  tenth->live = (double)mallinfo2().uordblks / (1 << 20);
  tenth->cpu_seconds = sf_bench_cpu_seconds() - start;
}

static double mean(const struct tenth *tenth) { return tenth->sum / tenth->readings; }

/* The readings of COMPARED tenths. */
static struct tenth together(const struct tenth *tenths) {
  struct tenth all = {0};
  for (int i = 0; i < COMPARED; i++) {
    all.sum += tenths[i].sum;
    all.readings += tenths[i].readings;
    if (tenths[i].peak > all.peak) all.peak = tenths[i].peak;
  }
  return all;
}

/* A member of each tenth as an array. */
static void tenths_out(struct sf_json_out *json, const char *key, const struct tenth *tenths, double (*of)(const struct tenth *)) {
  sf_json_out_array(json, key);
  for (int i = 0; i < TENTHS; i++) sf_json_out_real(json, NULL, of(&tenths[i]));
  sf_json_out_end(json);
}

static double peak(const struct tenth *tenth) { return tenth->peak; }
static double live(const struct tenth *tenth) { return tenth->live; }
static double cpu_seconds(const struct tenth *tenth) { return tenth->cpu_seconds; }

static const struct sf_option options[] = {
    SF_BENCH_NUMBER_AT(struct args, cases, TENTHS *CASES_PER_READING, 100000000, "Cases to run."),
    SF_BENCH_NUMBER_AT(struct args, seed, 0, 0, "Seed of the campaign."),
    SF_BENCH_NUMBER_AT(struct args, layouts, 1, 64, "Cases per logical function."),
    SF_BENCH_NUMBER_AT(struct args, ranks, 1, 64, "Most ranks of a case."),
    SF_BENCH_SPACE_OPTIONS(struct args, SF_OPTION_TEXTS, presets),
};
static const struct sf_command command = {.name = "bench_memory",
                                          .help = "How a process's memory grows over many cases.",
                                          .options = options,
                                          .option_count = (int32_t)(sizeof options / sizeof options[0])};

int main(int argc, char **argv) {
  struct args args = {.cases = 100000, .seed = 1, .layouts = 2, .ranks = 4};
  const int code = sf_bench_begin(&command, &args, argc, argv);
  if (code >= 0) return code;
  struct sf_campaign_options draws;
  struct tenth tenths[TENTHS] = {0};
  sf_bench_draws(&draws, (uint64_t)args.seed, args.layouts, &args.presets, &args.sets);
  draws.space.max_ranks = args.ranks;
  struct sf_engine *engine = sf_bench_engine(false, false);
  for (int64_t i = 0; i < TENTHS; i++) run_tenth(&tenths[i], engine, &draws, i * args.cases / TENTHS, (i + 1) * args.cases / TENTHS);
  sf_engine_destroy(engine);
  const struct tenth early = together(&tenths[1]), late = together(&tenths[TENTHS - COMPARED]);
  struct sf_json_out *json = sf_bench_report("bench_memory", argc, argv);
  sf_json_out_int(json, "cases", args.cases);
  tenths_out(json, "mean_mib", tenths, mean);
  tenths_out(json, "peak_mib", tenths, peak);
  tenths_out(json, "live_mib", tenths, live);
  tenths_out(json, "cpu_s", tenths, cpu_seconds);
  sf_json_out_real(json, "growth_mean", mean(&late) / mean(&early) - 1);
  sf_json_out_real(json, "growth_peak", late.peak / early.peak - 1);
  return sf_bench_end(json, false);
}
