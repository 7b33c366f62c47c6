#include "harness/base/hash.h"

#include <string.h>

uint64_t sf_hash_bytes(uint64_t hash, const void *data, size_t size_bytes) {
  const unsigned char *bytes = data;
  uint64_t fnv = UINT64_C(0xcbf29ce484222325);
  for (size_t i = 0; i < size_bytes; i++) fnv = (fnv ^ bytes[i]) * UINT64_C(0x100000001b3);
  return sf_hash_u64(hash, fnv);
}

uint64_t sf_hash_string(uint64_t hash, const char *text) { return sf_hash_bytes(hash, text, strlen(text)); }
