#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/base/json.h"
#include "harness/tensor/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "values are written as they lie in memory, and the format is little-endian");

struct tensor {
  char *name;
  enum sf_dtype dtype;
  int32_t dim_count;
  int64_t dims[SF_ST_DIMS_MAX];
  int64_t count;
  size_t size_bytes;
  unsigned char *bytes; /* wire format; NULL: declared only */
};

struct sf_st_writer {
  struct tensor *tensors;
  size_t count, capacity;
  json_t *meta; /* NULL until the first entry */
};

enum sf_status sf_st_writer_create(struct sf_st_writer **out) {
  struct sf_st_writer *writer = sf_alloc(sizeof *writer);
  if (writer == NULL) return SF_ENOMEM;
  *out = writer;
  return SF_OK;
}

void sf_st_writer_destroy(struct sf_st_writer *writer) {
  if (writer == NULL) return;
  for (size_t i = 0; i < writer->count; i++) {
    sf_free(writer->tensors[i].name);
    sf_free(writer->tensors[i].bytes);
  }
  sf_free(writer->tensors);
  json_decref(writer->meta);
  sf_free(writer);
}

/* Plain ASCII texts need no thought about encodings in any reader. */
static bool is_plain_text(const char *text) {
  for (; *text != '\0'; text++)
    if (((unsigned char)*text < 0x20 && *text != '\n' && *text != '\t') || (unsigned char)*text > 0x7e) return false;
  return true;
}

static bool reserve(struct sf_st_writer *writer) {
  if (writer->count < writer->capacity) return true;
  const size_t capacity = writer->capacity == 0 ? 64 : 2 * writer->capacity;
  struct tensor *tensors = sf_realloc(writer->tensors, capacity * sizeof *tensors);
  if (tensors == NULL) return false;
  writer->tensors = tensors;
  writer->capacity = capacity;
  return true;
}

enum sf_status sf_st_writer_declare(struct sf_st_writer *writer, const char *name, enum sf_dtype dtype, const int64_t *dims,
                                    int32_t dim_count) {
  int64_t count = 1, size_bytes;
  if (dim_count < 0 || dim_count > SF_ST_DIMS_MAX || !is_plain_text(name) || strcmp(name, "__metadata__") == 0) return SF_EUSAGE;
  for (int32_t i = 0; i < dim_count; i++)
    if (dims[i] < 0 || __builtin_mul_overflow(count, dims[i], &count)) return SF_EUSAGE;
  if (__builtin_mul_overflow(count, (int64_t)sf_dtype_wire_bytes(dtype), &size_bytes)) return SF_EUSAGE;
  if (!reserve(writer)) return SF_ENOMEM;
  struct tensor tensor = {
      .name = sf_strdup(name), .dtype = dtype, .dim_count = dim_count, .count = count, .size_bytes = (size_t)size_bytes};
  if (tensor.name == NULL) return SF_ENOMEM;
  if (dim_count > 0) memcpy(tensor.dims, dims, (size_t)dim_count * sizeof *dims);
  writer->tensors[writer->count++] = tensor;
  return SF_OK;
}

enum sf_status sf_st_writer_add(struct sf_st_writer *writer, const char *name, enum sf_dtype dtype, const int64_t *dims, int32_t dim_count,
                                const void *values) {
  const enum sf_status status = sf_st_writer_declare(writer, name, dtype, dims, dim_count);
  if (status != SF_OK) return status;
  struct tensor *tensor = &writer->tensors[writer->count - 1];
  tensor->bytes = sf_alloc(tensor->size_bytes + 1);
  if (tensor->bytes == NULL) {
    sf_free(tensor->name);
    writer->count--;
    return SF_ENOMEM;
  }
  if (sf_dtype_is_packed(dtype))
    sf_pack((uint16_t *)(void *)tensor->bytes, values, tensor->count, dtype);
  else if (sf_dtype_is_f8(dtype))
    for (int64_t i = 0; i < tensor->count; i++) tensor->bytes[i] = sf_f8_bits(((const float *)values)[i], dtype);
  else if (tensor->size_bytes > 0)
    memcpy(tensor->bytes, values, tensor->size_bytes);
  return SF_OK;
}

enum sf_status sf_st_writer_meta(struct sf_st_writer *writer, const char *key, const char *value) {
  if (!is_plain_text(key) || !is_plain_text(value)) return SF_EUSAGE;
  if (writer->meta == NULL) writer->meta = json_object();
  if (writer->meta == NULL || json_object_set_new(writer->meta, key, json_string(value)) != 0) return SF_ENOMEM;
  return SF_OK;
}

/* Widest elements first, so that every tensor of an aligned file is aligned; names in order within a width. */
static int compare_tensors(const void *a, const void *b) {
  const struct tensor *x = a, *y = b;
  const size_t wide = sf_dtype_wire_bytes(x->dtype), other = sf_dtype_wire_bytes(y->dtype);
  if (wide != other) return wide > other ? -1 : 1;
  return strcmp(x->name, y->name);
}

static json_t *tensor_header(const struct tensor *tensor, int64_t begin) {
  json_t *shape = json_array();
  for (int32_t i = 0; i < tensor->dim_count; i++) {
    if (json_array_append_new(shape, json_integer(tensor->dims[i])) != 0) {
      json_decref(shape);
      return NULL;
    }
  }
  /* "o" takes shape over, and fails when it is NULL. */
  return json_pack("{s:s, s:o, s:[I, I]}", "dtype", sf_dtype_file_name(tensor->dtype), "shape", shape, "data_offsets", (json_int_t)begin,
                   (json_int_t)(begin + (int64_t)tensor->size_bytes));
}

/* The header as text; NULL on no memory or when a name occurs twice (*repeated says which). */
static char *header_text(const struct sf_st_writer *writer, const char **repeated, int64_t *data_bytes) {
  char *text = NULL;
  int64_t at = 0;
  json_t *header = json_object();
  if (header == NULL) return NULL;
  if (writer->meta != NULL && json_object_set(header, "__metadata__", writer->meta) != 0) goto done;
  for (size_t i = 0; i < writer->count; i++) {
    const struct tensor *tensor = &writer->tensors[i];
    if (json_object_get(header, tensor->name) != NULL) {
      *repeated = tensor->name;
      goto done;
    }
    if (json_object_set_new(header, tensor->name, tensor_header(tensor, at)) != 0) goto done;
    at += (int64_t)tensor->size_bytes;
  }
  *data_bytes = at;
  text = sf_json_dump(header, JSON_COMPACT | JSON_PRESERVE_ORDER);
done:
  json_decref(header);
  return text;
}

/* Header size, header padded with spaces to a multiple of 8, and room for data_bytes behind. */
static unsigned char *header_image(const char *text, int64_t data_bytes, size_t *header_bytes) {
  const size_t length = strlen(text), padded = (length + 7) / 8 * 8;
  unsigned char *image = sf_alloc(8 + padded + (size_t)data_bytes);
  if (image == NULL) return NULL;
  sf_store_u64_le(image, padded);
  memcpy(image + 8, text, length);
  memset(image + 8 + length, ' ', padded - length);
  *header_bytes = 8 + padded;
  return image;
}

/* with_data: memory behind the header for all values. */
static enum sf_status make_image(struct sf_st_writer *writer, struct sf_bytes *header, int64_t *data_bytes, bool with_data,
                                 const char *path, struct sf_error *error) {
  const char *repeated = NULL;
  size_t header_bytes = 0;
  enum sf_status status = SF_OK;
  unsigned char *image = NULL;
  if (writer->count > 0) qsort(writer->tensors, writer->count, sizeof *writer->tensors, compare_tensors);
  char *text = header_text(writer, &repeated, data_bytes);
  if (text != NULL) image = header_image(text, with_data ? *data_bytes : 0, &header_bytes);
  if (repeated != NULL)
    status = sf_error_set(error, SF_EUSAGE, "%s: tensor \"%.100s\" was added twice", path, repeated);
  else if (image == NULL)
    status = sf_error_set(error, SF_ENOMEM, "%s: no memory to write it", path);
  else
    *header = (struct sf_bytes){.data = image, .size_bytes = header_bytes};
  sf_free(text);
  return status;
}

enum sf_status sf_st_writer_header(struct sf_st_writer *writer, struct sf_bytes *header, int64_t *data_bytes, const char *path,
                                   struct sf_error *error) {
  return make_image(writer, header, data_bytes, false, path, error);
}

enum sf_status sf_st_writer_lay_out(struct sf_st_writer *writer, enum sf_status declared, struct sf_new_file *file,
                                    struct sf_st_open *layout, const char *path, struct sf_error *error) {
  struct sf_bytes header = {0};
  int64_t data_bytes = 0;
  if (declared == SF_EUSAGE) return sf_error_set(error, SF_EINPUT, "%s: a tensor's name is not plain ASCII", path);
  if (declared != SF_OK) return sf_error_set(error, declared, "%s: %s", path, sf_status_text(declared));
  enum sf_status status = sf_st_writer_header(writer, &header, &data_bytes, path, error);
  if (status == SF_OK) status = sf_new_file_begin(file, path, error);
  if (status == SF_OK) status = sf_new_file_write(file, header.data, header.size_bytes, 0, error);
  const unsigned char zero = 0; /* the last byte gives the file its size; all others are written later */
  if (status == SF_OK && data_bytes > 0) status = sf_new_file_write(file, &zero, 1, (int64_t)header.size_bytes + data_bytes - 1, error);
  if (status == SF_OK) status = sf_st_open(layout, file->name, error);
  sf_bytes_destroy(&header);
  return status;
}

enum sf_status sf_st_writer_save(struct sf_st_writer *writer, const char *path, struct sf_error *error) {
  struct sf_bytes image = {0};
  int64_t data_bytes = 0;
  enum sf_status status = make_image(writer, &image, &data_bytes, true, path, error);
  if (status != SF_OK) return status;
  for (size_t i = 0; i < writer->count; i++) {
    const struct tensor *tensor = &writer->tensors[i];
    SF_ASSERT(tensor->bytes != NULL);
    memcpy(image.data + image.size_bytes, tensor->bytes, tensor->size_bytes);
    image.size_bytes += tensor->size_bytes;
  }
  status = sf_bytes_write_file(path, image.data, image.size_bytes, error);
  sf_bytes_destroy(&image);
  return status;
}
