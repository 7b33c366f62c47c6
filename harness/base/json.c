#include "harness/base/json.h"

#include "harness/base/alloc.h"

#include <string.h>

enum { ATTEMPTS = 3 };

/* Jansson's allocations become ours, so that those that fail can be counted. */
static uint64_t count_failures(void) {
  json_set_alloc_funcs(sf_alloc, sf_free);
  return sf_alloc_failures();
}

enum sf_status sf_json_read(json_t **out, const char *text, size_t size_bytes, size_t flags, json_error_t *where) {
  const uint64_t before = count_failures();
  *where = (json_error_t){0};
  *out = json_loadb(text, size_bytes, flags, where);
  if (sf_alloc_failures() == before) return *out ? SF_OK : SF_EINPUT;
  json_decref(*out);
  *out = NULL;
  return SF_ENOMEM;
}

json_t *sf_json_of_bytes(const char *text, size_t size_bytes, size_t flags) {
  json_t *out = NULL;
  json_error_t where;
  enum sf_status status = SF_ENOMEM;
  for (int attempt = 0; status == SF_ENOMEM && attempt < ATTEMPTS; attempt++) status = sf_json_read(&out, text, size_bytes, flags, &where);
  return out;
}

json_t *sf_json_of(const char *text) { return sf_json_of_bytes(text, strlen(text), 0); }

char *sf_json_dump(const json_t *value, size_t flags) {
  const uint64_t before = count_failures();
  char *text = json_dumps(value, flags);
  if (sf_alloc_failures() == before) return text;
  sf_free(text);
  return NULL;
}
