#include "harness/run/gate/gate.h"

#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/base/sinks.h"
#include "harness/base/utf8.h"
#include "harness/run/campaign/signatures.h"
#include "harness/run/gate/gate_base.h"
#include "harness/run/opfuzz/op_target.h"
#include "harness/run/process/subject.h"
#include "harness/run/support/progress.h"
#include "harness/run/trial/engine.h"
#include "targets/plugin/plugin_target.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What the gate has seen of one entry of the known list. */
struct known_news {
  bool seen, replayed;
  int32_t corpus_case; /* if replayed: a corpus case that expects it */
};

struct gate {
  const struct sf_gate_options *options;
  struct sf_gate_result *result;
  struct sf_error *error;
  double start;
  struct sf_progress progress; /* while the corpus is replayed */
  int32_t replayed;
  struct known_news *known; /* one for each entry */
  /* the corpus while it is replayed */
  struct sf_case *cases;
  int32_t next;
  enum sf_status status;
};

const char *sf_gate_state_text(enum sf_gate_state state) {
  static const char *const texts[] = {
#define X(name, text) text,
      SF_GATE_STATE_MAP(X)
#undef X
  };
  SF_ASSERT_LT((unsigned)state, SF_GATE_STATE_COUNT);
  return texts[state];
}

/* The rest of the gate's time; INFINITY without a limit. */
static double seconds_left(const struct gate *g) {
  const double seconds = g->options->campaign.seconds;
  return seconds > 0 ? seconds - (sf_engine_now() - g->start) : INFINITY;
}

static struct sf_gate_item *add_item(struct gate *g) {
  struct sf_gate_result *r = g->result;
  struct sf_gate_item *items = sf_grown(r->items, r->item_count, sizeof *items);
  if (!items) return NULL;
  r->items = items;
  items[r->item_count].replay = &g->options->campaign.replay;
  return &items[r->item_count++];
}

/* --- the known list -------------------------------------------------------------------------------------------- */

static void note_seen(struct gate *g, const char *signature) {
  const struct sf_known *known = &g->options->campaign.known;
  for (int32_t i = 0; i < known->count; i++) g->known[i].seen |= sf_signature_covers(known->entries[i].signature, signature);
}

/* expected: the signature that the replayed case expects; "" = none. */
static void note_replayed(struct gate *g, int32_t corpus_case, const char *expected, const char *seen) {
  const struct sf_known *known = &g->options->campaign.known;
  for (int32_t i = 0; i < known->count && *expected; i++) {
    if (!sf_signature_covers(known->entries[i].signature, expected)) continue;
    g->known[i].replayed = true;
    g->known[i].corpus_case = corpus_case;
  }
  note_seen(g, seen);
}

/* Lists entries that no longer show where they were found before: such an entry would hide the next bug with its signature. */
static enum sf_status list_stale(struct gate *g) {
  const struct sf_known *known = &g->options->campaign.known;
  g->result->known_count = known->count;
  for (int32_t i = 0; i < known->count; i++) {
    g->result->known_seen += g->known[i].seen;
    if (g->known[i].seen || !g->known[i].replayed) continue;
    struct sf_gate_item *item = add_item(g);
    if (!item) return SF_ENOMEM;
    item->state = SF_GATE_STALE;
    snprintf(item->name, sizeof item->name, "%s", known->entries[i].signature);
    snprintf(item->text, sizeof item->text, "%s expects this known finding, which no longer shows: remove it from the known list",
             g->result->items[g->known[i].corpus_case].name);
  }
  return SF_OK;
}

/* --- the corpus ------------------------------------------------------------------------------------------------ */

static int is_case_file(const struct dirent *entry) {
  const size_t length = strlen(entry->d_name);
  return length > 5 && strcmp(entry->d_name + length - 5, ".json") == 0;
}

static enum sf_status read_corpus_case(struct sf_case *out, const struct sf_pool_options *pool, const char *path, struct sf_error *error) {
  const enum sf_status status = sf_case_read(out, path, error);
  if (status != SF_OK) return status == SF_EIO ? SF_EINPUT : status;
  const struct sf_subject *subject = sf_subject_of(out);
  return subject->check ? subject->check(out, pool, path, error) : SF_OK;
}

static enum sf_status read_corpus(struct gate *g) {
  struct dirent **names = NULL;
  const char *folder = g->options->corpus;
  const int count = scandir(folder, &names, is_case_file, alphasort);
  if (count < 0) return sf_error_set(g->error, errno == ENOMEM ? SF_ENOMEM : SF_EINPUT, "%s: %s", folder, strerror(errno));
  enum sf_status status = SF_OK;
  if (count == 0 && !g->options->allow_empty_corpus)
    status = sf_error_set(g->error, SF_EINPUT, "%s: there is no *.json case in this folder; --allow-empty-corpus takes that", folder);
  g->cases = sf_alloc((size_t)(count + 1) * sizeof *g->cases);
  if (!g->cases) status = sf_error_set(g->error, SF_ENOMEM, "out of memory");
  for (int i = 0; i < count; i++) {
    struct sf_gate_item *item = status == SF_OK ? add_item(g) : NULL;
    if (item) {
      const bool fits = snprintf(item->name, sizeof item->name, "%s/%s", folder, names[i]->d_name) < (int)sizeof item->name;
      item->state = SF_GATE_NOT_RUN;
      struct sf_case *c = &g->cases[g->result->corpus_count++];
      status = fits ? read_corpus_case(c, &g->options->campaign.pool, item->name, g->error)
                    : sf_error_set(g->error, SF_EUSAGE, "--corpus: the path is too long: %.60s..", folder);
      if (sf_case_is_operation(c)) item->replay = NULL;
    } else if (status == SF_OK) {
      status = sf_error_set(g->error, SF_ENOMEM, "out of memory");
    }
    free(names[i]);
  }
  free(names);
  return status;
}

static int32_t next_case(void *ctx, struct sf_job *jobs, int32_t max) {
  struct gate *g = ctx;
  (void)max;
  if (g->next >= g->result->corpus_count || seconds_left(g) <= 0) return 0;
  memset(jobs, 0, sizeof *jobs);
  jobs->tag = g->next;
  jobs->deadline = g->options->campaign.deadline;
  jobs->c = g->cases[g->next++];
  return 1;
}

/* Keeps as much of the text as fits, and destroys it. */
static void set_text(struct sf_gate_item *item, struct sf_text *text) {
  const char *made = text->data ? text->data : "";
  snprintf(item->text, sizeof item->text, "%.*s", (int)sf_utf8_cut(made, sizeof item->text - 1), made);
  sf_text_destroy(text);
}

static void corpus_case_done(void *ctx, const struct sf_job *job, const struct sf_job_result *result) {
  struct gate *g = ctx;
  struct sf_gate_item *item = &g->result->items[job->tag];
  const struct sf_outcome *seen = &result->outcome;
  item->seconds = seen->seconds;
  g->replayed++;
  if (seen->status != SF_OK) {
    if (g->status == SF_OK) g->status = sf_error_set(g->error, seen->status, "%s: %.300s", item->name, seen->text);
    return;
  }
  const struct sf_expect pass = {true, "PASS", ""};
  const struct sf_expect *expect = job->c.expect.present ? &job->c.expect : &pass;
  item->state = SF_GATE_OK;
  note_replayed(g, (int32_t)job->tag, expect->signature, seen->signature);
  if (sf_outcome_as_expected(seen, expect)) return;
  const bool is_others = sf_case_is_framework(&job->c) || (sf_case_is_operation(&job->c) && sf_plugin_target_path(job->c.target)),
             is_gone = is_others && seen->verdict == SF_VERDICT_PASS && strcmp(expect->verdict, sf_verdict_name(SF_VERDICT_FINDING)) == 0;
  item->state = is_gone ? SF_GATE_GONE : SF_GATE_UNEXPECTED;
  g->result->corpus_failed += !is_gone;
  struct sf_text text = {0};
  sf_line_append(&text, "expected %s%s%s, saw %s%s%s%s%s", expect->verdict, *expect->signature ? " " : "", expect->signature,
                 sf_verdict_name(seen->verdict), *seen->signature ? " " : "", seen->signature, *seen->text ? ": " : "", seen->text);
  set_text(item, &text);
}

static bool tick(void *ctx) {
  struct gate *g = ctx;
  const double now = sf_engine_now();
  if (sf_progress_is_due(&g->progress, now))
    sf_progress_show(&g->progress, now, "%d of %d corpus cases replayed", g->replayed, g->result->corpus_count);
  return !sf_campaign_is_stopped(&g->options->campaign) && seconds_left(g) > 0; /* a case that still runs counts as not replayed */
}

static enum sf_status replay_corpus(struct gate *g) {
  struct sf_pool *pool = NULL;
  enum sf_status status = read_corpus(g);
  if (status != SF_OK) return status;
  struct sf_pool_options pool_options = g->options->campaign.pool;
  pool_options.operations = NULL;                         /* this target refuses cases that are larger than those it draws */
  for (int32_t i = 0; i < g->result->corpus_count; i++) { /* a corpus case may have more ranks than drawn cases */
    if (sf_case_ranks(&g->cases[i]) > pool_options.launch_ranks) pool_options.launch_ranks = (int32_t)sf_case_ranks(&g->cases[i]);
  }
  status = sf_pool_create(&pool, &pool_options);
  if (status == SF_OK) {
    const struct sf_pool_client client = {g, next_case, corpus_case_done, tick};
    status = sf_pool_run(pool, &client);
  }
  sf_pool_destroy(pool);
  sf_progress_end(&g->progress);
  for (int32_t i = 0; i < g->result->corpus_count; i++) g->result->corpus_not_run += g->result->items[i].state == SF_GATE_NOT_RUN;
  if (status == SF_OK) return g->status;
  char text[400];
  sf_pool_failure_text(text, sizeof text, &pool_options, status);
  return sf_error_set(g->error, status, "the corpus could not be replayed: %s", text);
}

/* --- findings -------------------------------------------------------------------------------------------------- */

/* Seconds for one of the remaining replays by the base: what a base needs to judge a hang by itself, which is ten times the case's seconds,
 * and no more than its share of the gate's remaining time. */
static double base_seconds(const struct gate *g, const struct sf_gate_item *item, int32_t to_come) {
  static const double START_SECONDS = 60, UNKNOWN_SECONDS = 10, HANG_FACTOR = 12;
  static struct sf_case c;
  const bool is_read = sf_case_read(&c, item->min_path, NULL) == SF_OK;
  const double one = is_read ? sf_pool_deadline(&g->options->campaign.pool, &c) : UNKNOWN_SECONDS, left = seconds_left(g);
  const double wanted = START_SECONDS + HANG_FACTOR * one;
  return isfinite(left) ? fmin(wanted, fmax(left, 0) / to_come) : wanted;
}

static const double BASE_SECONDS_LEAST = 1;

static void note_base(struct sf_gate_item *item, const char *note) {
  const size_t length = strlen(item->text);
  snprintf(item->text + length, sizeof item->text - length, "base         %s\n", note);
}

static enum sf_status ask_base(struct gate *g, struct sf_gate_item *item, int32_t to_come) {
  bool has = false;
  char note[SF_GATE_NOTE_TEXT];
  struct sf_gate_base base = g->options->base;
  base.seconds = base_seconds(g, item, to_come);
  base.stop = g->options->campaign.stop;
  if (base.seconds < BASE_SECONDS_LEAST) {
    note_base(item, "the time was over before the base could be asked");
    return SF_OK;
  }
  const enum sf_status status = sf_gate_base_has(&has, note, &base, item->min_path, item->name);
  if (status == SF_ECANCELLED) return SF_OK; /* told at the end */
  if (status != SF_OK)
    return sf_error_set(g->error, status, "%s: could not be started",
                        g->options->base.program ? g->options->base.program : g->options->base.framework_path);
  if (has) item->state = SF_GATE_IN_BASE;
  if (*note) note_base(item, note);
  return SF_OK;
}

static enum sf_status ask_base_of_new(struct gate *g) {
  const struct sf_gate_result *r = g->result;
  enum sf_status status = SF_OK;
  int32_t to_come = 0;
  for (int32_t i = 0; i < r->item_count; i++) to_come += r->items[i].state == SF_GATE_NEW;
  for (int32_t i = 0; i < r->item_count && status == SF_OK && !sf_campaign_is_stopped(&g->options->campaign); i++) {
    if (r->items[i].state == SF_GATE_NEW) status = ask_base(g, &r->items[i], to_come--);
  }
  return status;
}

static enum sf_status list_finding(struct gate *g, const struct sf_signature *s, const char *cause) {
  struct sf_gate_item *item = add_item(g);
  if (!item) return SF_ENOMEM;
  snprintf(item->name, sizeof item->name, "%s", s->signature);
  snprintf(item->cause, sizeof item->cause, "%s", cause);
  snprintf(item->text, sizeof item->text, "%.*s", (int)sf_utf8_cut(s->report, sizeof item->text - 1), s->report);
  snprintf(item->what, sizeof item->what, "%.*s", (int)sf_utf8_cut(s->what, sizeof item->what - 1), s->what);
  snprintf(item->min_path, sizeof item->min_path, "%s", s->min_path);
  item->diagnosis = s->diagnosis;
  item->state = s->known ? SF_GATE_KNOWN : SF_GATE_NEW;
  note_seen(g, item->name);
  return SF_OK;
}

static enum sf_status list_findings(struct gate *g) {
  struct sf_signatures found = {0};
  enum sf_status status = sf_signatures_read(&found, &g->options->campaign, g->error);
  for (int32_t cause = 0; cause < found.count; cause++)
    for (int32_t i = cause; status == SF_OK && i < found.count; i++)
      if (found.at[i].cause == cause) status = list_finding(g, &found.at[i], found.at[cause].signature);
  sf_signatures_destroy(&found);
  return status;
}

int32_t sf_gate_cause_end(const struct sf_gate_result *result, int32_t first) {
  const struct sf_gate_item *items = result->items;
  int32_t end = first + 1;
  while (*items[first].cause && end < result->item_count && strcmp(items[end].cause, items[first].cause) == 0) end++;
  return end;
}

/* What is found late must still be confirmed, shrunk and shown to the base: a part of the time is kept for that. */
static void share_time(struct sf_campaign_options *options, double left, bool has_base) {
  static const double SHRINK_SHARE = 0.25, SHRINK_SECONDS = 180, BASE_SHARE = 0.15, BASE_SECONDS = 120;
  if (!(options->seconds > 0)) return;
  options->seconds_all = left - (has_base ? fmin(BASE_SHARE * left, BASE_SECONDS) : 0);
  options->seconds = options->seconds_all - fmin(SHRINK_SHARE * left, SHRINK_SECONDS);
}

static enum sf_status fuzz(struct gate *g) {
  static struct sf_campaign_options options;
  const struct sf_campaign_result *campaign = &g->result->campaign;
  if (seconds_left(g) <= 0) return SF_OK; /* told at the end */
  options = g->options->campaign;
  share_time(&options, seconds_left(g), sf_gate_has_base(&g->options->base));
  const enum sf_status status = sf_campaign_run(&options, &g->result->campaign, g->error);
  if (status != SF_OK || sf_campaign_is_stopped(&g->options->campaign)) return status;
  if (!sf_campaign_judged_nothing(campaign)) return list_findings(g);
  sf_campaign_nothing_text(g->result->nothing, sizeof g->result->nothing, campaign);
  return SF_OK;
}

/* Work that there was no time for is not a pass. */
static void tell_time(struct sf_gate_result *r, double seconds) {
  if (r->corpus_not_run > 0) {
    snprintf(r->nothing, sizeof r->nothing,
             "%d of %d corpus cases were not replayed, and nothing was fuzzed: --time %.3gs ran out; give the gate more time",
             r->corpus_not_run, r->corpus_count, seconds);
  } else if (r->campaign.summary.cases == 0 && !*r->nothing) {
    snprintf(r->nothing, sizeof r->nothing, "nothing was fuzzed: replaying the corpus took all of --time %.3gs; give the gate more time",
             seconds);
  }
}

static void conclude(struct gate *g) {
  struct sf_gate_result *r = g->result;
  tell_time(r, g->options->campaign.seconds);
  for (int32_t i = 0, end; i < r->item_count; i = end) {
    bool fails = false;
    end = sf_gate_cause_end(r, i);
    for (int32_t k = i; k < end; k++) fails |= sf_gate_item_fails(&r->items[k]);
    r->failed_count += fails;
  }
  r->passed = r->failed_count == 0 && !*r->nothing;
}

enum sf_status sf_gate_run(const struct sf_gate_options *options, struct sf_gate_result *result, struct sf_error *error) {
  struct sf_error detail = {SF_OK, ""};
  struct gate g = {.options = options, .result = result, .error = &detail, .start = sf_engine_now()};
  g.progress = sf_progress_begin(options->campaign.progress ? stderr : NULL, isatty(STDERR_FILENO), g.start);
  memset(result, 0, sizeof *result);
  enum sf_status status = sf_gate_base_check(&options->base, &detail);
  g.known = sf_alloc((size_t)(options->campaign.known.count + 1) * sizeof *g.known);
  if (!g.known) status = SF_ENOMEM;
  if (status == SF_OK && options->corpus) status = replay_corpus(&g);
  if (status == SF_OK && !sf_campaign_is_stopped(&options->campaign)) status = fuzz(&g);
  if (status == SF_OK && sf_gate_has_base(&options->base)) status = ask_base_of_new(&g);
  if (status == SF_OK && sf_campaign_is_stopped(&options->campaign))
    status = sf_error_set(&detail, SF_EIO, "interrupted: the gate has not seen everything");
  if (status == SF_OK) status = list_stale(&g);
  if (status == SF_OK) conclude(&g);
  sf_free(g.cases);
  sf_free(g.known);
  if (status == SF_OK) return SF_OK;
  sf_gate_destroy(result);
  return sf_error_set(error, status, "%s", *detail.text ? detail.text : sf_status_text(status));
}

void sf_gate_destroy(struct sf_gate_result *result) {
  sf_free(result->items);
  memset(result, 0, sizeof *result);
}
