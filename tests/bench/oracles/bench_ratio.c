/* Distribution of error over noise level in clean runs, per mode, precision and kind, at both levels of draws. The first half of the cases
 * is drawn from one seed, the second from the next one: factors may be chosen by looking at the first half, never at the second. */
#include "tests/bench/bench_common.h"

#include "harness/run/trial/engine_internal.h"
#include "oracles/judge/collector.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const double SHARE_OF_FACTOR_MAX = 0.8;

enum { LEVELS = 2, OFFENDERS_MAX = 64 };
enum measure { FRO, ROW, REPLICA, MEASURES };
static const char *const measure_names[MEASURES] = {"fro", "row", "replica"};

struct args {
  int64_t cases, seed, jobs, layouts;
  const char *dump;
  struct sf_texts presets, sets;
};

struct context {
  struct sf_campaign_options halves[2];
  int64_t half_cases;
};

/* A tensor whose ratio is above the allowed share of its factor at the full level. */
struct offender {
  int64_t index;
  double share;
  int half, measure;
  char id[160];
};

struct result {
  struct sf_bench_histogram ratios[2][SF_BENCH_CONDITIONS][SF_KIND_COUNT][MEASURES][LEVELS];
  struct sf_bench_histogram step[2][SF_BENCH_CONDITIONS][SF_KIND_COUNT]; /* param, param_delta, scalar: error over bound, 1 = alarm */
  int64_t findings[2], inconclusive[2], raised[2], offender_cases[2], failed;
  int32_t offender_count;
  struct offender offenders[OFFENDERS_MAX];
};

static double factor_of(enum measure measure) {
  return measure == FRO ? sf_factors.fro : measure == REPLICA ? 2 * sf_factors.fro : sf_factors.row_isolated;
}

static void note_offender(struct result *result, const struct offender *offender) {
  if (result->offender_count < OFFENDERS_MAX) {
    result->offenders[result->offender_count++] = *offender;
    return;
  }
  int32_t least = 0;
  for (int32_t i = 1; i < OFFENDERS_MAX; i++)
    if (result->offenders[i].share < result->offenders[least].share) least = i;
  if (offender->share > result->offenders[least].share) result->offenders[least] = *offender;
}

struct place {
  struct result *result;
  const struct sf_engine *engine;
  const struct sf_case *c;
  int64_t index;
  int half, condition;
  bool offends;
};

static void count_measure(struct place *place, const struct sf_expected *e, enum measure measure, int level, double ratio) {
  sf_bench_count(&place->result->ratios[place->half][place->condition][e->id.kind][measure][level], ratio, place->index);
  const double share = ratio / factor_of(measure);
  if (level == 0 || share <= SHARE_OF_FACTOR_MAX) return;
  struct offender offender = {.index = place->index, .share = share, .half = place->half, .measure = measure};
  sf_trace_id_text(offender.id, sizeof offender.id, place->engine->catalog, e->id);
  note_offender(place->result, &offender);
  place->offends = true;
}

static void count_tensor(struct place *place, const struct sf_slot *slot, const struct sf_expected *e, double *scratch) {
  for (int level = 0; level < LEVELS; level++) {
    const enum sf_level draws = level == 1 ? SF_LEVEL_FULL : SF_LEVEL_FIRST;
    struct sf_comparison comparison;
    sf_compare(&comparison, e, slot->merged, draws, scratch);
    if (comparison.why_not && strcmp(comparison.why_not, "ill-conditioned") == 0) continue; /* cannot alarm */
    count_measure(place, e, FRO, level, comparison.fro_ratio);
    if (comparison.row >= 0) count_measure(place, e, ROW, level, comparison.row_ratio);
    if (slot->replica_rank >= 0) count_measure(place, e, REPLICA, level, slot->replica_error / sf_tensor_noise(e, draws));
  }
}

/* Of the tensors that were judged alone: what stands behind an overflow or a turned routing tie may be anywhere. */
static void count_case(struct place *place, double *scratch) {
  const struct sf_engine *engine = place->engine;
  for (int32_t i = 0; i < engine->judgement.result_count; i++) {
    const struct sf_tensor_result *r = &engine->judgement.results[i];
    if (!r->judged) continue;
    if (!sf_kind_has_noise((enum sf_kind)r->id.kind)) {
      sf_bench_count(&place->result->step[place->half][place->condition][r->id.kind], r->fro_ratio, place->index);
      continue;
    }
    const struct sf_slot *slot = sf_slot_at(engine->collector, r->expected->ordinal, SF_SLOT_FIRST);
    const struct sf_expected *e = sf_expectations_at(sf_bench_compared_with(engine), r->expected->ordinal);
    if (sf_slot_is_whole(slot)) count_tensor(place, slot, e, scratch);
  }
}

static void run_case(struct result *result, struct sf_engine *engine, const struct context *context, int64_t index, double *scratch) {
  const int half = index >= context->half_cases;
  struct sf_case c;
  struct sf_outcome outcome;
  sf_bench_case(&c, &context->halves[half], index - half * context->half_cases);
  const int64_t raised = sf_engine_costs(engine)->raised;
  sf_engine_run(engine, &c, NULL, &outcome);
  if (outcome.status != SF_OK || outcome.verdict == SF_VERDICT_SKIP || engine->judgement.result_count == 0) {
    result->failed++;
    return;
  }
  result->findings[half] += outcome.verdict == SF_VERDICT_FINDING;
  result->inconclusive[half] += outcome.verdict == SF_VERDICT_INCONCLUSIVE;
  result->raised[half] += sf_engine_costs(engine)->raised - raised;
  if (sf_expectations_raise(sf_bench_compared_with(engine), SF_LEVEL_FULL, NULL, 0) != SF_OK) sf_bench_die("out of memory");
  const int condition = (int)sf_bench_condition_of(&c);
  struct place place = {result, engine, &c, index, half, condition, false};
  count_case(&place, scratch);
  result->offender_cases[half] += place.offends;
}

static void work(struct sf_bench_worker *worker) {
  enum { ROWS_MAX = 1 << 20 };
  double *scratch = malloc(ROWS_MAX * sizeof *scratch);
  if (!scratch) sf_bench_die("out of memory");
  struct sf_engine *engine = sf_bench_engine(false, false);
  int64_t first, last;
  while (sf_bench_next(worker, &first, &last))
    for (int64_t i = first; i < last; i++) run_case(worker->result, engine, worker->ctx, i, scratch);
  sf_engine_destroy(engine);
  free(scratch);
}

static void merge(void *total, const void *part) {
  struct result *into = total;
  const struct result *from = part;
  for (int half = 0; half < 2; half++) {
    for (int condition = 0; condition < SF_BENCH_CONDITIONS; condition++) {
      for (int kind = 0; kind < SF_KIND_COUNT; kind++) {
        for (int i = 0; i < MEASURES * LEVELS; i++)
          sf_bench_merge(&into->ratios[half][condition][kind][i / LEVELS][i % LEVELS],
                         &from->ratios[half][condition][kind][i / LEVELS][i % LEVELS]);
        sf_bench_merge(&into->step[half][condition][kind], &from->step[half][condition][kind]);
      }
    }
    into->findings[half] += from->findings[half];
    into->inconclusive[half] += from->inconclusive[half];
    into->raised[half] += from->raised[half];
    into->offender_cases[half] += from->offender_cases[half];
  }
  into->failed += from->failed;
  for (int32_t i = 0; i < from->offender_count; i++) note_offender(into, &from->offenders[i]);
}

static void condition_out(struct sf_json_out *json, const struct result *result, int half, int condition) {
  sf_json_out_object(json, sf_bench_condition_names[condition]);
  for (int kind = 0; kind < SF_KIND_COUNT; kind++) {
    sf_json_out_object(json, sf_kind_name((enum sf_kind)kind));
    for (int measure = 0; measure < MEASURES; measure++) {
      const struct sf_bench_histogram *levels = result->ratios[half][condition][kind][measure];
      if (levels[0].count + levels[1].count == 0) continue;
      sf_json_out_object(json, measure_names[measure]);
      sf_bench_histogram_out(json, "level1", &levels[0]);
      sf_bench_histogram_out(json, "level2", &levels[1]);
      sf_json_out_end(json);
    }
    if (result->step[half][condition][kind].count) sf_bench_histogram_out(json, "of_bound", &result->step[half][condition][kind]);
    sf_json_out_end(json);
  }
  sf_json_out_end(json);
}

/* Largest ratio at the full level as a share of its alarm factor. */
static double largest_share(const struct result *result, int half, enum measure measure, enum sf_mode mode) {
  double largest = 0;
  for (int condition = mode == SF_MODE_E2E; condition < SF_BENCH_CONDITIONS; condition += 2)
    for (int kind = 0; kind < SF_KIND_COUNT; kind++)
      largest = fmax(largest, result->ratios[half][condition][kind][measure][1].max / factor_of(measure));
  return largest;
}

static void half_out(struct sf_json_out *json, const struct result *result, int half, int64_t cases) {
  sf_json_out_object(json, half ? "unseen_half" : "first_half");
  sf_json_out_int(json, "cases", cases);
  sf_json_out_int(json, "findings", result->findings[half]);
  sf_json_out_int(json, "inconclusive", result->inconclusive[half]);
  sf_json_out_int(json, "raised", result->raised[half]);
  sf_json_out_int(json, "cases_above_share", result->offender_cases[half]);
  for (int measure = 0; measure < MEASURES; measure++) {
    char key[48];
    for (int mode = SF_MODE_ISOLATED; mode <= SF_MODE_E2E; mode++) {
      snprintf(key, sizeof key, "max_share_of_factor_%s_%s", measure_names[measure], mode == SF_MODE_E2E ? "e2e" : "isolated");
      sf_json_out_real(json, key, largest_share(result, half, (enum measure)measure, (enum sf_mode)mode));
    }
  }
  for (int condition = 0; condition < SF_BENCH_CONDITIONS; condition++) condition_out(json, result, half, condition);
  sf_json_out_end(json);
}

static int compare_offenders(const void *a, const void *b) {
  const struct offender *x = a, *y = b;
  return (x->share < y->share) - (x->share > y->share);
}

static void dump_case(const struct context *context, const struct offender *offender, const char *folder) {
  char path[1024];
  struct sf_case c;
  struct sf_error error = {SF_OK, ""};
  sf_bench_case(&c, &context->halves[offender->half], offender->index - offender->half * context->half_cases);
  if (mkdir(folder, 0777) != 0 && access(folder, W_OK) != 0) sf_bench_die("%s: cannot be made", folder);
  snprintf(path, sizeof path, "%s/case-%" PRId64 ".json", folder, offender->index);
  if (sf_case_write(&c, path, &error) != SF_OK) sf_bench_die("%s", error.text);
}

static void offenders_out(struct sf_json_out *json, struct result *result, const struct context *context, const char *folder) {
  qsort(result->offenders, (size_t)result->offender_count, sizeof *result->offenders, compare_offenders);
  sf_json_out_array(json, "above_share");
  for (int32_t i = 0; i < result->offender_count; i++) {
    const struct offender *offender = &result->offenders[i];
    sf_json_out_object(json, NULL);
    sf_json_out_int(json, "index", offender->index);
    sf_json_out_text(json, "measure", measure_names[offender->measure]);
    sf_json_out_real(json, "share", offender->share);
    sf_json_out_text(json, "id", offender->id);
    sf_json_out_end(json);
    if (folder) dump_case(context, offender, folder);
  }
  sf_json_out_end(json);
}

static const struct sf_option options[] = {
    SF_BENCH_WORK_OPTIONS(struct args, 2, 100000000, "Cases to run, both halves together.",
                          "Seed of the first half; the second has the next one."),
    SF_BENCH_NUMBER_AT(struct args, layouts, 1, 1000, "Cases per logical function."),
    {.name = "dump",
     .type = SF_OPTION_TEXT,
     .offset = offsetof(struct args, dump),
     .help = "Folder for the cases with the largest ratios.",
     .value = "DIR"},
    SF_BENCH_SPACE_OPTIONS(struct args, SF_OPTION_TEXTS, presets),
};
static const struct sf_command command = {.name = "bench_ratio",
                                          .help = "Measures error over noise level in clean runs.",
                                          .options = options,
                                          .option_count = (int32_t)(sizeof options / sizeof options[0])};

int main(int argc, char **argv) {
  struct args args = {.cases = 2000, .seed = 1, .jobs = 2, .layouts = 2};
  const int code = sf_bench_begin(&command, &args, argc, argv);
  if (code >= 0) return code;
  static struct context context;
  static struct result total;
  context.half_cases = args.cases / 2;
  for (int half = 0; half < 2; half++)
    sf_bench_draws(&context.halves[half], (uint64_t)(args.seed + half), args.layouts, &args.presets, &args.sets);
  const double start = sf_engine_now();
  sf_bench_fork_merge(&total, args.jobs, sizeof total, args.cases, 4 * args.layouts, work, &context, merge);
  struct sf_json_out *json = sf_bench_report("bench_ratio", argc, argv);
  for (int half = 0; half < 2; half++) half_out(json, &total, half, half ? args.cases - context.half_cases : context.half_cases);
  sf_json_out_int(json, "failed", total.failed);
  offenders_out(json, &total, &context, args.dump);
  sf_json_out_real(json, "seconds", sf_engine_now() - start);
  return sf_bench_end(json, total.failed > 0);
}
