#include "harness/check/whole.h"

#include "harness/base/bytes.h"
#include "harness/base/json.h"
#include "harness/check/blocks.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

struct writing {
  const struct sf_trace_set *set;
  struct sf_merger *merger;
  bool *is_whole; /* by tensor */
  struct sf_new_file file;
  struct sf_st_open layout; /* where each tensor lies in the file */
  struct sf_error *error;
};

/* Merges the tensor block by block, into the file if it has a place there. */
static enum sf_status merge_tensor(struct sf_merge_report *merged, struct writing *w, const struct sf_trace_tensor *tensor,
                                   const struct sf_st_entry *place) {
  struct sf_block block;
  enum sf_status status = sf_merger_begin(w->merger, w->set, tensor, w->error);
  for (bool more = sf_block_first(&block, tensor); status == SF_OK && more; more = sf_block_next(&block, tensor)) {
    const void *values;
    const size_t width = sf_dtype_wire_bytes(sf_merger_dtype(w->merger));
    status = sf_merger_block(w->merger, &values, block.begin, block.end, w->error);
    if (status == SF_OK && place != NULL)
      status = sf_new_file_write(&w->file, values, (size_t)(block.end - block.begin) * width, place->offset + block.begin * (int64_t)width,
                                 w->error);
  }
  if (status == SF_OK) *merged = sf_merger_report(w->merger);
  return status;
}

static enum sf_status find_whole(bool *is_whole, struct writing *w, const struct sf_trace_tensor *tensor) {
  char reason[SF_MISFIT_TEXT];
  struct sf_merge_report merged = {0};
  *is_whole = tensor->name.pass != SF_PASS_RECOMPUTE && tensor->count > 0 && sf_tensor_fits(reason, tensor, tensor);
  if (!*is_whole) return SF_OK;
  const enum sf_status status = merge_tensor(&merged, w, tensor, NULL);
  *is_whole = merged.gap_count == 0;
  return status;
}

/* The metadata of a trace of one rank. NULL on no memory. */
static char *metadata_text(const struct writing *w) {
  json_t *tensors = json_object();
  bool good = tensors != NULL;
  for (int32_t i = 0; good && i < w->set->count; i++)
    if (w->is_whole[i]) good = json_object_set_new(tensors, w->set->tensors[i].text, json_object()) == 0;
  json_t *root = json_pack("{s:i, s:i, s:i, s:s, s:o}", "format", 1, "rank", 0, "ranks", 1, "mode", w->set->isolated ? "isolated" : "e2e",
                           "tensors", tensors);
  char *text = good && root != NULL ? sf_json_dump(root, JSON_COMPACT) : NULL;
  json_decref(root);
  return text;
}

static enum sf_status lay_out(struct writing *w, const char *path) {
  struct sf_st_writer *writer = NULL;
  char *text = metadata_text(w);
  enum sf_status status = text != NULL ? sf_st_writer_create(&writer) : SF_ENOMEM;
  for (int32_t i = 0; status == SF_OK && i < w->set->count; i++) {
    const struct sf_trace_tensor *tensor = &w->set->tensors[i];
    if (!w->is_whole[i]) continue;
    status = sf_merger_begin(w->merger, w->set, tensor, w->error);
    if (status == SF_OK) status = sf_st_writer_declare(writer, tensor->text, sf_merger_dtype(w->merger), tensor->dims, tensor->dim_count);
  }
  if (status == SF_OK) status = sf_st_writer_meta(writer, "shardfuzz", text);
  status = sf_st_writer_lay_out(writer, status, &w->file, &w->layout, path, w->error);
  sf_free(text);
  sf_st_writer_destroy(writer);
  return status;
}

enum sf_status sf_whole_write(const char *folder, const struct sf_trace_set *set, struct sf_error *error) {
  char path[400];
  struct sf_merge_report merged;
  struct writing w = {
      .set = set, .is_whole = sf_alloc((size_t)set->count * sizeof *w.is_whole), .file = {.descriptor = -1}, .error = error};
  enum sf_status status = SF_OK;
  if (snprintf(path, sizeof path, "%s/rank-00000.safetensors", folder) >= (int)sizeof path)
    status = sf_error_set(error, SF_EINPUT, "%.80s..: the path is too long", folder);
  if (status == SF_OK) status = w.is_whole != NULL ? sf_merger_create(&w.merger) : SF_ENOMEM;
  for (int32_t i = 0; status == SF_OK && i < set->count; i++) status = find_whole(&w.is_whole[i], &w, &set->tensors[i]);
  if (status == SF_OK) status = lay_out(&w, path);
  for (int32_t i = 0; status == SF_OK && i < set->count; i++)
    if (w.is_whole[i]) status = merge_tensor(&merged, &w, &set->tensors[i], sf_st_find(&w.layout.file, set->tensors[i].text));
  if (status == SF_OK) status = sf_new_file_commit(&w.file, error);
  sf_st_close(&w.layout);
  sf_new_file_abandon(&w.file);
  sf_merger_destroy(w.merger);
  sf_free(w.is_whole);
  return status;
}
