#include "targets/builtin/parallel/documents.h"

void sf_documents_create(struct sf_rank_run *run) {
  const int64_t tokens = run->c->model.seq * run->c->train.microbatch_size;
  run->documents = (struct sf_rank_documents){0};
  if (sf_data_has_documents(run->c)) run->documents.first = sf_rank_alloc(run->env, (size_t)tokens * sizeof(int32_t));
}

const int32_t *sf_documents(struct sf_rank_run *run) {
  struct sf_rank_documents *documents = &run->documents;
  if (documents->first == NULL) return NULL;
  if (!documents->drawn || documents->step != run->step || documents->microbatch != run->microbatch) {
    sf_data_documents(documents->first, run->c, run->step, run->microbatch);
    documents->step = run->step;
    documents->microbatch = run->microbatch;
    documents->drawn = true;
  }
  return documents->first;
}

int64_t sf_documents_span(const int32_t *documents, int64_t position, int64_t left) {
  if (documents == NULL) return left;
  int64_t count = 1;
  while (count < left && documents[position + count] == documents[position]) count++;
  return count;
}
