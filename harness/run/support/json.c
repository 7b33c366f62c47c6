#include "harness/run/support/json.h"

#include "harness/base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum sf_status sf_json_append(struct sf_text *out, const json_t *value, size_t flags) {
  char *text = value == NULL ? NULL : json_dumps(value, flags | JSON_ENSURE_ASCII);
  /* Escapes each "#" that another one follows: "##" can stand only inside a text. */
  for (const char *at = text; at != NULL && *at != '\0'; at++) {
    const size_t length = strcspn(at, "#");
    sf_text_append(out, "%.*s", (int)length, at);
    at += length;
    if (*at == '\0') break;
    sf_text_append(out, at[1] == '#' ? "\\u%04x" : "%c", *at);
  }
  const enum sf_status status = text == NULL || out->failed ? SF_ENOMEM : SF_OK;
  free(text); /* Jansson's own memory */
  return status;
}

json_t *sf_json_text(const char *text) {
  struct sf_text clean = {0};
  if (text == NULL) return json_null();
  sf_utf8_append(&clean, text);
  json_t *value = clean.failed ? NULL : json_string(clean.data);
  sf_text_destroy(&clean);
  return value;
}

json_t *sf_json_count(int64_t value) { return value < 0 ? json_null() : json_integer((json_int_t)value); }

json_t *sf_json_real(double value) {
  return isfinite(value) ? json_real(value) : json_string(isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}
