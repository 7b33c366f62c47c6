#include "harness/run/opfuzz/op_worker.h"

#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/base/system/clock.h"
#include "harness/worker/said.h"
#include "harness/worker/starved.h"
#include "harness/worker/warden.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STATUS_FAILED = 97, WORKERS_MAX = 64, TICK_MS = 50, STOP_SECONDS = 1 };

/* What the parent sees while the child works, and after it has ended. */
struct page {
  _Atomic int64_t index; /* of the case that runs */
  _Atomic bool stop;     /* the parent's: no further case begins */
  struct sf_op_answer so_far; /* counts of cases that ended before it */
  int32_t fault_operand;      /* beside which the process touched memory that it may not; -1: it did not */
  bool fault_writes;
  bool spent;                 /* the process died of the limit on processor time */
  char fault[160];            /* "reads 12 bytes behind input x" */
  struct sf_error error;
};

struct sf_op_worker {
  struct sf_op_pool_options options;
  struct sf_warden warden; /* pid 0: there is no process */
  int channel;
  struct sf_said said;
  struct page *page;
  struct sf_op_job job; /* at work on it */
  bool busy, answered;  /* answered: its process has done a job before */
  int64_t seen_index;
  struct sf_watch watch; /* looked at while the process is at work */
  double stopped_at;     /* when the interruption was seen; 0: not */
  double seen_at, starved; /* when, by the watch, and for how many seconds the process had waited for a processor by then */
};

/* --- the child --------------------------------------------------------------------------------------------------------------- */

/* Of this process, for the handler; written before it is installed. */
static struct {
  struct page *page;
  const struct sf_op_memory *memory;
  pid_t process;
} watched;

static void note_fault(const siginfo_t *info, const void *context) {
  const char *access = sf_access_name(sf_walled_access(context));
  char where[sizeof watched.page->fault - 8];
  watched.page->fault_writes = strcmp(access, "writes") == 0;
  const int32_t operand = sf_op_memory_where(where, sizeof where, watched.memory, info->si_addr, watched.page->fault_writes);
  if (operand >= 0) snprintf(watched.page->fault, sizeof watched.page->fault, "%s %s", access, where);
  watched.page->fault_operand = operand;
}

static void on_fault(int number, siginfo_t *info, void *context) {
  if (getpid() == watched.process) note_fault(info, context); /* a child of the plugin's is its own affair */
  raise(number); /* SA_RESETHAND: the default action ends the process */
}

static void on_spent(int number) {
  if (getpid() == watched.process) watched.page->spent = true;
  raise(number);
}

static void watch_time(struct page *page) {
  const struct sigaction action = {.sa_handler = on_spent, .sa_flags = (int)(SA_RESETHAND | SA_NODEFER)};
  watched.page = page;
  watched.process = getpid();
  sigaction(SIGXCPU, &action, NULL);
}

/* On a stack of its own: that of the plugin may be what ran out. */
static void watch_faults(const struct sf_op_memory *memory) {
#ifndef SF_SANITIZE
  static char stack[64 * 1024];
  const stack_t alternative = {.ss_sp = stack, .ss_size = sizeof stack};
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = on_fault;
  action.sa_flags = (int)(SA_SIGINFO | SA_ONSTACK | SA_RESETHAND | SA_NODEFER);
  watched.memory = memory;
  sigaltstack(&alternative, NULL);
  sigaction(SIGSEGV, &action, NULL);
  sigaction(SIGBUS, &action, NULL);
#else
  (void)memory, (void)on_fault; /* the sanitizers have handlers of their own */
#endif
}

static void run_range(struct page *page, struct sf_op_lab *lab, const struct sf_op_pool_options *options, const struct sf_op_job *job,
                      struct sf_said *said) {
  const bool plugin = *options->target->path;
  struct sf_op_answer *answer = &page->so_far;
  for (int64_t i = job->first; i < job->first + job->count && !atomic_load_explicit(&page->stop, memory_order_relaxed); i++) {
    atomic_store_explicit(&page->index, i, memory_order_relaxed);
    sf_op_case_draw(&answer->c, options->target, options->seed, (uint64_t)i);
    sf_op_trial_run(&answer->outcome, &lab->memory, &lab->runner, options->target, &answer->c, false);
    if (plugin) sf_said_pass_on(said);
    answer->done++;
    answer->index = i;
    answer->skipped += answer->outcome.cls == SF_OP_SKIPPED;
    answer->judged += answer->outcome.judged;
    answer->elements += answer->outcome.elements;
    if (sf_op_is_finding((enum sf_op_class)answer->outcome.cls)) return;
  }
}

static void run_job(struct page *page, struct sf_op_lab *lab, const struct sf_op_pool_options *options, const struct sf_op_job *job,
                    struct sf_said *said) {
  memset(&page->so_far, 0, sizeof page->so_far);
  if (job->count > 0) {
    run_range(page, lab, options, job, said);
    return;
  }
  page->so_far.c = job->one;
  page->so_far.done = 1;
  sf_op_trial_run(&page->so_far.outcome, &lab->memory, &lab->runner, options->target, &job->one, job->measure);
}

_Noreturn static void child(struct sf_op_worker *worker, int channel) {
  struct sf_op_lab lab;
  struct sf_op_job job;
  signal(SIGINT, SIG_IGN);
  setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}); /* a crash here is an answer */
  sf_said_begin(&worker->said);
  if (*worker->options.target->path) sf_warden_confine(true);
  const enum sf_status status =
      sf_op_lab_create(&lab, worker->options.target, worker->options.device, worker->options.gemm, &worker->page->error);
  if (status != SF_OK) {
    worker->page->error.status = status;
    _exit(STATUS_FAILED);
  }
  watch_time(worker->page);
  if (lab.memory.walled) watch_faults(&lab.memory);
  while (read(channel, &job, sizeof job) == (ssize_t)sizeof job) {
    run_job(worker->page, &lab, &worker->options, &job, &worker->said);
    sf_said_pass_on(&worker->said);
    char done = 1;
    if (write(channel, &done, 1) != 1) break;
  }
  _exit(0);
}

/* --- the parent -------------------------------------------------------------------------------------------------------------- */

static enum sf_status start(struct sf_op_worker *worker, struct sf_error *error) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return sf_error_set(error, SF_EIO, "a socket: %s", sf_errno_text(errno).text);
  const pid_t pid = sf_warden_fork(&worker->warden, 0);
  if (pid == 0) {
    close(ends[0]);
    child(worker, ends[1]);
  }
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return sf_error_set(error, SF_EIO, "a process: %s", sf_errno_text(errno).text);
  }
  worker->channel = ends[0];
  worker->answered = false;
  return SF_OK;
}

/* Ends the process and what it started; returns what waitpid says of it. */
static int stop(struct sf_op_worker *worker) {
  close(worker->channel);
  return sf_warden_end(&worker->warden);
}

enum sf_status sf_op_worker_create(struct sf_op_worker **out, const struct sf_op_pool_options *options) {
  struct sf_op_worker *worker = sf_alloc(sizeof *worker);
  if (!worker) return SF_ENOMEM;
  worker->options = *options;
  worker->page = mmap(NULL, sizeof *worker->page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (worker->page != MAP_FAILED && sf_said_open(&worker->said)) {
    *out = worker;
    return SF_OK;
  }
  if (worker->page != MAP_FAILED) munmap(worker->page, sizeof *worker->page);
  sf_free(worker);
  return SF_EIO;
}

void sf_op_worker_destroy(struct sf_op_worker *worker) {
  if (!worker) return;
  if (worker->warden.pid) stop(worker);
  munmap(worker->page, sizeof *worker->page);
  sf_said_close(&worker->said);
  sf_free(worker);
}

static void see(struct sf_op_worker *worker, int64_t index) {
  worker->seen_index = index;
  worker->seen_at = sf_watch_seconds(&worker->watch);
  worker->starved = sf_starved_seconds(worker->warden.ward);
}

enum sf_status sf_op_worker_send(struct sf_op_worker *worker, const struct sf_op_job *job, struct sf_error *error) {
  SF_ASSERT(!worker->busy);
  if (!worker->warden.pid) {
    const enum sf_status status = start(worker, error);
    if (status != SF_OK) return status;
  }
  worker->job = *job;
  worker->busy = true;
  see(worker, job->first);
  memset(&worker->page->so_far, 0, sizeof worker->page->so_far);
  worker->page->fault_operand = -1;
  worker->page->spent = false;
  atomic_store(&worker->page->index, job->first);
  /* A process that has just ended is found by the next wait. */
  (void)!send(worker->channel, job, sizeof *job, MSG_NOSIGNAL);
  return SF_OK;
}

/* The counts of the cases that ended, of a job that did not. */
static void answer_so_far(const struct sf_op_worker *worker, struct sf_op_answer *answer) {
  *answer = worker->page->so_far;
  memset(&answer->outcome, 0, sizeof answer->outcome);
  answer->outcome.operand = -1;
  if (worker->job.count == 0) answer->done = 0;
}

/* Of a process that used up its processor time: by cases before, or else by this one alone, which a fresh one would not end either. */
static void answer_for_spent(const struct sf_op_worker *worker, struct sf_op_answer *answer) {
  answer_so_far(worker, answer);
  answer->unfinished = worker->answered || answer->done > 0;
  if (answer->unfinished) return;
  answer->c = worker->job.one;
  if (worker->job.count > 0) sf_op_case_draw(&answer->c, worker->options.target, worker->options.seed, (uint64_t)worker->job.first);
  answer->index = worker->job.first;
  answer->done = answer->inconclusive = 1;
  answer->outcome.cls = SF_OP_INCONCLUSIVE;
  snprintf(answer->outcome.said, sizeof answer->outcome.said, "its process used up its processor time (ulimit -t): raise the limit");
}

/* The answer of a process that is no more. */
static enum sf_status answer_for(struct sf_op_worker *worker, bool hung, struct sf_op_answer *answer, struct sf_error *error) {
  char said[sizeof answer->outcome.said];
  const int how = stop(worker);
  sf_said_last(&worker->said, said, sizeof said);
  if (WIFEXITED(how) && WEXITSTATUS(how) == STATUS_FAILED)
    return sf_error_set(error, worker->page->error.status, "%s", worker->page->error.text);
  if (!hung && worker->page->spent) return answer_for_spent(worker, answer), SF_OK;
  *answer = worker->page->so_far;
  answer->index = atomic_load(&worker->page->index);
  if (worker->job.count > 0) {
    answer->done = answer->index - worker->job.first + 1;
    sf_op_case_draw(&answer->c, worker->options.target, worker->options.seed, (uint64_t)answer->index);
  } else {
    answer->c = worker->job.one;
  }
  memset(&answer->outcome, 0, sizeof answer->outcome);
  answer->outcome.operand = -1;
  answer->outcome.cls = hung ? SF_OP_HANG : SF_OP_CRASH;
  answer->outcome.code = WIFSIGNALED(how) ? WTERMSIG(how) : -WEXITSTATUS(how) - 1;
  if (hung || worker->page->fault_operand < 0) {
    memcpy(answer->outcome.said, said, sizeof said);
    return SF_OK;
  }
  answer->outcome.operand = worker->page->fault_operand;
  if (worker->page->fault_writes) answer->outcome.cls = SF_OP_GUARD;
  snprintf(answer->outcome.said, sizeof answer->outcome.said, "%s", worker->page->fault);
  return SF_OK;
}

/* True when the worker's case has run for longer than it may, without the time that a busy machine did not let it. */
static bool overdue(struct sf_op_worker *worker) {
  const int64_t index = atomic_load(&worker->page->index);
  if (index != worker->seen_index) see(worker, index);
  const double ran = sf_watch_seconds(&worker->watch) - worker->seen_at, limit = (double)worker->options.deadline_ms / 1000;
  return ran > limit && ran - (sf_starved_seconds(worker->warden.ward) - worker->starved) > limit;
}

bool sf_op_worker_is_stopped(const struct sf_op_worker *worker) { return worker->options.stop && *worker->options.stop; }

/* True when a stopped worker has had its time. */
static bool out_of_time(struct sf_op_worker *worker) {
  if (!sf_op_worker_is_stopped(worker)) return false;
  atomic_store(&worker->page->stop, true);
  if (worker->stopped_at == 0) worker->stopped_at = sf_clock_seconds();
  return sf_clock_seconds() - worker->stopped_at > STOP_SECONDS;
}

/* Of a process that did not end its case in time, which says nothing of the case. */
static void give_up(struct sf_op_worker *worker, struct sf_op_answer *answer) {
  stop(worker);
  answer_so_far(worker, answer);
  answer->given_up = true;
}

enum sf_status sf_op_workers_wait(struct sf_op_worker **workers, int32_t count, int32_t timeout_ms, int32_t *which,
                                  struct sf_op_answer *answer, struct sf_error *error) {
  struct pollfd waits[WORKERS_MAX];
  const double until = sf_clock_seconds() + (double)timeout_ms / 1000;
  SF_ASSERT_LE(count, WORKERS_MAX);
  for (*which = -1;;) {
    for (int32_t i = 0; i < count; i++) waits[i] = (struct pollfd){.fd = workers[i]->busy ? workers[i]->channel : -1, .events = POLLIN};
    poll(waits, (nfds_t)count, TICK_MS);
    for (int32_t i = 0; i < count; i++) {
      char done;
      struct sf_op_worker *worker = workers[i];
      const bool quiet = worker->busy && !waits[i].revents, given_up = quiet && out_of_time(worker),
                 late = quiet && !given_up && overdue(worker);
      if (!worker->busy || (quiet && !given_up && !late)) continue;
      worker->busy = false;
      *which = i;
      if (given_up) return give_up(worker, answer), SF_OK;
      if (late || recv(worker->channel, &done, 1, MSG_DONTWAIT) != 1) return answer_for(worker, late, answer, error);
      *answer = worker->page->so_far;
      worker->answered = true;
      return SF_OK;
    }
    if (sf_clock_seconds() >= until) return SF_OK;
  }
}

enum sf_status sf_op_worker_run(struct sf_op_worker *worker, const struct sf_op_job *job, struct sf_op_answer *answer,
                                struct sf_error *error) {
  int32_t which = -1;
  enum sf_status status = sf_op_worker_send(worker, job, error);
  while (status == SF_OK && which < 0) {
    status = sf_op_workers_wait(&worker, 1, 1000, &which, answer, error);
    if (status != SF_OK || which < 0 || !answer->unfinished) continue;
    which = -1;
    status = sf_op_worker_send(worker, job, error);
  }
  return status == SF_OK && answer->given_up ? SF_ECANCELLED : status;
}
