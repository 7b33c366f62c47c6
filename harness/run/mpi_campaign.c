#include "harness/run/mpi_campaign.h"

#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/run/engine.h"
#include "harness/run/finding_files.h"
#include "harness/run/ledger.h"
#include "harness/run/rank_page.h"
#include "harness/run/worker.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { WAVE_INDICES = 64 };

/* What rank 0 tells all ranks to do next. */
enum order_kind { ORDER_WAVE, ORDER_CASE, ORDER_STOP };
struct order {
  int32_t kind;
  int64_t first, count; /* WAVE */
  struct sf_case c;     /* CASE: run it on the ranks from 0 on */
};

/* One case of a wave and the ranks that run it. */
struct placed {
  struct sf_case c;
  int32_t first, ranks;
};

struct mpi_campaign {
  const struct sf_campaign_options *options;
  struct sf_mpi *mpi;
  struct sf_engine *engine;
  struct sf_rank_page *page;
  struct placed plan[WAVE_INDICES];
  struct sf_outcome outcomes[WAVE_INDICES];
  struct sf_ledger ledger; /* rank 0 */
  double start, shown;
};

/* --- every rank ------------------------------------------------------------------------------------------------ */

static bool is_broken(const struct sf_outcome *outcome) {
  return outcome->verdict == SF_VERDICT_FINDING && (outcome->cls == SF_CLASS_DEADLOCK || outcome->cls == SF_CLASS_MISMATCH || outcome->cls == SF_CLASS_CRASH);
}

/* Runs one case on this rank if it takes part. A failure inside the communication under test ends the job: the page says why. */
static void run_here(struct mpi_campaign *k, int64_t index, const struct placed *at, struct sf_outcome *outcome) {
  const int32_t rank = sf_mpi_rank(k->mpi);
  memset(outcome, 0, sizeof *outcome);
  if (rank < at->first || rank >= at->first + at->ranks) return;
  sf_engine_set_ranks(k->engine, at->first);
  sf_rank_page_begin(k->page, index, k->options->deadline > 0 ? k->options->deadline : sf_case_deadline(&at->c));
  sf_engine_run(k->engine, &at->c, NULL, outcome);
  if (is_broken(outcome)) {
    sf_rank_page_fail(k->page, outcome);
    fprintf(stderr, "shardfuzz: case %" PRId64 ": %s; run again with --resume to record it and go on\n", index, outcome->text);
    sf_mpi_abort(k->mpi, 1);
  }
  sf_rank_page_end(k->page);
}

/* Cases go side by side as long as ranks are free, then the next row begins. The same on every rank. */
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
  for (int64_t i = 0; status == SF_OK && i < order->count; i++) run_here(k, order->first + i, &k->plan[i], &k->outcomes[i]);
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
  for (;;) {
    struct order order;
    struct sf_outcome outcome;
    enum sf_status status = share_order(k, &order);
    if (status != SF_OK || order.kind == ORDER_STOP) return status;
    if (order.kind == ORDER_WAVE) {
      status = run_wave(k, &order, error);
      if (status != SF_OK) return status;
    } else {
      const struct placed at = {order.c, 0, (int32_t)sf_case_ranks(&order.c)};
      run_here(k, -1, &at, &outcome);
    }
  }
}

/* --- rank 0 ---------------------------------------------------------------------------------------------------- */

struct mpi_shrink {
  struct mpi_campaign *k;
  const char *shrink_key;
  struct sf_outcome last;
};

static bool still_fails(void *ctx, const struct sf_case *c) {
  struct mpi_shrink *s = ctx;
  struct order order = {.kind = ORDER_CASE, .c = *c};
  struct sf_outcome outcome;
  if (share_order(s->k, &order) != SF_OK) return false;
  const struct placed at = {*c, 0, (int32_t)sf_case_ranks(c)};
  run_here(s->k, -1, &at, &outcome);
  if (outcome.status != SF_OK || outcome.verdict != SF_VERDICT_FINDING || strcmp(outcome.shrink_key, s->shrink_key) != 0) return false;
  s->last = outcome;
  return true;
}

static void on_finding(struct mpi_campaign *k, int64_t index, const struct sf_case *c, const struct sf_outcome *outcome) {
  struct sf_ledger *ledger = &k->ledger;
  if (sf_ledger_shrinks(ledger, outcome->shrink_key) >= SF_LEDGER_SHRINKS_PER_KEY) {
    sf_ledger_add_unshrunk(ledger, index, c, outcome);
    return;
  }
  struct mpi_shrink shrink = {.k = k, .shrink_key = outcome->shrink_key};
  struct sf_shrink_report report;
  struct sf_job_result result;
  memset(&report, 0, sizeof report);
  memset(&result, 0, sizeof result);
  if (!still_fails(&shrink, c)) {
    result.outcome.cls = SF_CLASS_FLAKY;
  } else {
    result.outcome = result.min_outcome = shrink.last;
    result.min = *c;
    if (k->options->shrink_budget > 0 && sf_shrink_run(&result.min, c, &k->options->space, still_fails, &shrink, k->options->shrink_budget, &report) == SF_OK) {
      result.min_outcome = shrink.last;
    }
  }
  sf_ledger_add_shrunk(ledger, index, c, outcome, &result);
}

static void record_wave(struct mpi_campaign *k, const struct order *order) {
  static struct sf_outcome outcomes[WAVE_INDICES]; /* shrinking reuses nothing of the plan, but runs cases of its own */
  memcpy(outcomes, k->outcomes, sizeof outcomes);
  for (int64_t i = 0; i < order->count && k->ledger.status == SF_OK; i++) {
    const struct sf_outcome *outcome = &outcomes[i];
    if (outcome->status != SF_OK) sf_ledger_fail(&k->ledger, outcome->status, outcome->text);
    else if (outcome->verdict == SF_VERDICT_FINDING) on_finding(k, order->first + i, &k->plan[i].c, outcome);
    else sf_ledger_add_verdict(&k->ledger, order->first + i, &k->plan[i].c, outcome, "");
  }
  sf_ledger_commit(&k->ledger);
}

/* What an earlier job left in its pages: the case that ended it gets its verdict now. */
static void record_earlier_end(struct mpi_campaign *k) {
  struct sf_outcome outcome;
  struct sf_case c;
  int64_t index;
  if (!sf_rank_pages_read(k->options->store_path, &index, &outcome) || index < 0 || k->ledger.status != SF_OK) return;
  struct sf_error error = {SF_OK, ""};
  if (sf_campaign_case(&c, k->options, index, &error) != SF_OK) return;
  if (*outcome.label) sf_outcome_from_failure(&outcome, &c, outcome.cls, outcome.rank, outcome.label, outcome.text);
  outcome.ranks = (int32_t)sf_case_ranks(&c);
  sf_ledger_add_unshrunk(&k->ledger, index, &c, &outcome);
  sf_ledger_commit(&k->ledger);
}

static bool lease_wave(struct mpi_campaign *k, struct order *order) {
  const struct sf_campaign_options *o = k->options;
  if ((o->stop && *o->stop) || (o->seconds > 0 && sf_engine_now() - k->start >= o->seconds)) return false;
  order->kind = ORDER_WAVE;
  sf_ledger_fail(&k->ledger, sf_store_lease(k->ledger.store, &order->first, &order->count, WAVE_INDICES, o->cases, &k->ledger.error), NULL);
  return k->ledger.status == SF_OK && order->count > 0;
}

static enum sf_status lead(struct mpi_campaign *k, struct sf_error *error) {
  static struct order order;
  enum sf_status status = SF_OK;
  record_earlier_end(k);
  while (status == SF_OK && k->ledger.status == SF_OK && lease_wave(k, &order)) {
    status = share_order(k, &order);
    if (status == SF_OK) status = run_wave(k, &order, error);
    if (status == SF_OK) record_wave(k, &order);
    if (k->options->progress) {
      fprintf(stderr, "\r%8.0f s  %" PRId64 " cases  %" PRId64 " findings   ", sf_engine_now() - k->start, k->ledger.cases, k->ledger.findings);
    }
  }
  order.kind = ORDER_STOP;
  const enum sf_status stopped = share_order(k, &order);
  if (k->options->progress) fputs("\r\033[K", stderr);
  return status != SF_OK ? status : k->ledger.status != SF_OK ? sf_error_set(error, k->ledger.status, "%s", k->ledger.error.text) : stopped;
}

enum sf_status sf_campaign_mpi_run(struct sf_mpi *mpi, const struct sf_campaign_options *options, struct sf_campaign_result *result, struct sf_error *error) {
  static struct mpi_campaign k;
  const bool root = sf_mpi_rank(mpi) == 0;
  memset(&k, 0, sizeof k);
  memset(result, 0, sizeof *result);
  k.options = options;
  k.mpi = mpi;
  k.start = sf_engine_now();
  enum sf_status status = root ? sf_ledger_open(&k.ledger, options, error) : SF_OK;
  if (status == SF_OK) status = sf_rank_page_open(&k.page, options->store_path, sf_mpi_rank(mpi), error);
  if (status == SF_OK) {
    const struct sf_engine_options engine = {
        .gemm = options->pool.gemm, .mpi = mpi, .progress = &k.page->worker.progress, .trace_key = &k.page->worker.trace_key, .trace_rank = &k.page->worker.trace_rank};
    status = sf_engine_create(&k.engine, &engine);
  }
  if (status != SF_OK) {
    fprintf(stderr, "shardfuzz: %s\n", error && *error->text ? error->text : sf_status_text(status));
    sf_mpi_abort(mpi, status == SF_EUSAGE || status == SF_EINPUT ? 2 : 3);
  }
  status = root ? lead(&k, error) : follow_orders(&k, error);
  if (root) sf_ledger_summarise(&k.ledger, result, sf_engine_now() - k.start);
  if (root) sf_ledger_close(&k.ledger);
  sf_engine_destroy(k.engine);
  sf_rank_page_close(k.page, status == SF_OK);
  return status;
}
