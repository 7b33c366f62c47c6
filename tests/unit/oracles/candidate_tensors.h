/* The logical tensors of a run of the reference, which tests spoil and cut. */
#ifndef SF_TESTS_CANDIDATE_TENSORS_H
#define SF_TESTS_CANDIDATE_TENSORS_H

#include "tests/unit/oracles/reference_test.h"

struct tensor {
  struct sf_trace_id id;
  struct sf_trace_spec spec;
  int64_t count;
  float *values;
};
struct candidate {
  const struct sf_catalog *catalog;
  int32_t count;
  struct tensor *tensors;
};

static inline void candidate_emit(void *ctx, struct sf_trace_id id, const void *values, struct sf_shape shape) {
  struct candidate *c = ctx;
  c->tensors = realloc(c->tensors, (size_t)(c->count + 1) * sizeof *c->tensors);
  assert_non_null(c->tensors);
  struct tensor *t = &c->tensors[c->count++];
  *t = (struct tensor){.id = id, .count = shape.rows * shape.cols};
  assert_true(sf_trace_spec(&t->spec, c->catalog, id));
  t->values = malloc((size_t)t->count * sizeof *t->values);
  assert_non_null(t->values);
  memcpy(t->values, values, (size_t)t->count * sizeof *t->values);
}

static inline void candidate_run(struct candidate *c, const struct sf_catalog *catalog, enum sf_perturb perturb, uint64_t draw) {
  *c = (struct candidate){.catalog = catalog};
  const struct sf_reference_options options = {.perturb = perturb, .draw = draw, .gemm = &loops_table};
  const struct sf_reference_sink sink = {.ctx = c, .emit = candidate_emit};
  assert_int_equal(sf_reference_run(catalog, &options, &sink), SF_OK);
}

static inline void candidate_destroy(struct candidate *c) {
  for (int32_t i = 0; i < c->count; i++) free(c->tensors[i].values);
  free(c->tensors);
}

/* The tensor of (kind, subject) at a step and microbatch, first call. */
static inline struct tensor *tensor_at(const struct candidate *c, enum sf_kind kind, int32_t subject, int step, int microbatch) {
  for (int32_t i = 0; i < c->count; i++) {
    const struct sf_trace_id id = c->tensors[i].id;
    if (id.kind == kind && id.subject == subject && id.step == step && id.microbatch == microbatch && id.call == 0) return &c->tensors[i];
  }
  fail_msg("no %s of subject %d", sf_kind_name(kind), subject);
  return NULL;
}

static inline struct tensor *module_tensor(const struct candidate *c, enum sf_kind kind, enum sf_module_class cls, int32_t layer) {
  return tensor_at(c, kind, sf_catalog_module(c->catalog, cls, layer), 0, 0);
}

static inline struct tensor *param_tensor(const struct candidate *c, enum sf_kind kind, enum sf_module_class cls, int32_t layer, int step) {
  return tensor_at(c, kind, sf_catalog_param(c->catalog, cls, layer, 0), step, 0);
}

static inline struct tensor *scalar_tensor(const struct candidate *c, enum sf_scalar scalar, int step) {
  return tensor_at(c, SF_KIND_SCALAR, (int32_t)scalar, step, 0);
}

#endif
