#include "generators/vary.h"

#include <string.h>

/* Draws the fields again for which `again` is set; the others stay. */
static bool draw_again(int64_t *row, const int64_t *from, const struct sf_table *table, const bool *again, struct sf_draw *draw) {
  struct sf_range limits[SF_SPACE_FIELDS_MAX];
  for (int32_t i = 0; i < table->field_count; i++)
    limits[i] = again[i] ? (struct sf_range){INT64_MIN, INT64_MAX} : (struct sf_range){from[i], from[i]};
  return sf_table_draw(row, draw, table, limits, 0, NULL) == SF_OK;
}

static bool draw_layout(int64_t *row, const int64_t *from, const struct sf_table *table, struct sf_draw *draw) {
  bool again[SF_SPACE_FIELDS_MAX];
  for (int32_t i = 0; i < table->field_count; i++) again[i] = sf_table_has(table, i, SF_TRAIT_LAYOUT);
  return draw_again(row, from, table, again, draw);
}

/* A share of the fields: from one in two to one in 32. */
static bool draw_share(int64_t *row, const int64_t *from, const struct sf_table *table, struct sf_draw *draw) {
  bool again[SF_SPACE_FIELDS_MAX];
  const uint64_t one_in = UINT64_C(2) << sf_draw_choice(draw, 5, NULL);
  for (int32_t i = 0; i < table->field_count; i++) again[i] = sf_draw_choice(draw, one_in, NULL) == 0;
  return draw_again(row, from, table, again, draw);
}

/* The value of a field that stands beside the row's, in the order of its values, or any one. */
static bool other_value(int64_t *value, const int64_t *row, const struct sf_table *table, int32_t field, struct sf_draw *draw) {
  struct sf_domain domain;
  int32_t at = 0;
  sf_table_values(&domain, row, table, field);
  while (at < domain.count && domain.values[at] != row[field]) at++;
  if (domain.count < 2) return false;
  const int32_t step = sf_draw_choice(draw, 2, NULL) == 0 ? 1 : domain.count - 1;
  const bool is_near = at < domain.count && sf_draw_choice(draw, 2, NULL) == 0;
  at = is_near ? (at + step) % domain.count : (int32_t)sf_draw_choice(draw, (uint64_t)domain.count, domain.weights);
  *value = domain.values[at];
  return *value != row[field];
}

/* One field becomes another value, and those follow that rules tie to it. */
static bool change_field(int64_t *row, const int64_t *from, const struct sf_table *table, struct sf_draw *draw) {
  struct sf_edit edit = {{0}, {0}};
  const int32_t field = (int32_t)sf_draw_choice(draw, (uint64_t)table->field_count, NULL);
  int64_t value = 0;
  if (sf_table_has(table, field, SF_TRAIT_NUMBER)) {
    bool again[SF_SPACE_FIELDS_MAX] = {false};
    again[field] = true;
    return draw_again(row, from, table, again, draw);
  }
  if (!other_value(&value, from, table, field, draw)) return false;
  sf_edit_assign(&edit, field, value);
  sf_edit_follow(&edit, from, table);
  return sf_table_edit(row, from, table, &edit);
}

static bool change_fields(int64_t *row, const int64_t *from, const struct sf_table *table, struct sf_draw *draw) {
  int64_t next[SF_SPACE_FIELDS_MAX];
  bool is_changed = false;
  memcpy(row, from, (size_t)table->field_count * sizeof *row);
  for (uint64_t left = 1 + sf_draw_choice(draw, 4, NULL); left > 0; left--) {
    if (!change_field(next, row, table, draw)) continue;
    memcpy(row, next, (size_t)table->field_count * sizeof *row);
    is_changed = true;
  }
  return is_changed;
}

bool sf_vary_row(int64_t *row, const int64_t *from, const struct sf_table *table, struct sf_draw *draw) {
  enum { FIELDS, LAYOUT, SHARE, ALL };
  static const uint32_t weights[] = {[FIELDS] = 8, [LAYOUT] = 4, [SHARE] = 3, [ALL] = 1};
  switch (sf_draw_choice(draw, ALL + 1, weights)) {
  case FIELDS:
    return change_fields(row, from, table, draw);
  case LAYOUT:
    return draw_layout(row, from, table, draw);
  case SHARE:
    return draw_share(row, from, table, draw);
  default:
    return sf_table_draw(row, draw, table, NULL, 0, NULL) == SF_OK;
  }
}

bool sf_vary_mix(int64_t *row, const int64_t *from, const int64_t *other, const struct sf_table *table, struct sf_draw *draw) {
  struct sf_edit edit = {{0}, {0}};
  int64_t mixed[SF_SPACE_FIELDS_MAX];
  const bool layout = sf_draw_choice(draw, 2, NULL) == 0;
  const uint64_t one_in = UINT64_C(2) << sf_draw_choice(draw, 5, NULL);
  for (int32_t i = 0; i < table->field_count; i++) {
    const bool is_taken = layout ? sf_table_has(table, i, SF_TRAIT_LAYOUT) : sf_draw_choice(draw, one_in, NULL) == 0;
    mixed[i] = is_taken ? other[i] : from[i];
    edit.kind[i] = SF_EDIT_PREFER;
  }
  return sf_table_edit(row, mixed, table, &edit);
}
