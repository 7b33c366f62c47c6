/* Faults inside a computation: attn-dq-wrong, nonautograd-allreduce, mean-of-means-accum, cp-local-loss-mean,
 * cp-attn-bwd-wrong. */
#include "targets/builtin/parallel/fault.h"

void sf_fault_softmax_bwd_no_row_sum(float *ds, const float *dp, const float *p, int64_t n, enum sf_dtype store) {
  for (int64_t i = 0; i < n * n; i++) ds[i] = sf_round(p[i] * dp[i], store);
}

void sf_fault_drop_foreign_rows(float *dlogits, const int32_t *labels, int64_t rows, int64_t cols, int64_t first) {
  for (int64_t row = 0; row < rows; row++)
    if (labels[row] < first || labels[row] >= first + cols) memset(dlogits + row * cols, 0, (size_t)cols * sizeof *dlogits);
}

float sf_fault_mean_of_means_factor(const struct sf_case *c, int64_t step, const float *mask) {
  double kept = 0.0;
  for (int64_t t = 0; t < c->model.seq * c->train.microbatch_size; t++) kept += mask[t];
  return (float)((double)sf_data_step_tokens(c, step) / (kept * (double)c->train.microbatches));
}

double sf_fault_cp_local_count(const struct sf_case *c, double own) { return (own > 0.0 ? own : 1.0) * (double)c->layout.cp; }

void sf_fault_normalise_blocks(float *p, int64_t rows, int64_t seq, int64_t cp) {
  const int64_t chunk = seq / (2 * cp);
  for (int64_t row = 0; row < rows; row++, p += seq)
    for (int64_t owner = 0; owner < cp; owner++) {
      float *early = p + owner * chunk, *late = p + (2 * cp - 1 - owner) * chunk;
      float sum = 0.0f;
      for (int64_t j = 0; j < chunk; j++) sum += early[j] + late[j];
      if (!(sum > 0.0f)) continue;
      for (int64_t j = 0; j < chunk; j++) early[j] /= sum, late[j] /= sum;
    }
}
