#include "harness/base/bytes.h"

#include "harness/base/alloc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static enum sf_status io_error(struct sf_error *error, const char *path, const char *action) {
  const int code = errno;
  return sf_error_set(error, sf_status_of_errno(code), "%s: %s: %s", path, action, sf_errno_text(code).text);
}

/* Fills at most size_bytes; *done is less only at the end of the file. False with errno on failure. */
static bool read_all(int file, unsigned char *data, size_t size_bytes, size_t *done) {
  *done = 0;
  while (*done < size_bytes) {
    const ssize_t got = read(file, data + *done, size_bytes - *done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return false;
    if (got == 0) return true;
    *done += (size_t)got;
  }
  return true;
}

enum sf_status sf_bytes_read_file(struct sf_bytes *out, const char *path, size_t limit_bytes, struct sf_error *error) {
  struct sf_bytes bytes = {0};
  struct stat info;
  /* Not blocking: opening a named pipe must come back, to be refused below. */
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return io_error(error, path, "cannot open");
  enum sf_status status = SF_OK;
  if (fstat(file, &info) != 0) {
    status = io_error(error, path, "cannot read");
  } else if (!S_ISREG(info.st_mode)) {
    status = sf_error_set(error, SF_EINPUT, "%s: not a regular file", path);
  } else if ((uint64_t)info.st_size > limit_bytes) {
    status = sf_error_set(error, SF_EINPUT, "%s: %lld bytes, more than the limit of %zu", path, (long long)info.st_size, limit_bytes);
  }
  if (status != SF_OK) goto done;
  bytes.data = sf_alloc((size_t)info.st_size + 1);
  if (bytes.data == NULL) {
    status = sf_error_set(error, SF_ENOMEM, "%s: out of memory", path);
    goto done;
  }
  if (!read_all(file, bytes.data, (size_t)info.st_size, &bytes.size_bytes)) {
    status = io_error(error, path, "cannot read");
    goto done;
  }
  *out = bytes;
  bytes.data = NULL;
done:
  sf_bytes_destroy(&bytes);
  close(file);
  return status;
}

/* Whether a file of path's folder is named as path's temporary files are: "NAME.PID.NUMBER.tmp". */
static bool is_temporary_of(const char *entry, const char *name) {
  const size_t length = strlen(name);
  int end = 0;
  if (strncmp(entry, name, length) != 0 || sscanf(entry + length, ".%*[0-9].%*[0-9].tmp%n", &end) != 0) return false;
  return end > 0 && entry[length + (size_t)end] == '\0';
}

/* Removes path's temporary files whose writers were killed. A writer holds its file's lock, which the kernel gives up when it is gone. */
static void remove_leftovers(const char *path) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  char folder[PATH_MAX];
  struct stat info;
  snprintf(folder, sizeof folder, "%.*s", slash ? (int)(name - path) : 1, slash ? path : ".");
  DIR *list = opendir(folder);
  for (const struct dirent *entry; list && (entry = readdir(list)) != NULL;) {
    if (!is_temporary_of(entry->d_name, name)) continue;
    const int file = openat(dirfd(list), entry->d_name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) continue;
    if (fstat(file, &info) == 0 && S_ISREG(info.st_mode) && flock(file, LOCK_EX | LOCK_NB) == 0) unlinkat(dirfd(list), entry->d_name, 0);
    close(file);
  }
  if (list) closedir(list);
}

void sf_file_discard(const char *path) {
  unlink(path);
  remove_leftovers(path);
}

/* Whether this process holds the lock of the new file. Somebody who removes leftovers may have been first; where locks do not work nobody
 * is. */
static bool hold(int file) {
  struct stat info;
  if (flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
  return fstat(file, &info) == 0 && info.st_nlink > 0;
}

/* Opens a new file beside path; its name is left in *name. -1 with errno on failure. */
static int temporary_create(struct sf_text *name, const char *path) {
  remove_leftovers(path);
  for (int attempt = 0; attempt < 1000; attempt++) {
    name->length = 0;
    sf_text_append(name, "%s.%ld.%d.tmp", path, (long)getpid(), attempt);
    if (name->failed) {
      errno = ENOMEM;
      return -1;
    }
    const int file = open(name->data, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file >= 0 ? hold(file) : errno != EEXIST) return file;
    if (file >= 0) close(file);
  }
  return -1;
}

enum sf_status sf_new_file_begin(struct sf_new_file *out, const char *path, struct sf_error *error) {
  struct sf_text name = {0};
  struct stat info;
  enum sf_status status = SF_OK;
  /* Renaming over a device or a directory would destroy it or fail half-way. */
  if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) return sf_error_set(error, SF_EINPUT, "%s: not a regular file", path);
  const int file = temporary_create(&name, path);
  if (file < 0) {
    status = name.failed ? sf_error_set(error, SF_ENOMEM, "%s: out of memory", path) : io_error(error, path, "cannot create");
    sf_text_destroy(&name);
    return status;
  }
  *out = (struct sf_new_file){.path = path, .name = name.data, .descriptor = file};
  return SF_OK;
}

enum sf_status sf_new_file_write(const struct sf_new_file *file, const void *data, size_t size_bytes, int64_t offset,
                                 struct sf_error *error) {
  for (size_t done = 0; done < size_bytes;) {
    const ssize_t put = pwrite(file->descriptor, (const unsigned char *)data + done, size_bytes - done, offset + (int64_t)done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return io_error(error, file->path, "cannot write");
    done += (size_t)put;
  }
  return SF_OK;
}

enum sf_status sf_new_file_commit(struct sf_new_file *file, struct sf_error *error) {
  enum sf_status status = fsync(file->descriptor) == 0 ? SF_OK : io_error(error, file->path, "cannot write");
  if (status == SF_OK && rename(file->name, file->path) != 0) status = io_error(error, file->path, "cannot rename into place");
  close(file->descriptor); /* after the renaming: the lock keeps others from removing the file */
  file->descriptor = -1;
  if (status != SF_OK) unlink(file->name);
  sf_free(file->name);
  file->name = NULL;
  return status;
}

void sf_new_file_abandon(struct sf_new_file *file) {
  if (file->name == NULL) return;
  close(file->descriptor);
  unlink(file->name);
  sf_free(file->name);
  *file = (struct sf_new_file){.descriptor = -1};
}

enum sf_status sf_bytes_write_file(const char *path, const void *data, size_t size_bytes, struct sf_error *error) {
  struct sf_new_file file = {.descriptor = -1};
  enum sf_status status = sf_new_file_begin(&file, path, error);
  if (status == SF_OK) status = sf_new_file_write(&file, data, size_bytes, 0, error);
  if (status == SF_OK) status = sf_new_file_commit(&file, error);
  sf_new_file_abandon(&file);
  return status;
}

void sf_bytes_destroy(struct sf_bytes *bytes) {
  if (bytes == NULL) return;
  sf_free(bytes->data);
  *bytes = (struct sf_bytes){0};
}

uint64_t sf_load_u64_le(const unsigned char *at) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; i--) value = value << 8 | at[i];
  return value;
}

void sf_store_u64_le(unsigned char *at, uint64_t value) {
  for (int i = 0; i < 8; i++) at[i] = (unsigned char)(value >> (8 * i));
}

/* Room for `extra` more characters and the NUL. */
static bool text_reserve(struct sf_text *text, size_t extra) {
  const size_t needed = text->length + extra + 1;
  if (needed <= text->capacity) return true;
  size_t capacity = text->capacity > 0 ? text->capacity * 2 : 128;
  if (capacity < needed) capacity = needed;
  char *data = sf_realloc(text->data, capacity);
  if (data == NULL) return false;
  text->data = data;
  text->capacity = capacity;
  return true;
}

void sf_text_append(struct sf_text *text, const char *format, ...) {
  if (text->failed) return;
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  const int length = vsnprintf(NULL, 0, format, arguments);
  if (length < 0 || !text_reserve(text, (size_t)length)) {
    text->failed = 1;
  } else {
    vsnprintf(text->data + text->length, (size_t)length + 1, format, again);
    text->length += (size_t)length;
  }
  va_end(again);
  va_end(arguments);
}

void sf_text_destroy(struct sf_text *text) {
  if (text == NULL) return;
  sf_free(text->data);
  *text = (struct sf_text){0};
}
