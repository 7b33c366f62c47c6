#include "harness/run/campaign.h"

#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/run/engine.h"
#include "harness/run/ledger.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LEASE_INDICES = 256 };
static const double COMMIT_SECONDS = 0.5, PROGRESS_SECONDS = 0.5;

/* A finding between its run and its verdict row. */
struct pending {
  struct pending *next;
  int64_t index;
  struct sf_case c;
  struct sf_outcome outcome;
};

struct campaign {
  const struct sf_campaign_options *options;
  struct sf_ledger ledger;
  int64_t next, end;        /* leased indices not handed out yet */
  bool out_of_indices;
  struct pending *to_shrink, *shrinking;
  double start, committed, shown;
};

static bool failed(const struct campaign *k) { return k->ledger.status != SF_OK; }

static bool time_is_up(const struct campaign *k) {
  const struct sf_campaign_options *o = k->options;
  return (o->stop && *o->stop) || (o->seconds > 0 && sf_engine_now() - k->start >= o->seconds);
}

/* --- findings -------------------------------------------------------------------------------------------------- */

static int64_t count_key(const struct pending *list, const char *shrink_key) {
  int64_t count = 0;
  for (const struct pending *p = list; p; p = p->next) count += strcmp(p->outcome.shrink_key, shrink_key) == 0;
  return count;
}

static void on_finding(struct campaign *k, const struct sf_job *job, const struct sf_outcome *outcome) {
  const int64_t shrinks = sf_ledger_shrinks(&k->ledger, outcome->shrink_key) + count_key(k->to_shrink, outcome->shrink_key) + count_key(k->shrinking, outcome->shrink_key);
  if (shrinks >= SF_LEDGER_SHRINKS_PER_KEY) {
    sf_ledger_add_unshrunk(&k->ledger, job->tag, &job->c, outcome);
    return;
  }
  struct pending *p = sf_alloc(sizeof *p);
  if (!p) {
    sf_ledger_fail(&k->ledger, SF_ENOMEM, NULL);
    return;
  }
  p->index = job->tag;
  p->c = job->c;
  p->outcome = *outcome;
  struct pending **last = &k->to_shrink;
  while (*last) last = &(*last)->next;
  *last = p;
}

static void on_shrunk(struct campaign *k, const struct sf_job *job, const struct sf_job_result *result) {
  struct pending **at = &k->shrinking;
  while (*at && (*at)->index != job->tag) at = &(*at)->next;
  SF_ASSERT(*at);
  struct pending *p = *at;
  *at = p->next;
  sf_ledger_add_shrunk(&k->ledger, p->index, &p->c, &p->outcome, result);
  sf_free(p);
}

/* --- the pool's client ----------------------------------------------------------------------------------------- */

static bool lease(struct campaign *k) {
  if (k->out_of_indices || time_is_up(k)) return false;
  int64_t count = 0;
  sf_ledger_fail(&k->ledger, sf_store_lease(k->ledger.store, &k->next, &count, LEASE_INDICES, k->options->cases, &k->ledger.error), NULL);
  k->end = k->next + count;
  k->out_of_indices = count == 0;
  return count > 0 && !failed(k);
}

static int32_t next_shrink(struct campaign *k, struct sf_job *job) {
  struct pending *p = k->to_shrink;
  k->to_shrink = p->next;
  p->next = k->shrinking;
  k->shrinking = p;
  memset(job, 0, sizeof *job);
  job->tag = p->index;
  job->kind = SF_JOB_SHRINK;
  job->budget = k->options->shrink_budget;
  job->deadline = k->options->deadline;
  job->c = p->c;
  job->was_hang = p->outcome.cls == SF_CLASS_HANG;
  memcpy(job->shrink_key, p->outcome.shrink_key, sizeof job->shrink_key);
  return 1;
}

static int32_t next_jobs(void *ctx, struct sf_job *jobs, int32_t max) {
  struct campaign *k = ctx;
  if (failed(k)) return 0;
  if (k->to_shrink) return next_shrink(k, &jobs[0]);
  if (time_is_up(k) || (k->next >= k->end && !lease(k))) return 0;
  const int64_t layouts = k->options->layouts;
  int64_t stop = (k->next / layouts + 1) * layouts;
  if (stop > k->end) stop = k->end;
  int32_t count = 0;
  while (count < max && k->next < stop) {
    struct sf_job *job = &jobs[count];
    memset(job, 0, sizeof *job);
    job->tag = k->next++;
    job->kind = SF_JOB_RUN;
    job->deadline = k->options->deadline;
    sf_ledger_fail(&k->ledger, sf_campaign_case(&job->c, k->options, job->tag, &k->ledger.error), NULL);
    if (failed(k)) return 0;
    count++;
  }
  return count;
}

static void job_done(void *ctx, const struct sf_job *job, const struct sf_job_result *result) {
  struct campaign *k = ctx;
  if (failed(k)) return;
  if (job->kind == SF_JOB_SHRINK) {
    on_shrunk(k, job, result);
  } else if (result->outcome.status != SF_OK) {
    char text[400];
    snprintf(text, sizeof text, "case %" PRId64 ": %.300s", job->tag, result->outcome.text);
    sf_ledger_fail(&k->ledger, result->outcome.status, text);
  } else if (result->outcome.verdict == SF_VERDICT_FINDING) {
    on_finding(k, job, &result->outcome);
  } else {
    sf_ledger_add_verdict(&k->ledger, job->tag, &job->c, &result->outcome, "");
  }
}

static void show_progress(struct campaign *k, double now) {
  int64_t queued = 0;
  for (const struct pending *p = k->to_shrink; p; p = p->next) queued++;
  for (const struct pending *p = k->shrinking; p; p = p->next) queued++;
  const double seconds = now - k->start;
  fprintf(stderr, "\r%8.0f s  %" PRId64 " cases  %.1f/s  %" PRId64 " findings  %" PRId64 " being shrunk   ", seconds, k->ledger.cases,
          (double)k->ledger.cases / (seconds > 0 ? seconds : 1), k->ledger.findings, queued);
  fflush(stderr);
}

static bool tick(void *ctx) {
  struct campaign *k = ctx;
  const double now = sf_engine_now();
  if (now - k->committed >= COMMIT_SECONDS) {
    sf_ledger_commit(&k->ledger);
    k->committed = now;
  }
  if (k->options->progress && now - k->shown >= PROGRESS_SECONDS) {
    show_progress(k, now);
    k->shown = now;
  }
  return !failed(k);
}

/* --- life ------------------------------------------------------------------------------------------------------ */

static void free_list(struct pending *list) {
  while (list) {
    struct pending *next = list->next;
    sf_free(list);
    list = next;
  }
}

enum sf_status sf_campaign_run(const struct sf_campaign_options *options, struct sf_campaign_result *result, struct sf_error *error) {
  struct campaign k = {.options = options};
  struct sf_pool *pool = NULL;
  memset(result, 0, sizeof *result);
  k.start = k.committed = sf_engine_now();
  enum sf_status status = sf_ledger_open(&k.ledger, options, error);
  if (status != SF_OK) return status;
  status = sf_pool_create(&pool, &options->pool);
  if (status == SF_OK) {
    const struct sf_pool_client client = {&k, next_jobs, job_done, tick};
    status = sf_pool_run(pool, &client);
    if (options->progress) fputs("\r\033[K", stderr);
  }
  sf_ledger_fail(&k.ledger, status, "workers could not be started");
  sf_ledger_summarise(&k.ledger, result, sf_engine_now() - k.start);
  status = k.ledger.status;
  if (status != SF_OK) sf_error_set(error, status, "%s", *k.ledger.error.text ? k.ledger.error.text : sf_status_text(status));
  sf_pool_destroy(pool);
  sf_ledger_close(&k.ledger);
  free_list(k.to_shrink);
  free_list(k.shrinking);
  return status;
}
