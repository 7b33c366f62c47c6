#include "harness/run/trial/trace_dump.h"

#include "harness/base/alloc.h"
#include "harness/base/bytes.h"
#include "harness/base/system/directories.h"
#include "harness/tensor/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct rank_dump {
  struct sf_st_writer *writer;
  uint64_t *keys; /* of the tensors added */
  int32_t key_count;
  struct sf_text maps; /* the JSON text of the shard maps, without braces around it */
};

struct dump {
  struct sf_case c;
  struct sf_catalog *catalog;
  struct sf_mesh mesh[2]; /* the second one is for the steps after reloading */
  int32_t ranks;
  enum sf_status status;
  struct rank_dump *of_rank;
};

static enum sf_status dump_create(struct dump *dump, const struct sf_case *c) {
  dump->c = *c;
  dump->ranks = (int32_t)sf_case_ranks(c);
  dump->mesh[0] = dump->mesh[1] = sf_mesh_from_layout(&c->layout);
  if (c->reload.after_step > 0) {
    const struct sf_case after = sf_case_after_reload(c);
    dump->mesh[1] = sf_mesh_from_layout(&after.layout);
  }
  dump->of_rank = sf_alloc((size_t)dump->ranks * sizeof *dump->of_rank);
  enum sf_status status = dump->of_rank ? sf_catalog_create(&dump->catalog, c) : SF_ENOMEM;
  for (int32_t i = 0; status == SF_OK && i < dump->ranks; i++) status = sf_st_writer_create(&dump->of_rank[i].writer);
  return status;
}

static void dump_destroy(struct dump *dump) {
  for (int32_t i = 0; dump->of_rank && i < dump->ranks; i++) {
    sf_st_writer_destroy(dump->of_rank[i].writer);
    sf_free(dump->of_rank[i].keys);
    sf_text_destroy(&dump->of_rank[i].maps);
  }
  sf_free(dump->of_rank);
  sf_catalog_destroy(dump->catalog);
}

/* The number of the sum that a rank's summands belong to: ranks that differ on the partial axes alone share it. 0: no summands. */
static int32_t sum_number(const struct sf_mesh *mesh, int32_t rank, uint32_t partial) {
  if (!partial) return 0;
  struct sf_coord coord = sf_mesh_coord(mesh, rank);
  for (int axis = 0; axis < SF_AXIS_COUNT; axis++)
    if (partial & SF_AXES(axis)) coord.at[axis] = 0;
  return 1 + sf_mesh_rank(mesh, &coord);
}

/* others: axes over which all of the other dimension is partial too. */
static void append_runs(struct sf_text *text, const struct sf_dim_map *dim, uint32_t others, const struct sf_mesh *mesh, int32_t rank) {
  sf_text_append(text, "[");
  for (int32_t i = 0; i < dim->count; i++) {
    const struct sf_run *run = &dim->runs[i];
    const int32_t sum = sum_number(mesh, rank, run->partial | others);
    sf_text_append(text, "%s[%" PRId64 ",%" PRId64, i ? "," : "", run->start, run->len);
    if (sum) sf_text_append(text, ",%d", sum);
    sf_text_append(text, "]");
  }
  sf_text_append(text, "]");
}

/* Axes over which a part of the dimension is partial; *all: whether all of its runs are. */
static uint32_t partial_axes(const struct sf_dim_map *dim, bool *all) {
  uint32_t axes = 0;
  for (int32_t i = 0; i < dim->count; i++) axes |= dim->runs[i].partial;
  *all = true;
  for (int32_t i = 0; i < dim->count; i++) *all &= dim->runs[i].partial == axes;
  return axes;
}

/* An element is partial over the axes of its row's run and of its column's run, but has one number. If both dimensions are partial, the
 * axes of the one that is the same throughout go into the numbers of the other. */
static void append_map(struct sf_text *text, const char *name, struct sf_shape shape, const struct sf_shard_map *map,
                       const struct sf_mesh *mesh, int32_t rank) {
  bool rows_alike, cols_alike;
  const uint32_t row_axes = partial_axes(&map->rows, &rows_alike), col_axes = partial_axes(&map->cols, &cols_alike);
  struct sf_dim_map rows = map->rows, cols = map->cols;
  const bool into_cols = row_axes && col_axes && rows_alike, into_rows = row_axes && col_axes && !rows_alike;
  if (into_cols) sf_dim_map_set_partial(&rows, 0);
  if (into_rows) sf_dim_map_set_partial(&cols, 0);
  sf_text_append(text, "%s\"%s\":{\"shape\":[%" PRId64 ",%" PRId64 "],\"index\":[", text->length ? "," : "", name, shape.rows, shape.cols);
  append_runs(text, &rows, into_rows ? col_axes : 0, mesh, rank);
  sf_text_append(text, ",");
  append_runs(text, &cols, into_cols ? row_axes : 0, mesh, rank);
  sf_text_append(text, "]");
  if (map->flat) sf_text_append(text, ",\"flat\":[%" PRId64 ",%" PRId64 "]", map->first, map->count);
  sf_text_append(text, "}");
}

/* Counts how often the key was added before. A wrong target may trace a tensor twice, but names in a file must differ. */
static int32_t note_key(struct dump *dump, struct rank_dump *to, uint64_t key) {
  int32_t count = 0;
  for (int32_t i = 0; i < to->key_count; i++) count += to->keys[i] == key;
  uint64_t *keys = sf_grown(to->keys, to->key_count, sizeof *keys);
  if (!keys) {
    dump->status = SF_ENOMEM;
    return 0;
  }
  to->keys = keys;
  to->keys[to->key_count++] = key;
  return count;
}

/* A failure is remembered. */
static void add_chunk(void *ctx, int32_t rank, struct sf_trace_id id, const struct sf_shard_map *map, const float *data, int64_t rows,
                      int64_t cols) {
  struct dump *dump = ctx;
  struct sf_trace_spec spec;
  char name[176];
  if (dump->status != SF_OK || rank < 0 || rank >= dump->ranks || !sf_trace_spec(&spec, dump->catalog, id)) return;
  struct rank_dump *to = &dump->of_rank[rank];
  const int64_t dims[2] = {map->flat ? rows * cols : rows, cols};
  sf_trace_id_text(name, sizeof name, dump->catalog, id);
  const int32_t before = note_key(dump, to, sf_trace_key(id));
  if (dump->status != SF_OK) return;
  if (before > 0) snprintf(name + strlen(name), sizeof name - strlen(name), "#%d", before + 1);
  dump->status = sf_st_writer_add(to->writer, name, spec.promised, dims, map->flat ? 1 : 2, data);
  append_map(&to->maps, name, spec.shape, map, &dump->mesh[sf_case_is_reloaded(&dump->c, id.step)], rank);
  if (to->maps.failed) dump->status = SF_ENOMEM;
}

/* The rank's groups of more than one rank. A run that reloads changes its groups, so it names none. */
static void append_groups(struct sf_text *text, const struct dump *dump, int32_t rank) {
  static const struct {
    const char *name;
    bool of_experts;
    enum sf_axis axis;
  } kinds[] = {{"tp", false, SF_AXIS_TP}, {"cp", false, SF_AXIS_CP}, {"dp", false, SF_AXIS_DP}, {"pp", false, SF_AXIS_PP},
               {"etp", true, SF_AXIS_TP}, {"ep", true, SF_AXIS_EP},  {"edp", true, SF_AXIS_DP}};
  int32_t *ranks = sf_alloc((size_t)dump->ranks * sizeof *ranks), index;
  const char *before = "";
  if (!ranks) text->failed = true;
  for (size_t k = 0; ranks && k < sizeof kinds / sizeof kinds[0] && dump->c.reload.after_step == 0; k++) {
    if (kinds[k].of_experts && dump->c.moe.experts == 0) continue;
    const int32_t count = kinds[k].of_experts ? sf_mesh_expert_group(&dump->c.layout, rank, SF_AXES(kinds[k].axis), ranks, &index)
                                              : sf_mesh_group(&dump->mesh[0], rank, SF_AXES(kinds[k].axis), ranks, &index);
    if (count < 2) continue;
    sf_text_append(text, "%s\"%s\":", before, kinds[k].name);
    for (int32_t i = 0; i < count; i++) sf_text_append(text, "%c%d", i > 0 ? ',' : '[', ranks[i]);
    sf_text_append(text, "]");
    before = ",";
  }
  sf_free(ranks);
}

static enum sf_status save_rank(const struct dump *dump, int32_t rank, const char *path, struct sf_error *error) {
  struct rank_dump *from = &dump->of_rank[rank];
  struct sf_text meta = {0};
  sf_text_append(&meta, "{\"format\":1,\"rank\":%d,\"ranks\":%d,\"mode\":\"%s\",\"groups\":{", rank, dump->ranks,
                 dump->c.mode == SF_MODE_E2E ? "e2e" : "isolated");
  append_groups(&meta, dump, rank);
  sf_text_append(&meta, "},\"tensors\":{%s}}", from->maps.data ? from->maps.data : "");
  enum sf_status status = from->maps.failed || meta.failed ? SF_ENOMEM : sf_st_writer_meta(from->writer, "shardfuzz", meta.data);
  if (status != SF_OK)
    sf_error_set(error, status, "%s: %s", path, sf_status_text(status));
  else
    status = sf_st_writer_save(from->writer, path, error);
  sf_text_destroy(&meta);
  return status;
}

static void rank_path(char *out, size_t size, const char *directory, int32_t rank) {
  snprintf(out, size, "%s/rank-%05d.safetensors", directory, rank);
}

static enum sf_status save(const struct dump *dump, const char *directory, struct sf_error *error) {
  char path[SF_PATH_TEXT + 32];
  enum sf_status status = sf_make_directories(directory, error);
  for (int32_t i = 0; status == SF_OK && i < dump->ranks; i++) {
    rank_path(path, sizeof path, directory, i);
    status = save_rank(dump, i, path, error);
  }
  if (status != SF_OK) return status;
  int32_t stale = dump->ranks;
  do rank_path(path, sizeof path, directory, stale++);
  while (unlink(path) == 0);
  return SF_OK;
}

enum sf_status sf_trace_dump_log(const struct sf_chunk_log *log, const struct sf_case *c, const char *directory, struct sf_error *error) {
  struct dump dump = {.status = SF_OK};
  enum sf_status status = dump_create(&dump, c);
  if (status == SF_OK && !sf_chunk_log_visit(log->data, log->size_bytes, add_chunk, &dump)) status = SF_EIO;
  if (status == SF_OK) status = dump.status;
  status = status == SF_OK ? save(&dump, directory, error)
                           : sf_error_set(error, status, "the trace could not be kept: %s", sf_status_text(status));
  dump_destroy(&dump);
  return status;
}
