/* Diagnoses a finding: a second run of the case keeps the failing tensor's shards, which go to the oracle. */
#include "harness/base/alloc.h"
#include "harness/run/evidence/evidence.h"
#include "harness/run/trial/engine_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shard_list {
  uint64_t key;
  struct sf_diagnosis_shard *at; /* NULL: only counts them */
  int32_t count;
};

static void list_shard(void *ctx, int32_t rank, struct sf_trace_id id, const struct sf_shard_map *map, const float *data, int64_t rows,
                       int64_t cols) {
  struct shard_list *list = ctx;
  (void)rows;
  (void)cols;
  if (sf_trace_key(id) != list->key) return;
  if (list->at) list->at[list->count] = (struct sf_diagnosis_shard){.rank = rank, .map = *map, .data = data};
  list->count++;
}

/* Sorts by rank, so that a diagnosis of "the first" rank does not depend on the schedule. */
static int by_rank(const void *a, const void *b) {
  const struct sf_diagnosis_shard *x = a, *y = b;
  return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static void diagnose_log(struct sf_engine *engine, const struct sf_finding *finding, const struct sf_chunk_log *log,
                         struct sf_picture *picture, struct sf_diagnosis *out) {
  struct shard_list list = {.key = sf_trace_key(finding->id)};
  struct sf_diagnosis diagnosis;
  if (log->failed || !sf_chunk_log_visit(log->data, log->size_bytes, list_shard, &list)) return;
  list.at = sf_alloc((size_t)(list.count + 1) * sizeof *list.at);
  if (!list.at) return;
  list.count = 0;
  if (sf_chunk_log_visit(log->data, log->size_bytes, list_shard, &list)) {
    qsort(list.at, (size_t)list.count, sizeof *list.at, by_rank);
    if (sf_diagnose_finding(&diagnosis, picture, engine->collector, finding, list.at, list.count) == SF_OK) *out = diagnosis;
  }
  sf_free(list.at);
}

/* Runs the same case with the same plant, and a listener instead of the judge. */
static bool run_again(struct sf_engine *engine, struct sf_chunk_log *log, uint64_t key) {
  struct sf_outcome unused; /* a mutant's effect is known already */
  struct sf_comm_report report;
  memset(&unused, 0, sizeof unused);
  memset(&report, 0, sizeof report);
  engine->listener = log;
  engine->listen_key = key;
  const enum sf_status status = sf_engine_run_sim(engine, &unused, &report);
  engine->listener = NULL;
  return status == SF_OK && report.status == SF_OK;
}

/* When ranks called different collectives: finds the first tensor that was wrong before, where they may have parted. Compares the tensors
 * that all their holders have traced. */
static void find_earlier(struct sf_engine *engine, struct sf_diagnosis *out) {
  struct sf_judgement judgement;
  char id[160];
  if (engine->options.mpi || !engine->collector) return; /* the traces of MPI ranks are lost */
  if (sf_judge(engine->collector, false, &judgement) != SF_OK || judgement.finding_count == 0) return;
  const struct sf_finding *finding = &judgement.findings[0];
  sf_trace_id_text(id, sizeof id, engine->catalog, finding->id);
  out->cls = SF_DIAGNOSIS_EARLIER;
  snprintf(out->cause, sizeof out->cause, "wrong before: %s of %s", sf_kind_name((enum sf_kind)finding->id.kind),
           finding->module >= 0 ? sf_modules[engine->catalog->modules[finding->module].cls].name : "none");
  snprintf(out->text, sizeof out->text, "%s was wrong before: %s", id, finding->text);
}

/* picture: NULL, or where the finding's tensor is drawn. */
static void diagnose(struct sf_engine *engine, const struct sf_case *c, const struct sf_chunk_log *record, struct sf_picture *picture,
                     struct sf_outcome *outcome) {
  struct sf_chunk_log log;
  if (outcome->status != SF_OK || outcome->verdict != SF_VERDICT_FINDING) return;
  engine->c = c;
  if (engine->judgement.finding_count == 0) {
    find_earlier(engine, &outcome->diagnosis);
    return;
  }
  const struct sf_finding *finding = &engine->judgement.findings[outcome->finding];
  memset(&log, 0, sizeof log);
  if (record)
    diagnose_log(engine, finding, record, picture, &outcome->diagnosis);
  else if (!engine->options.mpi && run_again(engine, &log, sf_trace_key(finding->id)))
    diagnose_log(engine, finding, &log, picture, &outcome->diagnosis);
  sf_chunk_log_destroy(&log);
}

void sf_engine_diagnose(struct sf_engine *engine, const struct sf_case *c, const struct sf_chunk_log *record, struct sf_outcome *outcome) {
  diagnose(engine, c, record, NULL, outcome);
}

void sf_engine_show(struct sf_engine *engine, const struct sf_case *c, const struct sf_chunk_log *record, struct sf_evidence *evidence,
                    struct sf_outcome *outcome) {
  struct sf_picture *picture = sf_alloc(sizeof *picture);
  diagnose(engine, c, record, picture, outcome);
  enum sf_status status = sf_evidence_of_judgement(evidence, c, engine->catalog, &engine->judgement);
  if (status == SF_OK && picture && picture->rows > 0) status = sf_evidence_add_picture(evidence, outcome->first_id, picture);
  if (status != SF_OK) sf_evidence_destroy(evidence);
  sf_free(picture);
}
