/* A layer of full width: preset llama-2-7b with one layer, a small vocabulary and a short sequence, on eight tensor-parallel ranks with
 * sequence parallelism. --percent scales hidden, heads and ffn together, for machines with less memory. */
#include "tests/bench/bench_common.h"

#include "harness/run/trial/engine_internal.h"

#include <inttypes.h>
#include <stdio.h>

struct args {
  int64_t percent, seq, vocab, tp, seed;
  int32_t mode;
};

static void set(struct sf_campaign_options *draws, const char *key, int64_t value) {
  char text[96];
  snprintf(text, sizeof text, "%s=%" PRId64, key, value);
  sf_bench_set(draws, text);
}

static void make_case(struct sf_case *c, const struct args *args) {
  const char *preset = "llama-2-7b";
  static const char *const fixed[] = {"model.layers=1",      "train.microbatches=1", "train.microbatch_size=1",
                                      "train.steps=1",       "train.frozen=none",    "train.recompute_layers=0",
                                      "layout.sp=on",        "layout.pp=1",          "layout.dp=1",
                                      "data.tokens=uniform", "data.mask=uneven",     "data.weights=normal",
                                      "data.acts=normal",    "data.grads=normal"};
  struct sf_campaign_options draws;
  sf_bench_draws(&draws, (uint64_t)args->seed, 1, &(struct sf_texts){&preset, 1}, NULL);
  for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++) sf_bench_set(&draws, fixed[i]);
  sf_bench_set(&draws, args->mode == SF_MODE_E2E ? "mode=e2e" : "mode=isolated");
  const int64_t heads = 32 * args->percent / 100;
  set(&draws, "model.hidden", heads * 128);
  set(&draws, "model.heads", heads);
  set(&draws, "model.kv_heads", heads);
  set(&draws, "model.ffn", 11008 * args->percent / 100 / args->tp * args->tp);
  set(&draws, "model.seq", args->seq);
  set(&draws, "model.vocab", args->vocab);
  set(&draws, "model.vocab_padded", args->vocab);
  set(&draws, "layout.tp", args->tp);
  sf_bench_case(c, &draws, 0);
}

static const char *const modes[] = {"isolated", "e2e", NULL};
static const struct sf_option options[] = {
    {.name = "percent",
     .type = SF_OPTION_INT,
     .offset = offsetof(struct args, percent),
     .help = "Width in percent of llama-2-7b's: a multiple of 25.",
     .min = 25,
     .max = 100},
    {.name = "seq", .type = SF_OPTION_INT, .offset = offsetof(struct args, seq), .help = "Tokens of the sequence.", .min = 8, .max = 4096},
    {.name = "vocab", .type = SF_OPTION_INT, .offset = offsetof(struct args, vocab), .help = "Vocabulary.", .min = 8, .max = 128256},
    {.name = "tp", .type = SF_OPTION_INT, .offset = offsetof(struct args, tp), .help = "Tensor-parallel size.", .min = 2, .max = 32},
    {.name = "seed", .type = SF_OPTION_INT, .offset = offsetof(struct args, seed), .help = "Seed of the case."},
    {.name = "mode", .type = SF_OPTION_CHOICE, .offset = offsetof(struct args, mode), .help = "Mode of the case.", .choices = modes},
};
static const struct sf_command command = {.name = "bench_width",
                                          .help = "Time and memory of one layer of full width.",
                                          .options = options,
                                          .option_count = (int32_t)(sizeof options / sizeof options[0])};

int main(int argc, char **argv) {
  struct args args = {.percent = 100, .seq = 64, .vocab = 4096, .tp = 8, .seed = 1};
  const int code = sf_bench_begin(&command, &args, argc, argv);
  if (code >= 0) return code;
  struct sf_case c;
  make_case(&c, &args);
  struct sf_engine *engine = sf_bench_engine(true, false);
  struct sf_outcome outcome;
  sf_engine_run(engine, &c, NULL, &outcome);
  const struct sf_engine_costs *costs = sf_engine_costs(engine);
  struct sf_json_out *json = sf_bench_report("bench_width", argc, argv);
  sf_json_out_text(json, "verdict", outcome.status == SF_OK ? sf_verdict_name(outcome.verdict) : sf_status_text(outcome.status));
  sf_json_out_text(json, "text", outcome.text);
  sf_json_out_int(json, "hidden", c.model.hidden);
  sf_json_out_int(json, "ffn", c.model.ffn);
  sf_json_out_int(json, "ranks", outcome.ranks);
  sf_json_out_int(json, "checked", outcome.checked);
  sf_json_out_int(json, "unchecked", outcome.unchecked);
  sf_json_out_real(json, "seconds", outcome.seconds);
  sf_json_out_real(json, "peak_rss_gib", sf_bench_peak_rss_mib() / 1024);
  if (engine->expectations) sf_json_out_real(json, "expectations_gib", (double)sf_expectations_bytes(engine->expectations) / (1 << 30));
  sf_json_out_real(json, "seconds_reference_and_noise", costs->reference);
  sf_json_out_real(json, "seconds_candidate", costs->candidate);
  sf_json_out_real(json, "seconds_trace_and_fill", costs->collect);
  sf_json_out_real(json, "seconds_judge", costs->judge);
  sf_engine_destroy(engine);
  return sf_bench_end(json, outcome.status != SF_OK);
}
