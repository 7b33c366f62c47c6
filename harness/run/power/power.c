#include "harness/run/power/power.h"

#include "harness/base/alloc.h"
#include "harness/run/power/searching.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum search_state { SEARCHING, TO_SHRINK, SHRINKING, DONE };
struct search_progress {
  enum search_state state;
  int64_t handed_out, answered;
};

enum { CLEAN_TAG = -1 };

struct power {
  struct sf_searching searching; /* stands first */
  const struct sf_power_options *options;
  struct sf_power_result *result;
  struct search_progress *progress; /* one for each search */
  int64_t clean_handed_out;
};

bool sf_power_is_localised(const struct sf_plant *plant, const struct sf_outcome *outcome) {
  if (outcome->verdict != SF_VERDICT_FINDING) return false;
  if (*plant->label) return strcmp(plant->label, outcome->label) == 0 && outcome->rank >= 0;
  return outcome->kind >= 0 && outcome->module_class >= 0 && (plant->kinds >> outcome->kind & 1) &&
         sf_plant_may_blame(plant, (enum sf_module_class)outcome->module_class);
}

bool sf_power_is_diagnosed(const struct sf_plant *plant, const struct sf_diagnosis *diagnosis) {
  char wanted[64];
  if (!plant->diagnosis || !*plant->diagnosis) return true;
  if (!*diagnosis->text) return false;
  snprintf(wanted, sizeof wanted, "%s", plant->diagnosis);
  char *rest = NULL;
  for (const char *word = strtok_r(wanted, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
    if (strcmp(word, sf_diagnosis_class_name(diagnosis->cls)) == 0) return true;
  }
  return false;
}

static bool has_reached(const struct sf_plant_minimal *minimal, const struct sf_case *min, const char *shrink_key) {
  if (minimal->ranks == 0 || (minimal->key && !strstr(shrink_key, minimal->key))) return false;
  if (sf_case_ranks(min) != minimal->ranks || min->model.layers != minimal->layers) return false;
  char fields[512];
  snprintf(fields, sizeof fields, "%s", minimal->fields);
  char *rest = NULL;
  for (char *word = strtok_r(fields, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
    char *value = strchr(word, '=');
    if (!value) return false;
    *value++ = '\0';
    const struct sf_field *field = sf_case_field_find(word);
    struct sf_case wanted = *min;
    if (!field || sf_case_field_parse(&wanted, word, value, NULL) != SF_OK) return false;
    if (field->type == SF_FIELD_TEXT ? memcmp((char *)&wanted + field->offset, (const char *)min + field->offset, field->size_bytes) != 0
                                     : sf_case_field_get(&wanted, field) != sf_case_field_get(min, field)) {
      return false;
    }
  }
  return true;
}

bool sf_power_is_minimal(const struct sf_plant *plant, const struct sf_case *min, const char *shrink_key) {
  return has_reached(&plant->minimal, min, shrink_key) || has_reached(&plant->also, min, shrink_key);
}

/* Tags: search number * 2^32 + case index. */
static int64_t tag_of(int64_t search, int64_t index) { return search << 32 | index; }

static int32_t next_of_search(struct power *p, int32_t number, struct sf_job *jobs, int32_t max) {
  struct sf_power_search *search = &p->result->searches[number];
  struct search_progress *progress = &p->progress[number];
  struct sf_campaign_options campaign = p->options->campaign;
  campaign.seed = search->seed;
  int64_t stop = (progress->handed_out / campaign.layouts + 1) * campaign.layouts;
  if (stop > p->options->cases) stop = p->options->cases;
  int32_t count = 0;
  while (count < max && progress->handed_out < stop) {
    struct sf_job *job = &jobs[count++];
    const int64_t index = progress->handed_out++;
    p->searching.status = sf_campaign_job(job, &campaign, tag_of(number, index), index, &p->searching.error);
    if (p->searching.status != SF_OK) return 0;
    job->flat_bound = true;
    snprintf(job->c.plant, sizeof job->c.plant, "%s", search->plant->id);
    if (search->found_at < 0) search->triggered += sf_plant_is_triggered(search->plant, &job->c);
  }
  return count;
}

static int32_t next_shrink(struct power *p, int32_t number, struct sf_job *job) {
  struct sf_power_search *search = &p->result->searches[number];
  sf_campaign_shrink_job(job, &p->options->campaign, tag_of(number, search->found_at), &search->c, &search->outcome);
  job->contrast = 0;
  p->progress[number].state = SHRINKING;
  return 1;
}

static int32_t next_clean(struct power *p, struct sf_job *jobs, int32_t max) {
  const struct sf_campaign_options *campaign = &p->options->campaign;
  int32_t count = 0;
  while (count < max && count < campaign->layouts && p->clean_handed_out < p->options->clean_cases) {
    struct sf_job *job = &jobs[count++];
    p->searching.status = sf_campaign_job(job, campaign, CLEAN_TAG, p->clean_handed_out++, &p->searching.error);
    if (p->searching.status != SF_OK) return 0;
    job->flat_bound = true;
  }
  return count;
}

static bool is_open(const struct sf_power_search *search) { return search->found_at < 0 || (search->flat_asked && search->flat_at < 0); }

static int32_t next_jobs(void *ctx, struct sf_job *jobs, int32_t max) {
  struct power *p = ctx;
  if (p->searching.status != SF_OK) return 0;
  for (int32_t i = 0; i < p->result->search_count; i++) {
    const struct search_progress *progress = &p->progress[i];
    if (progress->state == TO_SHRINK) return next_shrink(p, i, &jobs[0]);
    /* When both have found the plant no further case is needed. Cases that are under way are awaited, since one of them may have a lower
     * index. */
    if (progress->state == SEARCHING && is_open(&p->result->searches[i]) && progress->handed_out < p->options->cases) {
      return next_of_search(p, i, jobs, max);
    }
  }
  return next_clean(p, jobs, max);
}

static void on_clean(struct power *p, const struct sf_job *job, const struct sf_outcome *outcome) {
  struct sf_power_clean *clean = &p->result->clean[job->c.precision.compute];
  clean->cases++;
  clean->inconclusive += outcome->verdict == SF_VERDICT_INCONCLUSIVE;
  clean->skipped += outcome->verdict == SF_VERDICT_SKIP;
  clean->flat_cases += outcome->flat.tensors > 0;
  clean->flat_alarms += outcome->flat.beyond > 0;
  if (outcome->verdict != SF_VERDICT_FINDING) return;
  int64_t alarms = 0;
  for (int i = 0; i < SF_POWER_PRECISIONS; i++) alarms += p->result->clean[i].false_alarms;
  if (alarms == 0) {
    p->result->first_false_alarm = *outcome;
  }
  clean->false_alarms++;
}

static void on_answer(struct power *p, int32_t number, const struct sf_job *job, const struct sf_outcome *outcome) {
  struct sf_power_search *search = &p->result->searches[number];
  struct search_progress *progress = &p->progress[number];
  const int64_t index = job->tag & UINT32_MAX;
  progress->answered++;
  if (outcome->verdict == SF_VERDICT_FINDING && (search->found_at < 0 || index < search->found_at)) {
    search->found_at = index;
    search->outcome = *outcome;
    search->c = job->c;
  }
  if (outcome->flat_finds_plant && (search->flat_at < 0 || index < search->flat_at)) search->flat_at = index;
  if (progress->answered < progress->handed_out) return;
  if (is_open(search) && progress->handed_out < p->options->cases) return;
  progress->state = search->found_at >= 0 ? TO_SHRINK : DONE;
  p->searching.done += progress->state == DONE;
}

static void on_shrunk(struct power *p, int32_t number, const struct sf_job_result *result) {
  struct sf_power_search *search = &p->result->searches[number];
  p->progress[number].state = DONE;
  p->searching.done++;
  const bool done = result->end == SF_SHRINK_DONE;
  search->min = done ? result->min : search->c;
  search->min_outcome = done ? result->min_outcome : search->outcome;
  search->evaluations = result->evaluations;
  /* The module that the finding names; if shrinking changed to isolated mode, the one that failed first there. */
  const bool alone = search->c.mode == SF_MODE_E2E && strcmp(search->outcome.shrink_key, search->min_outcome.shrink_key) != 0;
  search->localised = sf_power_is_localised(search->plant, alone ? &search->min_outcome : &search->outcome);
  search->diagnosed = sf_power_is_diagnosed(search->plant, &search->min_outcome.diagnosis);
  search->minimal = done && sf_power_is_minimal(search->plant, &search->min, search->min_outcome.shrink_key);
}

static void job_done(void *ctx, const struct sf_job *job, const struct sf_job_result *result) {
  struct power *p = ctx;
  if (result->outcome.status != SF_OK) {
    if (p->searching.status == SF_OK)
      p->searching.status = sf_error_set(&p->searching.error, result->outcome.status, "%s", result->outcome.text);
  } else if (job->tag == CLEAN_TAG) {
    on_clean(p, job, &result->outcome);
  } else if (job->kind == SF_JOB_SHRINK) {
    on_shrunk(p, (int32_t)(job->tag >> 32), result);
  } else {
    on_answer(p, (int32_t)(job->tag >> 32), job, &result->outcome);
  }
}

static enum sf_status make_searches(struct power *p) {
  const struct sf_power_options *o = p->options;
  const int32_t count = o->plant_count * o->seeds;
  p->result->searches = sf_alloc((size_t)(count + 1) * sizeof *p->result->searches);
  p->progress = sf_alloc((size_t)(count + 1) * sizeof *p->progress);
  if (!p->result->searches || !p->progress) return SF_ENOMEM;
  p->result->search_count = count;
  for (int32_t i = 0; i < count; i++) {
    p->result->searches[i].plant = o->plants[i / o->seeds];
    p->result->searches[i].seed = o->campaign.seed + (uint64_t)(i % o->seeds);
    p->result->searches[i].flat_asked = !*p->result->searches[i].plant->label && !o->campaign.pool.launcher;
    p->result->searches[i].found_at = p->result->searches[i].flat_at = -1;
  }
  return SF_OK;
}

enum sf_status sf_power_run(const struct sf_power_options *options, struct sf_power_result *result, struct sf_error *error) {
  struct power p = {.options = options, .result = result};
  memset(result, 0, sizeof *result);
  enum sf_status status = make_searches(&p);
  p.searching.count = result->search_count;
  status = status == SF_OK ? sf_searching_run(&p.searching, &options->campaign, &options->campaign.pool, next_jobs, job_done, error)
                           : sf_error_set(error, status, "%s", sf_status_text(status));
  sf_free(p.progress);
  if (status != SF_OK) sf_power_destroy(result);
  return status;
}

void sf_power_destroy(struct sf_power_result *result) {
  sf_free(result->searches);
  memset(result, 0, sizeof *result);
}
