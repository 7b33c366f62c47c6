#include "harness/run/campaign/campaign.h"

#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/base/sinks.h"
#include "harness/run/campaign/ledger.h"
#include "harness/run/process/subject.h"
#include "harness/run/trial/engine.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The campaign starts no new cases while this many findings wait to be booked. */
enum { LEASE_INDICES = 256, PENDING_MAX = 4096 };
/* For operations: how many cases a lease has, and a job, which should end quickly. */
enum { LEASE_OPERATIONS = 1 << 16, RANGE_LEAST = 64, RANGE_MOST = 4096 };
static const double RANGE_SECONDS = 0.05;
/* After the campaign's time, shrinking may go on for this share of that time, and for at most so many seconds. */
static const double TIME_AFTER = 0.5, SECONDS_AFTER_MOST = 600;
/* While there are cases to run, shrinking gets this share of the processes and of their time. */
static const double SHRINK_SHARE = 0.5;
static const double COMMIT_SECONDS = 0.5;
/* After an interrupt, running cases get this long to end. Then they are left for --resume: a case that hangs would use its whole
 * deadline. */
static const double STOP_SECONDS = 1;

/* Findings are handled in the order of their indices, so that the number of processes does not change which of them are shrunk, or under
 * which signature the others are counted. */
enum finding_state { WAITS_FOR_LOWER, TO_SHRINK, SHRINKING, SHRUNK, NOT_TO_SHRINK };

/* A culprit of a case between its run and its row. */
struct pending {
  struct pending *next;
  struct pending *sibling; /* the case's next culprit; the last one's is the first */
  bool is_further;         /* not the case's first */
  bool out_of_time;        /* it would have been shrunk */
  int32_t place;           /* among its siblings, the first 0 */
  bool shrinks_at_once;    /* decided when it was released, and not by what its key was shrunk to */
  enum finding_state state;
  double began;            /* SHRINKING: since when */
  struct key_queue *queue; /* NULL: waits for lower indices */
  int64_t index;
  struct sf_case c;
  struct sf_outcome outcome;
  struct sf_job_result *shrunk; /* SHRUNK */
  struct sf_case *suspects;     /* of its job; NULL: none */
};

/* The undecided findings of one shrink key, by ascending index. */
struct key_queue {
  struct key_queue *next;
  char shrink_key[SF_SHRINK_KEY_TEXT];
  struct pending *first, *last;
  int64_t shrinks; /* its findings that are to be shrunk, are being shrunk, or are shrunk and not booked */
  int64_t shrunk;  /* its findings that this campaign has shrunk */
};

/* Cases that were handed out together, and of which no result is back: the first index and their number. */
struct running {
  struct running *next;
  int64_t index, count;
};

struct campaign {
  const struct sf_campaign_options *options;
  struct sf_ledger ledger;
  int64_t next, end; /* leased indices not handed out yet */
  bool out_of_indices;
  int64_t range;           /* for operations: number of cases of the next job */
  struct running *running; /* by ascending index */
  struct pending *held;    /* findings with a lower index still running, by ascending index */
  struct key_queue *keys;
  int64_t pending_count;                  /* culprits that are not in the books */
  int64_t pending_cases, shrinking_cases; /* the cases of those culprits; the cases whose culprits are being shrunk */
  int32_t shrinks;       /* jobs that shrink now, */
  double shrinks_began;  /* the sum of the times when they began, */
  double shrink_seconds; /* and how long those that are done took */
  double committed;
  double stopped; /* when the interruption was seen; 0 = not */
  bool is_over;   /* all of its time has passed: nothing is shrunk any more */
};

static bool failed(const struct campaign *k) { return k->ledger.status != SF_OK; }

static bool is_stopped(const struct campaign *k) { return sf_campaign_is_stopped(k->options); }
static bool time_is_up(const struct campaign *k) { return sf_ledger_is_over(&k->ledger); }

/* --- findings -------------------------------------------------------------------------------------------------- */

static struct sf_booking booking_of(const struct pending *p) {
  return (struct sf_booking){
      .index = p->index, .c = &p->c, .outcome = &p->outcome, .is_further = p->is_further, .out_of_time = p->out_of_time};
}

static void free_finding(struct pending *p) {
  sf_free(p->shrunk);
  sf_free(p->suspects);
  sf_free(p);
}

static void book(struct campaign *k, struct pending *p) {
  const struct sf_booking booking = booking_of(p);
  if (p->state == SHRUNK)
    sf_ledger_add_shrunk(&k->ledger, &booking, p->shrunk);
  else
    sf_ledger_add_unshrunk(&k->ledger, &booking);
  k->pending_count--;
  k->pending_cases -= !p->is_further;
  free_finding(p);
}

static struct key_queue *queue_of(struct campaign *k, const char *shrink_key) {
  for (struct key_queue *queue = k->keys; queue; queue = queue->next) {
    if (strcmp(queue->shrink_key, shrink_key) == 0) return queue;
  }
  struct key_queue *queue = sf_alloc(sizeof *queue);
  if (!queue) {
    sf_ledger_fail(&k->ledger, SF_ENOMEM, NULL);
    return NULL;
  }
  snprintf(queue->shrink_key, sizeof queue->shrink_key, "%s", shrink_key);
  queue->next = k->keys;
  k->keys = queue;
  return queue;
}

static void append(struct key_queue *queue, struct pending *p) {
  p->next = NULL;
  p->queue = queue;
  if (queue->last)
    queue->last->next = p;
  else
    queue->first = p;
  queue->last = p;
}

/* Whether the finding can be booked: all with a lower index and the same key are booked, and it will not be shrunk (any more). */
static bool is_decided(struct campaign *k, struct pending *p) {
  const struct sf_booking booking = booking_of(p);
  struct key_queue *queue = p->queue;
  if (!queue || queue->first != p) return false;
  if (p->state == NOT_TO_SHRINK && sf_ledger_wants_shrink(&k->ledger, &booking)) {
    p->out_of_time = k->is_over;
    if (!k->is_over) p->state = TO_SHRINK, queue->shrinks++;
  }
  return p->state == SHRUNK || p->state == NOT_TO_SHRINK;
}

static bool all_decided(struct campaign *k, struct pending *p) {
  bool all = is_decided(k, p);
  for (struct pending *other = p->sibling; other != p; other = other->sibling) all &= is_decided(k, other);
  return all;
}

static void settle(struct campaign *k, struct key_queue *queue);

/* A case's rows go into one batch, so that a case that is cut off runs again as a whole. Culprits are booked in the order of their places,
 * since a later one may have the smallest case of an earlier one. */
static void book_case(struct campaign *k, struct pending *first) {
  struct key_queue *queues[1 + SF_FURTHER_MAX];
  int32_t count = 0;
  while (first->place > 0) first = first->sibling;
  for (struct pending *p = first, *next; count == 0 || p != first; p = next) {
    struct key_queue *queue = queues[count++] = p->queue;
    next = p->sibling;
    queue->first = p->next;
    if (!queue->first) queue->last = NULL;
    queue->shrinks -= p->state == SHRUNK;
    const struct sf_booking booking = booking_of(p);
    sf_ledger_claim_folder(&k->ledger, &booking, p->state == SHRUNK ? p->shrunk : NULL);
  }
  for (int32_t i = 0; i < count; i++) {
    struct pending *next = first->sibling;
    book(k, first);
    first = next;
  }
  for (int32_t i = 0; i < count; i++) settle(k, queues[i]);
}

/* Books what is decided in order. */
static void settle(struct campaign *k, struct key_queue *queue) {
  while (queue->first && !failed(k) && all_decided(k, queue->first)) book_case(k, queue->first);
}

static void release(struct campaign *k, struct pending *p) {
  struct key_queue *queue = queue_of(k, p->outcome.shrink_key);
  if (!queue) return;
  const struct sf_booking booking = booking_of(p);
  const int64_t shrinks = sf_ledger_shrinks(&k->ledger, p->outcome.shrink_key) + queue->shrinks;
  p->state = shrinks < sf_ledger_shrinks_at_least(&k->ledger, &booking) && !k->is_over ? TO_SHRINK : NOT_TO_SHRINK;
  queue->shrinks += p->state == TO_SHRINK;
  p->shrinks_at_once = p->state == TO_SHRINK;
  append(queue, p);
  settle(k, queue);
}

/* Releases the findings for which all cases with a lower index are back. */
static void release_held(struct campaign *k) {
  while (k->held && !failed(k) && !(k->running && k->running->index < k->held->index)) {
    struct pending *p = k->held;
    k->held = p->next;
    release(k, p);
  }
}

static void hold(struct campaign *k, struct pending *p) {
  struct pending **at = &k->held;
  while (*at && (*at)->index <= p->index) at = &(*at)->next;
  p->next = *at;
  *at = p;
  k->pending_count++;
  k->pending_cases += !p->is_further;
}

/* Each culprit is shrunk and booked by itself. */
static void on_finding(struct campaign *k, const struct sf_job *job, const struct sf_outcome *outcome) {
  struct pending *first = NULL, *last = NULL;
  for (int32_t i = 0; i <= outcome->further_count; i++) {
    struct pending *p = sf_alloc(sizeof *p);
    if (!p) {
      sf_ledger_fail(&k->ledger, SF_ENOMEM, NULL);
      return;
    }
    p->index = job->tag;
    p->c = job->c;
    p->outcome = sf_outcome_of_culprit(outcome, i);
    p->is_further = i > 0;
    p->place = i;
    if (!first) first = p;
    if (last) last->sibling = p;
    last = p;
    p->sibling = first;
    hold(k, p);
  }
}

static bool sibling_shrinks(const struct pending *p) {
  const struct pending *other = p->sibling;
  while (other != p && other->state != SHRINKING) other = other->sibling;
  return other != p;
}

static void on_shrunk(struct campaign *k, const struct sf_job *job, const struct sf_job_result *result) {
  struct key_queue *queue = queue_of(k, job->shrink_key);
  struct pending *p = queue ? queue->first : NULL;
  while (p && p->index != job->tag) p = p->next;
  SF_ASSERT(p);
  if (!sibling_shrinks(p)) k->shrinking_cases--;
  k->shrinks--;
  k->shrinks_began -= p->began;
  k->shrink_seconds += sf_engine_now() - p->began;
  p->shrunk = sf_alloc(sizeof *p->shrunk);
  if (!p->shrunk) {
    sf_ledger_fail(&k->ledger, SF_ENOMEM, NULL);
    return;
  }
  *p->shrunk = *result;
  p->state = SHRUNK;
  queue->shrunk++;
  settle(k, queue);
}

static void note_running(struct campaign *k, int64_t index, int64_t count) {
  struct running *r = sf_alloc(sizeof *r);
  if (!r) {
    sf_ledger_fail(&k->ledger, SF_ENOMEM, NULL);
    return;
  }
  r->index = index;
  r->count = count;
  struct running **at = &k->running;
  while (*at && (*at)->index < index) at = &(*at)->next;
  r->next = *at;
  *at = r;
}

/* Notes that the first `count` cases from index on are back. */
static void note_back(struct campaign *k, int64_t index, int64_t count) {
  struct running **at = &k->running;
  while (*at && (*at)->index != index) at = &(*at)->next;
  SF_ASSERT(*at);
  struct running *r = *at;
  r->index += count;
  r->count -= count;
  if (r->count > 0) return;
  *at = r->next;
  sf_free(r);
}

/* --- the pool's client ----------------------------------------------------------------------------------------- */

static bool lease(struct campaign *k) {
  if (k->out_of_indices || time_is_up(k)) return false;
  int64_t count = 0;
  const int64_t want = k->options->pool.operations ? LEASE_OPERATIONS : LEASE_INDICES;
  sf_ledger_fail(&k->ledger, sf_store_lease(k->ledger.store, &k->next, &count, want, k->options->cases, &k->ledger.error), NULL);
  k->end = k->next + count;
  k->out_of_indices = count == 0;
  return count > 0 && !failed(k);
}

/* Whether the finding may be shrunk now. Where smallest cases explain other findings, those of its key with a lower index are booked first,
 * and earlier culprits of its case are shrunk first. */
static bool is_ready(const struct pending *p) {
  if (!sf_subject_of(&p->c)->takes_over) return true;
  bool ready = p->queue->first == p;
  for (const struct pending *other = p->sibling; other != p; other = other->sibling)
    ready &= !(other->place < p->place && other->shrinks_at_once && other->state != SHRUNK);
  return ready;
}

/* A key with fewer shrunk findings comes first: its findings are likelier to show another bug. */
static bool comes_before(const struct pending *p, const struct pending *other) {
  if (p->queue->shrunk != other->queue->shrunk) return p->queue->shrunk < other->queue->shrunk;
  return p->index != other->index ? p->index < other->index : p->place < other->place;
}

static struct pending *find_to_shrink(const struct campaign *k) {
  struct pending *best = NULL;
  for (const struct key_queue *queue = k->keys; queue; queue = queue->next) {
    struct pending *p = queue->shrinks ? queue->first : NULL;
    while (p && !(p->state == TO_SHRINK && is_ready(p))) p = p->next;
    if (p && (!best || comes_before(p, best))) best = p;
  }
  return best;
}

/* What may explain the finding: smallest cases of earlier culprits of its case that show it too, and of earlier findings of its key. */
static void add_suspects(struct campaign *k, struct sf_job *job, struct pending *p) {
  int32_t count = 0;
  p->suspects = sf_alloc(SF_JOB_SUSPECTS_MAX * sizeof *p->suspects);
  if (!p->suspects) {
    sf_ledger_fail(&k->ledger, SF_ENOMEM, NULL);
    return;
  }
  for (const struct pending *other = p->sibling; other != p; other = other->sibling) {
    const struct sf_job_result *shrunk = other->place < p->place && other->shrinks_at_once ? other->shrunk : NULL;
    const bool shows = shrunk && shrunk->end == SF_SHRINK_DONE && sf_outcome_shown_has(shrunk->min_outcome.shown, p->outcome.shrink_key);
    if (shows && count < SF_JOB_SUSPECTS_MAX) p->suspects[count++] = shrunk->min;
  }
  count += sf_ledger_smallest(&k->ledger, p->suspects + count, SF_JOB_SUSPECTS_MAX - count, p->outcome.shrink_key);
  job->suspects = p->suspects;
  job->suspect_count = count;
}

/* When the campaign shrinks no more; 0: no limit. */
static double shrink_until(const struct campaign *k) {
  const double seconds = k->options->seconds;
  return seconds > 0 ? k->ledger.news.start + seconds + fmin(TIME_AFTER * seconds, SECONDS_AFTER_MOST) : 0;
}

static int32_t next_shrink(struct campaign *k, struct pending *p, struct sf_job *job) {
  p->state = SHRINKING;
  if (!sibling_shrinks(p)) k->shrinking_cases++;
  p->began = sf_engine_now();
  k->shrinks++;
  k->shrinks_began += p->began;
  sf_campaign_shrink_job(job, k->options, p->index, &p->c, &p->outcome);
  if (k->options->seconds > 0) {
    job->contrast_until = k->ledger.news.start + k->options->seconds;
    job->others_wait = find_to_shrink(k) != NULL;
  }
  job->shrink_until = shrink_until(k);
  if (sf_subject_of(&p->c)->takes_over) add_suspects(k, job, p);
  return 1;
}

static int32_t next_range(struct campaign *k, struct sf_job *job) {
  const int64_t left = k->end - k->next, count = left < k->range ? left : k->range;
  sf_job_of_range(job, &k->options->pool, k->options->seed, k->next, count);
  job->deadline = k->options->deadline;
  note_running(k, k->next, count);
  k->next += count;
  return !failed(k);
}

static bool has_cases(struct campaign *k) {
  return !time_is_up(k) && k->pending_count < PENDING_MAX && (k->next < k->end || lease(k));
}

static bool may_shrink(const struct campaign *k, bool has_more) {
  const double now = sf_engine_now(), processes = SHRINK_SHARE * k->options->pool.processes, until = shrink_until(k);
  const double spent = k->shrink_seconds + k->shrinks * now - k->shrinks_began;
  if (until > 0 && now >= until) return false;
  return !has_more || ((k->shrinks == 0 || k->shrinks < processes) && spent <= processes * (now - k->ledger.news.start));
}

static int32_t next_jobs(void *ctx, struct sf_job *jobs, int32_t max) {
  struct campaign *k = ctx;
  if (failed(k) || is_stopped(k)) return 0;
  const bool has_more = has_cases(k);
  struct pending *to_shrink = may_shrink(k, has_more) ? find_to_shrink(k) : NULL;
  if (to_shrink) return next_shrink(k, to_shrink, &jobs[0]);
  if (!has_more || failed(k)) return 0;
  if (k->options->pool.operations) return next_range(k, &jobs[0]);
  const int64_t layouts = k->options->layouts;
  int64_t stop = (k->next / layouts + 1) * layouts;
  if (stop > k->end) stop = k->end;
  int32_t count = 0;
  while (count < max && k->next < stop) {
    const int64_t index = k->next++;
    sf_ledger_fail(&k->ledger, sf_campaign_job(&jobs[count++], k->options, index, index, &k->ledger.error), NULL);
    note_running(k, index, 1);
    if (failed(k)) return 0;
  }
  return count;
}

static void case_done(struct campaign *k, const struct sf_job *job, const struct sf_outcome *outcome) {
  note_back(k, job->tag, 1);
  if (outcome->status != SF_OK) {
    char text[400];
    snprintf(text, sizeof text, "case %" PRId64 ": %.300s", job->tag, outcome->text);
    sf_ledger_fail(&k->ledger, outcome->status, text);
  } else if (outcome->verdict == SF_VERDICT_FINDING) {
    on_finding(k, job, outcome);
  } else {
    sf_ledger_add_verdict(&k->ledger, job->tag, &job->c, outcome);
  }
}

static void range_done(struct campaign *k, const struct sf_job_result *result) {
  static struct sf_job job; /* the case after those that passed */
  const int64_t passed = result->passes.count;
  if (passed > 0) {
    const double in_time = RANGE_SECONDS * (double)passed / result->passes.seconds;
    k->range = !(in_time < RANGE_MOST) ? RANGE_MOST : in_time < RANGE_LEAST ? RANGE_LEAST : (int64_t)in_time;
    sf_ledger_add_passes(&k->ledger, result->tag, &result->passes);
    note_back(k, result->tag, passed);
  }
  if (!result->has_outcome) return;
  job.tag = result->tag + passed;
  sf_ledger_fail(&k->ledger, sf_campaign_case(&job.c, k->options, job.tag, &k->ledger.error), NULL);
  case_done(k, &job, &result->outcome);
}

static void job_done(void *ctx, const struct sf_job *job, const struct sf_job_result *result) {
  struct campaign *k = ctx;
  if (failed(k)) return;
  if (job->kind == SF_JOB_SHRINK) {
    on_shrunk(k, job, result);
    return;
  }
  if (job->range)
    range_done(k, result);
  else
    case_done(k, job, &result->outcome);
  release_held(k);
}

static struct sf_ledger_open_work open_work(const struct campaign *k) {
  return (struct sf_ledger_open_work){.findings = k->pending_cases, .shrinking = k->shrinking_cases};
}

static bool tick(void *ctx) {
  struct campaign *k = ctx;
  const double now = sf_engine_now();
  const struct sf_ledger_open_work work = open_work(k);
  sf_ledger_tell(&k->ledger, &work);
  if (now - k->committed >= COMMIT_SECONDS) {
    sf_ledger_commit(&k->ledger);
    k->committed = now;
  }
  if (k->options->seconds_all > 0 && now - k->ledger.news.start >= k->options->seconds_all && !is_stopped(k)) return false;
  if (is_stopped(k) && k->stopped == 0) k->stopped = now;
  if (is_stopped(k) && (!k->running || now - k->stopped >= STOP_SECONDS)) return false;
  return !failed(k);
}

/* --- life ------------------------------------------------------------------------------------------------------ */

static void free_pending(struct pending *list) {
  while (list) {
    struct pending *next = list->next;
    free_finding(list);
    list = next;
  }
}

static void free_running(struct campaign *k) {
  while (k->running) {
    struct running *next = k->running->next;
    sf_free(k->running);
    k->running = next;
  }
}

static void free_lists(struct campaign *k) {
  free_pending(k->held);
  while (k->keys) {
    struct key_queue *next = k->keys->next;
    free_pending(k->keys->first);
    sf_free(k->keys);
    k->keys = next;
  }
  free_running(k);
}

/* Books what is left when the campaign's time is over, each finding as it was found. Cases that still ran have no verdict. */
static void book_rest(struct campaign *k) {
  if (is_stopped(k) || failed(k)) return;
  k->is_over = true;
  free_running(k);
  for (struct key_queue *queue = k->keys; queue; queue = queue->next) {
    for (struct pending *p = queue->first; p; p = p->next) {
      if (p->state != TO_SHRINK && p->state != SHRINKING) continue;
      p->state = NOT_TO_SHRINK;
      queue->shrinks--;
    }
  }
  release_held(k);
  for (struct key_queue *queue = k->keys; queue; queue = queue->next) settle(k, queue);
}

static void add_waiting(struct sf_campaign_result *result, const struct pending *list) {
  for (; list; list = list->next)
    if (!list->is_further) sf_campaign_add_waiting(result, list->index);
}

/* After an interrupt, findings that were not booked have no verdict row, so --resume runs their cases again. */
static void count_waiting(const struct campaign *k, struct sf_campaign_result *result) {
  add_waiting(result, k->held);
  for (const struct key_queue *queue = k->keys; queue; queue = queue->next) add_waiting(result, queue->first);
}

enum sf_status sf_campaign_run(const struct sf_campaign_options *options, struct sf_campaign_result *result, struct sf_error *error) {
  struct campaign k = {.options = options, .range = RANGE_LEAST};
  struct sf_pool *pool = NULL;
  memset(result, 0, sizeof *result);
  k.committed = sf_engine_now();
  enum sf_status status = sf_ledger_open(&k.ledger, options, error);
  if (status != SF_OK) return status;
  status = sf_pool_create(&pool, &options->pool);
  if (status == SF_OK) {
    const struct sf_pool_client client = {&k, next_jobs, job_done, tick};
    status = sf_pool_run(pool, &client);
    if (status == SF_OK) book_rest(&k);
    sf_progress_end(&k.ledger.news.progress);
  }
  char text[480];
  sf_pool_failure_text(text, sizeof text, &options->pool, status);
  sf_ledger_fail(&k.ledger, status, text);
  sf_ledger_summarise(&k.ledger, result);
  count_waiting(&k, result);
  status = k.ledger.status;
  if (status != SF_OK) sf_error_set(error, status, "%s", *k.ledger.error.text ? k.ledger.error.text : sf_status_text(status));
  sf_pool_destroy(pool);
  sf_ledger_close(&k.ledger);
  free_lists(&k);
  return status;
}
