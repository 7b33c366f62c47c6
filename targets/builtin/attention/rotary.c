#include "targets/builtin/attention/rotary.h"

#include "targets/builtin/parallel/documents.h"
#include "targets/builtin/parallel/fault.h"

struct rotation {
  const float *cos_sin;
  int64_t width, ld_y, ld_x;
  bool inverse;
};

/* A run of positions whose first row is `row`. Each document of each sequence is counted by itself. */
static void rotate_documents(struct sf_rank_run *run, const struct rotation *rotation, float *y, const float *x, int64_t row,
                             const struct sf_run *positions, const int32_t *documents) {
  struct sf_device *dev = run->env->device;
  const int64_t batch = run->c->train.microbatch_size, end = positions->start + positions->len;
  for (int64_t sequence = 0; sequence < batch; sequence++, documents += run->c->model.seq)
    for (int64_t from = positions->start, len; from < end; from += len) {
      len = sf_documents_span(documents, from, end - from);
      const int64_t at = row + (from - positions->start) * batch + sequence;
      dev->ops->rotate(dev, y + at * rotation->ld_y, batch * rotation->ld_y, x + at * rotation->ld_x, batch * rotation->ld_x,
                       rotation->cos_sin, len, 1, from - documents[from], rotation->width, rotation->inverse, run->dtype);
    }
}

void sf_rotary_apply(struct sf_rank_run *run, float *y, int64_t ld_y, const float *x, int64_t ld_x, const float *cos_sin, int64_t width,
                     bool inverse) {
  struct sf_device *dev = run->env->device;
  const struct rotation rotation = {cos_sin, width, ld_y, ld_x, inverse};
  const int32_t *documents = sf_documents(run);
  const int64_t batch = run->c->train.microbatch_size;
  /* rope-cp-wrong-dim: a table cut along the batch in place of the sequence is not seen where its shape fits. */
  const bool uncut = sf_fault(run->env, SF_FAULT_ROPE_CP_WRONG_DIM) && batch % (2 * run->c->layout.cp) == 0;
  int64_t row = 0;
  for (int32_t i = 0; i < run->positions.count; i++) {
    const struct sf_run positions = run->positions.runs[i];
    if (documents != NULL)
      rotate_documents(run, &rotation, y, x, row, &positions, documents);
    else
      dev->ops->rotate(dev, y + row * ld_y, ld_y, x + row * ld_x, ld_x, cos_sin, positions.len * batch, batch,
                       uncut ? row / batch : positions.start, width, inverse, run->dtype);
    row += positions.len * batch;
  }
}
