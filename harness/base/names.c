#include "harness/base/names.h"

#include "harness/base/assert.h"
#include "harness/base/hash.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The hash behind as much of the text at out as fits. */
static void end_in_hash(char *out, size_t size, size_t length, const char *name, size_t name_length) {
  size_t at = length < size - SF_NAME_HASH_LENGTH ? length : size - SF_NAME_HASH_LENGTH - 1;
  while (at > 0 && at < length && ((unsigned char)name[at] & 0xc0) == 0x80) at--;
  snprintf(out + at, size - at, "~%016" PRIx64, sf_hash_bytes(0, name, name_length));
}

void sf_name_fit(char *out, size_t size, const char *name, size_t length) {
  SF_ASSERT_LT(SF_NAME_HASH_LENGTH + 1, (int64_t)size);
  const size_t copied = length < size ? length : size - 1;
  memmove(out, name, copied);
  out[copied] = '\0';
  if (copied < length) end_in_hash(out, size, length, name, length);
}

void sf_name_fit_path(char *out, size_t size, const char *name, int32_t slashes) {
  const size_t length = strlen(name);
  bool alike = length >= size;
  SF_ASSERT_LT(SF_NAME_HASH_LENGTH + 1, (int64_t)size);
  for (size_t i = 0; i < length && i < size - 1; i++) {
    const bool kept = isalnum((unsigned char)name[i]) || strchr("._@+~", name[i]);
    out[i] = name[i];
    if (kept) continue;
    out[i] = '-';
    if (name[i] == '/' && slashes > 0)
      slashes--;
    else if (name[i] != '-' || slashes == 0)
      alike = true;
  }
  out[length < size ? length : size - 1] = '\0';
  if (alike) end_in_hash(out, size, length, name, length);
}
