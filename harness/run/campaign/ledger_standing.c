#include "harness/run/campaign/ledger_standing.h"

#include "harness/base/alloc.h"
#include "harness/base/system/system_memory.h"
#include "harness/run/support/json.h"
#include "harness/run/trial/engine.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static const double STORE_SECONDS = 2, MEMORY_SECONDS = 2;

static double now_since_1970(void) {
  struct timeval now;
  gettimeofday(&now, NULL);
  return (double)now.tv_sec + (double)now.tv_usec * 1e-6;
}

static void recall_standing(struct sf_ledger_news *news, const char *text, bool is_new) {
  struct sf_standing before;
  news->newest_case = -1;
  news->newest_at = NAN;
  news->seconds_before = is_new ? 0 : NAN;
  if (sf_standing_from_json(&before, text) != SF_OK) return;
  news->seconds_before = before.seconds;
  news->newest_case = before.newest_case;
  news->newest_at = before.newest_at;
  memcpy(news->newest, before.newest, sizeof news->newest);
}

enum sf_status sf_ledger_recall(struct sf_ledger *ledger) {
  struct sf_store_summary summary;
  char *text = NULL;
  enum sf_status status = sf_store_summarise(ledger->store, &summary, &ledger->error);
  if (status == SF_OK) status = sf_store_standing(ledger->store, &text, &ledger->error);
  if (status != SF_OK) return status;
  memcpy(ledger->news.by_verdict, summary.by_verdict, sizeof summary.by_verdict);
  ledger->news.signatures = summary.signatures;
  ledger->news.signatures_known = summary.signatures_known;
  recall_standing(&ledger->news, text, summary.high_water == 0);
  sf_free(text);
  return SF_OK;
}

/* How much of its limits the run has used, and the time that is left: of time and number of cases whichever ends it first. */
static void fill_limits(struct sf_standing *s, const struct sf_campaign_options *options) {
  const double of_time = options->seconds > 0 ? s->seconds_run / options->seconds : 0;
  const double of_cases = options->cases < INT64_MAX ? (double)s->cases / (double)options->cases : 0;
  if (options->cases < INT64_MAX) s->cases_wanted = options->cases;
  if (options->seconds > 0) s->seconds_wanted = options->seconds;
  if (options->seconds > 0 || options->cases < INT64_MAX) s->share_done = fmin(1, fmax(of_time, of_cases));
  const double time_left = options->seconds > 0 ? options->seconds - s->seconds_run : INFINITY;
  const double cases_left =
      options->cases < INT64_MAX && s->cases_run > 0 ? (double)(options->cases - s->cases) / s->cases_per_s : INFINITY;
  s->seconds_left = fmax(0, fmin(time_left, cases_left));
}

static void fill_machine(struct sf_standing *s, struct sf_ledger *ledger) {
  const struct sf_campaign_options *options = ledger->options;
  const double now = sf_engine_now();
  if (ledger->news.memory_at == 0 || now - ledger->news.memory_at >= MEMORY_SECONDS) {
    ledger->news.memory_bytes = sf_memory_of_processes();
    ledger->news.memory_at = now;
  }
  s->memory_bytes = ledger->news.memory_bytes;
  s->processes = options->mpi_ranks > 0 ? options->mpi_ranks : options->pool.processes;
  if (!options->pool.operations) s->ranks_max = options->ranks_max;
  s->pid = getpid();
  if (gethostname(s->host, sizeof s->host) != 0) *s->host = '\0';
  s->host[sizeof s->host - 1] = '\0';
}

struct sf_standing sf_ledger_stand(struct sf_ledger *ledger, const struct sf_ledger_open_work *work) {
  const struct sf_ledger_news *news = &ledger->news;
  struct sf_standing s = sf_standing_unknown();
  s.state = SF_CAMPAIGN_RUNNING;
  s.seed = (int64_t)ledger->options->seed;
  s.passed = news->by_verdict[SF_VERDICT_PASS];
  s.findings = news->by_verdict[SF_VERDICT_FINDING] + work->findings;
  s.inconclusive = news->by_verdict[SF_VERDICT_INCONCLUSIVE];
  s.skipped = news->by_verdict[SF_VERDICT_SKIP];
  s.cases = s.passed + s.findings + s.inconclusive + s.skipped;
  s.cases_run = news->cases + work->findings;
  s.shrinking = work->shrinking;
  s.signatures = news->signatures;
  s.new_signatures = news->signatures - news->signatures_known;
  s.newest_case = news->newest_case;
  s.newest_at = news->newest_at;
  s.seconds_run = sf_engine_now() - news->start;
  s.seconds = news->seconds_before + s.seconds_run;
  s.cases_per_s = s.seconds_run > 0 ? (double)s.cases_run / s.seconds_run : NAN;
  s.updated_at = now_since_1970();
  memcpy(s.newest, news->newest, sizeof s.newest);
  snprintf(s.target, sizeof s.target, "%s", ledger->options->target ? ledger->options->target : "");
  if (ledger->cover) sf_cover_count_pairs(ledger->cover, &s.pairs, &s.pairs_run);
  fill_limits(&s, ledger->options);
  fill_machine(&s, ledger);
  return s;
}

/* Puts it into the open batch. */
static void store_standing(struct sf_ledger *ledger, const struct sf_standing *standing) {
  struct sf_text text = {0};
  json_t *object = sf_json_of_standing(standing);
  enum sf_status status = ledger->status == SF_OK ? sf_json_append(&text, object, JSON_COMPACT | SF_STANDING_DIGITS) : SF_OK;
  if (status == SF_OK && text.data) status = sf_store_set_standing(ledger->store, text.data, &ledger->error);
  sf_ledger_fail(ledger, status, NULL);
  json_decref(object);
  sf_text_destroy(&text);
}

static void show(struct sf_progress *progress, const struct sf_standing *standing, const char *store) {
  struct sf_screen_line lines[SF_STANDING_LINES];
  const int32_t width = sf_progress_screen_width(progress, SF_STANDING_LINES);
  struct sf_text line = {0};
  if (width > 0) {
    const int32_t count = sf_standing_screen(lines, standing, store, now_since_1970());
    sf_progress_draw(progress, sf_engine_now(), lines, count, width);
    return;
  }
  sf_standing_line(&line, standing);
  sf_progress_show(progress, sf_engine_now(), "%s", line.failed ? "(out of memory)" : line.data);
  sf_text_destroy(&line);
}

void sf_ledger_tell(struct sf_ledger *ledger, const struct sf_ledger_open_work *work) {
  const double now = sf_engine_now();
  const bool is_due = sf_progress_is_due(&ledger->news.progress, now), is_stale = now - ledger->news.stood >= STORE_SECONDS;
  if (!is_due && !is_stale) return;
  const struct sf_standing standing = sf_ledger_stand(ledger, work);
  if (is_due) show(&ledger->news.progress, &standing, ledger->options->store_path);
  if (!is_stale) return;
  store_standing(ledger, &standing);
  ledger->news.stood = now;
}

void sf_ledger_stand_at_end(struct sf_ledger *ledger) {
  struct sf_standing standing = sf_ledger_stand(ledger, &(struct sf_ledger_open_work){0});
  standing.state = sf_campaign_is_stopped(ledger->options) ? SF_CAMPAIGN_INTERRUPTED : SF_CAMPAIGN_ENDED;
  standing.memory_bytes = standing.processes = standing.ranks_max = -1;
  store_standing(ledger, &standing);
}
