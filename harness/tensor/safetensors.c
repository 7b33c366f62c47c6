/* The reader; safetensors_writer.c writes. */
#include "harness/tensor/safetensors.h"

#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER_SIZE_BYTES = 8, HEADER_LIMIT_BYTES = 100000000 };
static const size_t file_limit_bytes = (size_t)1 << 40;

/* Where a reader is; the name only serves error texts. */
struct reader {
  const char *name;
  struct sf_error *error;
  const unsigned char *data;            /* what follows the header; NULL: it stays in the file */
  int64_t data_offset, data_size_bytes; /* of it in the file */
};

struct placed {
  int64_t begin, end;
  const char *name;
};

static enum sf_status refuse(const struct reader *r, const char *tensor, const char *reason) {
  return sf_error_set(r->error, SF_EINPUT, "%s: tensor \"%.100s\": %s", r->name, tensor, reason);
}

static bool read_count(int64_t *out, const json_t *value) {
  if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
  *out = json_integer_value(value);
  return true;
}

static enum sf_status read_dtype(enum sf_dtype *out, const struct reader *r, const char *tensor, const json_t *value) {
  static const struct {
    const char *text;
    enum sf_dtype dtype;
  } known[] = {{"F32", SF_F32}, {"BF16", SF_BF16}, {"F16", SF_F16}, {"F64", SF_F64}, {"F8_E4M3", SF_F8E4M3}, {"F8_E5M2", SF_F8E5M2}};
  if (!json_is_string(value)) return refuse(r, tensor, "dtype is not a string");
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    if (strcmp(json_string_value(value), known[i].text) != 0) continue;
    *out = known[i].dtype;
    return SF_OK;
  }
  return refuse(r, tensor, "dtype is none of F32, BF16, F16, F64, F8_E4M3, F8_E5M2");
}

static enum sf_status read_shape(struct sf_st_entry *entry, const struct reader *r, const char *tensor, const json_t *shape) {
  if (!json_is_array(shape)) return refuse(r, tensor, "shape is not an array");
  if (json_array_size(shape) > SF_ST_DIMS_MAX) return refuse(r, tensor, "shape has more than 8 dimensions");
  entry->dim_count = (int32_t)json_array_size(shape);
  entry->count = 1;
  for (int32_t i = 0; i < entry->dim_count; i++) {
    if (!read_count(&entry->dims[i], json_array_get(shape, (size_t)i))) return refuse(r, tensor, "shape holds something that is no size");
    if (__builtin_mul_overflow(entry->count, entry->dims[i], &entry->count)) return refuse(r, tensor, "shape has too many elements");
  }
  return SF_OK;
}

static enum sf_status read_offsets(struct sf_st_entry *entry, struct placed *place, const struct reader *r, const char *tensor,
                                   const json_t *offsets) {
  int64_t begin, end, size_bytes;
  if (!json_is_array(offsets) || json_array_size(offsets) != 2) return refuse(r, tensor, "data_offsets is not a pair");
  if (!read_count(&begin, json_array_get(offsets, 0)) || !read_count(&end, json_array_get(offsets, 1)))
    return refuse(r, tensor, "data_offsets holds something that is no offset");
  if (begin > end) return refuse(r, tensor, "data_offsets end before they begin");
  if (end > r->data_size_bytes) return refuse(r, tensor, "data_offsets reach beyond the file");
  if (__builtin_mul_overflow(entry->count, (int64_t)sf_dtype_wire_bytes(entry->dtype), &size_bytes) || size_bytes != end - begin)
    return refuse(r, tensor, "data_offsets and shape differ in size");
  entry->bytes = r->data == NULL ? NULL : r->data + begin;
  entry->offset = r->data_offset + begin;
  *place = (struct placed){.begin = begin, .end = end, .name = entry->name};
  return SF_OK;
}

static enum sf_status read_entry(struct sf_st_entry *entry, struct placed *place, const struct reader *r, const char *tensor,
                                 const json_t *value) {
  if (!json_is_object(value)) return refuse(r, tensor, "is not an object");
  if (json_object_size(value) != 3) return refuse(r, tensor, "needs exactly dtype, shape and data_offsets");
  enum sf_status status = read_dtype(&entry->dtype, r, tensor, json_object_get(value, "dtype"));
  if (status == SF_OK) status = read_shape(entry, r, tensor, json_object_get(value, "shape"));
  if (status != SF_OK) return status;
  entry->name = sf_strdup(tensor);
  if (entry->name == NULL) return sf_error_set(r->error, SF_ENOMEM, "%s: no memory for its tensors", r->name);
  return read_offsets(entry, place, r, tensor, json_object_get(value, "data_offsets"));
}

static enum sf_status read_metadata(struct sf_st_file *file, const struct reader *r, json_t *meta) {
  if (!json_is_object(meta)) return sf_error_set(r->error, SF_EINPUT, "%s: __metadata__ is not an object", r->name);
  const size_t count = json_object_size(meta);
  const char *key;
  json_t *value;
  file->meta_keys = sf_alloc((count + 1) * sizeof *file->meta_keys);
  file->meta_values = sf_alloc((count + 1) * sizeof *file->meta_values);
  if (file->meta_keys == NULL || file->meta_values == NULL) goto no_memory;
  json_object_foreach(meta, key, value) {
    if (!json_is_string(value)) return sf_error_set(r->error, SF_EINPUT, "%s: __metadata__: \"%.100s\" is not a string", r->name, key);
    file->meta_keys[file->meta_count] = sf_strdup(key);
    file->meta_values[file->meta_count] = sf_strdup(json_string_value(value));
    file->meta_count++;
    if (file->meta_keys[file->meta_count - 1] == NULL || file->meta_values[file->meta_count - 1] == NULL) goto no_memory;
  }
  return SF_OK;
no_memory:
  return sf_error_set(r->error, SF_ENOMEM, "%s: no memory for its metadata", r->name);
}

static int compare_placed(const void *a, const void *b) {
  const struct placed *x = a, *y = b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  if (x->end != y->end) return x->end < y->end ? -1 : 1;
  return strcmp(x->name, y->name);
}

static int compare_entries(const void *a, const void *b) {
  const struct sf_st_entry *x = a, *y = b;
  return strcmp(x->name, y->name);
}

/* Tensors must tile the data: each begins where the one before ends, and the last ends with the file. */
static enum sf_status check_tiling(struct placed *places, int32_t count, const struct reader *r) {
  int64_t at = 0;
  qsort(places, (size_t)count, sizeof *places, compare_placed);
  for (int32_t i = 0; i < count; i++) {
    if (places[i].begin < at) return refuse(r, places[i].name, "overlaps the tensor before it");
    if (places[i].begin > at) return refuse(r, places[i].name, "leaves a hole before it");
    at = places[i].end;
  }
  if (at != r->data_size_bytes) return sf_error_set(r->error, SF_EINPUT, "%s: data after the last tensor", r->name);
  return SF_OK;
}

static enum sf_status read_header(struct sf_st_file *file, const struct reader *r, json_t *header) {
  enum sf_status status = SF_OK;
  const size_t capacity = json_object_size(header);
  const char *key;
  json_t *value;
  struct placed *places = sf_alloc((capacity + 1) * sizeof *places);
  file->entries = sf_alloc((capacity + 1) * sizeof *file->entries);
  if (places == NULL || file->entries == NULL) status = sf_error_set(r->error, SF_ENOMEM, "%s: no memory for its tensors", r->name);
  if (status == SF_OK) {
    json_object_foreach(header, key, value) {
      if (strcmp(key, "__metadata__") == 0) {
        status = read_metadata(file, r, value);
      } else {
        status = read_entry(&file->entries[file->entry_count], &places[file->entry_count], r, key, value);
        file->entry_count++;
      }
      if (status != SF_OK) break;
    }
  }
  if (status == SF_OK) status = check_tiling(places, file->entry_count, r);
  if (status == SF_OK) qsort(file->entries, (size_t)file->entry_count, sizeof *file->entries, compare_entries);
  sf_free(places);
  return status;
}

/* The size of the header, from the file's first bytes (HEADER_SIZE_BYTES of them, unless the file is shorter). */
static enum sf_status header_size(int64_t *out, const unsigned char *first, uint64_t file_bytes, const char *name, struct sf_error *error) {
  if (file_bytes < HEADER_SIZE_BYTES)
    return sf_error_set(error, SF_EINPUT, "%s: shorter than the 8 bytes that give the header's size", name);
  const uint64_t header_bytes = sf_load_u64_le(first);
  if (header_bytes > file_bytes - HEADER_SIZE_BYTES || header_bytes > HEADER_LIMIT_BYTES) {
    return sf_error_set(error, SF_EINPUT, "%s: a header of %llu bytes is beyond the file or the limit of 100 MB", name,
                        (unsigned long long)header_bytes);
  }
  *out = (int64_t)header_bytes;
  return SF_OK;
}

/* Fills file, which is the caller's to destroy on failure too. */
static enum sf_status parse_header(struct sf_st_file *file, const struct reader *r, const char *text, int64_t header_bytes) {
  json_error_t where;
  json_t *header = NULL;
  if (header_bytes == 0 || text[0] != '{') return sf_error_set(r->error, SF_EINPUT, "%s: the header does not begin with {", r->name);
  enum sf_status status = sf_json_read(&header, text, (size_t)header_bytes, JSON_REJECT_DUPLICATES, &where);
  if (status == SF_ENOMEM) return sf_error_set(r->error, status, "%s: header: out of memory", r->name);
  if (status != SF_OK) return sf_error_set(r->error, status, "%s: header: %s (byte %d)", r->name, where.text, where.position);
  status = read_header(file, r, header);
  json_decref(header);
  return status;
}

/* Takes *raw over, on failure too. */
static enum sf_status take(struct sf_st_file *out, struct sf_bytes raw, const char *name, struct sf_error *error) {
  struct sf_st_file file = {.raw = raw};
  int64_t header_bytes = 0;
  enum sf_status status = header_size(&header_bytes, raw.data, raw.size_bytes, name, error);
  if (status == SF_OK) {
    const int64_t begin = HEADER_SIZE_BYTES + header_bytes;
    const struct reader r = {name, error, raw.data + begin, begin, (int64_t)raw.size_bytes - begin};
    status = parse_header(&file, &r, (const char *)raw.data + HEADER_SIZE_BYTES, header_bytes);
  }
  if (status == SF_OK)
    *out = file;
  else
    sf_st_destroy(&file);
  return status;
}

/* --- files that stay where they are ----------------------------------------------------------------------------- */

static enum sf_status read_at(int file, const char *path, void *out, size_t size_bytes, int64_t offset, struct sf_error *error) {
  for (size_t done = 0; done < size_bytes;) {
    const ssize_t got = pread(file, (unsigned char *)out + done, size_bytes - done, offset + (int64_t)done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return sf_error_set(error, SF_EIO, "%s: cannot read: %s", path, strerror(errno));
    if (got == 0) return sf_error_set(error, SF_EINPUT, "%s: became shorter while it was read", path);
    done += (size_t)got;
  }
  return SF_OK;
}

static enum sf_status open_header(struct sf_st_open *open_file, struct sf_error *error) {
  struct stat info;
  unsigned char first[HEADER_SIZE_BYTES] = {0};
  const char *path = open_file->path;
  int64_t header_bytes = 0;
  if (fstat(open_file->descriptor, &info) != 0) return sf_error_set(error, SF_EIO, "%s: cannot read: %s", path, strerror(errno));
  if (!S_ISREG(info.st_mode)) return sf_error_set(error, SF_EINPUT, "%s: not a regular file", path);
  const size_t first_bytes = info.st_size < HEADER_SIZE_BYTES ? 0 : HEADER_SIZE_BYTES;
  enum sf_status status = read_at(open_file->descriptor, path, first, first_bytes, 0, error);
  if (status == SF_OK) status = header_size(&header_bytes, first, (uint64_t)info.st_size, path, error);
  if (status != SF_OK) return status;
  char *text = sf_alloc((size_t)header_bytes + 1);
  if (text == NULL) return sf_error_set(error, SF_ENOMEM, "%s: no memory for its header", path);
  status = read_at(open_file->descriptor, path, text, (size_t)header_bytes, HEADER_SIZE_BYTES, error);
  const int64_t begin = HEADER_SIZE_BYTES + header_bytes;
  const struct reader r = {path, error, NULL, begin, (int64_t)info.st_size - begin};
  if (status == SF_OK) status = parse_header(&open_file->file, &r, text, header_bytes);
  sf_free(text);
  return status;
}

/* What stands at the path and is no file that can be read is wrong input, like a file with the wrong bytes in it. */
static enum sf_status status_of_open(int code) {
  static const int wrong[] = {ELOOP, ENOTDIR, EISDIR, EACCES, EPERM, ENXIO, ENODEV, ENAMETOOLONG};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
    if (code == wrong[i]) return SF_EINPUT;
  return sf_status_of_errno(code);
}

enum sf_status sf_st_open(struct sf_st_open *out, const char *path, struct sf_error *error) {
  struct sf_st_open open_file = {.descriptor = -1, .path = sf_strdup(path)};
  enum sf_status status = SF_OK;
  if (open_file.path == NULL) return sf_error_set(error, SF_ENOMEM, "%s: out of memory", path);
  /* Not blocking: opening a named pipe must come back, to be refused. */
  open_file.descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (open_file.descriptor < 0)
    status = sf_error_set(error, status_of_open(errno), "%s: cannot open: %s", path, sf_errno_text(errno).text);
  else
    status = open_header(&open_file, error);
  if (status == SF_OK)
    *out = open_file;
  else
    sf_st_close(&open_file);
  return status;
}

enum sf_status sf_st_load(void *out, const struct sf_st_open *from, const struct sf_st_entry *entry, int64_t first, int64_t count,
                          struct sf_error *error) {
  SF_ASSERT_LE(0, first);
  SF_ASSERT_LE(0, count);
  SF_ASSERT_LE(first + count, entry->count);
  const int64_t width = (int64_t)sf_dtype_wire_bytes(entry->dtype);
  return read_at(from->descriptor, from->path, out, (size_t)(count * width), entry->offset + first * width, error);
}

void sf_st_close(struct sf_st_open *open_file) {
  if (open_file == NULL) return;
  if (open_file->path != NULL && open_file->descriptor >= 0) close(open_file->descriptor);
  sf_free(open_file->path);
  sf_st_destroy(&open_file->file);
  *open_file = (struct sf_st_open){.descriptor = -1};
}

/* --- files in memory --------------------------------------------------------------------------------------------- */

enum sf_status sf_st_parse(struct sf_st_file *out, const void *data, size_t size_bytes, const char *name, struct sf_error *error) {
  struct sf_bytes raw = {.data = sf_alloc(size_bytes + 1), .size_bytes = size_bytes};
  if (raw.data == NULL) return sf_error_set(error, SF_ENOMEM, "%s: no memory for %zu bytes", name, size_bytes);
  if (size_bytes > 0) memcpy(raw.data, data, size_bytes);
  return take(out, raw, name, error);
}

enum sf_status sf_st_read(struct sf_st_file *out, const char *path, struct sf_error *error) {
  struct sf_bytes raw = {0};
  const enum sf_status status = sf_bytes_read_file(&raw, path, file_limit_bytes, error);
  return status == SF_OK ? take(out, raw, path, error) : status;
}

void sf_st_destroy(struct sf_st_file *file) {
  if (file == NULL) return;
  for (int32_t i = 0; i < file->entry_count; i++) sf_free(file->entries[i].name);
  for (int32_t i = 0; i < file->meta_count; i++) {
    sf_free(file->meta_keys[i]);
    sf_free(file->meta_values[i]);
  }
  sf_free(file->entries);
  sf_free(file->meta_keys);
  sf_free(file->meta_values);
  sf_bytes_destroy(&file->raw);
  *file = (struct sf_st_file){0};
}

const struct sf_st_entry *sf_st_find(const struct sf_st_file *file, const char *name) {
  int32_t low = 0, high = file->entry_count;
  while (low < high) {
    const int32_t middle = low + (high - low) / 2;
    const int order = strcmp(file->entries[middle].name, name);
    if (order == 0) return &file->entries[middle];
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return NULL;
}

const char *sf_st_meta(const struct sf_st_file *file, const char *key) {
  for (int32_t i = 0; i < file->meta_count; i++)
    if (strcmp(file->meta_keys[i], key) == 0) return file->meta_values[i];
  return NULL;
}
