#include "harness/run/trace_dump.h"

#include "harness/base/alloc.h"
#include "harness/base/bytes.h"
#include "harness/tensor/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct rank_dump {
  struct sf_st_writer *writer;
  struct sf_text maps; /* the JSON text of the shard maps, without its closing brace */
};

struct sf_trace_dump {
  int32_t ranks;
  enum sf_status status;
  struct rank_dump *of_rank;
};

enum sf_status sf_trace_dump_create(struct sf_trace_dump **out, int32_t ranks) {
  struct sf_trace_dump *dump = sf_alloc(sizeof *dump);
  if (!dump) return SF_ENOMEM;
  dump->ranks = ranks;
  dump->of_rank = sf_alloc((size_t)ranks * sizeof *dump->of_rank);
  enum sf_status status = dump->of_rank ? SF_OK : SF_ENOMEM;
  for (int32_t i = 0; status == SF_OK && i < ranks; i++) status = sf_st_writer_create(&dump->of_rank[i].writer);
  if (status != SF_OK) {
    sf_trace_dump_destroy(dump);
    return status;
  }
  *out = dump;
  return SF_OK;
}

static void append_runs(struct sf_text *text, const struct sf_dim_map *dim) {
  sf_text_append(text, "[");
  for (int32_t i = 0; i < dim->count; i++) {
    const struct sf_run *run = &dim->runs[i];
    sf_text_append(text, "%s[%" PRId64 ",%" PRId64 ",%d]", i ? "," : "", run->start, run->len, run->partial ? 1 : 0);
  }
  sf_text_append(text, "]");
}

/* {"name":{"shape":[rows,cols],"rows":[[start,len,partial],..],"cols":[..]},..} */
static void append_map(struct sf_text *text, const char *name, struct sf_shape shape, const struct sf_shard_map *map) {
  sf_text_append(text, "%s\"%s\":{\"shape\":[%" PRId64 ",%" PRId64 "],\"rows\":", text->length ? "," : "{", name, shape.rows, shape.cols);
  append_runs(text, &map->rows);
  sf_text_append(text, ",\"cols\":");
  append_runs(text, &map->cols);
  sf_text_append(text, "}");
}

void sf_trace_dump_add(struct sf_trace_dump *dump, const struct sf_catalog *catalog, int32_t rank, struct sf_trace_id id, const struct sf_shard_map *map,
                       const float *data, int64_t rows, int64_t cols) {
  struct sf_trace_spec spec;
  char name[160];
  if (dump->status != SF_OK || rank < 0 || rank >= dump->ranks || !sf_trace_spec(&spec, catalog, id)) return;
  struct rank_dump *to = &dump->of_rank[rank];
  const int64_t dims[2] = {rows, cols};
  sf_trace_id_text(name, sizeof name, catalog, id);
  dump->status = sf_st_writer_add(to->writer, name, spec.promised, dims, 2, data);
  append_map(&to->maps, name, spec.shape, map);
  if (to->maps.failed) dump->status = SF_ENOMEM;
}

static enum sf_status save_rank(struct rank_dump *from, const char *path, struct sf_error *error) {
  sf_text_append(&from->maps, from->maps.length ? "}" : "{}");
  if (from->maps.failed) return sf_error_set(error, SF_ENOMEM, "%s: out of memory", path);
  const enum sf_status status = sf_st_writer_meta(from->writer, "shardfuzz", from->maps.data);
  if (status != SF_OK) return sf_error_set(error, status, "%s: %s", path, sf_status_text(status));
  return sf_st_writer_save(from->writer, path, error);
}

enum sf_status sf_trace_dump_save(struct sf_trace_dump *dump, const char *directory, struct sf_error *error) {
  if (dump->status != SF_OK) return sf_error_set(error, dump->status, "the trace could not be kept: %s", sf_status_text(dump->status));
  if (mkdir(directory, 0777) != 0 && errno != EEXIST) return sf_error_set(error, SF_EIO, "%s: %s", directory, strerror(errno));
  for (int32_t i = 0; i < dump->ranks; i++) {
    char path[1024];
    snprintf(path, sizeof path, "%s/rank-%05d.safetensors", directory, i);
    const enum sf_status status = save_rank(&dump->of_rank[i], path, error);
    if (status != SF_OK) return status;
  }
  return SF_OK;
}

void sf_trace_dump_destroy(struct sf_trace_dump *dump) {
  if (!dump) return;
  for (int32_t i = 0; dump->of_rank && i < dump->ranks; i++) {
    sf_st_writer_destroy(dump->of_rank[i].writer);
    sf_text_destroy(&dump->of_rank[i].maps);
  }
  sf_free(dump->of_rank);
  sf_free(dump);
}
