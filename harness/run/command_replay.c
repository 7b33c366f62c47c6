#include "harness/run/mpi_campaign.h"
#include "harness/run/command_common.h"
#include "harness/run/commands.h"
#include "harness/run/engine.h"
#include "harness/run/finding_files.h"
#include "harness/run/report_json.h"
#include "harness/run/table.h"
#include "harness/run/trace_dump.h"
#include "harness/run/worker.h"

#include "harness/base/alloc.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct replay_flags {
  struct sf_common_flags common;
  struct sf_texts files;
  const char *trace, *plant;
  bool table;
};

static const struct sf_option options[] = {
    SF_BACKEND_OPTIONS(struct replay_flags, common),
    SF_OPTION_AT(struct replay_flags, "plant", TEXT, plant, "ID", "plant this bug instead of the file's ('none' for none)"),
    SF_OPTION_AT(struct replay_flags, "trace", TEXT, trace, "DIR", "write what was traced, one safetensors file per rank"),
    SF_OPTION_AT(struct replay_flags, "table", FLAG, table, NULL, "print every tensor's error against its noise level"),
};

static const struct sf_command command = {
    .name = "replay",
    .arguments = "CASE.json",
    .help = "Runs one case and says which tensor on which rank went wrong first. Exits 0 when nothing was found, 1 on a finding, whatever\n"
            "the file expects; whether it was as expected is printed.",
    .options = options,
    .option_count = (int32_t)(sizeof options / sizeof options[0]),
    .argument_min = 1,
    .argument_max = 1,
    .argument_offset = offsetof(struct replay_flags, files),
};

static int report(const struct sf_case *c, const struct sf_outcome *outcome, bool json) {
  char *text = NULL;
  if (outcome->status != SF_OK) {
    const struct sf_error error = sf_outcome_error(outcome);
    return sf_exit_failure(outcome->status, &error);
  }
  if (outcome->verdict == SF_VERDICT_FINDING) {
    if (sf_finding_report(&text, c, outcome, NULL) != SF_OK) return 3;
    fputs(text, stderr);
    sf_free(text);
  } else {
    fprintf(stderr, "verdict      %s%s%s\n", sf_verdict_name(outcome->verdict), *outcome->text ? ": " : "", outcome->text);
    fprintf(stderr, "compared     %d tensors on %d ranks, %d more could not be judged\n", outcome->checked, outcome->ranks, outcome->unchecked);
  }
  if (c->expect.present) {
    fprintf(stderr, "expected     %s %s: %s\n", c->expect.verdict, c->expect.signature, sf_outcome_as_expected(outcome, &c->expect) ? "yes" : "NO");
  }
  if (json && sf_json_print(sf_json_of_outcome(outcome, &c->expect)) != SF_OK) return 3;
  return outcome->verdict == SF_VERDICT_FINDING ? 1 : 0;
}

/* With --trace or --table the engine's own data are needed: the run happens in a child of its own, which prints and writes, and passes the
 * outcome on. What it had recorded before a failure of the target's communication is written too. */
static int run_watched(const struct sf_case *c, const struct replay_flags *flags, const struct sf_pool_options *pool) {
  const struct sf_engine_options engine_options = {.gemm = pool->gemm};
  struct sf_engine *engine = NULL;
  struct sf_trace_dump *dump = NULL;
  struct sf_error error = {SF_OK, ""};
  struct sf_outcome outcome;
  enum sf_status status = sf_engine_create(&engine, &engine_options);
  if (status == SF_OK && flags->trace) status = sf_trace_dump_create(&dump, (int32_t)sf_case_ranks(c));
  if (status == SF_OK) {
    sf_engine_run(engine, c, dump, &outcome);
    if (flags->table) sf_table_print(stdout, sf_engine_catalog(engine), sf_engine_judgement(engine));
    if (dump) status = sf_trace_dump_save(dump, flags->trace, &error);
  }
  const int code = status != SF_OK ? sf_exit_failure(status, &error) : report(c, &outcome, flags->common.json);
  sf_trace_dump_destroy(dump);
  sf_engine_destroy(engine);
  return code;
}

static int run_in_mpi(const struct sf_case *c, const struct replay_flags *flags, const struct sf_pool_options *pool) {
  struct sf_error error = {SF_OK, ""};
  struct sf_mpi *mpi = NULL;
  struct sf_engine *engine = NULL;
  struct sf_outcome outcome;
  enum sf_status status = sf_mpi_create(&mpi, &error);
  if (status != SF_OK) return sf_exit_failure(status, &error);
  const bool root = sf_mpi_rank(mpi) == 0;
  if (sf_case_ranks(c) > sf_mpi_world(mpi)) {
    sf_error_set(&error, SF_EUSAGE, "the case has %lld ranks, the MPI job only %d", (long long)sf_case_ranks(c), sf_mpi_world(mpi));
    const int code = root ? sf_exit_failure(SF_EUSAGE, &error) : 2;
    sf_mpi_destroy(mpi);
    return code;
  }
  const struct sf_engine_options engine_options = {.gemm = pool->gemm, .mpi = mpi};
  status = sf_engine_create(&engine, &engine_options);
  if (status != SF_OK) sf_mpi_abort(mpi, 3);
  sf_engine_run(engine, c, NULL, &outcome);
  int code = 0;
  const bool broken = outcome.verdict == SF_VERDICT_FINDING && *outcome.label;
  if (root || broken) code = report(c, &outcome, flags->common.json);
  if (broken) sf_mpi_abort(mpi, code);
  sf_engine_destroy(engine);
  sf_mpi_destroy(mpi);
  return code;
}

static int run_in_worker(const struct sf_case *c, const struct replay_flags *flags, const struct sf_pool_options *pool) {
  static struct sf_job job;
  static struct sf_job_result result;
  job.kind = SF_JOB_RUN;
  job.deadline = (double)flags->common.deadline_ms / 1000;
  job.c = *c;
  const enum sf_status status = sf_pool_run_one(pool, &job, &result);
  if (status != SF_OK) {
    struct sf_error error;
    sf_error_set(&error, status, "no worker could be started: %s", sf_status_text(status));
    return sf_exit_failure(status, &error);
  }
  return report(c, &result.outcome, flags->common.json);
}

static int run(const struct replay_flags *flags) {
  static struct sf_case c;
  struct sf_error error = {SF_OK, ""};
  struct sf_pool_options pool;
  enum sf_status status = sf_case_read(&c, flags->files.items[0], &error);
  if (status == SF_OK && flags->plant) snprintf(c.plant, sizeof c.plant, "%s", strcmp(flags->plant, "none") == 0 ? "" : flags->plant);
  if (status == SF_OK) status = sf_common_pool(&pool, &flags->common, (int32_t)sf_case_ranks(&c), &error);
  if (status != SF_OK) return sf_exit_failure(status == SF_EIO ? SF_EINPUT : status, &error);
  if (flags->common.launcher) return run_in_worker(&c, flags, &pool);
  if (flags->common.backend == SF_BACKEND_MPI) {
    if (sf_mpi_launched()) return run_in_mpi(&c, flags, &pool);
    sf_error_set(&error, SF_EUSAGE, "--backend mpi needs mpirun around it, or --launcher 'mpirun --oversubscribe -n {n}'");
    return sf_exit_failure(SF_EUSAGE, &error);
  }
  if (flags->trace || flags->table) return run_watched(&c, flags, &pool);
  return run_in_worker(&c, flags, &pool);
}

int sf_command_replay(int argc, char **argv) {
  struct replay_flags flags;
  memset(&flags, 0, sizeof flags);
  sf_common_defaults(&flags.common);
  flags.common.jobs = 1;
  const int ended = sf_command_begin(&command, &flags, argc, argv);
  if (ended >= 0) return ended;
  const int code = run(&flags);
  sf_command_clear(&command, &flags);
  return code;
}

int sf_command_mpi_worker(int argc, char **argv) {
  if (argc != 4 || strcmp(argv[0], "--socket") != 0 || strcmp(argv[2], "--page") != 0) return 2;
  return sf_launch_rank_main(argv[1], argv[3]);
}
