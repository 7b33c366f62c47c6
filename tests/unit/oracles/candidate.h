/* For the tests of the oracle: candidates made from the reference itself. Its tensors are cut by the canonical table for the ranks of a
 * layout, as a target without bugs would trace them; tests then spoil a tensor, or one rank's part of it, and look at what the oracle makes
 * of it. */
#ifndef SF_TESTS_CANDIDATE_H
#define SF_TESTS_CANDIDATE_H

#include "harness/base/alloc.h"
#include "harness/spec/mesh.h"
#include "oracles/judge/judge.h"
#include "tests/unit/oracles/candidate_tensors.h"
#include "tests/shard_copy.h"

/* --- what the ranks trace --------------------------------------------------------------------------------------- */

struct part {
  int32_t rank;
  struct sf_trace_id id;
  struct sf_shard_map map;
  int64_t rows, cols;
  float *data;
  int times; /* how often it is handed over: 0 = lost, 2 = repeated */
};
struct parts {
  int32_t count, capacity;
  struct part *items;
};

static inline bool stage_holds_layer(const struct sf_case *c, int32_t stage, int32_t layer) {
  int64_t first, count;
  sf_case_stage_layers(c, stage, &first, &count);
  return layer >= first && layer < first + count;
}

static inline bool stage_holds_module(const struct sf_case *c, int32_t stage, const struct sf_module *module) {
  if (module->layer >= 0) return stage_holds_layer(c, stage, module->layer);
  const bool first = module->cls == SF_MODULE_WORD_EMBEDDINGS || module->cls == SF_MODULE_EMBEDDING;
  return stage == (first ? 0 : (int32_t)c->layout.pp - 1);
}

static inline bool rank_traces(const struct sf_case *c, const struct sf_catalog *catalog, const struct tensor *t,
                               const struct sf_coord *at) {
  const int32_t stage = at->at[SF_AXIS_PP], last = (int32_t)c->layout.pp - 1;
  const enum sf_kind kind = (enum sf_kind)t->id.kind;
  if (kind == SF_KIND_SCALAR) return true;
  const bool of_microbatch = kind == SF_KIND_ACT || kind == SF_KIND_ACT_GRAD || kind == SF_KIND_WGRAD;
  if (of_microbatch && t->id.microbatch % c->layout.dp != at->at[SF_AXIS_DP]) return false;
  if (kind == SF_KIND_ACT || kind == SF_KIND_ACT_GRAD) return stage_holds_module(c, stage, &catalog->modules[t->id.subject]);
  const struct sf_module *module = &catalog->modules[catalog->params[t->id.subject].module];
  if (kind == SF_KIND_WGRAD && t->id.call == 1) return stage == last;
  if (kind != SF_KIND_WGRAD && c->model.tied && module->cls == SF_MODULE_WORD_EMBEDDINGS && stage == last) return true;
  return stage_holds_module(c, stage, module);
}

/* Whether the stage receives this tensor from its neighbour. */
static inline bool rank_receives(const struct sf_case *c, const struct sf_catalog *catalog, const struct tensor *t,
                                 const struct sf_coord *at) {
  if (t->id.kind != SF_KIND_ACT && t->id.kind != SF_KIND_ACT_GRAD) return false;
  const struct sf_module *module = &catalog->modules[t->id.subject];
  const int32_t stage = at->at[SF_AXIS_PP], from = t->id.kind == SF_KIND_ACT ? stage - 1 : stage + 1;
  if (t->id.microbatch % c->layout.dp != at->at[SF_AXIS_DP] || from < 0 || from >= c->layout.pp) return false;
  if (module->cls != (t->id.kind == SF_KIND_ACT ? SF_MODULE_MLP_BDA : SF_MODULE_SELF_ATTN_BDA)) return false;
  int64_t first, count;
  sf_case_stage_layers(c, from, &first, &count);
  return module->layer == (t->id.kind == SF_KIND_ACT ? first + count - 1 : first);
}

/* With ZeRO: the rank's range of the elements in its box, one of equal ranges over dp x cp, of experts over edp. */
static inline struct sf_shard_map range_of_rank(const struct sf_case *c, const struct tensor *t, const struct sf_shard_map *box,
                                                int32_t rank, const struct sf_coord *at) {
  const struct sf_layout *l = &c->layout;
  const bool expert = sf_cut_is_expert(t->spec.row_cut) || sf_cut_is_expert(t->spec.col_cut);
  const int64_t ranges = expert ? l->tp * l->cp * l->dp / (l->ep * l->etp) : l->dp * l->cp, count = sf_shard_map_box_count(box);
  const int64_t index = expert ? sf_mesh_expert_place(l, rank).edp : at->at[SF_AXIS_DP] * l->cp + at->at[SF_AXIS_CP];
  const int64_t size = (count + ranges - 1) / ranges, first = index * size < count ? index * size : count;
  return sf_shard_map_flat(box, first, count - first < size ? count - first : size);
}

static inline void part_add_cut(struct parts *parts, const struct sf_case *c, const struct tensor *t, const float *values,
                                struct sf_trace_id id, int32_t rank, const struct sf_coord *at) {
  if (parts->count == parts->capacity) {
    parts->capacity = parts->capacity > 0 ? 2 * parts->capacity : 256;
    parts->items = realloc(parts->items, (size_t)parts->capacity * sizeof *parts->items);
    assert_non_null(parts->items);
  }
  struct part *part = &parts->items[parts->count++];
  *part = (struct part){.rank = rank, .id = id, .times = 1};
  part->map = sf_canonical_map_of_rank(c, t->spec.shape, t->spec.row_cut, t->spec.col_cut, rank);
  const bool has_range = c->layout.zero > 0 && (id.kind == SF_KIND_MAIN_GRAD || id.kind == SF_KIND_PARAM_DELTA);
  if (has_range) part->map = range_of_rank(c, t, &part->map, rank, at);
  part->rows = sf_shard_map_local_shape(&part->map).rows;
  part->cols = sf_shard_map_local_shape(&part->map).cols;
  part->data = malloc((size_t)(part->rows * part->cols + 1) * sizeof *part->data);
  assert_non_null(part->data);
  shard_gather(part->data, values, t->spec.shape, &part->map);
  if (id.kind != SF_KIND_WGRAD || c->layout.cp == 1) return;
  /* A sum over cp: the first of its ranks holds the value, the others zeros. */
  sf_dim_map_add_partial(&part->map.rows, SF_AXES(SF_AXIS_CP));
  for (int64_t i = 0; i < part->rows * part->cols && at->at[SF_AXIS_CP] > 0; i++) part->data[i] = 0;
}

static inline void parts_of_rank(struct parts *parts, const struct sf_case *c, const struct sf_catalog *catalog, const struct tensor *t,
                                 int32_t rank) {
  const struct sf_mesh mesh = sf_mesh_from_layout(&c->layout);
  const struct sf_coord at = sf_mesh_coord(&mesh, rank);
  struct sf_trace_id id = t->id;
  if (rank_traces(c, catalog, t, &at)) {
    part_add_cut(parts, c, t, t->values, id, rank, &at);
    if (id.kind == SF_KIND_ACT && catalog->modules[id.subject].layer >= 0 && c->train.recompute_layers > 0) {
      id.pass = SF_PASS_RECOMPUTE;
      part_add_cut(parts, c, t, t->values, id, rank, &at);
      id.pass = t->id.pass;
    }
  }
  if (!rank_receives(c, catalog, t, &at)) return;
  id.call = 1;
  if (c->mode == SF_MODE_E2E) {
    part_add_cut(parts, c, t, t->values, id, rank, &at);
    return;
  }
  float *sent = malloc((size_t)t->count * sizeof *sent);
  assert_non_null(sent);
  const struct sf_fill fill = sf_fill_for_trace(catalog, t->id);
  sf_fill_range(sent, &fill, 0, t->count);
  part_add_cut(parts, c, t, sent, id, rank, &at);
  free(sent);
}

static inline void parts_destroy(struct parts *parts) {
  for (int32_t i = 0; i < parts->count; i++) free(parts->items[i].data);
  free(parts->items);
  *parts = (struct parts){0};
}

/* Tensor by tensor over the ranks, or rank by rank from the last one down. */
enum order { BY_TENSOR, BY_RANK_DOWN };
static inline void parts_hand_over(const struct parts *parts, struct sf_collector *collector, int32_t world, enum order order) {
  const int32_t turns = order == BY_TENSOR ? 1 : world;
  for (int32_t turn = 0; turn < turns; turn++) {
    for (int32_t i = 0; i < parts->count; i++) {
      const struct part *p = &parts->items[i];
      if (order == BY_RANK_DOWN && p->rank != world - 1 - turn) continue;
      for (int k = 0; k < p->times; k++) sf_collector_add(collector, p->rank, p->id, &p->map, p->data, p->rows, p->cols);
    }
  }
}

/* --- a trial ---------------------------------------------------------------------------------------------------- */

struct trial {
  struct sf_catalog *catalog;
  struct sf_expectations *expectations;
  struct sf_collector *collector;
  struct candidate candidate;
  struct parts parts;
  struct sf_judgement judgement;
};

/* The case in words (reference_test.h), its expectations, and a candidate equal to the reference. */
static inline void trial_open(struct trial *t, const char *words) {
  *t = (struct trial){.catalog = catalog_of(words)};
  assert_int_equal(sf_expectations_create(&t->expectations, t->catalog, &loops_table), SF_OK);
  assert_int_equal(sf_collector_create(&t->collector, &t->catalog->logical, t->expectations), SF_OK);
  candidate_run(&t->candidate, t->catalog, SF_PERTURB_NONE, 0);
}

static inline void trial_close(struct trial *t) {
  parts_destroy(&t->parts);
  candidate_destroy(&t->candidate);
  sf_collector_destroy(t->collector);
  sf_expectations_destroy(t->expectations);
  sf_catalog_destroy(t->catalog);
}

/* Cuts the candidate's tensors for layout c. Tests may then spoil parts. */
static inline void trial_cut(struct trial *t, const struct sf_case *c) {
  parts_destroy(&t->parts);
  for (int32_t i = 0; i < t->candidate.count; i++)
    for (int32_t rank = 0; rank < sf_case_ranks(c); rank++) parts_of_rank(&t->parts, c, t->catalog, &t->candidate.tensors[i], rank);
}

static inline void trial_judge_parts(struct trial *t, const struct sf_case *c, enum order order, bool complete) {
  assert_int_equal(sf_collector_reset(t->collector, c), SF_OK);
  parts_hand_over(&t->parts, t->collector, (int32_t)sf_case_ranks(c), order);
  assert_int_equal(sf_judge(t->collector, complete, &t->judgement), SF_OK);
}

static inline void trial_judge(struct trial *t) {
  trial_cut(t, &t->catalog->logical);
  trial_judge_parts(t, &t->catalog->logical, BY_TENSOR, true);
}

/* The part of a rank, under an id. */
static inline struct part *part_of(struct trial *t, struct sf_trace_id id, int32_t rank) {
  for (int32_t i = 0; i < t->parts.count; i++)
    if (t->parts.items[i].rank == rank && sf_trace_key(t->parts.items[i].id) == sf_trace_key(id)) return &t->parts.items[i];
  fail_msg("rank %d does not trace it", rank);
  return NULL;
}

static inline void print_findings(const struct trial *t) {
  char name[160];
  for (int32_t i = 0; i < t->judgement.finding_count && i < 20; i++) {
    const struct sf_finding *f = &t->judgement.findings[i];
    sf_trace_id_text(name, sizeof name, t->catalog, f->id);
    print_message("  %s %s: %s\n", sf_finding_class_name(f->cls), name, f->text);
  }
}

static inline void assert_passes(const struct trial *t) {
  if (t->judgement.verdict != SF_VERDICT_PASS) print_findings(t);
  assert_string_equal(sf_verdict_name(t->judgement.verdict), "PASS");
  assert_int_equal(t->judgement.finding_count, 0);
}

/* The first finding is of this class and about this tensor, and blames this module. */
static inline const struct sf_finding *assert_first(const struct trial *t, enum sf_finding_class cls, struct sf_trace_id id,
                                                    int32_t module) {
  char want[160], got[160];
  assert_string_equal(sf_verdict_name(t->judgement.verdict), "FINDING");
  const struct sf_finding *first = &t->judgement.findings[0];
  sf_trace_id_text(want, sizeof want, t->catalog, id);
  sf_trace_id_text(got, sizeof got, t->catalog, first->id);
  if (strcmp(want, got) != 0 || first->cls != cls) print_findings(t);
  assert_string_equal(got, want);
  assert_string_equal(sf_finding_class_name(first->cls), sf_finding_class_name(cls));
  assert_string_equal(t->catalog->modules[first->module].name, t->catalog->modules[module].name);
  return first;
}

static inline const struct sf_tensor_result *result_of(const struct trial *t, struct sf_trace_id id) {
  for (int32_t i = 0; i < t->judgement.result_count; i++)
    if (sf_trace_key(t->judgement.results[i].id) == sf_trace_key(id)) return &t->judgement.results[i];
  fail_msg("not compared");
  return NULL;
}

static inline const struct sf_finding *assert_first_at(const struct trial *t, enum sf_finding_class cls, const struct tensor *tensor) {
  return assert_first(t, cls, tensor->id, tensor->spec.module);
}

/* A small model that has most features; every layout with tp 1, 2 or 4 fits it. */
#define SMALL_MODEL                                                                                                                        \
  "model.layers=2 model.hidden=16 model.heads=4 model.kv_heads=2 model.ffn=32 model.vocab=14 model.vocab_padded=16 model.seq=8 "           \
  "train.microbatch_size=2 train.microbatches=2 train.clip_milli=100 train.weight_decay_milli=100 data.mask=uneven "
#define E2E "mode=e2e "
#define ISOLATED "mode=isolated "

#endif
