#include "harness/run/commands/command_common.h"

#include "generators/presets.h"
#include "harness/comm/mpi.h"
#include "harness/run/commands/commands.h"
#include "harness/run/power/mutants.h"
#include "targets/target.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *const sf_backend_names[] = {"sim", "mpi", NULL};
const char *const sf_device_names[] = {"cpu", NULL};
const char *const sf_gemm_names[] = {"default", "xsmm", "blas", "loops", NULL};
const char *const sf_mode_names[] = {"drawn", "isolated", "e2e", NULL};

volatile sig_atomic_t sf_interrupted;

static void on_interrupt(int number) {
  /* The second time it ends at once. */
  if (sf_interrupted) signal(number, SIG_DFL), raise(number);
  sf_interrupted = 1;
}

void sf_watch_interrupts(void) {
  signal(SIGINT, on_interrupt);
  signal(SIGTERM, on_interrupt);
}

int sf_exit_failure(enum sf_status status, const struct sf_error *error) {
  if (sf_mpi_may_complain()) fprintf(stderr, "shardfuzz: %s\n", error && *error->text ? error->text : sf_status_text(status));
  return status == SF_EUSAGE || status == SF_EINPUT || status == SF_ENOTSUP || status == SF_ENOTFOUND ? 2 : 3;
}

int sf_command_begin(const struct sf_command *command, void *target, int argc, char **argv) {
  struct sf_error error = {SF_OK, ""};
  bool wants_help = false;
  const enum sf_status status = sf_command_parse(command, target, &wants_help, argc, argv, &error);
  if (status != SF_OK) {
    sf_command_clear(command, target);
    return sf_exit_failure(status, &error);
  }
  if (!wants_help) return -1;
  struct sf_text text = {0};
  sf_command_help(&text, command);
  if (text.data) fputs(text.data, stdout);
  sf_text_destroy(&text);
  sf_command_clear(command, target);
  return 0;
}

void sf_common_defaults(struct sf_common_flags *flags) {
  memset(flags, 0, sizeof *flags);
  flags->seed = 1;
  flags->max_ranks = 8;
  flags->layouts = 4;
  flags->shrink_budget = 300;
  flags->out = "findings";
}

static enum sf_status fill_space(struct sf_space *space, const struct sf_common_flags *flags, struct sf_error *error) {
  sf_space_init(space);
  space->max_ranks = flags->max_ranks;
  for (int32_t i = 0; i < flags->presets.count; i++) {
    const enum sf_status status = sf_space_preset(space, flags->presets.items[i], error);
    if (status != SF_OK) return status;
  }
  if (flags->mode) {
    const enum sf_status status = sf_space_set(space, flags->mode == 1 ? "mode=isolated" : "mode=e2e", error);
    if (status != SF_OK) return status;
  }
  for (int32_t i = 0; i < flags->sets.count; i++) {
    const enum sf_status status = sf_space_set(space, flags->sets.items[i], error);
    if (status != SF_OK) return status;
  }
  if (!flags->target) return SF_OK;
  if (!sf_target_find(flags->target)) return sf_error_set(error, SF_EUSAGE, "there is no target '%s'; shardfuzz list targets", flags->target);
  snprintf(space->target, sizeof space->target, "%s", flags->target);
  return SF_OK;
}

enum sf_status sf_common_pool(struct sf_pool_options *out, const struct sf_common_flags *flags, int32_t ranks, struct sf_error *error) {
  static char self[SF_PATH_TEXT];
  static const enum sf_cpu_gemm gemms[] = {SF_CPU_GEMM_XSMM, SF_CPU_GEMM_XSMM, SF_CPU_GEMM_BLAS, SF_CPU_GEMM_LOOPS};
  memset(out, 0, sizeof *out);
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  /* A launched set of ranks keeps the cores of a small machine busy by itself. */
  out->workers = flags->jobs ? (int32_t)flags->jobs : flags->launcher || cores < 1 ? 1 : (int32_t)cores;
  out->gemm = flags->gemm ? gemms[flags->gemm] : sf_cpu_gemm_default();
  out->launch_ranks = ranks;
  struct sf_device *probe = NULL;
  const enum sf_status status = sf_cpu_device_create(&probe, out->gemm);
  if (status != SF_OK) return sf_error_set(error, status, "--gemm %s: %s in this build", sf_gemm_names[flags->gemm], sf_status_text(status));
  sf_device_destroy(probe);
  if (!flags->launcher) return SF_OK;
  if (!sf_mpi_available()) return sf_error_set(error, SF_ENOTSUP, "--launcher: this build has no MPI");
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (length < 0) return sf_error_set(error, SF_EIO, "/proc/self/exe: %s", strerror(errno));
  self[length] = '\0';
  out->launcher = flags->launcher;
  out->self = self;
  return SF_OK;
}

static enum sf_status fill_plants(struct sf_campaign_options *out, const struct sf_texts *plants, struct sf_error *error) {
  if (plants->count > SF_CAMPAIGN_PLANTS_MAX) return sf_error_set(error, SF_EUSAGE, "--plant: at most %d", SF_CAMPAIGN_PLANTS_MAX);
  for (int32_t i = 0; i < plants->count; i++) {
    if (sf_plant_id_check(plants->items[i], error) != SF_OK) return SF_EUSAGE;
    out->plants[out->plant_count++] = plants->items[i];
  }
  return SF_OK;
}

enum sf_status sf_common_campaign(struct sf_campaign_options *out, const struct sf_common_flags *flags, struct sf_error *error) {
  memset(out, 0, sizeof *out);
  enum sf_status status = fill_space(&out->space, flags, error);
  if (status == SF_OK) status = fill_plants(out, &flags->plants, error);
  if (status == SF_OK) status = sf_common_pool(&out->pool, flags, (int32_t)flags->max_ranks, error);
  if (status != SF_OK) return status;
  out->pool.space = &out->space;
  out->seed = (uint64_t)flags->seed;
  out->layouts = flags->layouts;
  out->deadline = (double)flags->deadline_ms / 1000;
  out->shrink_budget = (int32_t)flags->shrink_budget;
  out->stop = &sf_interrupted;
  out->cases = INT64_MAX;
  if (snprintf(out->out_dir, sizeof out->out_dir, "%s", flags->out) >= (int)sizeof out->out_dir) {
    return sf_error_set(error, SF_EUSAGE, "--out: the path is too long");
  }
  if (flags->known) status = sf_known_read(&out->known, flags->known, error);
  /* One draw shows whether the fixed fields contradict each other. */
  struct sf_case probe;
  if (status == SF_OK) status = sf_campaign_case(&probe, out, 0, error);
  if (status != SF_OK) sf_campaign_options_clear(out);
  return status;
}

void sf_campaign_options_clear(struct sf_campaign_options *options) {
  sf_known_destroy(&options->known);
  sf_cover_destroy(options->cover);
  options->cover = NULL;
}

enum sf_status sf_common_run_one(struct sf_job *job, struct sf_job_result *result, const struct sf_case *c, const struct sf_common_flags *flags,
                                 const struct sf_pool_options *pool, struct sf_error *error) {
  memset(job, 0, sizeof *job);
  job->kind = SF_JOB_RUN;
  job->deadline = (double)flags->deadline_ms / 1000;
  job->diagnose = true;
  job->c = *c;
  const enum sf_status status = sf_pool_run_one(pool, job, result);
  if (status != SF_OK) sf_pool_failure_text(error->text, sizeof error->text, pool, status);
  return status;
}
