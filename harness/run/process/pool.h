/* A pool of processes that run cases, so that a crash or a hang of the code under test is an outcome and not the end.
 *
 * Processes are children of this process (simulated ranks), or sets of MPI ranks started by a launcher command. They end with their parent,
 * also when it is killed. Jobs are pulled from the caller in blocks, so that cases of one logical function reach the same process. */
#ifndef SF_RUN_POOL_H
#define SF_RUN_POOL_H

#include "generators/codec.h"
#include "generators/shrink.h"
#include "harness/device/device.h"
#include "harness/run/process/contrast_text.h"
#include "harness/run/process/shrink_steps.h"
#include "harness/run/trial/outcome.h"

#include <signal.h>
#include <stdio.h>

struct sf_chunk_log;
struct sf_framework_options;
struct sf_description;
struct sf_op_target;

enum sf_job_kind {
  SF_JOB_RUN,    /* one trial */
  SF_JOB_SHRINK, /* confirm in a fresh process, then shrink (in further processes) */
};

/* How a SHRINK job ended. */
enum sf_shrink_end {
  SF_SHRINK_LOST,        /* its process died, several times, and said nothing */
  SF_SHRINK_UNCONFIRMED, /* the case was run again, several times, and never ran to its end */
  SF_SHRINK_FLAKY,       /* it ran to its end and did not fail so again */
  SF_SHRINK_DONE,        /* it failed so again; min and min_outcome are there */
};

/* Why shrinking ended before the case was minimal, if not for its budget. */
enum sf_shrink_cut {
  SF_SHRINK_CUT_NOT,
  SF_SHRINK_CUT_TIME, /* shrink_until had passed */
  SF_SHRINK_CUT_LACK, /* the machine had too little for a trial, several times in a row */
};

enum { SF_JOB_BLOCK_MAX = 16, SF_SCRIPT_TEXT = 65536, SF_JOB_SUSPECTS_MAX = 4 };

/* How many perturbed runs judge a finding. */
enum sf_effort {
  SF_EFFORT_USUAL,
  SF_EFFORT_QUICK,    /* of layers and frameworks: few, where it is far beyond its bound */
  SF_EFFORT_THOROUGH, /* of a framework: all of them, or if it is not diagnosed a third of them, where it is far beyond its bound */
};

struct sf_job {
  int64_t tag;           /* the caller's; of a range the index of its first case */
  int64_t range;         /* 0; or RUN: so many cases of the pool's operations, which the process draws; c has their target
                            and, as its seed, the campaign's (sf_job_of_range) */
  int32_t kind;          /* enum sf_job_kind */
  int32_t budget;        /* SHRINK: evaluations at most; 0 = confirm only */
  int32_t contrast;      /* SHRINK: trials at most that say why the smallest case fails (generators/contrast.h); 0: none */
  double shrink_until;   /* SHRINK: shrinking starts no trial after this sf_clock_seconds; 0: no limit */
  double contrast_until; /* SHRINK: none of them begins later, as sf_clock_seconds tells the time; 0: no limit */
  bool others_wait;      /* SHRINK: other findings wait and the campaign's time is limited, so no contrast is tried */
  double deadline;       /* seconds that one trial may take; <= 0: by its size (sf_pool_deadline) */
  struct sf_case c;
  char shrink_key[SF_SHRINK_KEY_TEXT]; /* SHRINK: what was found, and must be found again. RUN: the culprit to tell of if it is there; "":
                                          the one that the case expects */
  bool diagnose;                       /* RUN: a finding gets its diagnosis too. SHRINK: always, of the case that is shown */
  bool flat_bound;                     /* RUN, simulated ranks: what the flat bound says of it too */
  enum sf_effort effort;               /* RUN */
  bool was_hang;                       /* SHRINK: confirm with ten times the deadline */
  int32_t suspect_count; /* SHRINK: smallest cases of findings with this key; what fails no more without one of them is not shrunk again */
  const struct sf_case *suspects; /* borrowed until the job is done; they go to the process behind the job, which has to be small */
};

/* Cases of a range that passed. */
struct sf_passes {
  int64_t count;
  int64_t checked, unchecked; /* elements, summed */
  double seconds;
};

/* A range has several: each tells of the cases that passed since the last one, and of the one behind them that did not, if there is one. */
struct sf_job_result {
  int64_t tag;             /* of a range: the index of the first case that this is of */
  struct sf_passes passes; /* of a range */
  bool of_range;
  bool has_outcome;          /* of a range: `outcome` is that of the case behind the passes */
  struct sf_outcome outcome; /* RUN: of the case. SHRINK: of the confirming run, or of the death of the process; its text says why when
                                `end` is LOST or  UNCONFIRMED */
  int32_t end;               /* SHRINK: enum sf_shrink_end */
  struct sf_case min; /* SHRINK: the smallest case that still fails so, and how it fails. Found end to end, near the noise: as the same
                         case with its modules alone fails, if it does; the key is that failure's then */
  struct sf_outcome min_outcome;
  char script[SF_SCRIPT_TEXT]; /* frameworks: a program that shows a diagnosed finding (SHRINK: of min); "" when the worker writes none */
  int32_t evaluations, budget; /* SHRINK: trials that shrinking took, of at most so many */
  bool minimal;                /* false: it ended first, for the budget or for what cut says */
  enum sf_shrink_cut cut;      /* SHRINK */
  bool is_explained;           /* SHRINK: without what a suspect needs, the case does not fail so; min is that suspect */
  bool is_suspects;            /* SHRINK: min is a suspect, by that or by shrinking: the contrast of that finding holds here too */
  char steps[SF_STEPS_TEXT];   /* SHRINK: its way (shrink_steps.h) */
  char contrast[SF_CONTRAST_TEXT]; /* SHRINK: why min fails (contrast_text.h); "": nobody asked */
};

struct sf_pool_options {
  int32_t processes; /* >= 1 */
  enum sf_device_kind device;
  enum sf_cpu_gemm gemm;
  bool hash_trace;
  const struct sf_space *space;                 /* for shrinking; NULL: shrinking is not asked for */
  const struct sf_framework_options *framework; /* NULL, or how a framework's worker is started: then cases are that framework's */
  const struct sf_op_target *operations;        /* NULL, or the target that ranges are of */
  const struct sf_description *description;     /* with a framework: what its worker says of itself */
  const char *launcher;        /* NULL: simulated ranks. Else a command with {n}, such as "mpirun --oversubscribe -n {n}" */
  const char *self;            /* with a launcher: path of the shardfuzz executable */
  int32_t launch_ranks;        /* size of a rank set */
  double max_memory;           /* of one case, in bytes; 0: no limit */
  double device_memory;        /* bytes of a GPU that one process may take; 0: what is free when it starts */
  bool nccl;                   /* ranks of MPI jobs send their data by NCCL */
  struct sf_chunk_log *record; /* NULL, or a shared log where simulated ranks leave what they traced; for one process */
  FILE *evidence;              /* NULL, or a file where a process leaves what a diagnosed job showed (evidence.h); for one process */
  FILE *table;                 /* NULL, or where a process prints the table of every tensor (table.h) */
  const volatile sig_atomic_t *stop; /* NULL, or once it is set nobody waits for a launcher that starts ranks */
};

struct sf_pool;
/* Copies the options, and borrows what they point to. Processes start with their first jobs. SF_ENOMEM. */
enum sf_status sf_pool_create(struct sf_pool **out, const struct sf_pool_options *options) SF_MUST_USE;
void sf_pool_destroy(struct sf_pool *pool); /* ends every process; takes NULL */

/* Where jobs come from and results go. */
struct sf_pool_client {
  void *ctx;
  /* Fills up to `max` jobs for one process; returns their number. 0 = nothing at the moment: asked again after the next result. */
  int32_t (*next)(void *ctx, struct sf_job *jobs, int32_t max);
  /* Called in this process for each finished job, and each piece of a range, in order of completion. */
  void (*done)(void *ctx, const struct sf_job *job, const struct sf_job_result *result);
  /* Called about ten times a second; false = hand out nothing new, drop what is queued in processes and return. May be NULL. */
  bool (*tick)(void *ctx);
};
/* Works until next has nothing left and all jobs are done, or tick says stop; then it hands to done the cases that passed in unfinished
 * ranges. A launcher that is stopped while it starts ranks counts as the latter. SF_EIO, SF_ENOMEM: processes could not be started. */
enum sf_status sf_pool_run(struct sf_pool *pool, const struct sf_pool_client *client) SF_MUST_USE;

/* Why a pool with these options failed, in one line: in detail for SF_EIO and SF_EUSAGE, else the status in words. */
void sf_pool_failure_text(char *out, size_t out_size, const struct sf_pool_options *options, enum sf_status status);

/* One job through the pool, and one through a pool made for it (a fresh process). */
enum sf_status sf_pool_run_job(struct sf_pool *pool, const struct sf_job *job, struct sf_job_result *result) SF_MUST_USE;
enum sf_status sf_pool_run_one(const struct sf_pool_options *options, const struct sf_job *job, struct sf_job_result *result) SF_MUST_USE;

/* A job for the cases [first, first + count) of the pool's operations. */
void sf_job_of_range(struct sf_job *out, const struct sf_pool_options *options, uint64_t seed, int64_t first, int64_t count);

/* Seconds after which a trial of this case counts as hung with these options. Layers: a generous multiple of the case's arithmetic, at
 * least 5; on a GPU or by NCCL 30 and 20 times that. Frameworks: 120, since their runs have deadlines of their own. Operations: 10 for a
 * case of a file and 5 in a range; on a GPU 120 and 60. */
double sf_pool_deadline(const struct sf_pool_options *options, const struct sf_case *c);

#endif
