#include "harness/run/workers/worker.h"

#include "harness/base/alloc.h"
#include "harness/base/system/system_memory.h"
#include "harness/base/system/walled.h"
#include "harness/run/framework/framework_case.h"
#include "harness/run/trial/engine.h"
#include "harness/run/trial/table.h"
#include "harness/run/workers/world_end.h"
#include "harness/worker/starved.h"
#include "harness/worker/warden.h"
#include "targets/plugin/plugin_target.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

bool sf_fd_write(int fd, const void *data, size_t size_bytes) {
  const char *at = data;
  while (size_bytes) {
    const ssize_t done = send(fd, at, size_bytes, MSG_NOSIGNAL);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    at += done;
    size_bytes -= (size_t)done;
  }
  return true;
}

bool sf_fd_read(int fd, void *data, size_t size_bytes) {
  char *at = data;
  while (size_bytes) {
    const ssize_t done = read(fd, at, size_bytes);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    at += done;
    size_bytes -= (size_t)done;
  }
  return true;
}

/* For the watchers of sets of ranks, and of workers of its own, that a worker has started: they end with it. */
enum { GRACE_MS = 4000 };

/* --- parent's side --------------------------------------------------------------------------------------------- */

static enum sf_status make_page(struct sf_worker *worker) {
  if (worker->page_count > 1) sf_worker_unmap(worker);
  if (!worker->page) {
    void *page = mmap(NULL, sizeof *worker->page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return SF_ENOMEM;
    worker->page = page;
    worker->page_count = 1;
  }
  memset(worker->page, 0, sizeof *worker->page);
  worker->page->progress.rank = worker->page->trace_rank = -1;
  return SF_OK;
}

static _Noreturn void child_main(int fd, struct sf_worker *worker, const struct sf_pool_options *options) {
  signal(SIGINT, SIG_IGN);
  signal(SIGTERM, SIG_DFL);
  sf_worker_main(fd, worker->page, &worker->said, options);
}

enum sf_status sf_worker_start(struct sf_worker *worker, const struct sf_pool_options *options, bool for_shrinking) {
  enum sf_status status = make_page(worker);
  if (status != SF_OK) return status;
  worker->received = 0;
  worker->answered = 0;
  worker->kills = sf_memory_kills();
  worker->for_shrinking = for_shrinking;
  if (options->launcher && !for_shrinking) return sf_launch_start(worker, options);
  int pair[2];
  if (worker->said.memory <= 0) (void)!sf_said_open(&worker->said); /* without it nothing is quoted */
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return SF_EIO;
  const pid_t pid = sf_warden_fork(&worker->warden, for_shrinking || options->framework ? GRACE_MS : 0);
  if (pid < 0) {
    close(pair[0]);
    close(pair[1]);
    return SF_EIO;
  }
  if (pid == 0) {
    close(pair[0]);
    child_main(pair[1], worker, options);
  }
  close(pair[1]);
  worker->pid = pid;
  worker->fd = pair[0];
  return SF_OK;
}

void sf_worker_unmap(struct sf_worker *worker) {
  if (worker->page) munmap(worker->page, (size_t)worker->page_count * sizeof *worker->page);
  worker->page = NULL;
  worker->page_count = 0;
  if (worker->said.memory > 0) sf_said_close(&worker->said);
}

/* The relay of a launched set ends its ranks itself. */
static void stop_relay(const struct sf_worker *worker) {
  sf_launch_end(worker);
  kill(-worker->pid, SIGKILL);
  kill(worker->pid, SIGKILL);
  while (waitpid(worker->pid, NULL, 0) < 0 && errno == EINTR) continue;
}

void sf_worker_ask_to_stop(const struct sf_worker *worker) { sf_warden_ask(&worker->warden); }

void sf_worker_stop(struct sf_worker *worker) {
  if (worker->fd > 0) close(worker->fd);
  worker->fd = 0;
  if (worker->launched) stop_relay(worker);
  sf_warden_end(&worker->warden);
  worker->pid = 0;
  worker->launched = false;
}

bool sf_worker_send(struct sf_worker *worker) {
  const size_t size_bytes = (size_t)(worker->job_count - worker->job_next) * sizeof *worker->jobs;
  return sf_fd_write(worker->fd, &worker->jobs[worker->job_next], size_bytes);
}

/* Processor seconds that the process has used; infinite where they say nothing, its work being done by others. */
static double cpu_seconds(const struct sf_worker *worker) {
  clockid_t clock;
  struct timespec used;
  if (worker->for_shrinking || clock_getcpuclockid(worker->pid, &clock) != 0 || clock_gettime(clock, &used) != 0) return INFINITY;
  return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

/* The longest that a rank of the set has waited for a processor since it was set off: the others may wait for it. */
static double starved_seconds(const struct sf_worker *worker) {
  double longest = 0;
  for (int32_t i = 0; i < worker->page_count; i++)
    longest = fmax(longest, sf_starved_seconds(worker->page[i].pid) - worker->page[i].starved);
  return longest;
}

void sf_worker_set_off(struct sf_worker *worker) {
  worker->since = sf_watch_seconds(&worker->watch);
  worker->cpu_since = cpu_seconds(worker);
  worker->waiting = 0;
  for (int32_t i = 0; worker->launched && i < worker->page_count; i++) worker->page[i].starved = sf_starved_seconds(worker->page[i].pid);
}

double sf_worker_seconds(struct sf_worker *worker) { return sf_watch_seconds(&worker->watch) - worker->since; }

/* The pages of the case's ranks, as long as `pages` is kept. */
static int32_t pages_of_case(const struct sf_worker_page **pages, const struct sf_worker *worker) {
  const int64_t ranks = sf_case_ranks(&worker->jobs[worker->job_next].c);
  const int32_t count = ranks < worker->page_count ? (int32_t)ranks : worker->page_count;
  for (int32_t i = 0; i < count; i++) pages[i] = &worker->page[i];
  return count;
}

/* Whether all ranks of a launched set wait, and have waited at the same places for a quarter of the deadline, two seconds at least: ranks
 * that spin keep each other from a processor, and need no more time. */
static bool wait_for_each_other(struct sf_worker *worker, double seconds) {
  static const struct sf_worker_page *pages[SF_LAUNCH_RANKS_MAX];
  const int32_t count = pages_of_case(pages, worker);
  const uint64_t waiting = sf_world_waiting(pages, count);
  const double now = sf_watch_seconds(&worker->watch);
  if (waiting != worker->waiting) worker->waiting = waiting, worker->waiting_since = now;
  return waiting != 0 && now - worker->waiting_since >= fmax(seconds / 4, 2);
}

bool sf_worker_is_overdue(struct sf_worker *worker, double seconds) {
  const double passed = sf_worker_seconds(worker);
  if (passed <= seconds) return false;
  if (passed > 10 * seconds || (worker->launched && wait_for_each_other(worker, seconds))) return true;
  return worker->launched ? passed - starved_seconds(worker) > seconds : !(cpu_seconds(worker) - worker->cpu_since <= seconds);
}

int sf_worker_receive(struct sf_worker *worker) {
  char *at = (char *)&worker->result + worker->received;
  const ssize_t done = recv(worker->fd, at, sizeof worker->result - worker->received, MSG_DONTWAIT);
  if (done < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
  if (done == 0) return -1;
  worker->received += (size_t)done;
  if (worker->received < sizeof worker->result) return 0;
  worker->received = 0;
  return 1;
}

static void place_text(char *out, size_t out_size, const struct sf_worker_page *page, const struct sf_case *c) {
  struct sf_catalog *catalog = NULL;
  char id[160];
  *out = '\0';
  if (page->trace_rank < 0 || sf_catalog_create(&catalog, c) != SF_OK) return;
  sf_trace_id_text(id, sizeof id, catalog, sf_trace_id_from_key(page->trace_key));
  snprintf(out, out_size, "; last trace point %s on rank %d", id, page->trace_rank);
  sf_catalog_destroy(catalog);
}

bool sf_worker_is_spent(const struct sf_worker *worker) {
  for (int32_t i = 0; i < worker->page_count; i++)
    if (worker->page[i].signal == SIGXCPU) return true;
  return false;
}

/* The machine's lack, not the case's fault. */
static void outcome_of_lack(struct sf_outcome *outcome) {
  outcome->verdict = SF_VERDICT_INCONCLUSIVE;
  outcome->kind = outcome->module_class = outcome->rank = -1;
  outcome->row = -1;
}

void sf_worker_outcome_of_death(struct sf_worker *worker, bool hang, struct sf_outcome *outcome) {
  static const struct sf_worker_page *pages[SF_LAUNCH_RANKS_MAX];
  const struct sf_case *c = &worker->jobs[worker->job_next].c;
  const int32_t count = pages_of_case(pages, worker);
  struct sf_world_end end;
  char place[240], told[240], said[160] = "", text[640];
  memset(outcome, 0, sizeof *outcome);
  outcome->ranks = (int32_t)sf_case_ranks(c);
  sf_world_end_find(&end, pages, count, hang);
  sf_world_end_text(told, sizeof told, &end);
  place_text(place, sizeof place, end.page, c);
  if (end.cls == SF_CLASS_CRASH && !end.page->signal && sf_memory_kills() > worker->kills) {
    outcome_of_lack(outcome);
    snprintf(outcome->text, sizeof outcome->text,
             "out of memory: the system ended the process after '%s'%s (fewer --jobs, or --max-memory)", end.label, place);
    return;
  }
  if (!hang && sf_worker_is_spent(worker)) {
    outcome_of_lack(outcome);
    snprintf(outcome->text, sizeof outcome->text, "the process used up its processor time (ulimit -t) after '%s'%s: raise the limit",
             end.label, place);
    return;
  }
  if (worker->said.memory > 0) sf_said_last(&worker->said, said, sizeof said);
  if (end.cls != SF_CLASS_CRASH || *end.page->fault) *said = '\0';
  snprintf(text, sizeof text, "%s%s%s%s", told, *said ? ", having said: " : "", said, place);
  sf_outcome_from_failure(outcome, c, end.cls, end.manner, end.rank, end.label, text);
}

/* --- child's side ---------------------------------------------------------------------------------------------- */

/* Of this process; written once before the handlers are on. */
static struct sf_worker_page *watched_page;
static pid_t watched_process;

/* "mlp.linear_fc2.fwd" of the label of one of its calls. */
static void cut_call(char *label) {
  char *dot = strrchr(label, '.');
  for (int op = 0; dot && op < SF_COMM_OP_COUNT; op++)
    if (strcmp(dot + 1, sf_comm_op_name((enum sf_comm_op)op)) == 0) {
      *dot = '\0';
      return;
    }
}

/* What is found when a plugin returns is booked under its name, not under the call that it made last: so is the same bug where it faults.
 */
void sf_worker_note_signal(struct sf_worker_page *page, const siginfo_t *info, const void *context) {
  page->fault[0] = '\0';
  page->manner = SF_MANNER_DIED;
  if (sf_walled_fault(page->fault, sizeof page->fault, info, context)) {
    const enum sf_access access = sf_walled_access(context);
    if (access != SF_ACCESS_UNKNOWN) page->manner = access == SF_ACCESS_WRITE ? SF_MANNER_WRITE : SF_MANNER_READ;
    if (page->progress.in_call != SF_COMM_INSIDE) cut_call(page->progress.label);
  }
  page->signal = info->si_signo;
}

static void on_fatal_signal(int number, siginfo_t *info, void *context) {
  if (getpid() == watched_process) sf_worker_note_signal(watched_page, info, context); /* a child of a plugin's is its own affair */
  raise(number); /* SA_RESETHAND: the default action ends the process */
}

void sf_worker_catch_fatal(void (*handler)(int, siginfo_t *, void *)) {
#ifndef SF_SANITIZE
  static char stack[64 * 1024];
  static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGXCPU};
  const stack_t alternative = {.ss_sp = stack, .ss_size = sizeof stack};
  sigaltstack(&alternative, NULL);
  for (size_t i = 0; i < sizeof fatal / sizeof fatal[0]; i++) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = handler;
    action.sa_flags = (int)(SA_SIGINFO | SA_ONSTACK | SA_RESETHAND | SA_NODEFER);
    sigaction(fatal[i], &action, NULL);
  }
#else
  (void)handler; /* the sanitizers have handlers of their own */
#endif
}

void sf_worker_watch_signals(struct sf_worker_page *page) {
  watched_page = page;
  watched_process = getpid();
  sf_worker_catch_fatal(on_fatal_signal);
}

/* Beyond the flat bound without the plant as well, it is no sign of the plant. */
static void ask_flat_bound(struct sf_engine *engine, const struct sf_case *c, struct sf_outcome *outcome) {
  static struct sf_outcome unplanted;
  sf_engine_flat_bound(engine, outcome);
  if (!*c->plant || outcome->flat.beyond == 0) return;
  struct sf_case clean = *c;
  memset(clean.plant, 0, sizeof clean.plant);
  sf_engine_run(engine, &clean, NULL, &unplanted);
  sf_engine_flat_bound(engine, &unplanted);
  outcome->flat_finds_plant = unplanted.status == SF_OK && unplanted.flat.beyond == 0;
}

/* Tells of the culprit that is looked for: of the one that the case expects when nothing else is said. */
static void turn(struct sf_outcome *outcome, const struct sf_job *job) {
  if (*job->shrink_key)
    sf_outcome_turn_to(outcome, job->shrink_key);
  else
    sf_outcome_turn_to_expected(outcome, &job->c.expect);
}

static void run_job(struct sf_engine *engine, struct sf_said *said, const struct sf_pool_options *options, const struct sf_job *job,
                    struct sf_job_result *result) {
  memset(result, 0, sizeof *result);
  result->tag = job->tag;
  if (sf_plugin_target_path(job->c.target)) sf_said_begin(said);
  sf_engine_run(engine, &job->c, options->record, &result->outcome);
  sf_outcome_excuse_memory(&result->outcome);
  turn(&result->outcome, job);
  if (job->diagnose) sf_engine_diagnose(engine, &job->c, NULL, &result->outcome);
  sf_said_end(said);
  if (options->table) {
    sf_table_print(options->table, sf_engine_catalog(engine), sf_engine_judgement(engine));
    fflush(options->table); /* the process leaves by _exit */
  }
  if (job->flat_bound) ask_flat_bound(engine, &job->c, &result->outcome);
}

/* A worker that has described itself to the campaign, and now does not start in one of its processes, says nothing of the case: the next
 * case tries again. */
static void excuse_start(const struct sf_pool_options *options, const struct sf_case *c, struct sf_outcome *outcome) {
  if (outcome->status == SF_OK || outcome->status == SF_ECANCELLED || !options->description) return;
  char reason[sizeof outcome->text];
  memcpy(reason, outcome->text, sizeof reason);
  memset(outcome, 0, sizeof *outcome);
  outcome_of_lack(outcome);
  outcome->ranks = (int32_t)sf_case_ranks(c);
  snprintf(outcome->text, sizeof outcome->text, "the worker did not start again: %.400s", reason);
}

/* The framework's sets live as long as this process. Without a worker that describes itself there are no verdicts. */
static void run_framework_job(struct sf_framework **framework, const struct sf_pool_options *options, const struct sf_job *job,
                              struct sf_job_result *result) {
  struct sf_error error = {SF_OK, ""};
  struct sf_worker_report report = {.end = SF_WORKER_ANSWERED};
  memset(result, 0, sizeof *result);
  result->tag = job->tag;
  struct sf_outcome *outcome = &result->outcome;
  if (!options->framework)
    outcome->status =
        sf_error_set(&error, SF_EINPUT, "target.name: \"%s\" is a framework that was not asked for (--target)", job->c.target);
  else if (!*framework)
    outcome->status = sf_framework_create(framework, &report, options->framework, &error);
  if (outcome->status == SF_OK) {
    sf_framework_trial(*framework, &job->c, outcome);
    turn(outcome, job);
  } else {
    snprintf(outcome->text, sizeof outcome->text, "%s", *error.text ? error.text : sf_status_text(outcome->status));
    if (!*framework) excuse_start(options, &job->c, outcome);
  }
  sf_worker_report_clear(&report);
  if (outcome->status != SF_OK || outcome->verdict != SF_VERDICT_FINDING || !job->diagnose) return;
  if (sf_framework_script(*framework, result->script, sizeof result->script, &job->c, outcome, &error) != SF_OK) *result->script = '\0';
}

/* Not a verdict on the code under test, which has not run. */
static void refuse_job(enum sf_status status, const struct sf_job *job, struct sf_job_result *result) {
  memset(result, 0, sizeof *result);
  result->tag = job->tag;
  result->outcome.status = status;
  snprintf(result->outcome.text, sizeof result->outcome.text, "%s before the case ran", sf_status_text(status));
}

_Noreturn void sf_worker_main(int fd, struct sf_worker_page *page, struct sf_said *said, const struct sf_pool_options *options) {
  const struct sf_engine_options engine_options = {.device = options->device,
                                                   .gemm = options->gemm,
                                                   .hash_trace = options->hash_trace,
                                                   .max_memory = options->max_memory,
                                                   .device_memory = options->device_memory,
                                                   .progress = &page->progress,
                                                   .trace_key = &page->trace_key,
                                                   .trace_rank = &page->trace_rank};
  struct sf_engine *engine = NULL;
  struct sf_framework *framework = NULL;
  struct sf_pool *shrinkers = NULL;
  struct sf_job job;
  struct sf_job_result result;
  bool confined = false;
  sf_worker_watch_signals(page);
  while (sf_fd_read(fd, &job, sizeof job)) {
    page->progress.rank = page->trace_rank = -1;
    page->progress.label[0] = '\0';
    if (job.kind == SF_JOB_SHRINK) {
      sf_shrink_job(&shrinkers, options, &job, &result);
    } else if (sf_case_is_framework(&job.c)) {
      run_framework_job(&framework, options, &job, &result);
    } else {
      if (!confined && sf_plugin_target_path(job.c.target)) sf_warden_confine(true), confined = true;
      const enum sf_status status = engine ? SF_OK : sf_engine_create(&engine, &engine_options);
      if (status == SF_OK)
        run_job(engine, said, options, &job, &result);
      else
        refuse_job(status, &job, &result);
    }
    if (getpid() != watched_process) _exit(0); /* forked by a plugin: the result is the other's to tell */
    if (!sf_fd_write(fd, &result, sizeof result)) break;
  }
  sf_pool_destroy(shrinkers);
  sf_framework_destroy(framework);
  _exit(0);
}
