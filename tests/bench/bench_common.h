/* What the measurement programs share: command lines, drawn cases, worker processes, distributions, and the one line of JSON that each
 * prints on stdout. They measure the shipped rooms; none of them is a test, and none decides a verdict. */
#ifndef SF_TESTS_BENCH_COMMON_H
#define SF_TESTS_BENCH_COMMON_H

#include "harness/run/campaign/campaign.h"
#include "harness/run/support/options.h"
#include "harness/run/trial/engine.h"
#include "tests/bench/json_out.h"

/* --- beginning and end ---------------------------------------------------------------------------------------- */

/* Parses the command line into target, and sets up memory as the shardfuzz program does. Returns -1 to go on, or the exit code. */
int sf_bench_begin(const struct sf_command *command, void *target, int argc, char **argv);
/* An object that holds the bench's name, its command line, the machine (CPU model, cores, load average of the last minute) and the commit:
 * what the environment's SF_BENCH_COMMIT says (run_all.sh sets it to what it built), else that of the tree around the working folder. */
struct sf_json_out *sf_bench_report(const char *name, int argc, char **argv);
/* Prints the object; returns the exit code: 0, or 3 when it could not be built or `failed`. */
int sf_bench_end(struct sf_json_out *json, bool failed);
/* Prints one line on stderr and leaves with 3. Benches have no way to go on. */
_Noreturn void sf_bench_die(const char *format, ...) SF_PRINTF(1, 2);

double sf_bench_peak_rss_mib(void); /* of this process so far */
void sf_bench_reset_peak_rss(void); /* where the system allows it; the peak then counts from now */
double sf_bench_cpu_seconds(void);  /* user + system time of this process */

/* --- rows of option tables -------------------------------------------------------------------------------------- */

/* An int64_t of the struct `owner` that has its option's name; both limits 0: any that is not negative. */
#define SF_BENCH_NUMBER_AT(owner, member, min_, max_, help_)                                                                               \
  { .name = #member, .type = SF_OPTION_INT, .offset = offsetof(owner, member), .help = help_, .min = min_, .max = max_ }
/* Members cases, seed, jobs. */
#define SF_BENCH_WORK_OPTIONS(owner, cases_min, cases_max, cases_help, seed_help)                                                          \
  SF_BENCH_NUMBER_AT(owner, cases, cases_min, cases_max, cases_help), SF_BENCH_NUMBER_AT(owner, seed, 0, 0, seed_help), {                  \
    .name = "jobs", .type = SF_OPTION_INT, .offset = offsetof(owner, jobs), .help = "Processes.", .letter = 'j', .min = 1, .max = 256      \
  }
/* Members sets, and presets (TEXTS) or preset (TEXT). */
#define SF_BENCH_SPACE_OPTIONS(owner, preset_type, preset_member)                                                                          \
  {.name = "preset", .type = preset_type, .offset = offsetof(owner, preset_member), .help = "Model and precision."}, {                     \
    .name = "set", .type = SF_OPTION_KEY_VALUE, .offset = offsetof(owner, sets), .help = "Fixes a field or narrows its range."             \
  }

/* --- cases ---------------------------------------------------------------------------------------------------- */

/* The default space narrowed by presets, then assignments. Leaves with a message when there is no such space. */
void sf_bench_draws(struct sf_campaign_options *out, uint64_t seed, int64_t layouts, const struct sf_texts *presets,
                    const struct sf_texts *sets);
void sf_bench_set(struct sf_campaign_options *draws, const char *assignment);
void sf_bench_case(struct sf_case *out, const struct sf_campaign_options *draws, int64_t index);
/* Adds the case as a text member, null when there is none. */
void sf_bench_case_out(struct sf_json_out *json, const char *key, const struct sf_case *c);
/* Precision and mode of a case. */
enum sf_bench_condition {
  SF_BENCH_FP32_ISOLATED,
  SF_BENCH_FP32_E2E,
  SF_BENCH_BF16_ISOLATED,
  SF_BENCH_BF16_E2E,
  SF_BENCH_FP16_ISOLATED,
  SF_BENCH_FP16_E2E,
  SF_BENCH_FP8_ISOLATED,
  SF_BENCH_FP8_E2E,
  SF_BENCH_CONDITIONS
};
extern const char *const sf_bench_condition_names[SF_BENCH_CONDITIONS];
enum sf_bench_condition sf_bench_condition_of(const struct sf_case *c);
struct sf_engine *sf_bench_engine(bool measure, bool hash_trace);
struct sf_engine *sf_bench_engine_on(enum sf_device_kind device, bool measure, bool hash_trace);
/* What the last case's tensors were compared with: the reference, or what it makes of the candidate's own tensors. The engine's. */
struct sf_expectations *sf_bench_compared_with(const struct sf_engine *engine);

/* --- worker processes ----------------------------------------------------------------------------------------- */

/* One of several processes that share a range of indices. */
struct sf_bench_worker {
  void *ctx;    /* as given */
  void *result; /* of this worker alone; zeroed; in memory that the parent reads afterwards */
  volatile int64_t *next;
  int64_t count, chunk;
};
/* Takes the next chunk of indices, [*first, *last). False when all are taken. Which worker gets which chunk depends on timing: results must
 * be such that merging them does not. */
bool sf_bench_next(struct sf_bench_worker *worker, int64_t *first, int64_t *last);
/* Runs `work` in `jobs` processes over indices 0..count-1; *results: jobs blocks of result_bytes, one after the other, never freed. Leaves
 * with a message when a worker does not end well. */
void *sf_bench_fork(int64_t jobs, size_t result_bytes, int64_t count, int64_t chunk, void (*work)(struct sf_bench_worker *worker),
                    void *ctx);
/* As sf_bench_fork; merges the workers' results, in their order, into *total, which has the size and type of each and starts as the caller
 * left it. */
void sf_bench_fork_merge(void *total, int64_t jobs, size_t result_bytes, int64_t count, int64_t chunk,
                         void (*work)(struct sf_bench_worker *worker), void *ctx, void (*merge)(void *into, const void *from));
/* Adds int64_t members that lie one after the other. */
void sf_bench_add_counts(void *into, const void *from, size_t size_bytes);

/* --- distributions -------------------------------------------------------------------------------------------- */

enum { SF_BENCH_BINS_PER_OCTAVE = 64, SF_BENCH_OCTAVES = 40, SF_BENCH_BINS = SF_BENCH_BINS_PER_OCTAVE * SF_BENCH_OCTAVES };
/* Counts of positive numbers in bins of 1.1 % width from 2^-20 to 2^20; exact maximum. All zero = empty. */
struct sf_bench_histogram {
  int64_t count, bins[SF_BENCH_BINS];
  double max;
  int64_t max_at; /* what the caller said of the largest */
};
void sf_bench_count(struct sf_bench_histogram *histogram, double value, int64_t at);
void sf_bench_merge(struct sf_bench_histogram *into, const struct sf_bench_histogram *from);
/* Upper edge of the bin below which the share lies; the maximum for a share of 1. */
double sf_bench_quantile(const struct sf_bench_histogram *histogram, double share);
/* Members count, p50, p99, p999, max. */
void sf_bench_histogram_out(struct sf_json_out *json, const char *key, const struct sf_bench_histogram *histogram);

#endif
