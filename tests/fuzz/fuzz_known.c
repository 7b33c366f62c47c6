/* Bytes as a list of known findings. What is refused gives one line that names the file; each entry that is taken covers its own signature.
 */
#include "harness/base/assert.h"
#include "harness/run/campaign/known.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static int file = -1;
  static char path[32];
  struct sf_known known = {0};
  struct sf_error error = {SF_OK, ""};
  if (file < 0) {
    file = memfd_create("known", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  }
  SF_ASSERT(ftruncate(file, 0) == 0 && pwrite(file, data, size, 0) == (ssize_t)size);
  const enum sf_status status = sf_known_read(&known, path, &error);
  if (status != SF_OK) {
    SF_ASSERT_EQ(status, SF_EINPUT);
    SF_ASSERT(strncmp(error.text, path, strlen(path)) == 0 && strchr(error.text, '\n') == NULL);
    return 0;
  }
  for (int32_t i = 0; i < known.count; i++) {
    const struct sf_known_entry *entry = &known.entries[i];
    SF_ASSERT(*entry->signature != '\0');
    if (entry->has_case) (void)sf_known_triggered(&known, &entry->c);
    (void)sf_known_may_cover(&known, entry->signature, &entry->c);
    SF_ASSERT(sf_known_has(&known, entry->signature));
  }
  sf_known_destroy(&known);
  return 0;
}
