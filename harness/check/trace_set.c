#include "harness/check/trace_set.h"

#include "harness/base/hash.h"
#include "harness/base/json.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { FORMAT = 1, RANKS_MAX = 65536, ARENA_BLOCK_BYTES = 1 << 18, TABLE_FIRST = 1024 };

/* Reading one rank's metadata. */
struct reading {
  struct sf_trace_set *set;
  int32_t rank;
  const char *path; /* of the rank's file */
  struct sf_error *error;
  struct sf_index_dim dims[SF_ST_DIMS_MAX]; /* lists of the current tensor */
};

static enum sf_status refuse(const struct reading *r, const char *tensor, const char *reason) {
  return sf_error_set(r->error, SF_EINPUT, "%s: tensor \"%.160s\": %s", r->path, tensor, reason);
}

static enum sf_status no_memory(const struct reading *r) {
  return sf_error_set(r->error, SF_ENOMEM, "%s: no memory for its tensors", r->path);
}

/* --- table of names ---------------------------------------------------------------------------------------------- */

static int32_t *table_place(const struct sf_trace_set *set, const char *name) {
  uint64_t at = sf_hash_string(0, name) % (uint64_t)set->table_size;
  while (set->table[at] >= 0 && strcmp(set->tensors[set->table[at]].text, name) != 0) at = (at + 1) % (uint64_t)set->table_size;
  return &set->table[at];
}

static bool table_grow(struct sf_trace_set *set) {
  const int32_t size = set->table_size == 0 ? TABLE_FIRST : 2 * set->table_size;
  int32_t *table = sf_alloc((size_t)size * sizeof *table);
  struct sf_trace_tensor *tensors = sf_realloc(set->tensors, (size_t)(size / 2) * sizeof *tensors);
  if (tensors != NULL) set->tensors = tensors;
  if (table == NULL || tensors == NULL) {
    sf_free(table);
    return false;
  }
  sf_free(set->table);
  set->table = table;
  set->table_size = size;
  set->capacity = size / 2;
  for (int32_t i = 0; i < size; i++) table[i] = -1;
  for (int32_t i = 0; i < set->count; i++) *table_place(set, set->tensors[i].text) = i;
  return true;
}

const struct sf_trace_tensor *sf_trace_set_find(const struct sf_trace_set *set, const char *name) {
  if (set->table_size == 0) return NULL;
  const int32_t at = *table_place(set, name);
  return at < 0 ? NULL : &set->tensors[at];
}

/* --- one tensor of one rank -------------------------------------------------------------------------------------- */

static bool read_integer(int64_t *out, const json_t *value) {
  if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
  *out = json_integer_value(value);
  return true;
}

static enum sf_status read_shape(struct sf_trace_tensor *out, const struct reading *r, const char *name, const json_t *shape,
                                 const struct sf_st_entry *entry) {
  if (shape != NULL && (!json_is_array(shape) || json_array_size(shape) > SF_ST_DIMS_MAX))
    return refuse(r, name, "shape is no array of at most 8 sizes");
  out->dim_count = shape != NULL ? (int32_t)json_array_size(shape) : entry->dim_count;
  out->count = out->rows = 1;
  for (int32_t d = 0; d < out->dim_count; d++) {
    out->dims[d] = entry->dims[d];
    if (shape != NULL && !read_integer(&out->dims[d], json_array_get(shape, (size_t)d)))
      return refuse(r, name, "shape holds something that is no size");
    if (__builtin_mul_overflow(out->count, out->dims[d], &out->count)) return refuse(r, name, "its shape has too many elements");
    if (d < out->dim_count - 1) out->rows *= out->dims[d];
  }
  out->cols = out->dim_count > 0 ? out->dims[out->dim_count - 1] : 1;
  if (out->count == 0) out->rows = 0;
  return SF_OK;
}

/* One dimension's list into r->dims[d], whose runs are allocated. */
static enum sf_status read_runs(struct reading *r, int32_t d, const char *name, const json_t *list) {
  if (!json_is_array(list)) return refuse(r, name, "index holds something that is no list");
  const size_t count = json_array_size(list);
  struct sf_index_run *runs = sf_alloc((count + 1) * sizeof *runs);
  if (runs == NULL) return no_memory(r);
  r->dims[d] = (struct sf_index_dim){.count = (int32_t)count, .runs = runs};
  for (size_t i = 0; i < count; i++) {
    const json_t *run = json_array_get(list, i);
    const size_t parts = json_array_size(run);
    const bool is_run = json_is_array(run) && (parts == 2 || parts == 3) && read_integer(&runs[i].start, json_array_get(run, 0)) &&
                        read_integer(&runs[i].len, json_array_get(run, 1)) &&
                        (parts == 2 || read_integer(&runs[i].sum, json_array_get(run, 2)));
    if (!is_run) return refuse(r, name, "index holds something that is neither [start, length] nor [start, length, sum]");
  }
  return SF_OK;
}

static enum sf_status make_piece(struct sf_piece **out, struct reading *r, const char *name, const json_t *value,
                                 const struct sf_trace_tensor *tensor, const struct sf_st_entry *entry) {
  const json_t *index = json_object_get(value, "index"), *flat = json_object_get(value, "flat");
  struct sf_piece_source source = {
      .rank = r->rank, .dim_count = tensor->dim_count, .shape = tensor->dims, .entry = entry, .flat = flat != NULL};
  enum sf_status status = SF_OK;
  const char *reason = "";
  if (index != NULL && (!json_is_array(index) || json_array_size(index) != (size_t)tensor->dim_count))
    return refuse(r, name, "index does not have one list for each dimension of the shape");
  if (flat != NULL && (!json_is_array(flat) || json_array_size(flat) != 2 || !read_integer(&source.first, json_array_get(flat, 0)) ||
                       !read_integer(&source.count, json_array_get(flat, 1))))
    return refuse(r, name, "flat is not [first, count]");
  memset(r->dims, 0, sizeof r->dims);
  for (int32_t d = 0; status == SF_OK && index != NULL && d < tensor->dim_count; d++)
    status = read_runs(r, d, name, json_array_get(index, (size_t)d));
  if (index != NULL) source.dims = r->dims;
  if (status == SF_OK) {
    status = sf_piece_create(out, &source, r->set->arena, &reason);
    if (status == SF_ENOMEM) no_memory(r);
    if (status == SF_EINPUT) refuse(r, name, reason);
  }
  for (int32_t d = 0; d < SF_ST_DIMS_MAX; d++) sf_free(r->dims[d].runs);
  return status;
}

bool sf_tensor_same_shape(const struct sf_trace_tensor *a, const struct sf_trace_tensor *b) {
  return a->dim_count == b->dim_count && memcmp(a->dims, b->dims, sizeof a->dims) == 0;
}

static void note_shape(struct sf_trace_tensor *known, const struct sf_trace_tensor *local, int32_t rank) {
  if (known->odd_shape_rank >= 0 || sf_tensor_same_shape(known, local)) return;
  known->odd_shape_rank = rank;
  known->odd_dim_count = local->dim_count;
  memcpy(known->odd_dims, local->dims, sizeof local->dims);
}

static enum sf_status add_tensor(struct reading *r, const char *name, const json_t *value, const struct sf_st_entry *entry) {
  struct sf_trace_set *set = r->set;
  struct sf_trace_tensor local = {.odd_shape_rank = -1};
  struct sf_piece *piece = NULL;
  if (!json_is_object(value)) return refuse(r, name, "is not an object");
  enum sf_status status = read_shape(&local, r, name, json_object_get(value, "shape"), entry);
  if (status == SF_OK) status = make_piece(&piece, r, name, value, &local, entry);
  if (status != SF_OK) return status;
  if (set->count >= set->capacity && !table_grow(set)) return no_memory(r);
  int32_t *place = table_place(set, name);
  if (*place >= 0) {
    struct sf_trace_tensor *known = &set->tensors[*place];
    note_shape(known, &local, r->rank);
    known->mixed |= entry->dtype != known->dtype;
    known->last->next = piece;
    known->last = piece;
    return SF_OK;
  }
  local.text = entry->name; /* lives as long as the file is open */
  local.dtype = entry->dtype;
  local.pieces = local.last = piece;
  if (!sf_trace_name_parse(&local.name, local.text))
    return refuse(r, name, "its name is not s<step>/mb<microbatch>/<pass>/<kind>/<subject>/<call>");
  set->tensors[set->count] = local;
  *place = set->count++;
  return SF_OK;
}

const char *sf_trace_set_mode(const struct sf_trace_set *set) { return set->isolated ? "isolated" : set->anchored ? "anchored" : "e2e"; }

/* --- one rank ---------------------------------------------------------------------------------------------------- */

static enum sf_status read_mode(struct reading *r, const json_t *mode) {
  const char *text = json_is_string(mode) ? json_string_value(mode) : "";
  const bool isolated = strcmp(text, "isolated") == 0, anchored = strcmp(text, "anchored") == 0;
  if (!isolated && !anchored && strcmp(text, "e2e") != 0)
    return sf_error_set(r->error, SF_EINPUT, "%s: mode is none of \"e2e\", \"isolated\" and \"anchored\"", r->path);
  if (r->rank > 0 && (isolated != r->set->isolated || anchored != r->set->anchored))
    return sf_error_set(r->error, SF_EINPUT, "%s: mode is \"%s\", unlike rank 0's", r->path, text);
  r->set->isolated = isolated;
  r->set->anchored = anchored;
  return SF_OK;
}

/* Some rank says it for all. */
static enum sf_status read_replicas(struct reading *r, const json_t *replicas) {
  const char *text = json_is_string(replicas) ? json_string_value(replicas) : replicas ? "" : "equal";
  if (strcmp(text, "equal") != 0 && strcmp(text, "close") != 0)
    return sf_error_set(r->error, SF_EINPUT, "%s: replicas is none of \"equal\" and \"close\"", r->path);
  r->set->close_replicas |= strcmp(text, "close") == 0;
  return SF_OK;
}

static enum sf_status read_numbers(struct reading *r, const json_t *root) {
  int64_t format, rank, ranks;
  if (!json_is_object(root)) return sf_error_set(r->error, SF_EINPUT, "%s: metadata \"shardfuzz\" is not an object", r->path);
  if (!read_integer(&format, json_object_get(root, "format")))
    return sf_error_set(r->error, SF_EINPUT, "%s: metadata \"shardfuzz\" names no format", r->path);
  if (format != FORMAT)
    return sf_error_set(r->error, SF_EINPUT, "%s: format %lld; this program reads format %d", r->path, (long long)format, FORMAT);
  if (!read_integer(&rank, json_object_get(root, "rank")) || rank != r->rank)
    return sf_error_set(r->error, SF_EINPUT, "%s: its metadata does not say that it is rank %d", r->path, r->rank);
  if (!read_integer(&ranks, json_object_get(root, "ranks")) || ranks < 1 || ranks > RANKS_MAX)
    return sf_error_set(r->error, SF_EINPUT, "%s: ranks is no number from 1 to %d", r->path, RANKS_MAX);
  if (r->rank > 0 && ranks != r->set->ranks)
    return sf_error_set(r->error, SF_EINPUT, "%s: says that there are %lld ranks, rank 0 says %d", r->path, (long long)ranks,
                        r->set->ranks);
  r->set->ranks = (int32_t)ranks;
  const enum sf_status status = read_replicas(r, json_object_get(root, "replicas"));
  return status == SF_OK ? read_mode(r, json_object_get(root, "mode")) : status;
}

/* The set's group of that name; adds it if it is new. */
static enum sf_status find_group(struct sf_trace_group **out, const struct reading *r, const char *name) {
  struct sf_trace_set *set = r->set;
  int32_t at = 0;
  while (at < set->group_count && strcmp(set->groups[at].name, name) != 0) at++;
  if (at == SF_TRACE_GROUPS_MAX || strlen(name) >= sizeof set->groups[0].name)
    return sf_error_set(r->error, SF_EINPUT, "%s: groups: at most %d, with short names, not \"%.40s\"", r->path, SF_TRACE_GROUPS_MAX, name);
  struct sf_trace_group *group = *out = &set->groups[at];
  if (at < set->group_count) return SF_OK;
  group->of_rank = sf_arena_alloc(set->arena, (size_t)set->ranks * sizeof *group->of_rank);
  if (group->of_rank == NULL) return no_memory(r);
  for (int32_t rank = 0; rank < set->ranks; rank++) group->of_rank[rank] = rank;
  snprintf(group->name, sizeof group->name, "%s", name);
  set->group_count++;
  return SF_OK;
}

/* Reads this rank's group: its lowest rank and its size. False if it is not a list of different ranks that contains this rank. seen:
 * [ranks], all false; again so where the list is one. */
static bool read_group(int32_t *lowest, int32_t *size, bool *seen, const struct reading *r, const json_t *ranks) {
  int64_t rank;
  if (json_array_size(ranks) > (size_t)r->set->ranks) return false;
  *lowest = r->rank;
  *size = (int32_t)json_array_size(ranks);
  for (int32_t i = 0; i < *size; i++) {
    if (!read_integer(&rank, json_array_get(ranks, (size_t)i)) || rank >= r->set->ranks || seen[rank]) return false;
    seen[rank] = true;
    if (rank < *lowest) *lowest = (int32_t)rank;
  }
  const bool is_in = seen[r->rank];
  for (int32_t i = 0; i < *size; i++) seen[json_integer_value(json_array_get(ranks, (size_t)i))] = false;
  return is_in;
}

static enum sf_status read_groups(const struct reading *r, json_t *groups) {
  const char *name;
  json_t *ranks;
  if (groups == NULL) return SF_OK;
  if (!json_is_object(groups)) return sf_error_set(r->error, SF_EINPUT, "%s: groups is not an object", r->path);
  bool *seen = sf_alloc((size_t)r->set->ranks * sizeof *seen);
  enum sf_status status = seen != NULL ? SF_OK : sf_error_set(r->error, SF_ENOMEM, "%s: out of memory", r->path);
  json_object_foreach(groups, name, ranks) {
    struct sf_trace_group *group = NULL;
    int32_t lowest = 0, size = 0;
    if (status == SF_OK) status = find_group(&group, r, name);
    if (status == SF_OK && !read_group(&lowest, &size, seen, r, ranks))
      status = sf_error_set(r->error, SF_EINPUT, "%s: groups: \"%s\" is no list of ranks with rank %d in it", r->path, name, r->rank);
    if (status != SF_OK) break;
    group->of_rank[r->rank] = lowest;
    if (size > group->size) group->size = size;
  }
  sf_free(seen);
  return status;
}

static enum sf_status read_metadata(struct reading *r, const struct sf_st_file *file) {
  json_error_t where;
  const char *key, *text = sf_st_meta(file, "shardfuzz");
  json_t *value, *root = NULL;
  if (text == NULL) return sf_error_set(r->error, SF_EINPUT, "%s: no metadata \"shardfuzz\"", r->path);
  enum sf_status status = sf_json_read(&root, text, strlen(text), JSON_REJECT_DUPLICATES, &where);
  if (status == SF_ENOMEM) return sf_error_set(r->error, status, "%s: metadata \"shardfuzz\": out of memory", r->path);
  if (status != SF_OK)
    return sf_error_set(r->error, status, "%s: metadata \"shardfuzz\": %s (byte %d)", r->path, where.text, where.position);
  status = read_numbers(r, root);
  if (status == SF_OK) status = read_groups(r, json_object_get(root, "groups"));
  json_t *tensors = json_object_get(root, "tensors");
  if (status == SF_OK && !json_is_object(tensors)) status = sf_error_set(r->error, SF_EINPUT, "%s: tensors is not an object", r->path);
  if (status == SF_OK) {
    json_object_foreach(tensors, key, value) {
      const struct sf_st_entry *entry = sf_st_find(file, key);
      status = entry == NULL ? refuse(r, key, "stands in the metadata alone") : add_tensor(r, key, value, entry);
      if (status != SF_OK) break;
    }
  }
  for (int32_t i = 0; status == SF_OK && i < file->entry_count; i++)
    if (json_object_get(tensors, file->entries[i].name) == NULL) status = refuse(r, file->entries[i].name, "is missing from the metadata");
  json_decref(root);
  return status;
}

/* Frees the metadata, but keeps the names, which the entries point to. */
static void drop_metadata(struct sf_st_file *file) {
  for (int32_t i = 0; i < file->meta_count; i++) {
    sf_free(file->meta_keys[i]);
    sf_free(file->meta_values[i]);
  }
  file->meta_count = 0;
}

static bool rank_path(char *out, size_t size, const char *path, int32_t rank) {
  return snprintf(out, size, "%s/rank-%05d.safetensors", path, rank) < (int)size;
}

static enum sf_status open_rank(struct sf_trace_set *set, int32_t rank, struct sf_error *error) {
  char path[400];
  struct reading r = {.set = set, .rank = rank, .path = path, .error = error};
  if (!rank_path(path, sizeof path, set->path, rank)) return sf_error_set(error, SF_EINPUT, "%.80s..: the path is too long", set->path);
  enum sf_status status = sf_st_open(&set->files[rank], path, error);
  if (status == SF_ENOTFOUND && rank > 0)
    return sf_error_set(error, SF_EINPUT, "%s: missing; rank 0 says that there are %d ranks", path, set->ranks);
  if (status == SF_ENOTFOUND) return sf_error_set(error, SF_EINPUT, "%s: no such file; a trace is a folder with one file per rank", path);
  if (status != SF_OK) return status;
  status = read_metadata(&r, &set->files[rank].file);
  drop_metadata(&set->files[rank].file);
  return status;
}

enum sf_status sf_trace_set_open(struct sf_trace_set *out, const char *path, struct sf_error *error) {
  char next[400];
  struct sf_trace_set set = {
      .path = sf_strdup(path), .arena = sf_arena_create(ARENA_BLOCK_BYTES, false), .files = sf_alloc(sizeof *set.files)};
  enum sf_status status = SF_OK;
  if (set.path == NULL || set.arena == NULL || set.files == NULL) status = sf_error_set(error, SF_ENOMEM, "%s: out of memory", path);
  if (status == SF_OK) status = open_rank(&set, 0, error);
  if (status == SF_OK) {
    struct sf_st_open *files = sf_realloc(set.files, (size_t)set.ranks * sizeof *files);
    if (files == NULL) {
      set.ranks = 1;
      status = sf_error_set(error, SF_ENOMEM, "%s: out of memory", path);
    } else {
      set.files = files;
      memset(files + 1, 0, (size_t)(set.ranks - 1) * sizeof *files);
    }
  } else {
    set.ranks = set.files != NULL;
  }
  for (int32_t rank = 1; status == SF_OK && rank < set.ranks; rank++) status = open_rank(&set, rank, error);
  if (status == SF_OK && rank_path(next, sizeof next, path, set.ranks) && access(next, F_OK) == 0)
    status = sf_error_set(error, SF_EINPUT, "%s: is there, but rank 0 says that there are %d ranks", next, set.ranks);
  if (status == SF_OK)
    *out = set;
  else
    sf_trace_set_close(&set);
  return status;
}

void sf_trace_set_close(struct sf_trace_set *set) {
  if (set == NULL) return;
  for (int32_t i = 0; set->files != NULL && i < set->ranks; i++) sf_st_close(&set->files[i]);
  sf_free(set->files);
  sf_free(set->tensors);
  sf_free(set->table);
  sf_free(set->path);
  sf_arena_destroy(set->arena);
  *set = (struct sf_trace_set){0};
}
