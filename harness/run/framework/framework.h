/* One case of a framework after the other, on worker sets (targets/worker.md): reference and perturbed runs on one rank, the candidate on
 * as many as the case has; their traces are judged as `shardfuzz noise` and `shardfuzz check` do. */
#ifndef SF_RUN_FRAMEWORK_H
#define SF_RUN_FRAMEWORK_H

#include "harness/check/check.h"
#include "harness/run/evidence/evidence.h"
#include "harness/run/trial/outcome.h"
#include "harness/worker/description.h"
#include "harness/worker/worker_set.h"
#include "oracles/diagnose/diagnose.h"

/* With less room /dev/shm is too small for a framework's traces, and /tmp takes its place. */
enum { SF_FRAMEWORK_ROOM_BYTES = 256000000 };

enum { SF_FRAMEWORK_TEXT = SF_TENSOR_NAME_TEXT, SF_FRAMEWORK_PATH = 400 };

struct sf_framework_options {
  const char *command, *launcher; /* as in struct sf_rank_set_options */
  bool may_fork;                  /* a worker that can fork its ranks does, and the launcher starts its first process alone */
  const char *zygote;             /* NULL, or the socket of a worker's process that forks ranks already */
  int32_t ranks_max;              /* of forked ranks alive at a time, while no case needs more */
  double start_seconds, silent_seconds;
  int32_t draws;      /* perturbed runs; 0: as many as the worker wants */
  const char *memory; /* folder to keep traces in while they are judged; NULL: /dev/shm, or /tmp where that has little room */
  const char *keep;   /* NULL, or a folder where all traces stay, case-00000 and on */
  volatile sig_atomic_t *stop;
};

/* What a case showed. */
struct sf_framework_outcome {
  enum sf_verdict verdict;
  char run[24];     /* "reference", "draw 3", "candidate": what it happened in; empty for a verdict of the judgement */
  const char *lack; /* of an inconclusive case: what this machine lacks, "space", "memory", "time", "processes"; else "" */
  /* The first wrong tensor, or the run that failed; of a case without a finding its text says why. Without key and signature; module: what
   * the tensor's name has that is the same in all layers, "mlp.experts.weight". */
  struct sf_culprit what;
  int32_t said;                         /* where in what.text begins what a rank said, and not what the others did meanwhile */
  char output[SF_WORKER_OUTPUT_TEXT];   /* what the ranks printed last, if they failed */
  int64_t judged, not_judged, findings; /* tensors */
  char pattern[SF_PATTERN_TEXT];        /* as in a report of the check */
  int32_t further_count;                /* of a case judged module by module: wrong tensors beside the first one */
  struct sf_culprit further[SF_CHECK_CULPRITS_MAX - 1];
  double seconds;
  struct sf_tally tally;
  struct sf_evidence *evidence; /* NULL, or zeroed: where what the judgement saw is kept; borrowed */
};

/* The class of a finding, or what the machine lacks, or the verdict: "tolerance", "space", "PASS". */
const char *sf_framework_word(const struct sf_framework_outcome *outcome);

struct sf_framework;
/* Starts a set of one rank and asks it to describe itself. SF_EUSAGE: no folder for traces; SF_EIO with the set's reason and what it
 * printed last in *report; SF_EINPUT: the description is wrong; SF_ECANCELLED, SF_ENOMEM. */
enum sf_status sf_framework_create(struct sf_framework **out, struct sf_worker_report *report, const struct sf_framework_options *options,
                                   struct sf_error *error) SF_MUST_USE;
void sf_framework_destroy(struct sf_framework *framework); /* ends every set, removes what is not to stay; takes NULL */
/* What the worker answered `describe` with; lives as long as the framework. */
const struct sf_description *sf_framework_description(const struct sf_framework *framework);
const json_t *sf_framework_described(const struct sf_framework *framework); /* as the worker said it */
/* The socket where the worker forks ranks, for other processes; NULL: a launcher starts them. Lives as long as the framework. */
const char *sf_framework_zygote(const struct sf_framework *framework);
/* Ends its sets, and without a zygote removes its temporary folder too; the next run makes them again. Takes NULL. */
void sf_framework_rest(struct sf_framework *framework);
int64_t sf_framework_restarts(const struct sf_framework *framework); /* sets that were ended before their time */

/* Runs a complete case. Whatever the worker does is an outcome, and so is anything that this machine lacks for the case. SF_ECANCELLED
 * when stopped; SF_EUSAGE when the folder for traces is gone; SF_ENOMEM. */
enum sf_status sf_framework_run(struct sf_framework *framework, struct sf_framework_outcome *outcome, const json_t *complete,
                                struct sf_error *error) SF_MUST_USE;
/* Whether the cases that follow are diagnosed with runs of the reference in which one choice of the case after the other is not made. */
void sf_framework_suppose(struct sf_framework *framework, bool supposes);
/* Whether the cases that follow are findings only by all perturbed runs, and not by as many as make it nearly certain. A case that is not
 * diagnosed needs no more of them once each finding is far beyond its bound. */
void sf_framework_be_thorough(struct sf_framework *framework, bool thorough);
/* Whether the cases that follow may be findings by fewer perturbed runs than usual where they are far beyond their bounds: for what is
 * judged again before it is shown. */
void sf_framework_be_quick(struct sf_framework *framework, bool quick);
/* NULL, or where evidence of the cases that follow is kept, each in place of the one before; borrowed. */
void sf_framework_show(struct sf_framework *framework, struct sf_evidence *evidence);
/* Asks the worker for a program that shows what a complete case does. first: name of the first wrong tensor, or "". SF_EIO with the
 * worker's reason; SF_EINPUT: no text, or one longer than size. */
enum sf_status sf_framework_ask_script(struct sf_framework *framework, char *out, size_t size, const json_t *complete, const char *first,
                                       struct sf_error *error) SF_MUST_USE;
/* Whether sets did not start for three cases in a row, so that more cases would fail alike. */
bool sf_framework_is_exhausted(const struct sf_framework *framework);

#endif
