#include "harness/run/gate.h"

#include "harness/base/alloc.h"
#include "harness/base/bytes.h"
#include "harness/run/finding_files.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct gate {
  const struct sf_gate_options *options;
  struct sf_gate_result *result;
  struct sf_error *error;
  /* the corpus while it is replayed */
  struct sf_case *cases;
  int32_t next;
  enum sf_status status;
};

static const char *const state_texts[] = {"ok", "new", "known", "also in base", "not as expected"};
const char *sf_gate_state_text(enum sf_gate_state state) { return state_texts[state]; }

static struct sf_gate_item *add_item(struct gate *g) {
  struct sf_gate_result *r = g->result;
  struct sf_gate_item *items = sf_realloc(r->items, (size_t)(r->item_count + 1) * sizeof *items);
  if (!items) return NULL;
  r->items = items;
  memset(&items[r->item_count], 0, sizeof *items);
  return &items[r->item_count++];
}

/* --- the corpus ------------------------------------------------------------------------------------------------ */

static int is_case_file(const struct dirent *entry) {
  const size_t length = strlen(entry->d_name);
  return length > 5 && strcmp(entry->d_name + length - 5, ".json") == 0;
}

static enum sf_status read_corpus(struct gate *g) {
  struct dirent **names = NULL;
  const char *folder = g->options->corpus;
  const int count = scandir(folder, &names, is_case_file, alphasort);
  if (count < 0) return sf_error_set(g->error, SF_EINPUT, "%s: %s", folder, strerror(errno));
  enum sf_status status = SF_OK;
  g->cases = sf_alloc((size_t)(count + 1) * sizeof *g->cases);
  if (!g->cases) status = sf_error_set(g->error, SF_ENOMEM, "out of memory");
  for (int i = 0; i < count; i++) {
    struct sf_gate_item *item = status == SF_OK ? add_item(g) : NULL;
    if (item) {
      snprintf(item->name, sizeof item->name, "%.700s/%.255s", folder, names[i]->d_name);
      status = sf_case_read(&g->cases[g->result->corpus_count++], item->name, g->error);
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
  if (g->next >= g->result->corpus_count) return 0;
  memset(jobs, 0, sizeof *jobs);
  jobs->tag = g->next;
  jobs->deadline = g->options->campaign.deadline;
  jobs->c = g->cases[g->next++];
  return 1;
}

static void corpus_case_done(void *ctx, const struct sf_job *job, const struct sf_job_result *result) {
  struct gate *g = ctx;
  struct sf_gate_item *item = &g->result->items[job->tag];
  const struct sf_outcome *seen = &result->outcome;
  item->seconds = seen->seconds;
  if (seen->status != SF_OK) {
    if (g->status == SF_OK) g->status = sf_error_set(g->error, seen->status, "%s: %.300s", item->name, seen->text);
    return;
  }
  const struct sf_expect pass = {true, "PASS", ""};
  const struct sf_expect *expect = job->c.expect.present ? &job->c.expect : &pass;
  if (sf_outcome_as_expected(seen, expect)) return;
  item->state = SF_GATE_UNEXPECTED;
  g->result->corpus_failed++;
  snprintf(item->text, sizeof item->text, "expected %s %s, saw %s %s: %.700s", expect->verdict, expect->signature, sf_verdict_name(seen->verdict), seen->signature,
           seen->text);
}

static enum sf_status replay_corpus(struct gate *g) {
  struct sf_pool *pool = NULL;
  enum sf_status status = read_corpus(g);
  if (status != SF_OK) return status;
  status = sf_pool_create(&pool, &g->options->campaign.pool);
  if (status == SF_OK) {
    const struct sf_pool_client client = {g, next_case, corpus_case_done, NULL};
    status = sf_pool_run(pool, &client);
  }
  sf_pool_destroy(pool);
  return status != SF_OK ? sf_error_set(g->error, status, "the corpus could not be replayed: %s", sf_status_text(status)) : g->status;
}

/* --- findings -------------------------------------------------------------------------------------------------- */

/* Replays a case with the base's executable and compares the signature on its last line of output. */
static bool base_has(const struct gate *g, const char *path, const char *signature) {
  char program[SF_PATH_TEXT + 16], command[3 * SF_PATH_TEXT], line[65536], last[65536] = "", wanted[SF_SIGNATURE_TEXT + 32];
  struct stat info;
  const bool folder = stat(g->options->base, &info) == 0 && S_ISDIR(info.st_mode);
  snprintf(program, sizeof program, "%s%s", g->options->base, folder ? "/shardfuzz" : "");
  snprintf(command, sizeof command, "'%s' replay '%s' --json 2>/dev/null", program, path);
  FILE *output = popen(command, "r");
  if (!output) return false;
  while (fgets(line, sizeof line, output)) memcpy(last, line, sizeof last);
  pclose(output);
  snprintf(wanted, sizeof wanted, "\"signature\":\"%s\"", signature);
  return strstr(last, wanted) != NULL;
}

static enum sf_status visit_finding(void *ctx, const struct sf_store_finding *finding) {
  struct gate *g = ctx;
  struct sf_gate_item *item = add_item(g);
  if (!item) return SF_ENOMEM;
  snprintf(item->name, sizeof item->name, "%s", finding->signature);
  snprintf(item->text, sizeof item->text, "%s", finding->report);
  char directory[SF_PATH_TEXT - 16];
  sf_finding_directory(directory, sizeof directory, g->options->campaign.out_dir, finding->signature);
  snprintf(item->min_path, sizeof item->min_path, "%s/%s", directory, finding->min_json ? "min.json" : "case.json");
  item->state = finding->known ? SF_GATE_KNOWN : SF_GATE_NEW;
  if (item->state == SF_GATE_NEW && g->options->base && base_has(g, item->min_path, finding->signature)) item->state = SF_GATE_IN_BASE;
  return SF_OK;
}

static enum sf_status list_findings(struct gate *g) {
  const struct sf_store_options options = {.path = g->options->campaign.store_path, .mode = SF_STORE_READ};
  struct sf_store *store = NULL;
  enum sf_status status = sf_store_open(&store, &options, g->error);
  if (status != SF_OK) return status;
  status = sf_store_each_finding(store, visit_finding, g, g->error);
  sf_store_close(store);
  return status;
}

static enum sf_status check_base(const struct gate *g) {
  if (g->options->base && access(g->options->base, X_OK) != 0) return sf_error_set(g->error, SF_EINPUT, "%s: %s", g->options->base, strerror(errno));
  return SF_OK;
}

enum sf_status sf_gate_run(const struct sf_gate_options *options, struct sf_gate_result *result, struct sf_error *error) {
  struct sf_error detail = {SF_OK, ""};
  struct gate g = {.options = options, .result = result, .error = &detail};
  memset(result, 0, sizeof *result);
  enum sf_status status = check_base(&g);
  if (status == SF_OK && options->corpus) status = replay_corpus(&g);
  if (status == SF_OK) status = sf_campaign_run(&options->campaign, &result->campaign, &detail);
  if (status == SF_OK) status = list_findings(&g);
  sf_free(g.cases);
  if (status != SF_OK) {
    sf_gate_destroy(result);
    return sf_error_set(error, status, "%s", *detail.text ? detail.text : sf_status_text(status));
  }
  result->passed = true;
  for (int32_t i = 0; i < result->item_count; i++) result->passed &= result->items[i].state != SF_GATE_NEW && result->items[i].state != SF_GATE_UNEXPECTED;
  return SF_OK;
}

void sf_gate_destroy(struct sf_gate_result *result) {
  sf_free(result->items);
  memset(result, 0, sizeof *result);
}
