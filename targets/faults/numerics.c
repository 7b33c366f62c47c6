/* Faults inside a computation: attn-dq-wrong, nonautograd-allreduce, mean-of-means-accum. */
#include "targets/fault.h"

void sf_fault_softmax_bwd_no_row_sum(float *ds, const float *dp, const float *p, int64_t n, enum sf_dtype store) {
  for (int64_t i = 0; i < n * n; i++) ds[i] = sf_round(p[i] * dp[i], store);
}

void sf_fault_drop_foreign_rows(float *dlogits, const int32_t *labels, int64_t rows, int64_t cols, int64_t first) {
  for (int64_t row = 0; row < rows; row++)
    if (labels[row] < first || labels[row] >= first + cols) memset(dlogits + row * cols, 0, (size_t)cols * sizeof *dlogits);
}

float sf_fault_mean_of_means_factor(const struct sf_case *c, int64_t step, double kept) {
  return (float)((double)sf_data_step_tokens(c, step) / (kept * (double)c->train.microbatches));
}
