/* JSON while memory may run out. Jansson takes some failed allocations for syntax errors and others not at all: a long number then loses
 * digits, and a text its end. */
#ifndef SF_BASE_JSON_H
#define SF_BASE_JSON_H

#include "harness/base/status.h"

#include <jansson.h>

/* json_loadb, but says whether memory was missing. *out: a new reference, NULL on failure. where: line, column, position and text of what
 * is wrong. SF_EINPUT: the text is no JSON. SF_ENOMEM. */
enum sf_status sf_json_read(json_t **out, const char *text, size_t size_bytes, size_t flags, json_error_t *where) SF_MUST_USE;
/* sf_json_read for callers that cannot tell lack of memory from a text that is none: where memory lacks, it tries again. A new reference;
 * NULL: memory lacked each time, or the text is no JSON. The second: of a text that was checked before, such as a case's fields. */
json_t *sf_json_of_bytes(const char *text, size_t size_bytes, size_t flags);
json_t *sf_json_of(const char *text);
/* json_dumps, but whole or NULL: there was no memory, or no value. To be freed by sf_free. */
char *sf_json_dump(const json_t *value, size_t flags);

#endif
