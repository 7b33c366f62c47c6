/* A tensor on the ranks of a small layout, to plant mistakes in and have them explained. */
#ifndef SF_TESTS_UNIT_ORACLES_DIAGNOSE_BENCH_H
#define SF_TESTS_UNIT_ORACLES_DIAGNOSE_BENCH_H

#include "harness/base/alloc.h"
#include "harness/tensor/consistent.h"
#include "oracles/diagnose/diagnose.h"
#include "tests/shard_copy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS_MAX = 8, ELEMENTS_MAX = 1024, RELATED_MAX = 8 };

/* A tensor on the ranks of a small layout, every shard as it should be. */
struct bench {
  struct sf_case c;
  struct sf_mesh mesh;
  float x[ELEMENTS_MAX], data[RANKS_MAX][ELEMENTS_MAX], extra[RELATED_MAX][ELEMENTS_MAX];
  struct sf_diagnosis_shard shards[RANKS_MAX];
  struct sf_diagnosis_related related[RELATED_MAX];
  struct sf_diagnosis_problem p;
};

static const double NOISE_RELATIVE = 1e-6;

static inline double draw(uint64_t key, int64_t i) { return (double)sf_draw_value(sf_fill_key(7, key, 1), SF_DIST_NORMAL, (uint64_t)i); }

static inline int64_t elements(const struct bench *b) { return b->p.spec.shape.rows * b->p.spec.shape.cols; }

static inline void shards_fill(struct bench *b) {
  for (int32_t i = 0; i < b->p.shard_count; i++) shard_gather(b->data[i], b->x, b->p.spec.shape, &b->shards[i].map);
}

static inline void bench_open(struct bench *b, int64_t tp, int64_t dp, int64_t rows, int64_t cols, enum sf_cut row_cut,
                              enum sf_cut col_cut) {
  memset(b, 0, sizeof *b);
  sf_case_init(&b->c);
  b->c.layout.tp = tp;
  b->c.layout.dp = dp;
  b->c.layout.sp = row_cut == SF_CUT_SEQUENCE;
  b->c.train.microbatches = 2 * dp;
  b->c.model.heads = 4;
  b->c.model.kv_heads = 2;
  b->c.model.head_dim = 2;
  b->c.data.mask = SF_MASK_UNEVEN;
  b->mesh = sf_mesh_from_layout(&b->c.layout);
  b->p = (struct sf_diagnosis_problem){
      .c = &b->c, .shards = b->shards, .shard_count = b->mesh.world, .meshes = SF_MESH_DENSE, .view = {.x = b->x, .related = b->related}};
  b->p.id = (struct sf_trace_id){.kind = SF_KIND_ACT};
  b->p.spec = (struct sf_trace_spec){.shape = {rows, cols}, .row_cut = row_cut, .col_cut = col_cut, .promised = SF_F32};
  double squares = 0;
  for (int64_t i = 0; i < rows * cols; i++) {
    b->x[i] = (float)draw(1, i);
    squares += (double)b->x[i] * (double)b->x[i];
  }
  b->p.view.noise = NOISE_RELATIVE * sqrt(squares);
  for (int32_t rank = 0; rank < b->mesh.world; rank++) {
    const struct sf_coord at = sf_mesh_coord(&b->mesh, rank);
    b->shards[rank] = (struct sf_diagnosis_shard){.rank = rank, .data = b->data[rank]};
    b->shards[rank].map = sf_canonical_map(&b->c, b->p.spec.shape, row_cut, col_cut, at.at[SF_AXIS_TP], at.at[SF_AXIS_CP]);
  }
  shards_fill(b);
}

static inline int64_t local_count(const struct bench *b, int32_t i) {
  return sf_dim_map_length(&b->shards[i].map.rows) * sf_dim_map_length(&b->shards[i].map.cols);
}

static inline struct sf_diagnosis_related *relate(struct bench *b, enum sf_relation relation, uint64_t key) {
  const int32_t k = b->p.view.related_count++;
  for (int64_t i = 0; i < elements(b); i++) b->extra[k][i] = (float)draw(key, i);
  b->related[k] = (struct sf_diagnosis_related){
      .relation = relation, .cls = SF_DIAGNOSIS_STALE, .shape = b->p.spec.shape, .x = b->extra[k], .weight = 1};
  snprintf(b->related[k].name, sizeof b->related[k].name, "the other");
  return &b->related[k];
}

/* Every shard gets a noise level's worth of error, the same on replicas: rounding does not decide. */
static inline struct sf_diagnosis diagnose(struct bench *b) {
  struct sf_diagnosis d;
  for (int32_t i = 0; i < b->p.shard_count; i++)
    for (int64_t k = 0; k < local_count(b, i); k++)
      b->data[i][k] += (float)(0.3 * b->p.view.noise / sqrt((double)elements(b)) * draw(99, k));
  assert_int_equal(sf_diagnose_problem(&d, &b->p), SF_OK);
  return d;
}

static inline void diagnose_says(struct bench *b, enum sf_diagnosis_class cls, const char *words) {
  const struct sf_diagnosis d = diagnose(b);
  if (d.cls != cls || strstr(d.text, words) == NULL)
    fail_msg("wanted %s with '%s', got %s: %s", sf_diagnosis_class_name(cls), words, sf_diagnosis_class_name(d.cls), d.text);
  if (cls != SF_DIAGNOSIS_UNKNOWN && !(d.left < 4)) fail_msg("%s: left %g", d.text, d.left);
}

#endif
