#include "harness/run/campaign/mpi_campaign.h"

#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/base/sinks.h"
#include "harness/run/campaign/finding_files.h"
#include "harness/run/campaign/ledger.h"
#include "harness/run/process/process.h"
#include "harness/run/process/rank_page.h"
#include "harness/run/trial/chunk_log.h"
#include "harness/run/trial/engine.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { WAVE_INDICES = 64, HINT_TEXT = 1200, CONFIRM_ATTEMPTS = 3 };
static const double WAVE_SECONDS = 0.2;

enum order_kind { ORDER_WAVE, ORDER_CASE, ORDER_STOP };
struct order {
  int32_t kind;
  int64_t first, count;                /* WAVE: case indices */
  int64_t index;                       /* CASE: index of the case that is being shrunk, */
  struct sf_outcome found;             /* its outcome, */
  char shrink_key[SF_SHRINK_KEY_TEXT]; /* the culprit to look for, */
  struct sf_case c;                    /* and the case to run on the ranks from 0 on */
};

struct placed {
  struct sf_case c;
  int32_t first, ranks;
};

struct mpi_campaign {
  const struct sf_campaign_options *options;
  struct sf_mpi *mpi;
  struct sf_engine *engine;
  struct sf_rank_watch *watch;
  struct placed plan[WAVE_INDICES];
  struct sf_outcome outcomes[WAVE_INDICES];
  struct sf_ledger ledger;     /* rank 0 */
  struct sf_chunk_log *record; /* rank 0: not NULL while a case runs for its diagnosis */
  struct sf_campaign_result *result;
  int64_t wave; /* rank 0: how many indices the next wave takes */
  char hint[HINT_TEXT];
};

/* --- every rank ------------------------------------------------------------------------------------------------ */

/* A failure of the harness on one rank. It ends the job, because the others would wait for this rank. */
static _Noreturn void end_job(struct mpi_campaign *k, enum sf_status status, const char *text) {
  sf_print(stderr, "shardfuzz: rank %d: %s\n", sf_mpi_rank(k->mpi), text && *text ? text : sf_status_text(status));
  sf_mpi_abort(k->mpi, 3);
}

/* A failure that every rank sees alike: rank 0 reports it and ends the job, and the others wait for that. */
static _Noreturn void end_job_alike(struct mpi_campaign *k, enum sf_status status, const char *text) {
  if (sf_mpi_rank(k->mpi) != 0) sf_mpi_control_barrier(k->mpi);
  end_job(k, status, text);
}

/* Runs one case on this rank if it takes part. order: NULL, or the order to run a case that is being shrunk. */
static void run_here(struct mpi_campaign *k, int64_t index, const struct order *order, const struct placed *at,
                     struct sf_outcome *outcome) {
  const int32_t rank = sf_mpi_rank(k->mpi);
  memset(outcome, 0, sizeof *outcome);
  if (rank < at->first || rank >= at->first + at->ranks) return;
  const struct sf_rank_trial trial = {.index = index,
                                      .first = at->first,
                                      .count = at->ranks,
                                      .seconds =
                                          k->options->deadline > 0 ? k->options->deadline : sf_pool_deadline(&k->options->pool, &at->c),
                                      .found = order ? &order->found : NULL};
  sf_engine_set_ranks(k->engine, at->first);
  const enum sf_status status = sf_rank_watch_begin(k->watch, &trial);
  if (status != SF_OK) end_job(k, status, "MPI could not bring the ranks of a case together");
  sf_engine_run(k->engine, &at->c, k->record, outcome);
  if (order) sf_outcome_turn_to(outcome, order->shrink_key);
  if (k->record) sf_engine_diagnose(k->engine, &at->c, k->record, outcome);
  const bool broken = sf_outcome_breaks_ranks(outcome);
  sf_outcome_excuse_memory(outcome);
  if (outcome->status != SF_OK && broken) end_job(k, outcome->status, outcome->text);
  if (broken) sf_rank_watch_fail(k->watch, outcome);
  sf_rank_watch_end(k->watch);
}

/* Places cases side by side as long as ranks are free, then begins the next row. All ranks make the same plan. */
static enum sf_status make_plan(struct mpi_campaign *k, const struct order *order, struct sf_error *error) {
  const int32_t world = sf_mpi_world(k->mpi);
  int32_t next = 0;
  for (int64_t i = 0; i < order->count; i++) {
    struct placed *at = &k->plan[i];
    const enum sf_status status = sf_campaign_case(&at->c, k->options, order->first + i, error);
    if (status != SF_OK) return status;
    at->ranks = (int32_t)sf_case_ranks(&at->c);
    SF_ASSERT_LE(at->ranks, world);
    if (next + at->ranks > world) next = 0;
    at->first = next;
    next += at->ranks;
  }
  return SF_OK;
}

static enum sf_status run_wave(struct mpi_campaign *k, const struct order *order, struct sf_error *error) {
  const int32_t rank = sf_mpi_rank(k->mpi);
  enum sf_status status = make_plan(k, order, error);
  if (status != SF_OK) end_job_alike(k, status, error->text);
  for (int64_t i = 0; status == SF_OK && i < order->count; i++) run_here(k, order->first + i, NULL, &k->plan[i], &k->outcomes[i]);
  for (int64_t i = 0; status == SF_OK && i < order->count; i++) {
    const int32_t judge = k->plan[i].first;
    if (judge == 0) continue;
    if (rank == judge) status = sf_mpi_send_bytes(k->mpi, 0, &k->outcomes[i], sizeof k->outcomes[i]);
    if (rank != 0) continue;
    void *data = NULL;
    size_t size_bytes = 0;
    status = sf_mpi_recv_bytes(k->mpi, judge, &data, &size_bytes);
    if (status == SF_OK) {
      SF_ASSERT_EQ(size_bytes, sizeof k->outcomes[i]);
      memcpy(&k->outcomes[i], data, size_bytes);
      sf_free(data);
    }
  }
  return status;
}

static enum sf_status share_order(struct mpi_campaign *k, struct order *order) {
  void *data = order;
  size_t size_bytes = sizeof *order;
  const bool root = sf_mpi_rank(k->mpi) == 0;
  if (!root) data = NULL;
  const enum sf_status status = sf_mpi_bcast_bytes(k->mpi, 0, &data, &size_bytes);
  if (status != SF_OK || root) return status;
  SF_ASSERT_EQ(size_bytes, sizeof *order);
  memcpy(order, data, sizeof *order);
  sf_free(data);
  return SF_OK;
}

static enum sf_status follow_orders(struct mpi_campaign *k, struct sf_error *error) {
  static struct order order;
  struct sf_outcome outcome;
  for (;;) {
    enum sf_status status = share_order(k, &order);
    if (status != SF_OK || order.kind == ORDER_STOP) return status;
    if (order.kind == ORDER_WAVE) {
      status = run_wave(k, &order, error);
      if (status != SF_OK) return status;
    } else {
      const struct placed at = {order.c, 0, (int32_t)sf_case_ranks(&order.c)};
      run_here(k, order.index, &order, &at, &outcome);
    }
  }
}

/* --- rank 0 ---------------------------------------------------------------------------------------------------- */

static bool is_stopped(const struct mpi_campaign *k) { return sf_campaign_is_stopped(k->options); }

struct mpi_shrink {
  struct mpi_campaign *k;
  int64_t index;
  const struct sf_outcome *found;
  const char *shrink_key;       /* of the culprit that is shrunk */
  struct sf_outcome seen, last; /* outcome of the last run, and of the last run that failed in the same way */
};

/* After an interrupt it runs nothing more; the result of the shrinking is not used then. */
static bool still_fails(void *ctx, const struct sf_case *c) {
  static struct order order;
  struct mpi_shrink *s = ctx;
  memset(&s->seen, 0, sizeof s->seen);
  s->seen.status = SF_EIO;
  sf_ledger_tell(&s->k->ledger, &(struct sf_ledger_open_work){.findings = 1, .shrinking = 1});
  if (is_stopped(s->k)) return false;
  order = (struct order){.kind = ORDER_CASE, .index = s->index, .found = *s->found, .c = *c};
  snprintf(order.shrink_key, sizeof order.shrink_key, "%s", s->shrink_key);
  if (share_order(s->k, &order) != SF_OK) return false;
  const struct placed at = {*c, 0, (int32_t)sf_case_ranks(c)};
  run_here(s->k, s->index, &order, &at, &s->seen);
  if (s->seen.status != SF_OK || s->seen.verdict != SF_VERDICT_FINDING || strcmp(s->seen.shrink_key, s->shrink_key) != 0) return false;
  s->last = s->seen;
  return true;
}

/* Runs the case again, several times if need be: a crash ends the job, but memory may be short for a moment. */
static bool confirm(struct mpi_shrink *s, const struct sf_case *c, struct sf_job_result *result) {
  for (int attempt = 0; attempt < CONFIRM_ATTEMPTS; attempt++) {
    const bool same = still_fails(s, c);
    result->outcome = s->seen;
    result->end = same ? SF_SHRINK_DONE : sf_outcome_ran_to_its_end(&s->seen) ? SF_SHRINK_FLAKY : SF_SHRINK_UNCONFIRMED;
    if (s->seen.status != SF_OK || result->end != SF_SHRINK_UNCONFIRMED) return same;
  }
  return false;
}

/* Runs the shrunk case once more, keeps its trace on this rank, and diagnoses it. A failure here changes no verdict. */
static void diagnose(struct mpi_shrink *s, struct sf_job_result *result) {
  struct sf_chunk_log log = {0};
  s->k->record = &log;
  if (still_fails(s, &result->min)) result->min_outcome.diagnosis = s->last.diagnosis;
  s->k->record = NULL;
  sf_chunk_log_destroy(&log);
}

/* Confirms and shrinks one culprit on the running ranks. After an interrupt the result must not be used. */
static void shrink_culprit(struct mpi_campaign *k, const struct sf_booking *b, const struct sf_outcome *found,
                           struct sf_job_result *result) {
  const struct sf_campaign_options *options = k->options;
  struct mpi_shrink s = {.k = k, .index = b->index, .found = found, .shrink_key = b->outcome->shrink_key};
  struct sf_shrink_report report;
  memset(&report, 0, sizeof report);
  memset(result, 0, sizeof *result);
  if (!confirm(&s, b->c, result)) return;
  result->min_outcome = s.last;
  result->min = *b->c;
  const struct sf_table table = sf_layers_table(&options->space);
  if (options->shrink_budget > 0 && sf_shrink_run(&result->min, b->c, &table, still_fails, &s, options->shrink_budget, &report) == SF_OK) {
    result->min_outcome = s.last;
    result->evaluations = (int32_t)report.evaluations;
    result->budget = options->shrink_budget;
    result->minimal = report.minimal;
  }
  diagnose(&s, result);
}

/* Books all culprits of a case, their folders first. results: NULL for each that was not shrunk; NULL in place of all. */
static void book(struct mpi_campaign *k, int64_t index, const struct sf_case *c, const struct sf_outcome *found,
                 const struct sf_job_result *const *results) {
  for (int32_t turn = 0; turn < 2; turn++) {
    for (int32_t i = 0; i <= found->further_count; i++) {
      const struct sf_outcome outcome = sf_outcome_of_culprit(found, i);
      const struct sf_booking booking = {.index = index, .c = c, .outcome = &outcome, .is_further = i > 0};
      const struct sf_job_result *shrunk = results ? results[i] : NULL;
      if (turn == 0)
        sf_ledger_claim_folder(&k->ledger, &booking, shrunk);
      else if (shrunk)
        sf_ledger_add_shrunk(&k->ledger, &booking, shrunk);
      else
        sf_ledger_add_unshrunk(&k->ledger, &booking);
    }
  }
}

/* Shrinks all culprits before it books the first: a candidate can end the job, and then the case must have no row yet. After an interrupt,
 * findings that were not booked wait for --resume, as those of a pool do. */
static void on_finding(struct mpi_campaign *k, int64_t index, const struct sf_case *c, const struct sf_outcome *found) {
  static struct sf_job_result kept[1 + SF_FURTHER_MAX];
  const struct sf_job_result *results[1 + SF_FURTHER_MAX] = {NULL};
  sf_ledger_commit(&k->ledger);
  for (int32_t i = 0; i <= found->further_count && !is_stopped(k); i++) {
    const struct sf_outcome outcome = sf_outcome_of_culprit(found, i);
    const struct sf_booking booking = {.index = index, .c = c, .outcome = &outcome, .is_further = i > 0};
    if (!sf_ledger_wants_shrink(&k->ledger, &booking)) continue;
    shrink_culprit(k, &booking, found, &kept[i]);
    results[i] = &kept[i];
  }
  if (is_stopped(k))
    sf_campaign_add_waiting(k->result, index);
  else
    book(k, index, c, found, results);
}

static void record_wave(struct mpi_campaign *k, const struct order *order) {
  for (int64_t i = 0; i < order->count && k->ledger.status == SF_OK; i++) {
    const struct sf_outcome *outcome = &k->outcomes[i];
    if (outcome->status != SF_OK)
      sf_ledger_fail(&k->ledger, outcome->status, outcome->text);
    else if (outcome->verdict != SF_VERDICT_FINDING)
      sf_ledger_add_verdict(&k->ledger, order->first + i, &k->plan[i].c, outcome);
  }
  for (int64_t i = 0; i < order->count && k->ledger.status == SF_OK; i++) {
    if (k->outcomes[i].verdict == SF_VERDICT_FINDING) on_finding(k, order->first + i, &k->plan[i].c, &k->outcomes[i]);
  }
  sf_ledger_commit(&k->ledger);
}

/* Gives the case of the page its verdict: the way in which it ended its job, or the finding that was being shrunk when a candidate did. */
static void record_end(struct mpi_campaign *k, const struct sf_rank_page *page, const struct sf_rank_page *first_page) {
  const bool shrinking = page->shrinking && first_page->shrinking && first_page->index == page->index;
  struct sf_outcome outcome = shrinking ? first_page->found : page->end;
  struct sf_error error = {SF_OK, ""};
  struct sf_case c;
  if (sf_campaign_case(&c, k->options, page->index, &error) != SF_OK) return;
  if (outcome.verdict == SF_VERDICT_FINDING && !shrinking)
    sf_outcome_from_failure(&outcome, &c, page->end.cls, page->end.manner, page->end.rank, page->end.label, page->end.text);
  outcome.ranks = (int32_t)sf_case_ranks(&c);
  if (outcome.verdict == SF_VERDICT_FINDING)
    book(k, page->index, &c, &outcome, NULL);
  else
    sf_ledger_add_verdict(&k->ledger, page->index, &c, &outcome);
}

/* Opens the store again, because an open store remembers which indices had no verdict when it was opened. */
static void reopen(struct sf_ledger *ledger) {
  const struct sf_ledger_news news = ledger->news;
  struct sf_error error = {SF_OK, ""};
  if (ledger->status != SF_OK) return;
  const struct sf_campaign_options *options = ledger->options;
  sf_ledger_close(ledger);
  const enum sf_status status = sf_ledger_open(ledger, options, &error);
  ledger->news = news;
  if (status != SF_OK) sf_ledger_fail(ledger, status, error.text);
}

/* Records what an earlier job left in its pages. The pages are cleared before the verdicts are committed: a case without a verdict runs
 * again, but the store would refuse a second verdict. A job that was ended from outside has no failed page. */
static void record_earlier_end(struct mpi_campaign *k) {
  static struct sf_rank_page page, first_page;
  int64_t recorded[WAVE_INDICES];
  int32_t recorded_count = 0;
  if (!k->options->resume) return;
  for (int32_t rank = 0; k->ledger.status == SF_OK && sf_rank_page_take(&page, k->options->store_path, rank); rank++) {
    if (rank == 0) first_page = page;
    bool seen = !page.active || !page.failed || recorded_count == WAVE_INDICES;
    for (int32_t i = 0; i < recorded_count; i++) seen |= recorded[i] == page.index;
    if (seen) continue;
    recorded[recorded_count++] = page.index;
    record_end(k, &page, &first_page);
  }
  sf_ledger_commit(&k->ledger);
  if (recorded_count > 0) reopen(&k->ledger);
}

static bool lease_wave(struct mpi_campaign *k, struct order *order) {
  if (sf_ledger_is_over(&k->ledger)) return false;
  order->kind = ORDER_WAVE;
  sf_ledger_fail(&k->ledger, sf_store_lease(k->ledger.store, &order->first, &order->count, k->wave, k->options->cases, &k->ledger.error),
                 NULL);
  return k->ledger.status == SF_OK && order->count > 0;
}

/* Keeps waves short: a launcher that ends its job leaves the ranks about a second, and cases that are not committed run again. */
static void adjust_wave(struct mpi_campaign *k, const struct order *order, double seconds) {
  if (seconds > 2 * WAVE_SECONDS && k->wave > 1) k->wave /= 2;
  if (seconds < WAVE_SECONDS && order->count == k->wave && k->wave < WAVE_INDICES) k->wave *= 2;
}

static enum sf_status lead(struct mpi_campaign *k, struct sf_error *error) {
  static struct order order;
  enum sf_status status = SF_OK;
  record_earlier_end(k);
  k->wave = 1;
  while (status == SF_OK && k->ledger.status == SF_OK && lease_wave(k, &order)) {
    const double began = sf_engine_now();
    status = share_order(k, &order);
    if (status == SF_OK) status = run_wave(k, &order, error);
    adjust_wave(k, &order, sf_engine_now() - began);
    if (status == SF_OK) record_wave(k, &order);
    sf_ledger_tell(&k->ledger, &(struct sf_ledger_open_work){0});
  }
  sf_progress_end(&k->ledger.news.progress);
  if (status != SF_OK) end_job(k, status, error->text);
  order.kind = ORDER_STOP;
  status = share_order(k, &order);
  return k->ledger.status != SF_OK ? sf_error_set(error, k->ledger.status, "%s", k->ledger.error.text) : status;
}

/* --- life ------------------------------------------------------------------------------------------------------ */

static void make_hint(struct mpi_campaign *k) {
  struct sf_text store = {0};
  sf_shell_append(&store, k->options->store_path);
  snprintf(k->hint, sizeof k->hint, "; run it again with --store %s --resume to record this and go on", store.failed ? "FILE" : store.data);
  sf_text_destroy(&store);
}

/* Rank 0 opens the store and sends its path to the others: the name of a new store depends on the files that exist already. */
static enum sf_status open_store(struct mpi_campaign *k, struct sf_campaign_options *options, struct sf_error *error) {
  struct {
    enum sf_status status;
    char path[sizeof options->store_path];
  } news;
  const bool root = sf_mpi_rank(k->mpi) == 0;
  void *data = &news;
  size_t size_bytes = sizeof news;
  memset(&news, 0, sizeof news);
  if (root) {
    news.status = sf_ledger_open(&k->ledger, options, error);
    memcpy(news.path, options->store_path, sizeof news.path);
  }
  const enum sf_status status = sf_mpi_bcast_bytes(k->mpi, 0, &data, &size_bytes);
  if (status != SF_OK) end_job(k, status, "MPI could not pass on the store's path");
  if (!root) {
    memcpy(&news, data, sizeof news);
    sf_free(data);
    memcpy(options->store_path, news.path, sizeof news.path);
  }
  make_hint(k);
  return news.status;
}

static void prepare(struct mpi_campaign *k) {
  struct sf_error error = {SF_OK, ""};
  enum sf_status status = sf_rank_watch_open(&k->watch, k->mpi, k->options->store_path, k->hint, &error);
  if (status == SF_OK) status = sf_rank_engine_create(&k->engine, k->mpi, sf_rank_watch_page(k->watch), &k->options->pool);
  if (status != SF_OK) end_job(k, status, error.text);
}

enum sf_status sf_campaign_mpi_run(struct sf_mpi *mpi, struct sf_campaign_options *options, struct sf_campaign_result *result,
                                   struct sf_error *error) {
  static struct mpi_campaign k;
  const bool root = sf_mpi_rank(mpi) == 0;
  memset(&k, 0, sizeof k);
  memset(result, 0, sizeof *result);
  enum sf_status status = SF_OK;
  if (options->space.max_ranks > sf_mpi_world(mpi)) {
    status = sf_error_set(error, SF_EUSAGE,
                          "--max-ranks %" PRId64 " is above the %d ranks of this MPI job: give --max-ranks %d, or start more ranks",
                          options->space.max_ranks, sf_mpi_world(mpi), sf_mpi_world(mpi));
  }
  if (status != SF_OK) return root ? status : SF_OK;
  options->mpi_ranks = sf_mpi_world(mpi);
  k.options = options;
  k.mpi = mpi;
  k.result = result;
  status = open_store(&k, options, error);
  if (status != SF_OK) return root ? status : SF_OK;
  prepare(&k);
  if (root) {
    status = lead(&k, error);
    sf_ledger_summarise(&k.ledger, result);
    sf_ledger_close(&k.ledger);
  } else {
    status = follow_orders(&k, error);
    if (status != SF_OK) end_job(&k, status, error->text);
  }
  sf_engine_destroy(k.engine);
  sf_rank_watch_unlink(k.watch);
  sf_rank_watch_close(k.watch);
  return status;
}
