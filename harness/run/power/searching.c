#include "harness/run/power/searching.h"

#include "harness/run/trial/engine.h"

#include <unistd.h>

static bool tick(void *ctx) {
  struct sf_searching *s = ctx;
  const double now = sf_engine_now();
  if (sf_progress_is_due(&s->told, now)) sf_progress_show(&s->told, now, "%d of %d searches done", s->done, s->count);
  return s->status == SF_OK;
}

enum sf_status sf_searching_run(struct sf_searching *searching, const struct sf_campaign_options *campaign,
                                const struct sf_pool_options *pool, int32_t (*next)(void *ctx, struct sf_job *jobs, int32_t max),
                                void (*done)(void *ctx, const struct sf_job *job, const struct sf_job_result *result),
                                struct sf_error *error) {
  const struct sf_pool_client client = {searching, next, done, tick};
  struct sf_pool *workers = NULL;
  searching->told = sf_progress_begin(campaign->progress ? stderr : NULL, isatty(STDERR_FILENO), sf_engine_now());
  enum sf_status status = sf_pool_create(&workers, pool);
  if (status == SF_OK) {
    status = sf_pool_run(workers, &client);
    if (status != SF_OK) sf_pool_failure_text(searching->error.text, sizeof searching->error.text, pool, status);
    if (searching->status != SF_OK) status = searching->status;
  }
  sf_progress_end(&searching->told);
  sf_pool_destroy(workers);
  const char *text = searching->error.text;
  return status == SF_OK ? SF_OK : sf_error_set(error, status, "%s", *text ? text : sf_status_text(status));
}
