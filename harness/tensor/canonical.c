/* The canonical table of shard_map.h: which part of a dimension a rank holds, from the catalogue's cut alone. */
#include "harness/base/assert.h"
#include "harness/spec/mesh.h"
#include "harness/tensor/shard_map.h"

/* Interleaved QKV: per key/value head its query heads, the key head, the value head. */
static struct sf_dim_map qkv_dim(const struct sf_case *c, int64_t size, int64_t tp_index) {
  const struct sf_model *model = &c->model;
  const int64_t tp = c->layout.tp, query_heads = model->heads / model->kv_heads;
  const int64_t group = (query_heads + 2) * model->head_dim;
  SF_ASSERT_EQ(size, group * model->kv_heads);
  if (tp <= model->kv_heads) return sf_dim_map_part(size, tp, tp_index);
  SF_ASSERT_EQ(tp % model->kv_heads, 0);
  SF_ASSERT_EQ(model->heads % tp, 0);
  const int64_t replicas = tp / model->kv_heads, own_queries = query_heads / replicas * model->head_dim;
  const int64_t first = tp_index / replicas * group;
  struct sf_dim_map dim = {0};
  sf_dim_map_append(&dim, first + tp_index % replicas * own_queries, own_queries, false);
  sf_dim_map_append(&dim, first + query_heads * model->head_dim, 2 * model->head_dim, false);
  return dim;
}

static struct sf_dim_map gate_up_dim(int64_t size, int64_t tp, int64_t tp_index) {
  SF_ASSERT_EQ(size % (2 * tp), 0);
  const int64_t half = size / 2, part = half / tp;
  struct sf_dim_map dim = {0};
  sf_dim_map_append(&dim, tp_index * part, part, false);
  sf_dim_map_append(&dim, half + tp_index * part, part, false);
  return dim;
}

/* Zig-zag: of 2 cp equal chunks the one at cp_index and its mirror image. Tokens of one position adjoin, so positions and token rows cut
 * alike. */
static struct sf_dim_map tokens_dim(const struct sf_case *c, int64_t size, int64_t cp_index) {
  const int64_t cp = c->layout.cp, chunk = size / (2 * cp);
  if (cp == 1) return sf_dim_map_whole(size);
  SF_ASSERT_EQ(size % (2 * cp), 0);
  struct sf_dim_map dim = {0};
  sf_dim_map_append(&dim, cp_index * chunk, chunk, 0);
  sf_dim_map_append(&dim, (2 * cp - 1 - cp_index) * chunk, chunk, 0);
  return dim;
}

/* With sequence parallelism the cp rank's tokens, in their order, in tp equal parts. */
static struct sf_dim_map sequence_dim(const struct sf_case *c, int64_t size, int64_t tp_index, int64_t cp_index) {
  const struct sf_dim_map tokens = tokens_dim(c, size, cp_index);
  if (!c->layout.sp) return tokens;
  const struct sf_dim_map part = sf_dim_map_part(sf_dim_map_length(&tokens), c->layout.tp, tp_index);
  return sf_dim_map_compose(&tokens, &part);
}

/* index = ep index * etp + etp index. parts: 2 for [gate; up], each cut by itself. */
static struct sf_dim_map experts_dim(const struct sf_case *c, int64_t size, int64_t index, int64_t parts) {
  const int64_t experts = c->moe.experts, own = experts / c->layout.ep, etp = c->layout.etp, half = size / experts / parts;
  struct sf_dim_map dim = {0};
  for (int64_t e = index / etp * own; e < (index / etp + 1) * own; e++)
    for (int64_t p = 0; p < parts; p++) sf_dim_map_append(&dim, (e * parts + p) * half + index % etp * (half / etp), half / etp, false);
  return dim;
}

struct sf_dim_map sf_canonical_dim(const struct sf_case *c, enum sf_cut cut, int64_t size, int64_t tp_index, int64_t cp_index) {
  SF_ASSERT_LE(0, tp_index);
  SF_ASSERT_LT(tp_index, sf_cut_is_expert(cut) ? c->layout.ep * c->layout.etp : c->layout.tp);
  SF_ASSERT_LE(0, cp_index);
  SF_ASSERT_LT(cp_index, c->layout.cp);
  switch (cut) {
  case SF_CUT_NONE:
    return sf_dim_map_whole(size);
  case SF_CUT_EVEN:
    return sf_dim_map_part(size, c->layout.tp, tp_index);
  case SF_CUT_QKV:
    return qkv_dim(c, size, tp_index);
  case SF_CUT_GATE_UP:
    return gate_up_dim(size, c->layout.tp, tp_index);
  case SF_CUT_EXPERTS:
    return experts_dim(c, size, tp_index, 1);
  case SF_CUT_EXPERTS_GATE_UP:
    return experts_dim(c, size, tp_index, 2);
  case SF_CUT_SEQUENCE:
    return sequence_dim(c, size, tp_index, cp_index);
  case SF_CUT_TOKENS:
    return tokens_dim(c, size, cp_index);
  }
  SF_ASSERT(!"a cut that the table does not know");
  return sf_dim_map_whole(size);
}

struct sf_shard_map sf_canonical_map(const struct sf_case *c, struct sf_shape shape, enum sf_cut row_cut, enum sf_cut col_cut,
                                     int64_t tp_index, int64_t cp_index) {
  return (struct sf_shard_map){.rows = sf_canonical_dim(c, row_cut, shape.rows, tp_index, cp_index),
                               .cols = sf_canonical_dim(c, col_cut, shape.cols, tp_index, cp_index)};
}

static struct sf_dim_map dim_of_rank(const struct sf_case *c, enum sf_cut cut, int64_t size, int32_t rank) {
  const struct sf_mesh mesh = sf_mesh_from_layout(&c->layout);
  const struct sf_coord at = sf_mesh_coord(&mesh, rank);
  if (!sf_cut_is_expert(cut)) return sf_canonical_dim(c, cut, size, at.at[SF_AXIS_TP], at.at[SF_AXIS_CP]);
  const struct sf_expert_place place = sf_mesh_expert_place(&c->layout, rank);
  return sf_canonical_dim(c, cut, size, place.ep * c->layout.etp + place.etp, 0);
}

struct sf_shard_map sf_canonical_map_of_rank(const struct sf_case *c, struct sf_shape shape, enum sf_cut row_cut, enum sf_cut col_cut,
                                             int32_t rank) {
  return (struct sf_shard_map){.rows = dim_of_rank(c, row_cut, shape.rows, rank), .cols = dim_of_rank(c, col_cut, shape.cols, rank)};
}
