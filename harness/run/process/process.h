/* One process of a pool, and the loop it runs. */
#ifndef SF_RUN_PROCESS_H
#define SF_RUN_PROCESS_H

#include "harness/base/system/clock.h"
#include "harness/run/process/pool.h"
#include "harness/worker/said.h"
#include "harness/worker/watcher.h"

#include <signal.h>
#include <sys/types.h>

/* Why a process of the pool, or a set's relay, left its loop. */
enum sf_leaving {
  SF_LEAVING_NOT,
  SF_LEAVING_UNREACHED, /* the connection to the pool was lost, or closed */
  SF_LEAVING_RANKS,     /* of a relay: its ranks failed */
};

/* Memory shared with the process: where it stands, readable after it died. */
struct sf_process_page {
  volatile int32_t leaving; /* enum sf_leaving; of a set: in the first rank's page */
  struct sf_comm_progress progress;
  volatile uint64_t trace_key; /* last trace point passed */
  volatile int32_t trace_rank;
  volatile int32_t is_own; /* shardfuzz's own part of the trial runs, the reference or the judgement: no code under test */
  volatile int32_t signal; /* that killed it; 0 = none caught */
  volatile pid_t pid;      /* of a launched set's rank; 0: not there yet */
  double starved;          /* sf_starved_seconds of it when the first unanswered job began */
  int64_t range_first;     /* of a range: the first case that no result has told of yet */
  struct sf_passes passes; /* of those from there on; the case behind them runs */
  int32_t operand;         /* beside which `fault` was, of an operation */
  int32_t manner;          /* enum sf_manner of that */
  char fault[96];          /* what a plugin did then: "writes 12 bytes behind its output"; "" = nothing known */
};

/* Where ranks were last seen to wait (sf_world_waiting), and since when; zeroed: not seen yet. */
struct sf_world_still {
  uint64_t waiting;
  double since;
};

struct sf_process {
  pid_t pid;                    /* 0 = not running */
  struct sf_watcher watcher;    /* of the process */
  int fd;                       /* jobs out, results in */
  struct sf_process_page *page; /* page_count of them: one for simulated ranks, one per rank for a launched set */
  int32_t page_count;
  int32_t job_count, job_next; /* jobs handed to it; the first unanswered one */
  struct sf_job jobs[SF_JOB_BLOCK_MAX];
  struct sf_watch watch;       /* looked at while it has jobs */
  double since, cpu_since;     /* when, by the watch, the first unanswered job can have begun; processor seconds of the process then */
  int64_t seen;                /* of a range: how many cases had passed when the page was last looked at */
  struct sf_world_still still; /* of a launched set's ranks */
  int32_t answered;            /* jobs, since its process was started */
  double kills;                /* sf_memory_kills when it was started */
  size_t received;             /* bytes of an unfinished result */
  struct sf_job_result result;
  bool launched;       /* the process is the relay of a launched set */
  struct sf_said said; /* of its process, where that runs a plugin; memory 0: not made yet */
  bool for_shrinking;  /* its job is a SHRINK job, which is run in processes of its own */
  int32_t losses;      /* how often the process of that job died */
  int32_t lost;        /* how often the connection to the process of its first job was lost */
};

/* Starts a process that runs sf_process_main, or a launched rank set. */
enum sf_status sf_process_start(struct sf_process *process, const struct sf_pool_options *options, bool for_shrinking) SF_MUST_USE;
/* Forks a process of the pool below its watcher: returns 0 there, with the end of the socket that it reads jobs from, its id in the parent,
 * -1 on failure. has_watchers: what it starts has watchers of its own, which end with it and need a moment. */
pid_t sf_process_fork(struct sf_process *process, bool has_watchers, int *fd);
/* Kills it and everything it started; page and jobs stay. Returns how it ended, as waitpid tells it (of a launched set: its relay). To end
 * many, ask all of them first, so that they end side by side. */
int sf_process_stop(struct sf_process *process);
/* Asks, and does not wait. */
void sf_process_ask_to_stop(const struct sf_process *process);
void sf_process_unmap(struct sf_process *process); /* gives the page up, and what its process said */
/* Writes the unanswered jobs to the process. False when it is gone. */
bool sf_process_send(struct sf_process *process);
/* Of a process from which nothing can be received any more: whether the connection alone was lost, and not the process or its ranks. Takes
 * up to 0.2 s. */
bool sf_process_lost_connection(const struct sf_process *process);
/* The first unanswered job begins now. */
void sf_process_set_off(struct sf_process *process);
/* Whether the first unanswered job, or the running case of its range, has had more than `seconds`. For a process that computes its
 * processor time counts, so that a busy machine makes no hang; one that stands still without computing gets ten times as long. For a
 * launched set and an operation, time in which a process had no processor does not count, up to ten times as long, unless all ranks wait
 * for each other. */
bool sf_process_is_overdue(struct sf_process *process, double seconds);
/* For how long the first unanswered job has been under way. */
double sf_process_seconds(struct sf_process *process);
/* For the process: sends a result, without the parts that it does not use. False when the parent is gone. */
bool sf_process_answer(int fd, const struct sf_job_result *result);
/* Reads what is there. 1: process->result is complete; 0: not yet; -1: the process is gone. */
int sf_process_receive(struct sf_process *process);
/* Whether one of its processes died of the limit on processor time (ulimit -t), which is no fault of the case. */
bool sf_process_is_spent(const struct sf_process *process);
/* The first unanswered job is a range: its cases that passed and that no result has reported. */
struct sf_passes sf_process_passes(const struct sf_process *process);
/* Outcome of the first unanswered job of a process that died (hang false) or is stuck at its deadline (hang true); of a range, of the case
 * that ran. */
void sf_process_outcome_of_death(struct sf_process *process, const struct sf_pool_options *options, bool hang, struct sf_outcome *outcome);
/* Whether the process ended for want of memory or of processor time, which says nothing about the case: then makes the outcome
 * inconclusive. where: " after 'LABEL'", or "". */
bool sf_process_lacked(const struct sf_process *process, const char *where, struct sf_outcome *outcome);

/* The child's side. Reads jobs from fd until it closes. */
_Noreturn void sf_process_main(int fd, struct sf_process_page *page, struct sf_said *said, const struct sf_pool_options *options);
/* Installs the handlers that note a fatal signal in the page before the process dies of it. */
void sf_process_watch_signals(struct sf_process_page *page);
/* Installs this handler for them, once each and on a stack of its own; it has to raise the signal again. sf_process_note_signal fills the
 * page for it. */
void sf_process_catch_fatal(void (*handler)(int, siginfo_t *, void *));

struct sf_op_memory;
/* From here on a fault names the operand of this memory that it lies beside. memory: borrowed; NULL: no operand any more. */
void sf_process_watch_operands(const struct sf_op_memory *memory);
/* For a handler of a fatal signal, with its second and third argument: writes signal, place and manner into the page. */
void sf_process_note_signal(struct sf_process_page *page, const siginfo_t *info, const void *context);

/* Confirms a finding in a fresh process and shrinks it with further ones (shrink_job.c). For a framework the processes need not be fresh,
 * but they are not those that found it; *kept, NULL at first, holds them for the next job, and the caller destroys it. */
void sf_shrink_job(struct sf_pool **kept, const struct sf_pool_options *options, const struct sf_job *job, struct sf_job_result *result);

/* Launched rank sets (launch.c): parent's and ranks' side. */
enum { SF_LAUNCH_RANKS_MAX = 1024 };
/* Returns when every rank of the set is there. SF_EUSAGE: a set of that size is not possible. SF_EIO: the launcher did not bring it.
 * SF_ECANCELLED: stopped meanwhile. */
enum sf_status sf_launch_start(struct sf_process *process, const struct sf_pool_options *options) SF_MUST_USE;
/* Body of the hidden command `mpi-worker --socket PATH --page PATH --device N --gemm N --nccl N --max-memory BYTES`, run by every rank of a
 * set; returns the exit code. */
int sf_launch_rank_main(const char *socket_path, const char *page_path, const struct sf_pool_options *pool);

#endif
