/* For the tests of the reference: plain-loop products, a sink that keeps everything, and finding tensors in what it kept. */
#ifndef SF_TESTS_REFERENCE_TEST_H
#define SF_TESTS_REFERENCE_TEST_H

#include "oracles/reference_internal.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LOOPS(name, type)                                                                                                                  \
  static inline void name(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const type *a, int64_t lda, const type *b,          \
                          int64_t ldb, type *c, int64_t ldc) {                                                                             \
    for (int64_t i = 0; i < m; i++)                                                                                                        \
      for (int64_t j = 0; j < n; j++) {                                                                                                    \
        type sum = 0;                                                                                                                      \
        for (int64_t p = 0; p < k; p++) sum += (trans_a ? a[p * lda + i] : a[i * lda + p]) * (trans_b ? b[j * ldb + p] : b[p * ldb + j]);  \
        c[i * ldc + j] = sum;                                                                                                              \
      }                                                                                                                                    \
  }
LOOPS(loops_sgemm, float)
LOOPS(loops_dgemm, double)
#undef LOOPS

static const struct sf_gemm_table loops_table = {.sgemm = loops_sgemm, .dgemm = loops_dgemm};

/* One emitted tensor; values as doubles whatever the run's type. */
struct kept {
  struct sf_trace_id id;
  struct sf_shape shape;
  double *values;
};
struct keeper {
  bool fp64;
  int32_t count;
  struct kept *items;
};

static inline void keeper_emit(void *ctx, struct sf_trace_id id, const void *values, struct sf_shape shape) {
  struct keeper *keeper = ctx;
  keeper->items = realloc(keeper->items, (size_t)(keeper->count + 1) * sizeof *keeper->items);
  assert_non_null(keeper->items);
  struct kept *item = &keeper->items[keeper->count++];
  const int64_t count = shape.rows * shape.cols;
  *item = (struct kept){.id = id, .shape = shape, .values = malloc((size_t)count * sizeof(double))};
  assert_non_null(item->values);
  for (int64_t i = 0; i < count; i++) item->values[i] = keeper->fp64 ? ((const double *)values)[i] : (double)((const float *)values)[i];
}

static inline void keeper_destroy(struct keeper *keeper) {
  for (int32_t i = 0; i < keeper->count; i++) free(keeper->items[i].values);
  free(keeper->items);
}

static inline struct keeper keep_run(const struct sf_catalog *catalog, bool fp64, enum sf_perturb perturb, uint64_t draw) {
  struct keeper keeper = {.fp64 = fp64};
  const struct sf_reference_options options = {.fp64 = fp64, .perturb = perturb, .draw = draw, .gemm = &loops_table};
  const struct sf_reference_sink sink = {.ctx = &keeper, .emit = keeper_emit};
  assert_int_equal(sf_reference_run(catalog, &options, &sink), SF_OK);
  return keeper;
}

static inline const struct kept *keeper_find(const struct keeper *keeper, struct sf_trace_id id) {
  for (int32_t i = 0; i < keeper->count; i++)
    if (sf_trace_key(keeper->items[i].id) == sf_trace_key(id)) return &keeper->items[i];
  return NULL;
}

static inline double norm_of(const double *x, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += x[i] * x[i];
  return sqrt(sum);
}

static inline double distance(const double *x, const double *y, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += (x[i] - y[i]) * (x[i] - y[i]);
  return sqrt(sum);
}

/* A case from "path=value" words; every one must be valid. */
static inline struct sf_catalog *catalog_of(const char *words) {
  struct sf_case c;
  struct sf_error error = {0};
  char text[1024];
  sf_case_init(&c);
  assert_true(strlen(words) < sizeof text);
  strcpy(text, words);
  for (char *rest = text, *word; (word = strtok_r(rest, " ", &rest)) != NULL;) {
    char *value = strchr(word, '=');
    assert_non_null(value);
    *value = '\0';
    if (sf_case_field_parse(&c, word, value + 1, &error) != SF_OK) fail_msg("%s", error.text);
  }
  if (sf_case_validate(&c, &error) != SF_OK) fail_msg("%s", error.text);
  struct sf_catalog *catalog = NULL;
  assert_int_equal(sf_catalog_create(&catalog, &c), SF_OK);
  return catalog;
}

#endif
