/* What the reference says about every tensor of a logical case: its value and its noise levels. Shared by all layouts. */
#ifndef SF_ORACLES_EXPECT_H
#define SF_ORACLES_EXPECT_H

#include "oracles/reference.h"

struct sf_expected {
  struct sf_trace_id id;
  struct sf_trace_spec spec;
  int32_t ordinal;      /* place in the reference's execution order */
  float *x;             /* shape.rows x shape.cols */
  double norm;          /* ||x||_F */
  float *row_norm;      /* ||x_r||, rows entries */
  float *row_noise;     /* max over draws of ||x_d,r - x_r|| */
  double noise;         /* max over draws of ||x_d - x||_F */
  float *row_floor;     /* NULL, or an additional absolute floor per row (logits' gradient) */
};

struct sf_expectations;

/* Runs the plain reference. gemm must outlive the object. */
enum sf_status sf_expectations_create(struct sf_expectations **out, const struct sf_catalog *catalog, const struct sf_gemm_table *gemm) SF_MUST_USE;
void sf_expectations_destroy(struct sf_expectations *expectations);
/* Runs draws until `level` is reached: 0 none, 1 one of each kind (isolated: E3, E5), 2 three of each kind. Never lowers it. */
enum sf_status sf_expectations_raise(struct sf_expectations *expectations, int level) SF_MUST_USE;
int sf_expectations_level(const struct sf_expectations *expectations);
/* NULL when the reference has no such tensor. For RECOMPUTE and call 1 of ACT, ACT_GRAD ask with the id of the first pass. */
const struct sf_expected *sf_expectations_find(const struct sf_expectations *expectations, struct sf_trace_id id);
int32_t sf_expectations_count(const struct sf_expectations *expectations);
const struct sf_expected *sf_expectations_at(const struct sf_expectations *expectations, int32_t ordinal);
const struct sf_catalog *sf_expectations_catalog(const struct sf_expectations *expectations);
size_t sf_expectations_bytes(const struct sf_expectations *expectations);

#endif
