#include "harness/run/campaign/job_campaign.h"

#include "harness/base/alloc.h"
#include "harness/base/bytes.h"
#include "harness/base/system/clock.h"
#include "harness/run/campaign/standing.h"
#include "harness/run/store/store.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK_LEAST = 32 };
enum { LOOK_MS = 100 };
/* A share without a store will have none, and one whose process was lost will not go on, if its process has been idle for so long. */
static const double MISSING_SECONDS = 60, LOST_SECONDS = 2;

int64_t sf_job_campaign_block(const struct sf_campaign_options *options) {
  if (options->pool.operations) return SF_STORE_SHARE_BLOCK; /* thousands a second */
  return (BLOCK_LEAST + options->layouts - 1) / options->layouts * options->layouts;
}

/* The stores of the shares, by process; items NULL: no memory. */
struct shares {
  char **paths;
  int32_t count;
};

static void shares_destroy(struct shares *shares) {
  for (int32_t i = 0; shares->paths != NULL && i < shares->count; i++) sf_free(shares->paths[i]);
  sf_free(shares->paths);
}

static bool shares_create(struct shares *out, const char *path, int32_t count) {
  *out = (struct shares){sf_alloc((size_t)count * sizeof *out->paths), count};
  bool fits = out->paths != NULL;
  for (int32_t i = 0; fits && i < count; i++) {
    struct sf_text text = {0};
    sf_text_append(&text, "%s.%d-of-%d", path, i + 1, count);
    out->paths[i] = text.data;
    fits = !text.failed;
  }
  return fits;
}

/* A campaign of few cases has none for the last shares. */
static bool has_cases(const struct sf_campaign_options *options, int32_t share) { return options->cases > share * options->share_block; }

/* N of a name "FILE.2-of-N"; 0: of another name. */
static int32_t shares_of_name(const char *name, const char *file) {
  const size_t length = strlen(file);
  int share = 0, count = 0, end = 0;
  if (strncmp(name, file, length) != 0 || sscanf(name + length, ".%d-of-%d%n", &share, &count, &end) != 2) return 0;
  return name[length + (size_t)end] == '\0' && share >= 1 && share <= count ? count : 0;
}

int32_t sf_job_campaign_shares(const char *path) {
  char folder[SF_PATH_TEXT] = ".";
  const char *slash = strrchr(path, '/');
  if (slash != NULL) snprintf(folder, sizeof folder, "%.*s", (int)(slash - path + 1), path);
  DIR *list = opendir(folder);
  int32_t most = 0;
  for (const struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;) {
    const int32_t count = shares_of_name(entry->d_name, slash != NULL ? slash + 1 : path);
    if (count > most) most = count;
  }
  if (list != NULL) closedir(list);
  return most;
}

/* --- waiting for the others ------------------------------------------------------------------------------------- */

enum end { END_NOT_YET, END_SOUND, END_LOST };

/* idle: seconds for which the share's process has been at no work. *ran: how many of its cases were run, if it has ended or was lost. */
static enum end end_of(const char *path, double idle, int64_t *ran) {
  struct sf_standing standing;
  struct sf_error error;
  *ran = 0;
  if (access(path, F_OK) != 0 || sf_standing_read(&standing, path, &error) != SF_OK) /* it is being made */
    return idle > MISSING_SECONDS ? END_LOST : END_NOT_YET;
  if (standing.state == SF_CAMPAIGN_RUNNING || (standing.state == SF_CAMPAIGN_ENDED && sf_store_has_writer(path))) return END_NOT_YET;
  if (standing.state != SF_CAMPAIGN_ENDED && idle <= LOST_SECONDS) return END_NOT_YET;
  *ran = standing.cases_run > 0 ? standing.cases_run : 0;
  return standing.state == SF_CAMPAIGN_ENDED ? END_SOUND : END_LOST;
}

/* Whether the process that has this share is at work on one of its shares. */
static bool is_at_work(const struct shares *shares, const struct sf_job_member *job, int32_t share) {
  for (int32_t i = share % job->processes; i < shares->count; i += job->processes)
    if (sf_store_has_writer(shares->paths[i])) return true;
  return false;
}

/* Counts the shares that were lost, and the cases that the others have run. False: there was a stop. */
static bool wait_for_others(const struct sf_campaign_options *options, const struct shares *shares, struct sf_job_member *job,
                            int64_t *cases_run) {
  const struct timespec look = {0, LOOK_MS * 1000000L};
  for (int32_t i = 0; i < shares->count && has_cases(options, i); i++) {
    if (i % job->processes == job->process) continue;
    struct sf_watch idle = {0};
    int64_t ran;
    enum end end;
    while ((end = end_of(shares->paths[i], sf_watch_seconds(&idle), &ran)) == END_NOT_YET) {
      if (sf_campaign_is_stopped(options)) return false;
      nanosleep(&look, NULL);
      if (is_at_work(shares, job, i)) idle = (struct sf_watch){0};
    }
    *cases_run += ran;
    job->lost += end == END_LOST;
  }
  return true;
}

/* --- joining ---------------------------------------------------------------------------------------------------- */

/* Joins the shares that are there, and what an earlier job has joined, into a new file that takes the place of `whole`. */
static enum sf_status join(const struct shares *shares, const char *whole, struct sf_error *error) {
  struct sf_store_merge_report report;
  struct sf_text fresh = {0};
  const char **inputs = sf_alloc((size_t)(shares->count + 1) * sizeof *inputs);
  int32_t count = 0;
  sf_text_append(&fresh, "%s.joined", whole);
  enum sf_status status = fresh.failed || inputs == NULL ? sf_error_set(error, SF_ENOMEM, "%s: out of memory", whole) : SF_OK;
  if (status == SF_OK) {
    for (int32_t i = 0; i < shares->count; i++)
      if (access(shares->paths[i], F_OK) == 0) inputs[count++] = shares->paths[i];
    if (access(whole, F_OK) == 0) inputs[count++] = whole;
    sf_store_remove_files(fresh.data); /* of a process that was killed here */
    status = sf_store_merge(&report, fresh.data, inputs, count, true, error);
  }
  if (status == SF_OK && rename(fresh.data, whole) != 0) status = sf_error_set(error, SF_EIO, "%s: %s", whole, sf_errno_text(errno).text);
  sf_text_destroy(&fresh);
  sf_free(inputs);
  return status;
}

/* Tells the whole campaign, and runs what is left of its cases. What time cut off stays as it is. */
static enum sf_status run_the_rest(struct sf_campaign_options *options, struct sf_campaign_result *result, int64_t cases_run,
                                   struct sf_error *error) {
  options->share_index = options->share_count = 0;
  options->resume = true;
  if (options->seconds > 0) options->cases = 1; /* it has run */
  const enum sf_status status = sf_campaign_run(options, result, error);
  result->cases_run += cases_run;
  return status;
}

/* One after the other: a job that goes on with fewer processes has several for each. */
static enum sf_status run_shares(struct sf_campaign_options *options, const struct shares *shares, const struct sf_job_member *job,
                                 struct sf_campaign_result *result, int64_t *cases_run, struct sf_error *error) {
  enum sf_status status = SF_OK;
  for (int32_t i = job->process; i < shares->count && status == SF_OK && !result->interrupted && has_cases(options, i);
       i += job->processes) {
    options->share_index = i;
    snprintf(options->store_path, sizeof options->store_path, "%s", shares->paths[i]);
    status = sf_campaign_run(options, result, error);
    *cases_run += result->cases_run;
  }
  return status;
}

enum sf_status sf_job_campaign_run(struct sf_campaign_options *options, struct sf_job_member *job, struct sf_campaign_result *result,
                                   struct sf_error *error) {
  struct shares shares;
  char whole[SF_PATH_TEXT];
  const double begin = sf_clock_seconds();
  int64_t cases_run = 0;
  enum sf_status status = SF_OK;
  job->lost = 0;
  snprintf(whole, sizeof whole, "%s", options->store_path);
  snprintf(options->job_path, sizeof options->job_path, "%s", whole);
  memset(result, 0, sizeof *result);
  if (!shares_create(&shares, whole, options->share_count)) status = sf_error_set(error, SF_ENOMEM, "%s: out of memory", whole);
  if (job->process > 0) options->progress = false; /* the first one speaks for the job */
  if (status == SF_OK) status = run_shares(options, &shares, job, result, &cases_run, error);
  if (status == SF_OK && job->process == 0 && !result->interrupted)
    result->interrupted = !wait_for_others(options, &shares, job, &cases_run);
  if (status == SF_OK && job->process == 0 && !result->interrupted) {
    status = join(&shares, whole, error);
    snprintf(options->store_path, sizeof options->store_path, "%s", whole);
    options->job_path[0] = '\0';
    if (status == SF_OK) status = run_the_rest(options, result, cases_run, error);
    result->seconds = sf_clock_seconds() - begin;
    if (result->cases_run == result->summary.cases) result->seconds_all = result->seconds;
  }
  shares_destroy(&shares);
  return status;
}
