/* What a campaign says of itself while it runs: a text that the store keeps, and only carries. */
#include "harness/base/alloc.h"
#include "harness/run/store/store_internal.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum sf_status sf_store_set_standing(struct sf_store *store, const char *text, struct sf_error *error) {
  return sf_store_write(store, error, "INSERT OR REPLACE INTO meta(key, value) VALUES('standing', ?)", "t", text);
}

enum sf_status sf_store_standing(struct sf_store *store, char **out, struct sf_error *error) {
  return sf_store_query_text(store, out, "SELECT coalesce(max(value), '') FROM meta WHERE key = 'standing'", "meta.standing", error);
}

bool sf_store_has_writer(const char *path) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = INT64_MAX - 1, .l_len = 1};
  const int file = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return false;
  const bool is_held = fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  close(file);
  return is_held;
}
