#include "harness/run/report/places.h"

#include "harness/base/hash.h"
#include "harness/base/system/directories.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *sf_place_path(const struct sf_report_item *item) {
  char folder[SF_PATH_TEXT];
  const char *path = item->file.data ? item->file.data : ".";
  const size_t length = getcwd(folder, sizeof folder) ? strlen(folder) : 0;
  if (length > 1 && strncmp(path, folder, length) == 0 && path[length] == '/') return path + length + 1;
  return strncmp(path, "./", 2) == 0 ? path + 2 : path;
}

void sf_place_append_uri(struct sf_text *out, const struct sf_report_item *item) {
  static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/@+";
  const char *path = sf_place_path(item);
  if (*path == '/') sf_text_append(out, "file://");
  for (; *path; path++) sf_text_append(out, strchr(plain, *path) ? "%c" : "%%%02X", (unsigned char)*path);
}

void sf_place_fingerprint(char out[SF_PLACE_FINGERPRINT_TEXT], const struct sf_report_item *item) {
  snprintf(out, SF_PLACE_FINGERPRINT_TEXT, "%016" PRIx64,
           sf_hash_string(sf_hash_string(0, item->group), item->name.data ? item->name.data : ""));
}

const char *sf_place_message(const struct sf_report_item *item) {
  if (item->message.data && *item->message.data) return item->message.data;
  return item->name.data && *item->name.data ? item->name.data : item->state;
}
