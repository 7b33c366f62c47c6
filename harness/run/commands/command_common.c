#include "harness/run/commands/command_common.h"

#include "generators/presets.h"
#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/base/nearest.h"
#include "harness/base/sinks.h"
#include "harness/base/system/clock.h"
#include "harness/base/system/launched.h"
#include "harness/base/system/system_memory.h"
#include "harness/comm/nccl.h"
#include "harness/run/commands/commands.h"
#include "harness/run/plugins/plugin_probe.h"
#include "harness/run/process/subject.h"
#include "harness/run/process/witness.h"
#include "harness/run/support/json.h"
#include "harness/run/trial/engine.h"
#include "harness/run/trial/mutants.h"
#include "harness/worker/shell.h"
#include "targets/plugin/plugin_target.h"
#include "targets/target.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *const sf_backend_names[] = {"sim", "mpi", "nccl", NULL}; /* in the order of enum sf_backend_choice */
const char *const sf_mode_names[] = {"drawn", "isolated", "e2e", NULL};
/* One entry more: the NULL at the end. */
SF_ASSERT_ENTRIES(sf_backend_names, SF_BACKEND_COUNT + 1);

/* More layouts make a case cheaper, since they share a reference, and fewer make models more varied. A framework's reference costs most. */
enum { RANKS_DEFAULT = 8, FRAMEWORK_RANKS_DEFAULT = 4, LAYOUTS_DEFAULT = 2, FRAMEWORK_LAYOUTS_DEFAULT = 4 };

volatile sig_atomic_t sf_interrupted;

/* A second interrupt ends the program at once. timeout(1) and launchers send one to a process and to its group, so that it may come twice.
 */
static void on_interrupt(int number) {
  static const double SAME_SECONDS = 0.5;
  static double first;
  const double now = sf_clock_seconds();
  if (sf_interrupted && now - first > SAME_SECONDS) signal(number, SIG_DFL), raise(number);
  if (!sf_interrupted) first = now;
  sf_interrupted = number;
}

void sf_watch_interrupts(void) {
  struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
  sigaddset(&action.sa_mask, SIGINT);
  sigaddset(&action.sa_mask, SIGTERM);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
}

FILE *sf_people(bool json) { return json ? stderr : stdout; }

void sf_complain(const char *text) {
  fflush(stdout);
  sf_print(stderr, "shardfuzz: %s\n", text);
}

int sf_exit_failure(enum sf_status status, const struct sf_error *error) {
  if (sf_mpi_may_complain()) sf_complain(error && *error->text ? error->text : sf_status_text(status));
  return status == SF_EUSAGE || status == SF_EINPUT || status == SF_ENOTSUP || status == SF_ENOTFOUND ? 2 : 3;
}

static void print_help(const struct sf_command *command) {
  struct sf_text text = {0};
  sf_command_help(&text, command);
  sf_print_lines(stdout, text.data);
  sf_text_destroy(&text);
}

int sf_command_main(const struct sf_command *command, int argc, char **argv) {
  struct sf_error error = {SF_OK, ""};
  bool wants_help = false;
  int code = 0;
  void *flags = sf_alloc(command->flags_bytes);
  if (!flags) return sf_exit_failure(SF_ENOMEM, NULL);
  if (command->set_defaults) command->set_defaults(flags);
  const enum sf_status status = sf_command_parse(command, flags, &wants_help, argc, argv, &error);
  if (status != SF_OK)
    code = sf_exit_failure(status, &error);
  else if (wants_help)
    print_help(command);
  else
    code = command->run(flags);
  if (sf_interrupted && (code == 0 || code == 3))
    code = 128 + sf_interrupted; /* the code that shells use: an interrupted run must not look like "nothing found" */
  sf_command_clear(command, flags);
  sf_free(flags);
  return code;
}

void sf_common_defaults(void *flags) {
  struct sf_common_flags *common = flags;
  common->seed = 1;
  common->shrink_budget = -1;
  common->out = "findings";
}

void sf_common_defaults_of_case(void *flags) {
  struct sf_common_flags *common = flags;
  sf_common_defaults(flags);
  common->jobs = 1;
}

enum sf_status sf_input_status(enum sf_status status) { return status == SF_EIO ? SF_EINPUT : status; }

bool sf_common_is_rank(const struct sf_common_flags *flags) { return flags->backend != SF_BACKEND_SIM && !flags->launcher; }

enum sf_status sf_common_inside_mpi(const struct sf_common_flags *flags, struct sf_error *error) {
  if (!sf_common_is_rank(flags) || sf_mpi_launched()) return SF_OK;
  return sf_error_set(error, SF_EUSAGE, "--backend %s needs mpirun around it, or --launcher 'mpirun --oversubscribe -n {n}'",
                      sf_backend_names[flags->backend]);
}

struct sf_mpi *sf_common_mpi_create(const struct sf_pool_options *pool, int *code) {
  struct sf_error error = {SF_OK, ""};
  struct sf_mpi *mpi = NULL;
  enum sf_status status = sf_mpi_create(&mpi, &error);
  if (status == SF_OK && pool->nccl) status = sf_mpi_use_nccl(mpi, &error);
  if (status == SF_OK) return mpi;
  *code = mpi && sf_mpi_rank(mpi) != 0 ? 0 : sf_exit_failure(status, &error); /* rank 0 speaks for the job */
  sf_mpi_destroy(mpi);
  return NULL;
}

enum sf_status sf_common_outside_mpi(const struct sf_common_flags *flags, struct sf_error *error) {
  if (!sf_common_is_rank(flags)) return SF_OK;
  return sf_error_set(error, SF_EUSAGE, "--backend %s needs --launcher 'mpirun --oversubscribe -n {n}' with this command",
                      sf_backend_names[flags->backend]);
}

int sf_exit_json(json_t *object, size_t flags, int code) {
  struct sf_text line = {0};
  struct sf_error error;
  if (object && json_object_set_new(object, "schema", json_integer(SF_JSON_SCHEMA)) != 0) json_decref(object), object = NULL;
  enum sf_status status = sf_json_append(&line, object, JSON_COMPACT | flags);
  json_decref(object);
  if (status == SF_OK) sf_print(stdout, "%s\n", line.data);
  if (status == SF_OK && (ferror(stdout) || fflush(stdout) != 0)) status = SF_EIO;
  sf_text_destroy(&line);
  if (status == SF_OK) return code;
  sf_error_set(&error, status, "the JSON line could not be printed: %s", status == SF_EIO ? strerror(errno) : sf_status_text(status));
  return sf_exit_failure(status, &error);
}

static enum sf_status refuse_target(const char *target, struct sf_error *error) {
  struct sf_nearest nearest = sf_nearest_to(target);
  sf_nearest_offer(&nearest, sf_target_builtin.name);
  for (const struct sf_framework_known *known = sf_frameworks; known->name; known++) sf_nearest_offer(&nearest, known->name);
  return sf_error_set(error, SF_EUSAGE, "there is no target '%s' (shardfuzz list targets)%s", target, sf_nearest_text(&nearest));
}

/* The largest number of ranks that is drawn; inside an MPI job, its size. */
static int64_t largest_world(const struct sf_common_flags *flags) {
  const int64_t job = sf_common_is_rank(flags) ? sf_mpi_launched_world() : 0;
  return flags->max_ranks ? flags->max_ranks : job ? job : RANKS_DEFAULT;
}

static enum sf_status fill_space(struct sf_space *space, const struct sf_common_flags *flags, struct sf_error *error) {
  sf_space_init(space);
  space->max_ranks = largest_world(flags);
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
  if (sf_plugin_target_path(flags->target)) return sf_plugin_probe_space(space, flags->target, error);
  if (!sf_target_find(flags->target)) return refuse_target(flags->target, error);
  snprintf(space->target, sizeof space->target, "%s", flags->target);
  return SF_OK;
}

int32_t sf_common_shrink_budget(const struct sf_common_flags *flags, const struct sf_subject *subject) {
  return flags->shrink_budget >= 0 ? (int32_t)flags->shrink_budget : subject->shrink_budget;
}

enum sf_status sf_common_operation_flags(const struct sf_common_flags *flags, struct sf_error *error) {
  const struct {
    const char *name;
    bool given;
  } options[] = {{"--set", flags->sets.count > 0},
                 {"--preset", flags->presets.count > 0},
                 {"--mode", flags->mode != 0},
                 {"--max-ranks", flags->max_ranks != 0},
                 {"--layouts", flags->layouts != 0},
                 {"--plant", flags->plants.count > 0},
                 {"--backend", flags->backend != SF_BACKEND_SIM},
                 {"--launcher", flags->launcher != NULL},
                 {"--framework-path", flags->framework_path != NULL},
                 {"--max-memory", flags->max_memory_mib != 0}};
  for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
    if (options[i].given) return sf_error_set(error, SF_EUSAGE, "%s is not for operations", options[i].name);
  return SF_OK;
}

static enum sf_status probe_nccl(struct sf_error *error) {
  struct sf_error reason = {SF_OK, ""};
  const enum sf_status status = sf_nccl_probe(&reason);
  return status == SF_OK ? SF_OK : sf_error_set(error, status, "--backend nccl: %.400s", reason.text);
}

enum sf_status sf_common_pool(struct sf_pool_options *out, const struct sf_common_flags *flags, int32_t ranks, struct sf_error *error) {
  static char self[SF_PATH_TEXT];
  memset(out, 0, sizeof *out);
  /* A launched set of ranks keeps the cores of a small machine busy by itself. */
  out->processes = flags->launcher && !flags->jobs ? 1 : sf_process_count(flags->jobs, flags->device);
  out->device = (enum sf_device_kind)flags->device;
  out->launch_ranks = ranks;
  out->nccl = flags->backend == SF_BACKEND_NCCL;
  out->stop = &sf_interrupted;
  out->max_memory = (double)flags->max_memory_mib * (1 << 20);
  if (out->max_memory == 0 && flags->backend == SF_BACKEND_SIM && !flags->launcher)
    out->max_memory = sf_memory_available() / (out->processes * sf_local_size());
  size_t device_bytes = 0;
  enum sf_status status = sf_device_choose(&out->gemm, &device_bytes, flags->device, flags->gemm, error);
  if (flags->backend == SF_BACKEND_SIM && !flags->launcher) out->device_memory = (double)device_bytes / out->processes;
  if (status == SF_OK && out->nccl) status = probe_nccl(error);
  if (status != SF_OK || !flags->launcher) return status;
  status = sf_shell_launcher_check(flags->launcher, error);
  if (status != SF_OK) return status;
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

/* --- frameworks ------------------------------------------------------------------------------------------------- */

/* The worker's first process, and what it said of itself. */
static struct sf_framework *first_of_framework;

static int32_t count_cores(void) {
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  return cores < 1 ? 1 : (int32_t)cores;
}

static enum sf_status check_device(const struct sf_description *description, int32_t device, struct sf_error *error) {
  if (sf_description_has_device(description, sf_device_names[device])) return SF_OK;
  return sf_error_set(error, SF_EUSAGE, "--device %s: the worker of %.90s does not run on it", sf_device_names[device],
                      sf_description_name(description));
}

/* Workers inherit the device of their ranks, and the number of cases that run on this machine at once. */
static enum sf_status tell_workers(int32_t device, int32_t jobs) {
  char text[16];
  snprintf(text, sizeof text, "%d", jobs * sf_local_size());
  return setenv("SHARDFUZZ_DEVICE", sf_device_names[device], 1) == 0 && setenv("SHARDFUZZ_JOBS", text, 1) == 0 ? SF_OK : SF_ENOMEM;
}

enum sf_status sf_common_framework_start(struct sf_common_framework *out, const struct sf_common_flags *flags, const char *target,
                                         struct sf_error *error) {
  memset(out, 0, sizeof *out);
  const int32_t cores = count_cores(), jobs = sf_process_count(flags->jobs, flags->device);
  out->options = (struct sf_framework_options){.command = out->command,
                                               .may_fork = !flags->launcher,
                                               .ranks_max = cores > jobs ? 2 * cores / jobs : 2,
                                               .launcher = flags->launcher ? flags->launcher : sf_shell_launcher_default,
                                               .start_seconds = 120,
                                               .silent_seconds = flags->deadline_ms ? (double)flags->deadline_ms / 1000 : 60,
                                               .stop = &sf_interrupted};
  if (flags->max_memory_mib)
    return sf_error_set(error, SF_EUSAGE,
                        "--max-memory is only for the built-in layers: the memory that a framework's case needs is not known");
  if (flags->backend != SF_BACKEND_SIM)
    return sf_error_set(error, SF_EUSAGE, "--backend %s: a framework's ranks run under its own launcher (--launcher)",
                        sf_backend_names[flags->backend]);
  enum sf_status status = sf_shell_launcher_check(out->options.launcher, error);
  if (status == SF_OK) status = sf_framework_command(out->command, sizeof out->command, target, flags->framework_path, error);
  if (status == SF_OK) status = tell_workers(flags->device, jobs);
  if (status == SF_OK) status = sf_framework_open(&first_of_framework, &out->options, error);
  if (status == SF_OK) status = check_device(sf_framework_description(first_of_framework), flags->device, error);
  if (status != SF_OK) return status;
  out->first = first_of_framework;
  out->options.zygote = sf_framework_zygote(out->first);
  out->options.may_fork = false;
  sf_framework_rest(first_of_framework);
  return SF_OK;
}

void sf_common_framework_end(void) {
  sf_framework_destroy(first_of_framework);
  first_of_framework = NULL;
}

/* "worker:CMD, with the framework of DIR". */
static char *target_text(const struct sf_common_flags *flags) {
  struct sf_text text = {0};
  sf_line_append(&text, "%s", flags->target);
  if (flags->framework_path) sf_line_append(&text, ", with the framework of %s", flags->framework_path);
  return text.data;
}

enum sf_status sf_common_replay_way(struct sf_replay_way *out, const struct sf_common_flags *flags) {
  const bool is_framework = flags->target && sf_framework_is_target(flags->target);
  char folder[SF_PATH_TEXT];
  struct sf_text options = {0};
  const char *const given[][2] = {{"--target", is_framework ? flags->target : NULL},
                                  {"--framework-path", flags->framework_path},
                                  {"--backend", flags->backend != SF_BACKEND_SIM ? sf_backend_names[flags->backend] : NULL},
                                  {"--launcher", flags->launcher},
                                  {"--device", flags->device != SF_DEVICE_CPU ? sf_device_names[flags->device] : NULL},
                                  {"--gemm", flags->gemm ? sf_gemm_names[flags->gemm] : NULL}};
  for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
    if (!given[i][1]) continue;
    sf_text_append(&options, " %s ", given[i][0]);
    sf_shell_append(&options, given[i][1]);
  }
  *out = (struct sf_replay_way){.options = options.data};
  if (!is_framework) return options.failed ? SF_ENOMEM : SF_OK;
  out->target = target_text(flags);
  out->folder = sf_strdup(getcwd(folder, sizeof folder) ? folder : ".");
  return options.failed || !out->target || !out->folder ? SF_ENOMEM : SF_OK;
}

static void pool_of_framework(struct sf_pool_options *out, const struct sf_common_framework *framework,
                              const struct sf_common_flags *flags) {
  memset(out, 0, sizeof *out);
  out->processes = sf_process_count(flags->jobs, flags->device);
  out->gemm = sf_cpu_gemm_default();
  out->framework = &framework->options;
  out->description = sf_framework_description(framework->first);
}

/* The pool for cases of operations. */
static enum sf_status pool_of_operations(struct sf_pool_options *out, const struct sf_common_flags *flags, const char *target,
                                         struct sf_error *error) {
  if (flags->device != SF_DEVICE_CPU && sf_plugin_target_path(target))
    return sf_error_set(error, SF_EUSAGE, "--device is only for op: targets: a plugin chooses its own device");
  const enum sf_status status = sf_common_operation_flags(flags, error);
  return status == SF_OK ? sf_common_pool(out, flags, 1, error) : status;
}

/* Checks the case against the target that will run it, and makes that its target. */
static enum sf_status pool_of_operation(struct sf_pool_options *pool, const struct sf_common_flags *flags, struct sf_case *c,
                                        const char *path, struct sf_error *error) {
  const char *name = flags->target ? flags->target : c->target;
  if (flags->target && !sf_op_target_is_one(flags->target))
    return sf_error_set(error, SF_EUSAGE, "--target %.200s: a case of an operation runs on op:NAME or plugin:LIB.so", flags->target);
  const enum sf_status status = pool_of_operations(pool, flags, name, error);
  return status == SF_OK ? sf_operation_settle(c, &pool->operations, name, path, error) : status;
}

/* Replaces the target that the case's file names by another plugin or the built-in layers. */
static enum sf_status retarget(struct sf_case *c, const char *target, struct sf_error *error) {
  if (sf_framework_is_target(target))
    return sf_error_set(error, SF_EUSAGE, "--target %.200s: the case is one of the built-in layers or of a plugin, not of a framework",
                        target);
  if (sf_plugin_target_path(target)) return sf_plugin_full_name(c->target, sizeof c->target, target, error);
  if (!sf_target_find(target)) return refuse_target(target, error);
  snprintf(c->target, sizeof c->target, "%s", target);
  return SF_OK;
}

enum sf_status sf_common_pool_of_case(struct sf_pool_options *pool, struct sf_common_framework *framework,
                                      const struct sf_common_flags *flags, struct sf_case *c, const char *path, struct sf_error *error) {
  if (sf_case_is_operation(c)) return pool_of_operation(pool, flags, c, path, error);
  enum sf_status status = SF_OK;
  if (sf_case_is_framework(c)) {
    status = sf_common_framework_start(framework, flags, flags->target ? flags->target : c->target, error);
    if (status == SF_OK) pool_of_framework(pool, framework, flags);
    return status;
  }
  if (flags->target) status = retarget(c, flags->target, error);
  if (status == SF_OK) status = sf_subject_layers.check(c, pool, path, error);
  if (status != SF_OK) return status;
  if (flags->framework_path) return sf_error_set(error, SF_EUSAGE, "--framework-path is for cases of frameworks");
  if (sf_plugin_target_path(c->target)) status = sf_plugin_probe_target(c->target, error);
  return status != SF_OK ? status : sf_common_pool(pool, flags, (int32_t)sf_case_ranks(c), error);
}

/* Fixes the choices that the command line sets. */
static enum sf_status fix_choices(struct sf_choice_space *space, const struct sf_common_flags *flags, struct sf_error *error) {
  enum sf_status status = SF_OK;
  if (flags->presets.count)
    return sf_error_set(error, SF_EUSAGE, "--preset: presets exist only for the built-in layers (--target builtin)");
  if (flags->plants.count)
    return sf_error_set(error, SF_EUSAGE, "--plant: planted bugs exist only for the built-in layers (--target builtin)");
  if (flags->mode) status = sf_choice_space_set(space, flags->mode == 1 ? "mode=isolated" : "mode=e2e", error);
  for (int32_t i = 0; i < flags->sets.count && status == SF_OK; i++) status = sf_choice_space_set(space, flags->sets.items[i], error);
  return status;
}

static enum sf_status campaign_of_framework(struct sf_campaign_options *out, const struct sf_common_flags *flags, struct sf_error *error) {
  static struct sf_common_framework framework;
  sf_space_init(&out->space);
  enum sf_status status = sf_common_framework_start(&framework, flags, flags->target, error);
  if (status != SF_OK) return status;
  out->framework = &framework.space;
  framework.space.description = sf_framework_description(framework.first);
  framework.space.ranks_max = (int32_t)(flags->max_ranks ? flags->max_ranks : FRAMEWORK_RANKS_DEFAULT);
  snprintf(out->space.target, sizeof out->space.target, "%s", sf_description_name(framework.space.description));
  status = fix_choices(&framework.space, flags, error);
  pool_of_framework(&out->pool, &framework, flags);
  return status;
}

static enum sf_status campaign_of_layers(struct sf_campaign_options *out, const struct sf_common_flags *flags, struct sf_error *error) {
  if (flags->framework_path) return sf_error_set(error, SF_EUSAGE, "--framework-path needs a framework as --target");
  if (flags->max_elements)
    return sf_error_set(error, SF_EUSAGE, "--max-elements is only for operations (--target op:NAME, or a plugin of operations)");
  enum sf_status status = fill_space(&out->space, flags, error);
  if (status == SF_OK) status = fill_plants(out, &flags->plants, error);
  if (status == SF_OK) status = sf_common_pool(&out->pool, flags, (int32_t)out->space.max_ranks, error);
  return status;
}

static enum sf_status campaign_of_operations(struct sf_campaign_options *out, const struct sf_common_flags *flags, struct sf_error *error) {
  static struct sf_op_target target;
  sf_space_init(&out->space);
  enum sf_status status = pool_of_operations(&out->pool, flags, flags->target, error);
  if (status == SF_OK)
    status = sf_op_target_make(&target, flags->target, flags->max_elements ? flags->max_elements : SF_OP_ELEMENTS, error);
  out->pool.operations = &target;
  return status;
}

/* One draw shows whether the fixed fields contradict each other. */
static enum sf_status probe_case(const struct sf_campaign_options *options, const struct sf_common_flags *flags, struct sf_error *error) {
  struct sf_case c;
  struct sf_error reason = {SF_OK, ""};
  const int32_t job = sf_common_is_rank(flags) && !flags->max_ranks ? sf_mpi_launched_world() : 0;
  const enum sf_status status = sf_campaign_case(&c, options, 0, &reason);
  if (status == SF_OK) return SF_OK;
  return job ? sf_error_set(error, status, "%.400s (this MPI job has %d ranks)", reason.text, job)
             : sf_error_set(error, status, "%s", reason.text);
}

enum sf_status sf_common_campaign(struct sf_campaign_options *out, const struct sf_common_flags *flags, struct sf_error *error) {
  memset(out, 0, sizeof *out);
  const bool is_framework = flags->target && sf_framework_is_target(flags->target),
             of_operations = flags->target && sf_op_target_is_one(flags->target);
  enum sf_status status = is_framework    ? campaign_of_framework(out, flags, error)
                          : of_operations ? campaign_of_operations(out, flags, error)
                                          : campaign_of_layers(out, flags, error);
  if (status == SF_OK) status = sf_common_replay_way(&out->replay, flags);
  if (status != SF_OK) {
    sf_campaign_options_clear(out);
    return status;
  }
  out->pool.space = &out->space;
  out->target = flags->target ? flags->target : sf_target_builtin.name;
  if (!of_operations) out->ranks_max = (int32_t)(out->framework ? out->framework->ranks_max : out->space.max_ranks);
  out->seed = (uint64_t)flags->seed;
  out->layouts = flags->layouts ? flags->layouts : is_framework ? FRAMEWORK_LAYOUTS_DEFAULT : LAYOUTS_DEFAULT;
  out->deadline = (double)flags->deadline_ms / 1000;
  out->shrink_budget = sf_common_shrink_budget(flags, of_operations ? &sf_subject_operation : &sf_subject_layers);
  out->stop = &sf_interrupted;
  out->cases = INT64_MAX;
  if (snprintf(out->out_dir, sizeof out->out_dir, "%s", flags->out) >= (int)sizeof out->out_dir) {
    return sf_error_set(error, SF_EUSAGE, "--out: the path is too long");
  }
  if (flags->known) status = sf_known_read(&out->known, flags->known, error);
  if (status == SF_OK) status = probe_case(out, flags, error);
  if (status != SF_OK) sf_campaign_options_clear(out);
  return status;
}

void sf_campaign_options_clear(struct sf_campaign_options *options) {
  sf_known_destroy(&options->known);
  sf_replay_way_clear(&options->replay);
  sf_cover_destroy(options->cover);
  options->cover = NULL;
  options->framework = NULL;
}

enum sf_status sf_common_run_one(struct sf_job *job, struct sf_job_result *result, const struct sf_case *c,
                                 const struct sf_common_flags *flags, const struct sf_pool_options *pool, struct sf_error *error) {
  memset(job, 0, sizeof *job);
  job->deadline = (double)flags->deadline_ms / 1000;
  job->c = *c;
  const enum sf_status status = sf_diagnose_one(pool, job, result);
  if (status != SF_OK) sf_pool_failure_text(error->text, sizeof error->text, pool, status);
  return status;
}
