/* Confirms and shrinks one finding, and says why it fails, in a process that starts further processes. */
#include "harness/base/alloc.h"
#include "harness/base/system/clock.h"
#include "harness/run/framework/framework.h"
#include "harness/run/process/subject.h"
#include "harness/run/process/witness.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* At most this many runs of a case may die, for a confirmation and for a candidate, and lack something, with pauses between. */
enum { CONFIRM_ATTEMPTS = 3, CANDIDATE_ATTEMPTS = 2, LACK_ATTEMPTS = 4, LACK_PAUSE_US = 50000 };

#define TIME_IS_OVER "the time of the campaign is over"

struct shrink_loop {
  struct sf_pool *pool;
  const struct sf_job *job;
  double deadline;
  struct sf_outcome last; /* outcome of the last candidate that still failed in the same way */
  struct sf_case best;    /* that candidate */
  char *steps;            /* SF_STEPS_TEXT */
  int32_t trials;         /* of shrinking, run so far */
  enum sf_shrink_cut cut; /* why no further candidate is tried */
  enum sf_effort effort;  /* of candidates and of neighbours */
};

/* Whether the machine had too little for the run: that says nothing of the case. */
static bool lacked(const struct sf_outcome *outcome) { return outcome->lacked || outcome->status == SF_ENOMEM; }

/* Runs c in the pool's process, and again while the machine lacks something for it; false when the pool itself failed.
 * shrink_key: "", or the culprit to look for. script: NULL; or SF_SCRIPT_TEXT bytes for a framework's script, and the case is diagnosed
 * too. effort: as of a job. */
static bool run_case(struct sf_pool *pool, const struct sf_case *c, const char *shrink_key, double deadline, enum sf_effort effort,
                     char *script, struct sf_outcome *outcome) {
  static struct sf_job job;
  static struct sf_job_result result;
  memset(&job, 0, sizeof job);
  job.kind = SF_JOB_RUN;
  job.diagnose = script != NULL;
  job.effort = effort;
  job.deadline = deadline;
  job.c = *c;
  snprintf(job.shrink_key, sizeof job.shrink_key, "%s", shrink_key);
  enum sf_status status = SF_EIO;
  for (int attempt = 0; attempt < LACK_ATTEMPTS; attempt++) {
    usleep((useconds_t)(attempt * LACK_PAUSE_US));
    status = sf_pool_run_job(pool, &job, &result);
    if (status == SF_ECANCELLED || (status == SF_OK && !lacked(&result.outcome))) break;
  }
  if (status != SF_OK) return false;
  *outcome = result.outcome;
  if (script) memcpy(script, result.script, sizeof result.script);
  return true;
}

static bool same_failure(const struct sf_outcome *outcome, const char *shrink_key) {
  return outcome->status == SF_OK && outcome->verdict == SF_VERDICT_FINDING && sf_outcome_same_failure(outcome->shrink_key, shrink_key);
}

/* run_case, but a process that crashes may have been killed from outside: a crash other than the finding's is tried again in another
 * process. */
static bool run_unless_killed(struct shrink_loop *loop, const struct sf_case *c, const char *shrink_key, enum sf_effort effort,
                              char *script, struct sf_outcome *outcome) {
  for (int attempt = 0; attempt < CANDIDATE_ATTEMPTS; attempt++) {
    if (!run_case(loop->pool, c, shrink_key, loop->deadline, effort, script, outcome)) return false;
    const bool crashed = outcome->status == SF_OK && outcome->verdict == SF_VERDICT_FINDING && sf_class_cuts_off(outcome->cls);
    if (!crashed || same_failure(outcome, loop->job->shrink_key)) break;
  }
  return true;
}

/* Runs a candidate or a neighbour. False: no process could be started. */
static bool try_case(struct shrink_loop *loop, const struct sf_case *c, struct sf_outcome *outcome) {
  return run_unless_killed(loop, c, loop->job->shrink_key, loop->effort, NULL, outcome);
}

static bool fails_in_the_same_way(struct shrink_loop *loop, const struct sf_case *c) {
  struct sf_outcome outcome;
  const bool ran = try_case(loop, c, &outcome);
  if (!ran || lacked(&outcome)) loop->cut = SF_SHRINK_CUT_LACK;
  if (!ran || !same_failure(&outcome, loop->job->shrink_key)) return false;
  loop->last = outcome;
  return true;
}

static bool still_fails(void *ctx, const struct sf_case *c) {
  struct shrink_loop *loop = ctx;
  if (loop->job->shrink_until > 0 && sf_clock_seconds() >= loop->job->shrink_until) loop->cut = SF_SHRINK_CUT_TIME;
  if (loop->cut != SF_SHRINK_CUT_NOT) return false;
  loop->trials++;
  const bool fails = fails_in_the_same_way(loop, c);
  sf_steps_note(loop->steps, &loop->best, c, fails);
  if (fails) loop->best = *c;
  return fails;
}

/* The table of the job's case. Memory that lacks may be there a moment later. */
static enum sf_status make_table(struct sf_subject_table *of, const struct sf_job *job, const struct sf_pool_options *options,
                                 enum sf_table_purpose purpose) {
  enum sf_status status = SF_ENOMEM;
  for (int attempt = 0; status == SF_ENOMEM && attempt < LACK_ATTEMPTS; attempt++) {
    usleep((useconds_t)(attempt * LACK_PAUSE_US));
    status = sf_subject_of(&job->c)->table(of, &job->c, options, purpose);
  }
  return status;
}

static void shrink(struct shrink_loop *loop, const struct sf_pool_options *options, struct sf_job_result *result) {
  static struct sf_subject_table of;
  const struct sf_job *job = loop->job;
  const struct sf_subject *subject = sf_subject_of(&job->c);
  const bool is_capped = job->was_hang && subject->slow_budget > 0 && job->budget > subject->slow_budget;
  struct sf_shrink_report report;
  memset(&report, 0, sizeof report);
  struct sf_case min;
  const int32_t before = loop->trials;
  if (make_table(&of, job, options, job->was_hang ? SF_TABLE_SHRINK_SLOWLY : SF_TABLE_SHRINK) != SF_OK) return;
  enum sf_status status = SF_ENOMEM;
  for (int attempt = 0; status == SF_ENOMEM && attempt < LACK_ATTEMPTS; attempt++) {
    loop->last = result->min_outcome;
    loop->best = job->c;
    status = sf_shrink_run(&min, &job->c, &of.table, still_fails, loop, is_capped ? subject->slow_budget : job->budget, &report);
  }
  if (status != SF_OK) return;
  result->min = min;
  result->min_outcome = loop->last;
  result->evaluations += loop->trials - before;
  result->budget = loop->job->budget;
  result->cut = loop->cut;
  result->minimal = report.minimal && loop->cut == SF_SHRINK_CUT_NOT;
}

/* End to end, an error below the noise level of its module is found only in a later module. In isolated mode a module has only the noise of
 * its own rounding. If the case fails there as well, its first failing module is the culprit, and that failure is shrunk. */
static void name_culprit(struct shrink_loop *loop, struct sf_job *job, struct sf_job_result *result) {
  static const double NEAR_NOISE = 10; /* in noise levels; larger errors are found in the module that makes them */
  const struct sf_outcome *found = &result->outcome;
  struct sf_case alone = job->c;
  struct sf_outcome outcome;
  if (!sf_subject_of(&job->c)->can_isolate || job->c.mode != SF_MODE_E2E || found->cls != SF_CLASS_TOLERANCE ||
      !(found->ratio < NEAR_NOISE))
    return;
  alone.mode = SF_MODE_ISOLATED;
  if (sf_case_validate(&alone, NULL) != SF_OK || !run_unless_killed(loop, &alone, "", SF_EFFORT_USUAL, NULL, &outcome)) return;
  if (outcome.status != SF_OK || outcome.verdict != SF_VERDICT_FINDING) return;
  job->c = result->min = alone;
  result->min_outcome = outcome;
  memcpy(job->shrink_key, outcome.shrink_key, sizeof job->shrink_key);
}

/* Runs the shrunk case once more, to diagnose it. A failure here changes no verdict. Failures that break a launcher's ranks leave no traces
 * to look at, and another run would start a new set and might wait for its deadline. False: it ran to its end and did not fail so. */
static bool diagnose(struct shrink_loop *loop, const struct sf_pool_options *options, struct sf_job_result *result) {
  struct sf_outcome outcome;
  if (result->min_outcome.cls == SF_CLASS_HANG || sf_class_cuts_off(result->min_outcome.cls)) return true;
  if (options->launcher && sf_outcome_breaks_ranks(&result->min_outcome)) return true;
  if (!run_unless_killed(loop, &result->min, loop->job->shrink_key, SF_EFFORT_THOROUGH, result->script, &outcome)) return true;
  if (!same_failure(&outcome, loop->job->shrink_key)) return !sf_outcome_ran_to_its_end(&outcome);
  const struct sf_job shown = {.c = result->min, .diagnose = true, .deadline = loop->deadline};
  sf_diagnosis_confirm(&outcome, options, &shown);
  result->min_outcome = outcome;
  return true;
}

/* If the smallest case of quick judgements does not fail when it is judged as usual, shrinks again by usual ones. */
static void shrink_and_diagnose(struct shrink_loop *loop, const struct sf_pool_options *options, struct sf_job_result *result) {
  const struct sf_case first = result->min;
  const struct sf_outcome outcome = result->min_outcome;
  shrink(loop, options, result);
  if (diagnose(loop, options, result) || loop->effort == SF_EFFORT_USUAL) return;
  loop->effort = SF_EFFORT_USUAL;
  *loop->steps = '\0';
  result->min = first;
  result->min_outcome = outcome;
  shrink(loop, options, result);
  diagnose(loop, options, result);
}

/* --- contrast ---------------------------------------------------------------------------------------------------- */

struct contrast_loop {
  struct shrink_loop *shrink;
  const struct sf_pool_options *options;
  double seconds;  /* after which a trial of the smallest case counts as hung */
  const char *cut; /* why it ended early */
};

/* Neighbours that may take much longer than the smallest case are left out. */
static bool allows(void *ctx, const struct sf_case *c) {
  static const double LONGER = 1.2; /* most of that time does not depend on the case */
  const struct contrast_loop *loop = ctx;
  return sf_pool_deadline(loop->options, c) <= LONGER * loop->seconds;
}

/* A case that hangs would take its deadline, and its neighbours may hang too. */
static bool ask(void *ctx, enum sf_contrast_answer *answer, const struct sf_case *c) {
  struct contrast_loop *loop = ctx;
  const struct sf_job *job = loop->shrink->job;
  struct sf_outcome outcome;
  if (job->contrast_until > 0 && sf_clock_seconds() >= job->contrast_until)
    loop->cut = TIME_IS_OVER;
  else if (!try_case(loop->shrink, c, &outcome))
    loop->cut = "no process could be started";
  else if (outcome.status == SF_OK && outcome.verdict == SF_VERDICT_FINDING && outcome.cls == SF_CLASS_HANG)
    loop->cut = "a neighbour of the case hangs";
  else if (lacked(&outcome))
    loop->cut = "the machine lacked memory, processes or connections for a trial";
  if (loop->cut != NULL) return false;
  const bool fails = same_failure(&outcome, job->shrink_key) || (outcome.status == SF_OK && outcome.verdict == SF_VERDICT_FINDING &&
                                                                 sf_outcome_shown_has(outcome.shown, job->shrink_key));
  const bool passes = outcome.status == SF_OK && outcome.verdict == SF_VERDICT_PASS;
  *answer = fails ? SF_CONTRAST_FAILS : passes ? SF_CONTRAST_PASSES : SF_CONTRAST_UNCLEAR;
  return true;
}

/* Why the smallest case has no contrast; NULL: it gets one. */
static const char *no_contrast(const struct sf_job *job, const struct sf_pool_options *options, const struct sf_outcome *min) {
  if (min->cls == SF_CLASS_HANG) return "each trial would take the whole deadline";
  if (options->launcher && sf_outcome_breaks_ranks(min)) return "each trial would take a new set of ranks";
  if (job->others_wait) return "other findings had to be shrunk first; `shardfuzz shrink` tries it";
  return job->contrast_until > 0 && sf_clock_seconds() >= job->contrast_until ? TIME_IS_OVER : NULL;
}

/* Says why the smallest case fails. A failure here changes no verdict. */
static void contrast(struct shrink_loop *loop, const struct sf_pool_options *options, struct sf_job_result *result) {
  static struct sf_subject_table of;
  static struct sf_contrast found;
  struct contrast_loop asking = {.shrink = loop, .options = options, .seconds = sf_pool_deadline(options, &result->min)};
  const struct sf_contrast_asker asker = {.ask = ask, .allows = allows, .ctx = &asking};
  const struct sf_job *job = loop->job;
  const char *reason = no_contrast(job, options, &result->min_outcome);
  if (result->is_suspects) reason = "another finding has the same smallest case";
  if (job->contrast == 0 || job->budget == 0) return;
  if (reason == NULL && make_table(&of, job, options, SF_TABLE_CONTRAST) != SF_OK) return;
  enum sf_status status = SF_ENOMEM;
  for (int attempt = 0; reason == NULL && status == SF_ENOMEM && attempt < LACK_ATTEMPTS; attempt++)
    status = sf_contrast_run(&found, &result->min, &job->c, &of.table, &asker, job->contrast);
  if (reason == NULL && status == SF_ENOMEM) reason = "there was no memory for it";
  if (reason != NULL)
    sf_contrast_write_skipped(result->contrast, reason);
  else if (status == SF_OK)
    sf_contrast_write(result->contrast, &found, &of.table, found.cut_short ? asking.cut : NULL);
}

/* Runs the case again, in another process whenever one dies. It does not fail in the same way if a run reaches its end without it. A death
 * may have come from outside: it does not repeat if two runs die in one other place. False: it does not, or nothing shows it; result->end
 * and result->outcome say which. */
static bool confirm(struct shrink_loop *loop, struct sf_job_result *result) {
  const struct sf_job *job = loop->job;
  struct sf_outcome *seen = &result->outcome;
  const char *death = sf_finding_class_name(SF_CLASS_CRASH);
  const bool is_death = strncmp(job->shrink_key, death, strlen(death)) == 0;
  char other_way[SF_SHRINK_KEY_TEXT] = "";
  for (int attempt = 0; attempt < CONFIRM_ATTEMPTS; attempt++) {
    const double deadline = job->was_hang ? 10 * loop->deadline : loop->deadline;
    if (!run_case(loop->pool, &job->c, job->shrink_key, deadline, SF_EFFORT_THOROUGH, NULL, seen)) {
      seen->status = SF_EIO;
      snprintf(seen->text, sizeof seen->text, "no process could be started to confirm the finding");
    }
    const bool same = same_failure(seen, job->shrink_key);
    const bool again = is_death && *other_way && same_failure(seen, other_way);
    result->end = same ? SF_SHRINK_DONE : again || sf_outcome_ran_to_its_end(seen) ? SF_SHRINK_FLAKY : SF_SHRINK_UNCONFIRMED;
    snprintf(other_way, sizeof other_way, "%s", seen->status == SF_OK && seen->verdict == SF_VERDICT_FINDING ? seen->shrink_key : "");
    if (seen->status != SF_OK || result->end != SF_SHRINK_UNCONFIRMED) return same;
  }
  return false;
}

/* Whether one of the suspects explains the finding: the case contains it, and without what it needs does not fail so any more. The suspect
 * is then the smallest case. What they do not explain is shrunk from a case that lacks them all, which takes the place of the job's. */
static bool is_explained(struct shrink_loop *loop, struct sf_job *job, const struct sf_pool_options *options,
                         struct sf_job_result *result) {
  static struct sf_subject_table of;
  const struct sf_subject *subject = sf_subject_of(&job->c);
  loop->best = job->c;
  for (int32_t i = 0; i < job->suspect_count; i++) {
    const struct sf_case *suspect = &job->suspects[i];
    struct sf_case rest;
    if (!subject->contains(&job->c, suspect)) continue;
    result->evaluations += 2;
    const bool has_table = make_table(&of, job, options, SF_TABLE_SHRINK) == SF_OK;
    if (has_table && sf_shrink_without(&of.table, &rest, &job->c, suspect) && still_fails(loop, &rest)) {
      job->c = rest;
      continue;
    }
    if (!still_fails(loop, suspect)) continue; /* it was found at a moment that does not come again */
    result->end = SF_SHRINK_DONE;
    result->min = *suspect;
    result->min_outcome = result->outcome = loop->last;
    result->budget = job->budget;
    result->minimal = true;
    return true;
  }
  return false;
}

/* Compares cases as the store keeps them, which is how the ledger finds the other finding. */
static bool is_suspect(const struct sf_job *job, const struct sf_case *min) {
  char *text = NULL;
  bool is = false;
  if (job->suspect_count == 0 || sf_case_to_json(&text, min) != SF_OK) return false;
  for (int32_t i = 0; i < job->suspect_count && !is; i++) {
    char *other = NULL;
    is = sf_case_to_json(&other, &job->suspects[i]) == SF_OK && strcmp(text, other) == 0;
    sf_free(other);
  }
  sf_free(text);
  return is;
}

static void confirm_and_shrink(struct shrink_loop *loop, struct sf_job *shrunk, const struct sf_pool_options *options,
                               struct sf_job_result *result) {
  const struct sf_job *job = loop->job;
  loop->effort = sf_subject_of(&job->c)->judges_quickly ? SF_EFFORT_QUICK : SF_EFFORT_USUAL;
  result->is_explained = job->budget > 0 && is_explained(loop, shrunk, options, result); /* costs less than to confirm it */
  if (!result->is_explained) {
    if (!confirm(loop, result)) return;
    result->min = job->c;
    result->min_outcome = result->outcome;
  }
  if (job->budget > 0 && !result->is_explained) {
    name_culprit(loop, shrunk, result);
    shrink_and_diagnose(loop, options, result);
  } else {
    diagnose(loop, options, result);
  }
  result->is_suspects = is_suspect(job, &result->min);
  contrast(loop, options, result);
}

void sf_shrink_job(struct sf_pool **kept, const struct sf_pool_options *options, const struct sf_job *job, struct sf_job_result *result) {
  struct sf_pool_options single = *options;
  single.processes = 1;
  single.hash_trace = false;
  if (single.launcher) single.launch_ranks = (int32_t)sf_case_ranks(&job->c); /* smaller cases never have more */
  memset(result, 0, sizeof *result);
  result->tag = job->tag;
  struct sf_job shrunk = *job;
  static struct shrink_loop loop;
  memset(&loop, 0, sizeof loop);
  loop.job = &shrunk;
  loop.steps = result->steps;
  loop.deadline = job->deadline > 0 ? job->deadline : sf_pool_deadline(options, &job->c);
  loop.pool = *kept;
  const enum sf_status status = loop.pool ? SF_OK : sf_pool_create(&loop.pool, &single);
  if (status == SF_OK) {
    confirm_and_shrink(&loop, &shrunk, options, result);
  } else {
    result->outcome.status = status;
    snprintf(result->outcome.text, sizeof result->outcome.text, "no process could be started to confirm the finding");
  }
  const bool starts_at_once = options->framework && options->framework->zygote;
  *kept = sf_subject_of(&job->c)->keeps_processes && !starts_at_once ? loop.pool : NULL;
  if (!*kept) sf_pool_destroy(loop.pool);
}
