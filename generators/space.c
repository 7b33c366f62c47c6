/* The space of cases, and the values of drawn fields. */
#include "generators/codec_internal.h"

#include "generators/presets.h"
#include "harness/base/assert.h"
#include "harness/base/nearest.h"
#include "harness/spec/mesh.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum sf_field_kind sf_field_kind(enum sf_case_field field) {
  static const enum sf_field_kind kinds[] = {
#define FIELD(name, path, member, type, kind, ...) SF_KIND_OF_##kind,
#include "harness/spec/fields.def"
  };
  return kinds[field];
}

/* --- orders ------------------------------------------------------------------------------------------------------- */

void sf_order_text(char out[SF_ORDER_TEXT], int64_t number) {
  SF_ASSERT(number >= 0 && number < SF_ORDER_COUNT);
  int left[SF_AXIS_COUNT] = {SF_AXIS_TP, SF_AXIS_CP, SF_AXIS_EP, SF_AXIS_DP, SF_AXIS_PP};
  int64_t block = SF_ORDER_COUNT;
  size_t at = 0;
  memset(out, 0, SF_ORDER_TEXT);
  for (int count = SF_AXIS_COUNT; count > 0; count--) {
    block /= count;
    const int pick = (int)(number / block);
    number %= block;
    at += (size_t)snprintf(out + at, SF_ORDER_TEXT - at, "%s%s", at > 0 ? "-" : "", sf_axis_name((enum sf_axis)left[pick]));
    memmove(left + pick, left + pick + 1, (size_t)(count - 1 - pick) * sizeof left[0]);
  }
}

int64_t sf_order_number(const char *text) {
  enum sf_axis order[SF_AXIS_COUNT];
  if (sf_mesh_parse_order(order, text, NULL) != SF_OK) return -1;
  int64_t number = 0;
  for (int i = 0; i < SF_AXIS_COUNT; i++) {
    int smaller = 0;
    for (int k = i + 1; k < SF_AXIS_COUNT; k++) smaller += order[k] < order[i];
    number = number * (SF_AXIS_COUNT - i) + smaller;
  }
  return number;
}

/* --- values ------------------------------------------------------------------------------------------------------- */

int64_t sf_drawn_get(const struct sf_case *c, enum sf_case_field field) {
  if (field == SF_CASE_ORDER) return sf_order_number(c->layout.order);
  if (field == SF_CASE_SECOND_ORDER) return sf_order_number(c->reload.layout.order);
  return sf_case_field_get(c, &sf_case_fields[field]);
}

void sf_drawn_put(struct sf_case *c, enum sf_case_field field, int64_t value) {
  if (field == SF_CASE_ORDER)
    sf_order_text(c->layout.order, value);
  else if (field == SF_CASE_SECOND_ORDER)
    sf_order_text(c->reload.layout.order, value);
  else
    sf_case_field_put(c, &sf_case_fields[field], value);
}

static void append_flags(struct sf_text *out, const struct sf_field *field, int64_t flags) {
  const char *separator = "";
  if (flags == 0) sf_text_append(out, "none");
  for (int bit = 0; field->names[bit] != NULL; bit++) {
    if (!(flags >> bit & 1)) continue;
    sf_text_append(out, "%s%s", separator, field->names[bit]);
    separator = "+";
  }
}

static void append_value(struct sf_text *out, const struct sf_field *field, int64_t value) {
  char order[SF_ORDER_TEXT];
  switch (field->type) {
  case SF_FIELD_INT:
    sf_text_append(out, "%" PRId64, value);
    break;
  case SF_FIELD_BOOL:
    sf_text_append(out, "%s", value ? "on" : "off");
    break;
  case SF_FIELD_ENUM:
    sf_text_append(out, "%s", field->names[value]);
    break;
  case SF_FIELD_FLAGS:
    append_flags(out, field, value);
    break;
  case SF_FIELD_TEXT: /* the only texts that are drawn are orders */
    sf_order_text(order, value);
    sf_text_append(out, "%s", order);
    break;
  }
}

void sf_drawn_append(struct sf_text *out, enum sf_case_field field, struct sf_range range) {
  sf_text_append(out, "%s=", sf_case_fields[field].path);
  append_value(out, &sf_case_fields[field], range.lo);
  if (range.lo == range.hi) return;
  sf_text_append(out, "..");
  append_value(out, &sf_case_fields[field], range.hi);
}

/* The number of the field; -1 if there is none, or if it is not drawn. */
static int find_drawn(const char *path) {
  const struct sf_field *field = sf_case_field_find(path);
  return field != NULL && field - sf_case_fields < SF_CASE_DRAWN ? (int)(field - sf_case_fields) : -1;
}

void sf_space_init(struct sf_space *space) {
  struct sf_case smallest;
  sf_case_init(&smallest);
  memset(space, 0, sizeof *space);
  space->max_ranks = 8;
  memcpy(space->target, smallest.target, sizeof space->target);
}

void sf_space_fix_field(struct sf_space *space, enum sf_case_field field, const struct sf_case *c) {
  const int64_t value = sf_drawn_get(c, field);
  space->is_set[field] = true;
  space->is_limited[field] = false;
  space->set[field] = (struct sf_range){value, value};
  if (field == SF_CASE_COMPUTE) space->formats_left_out = 0;
}

void sf_space_fix(struct sf_space *space, const char *path, const struct sf_case *c) {
  const int field = find_drawn(path);
  SF_ASSERT(field >= 0);
  sf_space_fix_field(space, (enum sf_case_field)field, c);
}

/* --- assignments ---------------------------------------------------------------------------------------------------- */

enum { VALUE_TEXT = 256 };

/* Reads a field's value from a text, with the checks of the command line. */
static enum sf_status parse_value(struct sf_case *scratch, const char *path, const char *text, size_t length, struct sf_error *error) {
  char value[VALUE_TEXT];
  if (length >= sizeof value) return sf_error_set(error, SF_EINPUT, "%s: the value is too long", path);
  memcpy(value, text, length);
  value[length] = '\0';
  return sf_case_field_parse(scratch, path, value, error);
}

static enum sf_status set_text(struct sf_space *space, const char *path, const struct sf_case *parsed, struct sf_error *error) {
  if (strcmp(path, "target.name") == 0) {
    memcpy(space->target, parsed->target, sizeof space->target);
  } else if (strcmp(path, "plant.id") == 0) {
    memcpy(space->plant, parsed->plant, sizeof space->plant);
  } else {
    const char *order = (const char *)parsed + sf_case_field_find(path)->offset;
    const enum sf_status status = sf_mesh_parse_order((enum sf_axis[SF_AXIS_COUNT]){0}, order, error);
    if (status != SF_OK) return status;
    sf_space_fix(space, path, parsed);
  }
  return SF_OK;
}

static enum sf_status set_range(struct sf_space *space, const struct sf_field *field, const char *value, const char *dots,
                                struct sf_error *error) {
  struct sf_case scratch;
  sf_case_init(&scratch);
  if (field->type != SF_FIELD_INT) return sf_error_set(error, SF_EINPUT, "%s: only numbers have ranges", field->path);
  enum sf_status status = parse_value(&scratch, field->path, value, (size_t)(dots - value), error);
  const int64_t lo = sf_case_field_get(&scratch, field);
  if (status == SF_OK) status = parse_value(&scratch, field->path, dots + 2, strlen(dots + 2), error);
  if (status != SF_OK) return status;
  const int64_t hi = sf_case_field_get(&scratch, field);
  if (lo > hi) return sf_error_set(error, SF_EINPUT, "%s: the range %s is empty", field->path, value);
  const ptrdiff_t at = field - sf_case_fields;
  space->is_set[at] = true;
  space->is_limited[at] = false;
  space->set[at] = (struct sf_range){lo, hi};
  return SF_OK;
}

enum sf_status sf_space_set(struct sf_space *space, const char *assignment, struct sf_error *error) {
  char path[VALUE_TEXT];
  struct sf_case scratch;
  const char *equals = strchr(assignment, '=');
  if (equals == NULL || equals == assignment || (size_t)(equals - assignment) >= sizeof path)
    return sf_error_set(error, SF_EINPUT, "\"%.100s\" is not KEY=VALUE", assignment);
  memcpy(path, assignment, (size_t)(equals - assignment));
  path[equals - assignment] = '\0';
  const struct sf_field *field = sf_case_field_find(path);
  if (field == NULL) return sf_case_field_unknown(path, error);
  const char *value = equals + 1, *dots = strstr(value, "..");
  if (dots != NULL && field->type != SF_FIELD_TEXT) return set_range(space, field, value, dots, error);
  sf_case_init(&scratch);
  const enum sf_status status = parse_value(&scratch, path, value, strlen(value), error);
  if (status != SF_OK) return status;
  if (field->type == SF_FIELD_TEXT) return set_text(space, path, &scratch, error);
  sf_space_fix(space, path, &scratch);
  return SF_OK;
}

enum sf_status sf_space_limit(struct sf_space *space, const char *path, int64_t lo, int64_t hi, struct sf_error *error) {
  const int at = find_drawn(path);
  if (at < 0 || sf_case_fields[at].type == SF_FIELD_TEXT) return sf_error_set(error, SF_EINPUT, "%s: not a number that is drawn", path);
  struct sf_range range = space->is_set[at] ? space->set[at] : (struct sf_range){sf_case_fields[at].min, sf_case_fields[at].max};
  if (lo > range.lo) range.lo = lo;
  if (hi < range.hi) range.hi = hi;
  if (range.lo > range.hi) return sf_error_set(error, SF_EINPUT, "%s: the target takes none of the values that are set", path);
  space->is_limited[at] = space->is_limited[at] || !space->is_set[at];
  space->is_set[at] = true;
  space->set[at] = range;
  return SF_OK;
}

enum sf_status sf_space_leave_out(struct sf_space *space, uint32_t formats, struct sf_error *error) {
  const struct sf_range range = space->is_set[SF_CASE_COMPUTE] ? space->set[SF_CASE_COMPUTE] : (struct sf_range){0, SF_COMPUTE_COUNT - 1};
  uint32_t left = 0;
  for (int64_t i = range.lo; i <= range.hi; i++) left |= 1u << i & ~(formats | space->formats_left_out);
  if (left == 0) return sf_error_set(error, SF_EINPUT, "precision.compute: the target takes none of the values that are set");
  space->formats_left_out |= formats;
  return SF_OK;
}

static enum sf_status refuse_preset(const char *name, struct sf_error *error) {
  struct sf_nearest nearest = sf_nearest_to(name);
  for (int i = 0; i < sf_preset_count; i++) sf_nearest_offer(&nearest, sf_presets[i].name);
  return sf_error_set(error, SF_EINPUT, "%.100s: no such preset (shardfuzz list presets)%s", name, sf_nearest_text(&nearest));
}

enum sf_status sf_space_preset(struct sf_space *space, const char *name, struct sf_error *error) {
  const struct sf_preset *preset = sf_preset_find(name);
  struct sf_space next = *space;
  if (preset == NULL) return refuse_preset(name, error);
  for (int i = 0; preset->assignments[i] != NULL; i++) {
    const enum sf_status status = sf_space_set(&next, preset->assignments[i], error);
    SF_ASSERT_EQ(status, SF_OK);
  }
  *space = next;
  return SF_OK;
}
