#include "harness/run/campaign/ledger.h"

#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/base/names.h"
#include "harness/run/campaign/finding_files.h"
#include "harness/run/campaign/ledger_standing.h"
#include "harness/run/process/subject.h"
#include "harness/run/trial/engine.h"
#include "harness/run/trial/features.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Findings with this key are counted under this signature. A signature can have several keys: end to end, the tensor that goes wrong first
 * need not be the one that shrinking ends at. */
struct sf_ledger_seen {
  struct sf_ledger_seen *next;
  char shrink_key[SF_SHRINK_KEY_TEXT], signature[SF_SIGNATURE_TEXT];
};

void sf_ledger_fail(struct sf_ledger *ledger, enum sf_status status, const char *text) {
  if (status == SF_OK || ledger->status != SF_OK) return;
  ledger->status = status;
  if (text) sf_error_set(&ledger->error, status, "%s", text);
}

static void keep(struct sf_ledger *ledger, enum sf_status status) { sf_ledger_fail(ledger, status, NULL); }

static void note_signature(struct sf_ledger *ledger, const char *shrink_key, const char *signature) {
  for (const struct sf_ledger_seen *s = ledger->seen; s; s = s->next) {
    if (strcmp(s->signature, signature) == 0 && strcmp(s->shrink_key, shrink_key) == 0) return;
  }
  struct sf_ledger_seen *s = sf_alloc(sizeof *s);
  if (!s) {
    sf_ledger_fail(ledger, SF_ENOMEM, NULL);
    return;
  }
  snprintf(s->shrink_key, sizeof s->shrink_key, "%s", shrink_key);
  snprintf(s->signature, sizeof s->signature, "%s", signature);
  s->next = ledger->seen;
  ledger->seen = s;
}

/* Keeps the first line of the text: output of a worker may follow in further lines. */
static void keep_line(char *out, size_t size, const char *text) { snprintf(out, size, "%.*s", (int)strcspn(text, "\n"), text); }

/* --- verdict rows ---------------------------------------------------------------------------------------------- */

static void add_verdict(struct sf_ledger *ledger, int64_t index, const struct sf_case *c, const struct sf_outcome *outcome,
                        const char *signature) {
  if (ledger->cover && outcome->verdict != SF_VERDICT_SKIP) sf_cover_count_add(ledger->cover, c);
  const bool judged = outcome->verdict != SF_VERDICT_SKIP && outcome->verdict != SF_VERDICT_INCONCLUSIVE;
  char reason[SF_STORE_REASON_TEXT] = "";
  if (!judged) keep_line(reason, sizeof reason, outcome->text);
  const bool finding = outcome->verdict == SF_VERDICT_FINDING, has_ranks = sf_subject_of(c)->has_ranks;
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
      .layers = has_ranks ? (int32_t)c->model.layers : 0,
      .features = has_ranks ? sf_features_of(c) : (struct sf_feature_mask){{0}},
      .checked = outcome->checked,
      .unchecked = outcome->unchecked,
      .seconds = outcome->seconds,
      .flaky = finding && outcome->cls == SF_CLASS_FLAKY,
      .reason = reason,
      .closest = outcome->tally.closest,
      .unjudged = outcome->tally.unjudged,
  };
  keep(ledger, sf_store_add_verdict(ledger->store, &row, &ledger->error));
  ledger->news.cases++;
  ledger->news.by_verdict[outcome->verdict]++;
  if (finding) note_signature(ledger, outcome->shrink_key, signature);
}

void sf_ledger_add_verdict(struct sf_ledger *ledger, int64_t index, const struct sf_case *c, const struct sf_outcome *outcome) {
  SF_ASSERT(outcome->verdict != SF_VERDICT_FINDING);
  add_verdict(ledger, index, c, outcome, "");
}

void sf_ledger_add_passes(struct sf_ledger *ledger, int64_t first, const struct sf_passes *passes) {
  const struct sf_store_verdict row = {.index = first,
                                       .count = passes->count,
                                       .verdict = SF_VERDICT_PASS,
                                       .cls = -1,
                                       .rank = -1,
                                       .ranks = 1,
                                       .checked = passes->checked,
                                       .unchecked = passes->unchecked,
                                       .seconds = passes->seconds};
  keep(ledger, sf_store_add_verdict(ledger->store, &row, &ledger->error));
  ledger->news.cases += passes->count;
  ledger->news.by_verdict[SF_VERDICT_PASS] += passes->count;
}

static const char *counted_signature(const struct sf_ledger *ledger, const struct sf_case *c, const struct sf_outcome *outcome) {
  for (const struct sf_ledger_seen *s = ledger->seen; s; s = s->next) {
    if (strcmp(s->shrink_key, outcome->shrink_key) == 0 && sf_signature_within(s->signature, c)) return s->signature;
  }
  return outcome->signature;
}

/* --- findings -------------------------------------------------------------------------------------------------- */

/* Takes the first free folder of the signature for this store. The name is stored before the folder is made, so that a killed campaign goes
 * on with the same one. */
static enum sf_status claim_folder(struct sf_ledger *ledger, char folder[NAME_MAX + 1], const char *signature) {
  const char *out_dir = ledger->options->out_dir;
  char directory[SF_PATH_TEXT];
  enum sf_status status = SF_OK;
  for (int32_t number = 1; status == SF_OK; number++) {
    sf_finding_folder_name(folder, signature, number);
    sf_finding_directory(directory, sizeof directory, out_dir, signature, folder);
    if (access(directory, F_OK) == 0) continue;
    status = sf_store_set_folder(ledger->store, signature, folder, &ledger->error);
    if (status == SF_OK && (mkdir(directory, 0777) == 0 || errno != EEXIST)) return SF_OK; /* writing the files reports other failures */
  }
  return status;
}

/* Which files of the signature this finding writes. They are those that its row keeps, in whatever order findings come in: the case with
 * the smallest index, and the smallest case of the smallest index that was shrunk. */
static unsigned owned_files(const struct sf_store_finding *seen, int64_t index, bool has_min) {
  const bool is_shown = has_min ? !seen->min_json || index <= seen->min_index : !seen->min_json && index <= seen->index;
  return (index <= seen->index ? (unsigned)SF_FINDING_CASE : 0) | (is_shown ? (unsigned)(SF_FINDING_MIN | SF_FINDING_REPORT) : 0);
}

/* The name of the signature's folder; "" for a finding of a store that was written before folders had names of their own. */
static enum sf_status folder_of(struct sf_ledger *ledger, char folder[NAME_MAX + 1], const char *signature) {
  struct sf_store_finding seen;
  bool found = false;
  enum sf_status status = sf_store_folder(ledger->store, folder, NAME_MAX + 1, signature, &ledger->error);
  if (status == SF_OK && !*folder) status = sf_store_find(ledger->store, &seen, &found, signature, &ledger->error);
  return status == SF_OK && !*folder && !found ? claim_folder(ledger, folder, signature) : status;
}

/* The finding's directory, and which files it writes there. */
static enum sf_status choose_files(struct sf_ledger *ledger, char *directory, size_t size, unsigned *files, const char *signature,
                                   int64_t index, bool has_min) {
  struct sf_store_finding seen;
  bool found = false;
  char folder[NAME_MAX + 1] = "";
  enum sf_status status = folder_of(ledger, folder, signature);
  if (status == SF_OK) status = sf_store_find(ledger->store, &seen, &found, signature, &ledger->error);
  *files = status == SF_OK && found ? owned_files(&seen, index, has_min) : SF_FINDING_ALL;
  if (status != SF_OK) return status;
  sf_finding_directory(directory, size, ledger->options->out_dir, signature, folder);
  if (access(directory, F_OK) != 0) *files = SF_FINDING_ALL;
  return SF_OK;
}

static bool is_stored(struct sf_ledger *ledger, const char *signature) {
  struct sf_store_finding seen;
  bool found = false;
  keep(ledger, sf_store_find(ledger->store, &seen, &found, signature, &ledger->error));
  return found;
}

/* Reports a finding as soon as it is stored: a campaign may run for hours. */
static void tell_finding(struct sf_ledger *ledger, const struct sf_store_finding *finding, const struct sf_finding_story *story,
                         const struct sf_case *c) {
  struct sf_text replay = {0};
  sf_replay_append(&replay, story->replay_path, story->replay, story->inside_mpi ? sf_case_ranks(c) : 0);
  sf_progress_say(&ledger->news.progress, "%s finding %s in case %" PRId64 ": %s", finding->known ? "known" : "new", finding->signature,
                  finding->index, replay.failed ? story->replay_path : replay.data);
  sf_text_destroy(&replay);
}

static void note_newest(struct sf_ledger *ledger, const struct sf_store_finding *finding) {
  struct sf_ledger_news *news = &ledger->news;
  news->new_signatures += !finding->known;
  news->signatures++;
  news->signatures_known += finding->known;
  news->newest_case = finding->index;
  news->newest_at = (double)time(NULL);
  snprintf(news->newest, sizeof news->newest, "%s", finding->signature);
}

/* Writes the finding's files and its row. shrunk: NULL, or how its shrink job ended. If its folder is not claimed yet, this first commits
 * the open batch. */
static void add_finding(struct sf_ledger *ledger, int64_t index, const struct sf_case *c, const struct sf_outcome *outcome,
                        const struct sf_job_result *shrunk, bool out_of_time) {
  const struct sf_job_result *min = shrunk && shrunk->end == SF_SHRINK_DONE ? shrunk : NULL;
  const struct sf_outcome *shown = min ? &min->min_outcome : outcome;
  char directory[SF_PATH_TEXT], min_path[SF_PATH_TEXT + 16];
  char *case_json = NULL, *min_json = NULL, *report = NULL, what[sizeof shown->text];
  struct sf_finding_story story = {.in_campaign = true,
                                   .out_of_time = out_of_time,
                                   .seed = ledger->options->seed,
                                   .index = index,
                                   .shrunk = shrunk,
                                   .replay = &ledger->options->replay,
                                   .inside_mpi = ledger->options->inside_mpi};
  unsigned files = 0;
  if (ledger->status != SF_OK) return;
  const bool is_first = !is_stored(ledger, shown->signature);
  enum sf_status status = choose_files(ledger, directory, sizeof directory, &files, shown->signature, index, min != NULL);
  if (status == SF_OK && files) status = sf_finding_write(directory, c, outcome, &story, files, &ledger->error);
  if (status == SF_OK) status = sf_case_to_json(&case_json, c);
  if (status == SF_OK && min) status = sf_case_to_json(&min_json, &min->min);
  if (status == SF_OK) {
    snprintf(min_path, sizeof min_path, "%s/%s", directory, min ? "min.json" : "case.json");
    story.replay_path = min_path;
    status = sf_finding_report(&report, min ? &min->min : c, shown, &story);
  }
  if (status == SF_OK) {
    keep_line(what, sizeof what, shown->text);
    const struct sf_store_finding finding = {
        .signature = shown->signature,
        .what = what,
        .shrink_key = outcome->shrink_key,
        .index = index,
        .case_json = case_json,
        .min_json = min_json,
        .min_index = index,
        .trials = min ? min->evaluations : 0,
        .trials_max = min ? min->budget : 0,
        .minimal = min && min->minimal,
        .report = report,
        .diagnosis = shown->diagnosis,
        .shown = shown->shown,
        .steps = min ? min->steps : NULL,
        .contrast = min ? min->contrast : NULL,
        .known = sf_known_has(&ledger->options->known, shown->signature) ||
                 (out_of_time && sf_known_may_cover(&ledger->options->known, outcome->shrink_key, c)),
    };
    status = sf_store_add_finding(ledger->store, &finding, &ledger->error);
    if (status == SF_OK && is_first) {
      note_newest(ledger, &finding);
      tell_finding(ledger, &finding, &story, min ? &min->min : c);
    }
  }
  keep(ledger, status);
  sf_free(case_json);
  sf_free(min_json);
  sf_free(report);
}

/* Adds the row that records this culprit of the case. */
static void add_row(struct sf_ledger *ledger, const struct sf_booking *b, const struct sf_outcome *outcome, const char *signature) {
  if (!b->is_further) {
    add_verdict(ledger, b->index, b->c, outcome, signature);
    return;
  }
  const struct sf_store_further row = {.index = b->index, .shrink_key = outcome->shrink_key, .signature = signature};
  keep(ledger, sf_store_add_further(ledger->store, &row, &ledger->error));
  note_signature(ledger, outcome->shrink_key, signature);
}

/* shrunk: NULL, or why it could not be. */
static void add_as_found(struct sf_ledger *ledger, const struct sf_booking *b, const struct sf_job_result *shrunk) {
  const char *signature = counted_signature(ledger, b->c, b->outcome);
  if (signature == b->outcome->signature) add_finding(ledger, b->index, b->c, b->outcome, shrunk, b->out_of_time);
  add_row(ledger, b, b->outcome, signature);
}

void sf_ledger_add_unshrunk(struct sf_ledger *ledger, const struct sf_booking *b) { add_as_found(ledger, b, NULL); }

/* The outcome that was seen first, under the class "flaky". */
static struct sf_outcome flaky_of(const struct sf_outcome *outcome) {
  static const char flaky_class[] = "flaky/";
  const char *key = outcome->shrink_key;
  struct sf_outcome flaky = *outcome;
  flaky.cls = SF_CLASS_FLAKY;
  memcpy(flaky.shrink_key, flaky_class, sizeof flaky_class);
  sf_name_fit(flaky.shrink_key + sizeof flaky_class - 1, sizeof flaky.shrink_key - sizeof flaky_class + 1, key, strlen(key));
  snprintf(flaky.signature, sizeof flaky.signature, "%s", flaky.shrink_key);
  return flaky;
}

static void add_flaky(struct sf_ledger *ledger, const struct sf_booking *b, const struct sf_job_result *shrunk) {
  const struct sf_outcome flaky = flaky_of(b->outcome);
  add_finding(ledger, b->index, b->c, &flaky, shrunk, false);
  add_row(ledger, b, &flaky, flaky.signature);
}

void sf_ledger_claim_folder(struct sf_ledger *ledger, const struct sf_booking *b, const struct sf_job_result *shrunk) {
  const struct sf_outcome flaky = flaky_of(b->outcome);
  const char *signature = b->outcome->signature;
  char folder[NAME_MAX + 1];
  if (ledger->status != SF_OK || (shrunk && shrunk->outcome.status != SF_OK)) return;
  if (shrunk && shrunk->end == SF_SHRINK_FLAKY)
    signature = flaky.signature;
  else if (shrunk && shrunk->end == SF_SHRINK_DONE)
    signature = shrunk->min_outcome.signature;
  else if (counted_signature(ledger, b->c, b->outcome) != signature)
    return; /* it brings no files */
  keep(ledger, folder_of(ledger, folder, signature));
}

struct contrast_of {
  const char *min_json;
  char *out;
};

static enum sf_status copy_contrast(void *context, const struct sf_store_finding *finding) {
  const struct contrast_of *of = context;
  const bool is_same = finding->min_json && strcmp(finding->min_json, of->min_json) == 0;
  if (is_same && finding->contrast && *finding->contrast) snprintf(of->out, SF_CONTRAST_TEXT, "%s", finding->contrast);
  return SF_OK;
}

/* Copies the contrast of the finding that has the same smallest case. */
static void take_contrast(struct sf_ledger *ledger, struct sf_job_result *shrunk) {
  struct contrast_of of = {.out = shrunk->contrast};
  char *min_json = NULL;
  const enum sf_status status = sf_case_to_json(&min_json, &shrunk->min);
  of.min_json = min_json;
  if (ledger->status == SF_OK && status == SF_OK) keep(ledger, sf_store_each_finding(ledger->store, copy_contrast, &of, &ledger->error));
  sf_free(min_json);
}

void sf_ledger_add_shrunk(struct sf_ledger *ledger, const struct sf_booking *b, const struct sf_job_result *shrunk) {
  static struct sf_job_result told;
  if (shrunk->is_suspects) {
    told = *shrunk;
    take_contrast(ledger, &told);
    shrunk = &told;
  }
  if (shrunk->outcome.status != SF_OK) {
    sf_ledger_fail(ledger, shrunk->outcome.status, shrunk->outcome.text);
    return;
  }
  if (shrunk->end == SF_SHRINK_FLAKY) {
    add_flaky(ledger, b, shrunk);
    return;
  }
  if (shrunk->end == SF_SHRINK_DONE) {
    add_finding(ledger, b->index, b->c, b->outcome, shrunk, b->out_of_time);
    add_row(ledger, b, b->outcome, shrunk->min_outcome.signature);
  } else {
    add_as_found(ledger, b, shrunk);
  }
  /* Unconfirmed findings count as shrunk too; otherwise each further finding of the key would lose as many processes again. */
  if (ledger->status == SF_OK) keep(ledger, sf_store_add_shrink(ledger->store, b->outcome->shrink_key, &ledger->error));
}

int64_t sf_ledger_shrinks(struct sf_ledger *ledger, const char *shrink_key) {
  int64_t count = 0;
  if (ledger->status == SF_OK) keep(ledger, sf_store_shrink_count(ledger->store, &count, shrink_key, &ledger->error));
  return count;
}

struct smallest {
  struct sf_case *out;
  const char *shrink_key;
  int32_t count, most;
};

static enum sf_status copy_smallest(void *context, const struct sf_store_finding *finding) {
  struct smallest *smallest = context;
  const bool is_same = finding->min_json && sf_outcome_same_failure(finding->shrink_key, smallest->shrink_key);
  if (is_same && smallest->count < smallest->most &&
      sf_case_from_json(&smallest->out[smallest->count], finding->min_json, strlen(finding->min_json), "", NULL) == SF_OK)
    smallest->count++;
  return SF_OK;
}

int32_t sf_ledger_smallest(struct sf_ledger *ledger, struct sf_case *out, int32_t most, const char *shrink_key) {
  struct smallest smallest = {.out = out, .shrink_key = shrink_key, .most = most};
  if (ledger->status == SF_OK) keep(ledger, sf_store_each_finding(ledger->store, copy_smallest, &smallest, &ledger->error));
  return smallest.count;
}

int64_t sf_ledger_shrinks_at_least(const struct sf_ledger *ledger, const struct sf_booking *b) {
  const int64_t shares = ledger->options->share_count > 1 ? ledger->options->share_count : 1;
  if (b->is_further || sf_subject_of(b->c)->shrinks_key_once) return SF_LEDGER_SHRINKS_OF_FURTHER;
  return (SF_LEDGER_SHRINKS_PER_KEY + shares - 1) / shares;
}

bool sf_ledger_wants_shrink(struct sf_ledger *ledger, const struct sf_booking *b) {
  const int64_t shrinks = sf_ledger_shrinks(ledger, b->outcome->shrink_key);
  if (shrinks < sf_ledger_shrinks_at_least(ledger, b)) return true;
  return shrinks < SF_LEDGER_SHRINKS_MAX && counted_signature(ledger, b->c, b->outcome) == b->outcome->signature;
}

bool sf_ledger_is_over(const struct sf_ledger *ledger) {
  const struct sf_campaign_options *o = ledger->options;
  const bool has_enough = o->stop_after > 0 && ledger->news.new_signatures >= o->stop_after;
  return sf_campaign_is_stopped(o) || has_enough || (o->seconds > 0 && sf_engine_now() - ledger->news.start >= o->seconds);
}

void sf_ledger_commit(struct sf_ledger *ledger) {
  if (ledger->status == SF_OK) keep(ledger, sf_store_commit(ledger->store, &ledger->error));
}

static void note_pairs(struct sf_ledger *ledger) {
  struct sf_text pairs = {0};
  if (!ledger->cover || ledger->status != SF_OK) return;
  sf_cover_count_append(ledger->cover, &pairs);
  if (!pairs.failed) keep(ledger, sf_store_set_pairs(ledger->store, pairs.data ? pairs.data : "", &ledger->error));
  sf_text_destroy(&pairs);
}

void sf_ledger_summarise(struct sf_ledger *ledger, struct sf_campaign_result *result) {
  note_pairs(ledger);
  sf_ledger_stand_at_end(ledger);
  sf_ledger_commit(ledger);
  if (ledger->status == SF_OK) keep(ledger, sf_store_summarise(ledger->store, &result->summary, &ledger->error));
  if (ledger->cover) {
    result->cover = sf_cover_count_shares(ledger->cover);
    struct sf_text missing = {0};
    sf_cover_count_missing(ledger->cover, &missing);
    snprintf(result->not_covered, sizeof result->not_covered, "%s", missing.data ? missing.data : "");
    sf_text_destroy(&missing);
  }
  result->crashed = result->summary.by_class[SF_CLASS_CRASH] + result->summary.by_class[SF_CLASS_PROTOCOL];
  result->hung = result->summary.by_class[SF_CLASS_HANG];
  result->new_signatures = result->summary.signatures - result->summary.signatures_known;
  result->cases_run = ledger->news.cases;
  result->seed = ledger->options->seed;
  result->interrupted = sf_campaign_is_stopped(ledger->options);
  result->seconds = sf_engine_now() - ledger->news.start;
  result->seconds_all = ledger->news.seconds_before + result->seconds;
}

void sf_campaign_nothing_text(char *out, size_t size, const struct sf_campaign_result *result) {
  const int64_t *by_verdict = result->summary.by_verdict, skipped = by_verdict[SF_VERDICT_SKIP];
  const char *skip = result->summary.skip_reason, *inconclusive = result->summary.inconclusive_reason;
  if (skipped == result->summary.cases) {
    snprintf(out, size, "every case was skipped%s%.300s", *skip ? ": " : "", skip);
    return;
  }
  if (by_verdict[SF_VERDICT_PASS] > 0) {
    snprintf(out, size, "nothing was judged: of %" PRId64 " in %" PRId64 " cases that passed none could be", result->summary.unchecked,
             by_verdict[SF_VERDICT_PASS]);
    return;
  }
  const int length = snprintf(out, size, "nothing was judged: %" PRId64 " inconclusive%s%.300s%s", by_verdict[SF_VERDICT_INCONCLUSIVE],
                              *inconclusive ? " (last: " : "", inconclusive, *inconclusive ? ")" : "");
  if (skipped > 0 && length < (int)size)
    snprintf(out + length, size - (size_t)length, ", %" PRId64 " skipped%s%.100s%s", skipped, *skip ? " (last: " : "", skip,
             *skip ? ")" : "");
}

static enum sf_status remember_signature(void *ctx, const struct sf_store_verdict *verdict) {
  struct sf_ledger *ledger = ctx;
  if (verdict->signature && verdict->shrink_key) note_signature(ledger, verdict->shrink_key, verdict->signature);
  return ledger->status;
}

static enum sf_status remember_further(void *ctx, const struct sf_store_further *further) {
  struct sf_ledger *ledger = ctx;
  note_signature(ledger, further->shrink_key, further->signature);
  return ledger->status;
}

/* A run that was killed may have written files of a finding that it did not store. They are written again if the case shows it again. */
static enum sf_status discard_folder(void *ctx, const char *signature, const char *folder) {
  const struct sf_ledger *ledger = ctx;
  char directory[SF_PATH_TEXT];
  sf_finding_directory(directory, sizeof directory, ledger->options->out_dir, signature, folder);
  sf_finding_discard(directory);
  return SF_OK;
}

static enum sf_status open_store(struct sf_ledger *ledger) {
  const char *names[SF_STORE_FEATURES_MAX];
  char *text = NULL;
  enum sf_status status = sf_make_directories(ledger->options->out_dir, &ledger->error);
  if (status == SF_OK) status = sf_campaign_text(&text, ledger->options);
  if (status != SF_OK) return status;
  for (int i = 0; i < sf_feature_count; i++) names[i] = sf_features[i].name;
  const struct sf_store_options options = {
      .path = ledger->options->store_path,
      .mode = ledger->options->resume ? SF_STORE_RESUME : SF_STORE_CREATE,
      .campaign = text,
      .feature_names = names,
      .feature_count = sf_feature_count,
      .share_index = ledger->options->share_index,
      .share_count = ledger->options->share_count,
      .share_block = ledger->options->share_block,
  };
  status = sf_store_open(&ledger->store, &options, &ledger->error);
  sf_free(text);
  if (status == SF_OK) status = sf_store_each_unused_folder(ledger->store, discard_folder, ledger, &ledger->error);
  if (status == SF_OK) status = sf_store_each_verdict(ledger->store, remember_signature, ledger, &ledger->error);
  if (status == SF_OK) status = sf_store_each_further(ledger->store, remember_further, ledger, &ledger->error);
  return status == SF_OK ? sf_ledger_recall(ledger) : status;
}

/* Counts the cases that a resumed or merged store has run: a case is a function of its index, so the store does not keep it. */
static enum sf_status count_cover(void *ctx, const struct sf_store_verdict *verdict) {
  struct sf_ledger *ledger = ctx;
  struct sf_case c;
  if (verdict->verdict == SF_VERDICT_SKIP) return SF_OK;
  const enum sf_status status = sf_campaign_case(&c, ledger->options, verdict->index, &ledger->error);
  if (status == SF_OK) sf_cover_count_add(ledger->cover, &c);
  return status;
}

static enum sf_status open_cover(struct sf_ledger *ledger) {
  if (!ledger->options->cover) return SF_OK;
  const struct sf_table table = sf_campaign_table(ledger->options);
  const enum sf_status status = sf_cover_count_create(&ledger->cover, &table);
  return status != SF_OK ? status : sf_store_each_verdict(ledger->store, count_cover, ledger, &ledger->error);
}

enum sf_status sf_ledger_open(struct sf_ledger *ledger, const struct sf_campaign_options *options, struct sf_error *error) {
  memset(ledger, 0, sizeof *ledger);
  ledger->options = options;
  ledger->news.start = sf_engine_now();
  ledger->news.progress = sf_progress_begin(options->progress ? stderr : NULL, isatty(STDERR_FILENO), ledger->news.start);
  enum sf_status status = open_store(ledger);
  if (status == SF_OK) status = open_cover(ledger);
  if (status == SF_OK) return SF_OK;
  const struct sf_error detail = ledger->error;
  sf_ledger_close(ledger);
  return sf_error_set(error, status, "%s", *detail.text ? detail.text : sf_status_text(status));
}

void sf_ledger_close(struct sf_ledger *ledger) {
  if (ledger->store) sf_store_close(ledger->store);
  while (ledger->seen) {
    struct sf_ledger_seen *next = ledger->seen->next;
    sf_free(ledger->seen);
    ledger->seen = next;
  }
  ledger->store = NULL;
  sf_cover_count_destroy(ledger->cover);
  ledger->cover = NULL;
}
