/* Cases per second and core, at the preset gpt2-small-tiny where no other is named: worlds of four ranks, or of --ranks, several layouts
 * per reference, both modes. The same cases run twice: once untouched for the rate, once with clocks inside for where the time goes. */
#include "tests/bench/bench_common.h"
#include "tests/bench/bench_proxy.h"

#include "harness/run/trial/engine_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYOUTS_DRAWN = 256 };

struct args {
  int64_t cases, seed, jobs, layouts, ranks;
  int32_t device;
  const char *preset;
  struct sf_texts sets;
};

struct context {
  struct sf_case *cases;
  int64_t count;
  enum sf_device_kind device;
};

struct result {
  double seconds, cpu_seconds; /* of the untouched run */
  double reference, candidate, collect, judge, gemm, reference_gemm, kernels, reduce, schedule, measured_seconds;
  double references, raised, not_passed;
};

/* Case i: layouts of one logical function follow each other; functions alternate between the modes. Worlds of another size are passed over.
 */
static void draw_cases(struct context *out, const struct args *args) {
  const struct sf_texts preset = {(const char **)&args->preset, 1};
  struct sf_campaign_options draws[2];
  for (int mode = 0; mode < 2; mode++) {
    sf_bench_draws(&draws[mode], (uint64_t)args->seed, LAYOUTS_DRAWN, &preset, &args->sets);
    draws[mode].space.max_ranks = args->ranks;
    sf_bench_set(&draws[mode], mode == SF_MODE_E2E ? "mode=e2e" : "mode=isolated");
  }
  out->cases = calloc((size_t)args->cases, sizeof *out->cases);
  if (!out->cases) sf_bench_die("out of memory");
  for (int64_t block = 0; out->count < args->cases; block++) {
    int64_t taken = 0;
    for (int64_t place = 0; place < LAYOUTS_DRAWN && taken < args->layouts && out->count < args->cases; place++) {
      struct sf_case *c = &out->cases[out->count];
      sf_bench_case(c, &draws[block % 2], block / 2 * LAYOUTS_DRAWN + place);
      if (sf_case_ranks(c) != args->ranks) continue;
      taken++;
      out->count++;
    }
    if (taken == 0) sf_bench_die("no layout of %d ranks in %d draws", (int)args->ranks, LAYOUTS_DRAWN);
  }
}

static int64_t run_cases(struct sf_engine *engine, const struct context *context, int64_t first, int64_t last) {
  int64_t not_passed = 0;
  for (int64_t i = first; i < last; i++) {
    struct sf_outcome outcome;
    sf_engine_run(engine, &context->cases[i], NULL, &outcome);
    if (outcome.status != SF_OK) sf_bench_die("case %lld: %s", (long long)i, outcome.text);
    not_passed += outcome.verdict == SF_VERDICT_FINDING || outcome.verdict == SF_VERDICT_SKIP;
  }
  return not_passed;
}

/* Each worker runs all of its cases in both passes; it takes one chunk only. */
static void work(struct sf_bench_worker *worker) {
  struct result *result = worker->result;
  int64_t first, last;
  if (!sf_bench_next(worker, &first, &last)) return;
  const struct context *context = worker->ctx;
  struct sf_engine *engine = sf_bench_engine_on(context->device, false, false);
  run_cases(engine, context, first, first + 1); /* kernels are made, memory is there */
  const double start = sf_engine_now(), cpu_start = sf_bench_cpu_seconds();
  result->not_passed = (double)run_cases(engine, context, first, last);
  result->seconds = sf_engine_now() - start;
  result->cpu_seconds = sf_bench_cpu_seconds() - cpu_start;
  sf_engine_destroy(engine);
  engine = sf_bench_engine_on(context->device, true, false);
  struct sf_bench_proxy *proxy = sf_bench_proxy_create(engine);
  const double measured = sf_engine_now();
  run_cases(engine, context, first, last);
  result->measured_seconds = sf_engine_now() - measured;
  const struct sf_engine_costs *costs = sf_engine_costs(engine);
  result->reference = costs->reference, result->candidate = costs->candidate, result->collect = costs->collect,
  result->judge = costs->judge;
  result->reduce = costs->comm_reduce, result->schedule = costs->comm_schedule;
  result->reference_gemm = sf_bench_proxy_reference_gemm_seconds(proxy);
  result->gemm = sf_bench_proxy_gemm_seconds(proxy), result->kernels = sf_bench_proxy_other_seconds(proxy);
  result->references = (double)costs->references, result->raised = (double)costs->raised;
  sf_bench_proxy_destroy(proxy);
  sf_engine_destroy(engine);
}

/* All members are doubles. */
static void merge(void *into, const void *from) {
  for (size_t i = 0; i < sizeof(struct result) / sizeof(double); i++) ((double *)into)[i] += ((const double *)from)[i];
}

static void split_out(struct sf_json_out *json, const struct result *r) {
  const double kernels = r->gemm + r->kernels, comm = r->reduce + r->schedule;
  sf_json_out_object(json, "split_of_measured_run");
  sf_json_out_real(json, "reference_and_noise", r->reference / r->measured_seconds);
  sf_json_out_real(json, "reference_gemm", r->reference_gemm / r->measured_seconds);
  sf_json_out_real(json, "gemm", (r->reference_gemm + r->gemm) / r->measured_seconds);
  sf_json_out_real(json, "candidate", r->candidate / r->measured_seconds);
  sf_json_out_real(json, "candidate_gemm", r->gemm / r->measured_seconds);
  sf_json_out_real(json, "candidate_other_kernels", r->kernels / r->measured_seconds);
  sf_json_out_real(json, "candidate_comm_arithmetic", r->reduce / r->measured_seconds);
  sf_json_out_real(json, "candidate_comm_scheduling", r->schedule / r->measured_seconds);
  sf_json_out_real(json, "candidate_trace_and_fill", r->collect / r->measured_seconds);
  sf_json_out_real(json, "candidate_rest", (r->candidate - kernels - comm - r->collect) / r->measured_seconds);
  sf_json_out_real(json, "judge", r->judge / r->measured_seconds);
  sf_json_out_real(json, "slowdown_by_clocks", r->measured_seconds / r->seconds);
  sf_json_out_end(json);
}

static const char *const devices[] = {"cpu", "cuda", NULL}; /* enum sf_device_kind */
static const struct sf_option options[] = {
    SF_BENCH_WORK_OPTIONS(struct args, 1, 10000000, "Cases to run.", "Seed of the campaign."),
    SF_BENCH_NUMBER_AT(struct args, layouts, 1, 64, "Cases per logical function."),
    SF_BENCH_NUMBER_AT(struct args, ranks, 1, 64, "Ranks of every case."),
    {.name = "device",
     .type = SF_OPTION_CHOICE,
     .offset = offsetof(struct args, device),
     .help = "Where layers compute.",
     .choices = devices},
    SF_BENCH_SPACE_OPTIONS(struct args, SF_OPTION_TEXT, preset),
};
static const struct sf_command command = {
    .name = "bench_speed",
    .help = "Cases per second and core. Without --set: bf16, one step, microbatches of one sequence; tp, sp, dp and pp alone.",
    .options = options,
    .option_count = (int32_t)(sizeof options / sizeof options[0])};

int main(int argc, char **argv) {
  struct args args = {.cases = 2000, .seed = 1, .jobs = 1, .layouts = 8, .ranks = 4, .preset = "gpt2-small-tiny"};
  const int code = sf_bench_begin(&command, &args, argc, argv);
  if (code >= 0) return code;
  /* After what sizes the work: what every change to the dense path is measured by has nothing beside tp, sp, dp and pp. */
  static const char *defaults[] = {"precision.compute=bf16", "train.microbatches=2", "train.microbatch_size=1", "train.steps=1",
                                   "precision.residual_fp32=off", "precision.stochastic=off", "precision.loss_scale_log2=0",
                                   "train.dropout_milli=0", "train.label_smoothing_milli=0", "data.documents=1", "data.padding=0",
                                   "layout.cp=1", "layout.ep=1", "layout.etp=1", "layout.vpp=1", "layout.zero=0",
                                   "layout.recompute_sharded=off", "layout.tp_overlap=off", "reload.after_step=0"};
  if (args.sets.count == 0) args.sets = (struct sf_texts){defaults, (int32_t)(sizeof defaults / sizeof defaults[0])};
  struct context context = {.device = (enum sf_device_kind)args.device};
  draw_cases(&context, &args);
  const int64_t share = (context.count + args.jobs - 1) / args.jobs, chunk = (share + args.layouts - 1) / args.layouts * args.layouts;
  struct result total = {0};
  sf_bench_fork_merge(&total, args.jobs, sizeof total, context.count, chunk, work, &context, merge);
  struct sf_json_out *json = sf_bench_report("bench_speed", argc, argv);
  sf_json_out_int(json, "cases", context.count);
  sf_json_out_int(json, "layouts_per_reference", args.layouts);
  sf_json_out_int(json, "ranks", args.ranks);
  sf_json_out_text(json, "device", devices[args.device]);
  sf_json_out_real(json, "cases_per_s_and_core", (double)context.count / total.seconds);
  sf_json_out_real(json, "cases_per_cpu_s", (double)context.count / total.cpu_seconds);
  sf_json_out_real(json, "ms_per_case", 1000 * total.cpu_seconds / (double)context.count);
  sf_json_out_int(json, "references", (int64_t)total.references);
  sf_json_out_int(json, "raised", (int64_t)total.raised);
  sf_json_out_int(json, "findings_or_skips", (int64_t)total.not_passed);
  split_out(json, &total);
  free(context.cases);
  return sf_bench_end(json, false);
}
