/* False alarms and unchecked tensors over clean cases of the default space. */
#include "tests/bench/bench_common.h"

#include "harness/run/trial/features.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { UNCHECKED_PERCENT_MAX = 20, ALARMS_MAX = 64, TENTHS = 10 };

enum reason { ILL_CONDITIONED, ZERO, ROLLED, OVERFLOWS, OTHER_SCALE, OTHER_REASON, REASON_COUNT };
static const char *const reason_names[REASON_COUNT] = {"ill-conditioned", "zero", "values alike", "overflow", "other loss scale", "other"};

struct args {
  int64_t cases, from, seed, jobs, layouts;
  struct sf_texts presets, sets;
};

struct run {
  struct sf_campaign_options draws;
  int64_t from;
};

struct tally {
  int64_t verdicts[SF_BENCH_CONDITIONS][4], failed;
  int64_t tensors[SF_BENCH_CONDITIONS][SF_KIND_COUNT], unchecked[SF_BENCH_CONDITIONS][SF_KIND_COUNT][REASON_COUNT];
  int64_t inconclusive[SF_BENCH_CONDITIONS][REASON_COUNT]; /* cases, by what most tensors of a kind without a judged one have */
  /* fp32: tensors of a (kind, module class), those unchecked, cases with it, cases in which none of it was checked */
  int64_t pair[SF_KIND_COUNT][SF_MODULE_CLASS_COUNT], pair_unchecked[SF_KIND_COUNT][SF_MODULE_CLASS_COUNT];
  int64_t pair_cases[SF_KIND_COUNT][SF_MODULE_CLASS_COUNT], pair_cases_unchecked[SF_KIND_COUNT][SF_MODULE_CLASS_COUNT];
  int64_t rounding[SF_BENCH_CONDITIONS][TENTHS + 1]; /* tensors by tenths of the alarm for roundings, rounded up; the last: beyond it */
  int64_t features[SF_FEATURES_MAX], raised;
  struct alarm {
    char key[SF_SHRINK_KEY_TEXT], text[1200];
    int64_t count, first; /* first: index of c, the first such case */
    struct sf_case c;
  } alarms[ALARMS_MAX]; /* false alarms by shrink key, failures of the harness; what does not fit goes into the last */
  double cpu_seconds;
};

static enum reason reason_of(const char *why_not) {
  for (int reason = 0; reason < OTHER_REASON; reason++)
    if (strcmp(why_not, reason_names[reason]) == 0) return (enum reason)reason;
  return OTHER_REASON;
}

/* A case counts as unchecked for a pair when it has tensors of the pair and none of them was judged. */
static void count_pairs(struct tally *tally, const struct sf_engine *engine) {
  const struct sf_judgement *judgement = sf_engine_judgement(engine);
  const struct sf_catalog *catalog = sf_engine_catalog(engine);
  unsigned char has[SF_KIND_COUNT][SF_MODULE_CLASS_COUNT] = {{0}}, judged[SF_KIND_COUNT][SF_MODULE_CLASS_COUNT] = {{0}};
  for (int32_t i = 0; i < judgement->result_count; i++) {
    const struct sf_tensor_result *result = &judgement->results[i];
    const enum sf_module_class cls = catalog->modules[result->expected->spec.module].cls;
    has[result->id.kind][cls] = 1;
    judged[result->id.kind][cls] |= result->judged;
    tally->pair[result->id.kind][cls]++;
    tally->pair_unchecked[result->id.kind][cls] += !result->judged;
  }
  for (int kind = 0; kind < SF_KIND_COUNT; kind++) {
    for (int cls = 0; cls < SF_MODULE_CLASS_COUNT; cls++) {
      tally->pair_cases[kind][cls] += has[kind][cls];
      tally->pair_cases_unchecked[kind][cls] += has[kind][cls] && !judged[kind][cls];
    }
  }
}

/* Of the kinds of which nothing was judged. */
static enum reason most_frequent_reason(const struct sf_judgement *judgement) {
  bool judged[SF_KIND_COUNT] = {false};
  int64_t counts[REASON_COUNT] = {0};
  int most = OTHER_REASON;
  for (int32_t i = 0; i < judgement->result_count; i++) judged[judgement->results[i].id.kind] |= judgement->results[i].judged;
  for (int32_t i = 0; i < judgement->result_count; i++)
    if (!judged[judgement->results[i].id.kind]) counts[reason_of(judgement->results[i].why_not)]++;
  for (int reason = 0; reason < REASON_COUNT; reason++)
    if (counts[reason] > counts[most]) most = reason;
  return (enum reason)most;
}

static void count_alarm(struct tally *tally, const struct alarm *more) {
  for (int i = 0; i < ALARMS_MAX; i++) {
    struct alarm *alarm = &tally->alarms[i];
    if (alarm->count && strcmp(alarm->key, more->key) != 0 && i + 1 < ALARMS_MAX) continue;
    const int64_t count = alarm->count + more->count;
    if (!alarm->count || more->first < alarm->first) *alarm = *more;
    alarm->count = count;
    return;
  }
}

/* 0: no row is off. */
static int tenth_of(double share) { return share < 1 ? (int)ceil(share * TENTHS) : TENTHS; }

static void count_case(struct tally *tally, const struct sf_engine *engine, const struct sf_case *c, const struct sf_outcome *outcome,
                       int64_t index) {
  const enum sf_bench_condition condition = sf_bench_condition_of(c);
  const struct sf_judgement *judgement = sf_engine_judgement(engine);
  const struct sf_feature_mask features = sf_features_of(c);
  for (int i = 0; i < sf_feature_count; i++) tally->features[i] += sf_feature_mask_has(&features, i);
  if (outcome->status == SF_OK)
    tally->verdicts[condition][outcome->verdict]++;
  else
    tally->failed++;
  if (outcome->status == SF_OK && outcome->verdict == SF_VERDICT_INCONCLUSIVE)
    tally->inconclusive[condition][most_frequent_reason(judgement)]++;
  if (outcome->status != SF_OK || outcome->verdict == SF_VERDICT_FINDING) {
    struct alarm alarm = {.count = 1, .first = index, .c = *c};
    snprintf(alarm.key, sizeof alarm.key, "%s", outcome->status == SF_OK ? outcome->shrink_key : "failure of the harness");
    snprintf(alarm.text, sizeof alarm.text, "%s", outcome->text);
    count_alarm(tally, &alarm);
  }
  for (int32_t i = 0; i < judgement->result_count; i++) {
    const struct sf_tensor_result *result = &judgement->results[i];
    tally->tensors[condition][result->id.kind]++;
    tally->rounding[condition][tenth_of(result->rounding_share)]++;
    if (!result->judged) tally->unchecked[condition][result->id.kind][reason_of(result->why_not)]++;
  }
  if (c->precision.compute == SF_F32) count_pairs(tally, engine);
}

static void work(struct sf_bench_worker *worker) {
  const struct run *run = worker->ctx;
  struct tally *tally = worker->result;
  struct sf_engine *engine = sf_bench_engine(false, false);
  int64_t first, last;
  while (sf_bench_next(worker, &first, &last)) {
    for (int64_t i = first; i < last; i++) {
      struct sf_case c;
      struct sf_outcome outcome;
      sf_bench_case(&c, &run->draws, run->from + i);
      sf_engine_run(engine, &c, NULL, &outcome);
      count_case(tally, engine, &c, &outcome, run->from + i);
    }
  }
  tally->raised = sf_engine_costs(engine)->raised;
  tally->cpu_seconds = sf_bench_cpu_seconds();
  sf_engine_destroy(engine);
}

/* All members before alarms are 64-bit counts. */
static void merge(void *total, const void *result) {
  struct tally *into = total;
  const struct tally *from = result;
  sf_bench_add_counts(into, from, offsetof(struct tally, alarms));
  into->cpu_seconds += from->cpu_seconds;
  for (int i = 0; i < ALARMS_MAX && from->alarms[i].count; i++) count_alarm(into, &from->alarms[i]);
}

static double share(int64_t part, int64_t whole) { return whole ? (double)part / (double)whole : 0; }

static void condition_out(struct sf_json_out *json, const struct tally *tally, int condition) {
  int64_t tensors = 0, unchecked = 0;
  sf_json_out_object(json, sf_bench_condition_names[condition]);
  for (int v = SF_VERDICT_PASS; v <= SF_VERDICT_SKIP; v++)
    sf_json_out_int(json, sf_verdict_name((enum sf_verdict)v), tally->verdicts[condition][v]);
  sf_json_out_object(json, "inconclusive_by_reason");
  for (int reason = 0; reason < REASON_COUNT; reason++)
    if (tally->inconclusive[condition][reason]) sf_json_out_int(json, reason_names[reason], tally->inconclusive[condition][reason]);
  sf_json_out_end(json);
  for (int kind = 0; kind < SF_KIND_COUNT; kind++) {
    if (!tally->tensors[condition][kind]) continue;
    int64_t of_kind = 0;
    sf_json_out_object(json, sf_kind_name((enum sf_kind)kind));
    sf_json_out_int(json, "tensors", tally->tensors[condition][kind]);
    for (int reason = 0; reason < REASON_COUNT; reason++) {
      const int64_t count = tally->unchecked[condition][kind][reason];
      if (count) sf_json_out_real(json, reason_names[reason], share(count, tally->tensors[condition][kind]));
      of_kind += count;
    }
    sf_json_out_real(json, "unchecked_share", share(of_kind, tally->tensors[condition][kind]));
    sf_json_out_end(json);
    tensors += tally->tensors[condition][kind];
    unchecked += of_kind;
  }
  sf_json_out_real(json, "unchecked_share", share(unchecked, tensors));
  sf_json_out_array(json, "by_tenths_of_rounding_alarm");
  for (int tenth = 0; tenth <= TENTHS; tenth++) sf_json_out_int(json, NULL, tally->rounding[condition][tenth]);
  sf_json_out_end(json);
  sf_json_out_end(json);
}

static void pairs_out(struct sf_json_out *json, const struct tally *tally) {
  sf_json_out_array(json, "fp32_pairs_often_unchecked");
  for (int kind = 0; kind < SF_KIND_COUNT; kind++) {
    for (int cls = 0; cls < SF_MODULE_CLASS_COUNT; cls++) {
      const int64_t cases = tally->pair_cases[kind][cls];
      if (100 * tally->pair_cases_unchecked[kind][cls] <= UNCHECKED_PERCENT_MAX * cases) continue;
      sf_json_out_object(json, NULL);
      sf_json_out_text(json, "kind", sf_kind_name((enum sf_kind)kind));
      sf_json_out_text(json, "module", sf_modules[cls].name);
      sf_json_out_int(json, "cases", cases);
      sf_json_out_real(json, "cases_unchecked", share(tally->pair_cases_unchecked[kind][cls], cases));
      sf_json_out_real(json, "tensors_unchecked", share(tally->pair_unchecked[kind][cls], tally->pair[kind][cls]));
      sf_json_out_end(json);
    }
  }
  sf_json_out_end(json);
}

static void totals_out(struct sf_json_out *json, const struct tally *tally) {
  int64_t verdicts[4] = {0}, cases = tally->failed;
  for (int condition = 0; condition < SF_BENCH_CONDITIONS; condition++)
    for (int v = 0; v < 4; v++) verdicts[v] += tally->verdicts[condition][v], cases += tally->verdicts[condition][v];
  sf_json_out_int(json, "cases", cases);
  for (int v = 0; v < 4; v++) sf_json_out_int(json, sf_verdict_name((enum sf_verdict)v), verdicts[v]);
  sf_json_out_int(json, "failed", tally->failed);
  sf_json_out_real(json, "inconclusive_share", share(verdicts[SF_VERDICT_INCONCLUSIVE], cases));
  sf_json_out_int(json, "cases_that_needed_more_draws", tally->raised);
  sf_json_out_real(json, "cpu_seconds", tally->cpu_seconds);
  sf_json_out_real(json, "cases_per_cpu_s", (double)cases / tally->cpu_seconds);
}

static void print(struct sf_json_out *json, const struct tally *tally) {
  totals_out(json, tally);
  for (int condition = 0; condition < SF_BENCH_CONDITIONS; condition++) condition_out(json, tally, condition);
  pairs_out(json, tally);
  sf_json_out_object(json, "space");
  for (int i = 0; i < sf_feature_count; i++) sf_json_out_int(json, sf_features[i].name, tally->features[i]);
  sf_json_out_end(json);
  sf_json_out_array(json, "alarms");
  for (int i = 0; i < ALARMS_MAX && tally->alarms[i].count; i++) {
    sf_json_out_object(json, NULL);
    sf_json_out_text(json, "key", tally->alarms[i].key);
    sf_json_out_int(json, "cases", tally->alarms[i].count);
    sf_json_out_int(json, "first", tally->alarms[i].first);
    sf_json_out_text(json, "text", tally->alarms[i].text);
    sf_bench_case_out(json, "case", &tally->alarms[i].c);
    sf_json_out_end(json);
  }
  sf_json_out_end(json);
}

static const struct sf_option options[] = {
    SF_BENCH_WORK_OPTIONS(struct args, 1, 100000000, "Cases to run.", "Seed of the campaign."),
    SF_BENCH_NUMBER_AT(struct args, from, 0, 100000000, "Index of the first."),
    SF_BENCH_NUMBER_AT(struct args, layouts, 1, 1000, "Cases per logical function."),
    SF_BENCH_SPACE_OPTIONS(struct args, SF_OPTION_TEXTS, presets),
};
static const struct sf_command command = {.name = "bench_clean",
                                          .help = "Runs clean cases and counts verdicts and unchecked tensors.",
                                          .options = options,
                                          .option_count = (int32_t)(sizeof options / sizeof options[0])};

int main(int argc, char **argv) {
  struct args args = {.cases = 2000, .seed = 1, .jobs = 2, .layouts = 1};
  const int code = sf_bench_begin(&command, &args, argc, argv);
  if (code >= 0) return code;
  static struct tally total;
  struct run run = {.from = args.from};
  sf_bench_draws(&run.draws, (uint64_t)args.seed, args.layouts, &args.presets, &args.sets);
  const double start = sf_engine_now();
  sf_bench_fork_merge(&total, args.jobs, sizeof total, args.cases, 8 * args.layouts, work, &run, merge);
  struct sf_json_out *json = sf_bench_report("bench_clean", argc, argv);
  print(json, &total);
  sf_json_out_real(json, "seconds", sf_engine_now() - start);
  return sf_bench_end(json, total.failed > 0);
}
