#include "tests/bench/json_out.h"

#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/run/support/json.h"

#include <jansson.h>

enum { DEPTH_MAX = 16, REAL_DIGITS = 12 };

struct sf_json_out {
  json_t *open[DEPTH_MAX]; /* the root, which we own, then what is open in it (borrowed from its parent) */
  int depth;
  bool failed;
};

struct sf_json_out *sf_json_out_create(void) {
  struct sf_json_out *json = sf_alloc(sizeof *json);
  if (json == NULL) return NULL;
  json->open[0] = json_object();
  json->depth = 1;
  json->failed = json->open[0] == NULL;
  return json;
}

void sf_json_out_destroy(struct sf_json_out *json) {
  if (json == NULL) return;
  json_decref(json->open[0]);
  sf_free(json);
}

/* Takes value; NULL means that making it failed. True when it is in. */
static bool member_add(struct sf_json_out *json, const char *key, json_t *value) {
  json_t *parent = json->open[json->depth - 1];
  int code = -1;
  if (json->failed || value == NULL) {
    json_decref(value);
  } else if (json_is_array(parent)) {
    SF_ASSERT(key == NULL);
    code = json_array_append_new(parent, value);
  } else {
    SF_ASSERT(key != NULL && json_object_get(parent, key) == NULL);
    code = json_object_set_new(parent, key, value);
  }
  if (code != 0) json->failed = true;
  return code == 0;
}

void sf_json_out_int(struct sf_json_out *json, const char *key, int64_t value) {
  if (json != NULL) member_add(json, key, json_integer(value));
}

void sf_json_out_real(struct sf_json_out *json, const char *key, double value) {
  if (json != NULL) member_add(json, key, sf_json_real(value));
}

void sf_json_out_bool(struct sf_json_out *json, const char *key, bool value) {
  if (json != NULL) member_add(json, key, json_boolean(value));
}

void sf_json_out_text(struct sf_json_out *json, const char *key, const char *value) {
  if (json != NULL) member_add(json, key, sf_json_text(value));
}

static void member_open(struct sf_json_out *json, const char *key, json_t *value) {
  SF_ASSERT_LT(json->depth, DEPTH_MAX);
  /* After a failure the parent stands in, so that ends still match. */
  json_t *opened = member_add(json, key, value) ? value : json->open[json->depth - 1];
  json->open[json->depth++] = opened;
}

void sf_json_out_object(struct sf_json_out *json, const char *key) {
  if (json != NULL) member_open(json, key, json_object());
}

void sf_json_out_array(struct sf_json_out *json, const char *key) {
  if (json != NULL) member_open(json, key, json_array());
}

void sf_json_out_end(struct sf_json_out *json) {
  if (json == NULL) return;
  SF_ASSERT_LT(1, json->depth);
  json->depth--;
}

enum sf_status sf_json_out_finish(struct sf_json_out *json, struct sf_text *line) {
  if (json == NULL) return SF_ENOMEM;
  SF_ASSERT_EQ(json->depth, 1);
  const size_t flags = JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(REAL_DIGITS);
  const enum sf_status status = sf_json_append(line, json->failed ? NULL : json->open[0], flags);
  sf_json_out_destroy(json);
  return status;
}
