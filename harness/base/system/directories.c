#include "harness/base/system/directories.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum sf_status sf_status_of_path(int code) {
  return code == ENOSPC || code == EDQUOT || code == EIO || code == ENOMEM || code == EFBIG ? SF_EIO : SF_EINPUT;
}

static enum sf_status make_directory(const char *at, const char *whole, struct sf_error *error) {
  struct stat info;
  int code = mkdir(at, 0777) == 0 || errno == EEXIST ? 0 : errno;
  if (!code && stat(at, &info) != 0) code = errno;
  if (!code && !S_ISDIR(info.st_mode)) code = ENOTDIR;
  if (!code) return SF_OK;
  if (strcmp(at, whole) == 0) return sf_error_set(error, sf_status_of_path(code), "%s: %s", at, strerror(code));
  return sf_error_set(error, sf_status_of_path(code), "%s: %s: %s", whole, at, strerror(code));
}

enum sf_status sf_make_directories(const char *path, struct sf_error *error) {
  char partial[SF_PATH_TEXT];
  const size_t length = strlen(path);
  if (length >= sizeof partial) return sf_error_set(error, SF_EUSAGE, "%.60s...: the path is too long", path);
  memcpy(partial, path, length + 1);
  for (size_t i = 1; i <= length; i++) {
    if (partial[i] != '/' && partial[i] != '\0') continue;
    const char kept = partial[i];
    partial[i] = '\0';
    const enum sf_status status = make_directory(partial, path, error);
    if (status != SF_OK) return status;
    partial[i] = kept;
  }
  if (access(path, W_OK | X_OK) != 0) return sf_error_set(error, sf_status_of_path(errno), "%s: %s", path, strerror(errno));
  return SF_OK;
}

enum sf_status sf_output_check(const char *path, struct sf_error *error) {
  char folder[SF_PATH_TEXT];
  struct stat info;
  if (!path) return SF_OK;
  if (strlen(path) >= sizeof folder - 32) return sf_error_set(error, SF_EUSAGE, "%.60s...: the path is too long", path);
  if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) return sf_error_set(error, SF_EUSAGE, "%s: not a regular file", path);
  const char *slash = strrchr(path, '/');
  const int length = slash ? (int)(slash - path) : 0;
  if (slash && slash[1] == '\0') return sf_error_set(error, SF_EUSAGE, "%s: the name of a file is missing", path);
  snprintf(folder, sizeof folder, "%.*s", slash ? length + !length : 1, slash ? path : ".");
  if (stat(folder, &info) != 0) return sf_error_set(error, SF_EUSAGE, "%s: %s", path, strerror(errno));
  if (!S_ISDIR(info.st_mode)) return sf_error_set(error, SF_EUSAGE, "%s: %s is not a folder", path, folder);
  if (access(folder, W_OK | X_OK) != 0) return sf_error_set(error, SF_EUSAGE, "%s: %s", path, strerror(errno));
  return SF_OK;
}
