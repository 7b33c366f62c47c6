#include "targets/builtin/linear/linear.h"

void sf_linear_forward_units(struct sf_device *dev, float *y, const float *a, const float *weight, float unit, int64_t tokens, int64_t in,
                             int64_t out, enum sf_dtype store) {
  const struct sf_gemm g = {
      .trans_b = true, .m = tokens, .n = out, .k = in, .a = a, .lda = in, .b = weight, .ldb = in, .c = y, .ldc = out, .alpha = unit};
  dev->ops->gemm(dev, &g, store);
}

void sf_linear_input_grad_units(struct sf_device *dev, float *da, const float *g, const float *weight, float unit, int64_t tokens,
                                int64_t in, int64_t out, enum sf_dtype store) {
  const struct sf_gemm gemm = {
      .m = tokens, .n = in, .k = out, .a = g, .lda = out, .b = weight, .ldb = in, .c = da, .ldc = in, .alpha = unit};
  dev->ops->gemm(dev, &gemm, store);
}

void sf_linear_weight_grad_part(struct sf_device *dev, float *dw, const float *g, const float *a, float unit, int64_t tokens, int64_t in,
                                int64_t out, bool accumulate) {
  const struct sf_gemm gemm = {.trans_a = true,
                               .m = out,
                               .n = in,
                               .k = tokens,
                               .a = g,
                               .lda = out,
                               .b = a,
                               .ldb = in,
                               .c = dw,
                               .ldc = in,
                               .alpha = unit,
                               .accumulate = accumulate};
  dev->ops->gemm(dev, &gemm, SF_F32);
}

void sf_linear_weight_grad_units(struct sf_device *dev, float *dw, const float *g, const float *a, float unit, int64_t tokens, int64_t in,
                                 int64_t out) {
  sf_linear_weight_grad_part(dev, dw, g, a, unit, tokens, in, out, false);
}

void sf_linear_bias_grad(struct sf_device *dev, float *db, const float *g, int64_t tokens, int64_t out) {
  memset(db, 0, (size_t)out * sizeof *db);
  dev->ops->col_sum(dev, db, g, tokens, out);
}
