/* Values of JSON out of what anybody may have written, and the sink where JSON is printed. Objects are made by Jansson's json_pack. */
#ifndef SF_RUN_JSON_H
#define SF_RUN_JSON_H

#include "harness/base/bytes.h"

#include <jansson.h>
#include <stdint.h>

/* Of the objects that --json prints: raised when a key goes or changes its meaning. */
enum { SF_JSON_SCHEMA = 1 };

/* Appends value as it may be printed, of ASCII alone and without the marks of CI systems' commands ("##["). flags: Jansson's. NULL is
 * SF_ENOMEM, as what made value says it. */
enum sf_status sf_json_append(struct sf_text *out, const json_t *value, size_t flags) SF_MUST_USE;
/* A text from outside, such as a path or a message of a target: what is not UTF-8 is replaced (utf8.h). NULL becomes null. Returns NULL
 * when memory is out. */
json_t *sf_json_text(const char *text);
/* What may be absent: a negative number becomes null. NULL when memory is out. */
json_t *sf_json_count(int64_t value);
/* JSON has no NaN and no infinities: they become the texts "nan", "inf", "-inf". NULL when memory is out. */
json_t *sf_json_real(double value);

#endif
