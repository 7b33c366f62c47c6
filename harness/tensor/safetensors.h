/* Reader and writer of safetensors files (format: 8-byte little-endian header size, JSON header, data). */
#ifndef SF_TENSOR_SAFETENSORS_H
#define SF_TENSOR_SAFETENSORS_H

#include "harness/base/bytes.h"
#include "harness/spec/catalog.h"

enum { SF_ST_DIMS_MAX = 8 };

struct sf_st_entry {
  char *name;
  enum sf_dtype dtype; /* F32, BF16, F16, F64, F8_E4M3, F8_E5M2; other types are refused */
  int32_t dim_count;
  int64_t dims[SF_ST_DIMS_MAX];
  int64_t count;              /* product of dims */
  int64_t offset;             /* of its first byte in the file */
  const unsigned char *bytes; /* inside the file's memory, wire format; NULL when the file was only opened */
};

struct sf_st_file {
  struct sf_bytes raw;
  int32_t entry_count;
  struct sf_st_entry *entries; /* sorted by name */
  int32_t meta_count;
  char **meta_keys, **meta_values;
};

/* Strict: header within the file, offsets in range, no overlaps or holes, sizes that match, no repeated name. SF_EINPUT says
 * what is wrong, SF_ENOMEM; *out is written only on success. Copies the memory. name stands for the file in the text. */
enum sf_status sf_st_parse(struct sf_st_file *out, const void *data, size_t size_bytes, const char *name,
                           struct sf_error *error) SF_MUST_USE;
/* The same of a file, all of it in memory; SF_ENOTFOUND and SF_EIO too. */
enum sf_status sf_st_read(struct sf_st_file *out, const char *path, struct sf_error *error) SF_MUST_USE;
void sf_st_destroy(struct sf_st_file *file);                                           /* takes NULL and what is zeroed */
const struct sf_st_entry *sf_st_find(const struct sf_st_file *file, const char *name); /* NULL when absent */
const char *sf_st_meta(const struct sf_st_file *file, const char *key);                /* NULL when absent */

/* A file of which the header alone is in memory. */
struct sf_st_open {
  char *path;
  int descriptor;
  struct sf_st_file file; /* no raw, and no entry has bytes */
};
/* As strict as sf_st_read, by the same parser. SF_ENOTFOUND when there is no such file, SF_EINPUT, SF_EIO, SF_ENOMEM; *out is written only
 * on success. Close with sf_st_close. */
enum sf_status sf_st_open(struct sf_st_open *out, const char *path, struct sf_error *error) SF_MUST_USE;
/* Reads elements [first, first + count) of an entry, in wire format. SF_EINPUT when the file has become shorter, SF_EIO. */
enum sf_status sf_st_load(void *out, const struct sf_st_open *from, const struct sf_st_entry *entry, int64_t first, int64_t count,
                          struct sf_error *error) SF_MUST_USE;
void sf_st_close(struct sf_st_open *open_file); /* takes NULL and what is zeroed */

/* Writer: collects tensors (values are copied), then writes the file in one go, whole or not at all. */
struct sf_st_writer;
enum sf_status sf_st_writer_create(struct sf_st_writer **out) SF_MUST_USE; /* SF_ENOMEM */
/* values: floats for F32, BF16, F16 and F8, doubles for F64. */
enum sf_status sf_st_writer_add(struct sf_st_writer *writer, const char *name, enum sf_dtype dtype, const int64_t *dims, int32_t dim_count,
                                const void *values) SF_MUST_USE;
/* One entry of the file's metadata, in place of an earlier one under the key. SF_EUSAGE when key or value hold anything but printable
 * ASCII, tabs and newlines, SF_ENOMEM. */
enum sf_status sf_st_writer_meta(struct sf_st_writer *writer, const char *key, const char *value) SF_MUST_USE;
/* A tensor without values, for sf_st_writer_header. */
enum sf_status sf_st_writer_declare(struct sf_st_writer *writer, const char *name, enum sf_dtype dtype, const int64_t *dims,
                                    int32_t dim_count) SF_MUST_USE;
/* What stands before the data of a file with these tensors, and how many bytes of data must follow; where each tensor lies, sf_st_open
 * tells. The caller frees the bytes. */
enum sf_status sf_st_writer_header(struct sf_st_writer *writer, struct sf_bytes *header, int64_t *data_bytes, const char *path,
                                   struct sf_error *error) SF_MUST_USE;
/* Begins a file of these tensors whose values are written later, each where `layout` says: its header stands, and it has its size.
 * declared: what declaring the tensors gave; SF_EUSAGE means that a name is not plain ASCII, and becomes SF_EINPUT. The caller closes
 * layout and commits or abandons the file, both also after a failure. */
enum sf_status sf_st_writer_lay_out(struct sf_st_writer *writer, enum sf_status declared, struct sf_new_file *file,
                                    struct sf_st_open *layout, const char *path, struct sf_error *error) SF_MUST_USE;
/* Writes the file; every tensor has values. Fails as sf_bytes_write_file does, and with SF_ENOMEM. The writer stays usable. */
enum sf_status sf_st_writer_save(struct sf_st_writer *writer, const char *path, struct sf_error *error) SF_MUST_USE;
void sf_st_writer_destroy(struct sf_st_writer *writer); /* takes NULL */

#endif
