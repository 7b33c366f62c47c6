/* Cases as files: {"schema": 1, "target": .., "operation": .., "case": {"rows": 3, ..}, "expect": {..}}. All fields are written; an omitted
 * one has its smallest value. */
#include "harness/run/opfuzz/case/op_case.h"

#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/base/nearest.h"
#include "harness/run/support/json_out.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { FILE_LIMIT_BYTES = 1 << 20, SCHEMA = 1 };

static const char *const plain_fields[] = {"seed", "store", "inputs", "special", "in_place"};
SF_ASSERT_ENTRIES(plain_fields, SF_OP_DIM);
#define TEXT(constant, text) text,
static const char *const special_names[] = {SF_OP_SPECIAL_MAP(TEXT)};
static const char *const values_names[] = {SF_DIST_MAP(TEXT) SF_OP_MORE_VALUES_MAP(TEXT)};
#undef TEXT

/* Fields of operands: prefix and operand; NULL for others. */
static const char *operand_field(int32_t field, int32_t *operand) {
  static const char *const prefixes[] = {"values", "start", "pad"};
  SF_ASSERT_ENTRIES(prefixes, (SF_OP_FIELDS - SF_OP_VALUES) / SF_OP_OPERANDS_MAX);
  if (field < SF_OP_VALUES) return NULL;
  *operand = (field - SF_OP_VALUES) % SF_OP_OPERANDS_MAX;
  return prefixes[(field - SF_OP_VALUES) / SF_OP_OPERANDS_MAX];
}

bool sf_op_field_present(const struct sf_op *op, int32_t field) {
  int32_t operand = 0;
  if (field < SF_OP_DIM) return true;
  if (field < SF_OP_ATTR) return field - SF_OP_DIM < op->dim_count;
  if (field < SF_OP_VALUES) return field - SF_OP_ATTR < op->attr_count;
  operand_field(field, &operand);
  return operand < op->operand_count;
}

bool sf_op_field_name(char *out, size_t size, const struct sf_op *op, int32_t field) {
  int32_t operand = 0;
  if (!sf_op_field_present(op, field)) return false;
  const char *prefix = operand_field(field, &operand);
  if (prefix)
    snprintf(out, size, "%s.%s", prefix, op->operands[operand].name);
  else
    snprintf(out, size, "%s",
             field < SF_OP_DIM    ? plain_fields[field]
             : field < SF_OP_ATTR ? op->dims[field - SF_OP_DIM]
                                  : op->attrs[field - SF_OP_ATTR].name);
  return true;
}

const char *sf_op_value_name(int32_t field, int64_t value) {
  if (field == SF_OP_STORE || field == SF_OP_INPUTS) return value < SF_DTYPE_COUNT ? sf_dtype_name((enum sf_dtype)value) : NULL;
  if (field == SF_OP_SPECIAL) return value < SF_OP_SPECIAL_COUNT ? special_names[value] : NULL;
  if (field >= SF_OP_VALUES && field < SF_OP_START) return value < SF_OP_VALUES_COUNT ? values_names[value] : NULL;
  return NULL;
}

enum sf_status sf_op_case_to_json(struct sf_text *out, const struct sf_op_target *target, const struct sf_op_case *c,
                                  const char *signature) {
  const struct sf_op *op = sf_op_of(target, c);
  struct sf_json_out *json = sf_json_out_create();
  sf_json_out_int(json, "schema", SCHEMA);
  sf_json_out_text(json, "target", target->name);
  sf_json_out_text(json, "operation", op->name);
  sf_json_out_object(json, "case");
  for (int32_t i = 0; i < SF_OP_FIELDS; i++) {
    char name[64];
    if (!sf_op_field_name(name, sizeof name, op, i)) continue;
    const char *word = sf_op_value_name(i, c->field[i]);
    if (word)
      sf_json_out_text(json, name, word);
    else
      sf_json_out_int(json, name, c->field[i]);
  }
  sf_json_out_end(json);
  if (signature) {
    sf_json_out_object(json, "expect");
    sf_json_out_text(json, "verdict", "FINDING");
    sf_json_out_text(json, "signature", signature);
    sf_json_out_end(json);
  }
  const enum sf_status status = sf_json_out_finish(json, out);
  sf_text_append(out, "\n");
  return status == SF_OK && out->failed ? SF_ENOMEM : status;
}

static json_t *parse(const char *path, json_error_t *detail, struct sf_error *error) {
  struct sf_bytes bytes = {0};
  if (sf_bytes_read_file(&bytes, path, FILE_LIMIT_BYTES, error) != SF_OK) return NULL;
  json_t *root = json_loadb((const char *)bytes.data, bytes.size_bytes, JSON_REJECT_DUPLICATES, detail);
  if (!root) sf_error_set(error, SF_EINPUT, "%s: line %d column %d: %s", path, detail->line, detail->column, detail->text);
  sf_bytes_destroy(&bytes);
  return root;
}

bool sf_op_file_is_one(const char *path) {
  json_error_t detail;
  json_t *root = parse(path, &detail, NULL);
  const bool is_one = json_is_object(root) && json_object_get(root, "operation");
  json_decref(root);
  return is_one;
}

static enum sf_status read_text(char *out, size_t size, const json_t *object, const char *key, const char *path, struct sf_error *error) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_string(value)) return sf_error_set(error, SF_EINPUT, "%s: %s: a text is needed", path, key);
  if (json_string_length(value) >= size) return sf_error_set(error, SF_EINPUT, "%s: %s: the text is too long", path, key);
  snprintf(out, size, "%s", json_string_value(value));
  return SF_OK;
}

static bool is_among(const char *key, const char *const *names, int32_t count) {
  for (int32_t i = 0; i < count; i++)
    if (strcmp(names[i], key) == 0) return true;
  return false;
}

static enum sf_status refuse_key(const char *path, const char *section, const char *key, const char *const *names, int32_t count,
                                 struct sf_error *error) {
  struct sf_nearest nearest = sf_nearest_to(key);
  for (int32_t i = 0; i < count; i++) sf_nearest_offer(&nearest, names[i]);
  return sf_error_set(error, SF_EINPUT, "%s: %s%.64s: no such field%s", path, section, key, sf_nearest_text(&nearest));
}

static enum sf_status read_expect(struct sf_op_file *out, json_t *expect, const char *path, struct sf_error *error) {
  static const char *const members[] = {"verdict", "signature"};
  const char *key;
  json_t *value;
  if (!expect) return SF_OK;
  if (!json_is_object(expect)) return sf_error_set(error, SF_EINPUT, "%s: expect: an object is needed", path);
  json_object_foreach(expect, key, value) {
    if (!is_among(key, members, 2)) return refuse_key(path, "expect.", key, members, 2, error);
  }
  enum sf_status status = read_text(out->verdict, sizeof out->verdict, expect, "verdict", path, error);
  if (status != SF_OK) return status;
  const bool finding = strcmp(out->verdict, "FINDING") == 0;
  if (!finding && strcmp(out->verdict, "PASS") && strcmp(out->verdict, "SKIP"))
    return sf_error_set(error, SF_EINPUT, "%s: expect.verdict: FINDING, PASS or SKIP", path);
  if (json_object_get(expect, "signature")) status = read_text(out->signature, sizeof out->signature, expect, "signature", path, error);
  if (status == SF_OK && !finding && *out->signature)
    status = sf_error_set(error, SF_EINPUT, "%s: expect.signature: of a finding only", path);
  return status;
}

static enum sf_status check_keys(json_t *root, const char *path, struct sf_error *error) {
  static const char *const members[] = {"schema", "target", "operation", "case", "expect"};
  const char *key;
  json_t *value;
  json_object_foreach(root, key, value) {
    if (!is_among(key, members, 5)) return refuse_key(path, "", key, members, 5, error);
  }
  const json_t *schema = json_object_get(root, "schema");
  if (!json_is_integer(schema) || json_integer_value(schema) != SCHEMA)
    return sf_error_set(error, SF_EINPUT, "%s: schema: %d is needed", path, SCHEMA);
  return json_is_object(json_object_get(root, "case")) ? SF_OK : sf_error_set(error, SF_EINPUT, "%s: case: an object is needed", path);
}

enum sf_status sf_op_file_read(struct sf_op_file *out, const char *path, struct sf_error *error) {
  json_error_t detail;
  struct sf_error own = {SF_EINPUT, ""};
  memset(out, 0, sizeof *out);
  json_t *root = parse(path, &detail, &own);
  if (!root) return sf_error_set(error, own.status, "%s", own.text);
  enum sf_status status = check_keys(root, path, error);
  if (status == SF_OK) status = read_text(out->target, sizeof out->target, root, "target", path, error);
  if (status == SF_OK) status = read_text(out->op, sizeof out->op, root, "operation", path, error);
  if (status == SF_OK) status = read_expect(out, json_object_get(root, "expect"), path, error);
  if (status == SF_OK) out->fields = json_incref(json_object_get(root, "case"));
  json_decref(root);
  return status;
}

void sf_op_file_destroy(struct sf_op_file *file) {
  json_decref(file->fields);
  file->fields = NULL;
}

static int32_t field_find(const struct sf_op *op, const char *key) {
  char name[64];
  for (int32_t i = 0; i < SF_OP_FIELDS; i++)
    if (sf_op_field_name(name, sizeof name, op, i) && strcmp(name, key) == 0) return i;
  return -1;
}

static enum sf_status refuse_field(const char *path, const struct sf_op *op, const char *key, struct sf_error *error) {
  struct sf_nearest nearest = sf_nearest_to(key);
  char name[64];
  for (int32_t i = 0; i < SF_OP_FIELDS; i++)
    if (sf_op_field_name(name, sizeof name, op, i)) sf_nearest_offer(&nearest, name);
  return sf_error_set(error, SF_EINPUT, "%s: case.%.64s: no such field%s", path, key, sf_nearest_text(&nearest));
}

static bool read_value(int64_t *out, int32_t field, const json_t *value) {
  if (json_is_integer(value)) {
    *out = json_integer_value(value);
    return sf_op_value_name(field, 0) == NULL;
  }
  for (int64_t i = 0; json_is_string(value) && sf_op_value_name(field, i); i++)
    if (strcmp(json_string_value(value), sf_op_value_name(field, i)) == 0) {
      *out = i;
      return true;
    }
  return false;
}

/* The target's entry for the operation. */
static int32_t entry_find(const struct sf_op_target *target, const char *op) {
  for (int32_t i = 0; i < target->entry_count; i++)
    if (strcmp(target->entries[i].op->name, op) == 0) return i;
  return -1;
}

enum sf_status sf_op_file_case(struct sf_op_case *out, const struct sf_op_file *file, const struct sf_op_target *target, const char *path,
                               struct sf_error *error) {
  struct sf_op_case c = {.entry = entry_find(target, file->op)};
  struct sf_error reason = {SF_OK, ""};
  const char *key;
  json_t *value;
  if (c.entry < 0) return sf_error_set(error, SF_EINPUT, "%s: operation: %s has no '%.64s'", path, target->name, file->op);
  const struct sf_op *op = sf_op_of(target, &c);
  for (int32_t i = 0; i < SF_OP_FIELDS; i++) c.field[i] = sf_op_field_min(&target->entries[c.entry], i);
  json_object_foreach((json_t *)file->fields, key, value) {
    const int32_t field = field_find(op, key);
    if (field < 0) return refuse_field(path, op, key, error);
    if (!read_value(&c.field[field], field, value))
      return sf_error_set(error, SF_EINPUT, "%s: case.%s: not a value that it may have", path, key);
  }
  /* Several entries may have the operation: with other attributes fixed. */
  for (; c.entry < target->entry_count; c.entry++)
    if (sf_op_of(target, &c) == op && sf_op_case_valid(target, &c, NULL, &reason)) {
      *out = c;
      return SF_OK;
    }
  return sf_error_set(error, SF_EINPUT, "%s: case.%s", path, reason.text);
}
