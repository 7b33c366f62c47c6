/* Whole files and growing texts. */
#ifndef SF_BASE_BYTES_H
#define SF_BASE_BYTES_H

#include "harness/base/status.h"

#include <stddef.h>
#include <stdint.h>

struct sf_bytes {
  unsigned char *data; /* always followed by one NUL byte that size_bytes does not count */
  size_t size_bytes;
};

/* Reads a whole regular file of at most limit_bytes. SF_ENOTFOUND: there is no such file. SF_EINPUT: it is not a regular file, or too
 * large. SF_EIO, SF_ENOMEM. On failure *out is left as it was. */
enum sf_status sf_bytes_read_file(struct sf_bytes *out, const char *path, size_t limit_bytes, struct sf_error *error) SF_MUST_USE;
/* Writes path through a temporary file beside it, flushed and renamed: the old file or the whole new one, never a part.
 * SF_EINPUT when path is something other than a regular file, SF_ENOTFOUND when its folder does not exist, SF_ENOSPC, SF_EIO, SF_ENOMEM. */
enum sf_status sf_bytes_write_file(const char *path, const void *data, size_t size_bytes, struct sf_error *error) SF_MUST_USE;
/* Frees the data and zeroes *bytes. Takes NULL and what is zeroed. */
void sf_bytes_destroy(struct sf_bytes *bytes);

/* A file in the making, for what is written piece by piece: a temporary one beside path, which takes path's place when it is complete.
 * Those of writers that were killed are removed when the next file for the same path is begun. */
struct sf_new_file {
  const char *path; /* borrowed */
  char *name;       /* of the temporary file */
  int descriptor;   /* open for reading and writing */
};
/* Opens the temporary file, empty. Fails as sf_bytes_write_file does; *out is then unwritten. */
enum sf_status sf_new_file_begin(struct sf_new_file *out, const char *path, struct sf_error *error) SF_MUST_USE;
/* Writes at any offset, in any order. SF_ENOSPC, SF_EIO; the file is then still to be committed or abandoned. */
enum sf_status sf_new_file_write(const struct sf_new_file *file, const void *data, size_t size_bytes, int64_t offset,
                                 struct sf_error *error) SF_MUST_USE;
/* Flushes and renames. Ends the file, also on failure: nothing is then left of it, and what stood at path stays. */
enum sf_status sf_new_file_commit(struct sf_new_file *file, struct sf_error *error) SF_MUST_USE;
/* Removes the file of this path, if there is one, and its temporary files whose writers were killed. */
void sf_file_discard(const char *path);
/* Removes the temporary file; does nothing after a commit, and to what is zeroed. */
void sf_new_file_abandon(struct sf_new_file *file);

/* Little-endian numbers from and to 8 bytes of memory, at any alignment. */
uint64_t sf_load_u64_le(const unsigned char *at);
void sf_store_u64_le(unsigned char *at, uint64_t value);

/* A text that grows. Appending never fails visibly: on no memory it keeps what it has and sets `failed`. */
struct sf_text {
  char *data; /* NUL-terminated; NULL only before the first append */
  size_t length, capacity;
  int failed;
};
/* As printf; on no memory nothing of this call is appended. The result must be asked for once, at the end: text->failed. */
void sf_text_append(struct sf_text *text, const char *format, ...) SF_PRINTF(2, 3);
/* Frees the text and zeroes it, `failed` too. Takes NULL. */
void sf_text_destroy(struct sf_text *text);

#endif
