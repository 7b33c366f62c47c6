/* Builds one JSON object and prints it on one line; members keep the order in which they were added. Failures (memory) are remembered and
 * come out at the end, so that building is straight-line code:
 *
 *   struct sf_json_out *json = sf_json_out_create();
 *   sf_json_out_int(json, "cases", 100);
 *   sf_json_out_object(json, "space");  ...  sf_json_out_end(json);
 *   status = sf_json_out_finish(json, &line);
 *
 * Inside an array the key is NULL; inside an object it is a text, each at most once. */
#ifndef TESTS_BENCH_JSON_OUT_H
#define TESTS_BENCH_JSON_OUT_H

#include "harness/base/bytes.h"
#include "harness/base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct sf_json_out;
/* NULL on no memory, which all functions here take. */
struct sf_json_out *sf_json_out_create(void);
void sf_json_out_destroy(struct sf_json_out *json);

/* Members of the object, or elements of the array, that was opened last. key: copied, and not given before; NULL in an array. */
void sf_json_out_int(struct sf_json_out *json, const char *key, int64_t value);
/* Twelve significant digits. JSON has no NaN and no infinities: they become the texts "nan", "inf", "-inf". */
void sf_json_out_real(struct sf_json_out *json, const char *key, double value);
void sf_json_out_bool(struct sf_json_out *json, const char *key, bool value);
/* NULL becomes null; what is not UTF-8 is replaced (utf8.h). */
void sf_json_out_text(struct sf_json_out *json, const char *key, const char *value);

/* Opens an object or array as a member; what follows goes into it, until sf_json_out_end. At most 16 deep. */
void sf_json_out_object(struct sf_json_out *json, const char *key);
void sf_json_out_array(struct sf_json_out *json, const char *key);
/* Closes what was opened last; not the document itself. */
void sf_json_out_end(struct sf_json_out *json);

/* Appends the object to *line, without a newline; every object opened must have been ended. Destroys json, also on failure (SF_ENOMEM). */
enum sf_status sf_json_out_finish(struct sf_json_out *json, struct sf_text *line) SF_MUST_USE;

#endif
