/* For the tests of the reference: plain-loop products, a sink that keeps everything, and finding tensors in what it kept. */
#ifndef SF_TESTS_REFERENCE_TEST_H
#define SF_TESTS_REFERENCE_TEST_H

#include "oracles/reference/reference_internal.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LOOPS(name, type)                                                                                                                  \
  static inline void name(const struct sf_product *p) {                                                                                    \
    const type *a = p->a, *b = p->b;                                                                                                       \
    for (int64_t i = 0; i < p->m; i++)                                                                                                     \
      for (int64_t j = 0; j < p->n; j++) {                                                                                                 \
        type sum = 0;                                                                                                                      \
        for (int64_t q = 0; q < p->k; q++)                                                                                                 \
          sum += (p->trans_a ? a[q * p->lda + i] : a[i * p->lda + q]) * (p->trans_b ? b[j * p->ldb + q] : b[q * p->ldb + j]);              \
        ((type *)p->c)[i * p->ldc + j] = sum;                                                                                              \
      }                                                                                                                                    \
  }
LOOPS(loops_floats, float)
LOOPS(loops_doubles, double)
#undef LOOPS

static inline void loops_multiply(const struct sf_product *p) {
  if (p->fp64)
    loops_doubles(p);
  else
    loops_floats(p);
}
static const struct sf_gemm_table loops_table = {.multiply = loops_multiply};

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

#define GPT                                                                                                                                \
  "seed=3 model.layers=2 model.hidden=24 model.heads=4 model.kv_heads=2 model.head_dim=6 model.ffn=40 model.vocab=30 "                     \
  "model.vocab_padded=32 model.seq=12 model.norm=layer model.positions=learned model.bias=on model.tied=on model.adapter=on "              \
  "train.microbatches=2 train.microbatch_size=2 data.mask=uneven "
#define LLAMA                                                                                                                              \
  "seed=4 model.layers=2 model.hidden=32 model.heads=4 model.kv_heads=4 model.head_dim=8 model.ffn=48 model.vocab=32 "                     \
  "model.vocab_padded=32 model.seq=16 model.activation=swiglu model.positions=rotary train.microbatches=2 "

static inline struct sf_trace_id act_of(const struct sf_catalog *catalog, enum sf_module_class cls, int32_t layer, enum sf_kind kind) {
  return (struct sf_trace_id){
      .pass = kind == SF_KIND_ACT ? SF_PASS_FWD : SF_PASS_BWD, .kind = (uint8_t)kind, .subject = sf_catalog_module(catalog, cls, layer)};
}

static inline int64_t count_of(const struct kept *kept) { return kept->shape.rows * kept->shape.cols; }

static inline double relative_move(const struct kept *a, const struct kept *b) {
  assert_true(sf_trace_key(a->id) == sf_trace_key(b->id));
  const double move = distance(a->values, b->values, count_of(a));
  return move == 0 ? 0 : move / norm_of(a->values, count_of(a));
}

#endif
