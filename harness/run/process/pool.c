#include "harness/run/process/pool.h"

#include "harness/base/alloc.h"
#include "harness/run/opfuzz/op_target.h"
#include "harness/run/process/subject.h"
#include "harness/worker/wait.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TICK_MS = 100 };

/* Attempts to start one process in a row before the pool gives up. */
enum { START_ATTEMPTS = 3 };

/* Processes in a row that a SHRINK job may lose. The code under test does not end them, since it runs in processes of its own. */
enum { SHRINK_ATTEMPTS = 3 };

/* Connections in a row that a job may lose. */
enum { CONNECTIONS_LOST_MAX = 3 };

struct sf_pool {
  struct sf_pool_options options;
  int32_t count;
  struct sf_process *processes;
};

double sf_pool_deadline(const struct sf_pool_options *options, const struct sf_case *c) { return sf_subject_of(c)->seconds(options, c); }

enum sf_status sf_pool_create(struct sf_pool **out, const struct sf_pool_options *options) {
  struct sf_pool *pool = sf_alloc(sizeof *pool);
  if (!pool) return SF_ENOMEM;
  pool->options = *options;
  pool->processes = sf_alloc((size_t)options->processes * sizeof *pool->processes);
  if (!pool->processes) {
    sf_pool_destroy(pool);
    return SF_ENOMEM;
  }
  pool->count = options->processes;
  *out = pool;
  return SF_OK;
}

void sf_pool_destroy(struct sf_pool *pool) {
  if (!pool) return;
  for (int32_t i = 0; i < pool->count; i++) sf_process_ask_to_stop(&pool->processes[i]);
  for (int32_t i = 0; i < pool->count; i++) {
    sf_process_stop(&pool->processes[i]);
    sf_process_unmap(&pool->processes[i]);
  }
  sf_free(pool->processes);
  sf_free(pool);
}

static double deadline_of(const struct sf_pool_options *options, const struct sf_job *job) {
  const double one = job->deadline > 0 && !sf_subject_of(&job->c)->has_own_deadlines ? job->deadline : sf_pool_deadline(options, &job->c);
  /* A shrink job watches its own trials, each of which may stand still for ten times its seconds; this bound only guards against our own
   * faults. */
  return job->kind == SF_JOB_SHRINK ? 10 * (20 + job->budget + job->contrast + 2) * one : one;
}

/* Sends the process its unanswered jobs; starts a fresh one if the process is gone or is of the other kind. A framework's process does both
 * kinds, because its sets take seconds to start. */
static enum sf_status send_jobs(struct sf_pool *pool, int32_t i) {
  struct sf_process *process = &pool->processes[i];
  const bool for_shrinking = process->jobs[process->job_next].kind == SF_JOB_SHRINK;
  const struct sf_subject *subject = sf_subject_of(&process->jobs[process->job_next].c);
  if (process->pid && process->for_shrinking != for_shrinking && !subject->keeps_processes) sf_process_stop(process);
  process->for_shrinking = for_shrinking;
  for (int attempt = 0; attempt < START_ATTEMPTS; attempt++) {
    if (!process->pid) {
      const enum sf_status status = sf_process_start(process, &pool->options, for_shrinking);
      if (status == SF_ENOMEM || status == SF_EUSAGE || status == SF_ECANCELLED) return status;
      if (status != SF_OK) continue;
    }
    sf_process_set_off(process);
    if (sf_process_send(process)) return SF_OK;
    sf_process_stop(process);
  }
  return SF_EIO;
}

static bool busy(const struct sf_process *process) { return process->job_next < process->job_count; }

static enum sf_status feed(struct sf_pool *pool, int32_t i, const struct sf_pool_client *client) {
  struct sf_process *process = &pool->processes[i];
  process->job_next = process->losses = process->lost = 0;
  process->job_count = client->next(client->ctx, process->jobs, SF_JOB_BLOCK_MAX);
  return busy(process) ? send_jobs(pool, i) : SF_OK;
}

/* A job is done, or a piece of a range: then the rest of the range stays unanswered. */
static void finish(struct sf_process *process, const struct sf_pool_client *client, const struct sf_job_result *result) {
  struct sf_job *job = &process->jobs[process->job_next];
  const int64_t told = result->passes.count + result->has_outcome;
  process->answered++;
  if (job->range > told)
    job->tag += told, job->range -= told;
  else
    process->job_next++, process->lost = 0;
  if (busy(process) && process->pid) sf_process_set_off(process);
  client->done(client->ctx, job, result);
}

/* The connection alone was lost: a fresh process gets the jobs, without what has passed of a range. */
static enum sf_status reconnect(struct sf_pool *pool, int32_t i, const struct sf_pool_client *client) {
  struct sf_process *process = &pool->processes[i];
  static struct sf_job_result result;
  memset(&result, 0, sizeof result);
  sf_process_stop(process);
  result.tag = process->jobs[process->job_next].tag;
  result.passes = sf_process_passes(process);
  if (result.passes.count > 0) finish(process, client, &result);
  return busy(process) ? send_jobs(pool, i) : SF_OK;
}

/* The connection broke again and again: that says nothing of the case. */
static enum sf_status give_up(struct sf_pool *pool, int32_t i, const struct sf_pool_client *client) {
  struct sf_process *process = &pool->processes[i];
  const struct sf_job *job = &process->jobs[process->job_next];
  static struct sf_job_result result;
  memset(&result, 0, sizeof result);
  result.tag = job->tag;
  result.has_outcome = true;
  sf_outcome_of_lack(&result.outcome, &job->c);
  result.outcome.lacked = true;
  snprintf(result.outcome.text, sizeof result.outcome.text, "the machine broke the connection to the process of the case %d times",
           process->lost);
  sf_process_stop(process);
  finish(process, client, &result);
  return busy(process) ? send_jobs(pool, i) : SF_OK;
}

/* The process died of its first unanswered job; a fresh process gets the others. The outcome is read before the process is ended, which
 * would move its ranks. */
static enum sf_status bury(struct sf_pool *pool, int32_t i, bool hang, const struct sf_pool_client *client) {
  struct sf_process *process = &pool->processes[i];
  const struct sf_job *job = &process->jobs[process->job_next];
  static struct sf_job_result result;
  memset(&result, 0, sizeof result);
  result.tag = job->tag;
  result.passes = sf_process_passes(process);
  if (job->range && result.passes.count == job->range) { /* it died after its work was done */
    sf_process_stop(process);
    finish(process, client, &result);
    return busy(process) ? send_jobs(pool, i) : SF_OK;
  }
  const bool spent = !hang && (process->answered > 0 || result.passes.count > 0) &&
                     sf_process_is_spent(process); /* earlier cases used it too: a fresh process has all of its time */
  if (spent && result.passes.count > 0) finish(process, client, &result);
  if (spent || (job->kind == SF_JOB_SHRINK && !hang && ++process->losses < SHRINK_ATTEMPTS)) {
    sf_process_stop(process);
    return send_jobs(pool, i);
  }
  result.has_outcome = true;
  sf_process_outcome_of_death(process, &pool->options, hang, &result.outcome);
  sf_process_stop(process);
  result.outcome.seconds = sf_process_seconds(process);
  finish(process, client, &result);
  return busy(process) ? send_jobs(pool, i) : SF_OK;
}

static enum sf_status attend(struct sf_pool *pool, int32_t i, const struct sf_pool_client *client) {
  struct sf_process *process = &pool->processes[i];
  for (;;) {
    const int got = sf_process_receive(process);
    if (got < 0 && sf_process_lost_connection(process))
      return ++process->lost <= CONNECTIONS_LOST_MAX ? reconnect(pool, i, client) : give_up(pool, i, client);
    if (got < 0) return bury(pool, i, false, client);
    if (got == 0) return SF_OK;
    const bool spent = process->launched && sf_outcome_breaks_ranks(&process->result.outcome);
    if (process->launched) sf_outcome_excuse_memory(&process->result.outcome);
    if (spent) sf_process_stop(process);
    finish(process, client, &process->result);
    if (!busy(process)) return feed(pool, i, client);
    if (spent) return send_jobs(pool, i);
  }
}

static enum sf_status feed_idle(struct sf_pool *pool, const struct sf_pool_client *client, bool *any_busy) {
  *any_busy = false;
  for (int32_t i = 0; i < pool->count; i++) {
    if (!busy(&pool->processes[i])) {
      const enum sf_status status = feed(pool, i, client);
      if (status != SF_OK) return status;
    }
    *any_busy |= busy(&pool->processes[i]);
  }
  return SF_OK;
}

static enum sf_status wait_and_attend(struct sf_pool *pool, struct pollfd *fds, const struct sf_pool_client *client) {
  for (int32_t i = 0; i < pool->count; i++) fds[i] = (struct pollfd){busy(&pool->processes[i]) ? pool->processes[i].fd : -1, POLLIN, 0};
  if (sf_wait_moment(fds, pool->count, TICK_MS) < 0) return SF_EIO;
  for (int32_t i = 0; i < pool->count; i++) {
    struct sf_process *process = &pool->processes[i];
    if (!busy(process)) continue;
    enum sf_status status = SF_OK;
    if (fds[i].fd >= 0 && fds[i].revents) status = attend(pool, i, client);
    if (status == SF_OK && busy(process) && sf_process_is_overdue(process, deadline_of(&pool->options, &process->jobs[process->job_next])))
      status = bury(pool, i, true, client);
    if (status != SF_OK) return status;
  }
  return SF_OK;
}

/* Drops the jobs that are under way, but keeps what has passed of their ranges. */
static void drop_jobs(struct sf_pool *pool, const struct sf_pool_client *client) {
  static struct sf_job_result result;
  for (int32_t i = 0; i < pool->count; i++)
    if (busy(&pool->processes[i])) sf_process_ask_to_stop(&pool->processes[i]);
  for (int32_t i = 0; i < pool->count; i++) {
    if (!busy(&pool->processes[i])) continue;
    sf_process_stop(&pool->processes[i]);
    memset(&result, 0, sizeof result);
    result.tag = pool->processes[i].jobs[pool->processes[i].job_next].tag;
    result.passes = sf_process_passes(&pool->processes[i]);
    if (result.passes.count) finish(&pool->processes[i], client, &result);
    pool->processes[i].job_count = pool->processes[i].job_next = 0;
  }
}

enum sf_status sf_pool_run(struct sf_pool *pool, const struct sf_pool_client *client) {
  struct pollfd *fds = sf_alloc((size_t)pool->count * sizeof *fds);
  if (!fds) return SF_ENOMEM;
  enum sf_status status = SF_OK;
  while (status == SF_OK) {
    if (client->tick && !client->tick(client->ctx)) break;
    bool any_busy;
    status = feed_idle(pool, client, &any_busy);
    if (status != SF_OK || !any_busy) break;
    status = wait_and_attend(pool, fds, client);
  }
  drop_jobs(pool, client);
  sf_free(fds);
  return status == SF_ECANCELLED ? SF_OK : status;
}

void sf_pool_failure_text(char *out, size_t out_size, const struct sf_pool_options *options, enum sf_status status) {
  if (status == SF_EUSAGE && options->launcher) {
    snprintf(out, out_size, "a launched set has 1 to %d ranks, not %d", SF_LAUNCH_RANKS_MAX, options->launch_ranks);
  } else if (status == SF_EIO && options->launcher) {
    snprintf(out, out_size, "the launcher did not start %d ranks (SHARDFUZZ_LAUNCHER_OUTPUT=1 shows its output): %.300s",
             options->launch_ranks, options->launcher);
  } else if (status == SF_EIO) { /* a socket or a fork */
    snprintf(out, out_size, "processes could not be started: %s; or %s", sf_errno_text(EMFILE).text, sf_errno_text(EAGAIN).text);
  } else {
    snprintf(out, out_size, "processes could not be started: %s", sf_status_text(status));
  }
}

void sf_job_of_range(struct sf_job *out, const struct sf_pool_options *options, uint64_t seed, int64_t first, int64_t count) {
  memset(out, 0, sizeof *out);
  out->tag = first;
  out->range = count;
  sf_case_init(&out->c);
  out->c.seed = (int64_t)seed;
  snprintf(out->c.target, sizeof out->c.target, "%s", options->operations->name);
  snprintf(out->c.operation, sizeof out->c.operation, "*");
}

/* --- one job --------------------------------------------------------------------------------------------------- */

struct one_job {
  const struct sf_job *job;
  struct sf_job_result *result;
  bool handed_out, done;
};

static int32_t next_of_one(void *ctx, struct sf_job *jobs, int32_t max) {
  struct one_job *one = ctx;
  (void)max;
  if (one->handed_out) return 0;
  one->handed_out = true;
  jobs[0] = *one->job;
  return 1;
}

static void done_of_one(void *ctx, const struct sf_job *job, const struct sf_job_result *result) {
  struct one_job *one = ctx;
  (void)job;
  *one->result = *result;
  one->done = true;
}

enum sf_status sf_pool_run_job(struct sf_pool *pool, const struct sf_job *job, struct sf_job_result *result) {
  struct one_job one = {job, result, false, false};
  const struct sf_pool_client client = {&one, next_of_one, done_of_one, NULL};
  const enum sf_status status = sf_pool_run(pool, &client);
  return status != SF_OK ? status : one.done ? SF_OK : SF_EIO;
}

enum sf_status sf_pool_run_one(const struct sf_pool_options *options, const struct sf_job *job, struct sf_job_result *result) {
  struct sf_pool_options single = *options;
  single.processes = 1;
  struct sf_pool *pool = NULL;
  enum sf_status status = sf_pool_create(&pool, &single);
  if (status != SF_OK) return status;
  status = sf_pool_run_job(pool, job, result);
  sf_pool_destroy(pool);
  return status;
}
