#include "generators/codec_internal.h"

#include "harness/base/assert.h"
#include "harness/base/bytes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_RANKS = 65536 }; /* more than any case has */

/* --- decode ------------------------------------------------------------------------------------------------------- */

static bool is_narrowed(const struct sf_space *space, enum sf_case_field field) {
  return space->is_set[field] || (field == SF_CASE_COMPUTE && space->formats_left_out != 0);
}

static void widen(struct sf_space *space, enum sf_case_field field) {
  space->is_set[field] = false;
  if (field == SF_CASE_COMPUTE) space->formats_left_out = 0;
}

static bool is_feasible(const struct sf_space *space) {
  const struct sf_table table = sf_layers_table(space);
  struct sf_bounds bounds;
  sf_bounds_init(&bounds, &table);
  return sf_bounds_solve(&bounds);
}

/* Appends the setting, or only its path if it is not set. */
static void append_setting(struct sf_text *out, const struct sf_space *space, enum sf_case_field field) {
  sf_text_append(out, "%s", out->length > 0 ? ", " : "");
  if (space->is_set[field])
    sf_drawn_append(out, field, space->set[field]);
  else
    sf_text_append(out, "%s", sf_case_fields[field].path);
}

/* No case lies in the space: names a smallest set of settings that exclude each other. */
static enum sf_status explain(const struct sf_space *space, struct sf_error *error) {
  struct sf_space core = *space;
  struct sf_text names = {0};
  sf_text_append(&names, "%s", "");
  core.max_ranks = MAX_RANKS;
  const bool ranks_forbid = is_feasible(&core);
  if (ranks_forbid) core.max_ranks = space->max_ranks;
  for (int i = 0; i < SF_CASE_DRAWN; i++) {
    const enum sf_case_field field = (enum sf_case_field)i;
    struct sf_space without = core;
    if (!is_narrowed(&core, field)) continue;
    widen(&without, field);
    if (is_feasible(&without))
      append_setting(&names, &core, field);
    else
      core = without;
  }
  if (ranks_forbid) sf_text_append(&names, "%s--max-ranks %" PRId64, names.length > 0 ? ", " : "", space->max_ranks);
  const enum sf_status status =
      names.failed ? sf_error_set(error, SF_ENOMEM, "out of memory")
                   : sf_error_set(error, SF_EINPUT, "no case has all of these together: %s; leave one out or change it", names.data);
  sf_text_destroy(&names);
  return status;
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

bool sf_layers_row(int64_t *row, const struct sf_table *table, const struct sf_case *c) {
  (void)table;
  for (int i = 0; i < SF_CASE_DRAWN; i++) row[i] = sf_drawn_get(c, (enum sf_case_field)i);
  return true;
}

static enum sf_status to_case(struct sf_case *out, const struct sf_table *table, const int64_t *row, struct sf_error *error) {
  const struct sf_space *space = table->of;
  struct sf_error reason = {0};
  sf_case_init(out);
  for (int i = 0; i < SF_CASE_DRAWN; i++) sf_drawn_put(out, (enum sf_case_field)i, row[i]);
  memcpy(out->target, space->target, sizeof out->target);
  memcpy(out->plant, space->plant, sizeof out->plant);
  if (sf_case_validate(out, &reason) == SF_OK) return SF_OK;
  return sf_error_set(error, SF_EINPUT, "no case fits the fields that are set: %.400s", reason.text);
}

static void append(struct sf_text *out, const struct sf_table *table, int32_t field, struct sf_range range) {
  (void)table;
  sf_drawn_append(out, (enum sf_case_field)field, range);
}

static bool number(int64_t *out, const struct sf_table *table, int32_t field, int64_t value) {
  (void)table;
  *out = value;
  return sf_case_fields[field].type == SF_FIELD_INT;
}

static enum sf_status explain_table(const struct sf_table *table, struct sf_error *error) { return explain(table->of, error); }

static void widen_limits(struct sf_range *ranges, const struct sf_table *table, const int64_t *row) {
  (void)table;
  struct sf_range *ranks = &ranges[sf_case_row_limit(SF_LIMIT_RANKS)];
  const int64_t own = row[SF_CASE_TP] * row[SF_CASE_CP] * row[SF_CASE_DP] * row[SF_CASE_PP];
  if (own > ranks->hi) *ranks = (struct sf_range){own, own};
  if (row[SF_CASE_FROZEN] == SF_FROZEN_ALL && row[SF_CASE_TIED] && !row[SF_CASE_ADAPTER])
    ranges[sf_case_row_limit(SF_LIMIT_UNTRAINED)] = (struct sf_range){1, 1};
}

/* A case that reloads has two layouts. */
static int32_t twin(const int64_t *row, int32_t field) {
  if (row[SF_CASE_RELOAD_AFTER] == 0) return field;
  if (field >= SF_CASE_TP && field <= SF_CASE_OVERLAP) return field - SF_CASE_TP + SF_CASE_SECOND_TP;
  return (int32_t)sf_layout_first((enum sf_case_field)field);
}

static const struct sf_table_kind layers = {.domain = sf_layers_domain,
                                            .bins = sf_layers_bins,
                                            .bins_least = 2,
                                            .append = append,
                                            .number = number,
                                            .to_case = to_case,
                                            .of_case = sf_layers_row,
                                            .explain = explain_table,
                                            .widen = widen_limits,
                                            .follow = sf_layers_follow,
                                            .twin = twin,
                                            .is_simpler = sf_layers_is_simpler,
                                            .passes = sf_layers_passes,
                                            .pass_fields = sf_layers_pass_fields};

/* Axes of the first layout stay: the passes of the shrinker say which of them change. */
static uint8_t traits_of(enum sf_case_field field) {
  const char *path = sf_case_fields[field].path;
  const bool layout = strncmp(path, "layout.", 7) == 0 || strncmp(path, "reload.", 7) == 0 || field == SF_CASE_SCHEDULE;
  const bool stays = sf_field_kind(field) == SF_KIND_OF_AXIS && !sf_layout_is_second(field);
  return (uint8_t)((layout ? SF_TRAIT_LAYOUT : 0) | (sf_field_kind(field) == SF_KIND_OF_NUMBER ? SF_TRAIT_NUMBER : 0) |
                   (field == SF_CASE_SCHEDULE ? SF_TRAIT_OFTEN_ZERO : 0) | (stays ? SF_TRAIT_STAYS : 0));
}

static void set_limit(struct sf_table *table, int32_t limit, int64_t value) {
  table->range[sf_case_row_limit((enum sf_case_limit)limit)] = (struct sf_range){value, value};
}

struct sf_table sf_layers_table(const struct sf_space *space) {
  struct sf_table table = {.kind = &layers, .of = space, .rules = sf_case_rules(), .field_count = SF_CASE_DRAWN};
  for (int i = 0; i < SF_CASE_DRAWN; i++) {
    const struct sf_field *field = &sf_case_fields[i];
    const int64_t most = sf_layout_first((enum sf_case_field)i) == SF_CASE_ORDER ? SF_ORDER_COUNT - 1 : field->max;
    table.range[i] = space->is_set[i] ? space->set[i] : (struct sf_range){field->min, most};
    table.order[i] = (int16_t)i;
    table.traits[i] = traits_of((enum sf_case_field)i);
  }
  set_limit(&table, SF_LIMIT_RANKS, space->max_ranks);
  for (int format = 0; format < SF_COMPUTE_COUNT; format++)
    set_limit(&table, SF_LIMIT_FORMATS + format, !(space->formats_left_out >> format & 1));
  /* A case where every parameter is frozen has to be asked for, field by field. */
  set_limit(&table, SF_LIMIT_UNTRAINED, space->is_set[SF_CASE_FROZEN] && space->is_set[SF_CASE_TIED] && space->is_set[SF_CASE_ADAPTER]);
  return table;
}

enum sf_status sf_codec_decode(struct sf_case *out, struct sf_draw *draw, const struct sf_space *space, struct sf_error *error) {
  const struct sf_table table = sf_layers_table(space);
  int64_t row[SF_SPACE_FIELDS_MAX];
  const enum sf_status status = sf_table_draw(row, draw, &table, NULL, 0, error);
  return status == SF_OK ? to_case(out, &table, row, error) : status;
}

/* --- what a space lacks ------------------------------------------------------------------------------------------- */

static bool is_drawn(int32_t field, const int64_t *row, struct sf_bounds *bounds) {
  struct sf_domain domain;
  if (sf_table_has(bounds->table, field, SF_TRAIT_NUMBER)) return true;
  sf_layers_domain(&domain, field, row, 0, bounds);
  for (int32_t i = 0; i < domain.count; i++)
    if (domain.values[i] == row[field]) return true;
  return false;
}

/* Follows the walk that would draw the case. It first allows what the space forbids, so that it can go on to the other fields. */
int32_t sf_codec_undrawn(const char *paths[SF_SPACE_FIELDS_MAX], const struct sf_case *c, const struct sf_space *space) {
  struct sf_space allowing = *space;
  struct sf_bounds bounds;
  int64_t row[SF_CASE_DRAWN];
  int32_t count = 0;
  (void)sf_layers_row(row, NULL, c);
  if (sf_case_ranks(c) > space->max_ranks) paths[count++] = "max_ranks";
  for (int i = 0; i < SF_CASE_DRAWN; i++) {
    const enum sf_case_field field = (enum sf_case_field)i;
    const bool is_left_out = field == SF_CASE_COMPUTE && space->formats_left_out >> row[i] & 1;
    if (!is_left_out && (!space->is_set[i] || (row[i] >= space->set[i].lo && row[i] <= space->set[i].hi))) continue;
    sf_space_fix_field(&allowing, field, c);
    paths[count++] = sf_case_fields[field].path;
  }
  const struct sf_table table = sf_layers_table(&allowing);
  sf_bounds_init(&bounds, &table);
  widen_limits(bounds.at, &table, row);
  (void)sf_bounds_solve(&bounds);
  for (int i = 0; i < SF_CASE_DRAWN; i++) {
    if (!is_drawn(i, row, &bounds)) paths[count++] = sf_case_fields[i].path;
    (void)sf_bounds_narrow(&bounds, i, (struct sf_range){row[i], row[i]});
  }
  return count;
}
