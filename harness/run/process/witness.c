#include "harness/run/process/witness.h"

#include "harness/run/process/subject.h"

#include <stdio.h>
#include <string.h>

/* Other seeds that are tried, since with some the case passes or fails otherwise; and witnesses that are heard. One of three may differ:
 * with its seed the case may show less. */
enum { SEEDS_MAX = 8, WITNESSES_MAX = 4, WITNESSES_ENOUGH = 3, SEED_STEP = 7919 };

static bool is_supposition(const struct sf_diagnosis *diagnosis) { return strncmp(diagnosis->cause, "as if", strlen("as if")) == 0; }

static bool agree(const struct sf_diagnosis *a, const struct sf_diagnosis *b) {
  return sf_diagnosis_says_why(a) && sf_diagnosis_says_the_same(a, b);
}

/* Runs the case with another seed. False: it does not fail in the same way. */
static bool ask(struct sf_diagnosis *out, const struct sf_outcome *outcome, const struct sf_pool_options *options, const struct sf_job *job,
                int64_t number) {
  static struct sf_job_result result;
  static struct sf_job other;
  other = *job;
  other.kind = SF_JOB_RUN;
  other.c.seed = (job->c.seed + number * SEED_STEP) & UINT32_MAX;
  memcpy(other.shrink_key, outcome->shrink_key, sizeof other.shrink_key);
  if (sf_pool_run_one(options, &other, &result) != SF_OK) return false;
  *out = result.outcome.diagnosis;
  return result.outcome.status == SF_OK && result.outcome.verdict == SF_VERDICT_FINDING &&
         sf_outcome_same_failure(result.outcome.shrink_key, outcome->shrink_key);
}

/* Withdraws a supposition that the witnesses do not confirm. */
static void take_back(struct sf_diagnosis *diagnosis) {
  char text[sizeof diagnosis->text];
  memcpy(text, diagnosis->text, sizeof text);
  char *end = strstr(text, "; this explains");
  if (end) *end = '\0';
  diagnosis->cls = SF_DIAGNOSIS_UNKNOWN;
  *diagnosis->cause = '\0';
  snprintf(diagnosis->text, sizeof diagnosis->text, "no simple cause explains the error with other seeds; with this one %.240s", text);
}

/* Takes the diagnosis of two witnesses that agree. False: no two do. */
static bool take_other(struct sf_diagnosis *own, const struct sf_diagnosis *seen, int32_t count) {
  const struct sf_numbers numbers = own->numbers;
  for (int32_t i = 0; i < count; i++)
    for (int32_t k = 0; k < i; k++) {
      if (!agree(&seen[k], &seen[i]) || agree(own, &seen[i])) continue;
      *own = seen[k];
      own->numbers = numbers;
      return true;
    }
  return false;
}

void sf_diagnosis_confirm(struct sf_outcome *outcome, const struct sf_pool_options *options, const struct sf_job *job) {
  struct sf_diagnosis *own = &outcome->diagnosis, seen[WITNESSES_MAX];
  struct sf_pool_options quiet = *options;
  int32_t count = 0, agreeing = 0;
  if (sf_subject_of(&job->c) != &sf_subject_layers || options->launcher || !is_supposition(own)) return;
  quiet.processes = 1;
  quiet.hash_trace = false;
  quiet.record = NULL;
  quiet.evidence = quiet.table = NULL;
  for (int64_t number = 1; number <= SEEDS_MAX && count < WITNESSES_MAX && agreeing < WITNESSES_ENOUGH; number++) {
    if (!ask(&seen[count], outcome, &quiet, job, number)) continue;
    agreeing += agree(own, &seen[count]);
    count++;
  }
  const int32_t differing = count - agreeing;
  if (differing <= (count >= WITNESSES_ENOUGH)) return;
  if (!take_other(own, seen, count)) take_back(own);
}

enum sf_status sf_diagnose_one(const struct sf_pool_options *options, struct sf_job *job, struct sf_job_result *result) {
  job->kind = SF_JOB_RUN;
  job->diagnose = true;
  const enum sf_status status = sf_pool_run_one(options, job, result);
  if (status == SF_OK && result->outcome.status == SF_OK && result->outcome.verdict == SF_VERDICT_FINDING)
    sf_diagnosis_confirm(&result->outcome, options, job);
  return status;
}
