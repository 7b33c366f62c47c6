/* Cases as JSON documents. Reading goes through Jansson; writing is plain text, because the order and the look are fixed. */
#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/base/bytes.h"
#include "harness/base/json.h"
#include "harness/base/nearest.h"
#include "harness/base/utf8.h"
#include "harness/spec/case_internal.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { CASE_LIMIT_BYTES = 1 << 20, PATH_TEXT = 96 };

/* --- reading -------------------------------------------------------------------------------------------------- */

static const char *type_name(const json_t *value) {
  switch (json_typeof(value)) {
  case JSON_OBJECT:
    return "an object";
  case JSON_ARRAY:
    return "an array";
  case JSON_STRING:
    return "a string";
  case JSON_INTEGER:
    return "an integer";
  case JSON_REAL:
    return "a number with a fraction or exponent";
  case JSON_TRUE:
  case JSON_FALSE:
    return "true or false";
  case JSON_NULL:
    return "null";
  }
  return "something else";
}

static enum sf_status wrong_type(struct sf_error *error, const char *path, const char *expected, const json_t *found) {
  return sf_error_set(error, SF_EINPUT, "%s: expected %s, found %s", path, expected, type_name(found));
}

static enum sf_status read_name(int64_t *index, const struct sf_field *field, const json_t *value, struct sf_error *error) {
  if (!json_is_string(value)) return wrong_type(error, field->path, "a name", value);
  return sf_field_name_read(index, field, json_string_value(value), json_string_length(value), error);
}

static enum sf_status read_flags(int64_t *flags, const struct sf_field *field, const json_t *value, struct sf_error *error) {
  if (!json_is_array(value)) return wrong_type(error, field->path, "an array of names", value);
  *flags = 0;
  size_t i;
  json_t *item;
  json_array_foreach(value, i, item) {
    int64_t bit = 0;
    const enum sf_status status = read_name(&bit, field, item, error);
    if (status != SF_OK) return status;
    if (*flags >> bit & 1) return sf_error_set(error, SF_EINPUT, "%s: \"%s\" is there twice", field->path, field->names[bit]);
    *flags |= INT64_C(1) << bit;
  }
  return SF_OK;
}

static enum sf_status read_field(struct sf_case *c, const struct sf_field *field, const json_t *value, struct sf_error *error) {
  int64_t number = 0;
  enum sf_status status = SF_OK;
  switch (field->type) {
  case SF_FIELD_INT:
    if (!json_is_integer(value)) return wrong_type(error, field->path, "an integer", value);
    number = json_integer_value(value);
    break;
  case SF_FIELD_BOOL:
    if (!json_is_boolean(value)) return wrong_type(error, field->path, "true or false", value);
    number = json_is_true(value);
    break;
  case SF_FIELD_ENUM:
    status = read_name(&number, field, value, error);
    break;
  case SF_FIELD_FLAGS:
    status = read_flags(&number, field, value, error);
    break;
  case SF_FIELD_TEXT:
    if (!json_is_string(value)) return wrong_type(error, field->path, "a string", value);
    return sf_case_field_put_text(c, field, json_string_value(value), error);
  }
  if (status == SF_OK) status = sf_case_field_check(field, number, error);
  if (status == SF_OK) sf_case_field_put(c, field, number);
  return status;
}

static enum sf_status read_expect_text(char *out, size_t size_bytes, const char *path, const json_t *value, struct sf_error *error) {
  if (!json_is_string(value)) return wrong_type(error, path, "a string", value);
  const char *text = json_string_value(value);
  if (strlen(text) >= size_bytes) return sf_error_set(error, SF_EINPUT, "%s: longer than %zu characters", path, size_bytes - 1);
  for (const char *at = text; *at != '\0'; at++)
    if (*at < ' ' || *at > '~') return sf_error_set(error, SF_EINPUT, "%s: characters other than printable ASCII", path);
  memcpy(out, text, strlen(text) + 1);
  return SF_OK;
}

static enum sf_status refuse_member(const char *key, struct sf_error *error) {
  struct sf_nearest nearest = sf_nearest_to(key);
  sf_nearest_offer(&nearest, "verdict");
  sf_nearest_offer(&nearest, "signature");
  return sf_error_set(error, SF_EINPUT, "expect.%.64s: no such field%s", key, sf_nearest_text(&nearest));
}

static enum sf_status read_expect(struct sf_expect *expect, json_t *object, struct sf_error *error) {
  if (!json_is_object(object)) return wrong_type(error, "expect", "an object", object);
  const char *key;
  json_t *value;
  enum sf_status status = SF_OK;
  json_object_foreach(object, key, value) {
    if (strcmp(key, "verdict") == 0)
      status = read_expect_text(expect->verdict, sizeof expect->verdict, "expect.verdict", value, error);
    else if (strcmp(key, "signature") == 0)
      status = read_expect_text(expect->signature, sizeof expect->signature, "expect.signature", value, error);
    else
      status = refuse_member(key, error);
    if (status != SF_OK) return status;
  }
  expect->present = true;
  for (int i = 0; i < SF_VERDICT_COUNT; i++)
    if (strcmp(expect->verdict, sf_verdict_name((enum sf_verdict)i)) == 0) return SF_OK;
  return sf_error_set(error, SF_EINPUT, "expect.verdict: \"%s\" is none of PASS, FINDING, INCONCLUSIVE, SKIP", expect->verdict);
}

static bool is_section(const char *key) {
  const size_t length = strlen(key);
  for (int i = 0; i < sf_case_field_count; i++)
    if (strncmp(sf_case_fields[i].path, key, length) == 0 && sf_case_fields[i].path[length] == '.') return true;
  return false;
}

static enum sf_status read_section(struct sf_case *c, const char *section, json_t *object, struct sf_error *error) {
  if (!json_is_object(object)) return wrong_type(error, section, "an object", object);
  const char *key;
  json_t *value;
  json_object_foreach(object, key, value) {
    char path[PATH_TEXT];
    const int length = snprintf(path, sizeof path, "%s.%s", section, key);
    /* A dot in a key must not reach into another section. */
    const struct sf_field *field = length < PATH_TEXT && strchr(key, '.') == NULL ? sf_case_field_find(path) : NULL;
    if (field == NULL) return sf_case_field_unknown(path, error);
    const enum sf_status status = read_field(c, field, value, error);
    if (status != SF_OK) return status;
  }
  return SF_OK;
}

/* A text that its writer chose: paths may hold any character. */
static enum sf_status read_text(char *out, size_t size_bytes, const char *path, const json_t *value, struct sf_error *error) {
  if (!json_is_string(value))
    return value ? wrong_type(error, path, "a string", value) : sf_error_set(error, SF_EINPUT, "%s: missing", path);
  if (json_string_length(value) >= size_bytes)
    return sf_error_set(error, SF_EINPUT, "%s: longer than %zu characters", path, size_bytes - 1);
  snprintf(out, size_bytes, "%s", json_string_value(value));
  return SF_OK;
}

static enum sf_status read_row(struct sf_case *c, json_t *object, struct sf_error *error) {
  if (!json_is_object(object)) return sf_error_set(error, SF_EINPUT, "case: an object is needed");
  char *text = json_dumps(object, JSON_COMPACT);
  const bool fits = text && strlen(text) < sizeof c->fields;
  if (fits) snprintf(c->fields, sizeof c->fields, "%s", text);
  sf_free(text);
  return fits   ? SF_OK
         : text ? sf_error_set(error, SF_EINPUT, "case: more than the limit of %zu characters", sizeof c->fields - 1)
                : SF_ENOMEM;
}

/* {"schema": 1, "target": "op:NAME", "operation": "NAME", "case": {..}, "expect": {..}} */
static enum sf_status read_operation(struct sf_case *c, json_t *root, struct sf_error *error) {
  static const char *const members[] = {"schema", "target", "operation", "case", "expect"};
  enum { MEMBERS = sizeof members / sizeof *members };
  const char *key;
  json_t *value;
  json_object_foreach(root, key, value) {
    struct sf_nearest nearest = sf_nearest_to(key);
    bool known = false;
    for (int i = 0; i < MEMBERS; i++) {
      known |= strcmp(key, members[i]) == 0;
      sf_nearest_offer(&nearest, members[i]);
    }
    if (!known) return sf_error_set(error, SF_EINPUT, "%.64s: no such field%s", key, sf_nearest_text(&nearest));
  }
  json_t *expect = json_object_get(root, "expect");
  enum sf_status status = read_text(c->target, sizeof c->target, "target", json_object_get(root, "target"), error);
  if (status == SF_OK) status = read_text(c->operation, sizeof c->operation, "operation", json_object_get(root, "operation"), error);
  if (status == SF_OK) status = read_row(c, json_object_get(root, "case"), error);
  if (status == SF_OK && expect) status = read_expect(&c->expect, expect, error);
  if (status == SF_OK && *c->expect.signature && strcmp(c->expect.verdict, sf_verdict_name(SF_VERDICT_FINDING)) != 0)
    return sf_error_set(error, SF_EINPUT, "expect.signature: of a finding only");
  return status;
}

static enum sf_status read_framework(struct sf_case *c, json_t *object, struct sf_error *error) {
  if (!json_is_object(object)) return wrong_type(error, "framework", "an object", object);
  char *text = json_dumps(object, JSON_COMPACT);
  const enum sf_status status = text ? sf_case_set_framework(c, text, error) : SF_ENOMEM;
  sf_free(text);
  return status;
}

static enum sf_status read_schema(const json_t *value, struct sf_error *error) {
  if (value == NULL) return sf_error_set(error, SF_EINPUT, "schema: missing");
  if (!json_is_integer(value)) return wrong_type(error, "schema", "an integer", value);
  const int64_t schema = json_integer_value(value);
  if (schema == SF_CASE_SCHEMA) return SF_OK;
  return sf_error_set(error, SF_EINPUT, "schema: %" PRId64 " is not %d, the only one this version reads", schema, SF_CASE_SCHEMA);
}

static enum sf_status refuse_key(const char *key, struct sf_error *error) {
  struct sf_nearest nearest = sf_nearest_to(key);
  for (int i = 0; i < sf_case_field_count; i++) {
    const char *path = sf_case_fields[i].path;
    char name[PATH_TEXT];
    const size_t length = sf_case_section_length(path);
    snprintf(name, sizeof name, "%.*s", (int)(length > 0 ? length : strlen(path)), path);
    sf_nearest_offer(&nearest, name);
  }
  sf_nearest_offer(&nearest, "schema");
  sf_nearest_offer(&nearest, "expect");
  sf_nearest_offer(&nearest, "framework");
  return sf_error_set(error, SF_EINPUT, "%.64s: no such field%s", key, sf_nearest_text(&nearest));
}

static enum sf_status read_document(struct sf_case *c, json_t *root, struct sf_error *error) {
  if (!json_is_object(root)) return wrong_type(error, "document", "an object", root);
  enum sf_status status = read_schema(json_object_get(root, "schema"), error);
  const char *key;
  json_t *value;
  if (status != SF_OK) return status;
  if (json_object_get(root, "operation")) {
    status = read_operation(c, root, error);
    return status == SF_OK ? sf_case_validate(c, error) : status;
  }
  json_object_foreach(root, key, value) {
    const struct sf_field *field = strchr(key, '.') == NULL ? sf_case_field_find(key) : NULL;
    if (strcmp(key, "schema") == 0) continue;
    if (field != NULL)
      status = read_field(c, field, value, error);
    else if (strcmp(key, "expect") == 0)
      status = read_expect(&c->expect, value, error);
    else if (strcmp(key, "framework") == 0)
      status = read_framework(c, value, error);
    else if (is_section(key))
      status = read_section(c, key, value, error);
    else
      status = refuse_key(key, error);
    if (status != SF_OK) return status;
  }
  return sf_case_validate(c, error);
}

static enum sf_status parse(json_t **root, const char *json, size_t size_bytes, const char *name, struct sf_error *error) {
  json_error_t where;
  const enum sf_status status = sf_json_read(root, json, size_bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &where);
  if (status == SF_ENOMEM) return sf_error_set(error, status, "%s: out of memory", name);
  return status == SF_OK ? SF_OK : sf_error_set(error, status, "%s: line %d column %d: %s", name, where.line, where.column, where.text);
}

enum sf_status sf_case_from_json(struct sf_case *out, const char *json, size_t size_bytes, const char *name, struct sf_error *error) {
  if (size_bytes > CASE_LIMIT_BYTES)
    return sf_error_set(error, SF_EINPUT, "%s: %zu bytes, more than the limit of %d", name, size_bytes, CASE_LIMIT_BYTES);
  struct sf_error reason = {0};
  struct sf_case c;
  json_t *root = NULL;
  enum sf_status status = parse(&root, json, size_bytes, name, error);
  if (status != SF_OK) return status;
  sf_case_init(&c);
  status = read_document(&c, root, &reason);
  if (status == SF_OK)
    *out = c;
  else
    status = sf_error_set(error, status, "%s: %s", name, reason.text);
  json_decref(root);
  return status;
}

/* --- writing -------------------------------------------------------------------------------------------------- */

static void write_string(struct sf_text *text, const char *value) {
  sf_text_append(text, "\"");
  for (const char *at = value; *at != '\0'; at++) {
    const unsigned char byte = (unsigned char)*at;
    if (byte == '"' || byte == '\\')
      sf_text_append(text, "\\%c", byte);
    else if (byte < 0x20u)
      sf_text_append(text, "\\u%04x", byte);
    else
      sf_text_append(text, "%c", byte);
  }
  sf_text_append(text, "\"");
}

static void write_flags(struct sf_text *text, const struct sf_field *field, int64_t flags) {
  const char *separator = "";
  sf_text_append(text, "[");
  for (int bit = 0; field->names[bit] != NULL; bit++) {
    if (!(flags >> bit & 1)) continue;
    sf_text_append(text, "%s\"%s\"", separator, field->names[bit]);
    separator = ", ";
  }
  sf_text_append(text, "]");
}

static void write_value(struct sf_text *text, const struct sf_case *c, const struct sf_field *field) {
  if (field->type == SF_FIELD_TEXT) {
    write_string(text, (const char *)c + field->offset);
    return;
  }
  const int64_t value = sf_case_field_get(c, field);
  switch (field->type) {
  case SF_FIELD_INT:
    sf_text_append(text, "%" PRId64, value);
    break;
  case SF_FIELD_BOOL:
    sf_text_append(text, "%s", value ? "true" : "false");
    break;
  case SF_FIELD_ENUM:
    SF_ASSERT(value >= field->min && value <= field->max);
    sf_text_append(text, "\"%s\"", field->names[value]);
    break;
  case SF_FIELD_FLAGS:
    write_flags(text, field, value);
    break;
  case SF_FIELD_TEXT:
    break;
  }
}

static void write_fields(struct sf_text *text, const struct sf_case *c) {
  const char *open_section = "";
  int order[SF_CASE_FIELDS_MAX];
  sf_case_field_order(order);
  for (int i = 0; i < sf_case_field_count; i++) {
    const struct sf_field *field = &sf_case_fields[order[i]];
    const size_t length = sf_case_section_length(field->path), open_length = sf_case_section_length(open_section);
    const bool same = length == open_length && strncmp(open_section, field->path, length) == 0;
    if (!same && open_length > 0) sf_text_append(text, "\n  }");
    sf_text_append(text, ",\n");
    if (!same && length > 0) sf_text_append(text, "  \"%.*s\": {\n", (int)length, field->path);
    const char *key = length > 0 ? field->path + length + 1 : field->path;
    sf_text_append(text, "%s\"%s\": ", length > 0 ? "    " : "  ", key);
    write_value(text, c, field);
    open_section = field->path;
  }
  if (sf_case_section_length(open_section) > 0) sf_text_append(text, "\n  }");
}

static void write_framework(struct sf_text *text, const struct sf_case *c) {
  sf_text_append(text, ",\n  \"seed\": %" PRId64 ",\n  \"target\": {\n    \"name\": ", c->seed);
  write_string(text, c->target);
  sf_text_append(text, "\n  },\n  \"framework\": ");
  sf_case_framework_append(text, c);
}

/* On one line. */
static enum sf_status operation_to_json(char **out, const struct sf_case *c) {
  struct sf_text text = {0}, target = {0};
  json_set_alloc_funcs(sf_alloc, sf_free);
  sf_utf8_append(&target, c->target);
  json_t *root = json_pack("{s:i, s:s, s:s, s:o}", "schema", SF_CASE_SCHEMA, "target", target.failed ? NULL : target.data, "operation",
                           c->operation, "case", sf_json_of(c->fields));
  if (root && c->expect.present)
    json_object_set_new(root, "expect", json_pack("{s:s, s:s}", "verdict", c->expect.verdict, "signature", c->expect.signature));
  char *line = root ? sf_json_dump(root, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
  json_decref(root);
  sf_text_destroy(&target);
  sf_text_append(&text, "%s\n", line ? line : "");
  const enum sf_status status = line && !text.failed ? SF_OK : SF_ENOMEM;
  sf_free(line);
  if (status == SF_OK)
    *out = text.data;
  else
    sf_text_destroy(&text);
  return status;
}

enum sf_status sf_case_to_json(char **out, const struct sf_case *c) {
  struct sf_text text = {0};
  if (sf_case_is_operation(c)) return operation_to_json(out, c);
  sf_text_append(&text, "{\n  \"schema\": %d", SF_CASE_SCHEMA);
  if (sf_case_is_framework(c))
    write_framework(&text, c);
  else
    write_fields(&text, c);
  if (c->expect.present) {
    sf_text_append(&text, ",\n  \"expect\": {\n    \"verdict\": ");
    write_string(&text, c->expect.verdict);
    sf_text_append(&text, ",\n    \"signature\": ");
    write_string(&text, c->expect.signature);
    sf_text_append(&text, "\n  }");
  }
  sf_text_append(&text, "\n}\n");
  if (text.failed) {
    sf_text_destroy(&text);
    return SF_ENOMEM;
  }
  *out = text.data;
  return SF_OK;
}

/* --- files ---------------------------------------------------------------------------------------------------- */

enum sf_status sf_case_read(struct sf_case *out, const char *path, struct sf_error *error) {
  struct sf_bytes bytes = {0};
  enum sf_status status = sf_bytes_read_file(&bytes, path, CASE_LIMIT_BYTES, error);
  if (status != SF_OK) return status;
  status = sf_case_from_json(out, (const char *)bytes.data, bytes.size_bytes, path, error);
  sf_bytes_destroy(&bytes);
  return status;
}

enum sf_status sf_case_write(const struct sf_case *c, const char *path, struct sf_error *error) {
  char *json = NULL;
  if (sf_case_to_json(&json, c) != SF_OK) return sf_error_set(error, SF_ENOMEM, "%s: out of memory", path);
  const enum sf_status status = sf_bytes_write_file(path, json, strlen(json), error);
  sf_free(json);
  return status;
}
