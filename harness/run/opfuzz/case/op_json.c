/* The fields of a case by their names: {"rows": 3, .., "store": "bf16", ..}. */
#include "harness/run/opfuzz/case/op_case.h"

#include "harness/base/assert.h"
#include "harness/base/json.h"
#include "harness/base/nearest.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

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

void sf_op_case_put(struct sf_case *out, const struct sf_op_target *target, const struct sf_op_case *c) {
  const struct sf_op *op = sf_op_of(target, c);
  char *const text = out->fields;
  size_t length = 0;
  sf_case_init(out);
  snprintf(out->target, sizeof out->target, "%s", target->name);
  snprintf(out->operation, sizeof out->operation, "%s", op->name);
  for (int32_t i = 0; i < SF_OP_FIELDS; i++) {
    char name[64];
    if (!sf_op_field_name(name, sizeof name, op, i)) continue;
    const char *word = sf_op_value_name(i, c->field[i]), *before = length ? "," : "{";
    const int added = word ? snprintf(text + length, sizeof out->fields - length, "%s\"%s\":\"%s\"", before, name, word)
                           : snprintf(text + length, sizeof out->fields - length, "%s\"%s\":%" PRId64, before, name, c->field[i]);
    length += (size_t)added;
    SF_ASSERT_LT(length + 1, sizeof out->fields);
  }
  text[length] = '}';
}

static int32_t field_find(const struct sf_op *op, const char *key) {
  char name[64];
  for (int32_t i = 0; i < SF_OP_FIELDS; i++)
    if (sf_op_field_name(name, sizeof name, op, i) && strcmp(name, key) == 0) return i;
  return -1;
}

static enum sf_status refuse_field(const struct sf_op *op, const char *key, struct sf_error *error) {
  struct sf_nearest nearest = sf_nearest_to(key);
  char name[64];
  for (int32_t i = 0; i < SF_OP_FIELDS; i++)
    if (sf_op_field_name(name, sizeof name, op, i)) sf_nearest_offer(&nearest, name);
  return sf_error_set(error, SF_EINPUT, "case.%.64s: no such field%s", key, sf_nearest_text(&nearest));
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

static enum sf_status read_fields(struct sf_op_case *out, json_t *fields, const struct sf_op *op, struct sf_error *error) {
  const char *key;
  json_t *value;
  json_object_foreach(fields, key, value) {
    const int32_t field = field_find(op, key);
    if (field < 0) return refuse_field(op, key, error);
    if (!read_value(&out->field[field], field, value)) return sf_error_set(error, SF_EINPUT, "case.%s: not a value that it may have", key);
  }
  return SF_OK;
}

enum sf_status sf_op_case_of(struct sf_op_case *out, const struct sf_case *c, const struct sf_op_target *target, struct sf_error *error) {
  struct sf_op_case read = {.entry = entry_find(target, c->operation)};
  struct sf_error reason = {SF_OK, ""};
  if (read.entry < 0) return sf_error_set(error, SF_EINPUT, "operation: %s has no '%.64s'", target->name, c->operation);
  const struct sf_op *op = sf_op_of(target, &read);
  for (int32_t i = 0; i < SF_OP_ATTR; i++) read.field[i] = sf_op_field_range(&target->entries[read.entry], i).least;
  json_t *fields = sf_json_of(c->fields);
  const enum sf_status status = fields ? read_fields(&read, fields, op, error) : SF_ENOMEM;
  json_decref(fields);
  if (status != SF_OK) return status;
  /* Several entries may have the operation, with other attributes fixed. */
  for (; read.entry < target->entry_count; read.entry++)
    if (sf_op_of(target, &read) == op && sf_op_case_valid(target, &read, NULL, &reason)) {
      *out = read;
      return SF_OK;
    }
  return sf_error_set(error, SF_EINPUT, "case.%s", reason.text);
}
