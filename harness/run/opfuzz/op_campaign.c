#include "harness/run/opfuzz/op_campaign.h"

#include "harness/base/names.h"
#include "harness/base/system/clock.h"
#include "harness/run/campaign/finding_files.h"
#include "harness/run/support/progress.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 1024, CHUNK_TIMED = 128, WORKERS_MAX = 64 };

struct lane {
  int64_t next, end; /* cases of the chunk that are still to run */
  bool busy;
};

struct campaign {
  const struct sf_op_campaign_options *options;
  struct sf_op_campaign_result *result;
  struct sf_op_worker *workers[WORKERS_MAX];
  struct lane lanes[WORKERS_MAX];
  int64_t handed_out;
  int32_t lost;         /* processes */
  int64_t new_findings; /* that are not known */
  double begun;
  struct sf_progress progress;
};

static bool is_over(const struct campaign *campaign) {
  const struct sf_op_campaign_options *o = campaign->options;
  if ((o->pool.stop && *o->pool.stop) || campaign->lost >= SF_OP_LOST_MAX) return true;
  if (o->stop_after > 0 && campaign->new_findings >= o->stop_after) return true;
  return o->seconds > 0 && sf_clock_seconds() - campaign->begun >= o->seconds;
}

/* Gives an idle lane what is left of its chunk, or a new one; false when there is nothing to do. */
static enum sf_status feed(struct campaign *campaign, int32_t i, struct sf_error *error) {
  struct lane *lane = &campaign->lanes[i];
  const struct sf_op_campaign_options *o = campaign->options;
  if (is_over(campaign)) return SF_OK;
  if (lane->next == lane->end) {
    const int64_t chunk = o->seconds > 0 ? CHUNK_TIMED : CHUNK, left = o->cases - campaign->handed_out;
    lane->next = campaign->handed_out;
    lane->end = lane->next + (left < chunk ? left : chunk);
    campaign->handed_out = lane->end;
  }
  if (lane->next == lane->end) return SF_OK;
  const struct sf_op_job job = {.first = lane->next, .count = lane->end - lane->next};
  lane->busy = true;
  return sf_op_worker_send(campaign->workers[i], &job, error);
}

/* Kept by signature; of several cases the one with the lowest index. */
static void note(struct campaign *campaign, const struct sf_op_answer *answer) {
  struct sf_op_campaign_result *result = campaign->result;
  char signature[128];
  int32_t at = 0;
  result->found++;
  sf_op_signature(signature, sizeof signature, sf_op_of(campaign->options->pool.target, &answer->c), &answer->outcome);
  while (at < result->finding_count && strcmp(result->findings[at].signature, signature) < 0) at++;
  const bool known = at < result->finding_count && strcmp(result->findings[at].signature, signature) == 0;
  if (!known) {
    if (result->finding_count == SF_OP_FINDINGS_MAX) return;
    memmove(&result->findings[at + 1], &result->findings[at], (size_t)(result->finding_count - at) * sizeof result->findings[0]);
    memset(&result->findings[at], 0, sizeof result->findings[at]);
    result->finding_count++;
    campaign->new_findings += !campaign->options->known || !sf_known_has(campaign->options->known, signature);
  }
  struct sf_op_finding *finding = &result->findings[at];
  finding->count++;
  if (known && finding->first <= answer->index) return;
  memcpy(finding->signature, signature, sizeof signature);
  finding->first = answer->index;
  finding->c = answer->c;
  finding->outcome = answer->outcome;
  if (!known) sf_progress_say(&campaign->progress, "finding %s in case %" PRId64, signature, answer->index);
}

static void book(struct campaign *campaign, const struct sf_op_answer *answer) {
  struct sf_op_campaign_result *result = campaign->result;
  const bool finding = sf_op_is_finding((enum sf_op_class)answer->outcome.cls);
  result->cases += answer->done;
  result->skipped += answer->skipped;
  result->inconclusive += answer->inconclusive;
  result->passed += answer->done - answer->skipped - answer->inconclusive - finding;
  if (answer->inconclusive) memcpy(result->lack, answer->outcome.said, sizeof result->lack);
  result->judged += answer->judged;
  result->elements += answer->elements;
  campaign->lost += answer->outcome.cls == SF_OP_HANG || answer->inconclusive;
  if (finding) note(campaign, answer);
}

static void show_progress(struct campaign *campaign) {
  const struct sf_op_campaign_result *r = campaign->result;
  const struct sf_progress_count count = {.cases = r->cases, .findings = r->found, .distinct = r->finding_count};
  const double now = sf_clock_seconds();
  if (sf_progress_is_due(&campaign->progress, now)) sf_progress_show_count(&campaign->progress, now, &count);
}

static enum sf_status run_cases(struct campaign *campaign, struct sf_error *error) {
  const int32_t workers = campaign->options->workers;
  enum sf_status status = SF_OK;
  for (;;) {
    int32_t which = -1, busy = 0;
    struct sf_op_answer answer;
    for (int32_t i = 0; i < workers && status == SF_OK; i++)
      if (!campaign->lanes[i].busy) status = feed(campaign, i, error);
    for (int32_t i = 0; i < workers; i++) busy += campaign->lanes[i].busy;
    if (status != SF_OK || busy == 0) return status;
    status = sf_op_workers_wait(campaign->workers, workers, 1000, &which, &answer, error);
    if (status == SF_OK) show_progress(campaign);
    if (status != SF_OK || which < 0) continue;
    campaign->lanes[which].busy = false;
    campaign->lanes[which].next += answer.done;
    book(campaign, &answer);
  }
}

static enum sf_status write_text(const char *folder, const char *name, struct sf_text *text, struct sf_error *error) {
  char path[SF_OP_PATH + 32];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  const enum sf_status status = text->failed || !text->data ? SF_ENOMEM : sf_bytes_write_file(path, text->data, text->length, error);
  sf_text_destroy(text);
  *text = (struct sf_text){0};
  return status;
}

static enum sf_status write_finding(struct sf_op_finding *finding, const struct sf_op_campaign_options *options, struct sf_error *error) {
  const struct sf_op_target *target = options->pool.target;
  struct sf_text text = {0};
  if (strlen(options->out_dir) + NAME_MAX + 2 > sizeof finding->folder)
    return sf_error_set(error, SF_EUSAGE, "--out: the path is too long");
  enum sf_status status = sf_finding_directory_claim(finding->folder, sizeof finding->folder, options->out_dir, finding->signature, error);
  if (status == SF_OK) status = sf_op_case_to_json(&text, target, &finding->c, finding->signature);
  if (status == SF_OK) status = write_text(finding->folder, "case.json", &text, error);
  if (status == SF_OK) status = sf_op_case_to_json(&text, target, &finding->min.c, finding->signature);
  if (status == SF_OK) status = write_text(finding->folder, "min.json", &text, error);
  if (status == SF_OK) {
    char min[sizeof finding->folder + 16];
    snprintf(min, sizeof min, "%s/min.json", finding->folder);
    sf_op_report(&text, target, &finding->min.c, &finding->min.outcome, min, options->replay_options);
    status = write_text(finding->folder, "report.txt", &text, error);
  }
  sf_text_destroy(&text);
  return status;
}

static enum sf_status finish(struct campaign *campaign, struct sf_error *error) {
  struct sf_op_campaign_result *result = campaign->result;
  enum sf_status status = SF_OK;
  for (int32_t i = 0; i < result->finding_count && status == SF_OK; i++) {
    struct sf_op_finding *finding = &result->findings[i];
    status = sf_op_shrink(&finding->min, campaign->workers[0], campaign->options->pool.target, &finding->c, &finding->outcome,
                          campaign->options->shrink_budget, error);
    if (status == SF_OK) status = write_finding(finding, campaign->options, error);
  }
  return status;
}

bool sf_op_campaign_judged_nothing(const struct sf_op_campaign_result *result) {
  return result->cases > 0 && result->found == 0 &&
         (result->skipped + result->inconclusive == result->cases || (result->elements > 0 && result->judged == 0));
}

void sf_op_campaign_nothing_text(char *out, size_t size, const struct sf_op_campaign_result *result) {
  const bool others = result->skipped + result->inconclusive < result->cases;
  int length = snprintf(out, size, "nothing was judged: %" PRId64 " of %" PRId64 " cases were skipped", result->skipped, result->cases);
  if (result->inconclusive)
    length +=
        snprintf(out + length, size - (size_t)length, ", %" PRId64 " were inconclusive (last: %s)", result->inconclusive, result->lack);
  if (others) snprintf(out + length, size - (size_t)length, ", and of the others no element could be judged");
}

enum sf_status sf_op_campaign_run(struct sf_op_campaign_result *out, const struct sf_op_campaign_options *options, struct sf_error *error) {
  static struct campaign campaign;
  enum sf_status status = SF_OK;
  memset(&campaign, 0, sizeof campaign);
  memset(out, 0, sizeof *out);
  campaign.options = options;
  campaign.result = out;
  campaign.begun = sf_clock_seconds();
  campaign.progress = sf_progress_begin(options->progress ? stderr : NULL, isatty(STDERR_FILENO), campaign.begun);
  for (int32_t i = 0; i < options->workers && status == SF_OK; i++) status = sf_op_worker_create(&campaign.workers[i], &options->pool);
  if (status == SF_EIO) sf_error_set(error, status, "a process: %s", sf_errno_text(errno).text);
  if (status == SF_OK) status = run_cases(&campaign, error);
  sf_progress_end(&campaign.progress);
  out->seconds = sf_clock_seconds() - campaign.begun;
  out->ended_early = campaign.lost >= SF_OP_LOST_MAX;
  if (status == SF_OK) status = finish(&campaign, error);
  for (int32_t i = 0; i < options->workers; i++) sf_op_worker_destroy(campaign.workers[i]);
  return status;
}
