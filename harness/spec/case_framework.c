/* Cases of frameworks: the object that a worker knows how to read, kept as text, and the axes that it names. */
#include "harness/base/alloc.h"
#include "harness/base/bytes.h"
#include "harness/base/json.h"
#include "harness/base/reals.h"
#include "harness/spec/case_internal.h"

#include <jansson.h>
#include <string.h>

enum { AXIS_MAX = 65536 };

static const struct {
  const char *name;
  size_t offset;
} AXES[] = {{"tp", offsetof(struct sf_layout, tp)},  {"cp", offsetof(struct sf_layout, cp)},   {"ep", offsetof(struct sf_layout, ep)},
            {"dp", offsetof(struct sf_layout, dp)},  {"etp", offsetof(struct sf_layout, etp)}, {"pp", offsetof(struct sf_layout, pp)},
            {"vpp", offsetof(struct sf_layout, vpp)}};
enum { AXIS_COUNT = sizeof AXES / sizeof AXES[0] };

static int64_t *axis_at(struct sf_layout *layout, int i) { return (int64_t *)((char *)layout + AXES[i].offset); }

/* An axis that is not there is 1. */
static enum sf_status read_axis(int64_t *out, const json_t *value, const char *name, struct sf_error *error) {
  *out = value ? json_integer_value(value) : 1;
  if (*out >= 1 && *out <= AXIS_MAX) return SF_OK;
  return sf_error_set(error, SF_EINPUT, "framework.%s: expected a number from 1 to %d", name, AXIS_MAX);
}

/* A worker without named axes has `ranks`: they count as data parallel, since something must say how many there are. */
static enum sf_status read_axes(struct sf_layout *layout, const json_t *object, struct sf_error *error) {
  const json_t *named = json_object_get(object, "layout");
  enum sf_status status = SF_OK;
  int64_t ranks = 1;
  for (int i = 0; i < AXIS_COUNT && status == SF_OK; i++)
    status = read_axis(axis_at(layout, i), json_object_get(named, AXES[i].name), AXES[i].name, error);
  if (status == SF_OK) status = read_axis(&ranks, json_object_get(object, "ranks"), "ranks", error);
  if (status != SF_OK) return status;
  const int64_t model = layout->tp * layout->cp * layout->pp;
  if (layout->dp == 1 && ranks > model && ranks % model == 0) layout->dp = ranks / model;
  layout->sp = json_is_true(json_object_get(named, "sp"));
  return SF_OK;
}

/* A worker without modes runs end to end. */
static enum sf_mode read_mode(const json_t *object) {
  const char *mode = json_string_value(json_object_get(object, "mode"));
  return mode && strcmp(mode, "isolated") == 0 ? SF_MODE_ISOLATED : SF_MODE_E2E;
}

enum sf_status sf_case_set_framework(struct sf_case *c, const char *json, struct sf_error *error) {
  struct sf_layout layout = c->layout;
  json_error_t where;
  json_t *object = NULL;
  if (sf_json_read(&object, json, strlen(json), JSON_REJECT_DUPLICATES, &where) == SF_ENOMEM) return SF_ENOMEM;
  if (!json_is_object(object)) {
    json_decref(object);
    return sf_error_set(error, SF_EINPUT, "framework: expected an object");
  }
  char *text = json_dumps(object, JSON_COMPACT);
  if (text) sf_reals_shorten(text);
  enum sf_status status = text ? read_axes(&layout, object, error) : SF_ENOMEM;
  if (status == SF_OK && strlen(text) >= sizeof c->fields) {
    status = sf_error_set(error, SF_EINPUT, "framework: %zu characters, more than the limit of %zu", strlen(text), sizeof c->fields - 1);
  }
  if (status == SF_OK) {
    memset(c->fields, 0, sizeof c->fields);
    memcpy(c->fields, text, strlen(text));
    c->layout = layout;
    c->mode = read_mode(object);
  }
  sf_free(text);
  json_decref(object);
  return status;
}

enum sf_status sf_case_validate_framework(const struct sf_case *c, struct sf_error *error) {
  struct sf_case other;
  sf_case_init(&other);
  if (strcmp(c->target, other.target) == 0) return sf_error_set(error, SF_EINPUT, "framework: the target \"%s\" is none", c->target);
  const enum sf_status status = sf_case_set_framework(&other, c->fields, error);
  if (status != SF_OK) return status;
  other.seed = c->seed;
  for (int i = 0; i < sf_case_field_count; i++) {
    const struct sf_field *field = &sf_case_fields[i];
    const bool same = field->type == SF_FIELD_TEXT ? strcmp(field->path, "target.name") == 0 ||
                                                         strcmp((const char *)c + field->offset, (const char *)&other + field->offset) == 0
                                                   : sf_case_field_get(c, field) == sf_case_field_get(&other, field);
    if (!same) return sf_error_set(error, SF_EINPUT, "%s: a framework's case has its fields in \"framework\"", field->path);
  }
  return SF_OK;
}

void sf_case_framework_append(struct sf_text *out, const struct sf_case *c) {
  json_t *object = sf_json_of(c->fields);
  char *text = object ? sf_json_dump(object, JSON_INDENT(2)) : NULL;
  out->failed |= text == NULL;
  if (text) sf_reals_shorten(text);
  for (const char *at = text; at && *at; at++) {
    if (*at == '\n')
      sf_text_append(out, "\n  ");
    else
      sf_text_append(out, "%c", *at);
  }
  sf_free(text);
  json_decref(object);
}
