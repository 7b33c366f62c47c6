/* Share of a trial's time that is spent in compute kernels, at hidden 512. Kernels of the candidate: all operations of the device, by a
 * timing proxy. Kernels of the reference: its runs with a sink that does nothing. The first logical function of each mode is not counted:
 * memory is touched for the first time then, which a campaign does once. */
#include "tests/bench/bench_common.h"
#include "tests/bench/bench_proxy.h"

#include "harness/run/trial/engine_internal.h"
#include "harness/run/trial/gemm_table.h"

#include <math.h>
#include <stdio.h>

enum { LAYOUTS = 8 };
struct args {
  int64_t functions, seed, hidden, seq;
  int32_t precision;
};

struct totals {
  double trials, reference, reference_kernels, raised_kernels, candidate, gemm, other, collect, judge, comm, flops;
  int64_t cases, not_passed;
};

static void emit_nothing(void *ctx, struct sf_trace_id id, const void *values, struct sf_shape shape) {
  (void)ctx, (void)id, (void)values, (void)shape;
}

/* A run of the reference without what is made of its tensors: the mean of the plain run and one of each kind. */
static double run_seconds(const struct sf_case *c) {
  static const enum sf_perturb runs[] = {SF_PERTURB_NONE, SF_PERTURB_STORED, SF_PERTURB_SPLIT};
  enum { RUNS = sizeof runs / sizeof *runs };
  const struct sf_reference_sink sink = {NULL, emit_nothing};
  struct sf_catalog *catalog = NULL;
  if (sf_catalog_create(&catalog, c) != SF_OK) sf_bench_die("out of memory");
  const double start = sf_engine_now();
  for (int i = 0; i < RUNS; i++) {
    const struct sf_reference_options options = {.perturb = runs[i], .draw = (uint64_t)i, .gemm = &sf_run_gemm_table};
    if (sf_reference_run(catalog, &options, &sink) != SF_OK) sf_bench_die("out of memory");
  }
  const double seconds = sf_engine_now() - start;
  sf_catalog_destroy(catalog);
  return seconds / RUNS;
}

static void make_draws(struct sf_campaign_options *draws, const struct args *args, enum sf_mode mode) {
  char text[64];
  const struct {
    const char *key;
    int64_t value;
  } sizes[] = {{"model.hidden", args->hidden},
               {"model.heads", args->hidden / 64},
               {"model.kv_heads", args->hidden / 64},
               {"model.head_dim", 64},
               {"model.ffn", 4 * args->hidden},
               {"model.seq", args->seq},
               {"model.vocab", 1024},
               {"model.vocab_padded", 1024},
               {"model.layers", 2},
               {"train.microbatches", 2},
               {"train.steps", 1},
               {"train.microbatch_size", 1}};
  sf_bench_draws(draws, (uint64_t)args->seed, LAYOUTS, NULL, NULL);
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    snprintf(text, sizeof text, "%s=%lld", sizes[i].key, (long long)sizes[i].value);
    sf_bench_set(draws, text);
  }
  sf_bench_set(draws, "train.frozen=none");
  sf_bench_set(draws, args->precision == SF_BF16 ? "precision.compute=bf16" : "precision.compute=fp32");
  sf_bench_set(draws, mode == SF_MODE_E2E ? "mode=e2e" : "mode=isolated");
}

static void measure(struct totals *totals, const struct args *args, enum sf_mode mode) {
  struct sf_campaign_options draws;
  make_draws(&draws, args, mode);
  struct sf_engine *engine = sf_bench_engine(true, false);
  struct sf_bench_proxy *proxy = sf_bench_proxy_create(engine);
  struct sf_engine_costs before = {0};
  double seconds_of_run = 0;
  for (int64_t i = -LAYOUTS; i < args->functions * LAYOUTS; i++) {
    struct sf_case c;
    struct sf_outcome outcome;
    sf_bench_case(&c, &draws, i + LAYOUTS);
    const int64_t raised_runs = sf_engine_costs(engine)->raised_runs;
    sf_engine_run(engine, &c, NULL, &outcome);
    if (outcome.status != SF_OK) sf_bench_die("%s", outcome.text);
    if (i < 0) {
      before = *sf_engine_costs(engine);
      sf_bench_proxy_reset(proxy);
      continue;
    }
    totals->trials += outcome.seconds;
    totals->cases++;
    totals->not_passed += outcome.verdict != SF_VERDICT_PASS;
    if (i % LAYOUTS == 0) {
      seconds_of_run = run_seconds(&c);
      totals->reference_kernels += seconds_of_run;
    }
    totals->raised_kernels += (double)(sf_engine_costs(engine)->raised_runs - raised_runs) * seconds_of_run;
  }
  const struct sf_engine_costs *costs = sf_engine_costs(engine);
  totals->reference += costs->reference - before.reference, totals->candidate += costs->candidate - before.candidate;
  totals->collect += costs->collect - before.collect, totals->judge += costs->judge - before.judge;
  totals->comm += costs->comm_reduce + costs->comm_schedule - before.comm_reduce - before.comm_schedule;
  totals->gemm += sf_bench_proxy_gemm_seconds(proxy), totals->other += sf_bench_proxy_other_seconds(proxy);
  totals->flops += sf_bench_proxy_gemm_flops(proxy);
  sf_bench_proxy_destroy(proxy);
  sf_engine_destroy(engine);
}

static const char *const precisions[] = {"fp32", "bf16", NULL};
static const struct sf_option options[] = {
    {.name = "functions",
     .type = SF_OPTION_INT,
     .offset = offsetof(struct args, functions),
     .help = "Logical functions per mode, eight layouts each.",
     .min = 1,
     .max = 1000},
    {.name = "seed", .type = SF_OPTION_INT, .offset = offsetof(struct args, seed), .help = "Seed of the campaign."},
    {.name = "hidden",
     .type = SF_OPTION_INT,
     .offset = offsetof(struct args, hidden),
     .help = "Width; a multiple of 64.",
     .min = 64,
     .max = 8192},
    {.name = "seq", .type = SF_OPTION_INT, .offset = offsetof(struct args, seq), .help = "Tokens of a sequence.", .min = 8, .max = 4096},
    {.name = "precision",
     .type = SF_OPTION_CHOICE,
     .offset = offsetof(struct args, precision),
     .help = "Of the compute format.",
     .choices = precisions},
};
static const struct sf_command command = {.name = "bench_kernels",
                                          .help = "Share of a trial's time inside compute kernels.",
                                          .options = options,
                                          .option_count = (int32_t)(sizeof options / sizeof options[0])};

int main(int argc, char **argv) {
  struct args args = {.functions = 2, .seed = 1, .hidden = 512, .seq = 512, .precision = 1};
  const int code = sf_bench_begin(&command, &args, argc, argv);
  if (code >= 0) return code;
  args.precision = args.precision ? SF_BF16 : SF_F32;
  struct totals t = {0};
  measure(&t, &args, SF_MODE_ISOLATED);
  measure(&t, &args, SF_MODE_E2E);
  const double reference_kernels = fmin(t.reference_kernels, t.reference), raised_kernels = fmin(t.raised_kernels, t.judge);
  struct sf_json_out *json = sf_bench_report("bench_kernels", argc, argv);
  sf_json_out_int(json, "cases", t.cases);
  sf_json_out_int(json, "not_passed", t.not_passed);
  sf_json_out_real(json, "seconds_per_case", t.trials / (double)t.cases);
  sf_json_out_real(json, "kernel_share_of_trial", (t.gemm + t.other + reference_kernels + raised_kernels) / t.trials);
  sf_json_out_real(json, "kernel_share_of_candidate", (t.gemm + t.other) / t.candidate);
  sf_json_out_real(json, "share_candidate_gemm", t.gemm / t.trials);
  sf_json_out_real(json, "share_candidate_other_kernels", t.other / t.trials);
  sf_json_out_real(json, "share_candidate_comm", t.comm / t.trials);
  sf_json_out_real(json, "share_candidate_trace_and_fill", t.collect / t.trials);
  sf_json_out_real(json, "share_candidate", t.candidate / t.trials);
  sf_json_out_real(json, "share_reference_kernels", reference_kernels / t.trials);
  sf_json_out_real(json, "share_reference", t.reference / t.trials);
  sf_json_out_real(json, "share_more_draws_kernels", raised_kernels / t.trials);
  sf_json_out_real(json, "share_judge", t.judge / t.trials);
  sf_json_out_real(json, "candidate_gemm_gflops", t.flops / t.gemm / 1e9);
  return sf_bench_end(json, false);
}
