/* Options that several commands share, and what they mean. */
#ifndef SF_RUN_COMMAND_COMMON_H
#define SF_RUN_COMMAND_COMMON_H

#include "harness/run/campaign/campaign.h"
#include "harness/run/framework/framework_table.h"
#include "harness/run/framework/framework_target.h"
#include "harness/run/opfuzz/op_target.h"
#include "harness/run/report/report.h"
#include "harness/run/support/options.h"
#include "harness/run/trial/device_choice.h"

#include <jansson.h>

enum sf_backend_choice { SF_BACKEND_SIM, SF_BACKEND_MPI, SF_BACKEND_NCCL, SF_BACKEND_COUNT };

/* Defaults are what sf_common_defaults puts there. Stands first in the flags of a command. */
struct sf_common_flags {
  /* which cases */
  int64_t seed, layouts; /* layouts 0: 2, of a framework 4 */
  int64_t max_ranks;     /* 0: 8, of a framework 4, inside an MPI job its ranks */
  int64_t max_elements;  /* of operations; 0: SF_OP_ELEMENTS */
  struct sf_texts presets, sets;
  int32_t mode; /* 0 drawn, 1 isolated, 2 e2e */
  const char *target, *framework_path;
  struct sf_texts plants;
  /* how they run */
  int32_t backend, device, gemm;
  int64_t jobs; /* 0: by the machine */
  const char *launcher;
  int64_t deadline_ms;
  int64_t max_memory_mib; /* 0: of simulated ranks what is free, shared by the jobs; of others no limit */
  int64_t shrink_budget;  /* -1: by what is shrunk */
  /* what becomes of it */
  const char *known, *out;
  bool json;
};

#define SF_OPTION_AT(type_, name_, kind_, member_, value_, help_)                                                                          \
  { .name = name_, .type = SF_OPTION_##kind_, .offset = offsetof(type_, member_), .value = value_, .help = help_ }

/* Members of a command: a whole table of options; from `min` to `max` arguments, which go to the list `member`. */
#define SF_OPTIONS_ARE(table) .options = table, .option_count = (int32_t)(sizeof table / sizeof table[0])
#define SF_ARGUMENTS_ARE(min, max, owner, member) .argument_min = min, .argument_max = max, .argument_offset = offsetof(owner, member)

/* Rows of an option table for commands that run cases on a backend; `member` is the struct sf_common_flags inside `owner`. */
#define SF_CHOICE_AT(owner, name_, member_, choices_, help_)                                                                               \
  { .name = name_, .type = SF_OPTION_CHOICE, .offset = offsetof(owner, member_), .choices = choices_, .help = help_ }
#define SF_NUMBER_AT(owner, name_, member_, min_, max_, help_)                                                                             \
  { .name = name_, .type = SF_OPTION_INT, .offset = offsetof(owner, member_), .value = "N", .min = min_, .max = max_, .help = help_ }

#define SF_DURATION_AT(owner, name_, member_, help_)                                                                                       \
  { .name = name_, .type = SF_OPTION_DURATION, .offset = offsetof(owner, member_), .min = 1, .max = INT64_MAX, .help = help_ }

#define SF_BACKEND_OPTIONS(owner, member)                                                                                                  \
  SF_CHOICE_AT(owner, "backend", member.backend, sf_backend_names, "how ranks run"),                                                       \
      SF_CHOICE_AT(owner, "device", member.device, sf_device_names, "where layers, operations or a framework compute"),                    \
      SF_CHOICE_AT(owner, "gemm", member.gemm, sf_gemm_names, "matrix products of the layers under test"),                                 \
      SF_OPTION_AT(owner, "launcher", TEXT, member.launcher, "CMD", "start sets of MPI ranks: 'mpirun --oversubscribe -n {n}'"),           \
      SF_DURATION_AT(owner, "deadline", member.deadline_ms, "a trial that takes longer is reported as a hang; default: by its size"),      \
      SF_OPTION_AT(owner, "max-memory", INT, member.max_memory_mib, "MIB",                                                                 \
                   "skip cases that need more memory; default: the free memory, divided by the jobs"),                                     \
      SF_OPTION_AT(owner, "json", FLAG, member.json, NULL, "print one JSON object as the last line of stdout")

#define SF_TARGET_OPTIONS(owner, member) SF_TARGETS_OPTIONS(owner, member, "the code under test (shardfuzz list targets), or 'worker:CMD'")
/* For commands that run one case. */
#define SF_CASE_TARGET_OPTIONS(owner, member)                                                                                              \
  SF_TARGETS_OPTIONS(owner, member, "run the case on this target instead of the one that its file names, for example another plugin")
#define SF_TARGETS_OPTIONS(owner, member, help_)                                                                                           \
  SF_OPTION_AT(owner, "target", TEXT, member.target, "T", help_),                                                                          \
      SF_OPTION_AT(owner, "framework-path", TEXT, member.framework_path, "DIR",                                                            \
                   "a checkout of the framework to use instead of the installed one")

/* Rows for commands that draw cases. */
#define SF_DRAW_OPTIONS(owner, member)                                                                                                     \
  SF_OPTION_AT(owner, "seed", INT, member.seed, "S", "seed of the campaign; the same seed draws the same cases"),                          \
      SF_OPTION_AT(owner, "preset", TEXTS, member.presets, "NAME", "fix model and precision (shardfuzz list presets)"),                    \
      SF_OPTION_AT(owner, "set", KEY_VALUE, member.sets, "KEY=VALUE", "fix a field, or limit a number: layout.tp=1..4"),                   \
      SF_CHOICE_AT(owner, "mode", member.mode, sf_mode_names, "judge modules alone or the whole run"),                                     \
      SF_NUMBER_AT(owner, "max-ranks", member.max_ranks, 1, 65536,                                                                         \
                   "most ranks of a case; default: 8, for a framework 4, inside an MPI job all of its ranks"),                             \
      SF_NUMBER_AT(owner, "layouts", member.layouts, 1, 16,                                                                                \
                   "layouts drawn for each model and its reference; default 2, for a framework 4"),                                        \
      SF_TARGET_OPTIONS(owner, member)
/* .. and run them. */
#define SF_SPACE_OPTIONS(owner, member)                                                                                                    \
  SF_DRAW_OPTIONS(owner, member),                                                                                                          \
      SF_NUMBER_AT(owner, "jobs", member.jobs, 1, 1024,                                                                                    \
                   "processes that run cases; default: one per core, one launched set of ranks, or one on a GPU without CUDA's MPS"),      \
      SF_NUMBER_AT(owner, "shrink-budget", member.shrink_budget, 0, 100000,                                                                \
                   "trials spent on shrinking one finding; default 300, for an operation 20000")

extern const char *const sf_backend_names[], *const sf_mode_names[];

/* For commands that fuzz: seed 1, 300 trials of shrinking, folder "findings"; all else 0. For commands that run one case: one job
 * too. flags: a zeroed struct that begins with a struct sf_common_flags. */
void sf_common_defaults(void *flags);
void sf_common_defaults_of_case(void *flags);
/* The framework under test, if the target is one: cases are drawn from *space, and the pool starts workers by *options. Borrows the flags'
 * texts. */
struct sf_common_framework {
  char command[SF_FRAMEWORK_COMMAND_TEXT];
  struct sf_framework_options options; /* with the zygote of the worker's first process, if it is one */
  const struct sf_framework *first;    /* as the worker described itself */
  struct sf_choice_space space;
};
/* SF_EUSAGE for an option that operations do not have. */
enum sf_status sf_common_operation_flags(const struct sf_common_flags *flags, struct sf_error *error) SF_MUST_USE;
struct sf_subject;
/* The budget that the flags give, or the default of what is shrunk. */
int32_t sf_common_shrink_budget(const struct sf_common_flags *flags, const struct sf_subject *subject);
/* How a case of these flags is replayed. Release with sf_replay_way_clear, also after SF_ENOMEM. */
enum sf_status sf_common_replay_way(struct sf_replay_way *out, const struct sf_common_flags *flags) SF_MUST_USE;
/* Starts the target's worker, which describes itself: at most once in a process. SF_EUSAGE, and as sf_framework_open. */
enum sf_status sf_common_framework_start(struct sf_common_framework *out, const struct sf_common_flags *flags, const char *target,
                                         struct sf_error *error) SF_MUST_USE;
/* Ends what the process has started of a framework. To be called once, after a command. */
void sf_common_framework_end(void);
/* For commands that run one case: names that are not there are refused, and the pool is made for it: of the built-in layers and plugins, or
 * of its framework's worker, which *framework then describes. The flags' target takes the place of the case's own. path: of the case's
 * file, for errors. */
enum sf_status sf_common_pool_of_case(struct sf_pool_options *pool, struct sf_common_framework *framework,
                                      const struct sf_common_flags *flags, struct sf_case *c, const char *path,
                                      struct sf_error *error) SF_MUST_USE;
/* Everything of the options but cases, seconds, store_path, resume, progress. Release with sf_campaign_options_clear. argv0 of a launcher's
 * ranks is this program (/proc/self/exe). */
enum sf_status sf_common_campaign(struct sf_campaign_options *out, const struct sf_common_flags *flags, struct sf_error *error) SF_MUST_USE;
void sf_campaign_options_clear(struct sf_campaign_options *options);
/* The pool part alone, for commands without a space. */
enum sf_status sf_common_pool(struct sf_pool_options *out, const struct sf_common_flags *flags, int32_t ranks,
                              struct sf_error *error) SF_MUST_USE;

/* Runs the case in a worker made for it, under the deadline that the flags give: *job is what was asked for (all else zero), *result what
 * came of it, a crash or a hang too. What sf_pool_run_one may fail with, and a line that says why. */
enum sf_status sf_common_run_one(struct sf_job *job, struct sf_job_result *result, const struct sf_case *c,
                                 const struct sf_common_flags *flags, const struct sf_pool_options *pool,
                                 struct sf_error *error) SF_MUST_USE;

/* Copies the path of the store (campaign-*.sqlite) in a folder that was written last. False: there is none. newest_store.c. */
bool sf_common_newest_store(char *out, size_t size, const char *folder);
/* What is wrong with reading a file that the user named is wrong input (exit 2), not a failure of the harness. */
enum sf_status sf_input_status(enum sf_status status);
/* Whether this process is a rank of a job that the user has started: --backend mpi or nccl without --launcher. */
bool sf_common_is_rank(const struct sf_common_flags *flags);
/* For commands that can be such a rank: mpirun must be there then. SF_EUSAGE. */
enum sf_status sf_common_inside_mpi(const struct sf_common_flags *flags, struct sf_error *error) SF_MUST_USE;
/* MPI, and NCCL where the pool's ranks are to use it. NULL: that failed, one rank has said why, and *code is what this one is to exit with.
 */
struct sf_mpi *sf_common_mpi_create(const struct sf_pool_options *pool, int *code) SF_MUST_USE;
/* For commands that do not run inside mpirun: --backend mpi and nccl are refused without --launcher. */
enum sf_status sf_common_outside_mpi(const struct sf_common_flags *flags, struct sf_error *error) SF_MUST_USE;
/* Prints the object of --json, with its `schema`, as the last line of stdout; returns code, or 3 with a line on stderr. Takes the object;
 * NULL = out of memory.
 * flags: Jansson's, for its numbers; 0: whole. */
int sf_exit_json(json_t *object, size_t flags, int code);

/* The number of the signal: set by SIGINT and SIGTERM once sf_watch_interrupts was called. */
extern volatile sig_atomic_t sf_interrupted;
void sf_watch_interrupts(void); /* a second one kills */

#endif
