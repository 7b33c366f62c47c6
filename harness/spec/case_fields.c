/* The table of fields: the one place that knows which fields a case has, their ranges and their texts. */
#include "harness/base/assert.h"
#include "harness/base/nearest.h"
#include "harness/spec/case_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME(constant, name, ...) name,
#define NAMES(map) ((const char *const[]){SF_##map##_MAP(NAME) NULL})
#define COUNT_OF(map) ((int64_t)(sizeof NAMES(map) / sizeof NAMES(map)[0]) - 1)
_Static_assert((int)SF_COMPUTE_FP32 == (int)SF_F32 && (int)SF_COMPUTE_BF16 == (int)SF_BF16 && (int)SF_COMPUTE_FP16 == (int)SF_F16,
               "what is stored as it is computed has one number");
_Static_assert(SF_FROZEN_ALL == (1 << COUNT_OF(FROZEN)) - 1, "a name for each frozen bit");

/* Type, range, smallest value and names, by a row's type. */
#define AS_INT(least, most, smallest) SF_FIELD_INT, least, most, smallest, NULL
#define AS_BOOL SF_FIELD_BOOL, 0, 1, 0, NULL
#define AS_ENUM(map) SF_FIELD_ENUM, 0, COUNT_OF(map) - 1, 0, NAMES(map)
#define AS_FLAGS(map) SF_FIELD_FLAGS, 0, (INT64_C(1) << COUNT_OF(map)) - 1, 0, NAMES(map)
#define AS_TEXT(type) SF_FIELD_TEXT, 0, 0, 0, NULL
#define ROW(path, member, type, meaning)                                                                                                   \
  { path, meaning, offsetof(struct sf_case, member), sizeof(((struct sf_case *)NULL)->member), AS_##type }

const struct sf_field sf_case_fields[] = {
#define FIELD(name, path, member, type, kind, meaning, ...) ROW(path, member, type, meaning),
#include "harness/spec/fields.def"
    ROW("target.name", target, TEXT(target), "whose layers: builtin, plugin:LIB.so, or a framework"),
    ROW("plant.id", plant, TEXT(plant), "a planted bug or a mutant; empty: none"),
};
const int sf_case_field_count = (int)(sizeof sf_case_fields / sizeof sf_case_fields[0]);

enum sf_dtype sf_case_storage(const struct sf_case *c) {
  return c->precision.compute == SF_COMPUTE_FP8 ? SF_BF16 : (enum sf_dtype)c->precision.compute;
}

const char *sf_compute_name(int64_t compute) {
  SF_ASSERT(compute >= 0 && compute < SF_COMPUTE_COUNT);
  return NAMES(COMPUTE)[compute];
}

const char *sf_verdict_name(enum sf_verdict verdict) {
  static const char *const names[] = {
#define X(name, meaning) #name,
      SF_VERDICT_MAP(X)
#undef X
  };
  SF_ASSERT_LT((unsigned)verdict, SF_VERDICT_COUNT);
  return names[verdict];
}

const struct sf_field *sf_case_field_find(const char *path) {
  for (int i = 0; i < sf_case_field_count; i++)
    if (strcmp(sf_case_fields[i].path, path) == 0) return &sf_case_fields[i];
  return NULL;
}

size_t sf_case_section_length(const char *path) {
  const char *dot = strchr(path, '.');
  return dot != NULL ? (size_t)(dot - path) : 0;
}

static bool in_one_section(int a, int b) {
  const char *path = sf_case_fields[a].path, *other = sf_case_fields[b].path;
  const size_t length = sf_case_section_length(path);
  return length > 0 && length == sf_case_section_length(other) && strncmp(path, other, length) == 0;
}

void sf_case_field_order(int order[SF_CASE_FIELDS_MAX]) {
  int count = 0;
  SF_ASSERT_LE(sf_case_field_count, SF_CASE_FIELDS_MAX);
  for (int i = SF_CASE_DRAWN; i < sf_case_field_count; i++) order[count++] = i;
  for (int first = 0; first < SF_CASE_DRAWN; first++) {
    bool is_listed = false;
    for (int i = 0; i < first; i++) is_listed |= in_one_section(i, first);
    for (int i = first; i < SF_CASE_DRAWN && !is_listed; i++)
      if (i == first || in_one_section(first, i)) order[count++] = i;
  }
}

int64_t sf_case_field_get(const struct sf_case *c, const struct sf_field *field) {
  SF_ASSERT(field->type != SF_FIELD_TEXT);
  const char *at = (const char *)c + field->offset;
  return field->type == SF_FIELD_BOOL ? *(const bool *)at : *(const int64_t *)(const void *)at;
}

void sf_case_field_put(struct sf_case *c, const struct sf_field *field, int64_t value) {
  SF_ASSERT(field->type != SF_FIELD_TEXT);
  char *at = (char *)c + field->offset;
  if (field->type == SF_FIELD_BOOL) {
    SF_ASSERT(value == 0 || value == 1);
    *(bool *)at = value != 0;
  } else {
    *(int64_t *)(void *)at = value;
  }
}

const char *sf_case_choice(const struct sf_case *c, const char *path) {
  const struct sf_field *field = sf_case_field_find(path);
  SF_ASSERT(field != NULL && field->type == SF_FIELD_ENUM);
  const int64_t value = sf_case_field_get(c, field);
  SF_ASSERT_LE(0, value);
  SF_ASSERT_LE(value, field->max);
  return field->names[value];
}

bool sf_case_text_ok(const char *text) {
  return text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:,/-")] == '\0';
}

enum sf_status sf_case_field_check(const struct sf_field *field, int64_t value, struct sf_error *error) {
  if (value >= field->min && value <= field->max) return SF_OK;
  return sf_error_set(error, SF_EINPUT, "%s: %" PRId64 " is not in %" PRId64 "..%" PRId64, field->path, value, field->min, field->max);
}

enum sf_status sf_field_name_read(int64_t *index, const struct sf_field *field, const char *name, size_t length, struct sf_error *error) {
  char word[SF_NEAREST_LETTERS + 1];
  snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word - 1), name);
  struct sf_nearest nearest = sf_nearest_to(word);
  for (int i = 0; field->names[i] != NULL; i++) {
    *index = i;
    if (strlen(field->names[i]) == length && memcmp(field->names[i], name, length) == 0) return SF_OK;
    sf_nearest_offer(&nearest, field->names[i]);
  }
  return sf_error_set(error, SF_EINPUT, "%s: \"%s\" is not one of its names%s", field->path, word, sf_nearest_text(&nearest));
}

enum sf_status sf_case_field_unknown(const char *path, struct sf_error *error) {
  struct sf_nearest nearest = sf_nearest_to(path);
  for (int i = 0; i < sf_case_field_count; i++) sf_nearest_offer(&nearest, sf_case_fields[i].path);
  return sf_error_set(error, SF_EINPUT, "%s: no such field%s", path, sf_nearest_text(&nearest));
}

enum sf_status sf_case_field_put_text(struct sf_case *c, const struct sf_field *field, const char *value, struct sf_error *error) {
  const size_t length = strlen(value);
  if (length >= field->size_bytes)
    return sf_error_set(error, SF_EINPUT, "%s: longer than %zu characters", field->path, field->size_bytes - 1);
  if (!sf_case_text_ok(value)) return sf_error_set(error, SF_EINPUT, "%s: characters other than A-Z a-z 0-9 . _ : , / -", field->path);
  char *at = (char *)c + field->offset;
  memset(at, 0, field->size_bytes); /* equal cases are equal bytes */
  memcpy(at, value, length);
  return SF_OK;
}

/* --- values as the command line gives them -------------------------------------------------------------------- */

static enum sf_status parse_int(int64_t *out, const struct sf_field *field, const char *value, struct sf_error *error) {
  const size_t digits = strspn(value, "0123456789");
  if (digits == 0 || value[digits] != '\0') return sf_error_set(error, SF_EINPUT, "%s: \"%s\" is not a number", field->path, value);
  errno = 0;
  const long long number = strtoll(value, NULL, 10);
  if (errno != 0) return sf_error_set(error, SF_EINPUT, "%s: %s is too large", field->path, value);
  *out = number;
  return SF_OK;
}

static enum sf_status parse_bool(int64_t *out, const struct sf_field *field, const char *value, struct sf_error *error) {
  static const char *const WORDS[] = {"false", "true", "off", "on"};
  for (int i = 0; i < 4; i++) {
    if (strcmp(value, WORDS[i]) != 0) continue;
    *out = i % 2;
    return SF_OK;
  }
  return sf_error_set(error, SF_EINPUT, "%s: \"%s\" is none of true, false, on, off", field->path, value);
}

static enum sf_status parse_flags(int64_t *out, const struct sf_field *field, const char *value, struct sf_error *error) {
  *out = 0;
  if (strcmp(value, "none") == 0) return SF_OK;
  for (const char *at = value;; at++) {
    const size_t length = strcspn(at, "+");
    int64_t bit = 0;
    const enum sf_status status = sf_field_name_read(&bit, field, at, length, error);
    if (status != SF_OK) return status;
    *out |= INT64_C(1) << bit;
    at += length;
    if (*at == '\0') return SF_OK;
  }
}

enum sf_status sf_case_field_parse(struct sf_case *c, const char *path, const char *value, struct sf_error *error) {
  const struct sf_field *field = sf_case_field_find(path);
  if (field == NULL) return sf_case_field_unknown(path, error);
  if (field->type == SF_FIELD_TEXT) return sf_case_field_put_text(c, field, value, error);
  int64_t number = 0;
  enum sf_status status = SF_OK;
  switch (field->type) {
  case SF_FIELD_INT:
    status = parse_int(&number, field, value, error);
    break;
  case SF_FIELD_BOOL:
    status = parse_bool(&number, field, value, error);
    break;
  case SF_FIELD_ENUM:
    status = sf_field_name_read(&number, field, value, strlen(value), error);
    break;
  case SF_FIELD_FLAGS:
    status = parse_flags(&number, field, value, error);
    break;
  case SF_FIELD_TEXT:
    break;
  }
  if (status == SF_OK) status = sf_case_field_check(field, number, error);
  if (status == SF_OK) sf_case_field_put(c, field, number);
  return status;
}
