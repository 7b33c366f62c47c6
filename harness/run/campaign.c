#include "harness/run/campaign.h"

#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/run/engine.h"
#include "harness/run/features.h"
#include "harness/run/finding_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LEASE_INDICES = 256, SHRINKS_PER_KEY = 3 };
static const double COMMIT_SECONDS = 0.5, PROGRESS_SECONDS = 0.5;

/* A finding between its run and its verdict row. */
struct pending {
  struct pending *next;
  int64_t index;
  struct sf_case c;
  struct sf_outcome outcome;
};

/* A shrunk signature, to which later findings of the same key are counted. */
struct seen {
  struct seen *next;
  char shrink_key[SF_SHRINK_KEY_TEXT], signature[SF_SIGNATURE_TEXT];
};

struct campaign {
  const struct sf_campaign_options *options;
  struct sf_campaign_result *result;
  struct sf_store *store;
  int64_t next, end;        /* leased indices not handed out yet */
  bool out_of_indices;
  struct pending *to_shrink, *shrinking;
  struct seen *seen;
  double start, committed, shown;
  int64_t findings;
  enum sf_status status;    /* first failure of the harness; ends the campaign */
  struct sf_error *error;
};

static bool failed(const struct campaign *k) { return k->status != SF_OK; }

static void keep_failure(struct campaign *k, enum sf_status status) {
  if (!failed(k)) k->status = status;
}

static bool time_is_up(const struct campaign *k) {
  const struct sf_campaign_options *o = k->options;
  return (o->stop && *o->stop) || (o->seconds > 0 && sf_engine_now() - k->start >= o->seconds);
}

/* --- verdict rows ---------------------------------------------------------------------------------------------- */

static void add_verdict(struct campaign *k, int64_t index, const struct sf_case *c, const struct sf_outcome *outcome, const char *signature) {
  const bool finding = outcome->verdict == SF_VERDICT_FINDING;
  const struct sf_store_verdict row = {
      .index = index,
      .verdict = outcome->verdict,
      .cls = finding ? (int32_t)outcome->cls : -1,
      .shrink_key = finding ? outcome->shrink_key : "",
      .signature = finding ? signature : "",
      .label = outcome->label,
      .module = outcome->module,
      .rank = outcome->rank,
      .ranks = outcome->ranks,
      .layers = (int32_t)c->model.layers,
      .features = sf_features_of(c),
      .checked = outcome->checked,
      .unchecked = outcome->unchecked,
      .seconds = outcome->seconds,
      .flaky = finding && outcome->cls == SF_CLASS_FLAKY,
  };
  keep_failure(k, sf_store_add_verdict(k->store, &row, k->error));
  k->result->cases_run++;
  k->findings += finding;
}

static void note_signature(struct campaign *k, const char *shrink_key, const char *signature) {
  for (const struct seen *s = k->seen; s; s = s->next) {
    if (strcmp(s->signature, signature) == 0) return;
  }
  struct seen *s = sf_alloc(sizeof *s);
  if (!s) {
    keep_failure(k, SF_ENOMEM);
    return;
  }
  snprintf(s->shrink_key, sizeof s->shrink_key, "%s", shrink_key);
  snprintf(s->signature, sizeof s->signature, "%s", signature);
  s->next = k->seen;
  k->seen = s;
}

/* Every axis named after the '@' of the signature is one of the case's. */
static bool axes_within(const char *signature, const struct sf_case *c) {
  char axes[64], wanted[64];
  const char *at = strrchr(signature, '@');
  if (!at) return false;
  sf_outcome_axes_text(axes, sizeof axes, &c->layout);
  snprintf(wanted, sizeof wanted, "%s", at + 1);
  char *rest = NULL;
  for (char *word = strtok_r(wanted, "+", &rest); word; word = strtok_r(NULL, "+", &rest)) {
    if (strcmp(word, "none") == 0) continue;
    bool found = false;
    for (const char *hit = axes; (hit = strstr(hit, word)) != NULL; hit++) {
      const char after = hit[strlen(word)];
      found |= (hit == axes || hit[-1] == '+') && (after == '\0' || after == '+');
    }
    if (!found) return false;
  }
  return true;
}

static const char *counted_signature(const struct campaign *k, const struct sf_case *c, const struct sf_outcome *outcome) {
  for (const struct seen *s = k->seen; s; s = s->next) {
    if (strcmp(s->shrink_key, outcome->shrink_key) == 0 && axes_within(s->signature, c)) return s->signature;
  }
  return outcome->signature;
}

/* --- findings -------------------------------------------------------------------------------------------------- */

static void add_finding(struct campaign *k, int64_t index, const struct sf_case *c, const struct sf_outcome *outcome, const struct sf_case *min,
                        const struct sf_outcome *min_outcome) {
  char directory[SF_PATH_TEXT], min_path[SF_PATH_TEXT + 16];
  char *case_json = NULL, *min_json = NULL, *report = NULL;
  const struct sf_outcome *shown = min ? min_outcome : outcome;
  enum sf_status status = sf_finding_write(directory, sizeof directory, k->options->out_dir, c, outcome, min, min_outcome, k->error);
  if (status == SF_OK) status = sf_case_to_json(&case_json, c);
  if (status == SF_OK && min) status = sf_case_to_json(&min_json, min);
  if (status == SF_OK) {
    snprintf(min_path, sizeof min_path, "%s/%s", directory, min ? "min.json" : "case.json");
    status = sf_finding_report(&report, min ? min : c, shown, min_path);
  }
  if (status == SF_OK) {
    const struct sf_store_finding finding = {
        .signature = shown->signature,
        .shrink_key = outcome->shrink_key,
        .index = index,
        .case_json = case_json,
        .min_json = min_json,
        .report = report,
        .known = sf_known_has(&k->options->known, shown->signature),
    };
    status = sf_store_add_finding(k->store, &finding, k->error);
  }
  keep_failure(k, status);
  note_signature(k, outcome->shrink_key, shown->signature);
  sf_free(case_json);
  sf_free(min_json);
  sf_free(report);
}

static int64_t shrinks_of(struct campaign *k, const char *shrink_key) {
  int64_t count = 0;
  keep_failure(k, sf_store_shrink_count(k->store, &count, shrink_key, k->error));
  for (const struct pending *p = k->to_shrink; p; p = p->next) count += strcmp(p->outcome.shrink_key, shrink_key) == 0;
  for (const struct pending *p = k->shrinking; p; p = p->next) count += strcmp(p->outcome.shrink_key, shrink_key) == 0;
  return count;
}

static void on_finding(struct campaign *k, const struct sf_job *job, const struct sf_outcome *outcome) {
  if (shrinks_of(k, outcome->shrink_key) >= SHRINKS_PER_KEY) {
    const char *signature = counted_signature(k, &job->c, outcome);
    add_verdict(k, job->tag, &job->c, outcome, signature);
    if (signature == outcome->signature) add_finding(k, job->tag, &job->c, outcome, NULL, NULL);
    return;
  }
  struct pending *p = sf_alloc(sizeof *p);
  if (!p) {
    keep_failure(k, SF_ENOMEM);
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
  if (result->outcome.status != SF_OK) {
    keep_failure(k, sf_error_set(k->error, result->outcome.status, "case %" PRId64 ": %s", job->tag, result->outcome.text));
  } else if (result->outcome.cls == SF_CLASS_FLAKY || *result->min_outcome.signature == '\0') {
    /* It did not repeat in a fresh worker: what was seen first is kept, under a class of its own. */
    p->outcome.cls = SF_CLASS_FLAKY;
    snprintf(p->outcome.shrink_key, sizeof p->outcome.shrink_key, "flaky/%.*s", SF_SHRINK_KEY_TEXT - 8, job->shrink_key);
    snprintf(p->outcome.signature, sizeof p->outcome.signature, "flaky/%.*s", SF_SHRINK_KEY_TEXT - 8, job->shrink_key);
    add_verdict(k, p->index, &p->c, &p->outcome, p->outcome.signature);
    add_finding(k, p->index, &p->c, &p->outcome, NULL, NULL);
  } else {
    add_verdict(k, p->index, &p->c, &p->outcome, result->min_outcome.signature);
    add_finding(k, p->index, &p->c, &p->outcome, &result->min, &result->min_outcome);
    keep_failure(k, sf_store_add_shrink(k->store, job->shrink_key, k->error));
  }
  sf_free(p);
}

/* --- the pool's client ----------------------------------------------------------------------------------------- */

static bool lease(struct campaign *k) {
  if (k->out_of_indices || time_is_up(k)) return false;
  int64_t count = 0;
  keep_failure(k, sf_store_lease(k->store, &k->next, &count, LEASE_INDICES, k->options->cases, k->error));
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
    keep_failure(k, sf_campaign_case(&job->c, k->options, job->tag, k->error));
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
    keep_failure(k, sf_error_set(k->error, result->outcome.status, "case %" PRId64 ": %s", job->tag, result->outcome.text));
  } else if (result->outcome.verdict == SF_VERDICT_FINDING) {
    on_finding(k, job, &result->outcome);
  } else {
    add_verdict(k, job->tag, &job->c, &result->outcome, "");
  }
}

static void show_progress(struct campaign *k, double now) {
  int64_t queued = 0;
  for (const struct pending *p = k->to_shrink; p; p = p->next) queued++;
  for (const struct pending *p = k->shrinking; p; p = p->next) queued++;
  const double seconds = now - k->start;
  fprintf(stderr, "\r%8.0f s  %" PRId64 " cases  %.1f/s  %" PRId64 " findings  %" PRId64 " being shrunk   ", seconds, k->result->cases_run,
          (double)k->result->cases_run / (seconds > 0 ? seconds : 1), k->findings, queued);
  fflush(stderr);
}

static bool tick(void *ctx) {
  struct campaign *k = ctx;
  const double now = sf_engine_now();
  if (now - k->committed >= COMMIT_SECONDS) {
    keep_failure(k, sf_store_commit(k->store, k->error));
    k->committed = now;
  }
  if (k->options->progress && now - k->shown >= PROGRESS_SECONDS) {
    show_progress(k, now);
    k->shown = now;
  }
  return !failed(k);
}

/* --- life ------------------------------------------------------------------------------------------------------ */

static enum sf_status remember_finding(void *ctx, const struct sf_store_finding *finding) {
  note_signature(ctx, finding->shrink_key, finding->signature);
  return SF_OK;
}

static enum sf_status open_store(struct campaign *k) {
  const char *names[SF_STORE_FEATURES_MAX];
  char *text = NULL;
  enum sf_status status = sf_campaign_text(&text, k->options);
  if (status != SF_OK) return sf_error_set(k->error, status, "%s", sf_status_text(status));
  for (int i = 0; i < sf_feature_count; i++) names[i] = sf_features[i].name;
  const struct sf_store_options options = {
      .path = k->options->store_path,
      .mode = k->options->resume ? SF_STORE_RESUME : SF_STORE_CREATE,
      .campaign = text,
      .feature_names = names,
      .feature_count = sf_feature_count,
  };
  status = sf_store_open(&k->store, &options, k->error);
  sf_free(text);
  return status != SF_OK ? status : sf_store_each_finding(k->store, remember_finding, k, k->error);
}

static void free_lists(struct campaign *k) {
  struct pending *lists[] = {k->to_shrink, k->shrinking};
  for (int i = 0; i < 2; i++) {
    while (lists[i]) {
      struct pending *next = lists[i]->next;
      sf_free(lists[i]);
      lists[i] = next;
    }
  }
  while (k->seen) {
    struct seen *next = k->seen->next;
    sf_free(k->seen);
    k->seen = next;
  }
}

static enum sf_status summarise(struct campaign *k) {
  struct sf_campaign_result *r = k->result;
  const enum sf_status status = sf_store_summarise(k->store, &r->summary, k->error);
  if (status != SF_OK) return status;
  r->crashed = r->summary.by_class[SF_CLASS_CRASH];
  r->hung = r->summary.by_class[SF_CLASS_HANG];
  r->new_signatures = r->summary.signatures - r->summary.signatures_known;
  r->seconds = sf_engine_now() - k->start;
  return SF_OK;
}

enum sf_status sf_campaign_run(const struct sf_campaign_options *options, struct sf_campaign_result *result, struct sf_error *error) {
  struct sf_error detail = {SF_OK, ""};
  struct campaign k = {.options = options, .result = result, .error = &detail};
  struct sf_pool *pool = NULL;
  memset(result, 0, sizeof *result);
  k.start = k.committed = sf_engine_now();
  enum sf_status status = sf_make_directories(options->out_dir, &detail);
  if (status == SF_OK) status = open_store(&k);
  if (status == SF_OK) status = sf_pool_create(&pool, &options->pool);
  if (status == SF_OK) {
    const struct sf_pool_client client = {&k, next_jobs, job_done, tick};
    status = sf_pool_run(pool, &client);
    if (failed(&k)) status = k.status;
    if (status == SF_OK) status = sf_store_commit(k.store, &detail);
    if (options->progress) fputs("\r\033[K", stderr);
  }
  if (status == SF_OK) status = summarise(&k);
  sf_pool_destroy(pool);
  if (k.store) sf_store_close(k.store);
  free_lists(&k);
  if (status != SF_OK) return sf_error_set(error, status, "%s", *detail.text ? detail.text : sf_status_text(status));
  return SF_OK;
}
