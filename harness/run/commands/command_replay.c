#include "harness/run/commands/command_common.h"
#include "harness/run/commands/commands.h"
#include "harness/run/commands/report_json.h"
#include "harness/run/figures/case_report.h"
#include "harness/run/opfuzz/op_report.h"
#include "harness/run/process/process.h"
#include "harness/run/process/rank_page.h"
#include "harness/run/process/subject.h"
#include "harness/run/trial/engine.h"
#include "harness/run/trial/mutants.h"
#include "harness/run/trial/table.h"
#include "harness/run/trial/trace_dump.h"

#include "harness/base/alloc.h"
#include "harness/base/bytes.h"
#include "harness/base/sinks.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct replay_flags {
  struct sf_common_flags common;
  struct sf_texts files;
  const char *trace, *plant, *script;
  struct sf_report_paths reports;
  bool table;
};

static const struct sf_option options[] = {
    SF_BACKEND_OPTIONS(struct replay_flags, common),
    SF_CASE_TARGET_OPTIONS(struct replay_flags, common),
    SF_OPTION_AT(struct replay_flags, "script", TEXT, script, "FILE",
                 "for a framework's finding: write a program that shows it without shardfuzz"),
    SF_OPTION_AT(struct replay_flags, "plant", TEXT, plant, "ID", "plant this bug instead of the file's ('none' for none)"),
    SF_OPTION_AT(
        struct replay_flags, "trace", TEXT, trace, "DIR",
        "write the trace, one safetensors file per rank; for an operation its operands, the outputs it should have and their bounds"),
    SF_REPORT_OPTIONS(struct replay_flags, reports)
        SF_OPTION_AT(struct replay_flags, "table", FLAG, table, NULL, "print every tensor's error against its noise level"),
};

/* ", on 2 ranks"; an operation has none. */
static const char *ranks_text(char out[32], const struct sf_case *c, const struct sf_outcome *outcome) {
  *out = '\0';
  if (sf_subject_of(c)->has_ranks) snprintf(out, 32, ", on %d rank%s", outcome->ranks, sf_plural(outcome->ranks));
  return out;
}

static enum sf_status write_reports(const struct sf_case *c, const struct sf_outcome *outcome, const char *text,
                                    const struct sf_evidence *evidence, const struct replay_flags *flags, struct sf_error *error) {
  struct sf_report report = {.title = "shardfuzz replay"};
  struct sf_replay_way way = {0};
  enum sf_status status = sf_common_replay_way(&way, &flags->common);
  const struct sf_case_told told = {.name = flags->files.items[0],
                                    .path = flags->files.items[0],
                                    .way = &way,
                                    .text = text,
                                    .evidence = flags->reports.html ? evidence : NULL};
  if (status == SF_OK) sf_case_report(&report, c, outcome, &told);
  sf_replay_way_clear(&way);
  if (status == SF_OK) status = sf_report_write(&report, &flags->reports, error);
  sf_report_destroy(&report);
  return status;
}

/* For an operation that passed: its error and its shape. */
static void tell_operation(FILE *to, const struct sf_case *c, const struct sf_outcome *outcome) {
  struct sf_text text = {0};
  if (!sf_case_is_operation(c)) return;
  sf_op_tell(&text, c, &outcome->operation, "");
  sf_op_tell_case(&text, c, &outcome->operation);
  sf_print_lines(to, text.data);
  sf_text_destroy(&text);
}

static int report(const struct sf_case *c, const struct sf_outcome *outcome, const struct sf_evidence *evidence,
                  const struct replay_flags *flags) {
  const bool json = flags->common.json;
  FILE *const to = sf_people(json);
  struct sf_error error = {SF_OK, ""};
  struct sf_bytes contrast = {0};
  char *text = NULL;
  if (outcome->status != SF_OK) {
    error = sf_outcome_error(outcome);
    return sf_exit_failure(outcome->status, &error);
  }
  if (outcome->verdict == SF_VERDICT_FINDING) {
    const bool is_smallest = c->expect.present && sf_outcome_as_expected(outcome, &c->expect);
    const struct sf_finding_story story = {
        .contrast = is_smallest ? sf_finding_read_beside(&contrast, flags->files.items[0], SF_CONTRAST_FILE) : NULL};
    const enum sf_status made = sf_finding_report(&text, c, outcome, &story);
    sf_bytes_destroy(&contrast);
    if (made != SF_OK) return 3;
    sf_print_lines(to, text);
  } else {
    sf_print(to, "verdict      %s%s%s\n", sf_verdict_name(outcome->verdict), *outcome->text ? ": " : "", outcome->text);
    char ranks[32];
    sf_print(to, "judged       %d of %d %s%s\n", outcome->checked, outcome->checked + outcome->unchecked, sf_subject_of(c)->noun,
             ranks_text(ranks, c, outcome));
    tell_operation(to, c, outcome);
  }
  if (c->expect.present) {
    sf_print(to, "expected     %s%s%s: %s\n", c->expect.verdict, *c->expect.signature ? " " : "", c->expect.signature,
             sf_outcome_as_expected(outcome, &c->expect) ? "yes" : "NO");
  }
  const enum sf_status status = write_reports(c, outcome, text ? text : outcome->text, evidence, flags, &error);
  const int code = status != SF_OK ? sf_exit_failure(status, &error) : outcome->verdict == SF_VERDICT_FINDING ? 1 : 0;
  sf_free(text);
  return json ? sf_exit_json(sf_json_of_outcome(outcome, c), 0, code) : code;
}

/* Writes the trace up to the end of the run, or up to its failure. */
static enum sf_status write_trace(struct sf_chunk_log *log, const struct sf_case *c, const struct replay_flags *flags,
                                  struct sf_error *error) {
  if (!flags->trace || sf_case_is_operation(c)) return SF_OK; /* operands were written before */
  if (log->failed) return sf_error_set(error, SF_ENOMEM, "the trace could not be kept: %s", sf_status_text(SF_ENOMEM));
  return sf_trace_dump_log(log, c, flags->trace, error);
}

/* Runs one rank's part. After a crash, a hang or a broken communication one rank reports it, and this function ends the job. */
static int run_rank(const struct sf_case *c, const struct replay_flags *flags, const struct sf_pool_options *pool, struct sf_mpi *mpi,
                    struct sf_engine *engine, struct sf_rank_watch *watch) {
  const bool root = sf_mpi_rank(mpi) == 0;
  const double seconds = flags->common.deadline_ms ? (double)flags->common.deadline_ms / 1000 : sf_pool_deadline(pool, c);
  const struct sf_rank_trial trial = {.index = -1, .count = (int32_t)sf_case_ranks(c), .seconds = seconds};
  struct sf_error error = {SF_OK, ""};
  struct sf_chunk_log log = {0};
  struct sf_evidence evidence = {0};
  struct sf_outcome outcome;
  int code = 0;
  if (sf_rank_watch_begin(watch, &trial) != SF_OK) sf_mpi_abort(mpi, 3);
  sf_engine_run(engine, c, root ? &log : NULL, &outcome);
  sf_outcome_turn_to_expected(&outcome, &c->expect);
  if (root) sf_engine_show(engine, c, &log, &evidence, &outcome);
  const bool broken = sf_outcome_breaks_ranks(&outcome);
  if (root && flags->table && !broken) sf_table_print(stdout, sf_engine_catalog(engine), sf_engine_judgement(engine));
  const enum sf_status status = root ? write_trace(&log, c, flags, &error) : SF_OK;
  if (status != SF_OK)
    code = sf_exit_failure(status, &error);
  else if (broken ? sf_rank_watch_may_tell(watch) : root)
    code = report(c, &outcome, &evidence, flags);
  fflush(NULL);
  if (broken) sf_mpi_abort(mpi, code);
  sf_rank_watch_end(watch);
  sf_evidence_destroy(&evidence);
  sf_chunk_log_destroy(&log);
  return code;
}

static int run_in_mpi(const struct sf_case *c, const struct replay_flags *flags, const struct sf_pool_options *pool) {
  struct sf_error error = {SF_OK, ""};
  struct sf_mpi *mpi = NULL;
  struct sf_engine *engine = NULL;
  struct sf_rank_watch *watch = NULL;
  int code = 0;
  if (!(mpi = sf_common_mpi_create(pool, &code))) return code;
  const bool root = sf_mpi_rank(mpi) == 0;
  if (sf_case_ranks(c) > sf_mpi_world(mpi)) {
    sf_error_set(&error, SF_EUSAGE, "the case has %lld ranks, the MPI job only %d", (long long)sf_case_ranks(c), sf_mpi_world(mpi));
    code = root ? sf_exit_failure(SF_EUSAGE, &error) : 0;
    sf_mpi_destroy(mpi);
    return code;
  }
  enum sf_status status = sf_rank_watch_open_temporary(&watch, mpi, &error);
  if (status == SF_OK) status = sf_rank_engine_create(&engine, mpi, sf_rank_watch_page(watch), pool);
  if (status != SF_OK) {
    sf_print(stderr, "shardfuzz: rank %d: %s\n", sf_mpi_rank(mpi), *error.text ? error.text : sf_status_text(status));
    sf_mpi_abort(mpi, 3);
  }
  if (sf_mpi_rank(mpi) < sf_case_ranks(c)) code = run_rank(c, flags, pool, mpi, engine, watch);
  sf_mpi_control_barrier(mpi); /* a rank in MPI_Finalize makes it harder to end a job */
  sf_engine_destroy(engine);
  sf_rank_watch_close(watch);
  sf_mpi_destroy(mpi);
  return code;
}

/* Runs the case in a child process: a crash or a hang of the target is then an outcome, and the trace up to it can still be written. */
static int run_in_worker(const struct sf_case *c, const struct replay_flags *flags, struct sf_pool_options *pool) {
  static struct sf_job job;
  static struct sf_job_result result;
  struct sf_error error = {SF_OK, ""};
  struct sf_chunk_log log = {0};
  struct sf_evidence evidence = {0};
  pool->evidence = flags->reports.html && !pool->launcher ? tmpfile() : NULL;
  pool->record = flags->trace ? &log : NULL;
  pool->table = flags->table ? stdout : NULL;
  if (flags->table) signal(SIGPIPE, SIG_IGN); /* `| head` would end the child, which looks like a crash of the target */
  enum sf_status status = flags->trace ? sf_chunk_log_create_shared(&log) : SF_OK;
  if (status == SF_OK)
    status = sf_common_run_one(&job, &result, c, &flags->common, pool, &error);
  else
    sf_error_set(&error, status, "the trace could not be kept: %s", sf_status_text(status));
  if (status == SF_OK && flags->trace && result.outcome.status == SF_OK) {
    status = sf_chunk_log_refresh(&log);
    if (status != SF_OK)
      sf_error_set(&error, status, "the trace could not be kept: %s", sf_status_text(status));
    else
      status = write_trace(&log, c, flags, &error);
  }
  if (status == SF_OK && flags->script && *result.script)
    status = sf_bytes_write_file(flags->script, result.script, strlen(result.script), &error);
  if (status == SF_OK && pool->evidence) sf_evidence_read(&evidence, pool->evidence);
  if (status == SF_OK && flags->reports.html) sf_case_show_simulated(&evidence, &result.outcome, &job, pool);
  const int code = status != SF_OK ? sf_exit_failure(status, &error) : report(c, &result.outcome, &evidence, flags);
  if (flags->script && !*result.script) sf_complain("there is no script: nothing was found, or the worker writes none");
  if (pool->evidence) fclose(pool->evidence);
  sf_evidence_destroy(&evidence);
  sf_chunk_log_destroy(&log);
  return code;
}

/* Finds all mistakes in the command line before the case runs. */
static enum sf_status prepare(struct sf_case *c, struct sf_pool_options *pool, struct sf_common_framework *framework,
                              const struct replay_flags *flags, struct sf_error *error) {
  enum sf_status status = sf_input_status(sf_case_read(c, flags->files.items[0], error));
  if (status != SF_OK) return status;
  if (sf_case_is_operation(c) && (flags->table || flags->plant || flags->script))
    return sf_error_set(error, SF_EUSAGE, "%s is not for operations", flags->table ? "--table" : flags->plant ? "--plant" : "--script");
  if (sf_case_is_operation(c)) status = sf_common_operation_flags(&flags->common, error);
  if (status != SF_OK) return status;
  if (flags->plant) snprintf(c->plant, sizeof c->plant, "%s", strcmp(flags->plant, "none") == 0 ? "" : flags->plant);
  if (flags->plant && *c->plant && sf_plant_id_check(flags->plant, error) != SF_OK) return SF_EUSAGE;
  if (sf_case_is_framework(c) ? flags->trace || flags->table : flags->script != NULL) {
    return sf_error_set(error, SF_EUSAGE, "%s",
                        sf_case_is_framework(c)
                            ? "--trace and --table are for the built-in layers; shardfuzz worker --traces keeps a framework's"
                            : "--script is for cases of frameworks");
  }
  if (!sf_case_is_framework(c) && flags->common.launcher && (flags->trace || flags->table)) {
    return sf_error_set(error, SF_EUSAGE,
                        "--trace and --table do not go with --launcher; run shardfuzz replay --backend mpi inside mpirun");
  }
  status = sf_common_inside_mpi(&flags->common, error);
  if (status == SF_OK) status = sf_common_pool_of_case(pool, framework, &flags->common, c, flags->files.items[0], error);
  if (status == SF_OK) status = sf_output_check(flags->script, error);
  if (status == SF_OK) status = sf_report_check(&flags->reports, error);
  if (status == SF_OK && flags->trace)
    status = sf_case_is_operation(c) ? sf_op_write_operands(c, flags->trace, error) : sf_make_directories(flags->trace, error);
  return status;
}

static int run(void *context) {
  const struct replay_flags *flags = context;
  static struct sf_case c;
  static struct sf_common_framework framework;
  struct sf_error error = {SF_OK, ""};
  struct sf_pool_options pool;
  const enum sf_status status = prepare(&c, &pool, &framework, flags, &error);
  if (status != SF_OK) return sf_exit_failure(status, &error);
  return sf_common_is_rank(&flags->common) ? run_in_mpi(&c, flags, &pool) : run_in_worker(&c, flags, &pool);
}

const struct sf_command sf_command_replay = {
    .name = "replay",
    .summary = "run one case file and say what it shows",
    .arguments = "CASE.json",
    .help =
        "Runs one case and says which tensor on which rank went wrong first. Exits with 0 when nothing was found, with 1 on a finding,\n"
        "whatever the file expects. Prints whether the outcome was the expected one.",
    SF_OPTIONS_ARE(options),
    SF_ARGUMENTS_ARE(1, 1, struct replay_flags, files),
    .flags_bytes = sizeof(struct replay_flags),
    .set_defaults = sf_common_defaults_of_case,
    .run = run,
};

int sf_command_mpi_worker(int argc, char **argv) {
  static const char *const names[] = {"--socket", "--page", "--device", "--gemm", "--nccl", "--max-memory"};
  if (argc != 12) return 2;
  for (int i = 0; i < 6; i++)
    if (strcmp(argv[2 * i], names[i]) != 0) return 2;
  const struct sf_pool_options pool = {.device = (enum sf_device_kind)atoi(argv[5]),
                                       .gemm = (enum sf_cpu_gemm)atoi(argv[7]),
                                       .nccl = atoi(argv[9]) != 0,
                                       .max_memory = atof(argv[11])};
  return sf_launch_rank_main(argv[1], argv[3], &pool);
}
