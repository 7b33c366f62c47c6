#include "harness/run/process/process.h"

#include "harness/base/alloc.h"
#include "harness/base/system/system_memory.h"
#include "harness/base/system/walled.h"
#include "harness/run/framework/framework.h"
#include "harness/run/opfuzz/op_memory.h"
#include "harness/run/process/subject.h"
#include "harness/run/process/world_end.h"
#include "harness/worker/confine.h"
#include "harness/worker/starved.h"
#include "harness/worker/wait.h"
#include "targets/plugin/plugin_target.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Time for the watchers of rank sets and of processes that a process has started: they end with it. */
enum { GRACE_MS = 4000 };

/* --- parent's side --------------------------------------------------------------------------------------------- */

static enum sf_status make_page(struct sf_process *process) {
  if (process->page_count > 1) sf_process_unmap(process);
  if (!process->page) {
    void *page = mmap(NULL, sizeof *process->page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return SF_ENOMEM;
    process->page = page;
    process->page_count = 1;
  }
  memset(process->page, 0, sizeof *process->page);
  process->page->progress.rank = process->page->trace_rank = -1;
  return SF_OK;
}

pid_t sf_process_fork(struct sf_process *process, bool has_watchers, int *fd) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return -1;
  const pid_t pid = sf_watcher_fork(&process->watcher, SF_WARD_CODE, has_watchers ? GRACE_MS : 0, -1);
  close(pair[pid == 0 ? 0 : 1]);
  if (pid == 0) {
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_DFL);
    *fd = pair[1];
    return 0;
  }
  if (pid < 0)
    close(pair[0]);
  else
    process->pid = pid, process->fd = pair[0];
  return pid;
}

enum sf_status sf_process_start(struct sf_process *process, const struct sf_pool_options *options, bool for_shrinking) {
  int fd;
  process->received = 0;
  process->answered = 0;
  process->kills = sf_memory_kills();
  process->for_shrinking = for_shrinking;
  if (options->launcher && !for_shrinking) return sf_launch_start(process, options);
  const enum sf_status status = make_page(process);
  if (status != SF_OK) return status;
  if (process->said.memory <= 0) (void)!sf_said_open(&process->said); /* if it fails, the process's output is not quoted */
  const pid_t pid = sf_process_fork(process, for_shrinking || options->framework, &fd);
  if (pid < 0) return SF_EIO;
  if (pid == 0) sf_process_main(fd, process->page, &process->said, options);
  process->page->pid = pid;
  return SF_OK;
}

void sf_process_unmap(struct sf_process *process) {
  if (process->page) munmap(process->page, (size_t)process->page_count * sizeof *process->page);
  process->page = NULL;
  process->page_count = 0;
  if (process->said.memory > 0) sf_said_close(&process->said);
}

void sf_process_ask_to_stop(const struct sf_process *process) { sf_watcher_ask(&process->watcher); }

int sf_process_stop(struct sf_process *process) {
  if (process->fd > 0) close(process->fd);
  process->fd = 0;
  const int how = sf_watcher_end(&process->watcher);
  process->pid = 0;
  process->launched = false;
  return how;
}

bool sf_process_send(struct sf_process *process) {
  const size_t size_bytes = (size_t)(process->job_count - process->job_next) * sizeof *process->jobs;
  if (!sf_fd_write(process->fd, &process->jobs[process->job_next], size_bytes)) return false;
  const struct sf_job *last = &process->jobs[process->job_count - 1]; /* one that shrinks comes alone */
  return last->suspect_count == 0 || sf_fd_write(process->fd, last->suspects, (size_t)last->suspect_count * sizeof *last->suspects);
}

bool sf_process_lost_connection(const struct sf_process *process) {
  enum { LOOKS = 20, LOOK_MS = 10 };
  const struct sf_process_page *page = process->page;
  for (int look = 0; look < LOOKS; look++) {
    struct pollfd ended = {process->watcher.told, POLLIN, 0};
    const bool has_ended = poll(&ended, 1, LOOK_MS) > 0;
    if (page->leaving != SF_LEAVING_NOT) return page->leaving == SF_LEAVING_UNREACHED;
    if (has_ended || page->signal) return false;
  }
  return true;
}

/* Processor seconds that the process has used; infinite where other processes do its work, so that its own time says nothing. */
static double cpu_seconds(const struct sf_process *process) {
  clockid_t clock;
  struct timespec used;
  if (process->for_shrinking || clock_getcpuclockid(process->pid, &clock) != 0 || clock_gettime(clock, &used) != 0) return INFINITY;
  return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

/* Points pages[i] to the page of the case's rank i; returns their number. */
static int32_t pages_of_case(const struct sf_process_page **pages, const struct sf_process *process) {
  const int64_t ranks = sf_case_ranks(&process->jobs[process->job_next].c);
  const int32_t count = ranks < process->page_count ? (int32_t)ranks : process->page_count;
  for (int32_t i = 0; i < count; i++) pages[i] = &process->page[i];
  return count;
}

/* The longest time that one rank of the case, for which the others may be waiting, has waited for a processor since the job began. */
static double starved_seconds(const struct sf_process *process) {
  static const struct sf_process_page *pages[SF_LAUNCH_RANKS_MAX];
  const int32_t count = pages_of_case(pages, process);
  double longest = 0;
  for (int32_t i = 0; i < count; i++)
    if (sf_world_waits_for(pages, count, i)) longest = fmax(longest, sf_starved_seconds(pages[i]->pid) - pages[i]->starved);
  return longest;
}

/* Whether the deadline counts the time in which its processes could have run; else it counts their processor time. */
static bool counts_starving(const struct sf_process *process) {
  const struct sf_job *job = &process->jobs[process->job_next];
  return process->launched || (job->kind == SF_JOB_RUN && sf_subject_of(&job->c)->counts_starving);
}

void sf_process_set_off(struct sf_process *process) {
  process->since = sf_watch_seconds(&process->watch);
  process->cpu_since = cpu_seconds(process);
  process->still = (struct sf_world_still){0};
  process->seen = 0;
  for (int32_t i = 0; counts_starving(process) && i < process->page_count; i++)
    process->page[i].starved = sf_starved_seconds(process->page[i].pid);
}

double sf_process_seconds(struct sf_process *process) { return sf_watch_seconds(&process->watch) - process->since; }

/* Whether all ranks of a launched set wait for each other. */
static bool wait_for_each_other(struct sf_process *process, double seconds) {
  static const struct sf_process_page *pages[SF_LAUNCH_RANKS_MAX];
  const int32_t count = pages_of_case(pages, process);
  return sf_world_stands(&process->still, pages, count, sf_watch_seconds(&process->watch), seconds);
}

bool sf_process_is_overdue(struct sf_process *process, double seconds) {
  const int64_t seen = sf_process_passes(process).count;
  if (seen != process->seen) sf_process_set_off(process), process->seen = seen;
  const double passed = sf_process_seconds(process);
  if (passed <= seconds) return false;
  if (passed > SF_LIMIT_FACTOR * seconds || (process->launched && wait_for_each_other(process, seconds))) return true;
  return counts_starving(process) ? passed - starved_seconds(process) > seconds : !(cpu_seconds(process) - process->cpu_since <= seconds);
}

/* The number of bytes of a result that are sent. */
static size_t result_bytes(const struct sf_job_result *result) {
  return !result->of_range     ? sizeof *result
         : result->has_outcome ? offsetof(struct sf_job_result, min)
                               : offsetof(struct sf_job_result, outcome);
}

bool sf_process_answer(int fd, const struct sf_job_result *result) { return sf_fd_write(fd, result, result_bytes(result)); }

int sf_process_receive(struct sf_process *process) {
  static const size_t HEAD = offsetof(struct sf_job_result, outcome);
  char *at = (char *)&process->result + process->received;
  const size_t wanted = process->received < HEAD ? HEAD : result_bytes(&process->result);
  const ssize_t done = recv(process->fd, at, wanted - process->received, MSG_DONTWAIT);
  if (done < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
  if (done == 0) return -1;
  process->received += (size_t)done;
  if (process->received < HEAD || process->received < result_bytes(&process->result)) return 0;
  process->received = 0;
  return 1;
}

static void place_text(char *out, size_t out_size, const struct sf_process_page *page, const struct sf_case *c) {
  struct sf_catalog *catalog = NULL;
  char id[160];
  *out = '\0';
  if (page->trace_rank < 0 || sf_catalog_create(&catalog, c) != SF_OK) return;
  sf_trace_id_text(id, sizeof id, catalog, sf_trace_id_from_key(page->trace_key));
  snprintf(out, out_size, "; last trace point %s on rank %d", id, page->trace_rank);
  sf_catalog_destroy(catalog);
}

bool sf_process_is_spent(const struct sf_process *process) {
  for (int32_t i = 0; i < process->page_count; i++)
    if (process->page[i].signal == SIGXCPU) return true;
  return false;
}

void sf_outcome_of_lack(struct sf_outcome *outcome, const struct sf_case *c) {
  memset(outcome, 0, sizeof *outcome);
  outcome->verdict = SF_VERDICT_INCONCLUSIVE;
  outcome->kind = outcome->module_class = outcome->rank = -1;
  outcome->row = -1;
  outcome->ranks = (int32_t)sf_case_ranks(c);
}

bool sf_process_lacked(const struct sf_process *process, const char *where, struct sf_outcome *outcome) {
  bool caught = false;
  for (int32_t i = 0; i < process->page_count; i++) caught |= process->page[i].signal != 0;
  const bool memory = !caught && sf_memory_kills() > process->kills;
  if (!memory && !sf_process_is_spent(process)) return false;
  sf_outcome_of_lack(outcome, &process->jobs[process->job_next].c);
  outcome->lacked = memory;
  if (memory)
    snprintf(outcome->text, sizeof outcome->text, "out of memory: the system ended the process%s (fewer --jobs, or --max-memory)", where);
  else
    snprintf(outcome->text, sizeof outcome->text, "the process used up its processor time (ulimit -t)%s: raise the limit", where);
  return true;
}

struct sf_passes sf_process_passes(const struct sf_process *process) {
  const struct sf_job *job = &process->jobs[process->job_next];
  /* Else the process was never started, has not begun it, or ended in between. */
  const bool has = job->range && process->page && process->page->range_first == job->tag;
  return has ? process->page->passes : (struct sf_passes){0};
}

void sf_ranks_outcome_of_death(struct sf_process *process, const struct sf_pool_options *options, bool hang, struct sf_outcome *outcome) {
  static const struct sf_process_page *pages[SF_LAUNCH_RANKS_MAX];
  const struct sf_case *c = &process->jobs[process->job_next].c;
  const int32_t count = pages_of_case(pages, process);
  struct sf_world_end end;
  char place[240], told[240], where[sizeof end.label + sizeof place + 16], said[160] = "", text[640];
  (void)options;
  sf_world_end_find(&end, pages, count, hang);
  sf_world_end_text(told, sizeof told, &end);
  if (end.is_own) {
    sf_outcome_of_lack(outcome, c);
    snprintf(outcome->text, sizeof outcome->text, "%s", told);
    return;
  }
  place_text(place, sizeof place, end.page, c);
  snprintf(where, sizeof where, " after '%s'%s", end.label, place);
  if (!hang && sf_process_lacked(process, where, outcome)) return;
  if (process->said.memory > 0) sf_said_last(&process->said, said, sizeof said);
  if (end.cls != SF_CLASS_CRASH || *end.page->fault) *said = '\0';
  snprintf(text, sizeof text, "%s%s%s%s", told, *said ? ", having said: " : "", said, place);
  sf_outcome_from_failure(outcome, c, end.cls, end.manner, end.rank, end.label, text);
}

void sf_process_outcome_of_death(struct sf_process *process, const struct sf_pool_options *options, bool hang, struct sf_outcome *outcome) {
  const struct sf_case *c = &process->jobs[process->job_next].c;
  memset(outcome, 0, sizeof *outcome);
  outcome->ranks = (int32_t)sf_case_ranks(c);
  sf_subject_of(c)->outcome_of_death(process, options, hang, outcome);
}

/* --- child's side ---------------------------------------------------------------------------------------------- */

/* State of this process, written once before the handlers are installed. */
static struct sf_process_page *watched_page;
static pid_t watched_process;
static const struct sf_op_memory *watched_operands;

void sf_process_watch_operands(const struct sf_op_memory *memory) { watched_operands = memory; }

static void note_operand(struct sf_process_page *page, const siginfo_t *info, const void *context) {
  char where[sizeof page->fault - 8];
  const enum sf_access access = sf_walled_access(context);
  page->operand = sf_op_memory_where(where, sizeof where, watched_operands, info->si_addr, access == SF_ACCESS_WRITE);
  if (page->operand < 0) return;
  snprintf(page->fault, sizeof page->fault, "%s %s", sf_access_name(access), where);
  if (access == SF_ACCESS_WRITE) page->manner = SF_MANNER_WRITE;
}

/* Cuts the call off a label: "mlp.linear_fc2.fwd" is left of the label of one of its calls. */
static void cut_call(char *label) {
  char *dot = strrchr(label, '.');
  for (int op = 0; dot && op < SF_COMM_OP_COUNT; op++)
    if (strcmp(dot + 1, sf_comm_op_name((enum sf_comm_op)op)) == 0) {
      *dot = '\0';
      return;
    }
}

/* A fault that is found when a plugin returns is booked under the plugin's name, not under the call that it made last. The same bug gets
 * the same name when it faults at once. */
void sf_process_note_signal(struct sf_process_page *page, const siginfo_t *info, const void *context) {
  page->fault[0] = '\0';
  page->manner = SF_MANNER_DIED;
  if (watched_operands && (info->si_signo == SIGSEGV || info->si_signo == SIGBUS))
    note_operand(page, info, context);
  else if (sf_walled_fault(page->fault, sizeof page->fault, info, context)) {
    const enum sf_access access = sf_walled_access(context);
    if (access != SF_ACCESS_UNKNOWN) page->manner = access == SF_ACCESS_WRITE ? SF_MANNER_WRITE : SF_MANNER_READ;
    if (page->progress.in_call != SF_COMM_INSIDE) cut_call(page->progress.label);
  }
  page->signal = info->si_signo;
}

static void on_fatal_signal(int number, siginfo_t *info, void *context) {
  if (getpid() == watched_process) sf_process_note_signal(watched_page, info, context); /* not a plugin's child */
  raise(number); /* SA_RESETHAND: the default action ends the process */
}

void sf_process_catch_fatal(void (*handler)(int, siginfo_t *, void *)) {
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

void sf_process_watch_signals(struct sf_process_page *page) {
  watched_page = page;
  watched_process = getpid();
  sf_process_catch_fatal(on_fatal_signal);
}

void sf_outcome_turn_to_wanted(struct sf_outcome *outcome, const struct sf_job *job) {
  if (*job->shrink_key)
    sf_outcome_turn_to(outcome, job->shrink_key);
  else
    sf_outcome_turn_to_expected(outcome, &job->c.expect);
}

_Noreturn void sf_process_main(int fd, struct sf_process_page *page, struct sf_said *said, const struct sf_pool_options *options) {
  struct sf_workbench bench = {.options = options, .page = page, .said = said, .fd = fd};
  static struct sf_job job;
  static struct sf_case suspects[SF_JOB_SUSPECTS_MAX];
  static struct sf_job_result result;
  bool confined = false;
  sf_process_watch_signals(page);
  while (sf_fd_read(fd, &job, sizeof job)) {
    job.suspects = suspects;
    if (job.suspect_count > 0 && !sf_fd_read(fd, suspects, (size_t)job.suspect_count * sizeof *suspects)) break;
    page->progress.rank = page->trace_rank = -1;
    page->progress.label[0] = '\0';
    memset(&result, 0, sizeof result);
    result.tag = job.tag;
    if (job.kind == SF_JOB_SHRINK) {
      if (options->framework && options->framework->zygote) sf_framework_rest(bench.framework); /* the shrinker has sets of its own */
      sf_shrink_job(&bench.shrinkers, options, &job, &result);
    } else {
      if (!confined && sf_plugin_target_path(job.c.target)) sf_confine(true), confined = true;
      sf_subject_of(&job.c)->run(&bench, &job, &result);
    }
    if (getpid() != watched_process) _exit(0); /* a plugin forked this process; the other one sends the result */
    if (!sf_process_answer(fd, &result)) break;
  }
  page->leaving = SF_LEAVING_UNREACHED;
  sf_pool_destroy(bench.shrinkers);
  sf_framework_destroy(bench.framework);
  _exit(0);
}
