/* What differs between the things that are fuzzed: the built-in layers with plugins of layers or of a model, frameworks behind a worker,
 * and single operations. Everything else, from campaign and store to gate and replay, is the same for all of them. */
#ifndef SF_RUN_SUBJECT_H
#define SF_RUN_SUBJECT_H

#include "harness/base/bytes.h"
#include "harness/run/framework/framework_table.h"
#include "harness/run/opfuzz/op_table.h"
#include "harness/run/process/process.h"

struct sf_operation_bench;

/* What a table is for. SLOWLY: a trial takes its whole deadline. CONTRAST: neighbours may have values that a campaign was told not to draw.
 */
enum sf_table_purpose { SF_TABLE_SHRINK, SF_TABLE_SHRINK_SLOWLY, SF_TABLE_CONTRAST };
/* A table, and what the subject makes it from. The table borrows the rest: it must not move. */
struct sf_subject_table {
  struct sf_table table;
  struct sf_space space;
  struct sf_choice_space choices;
  struct sf_op_table operation;
};

/* What a process keeps from one job to the next. */
struct sf_workbench {
  const struct sf_pool_options *options;
  struct sf_process_page *page;
  struct sf_said *said;
  int fd; /* where results go */
  struct sf_engine *engine;
  struct sf_framework *framework;
  struct sf_operation_bench *operations;
  struct sf_pool *shrinkers;
};

struct sf_subject {
  const char *noun;       /* what a case's judgement counts: "tensors" */
  int32_t shrink_budget;  /* trials spent on one finding, unless the command line says how many */
  int32_t slow_budget;    /* at most so many where a trial takes its whole deadline; 0: as many as otherwise */
  bool has_ranks;         /* a case is of a model on ranks, and has layers and features */
  bool can_isolate;       /* a case that runs end to end can also run module by module */
  bool judges_quickly;    /* it heeds SF_EFFORT_QUICK */
  bool has_own_deadlines; /* whoever runs its trials ends them: no other deadline applies */
  bool counts_starving;   /* the deadline of a trial counts the time in which its process could have run */
  bool keeps_processes;   /* a process takes seconds to start: one that has run a trial also shrinks */
  bool shrinks_key_once;  /* a key is a signature: a second finding of it is not shrunk to see whether it is another one */
  bool takes_over;        /* trials cost much: a finding that an earlier smallest case explains is not shrunk again */
  /* Whether what the file of a case names exists, and the case fits it; may settle its target. path: of the file, for errors. NULL: only
   * its process can tell. SF_EINPUT names path and field. */
  enum sf_status (*check)(struct sf_case *c, const struct sf_pool_options *options, const char *path, struct sf_error *error);
  /* Whether c contains `trigger`, the shrunk case of a known finding, which is of the same subject. NULL: never, because cases cost so
   * little that known ones hide nothing. */
  bool (*contains)(const struct sf_case *c, const struct sf_case *trigger);
  /* Seconds after which a trial of the case counts as hung. */
  double (*seconds)(const struct sf_pool_options *options, const struct sf_case *c);
  /* In the process: runs a RUN job; *result is zeroed but for its tag. Pieces of a range but the last are written to bench->fd. */
  void (*run)(struct sf_workbench *bench, const struct sf_job *job, struct sf_job_result *result);
  /* In the parent: the failure of a process that died in the first unanswered job's case, or was stuck in it (hang). */
  void (*outcome_of_death)(struct sf_process *process, const struct sf_pool_options *options, bool hang, struct sf_outcome *outcome);
  /* The table of the case and its neighbours: on no more ranks than the space of the options allows, or of a framework or a launched set
   * than the case has. Fails where the target is not there any more. */
  enum sf_status (*table)(struct sf_subject_table *out, const struct sf_case *c, const struct sf_pool_options *options,
                          enum sf_table_purpose purpose);
  /* Lines of a report: what was wrong and where, or how far off what passed was; then what kind of case it is. */
  void (*tell)(struct sf_text *out, const struct sf_case *c, const struct sf_outcome *outcome);
  void (*tell_case)(struct sf_text *out, const struct sf_case *c, const struct sf_outcome *outcome);
};

extern const struct sf_subject sf_subject_layers, sf_subject_framework, sf_subject_operation;

/* Whose case it is. */
static inline const struct sf_subject *sf_subject_of(const struct sf_case *c) {
  return sf_case_is_operation(c) ? &sf_subject_operation : sf_case_is_framework(c) ? &sf_subject_framework : &sf_subject_layers;
}

/* Fills an outcome that is no verdict on the code under test: this machine lacked something. */
void sf_outcome_of_lack(struct sf_outcome *outcome, const struct sf_case *c);
/* Turns the outcome to the culprit that the job looks for: the one that the case expects if the job names none. */
void sf_outcome_turn_to_wanted(struct sf_outcome *outcome, const struct sf_job *job);
/* Appends the lines of a report about a finding in tensors. */
void sf_layers_tell(struct sf_text *out, const struct sf_case *c, const struct sf_outcome *outcome);
/* outcome_of_death of struct sf_subject, for ranks that left pages. */
void sf_ranks_outcome_of_death(struct sf_process *process, const struct sf_pool_options *options, bool hang, struct sf_outcome *outcome);

struct sf_op_target;
/* Lets a case of an operation run on the target of that name, which is made and stays until the next call. path: of the case's file, for
 * errors. SF_EINPUT: the target does not take the case; as sf_op_target_make. */
enum sf_status sf_operation_settle(struct sf_case *c, const struct sf_op_target **target, const char *name, const char *path,
                                   struct sf_error *error) SF_MUST_USE;

#endif
