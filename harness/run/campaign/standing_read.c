#include "harness/base/alloc.h"
#include "harness/run/campaign/standing.h"
#include "harness/run/store/store.h"

#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const double SILENT_SECONDS = 30;

/* What the rows alone tell, of a store that was merged or made by an earlier version. */
static enum sf_status standing_of_rows(struct sf_standing *out, const char *path, struct sf_error *error) {
  struct sf_store *store = NULL;
  struct sf_store_summary summary;
  struct stat info;
  enum sf_status status = sf_store_open(&store, &(struct sf_store_options){.path = path, .mode = SF_STORE_READ}, error);
  if (status == SF_OK) status = sf_store_summarise(store, &summary, error);
  sf_store_close(store);
  if (status != SF_OK) return status;
  *out = sf_standing_unknown();
  out->cases = summary.cases;
  out->passed = summary.by_verdict[SF_VERDICT_PASS];
  out->findings = summary.by_verdict[SF_VERDICT_FINDING];
  out->inconclusive = summary.by_verdict[SF_VERDICT_INCONCLUSIVE];
  out->skipped = summary.by_verdict[SF_VERDICT_SKIP];
  out->signatures = summary.signatures;
  out->new_signatures = summary.signatures - summary.signatures_known;
  if (stat(path, &info) == 0) out->updated_at = (double)info.st_mtime;
  return SF_OK;
}

/* A campaign that says that it runs, is on this machine and holds no lock, was killed. From another machine only its silence can tell, and
 * that is shown. */
static void notice_killed(struct sf_standing *standing, const char *path) {
  char host[SF_STANDING_HOST_TEXT] = "";
  if (standing->state != SF_CAMPAIGN_RUNNING || sf_store_has_writer(path)) return;
  if (gethostname(host, sizeof host) != 0) *host = '\0';
  host[sizeof host - 1] = '\0';
  if (strcmp(host, standing->host) == 0 || (double)time(NULL) - standing->updated_at > SILENT_SECONDS) standing->state = SF_CAMPAIGN_KILLED;
}

enum sf_status sf_standing_read(struct sf_standing *out, const char *path, struct sf_error *error) {
  struct sf_store *store = NULL;
  char *text = NULL;
  enum sf_status status = sf_store_open(&store, &(struct sf_store_options){.path = path, .mode = SF_STORE_PEEK}, error);
  if (status == SF_OK) status = sf_store_standing(store, &text, error);
  sf_store_close(store);
  if (status == SF_OK && sf_standing_from_json(out, text) != SF_OK) status = standing_of_rows(out, path, error);
  sf_free(text);
  if (status == SF_OK) notice_killed(out, path);
  return status;
}
