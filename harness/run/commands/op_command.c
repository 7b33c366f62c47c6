#include "harness/base/sinks.h"
#include "harness/run/commands/op_command_shared.h"

#include "harness/run/commands/commands.h"
#include "harness/run/opfuzz/op_campaign.h"
#include "harness/run/opfuzz/op_opened.h"
#include "harness/run/plugins/plugin_probe.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct op_flags {
  int64_t cases, time_ms, stop_after, seed, jobs, shrink_budget, deadline_ms, max_elements;
  int32_t gemm, device;
  const char *target, *out, *known;
  bool json, dry_run;
};

static const struct sf_option options[] = {
    SF_OPTION_AT(struct op_flags, "target", TEXT, target, "T", "op:NAME, op:all or plugin:./LIB.so (shardfuzz list operations)"),
    SF_NUMBER_AT(struct op_flags, "cases", cases, 1, INT64_MAX, "number of cases"),
    SF_DURATION_AT(struct op_flags, "time", time_ms, "hand out cases for this long"),
    SF_NUMBER_AT(struct op_flags, "stop-after", stop_after, 1, INT64_MAX,
                 "hand out no more cases once there are so many new findings; what runs then still counts"),
    SF_OPTION_AT(struct op_flags, "seed", INT, seed, "S", "of the campaign; the same seed draws the same cases"),
    SF_NUMBER_AT(struct op_flags, "max-elements", max_elements, 64, 1 << 24, "largest case, all operands together; default 300000"),
    SF_NUMBER_AT(struct op_flags, "jobs", jobs, 1, 64, "worker processes; default: one per core"),
    SF_NUMBER_AT(struct op_flags, "shrink-budget", shrink_budget, 0, INT32_MAX, "trials spent on shrinking one finding"),
    SF_DURATION_AT(struct op_flags, "deadline", deadline_ms, "a case that takes longer is reported as a hang; default: 5 s, on a GPU 60 s"),
    SF_OPTION_AT(struct op_flags, "known", TEXT, known, "FILE", "list of known findings: with these alone it exits 0"),
    SF_OPTION_AT(struct op_flags, "dry-run", FLAG, dry_run, NULL, "print the cases, one line of JSON each, and run none"),
    SF_OPTION_AT(struct op_flags, "out", TEXT, out, "DIR", "where findings are written"),
    SF_CHOICE_AT(struct op_flags, "device", device, sf_device_names, "whose operations"),
    SF_CHOICE_AT(struct op_flags, "gemm", gemm, sf_gemm_names, "matrix products of the device"),
    SF_OPTION_AT(struct op_flags, "json", FLAG, json, NULL, "print one JSON object as the last line of stdout"),
};

static const struct sf_command command = {
    .name = "fuzz --target op:NAME",
    .help = "Draws cases of single operations, runs each twice and compares it with a reference in fp64, and shrinks what fails.\n"
            "Without --cases and --time it goes on until it is interrupted.",
    .options = options,
    .option_count = (int32_t)(sizeof options / sizeof options[0]),
};

bool sf_op_is_target(const char *target) { return sf_op_target_is_one(target) && !sf_plugin_is_target(target); }

const char *sf_op_target_of_arguments(int argc, char **argv) {
  const char *target = NULL;
  for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
    if (strncmp(argv[i], "--target=", 9) == 0)
      target = argv[i] + 9;
    else if (strcmp(argv[i], "--target") == 0 && i + 1 < argc)
      target = argv[i + 1];
  }
  return target && sf_op_is_target(target) ? target : NULL;
}

static void print_summary(const struct sf_op_campaign_result *r, const struct sf_known *known, FILE *to) {
  sf_print(
      to, "%" PRId64 " cases in %.1f s (%.0f/s): %" PRId64 " passed, %" PRId64 " findings, %" PRId64 " inconclusive, %" PRId64 " skipped\n",
      r->cases, r->seconds, r->seconds > 0 ? (double)r->cases / r->seconds : 0, r->passed, r->found, r->inconclusive, r->skipped);
  if (r->inconclusive) sf_print(to, "last inconclusive: %s\n", r->lack);
  sf_print(to, "elements judged: %" PRId64 " (%.2f %%)\n", r->judged, r->elements ? 100.0 * (double)r->judged / (double)r->elements : 0);
  if (sf_interrupted) sf_print_lines(to, "interrupted\n");
  if (r->ended_early) sf_print(to, "ended early: %d cases hung or used up their processor time\n", SF_OP_LOST_MAX);
  if (r->finding_count) sf_print(to, "%d distinct finding%s:\n", r->finding_count, r->finding_count == 1 ? "" : "s");
  for (int32_t i = 0; i < r->finding_count; i++) {
    const struct sf_op_finding *f = &r->findings[i];
    sf_print(to, "  %-44s %6" PRId64 " case%s, first %" PRId64 "%s  %s\n", f->signature, f->count, f->count == 1 ? "" : "s", f->first,
             sf_known_has(known, f->signature) ? " (known)" : "", f->folder);
  }
}

void sf_op_json_error(struct sf_json_out *json, const struct sf_op_outcome *o) {
  sf_json_out_real(json, "relative", o->error.relative);
  sf_json_out_real(json, "row_relative", o->error.row_relative);
  sf_json_out_int(json, "worst_row", o->error.row);
  sf_json_out_real(json, "ulps", o->error.ulps);
}

void sf_op_json_case(struct sf_json_out *json, const struct sf_op_target *target, const struct sf_op_case *c) {
  const struct sf_op *op = sf_op_of(target, c);
  sf_json_out_object(json, "shape");
  for (int32_t i = 0; i < op->dim_count; i++) sf_json_out_int(json, op->dims[i], c->field[SF_OP_DIM + i]);
  sf_json_out_end(json);
}

int sf_op_json_print(struct sf_json_out *json, int code) {
  struct sf_text line = {0};
  if (sf_json_out_finish(json, &line) != SF_OK) {
    sf_text_destroy(&line);
    return sf_exit_failure(SF_ENOMEM, NULL);
  }
  sf_print(stdout, "%s\n", line.data);
  sf_text_destroy(&line);
  return code;
}

static int json_summary(const struct sf_op_campaign_result *r, const struct sf_op_target *target, const struct sf_known *known,
                        const char *reason, int code) {
  struct sf_json_out *json = sf_json_out_create();
  sf_json_out_bool(json, "interrupted", sf_interrupted != 0);
  sf_json_out_int(json, "cases", r->cases);
  sf_json_out_int(json, "passed", r->passed);
  sf_json_out_int(json, "findings", r->found);
  sf_json_out_int(json, "inconclusive", r->inconclusive);
  sf_json_out_int(json, "skipped", r->skipped);
  sf_json_out_real(json, "seconds", r->seconds);
  sf_json_out_int(json, "elements", r->elements);
  sf_json_out_int(json, "judged", r->judged);
  if (*reason) sf_json_out_text(json, "reason", reason);
  sf_json_out_array(json, "signatures");
  for (int32_t i = 0; i < r->finding_count; i++) {
    const struct sf_op_finding *f = &r->findings[i];
    sf_json_out_object(json, NULL);
    sf_json_out_text(json, "signature", f->signature);
    sf_json_out_bool(json, "known", sf_known_has(known, f->signature));
    sf_json_out_int(json, "count", f->count);
    sf_json_out_int(json, "first", f->first);
    sf_json_out_text(json, "folder", f->folder);
    sf_json_out_bool(json, "minimal", f->min.minimal);
    sf_json_out_int(json, "trials", f->min.trials);
    sf_op_json_case(json, target, &f->min.c);
    sf_op_json_error(json, &f->min.outcome);
    sf_json_out_end(json);
  }
  sf_json_out_end(json);
  return sf_op_json_print(json, code);
}

static int print_cases(const struct sf_op_campaign_options *used) {
  for (int64_t i = 0; i < used->cases && !sf_interrupted; i++) {
    struct sf_op_case c;
    struct sf_text text = {0};
    sf_op_case_draw(&c, used->pool.target, used->pool.seed, (uint64_t)i);
    const enum sf_status status = sf_op_case_to_json(&text, used->pool.target, &c, NULL);
    if (status == SF_OK) sf_print_lines(stdout, text.data);
    sf_text_destroy(&text);
    if (status != SF_OK) return sf_exit_failure(status, NULL);
  }
  return 0;
}

static int run_cases(const struct op_flags *flags, const struct sf_op_campaign_options *used, const struct sf_known *known) {
  static struct sf_op_campaign_result result;
  struct sf_error error = {SF_OK, ""};
  char reason[400] = ""; /* that nothing was judged */
  const enum sf_status status = sf_op_campaign_run(&result, used, &error);
  if (status != SF_OK) return sf_exit_failure(status, &error);
  const bool nothing = sf_op_campaign_judged_nothing(&result);
  int code = nothing ? 3 : 0;
  print_summary(&result, known, sf_people(flags->json));
  if (nothing) {
    sf_op_campaign_nothing_text(reason, sizeof reason, &result);
    sf_complain(reason);
  }
  for (int32_t i = 0; i < result.finding_count; i++)
    if (!sf_known_has(known, result.findings[i].signature)) code = 1;
  return flags->json ? json_summary(&result, used->pool.target, known, reason, code) : code;
}

static int run(void *context) {
  const struct op_flags *flags = context;
  static struct sf_op_target target;
  struct sf_known known = {0, NULL};
  struct sf_error error = {SF_OK, ""};
  const int32_t workers = sf_process_count(flags->jobs, flags->device);
  struct sf_op_campaign_options used = {.pool = {.target = &target,
                                                 .seed = (uint64_t)flags->seed,
                                                 .deadline_ms = sf_op_deadline_ms(flags->device, flags->deadline_ms),
                                                 .stop = &sf_interrupted},
                                        .cases = flags->cases ? flags->cases : INT64_MAX,
                                        .seconds = (double)flags->time_ms / 1000,
                                        .stop_after = flags->stop_after,
                                        .known = &known,
                                        .workers = workers > 64 ? 64 : workers,
                                        .shrink_budget = flags->shrink_budget,
                                        .out_dir = flags->out,
                                        .progress = true};
  enum sf_status status = flags->dry_run && !flags->cases ? sf_error_set(&error, SF_EUSAGE, "--dry-run needs --cases") : SF_OK;
  if (status == SF_OK) status = sf_op_pool_device(&used.pool, flags->device, flags->gemm, flags->target, &error);
  if (status == SF_OK) status = sf_op_target_make(&target, flags->target, flags->max_elements, &error);
  if (status == SF_OK && flags->known) status = sf_known_read(&known, flags->known, &error);
  if (status != SF_OK) return sf_exit_failure(status, &error);
  struct sf_text replay = {0};
  sf_common_replay_options(&replay, &(struct sf_common_flags){.device = flags->device, .gemm = flags->gemm});
  used.replay_options = replay.data;
  sf_watch_interrupts();
  const int code = flags->dry_run ? print_cases(&used) : run_cases(flags, &used, &known);
  sf_text_destroy(&replay);
  sf_known_destroy(&known);
  return code;
}

/* Of `fuzz`, but of layers, models and frameworks alone. */
static const char *const of_layers[] = {"--store",    "--resume",     "--share",         "--set",   "--preset",
                                        "--mode",     "--max-ranks",  "--layouts",       "--plant", "--backend",
                                        "--launcher", "--max-memory", "--framework-path"};

static const char *option_of_layers(int argc, char **argv) {
  for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
    for (size_t k = 0; k < sizeof of_layers / sizeof of_layers[0]; k++) {
      const size_t length = strlen(of_layers[k]);
      if (strncmp(argv[i], of_layers[k], length) == 0 && (argv[i][length] == '\0' || argv[i][length] == '=')) return of_layers[k];
    }
  return NULL;
}

int sf_op_fuzz(int argc, char **argv) {
  struct sf_error error = {SF_OK, ""};
  const char *other = option_of_layers(argc, argv);
  struct op_flags flags = {.seed = 1, .out = "findings", .shrink_budget = SF_OP_BUDGET, .max_elements = SF_OP_ELEMENTS};
  if (!other) return sf_command_main(&command, &flags, run, argc, argv);
  return sf_exit_failure(
      sf_error_set(&error, SF_EUSAGE, "%s is not for operations; shardfuzz fuzz --target op:all --help lists what is", other), &error);
}
