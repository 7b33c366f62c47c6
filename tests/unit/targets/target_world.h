/* A simulated world that runs the built-in target and merges what its ranks trace into logical tensors. For the tests of this room. */
#ifndef SF_TESTS_TARGET_WORLD_H
#define SF_TESTS_TARGET_WORLD_H

#include "harness/base/hash.h"
#include "harness/comm/group_lists.h"
#include "harness/comm/sim.h"
#include "targets/target.h"
#include "tests/shard_copy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { WORLD_SLOTS = 1 << 14 };

struct world_tensor {
  uint64_t key;
  bool used;
  struct sf_shape shape;
  float *values;       /* merged: partial sums added up */
  unsigned char *seen; /* per element: 1 a rank gave the value, 2 a rank gave a summand */
  int32_t *owner;      /* per element: tp index of the rank that gave a summand first */
};

struct world {
  struct sf_case c;
  struct sf_catalog *catalog;
  struct sf_device *device;
  struct sf_sim *sim;
  struct sf_group_lists *groups;
  struct sf_arena **arenas;
  void **args;
  struct sf_trace_sink sink;
  struct sf_rank_env *envs;
  struct sf_mesh mesh;
  struct sf_case second; /* after reloading; c without */
  struct sf_mesh second_mesh;
  struct sf_comm_report report;
  struct world_tensor *tensors; /* open addressing by key */
  int32_t tensor_count;
  int64_t conflicts; /* replicas that differ in some bit */
  struct sf_trace_id first_conflict;
  int64_t bad_maps; /* ids the catalogue does not know, or maps that are not the canonical ones */
};

static inline struct world_tensor *world_slot(const struct world *w, uint64_t key) {
  uint32_t at = (uint32_t)(sf_mix64(key) % WORLD_SLOTS);
  while (w->tensors[at].used && w->tensors[at].key != key) at = (at + 1) % WORLD_SLOTS;
  return &w->tensors[at];
}

static inline const struct world_tensor *world_find(const struct world *w, struct sf_trace_id id) {
  const struct world_tensor *tensor = world_slot(w, sf_trace_key(id));
  return tensor->used ? tensor : NULL;
}

static inline struct sf_dim_map world_without_partial(const struct sf_dim_map *dim) {
  struct sf_dim_map out = {0};
  for (int32_t i = 0; i < dim->count; i++) sf_dim_map_append(&out, dim->runs[i].start, dim->runs[i].len, false);
  return out;
}

/* Who a rank is in the layout of a step. */
static inline const struct sf_case *world_case_of(const struct world *w, int64_t step) {
  return sf_case_is_reloaded(&w->c, step) ? &w->second : &w->c;
}
static inline struct sf_coord world_coord(const struct world *w, int32_t rank, int64_t step) {
  return sf_mesh_coord(sf_case_is_reloaded(&w->c, step) ? &w->second_mesh : &w->mesh, rank);
}

static inline bool world_map_is_canonical(const struct world *w, int32_t rank, int64_t step, const struct sf_trace_spec *spec,
                                          const struct sf_shard_map *map) {
  const struct sf_case *c = world_case_of(w, step);
  const struct sf_coord place = world_coord(w, rank, step);
  const struct sf_expert_place expert = sf_mesh_expert_place(&c->layout, rank);
  const int64_t tp = place.at[SF_AXIS_TP], cp = place.at[SF_AXIS_CP];
  const int64_t of_experts = expert.ep * c->layout.etp + expert.etp;
  const int64_t row_place = sf_cut_is_expert(spec->row_cut) ? of_experts : tp,
                col_place = sf_cut_is_expert(spec->col_cut) ? of_experts : tp;
  const struct sf_shard_map canonical = {.rows = sf_canonical_dim(c, spec->row_cut, spec->shape.rows, row_place, cp),
                                         .cols = sf_canonical_dim(c, spec->col_cut, spec->shape.cols, col_place, cp)};
  return shard_map_equal(&(struct sf_shard_map){.rows = world_without_partial(&map->rows), .cols = world_without_partial(&map->cols)},
                            &canonical);
}

/* A sum over cp alone has replicas on the other tp ranks, which count once. */
static inline void world_merge_element(struct world *w, struct world_tensor *tensor, int64_t at, float value, uint32_t partial,
                                       int32_t tp) {
  if (partial) {
    if (tensor->seen[at] == 0) tensor->owner[at] = tp;
    if ((partial & SF_AXES(SF_AXIS_TP)) || tensor->owner[at] == tp) tensor->values[at] += value;
    tensor->seen[at] |= 2;
  } else if (tensor->seen[at] & 1) {
    const bool differs = memcmp(&tensor->values[at], &value, sizeof value) != 0;
    if (differs && w->conflicts++ == 0) w->first_conflict = sf_trace_id_from_key(tensor->key);
  } else {
    tensor->values[at] = value;
    tensor->seen[at] |= 1;
  }
}

static inline void world_merge(struct world *w, struct world_tensor *tensor, const struct sf_shard_map *map, const float *data,
                               int32_t tp) {
  int64_t local = 0;
  for (int32_t r = 0; r < map->rows.count; r++)
    for (int64_t i = 0; i < map->rows.runs[r].len; i++)
      for (int32_t k = 0; k < map->cols.count; k++)
        for (int64_t j = 0; j < map->cols.runs[k].len; j++) {
          const int64_t at = (map->rows.runs[r].start + i) * tensor->shape.cols + map->cols.runs[k].start + j;
          const int64_t mine = local++ - (map->flat ? map->first : 0);
          if (map->flat && (mine < 0 || mine >= map->count)) continue;
          world_merge_element(w, tensor, at, data[mine], map->rows.runs[r].partial | map->cols.runs[k].partial, tp);
        }
}

/* Isolated mode: the value goes to the lowest tp and cp index that holds the elements, the other summands are zero. */
static inline void world_overwrite(struct world *w, int32_t rank, struct sf_trace_id id, const struct sf_shard_map *map,
                                   const struct sf_trace_spec *spec, float *data) {
  if (!sf_trace_is_given(w->catalog, id)) return;
  const struct sf_coord place = world_coord(w, rank, id.step);
  const struct sf_layout *layout = &world_case_of(w, id.step)->layout;
  const bool heads = spec->row_cut == SF_CUT_QKV || spec->col_cut == SF_CUT_QKV;
  const int64_t sharers = heads ? layout->tp / w->c.model.kv_heads : layout->tp;
  const bool lowest = sharers <= 1 || place.at[SF_AXIS_TP] % sharers == 0;
  const uint32_t zero = (lowest ? 0 : SF_AXES(SF_AXIS_TP)) | (place.at[SF_AXIS_CP] > 0 ? SF_AXES(SF_AXIS_CP) : 0);
  const struct sf_fill fill = sf_fill_for_trace(w->catalog, id);
  sf_fill_shard(data, &fill, spec->shape, map, zero);
}

static inline void world_point(void *ctx, int32_t rank, struct sf_trace_id id, const struct sf_shard_map *map, float *data, int64_t rows,
                               int64_t cols) {
  struct world *w = ctx;
  struct sf_trace_spec spec;
  const bool is_bad = !sf_trace_spec(&spec, w->catalog, id) || !sf_shard_map_valid(map, spec.shape);
  w->bad_maps += is_bad || !world_map_is_canonical(w, rank, id.step, &spec, map);
  if (is_bad) return;
  assert_int_equal(rows, sf_shard_map_local_shape(map).rows);
  assert_int_equal(cols, sf_shard_map_local_shape(map).cols);
  struct world_tensor *tensor = world_slot(w, sf_trace_key(id));
  const size_t count = (size_t)(spec.shape.rows * spec.shape.cols);
  if (!tensor->used) {
    *tensor = (struct world_tensor){.key = sf_trace_key(id), .used = true, .shape = spec.shape};
    tensor->values = sf_alloc(count * sizeof(float));
    tensor->seen = sf_alloc(count);
    tensor->owner = sf_alloc(count * sizeof *tensor->owner);
    assert_true(tensor->values != NULL && tensor->seen != NULL && tensor->owner != NULL);
    assert_true(++w->tensor_count < WORLD_SLOTS / 2);
  }
  world_merge(w, tensor, map, data, world_coord(w, rank, id.step).at[SF_AXIS_TP]);
  if (w->c.mode == SF_MODE_ISOLATED) world_overwrite(w, rank, id, map, &spec, data);
}

static inline void world_rank_main(struct sf_comm *comm, void *arg) {
  struct sf_rank_env *env = arg;
  env->comm = comm;
  sf_target_builtin.run(env);
}

/* A world ready to run the case with one fault (or none). Destroy with world_destroy. */
static inline struct world *world_create(const struct sf_case *c, enum sf_fault fault) {
  struct world *w = sf_alloc(sizeof *w);
  assert_non_null(w);
  w->c = *c;
  struct sf_error error = {0};
  if (sf_case_validate(c, &error) != SF_OK) fail_msg("%s", error.text);
  const int32_t world = (int32_t)sf_case_ranks(c);
  assert_int_equal(sf_catalog_create(&w->catalog, c), SF_OK);
  assert_int_equal(sf_cpu_device_create(&w->device, sf_cpu_gemm_default()), SF_OK);
  assert_int_equal(sf_sim_create(&w->sim), SF_OK);
  assert_int_equal(sf_group_lists_create(&w->groups), SF_OK);
  w->tensors = sf_alloc(WORLD_SLOTS * sizeof *w->tensors);
  w->arenas = sf_alloc((size_t)world * sizeof(struct sf_arena *));
  w->envs = sf_alloc((size_t)world * sizeof *w->envs);
  w->args = sf_alloc((size_t)world * sizeof(void *));
  assert_true(w->tensors != NULL && w->arenas != NULL && w->envs != NULL && w->args != NULL);
  w->mesh = sf_mesh_from_layout(&c->layout);
  w->second = c->reload.after_step > 0 ? sf_case_after_reload(c) : *c;
  w->second_mesh = sf_mesh_from_layout(&w->second.layout);
  w->sink = (struct sf_trace_sink){.ctx = w, .point = world_point};
  for (int32_t rank = 0; rank < world; rank++) {
    w->arenas[rank] = sf_arena_create(1 << 12, true);
    assert_non_null(w->arenas[rank]);
    w->envs[rank] = (struct sf_rank_env){.c = &w->c,
                                         .catalog = w->catalog,
                                         .mesh = w->mesh,
                                         .default_mesh = sf_mesh_default_order(&c->layout),
                                         .device = w->device,
                                         .arena = w->arenas[rank],
                                         .groups = w->groups,
                                         .sink = &w->sink,
                                         .faults = SF_FAULT_BIT(fault)};
    w->args[rank] = &w->envs[rank];
  }
  return w;
}

/* The status of the simulation itself; how the run ended stands in w->report. */
static inline enum sf_status world_start(struct world *w, struct sf_comm_progress *progress) {
  const struct sf_sim_options options = {.world = (int32_t)sf_case_ranks(&w->c), .schedule = (uint64_t)w->c.schedule, .progress = progress};
  return sf_sim_run(w->sim, &options, world_rank_main, w->args, &w->report);
}

static inline struct world *world_run(const struct sf_case *c, enum sf_fault fault) {
  struct world *w = world_create(c, fault);
  assert_int_equal(world_start(w, NULL), SF_OK);
  return w;
}

/* sets: "layout.tp=2 layout.sp=true", applied to the smallest case. */
static inline struct sf_case world_case(const char *sets) {
  struct sf_case c;
  sf_case_init(&c);
  char text[4096];
  snprintf(text, sizeof text, "%s", sets);
  char *rest = NULL;
  for (char *word = strtok_r(text, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
    char *value = strchr(word, '=');
    assert_non_null(value);
    *value++ = '\0';
    struct sf_error error = {0};
    if (sf_case_field_parse(&c, word, value, &error) != SF_OK) fail_msg("%s", error.text);
  }
  return c;
}

static inline void world_destroy(struct world *w) {
  const int32_t world = (int32_t)sf_case_ranks(&w->c);
  for (int32_t rank = 0; rank < world; rank++) sf_arena_destroy(w->arenas[rank]);
  for (int i = 0; i < WORLD_SLOTS; i++) {
    sf_free(w->tensors[i].values);
    sf_free(w->tensors[i].seen);
    sf_free(w->tensors[i].owner);
  }
  sf_free(w->tensors);
  sf_free(w->arenas);
  sf_free(w->envs);
  sf_free(w->args);
  sf_sim_destroy(w->sim);
  sf_group_lists_destroy(w->groups);
  sf_catalog_destroy(w->catalog);
  sf_device_destroy(w->device);
  sf_free(w);
}

#endif
