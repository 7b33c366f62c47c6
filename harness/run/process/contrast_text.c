#include "harness/run/process/contrast_text.h"

#include "harness/base/json.h"
#include "harness/base/sinks.h"
#include "harness/run/support/json.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- words -------------------------------------------------------------------------------------------------------- */

static const char *const states[] = {[SF_CONTRAST_FIXED] = "fixed",
                                     [SF_CONTRAST_NOT_TRIED] = "not tried",
                                     [SF_CONTRAST_UNDECIDED] = "not decided",
                                     [SF_CONTRAST_FREE] = "does not matter",
                                     [SF_CONTRAST_TIED] = SF_CONTRAST_WORD_TIED,
                                     [SF_CONTRAST_SMALLEST] = SF_CONTRAST_WORD_SMALLEST,
                                     [SF_CONTRAST_MATTERS] = SF_CONTRAST_WORD_MATTERS};
/* What stands between a field and its value; behind a field with several values they are listed. */
static const char *const relations[] = {[SF_CONDITION_NONE] = "",
                                        [SF_CONDITION_AT_LEAST] = " at least ",
                                        [SF_CONDITION_AT_MOST] = " at most ",
                                        [SF_CONDITION_MULTIPLE] = " a multiple of ",
                                        [SF_CONDITION_NOT_MULTIPLE] = " not a multiple of ",
                                        [SF_CONDITION_EQUAL] = "=",
                                        [SF_CONDITION_NOT] = " not ",
                                        [SF_CONDITION_ONE_OF] = " one of "};

/* "layout.tp=2" as the table writes it. */
static void append_setting(struct sf_text *out, const struct sf_table *table, int32_t field, int64_t value) {
  if (table->kind->append != NULL) table->kind->append(out, table, field, (struct sf_range){value, value});
}

static void append_path(struct sf_text *out, const struct sf_table *table, int32_t field, int64_t value) {
  struct sf_text setting = {0};
  append_setting(&setting, table, field, value);
  out->failed |= setting.failed;
  if (setting.data != NULL) sf_text_append(out, "%.*s", (int)strcspn(setting.data, "="), setting.data);
  sf_text_destroy(&setting);
}

static void append_value(struct sf_text *out, const struct sf_table *table, int32_t field, int64_t value) {
  struct sf_text setting = {0};
  append_setting(&setting, table, field, value);
  out->failed |= setting.failed;
  const char *equals = setting.data != NULL ? strchr(setting.data, '=') : NULL;
  if (equals != NULL) sf_text_append(out, "%s", equals + 1);
  sf_text_destroy(&setting);
}

static void append_values(struct sf_text *out, const struct sf_table *table, int32_t field, const struct sf_contrast_tries *tries,
                          bool fails) {
  const char *between = "";
  for (int32_t i = 0; i < tries->count; i++) {
    if (tries->at[i].fails != fails) continue;
    sf_text_append(out, "%s", between);
    append_value(out, table, field, tries->at[i].value);
    between = ", ";
  }
}

/* "at least 2", without the field. */
static void append_condition(struct sf_text *out, const struct sf_table *table, int32_t field, const struct sf_contrast_field *of) {
  const struct sf_condition condition = of->condition;
  int32_t failed = 0;
  for (int32_t i = 0; i < of->tries.count; i++) failed += of->tries.at[i].fails;
  const bool is_single = condition.kind == SF_CONDITION_ONE_OF && failed == 1;
  if (condition.has_least) sf_text_append(out, "%s%" PRId64 " and", relations[SF_CONDITION_AT_LEAST], condition.least);
  sf_text_append(out, "%s", relations[is_single ? SF_CONDITION_EQUAL : condition.kind]);
  if (condition.kind == SF_CONDITION_EQUAL || condition.kind == SF_CONDITION_NOT) {
    append_value(out, table, field, condition.number);
  } else if (condition.kind == SF_CONDITION_ONE_OF) {
    append_values(out, table, field, &of->tries, true);
    sf_text_append(out, " (not ");
    append_values(out, table, field, &of->tries, false);
    sf_text_append(out, ")");
  } else if (condition.kind != SF_CONDITION_NONE) {
    sf_text_append(out, "%" PRId64, condition.number);
  }
}

/* --- the sentence ------------------------------------------------------------------------------------------------- */

struct told {
  const struct sf_contrast *contrast;
  const struct sf_table *table;
};

static int32_t count_of(const struct told *told, enum sf_contrast_state state, bool seeds) {
  int32_t count = 0;
  for (int32_t i = 0; i < told->contrast->count; i++)
    count += told->contrast->at[i].state == state && sf_table_has(told->table, i, SF_TRAIT_NUMBER) == seeds;
  return count;
}

/* "model.bias=on and layout.tp at least 2" */
static void append_conditions(struct sf_text *out, const struct told *told, enum sf_contrast_state state) {
  const int32_t all = count_of(told, state, false);
  int32_t said = 0;
  for (int32_t i = 0; i < told->contrast->count; i++) {
    const struct sf_contrast_field *field = &told->contrast->at[i];
    if (field->state != state || sf_table_has(told->table, i, SF_TRAIT_NUMBER)) continue;
    sf_text_append(out, "%s", said == 0 ? "" : said == all - 1 ? " and " : ", ");
    append_path(out, told->table, i, field->tries.at[0].value);
    append_condition(out, told->table, i, field);
    said++;
  }
}

/* "fails only with layout.sp=on (and so layout.tp at least 2)" */
static void append_needs(struct sf_text *out, const struct told *told) {
  if (count_of(told, SF_CONTRAST_MATTERS, false) == 0) {
    sf_text_append(out, "no single field matters");
    return;
  }
  sf_text_append(out, "fails only with ");
  append_conditions(out, told, SF_CONTRAST_MATTERS);
  if (count_of(told, SF_CONTRAST_TIED, false) == 0) return;
  sf_text_append(out, " (and so ");
  append_conditions(out, told, SF_CONTRAST_TIED);
  sf_text_append(out, ")");
}

static void append_needs_of_smallest(struct sf_text *out, const struct told *told) {
  const int32_t count = count_of(told, SF_CONTRAST_SMALLEST, false);
  if (count == 0) return;
  sf_text_append(out, "; the smallest case also needs ");
  append_conditions(out, told, SF_CONTRAST_SMALLEST);
  sf_text_append(out, ", but the case that was found fails without %s", count == 1 ? "it" : "any single one of them");
}

static void append_seeds(struct sf_text *out, const struct told *told) {
  for (int32_t i = 0; i < told->contrast->count; i++) {
    const struct sf_contrast_field *field = &told->contrast->at[i];
    int32_t failed = 0;
    if (!sf_table_has(told->table, i, SF_TRAIT_NUMBER) || field->tries.count < 2) continue;
    for (int32_t k = 0; k < field->tries.count; k++) failed += field->tries.at[k].fails;
    sf_text_append(out, "; ");
    if (failed < field->tries.count)
      sf_text_append(out, "with %d of %d values of ", failed, field->tries.count);
    else
      sf_text_append(out, "any ");
    append_path(out, told->table, i, field->tries.at[0].value);
  }
}

/* Names a few fields with this state. */
static void append_some(struct sf_text *out, const struct told *told, enum sf_contrast_state state, const char *what) {
  enum { NAMED = 4 };
  const int32_t all = count_of(told, state, false);
  int32_t said = 0;
  if (all == 0) return;
  sf_text_append(out, "; %s: ", what);
  for (int32_t i = 0; i < told->contrast->count && said < NAMED; i++) {
    if (told->contrast->at[i].state != state || sf_table_has(told->table, i, SF_TRAIT_NUMBER)) continue;
    sf_text_append(out, "%s", said++ > 0 ? ", " : "");
    append_path(out, told->table, i, told->contrast->at[i].tries.at[0].value);
  }
  if (all > said) sf_text_append(out, " and %d more", all - said);
}

static void append_sentence(struct sf_text *out, const struct told *told, const char *cut) {
  const int32_t free_count = count_of(told, SF_CONTRAST_FREE, false);
  const bool others_matter = count_of(told, SF_CONTRAST_MATTERS, false) + count_of(told, SF_CONTRAST_SMALLEST, false) > 0;
  const char *other = others_matter ? "other " : "";
  append_needs(out, told);
  append_needs_of_smallest(out, told);
  append_seeds(out, told);
  if (free_count > 0) sf_text_append(out, "; %d %sfield%s no difference", free_count, other, free_count == 1 ? " makes" : "s make");
  append_some(out, told, SF_CONTRAST_UNDECIDED, "not decided");
  append_some(out, told, SF_CONTRAST_NOT_TRIED, "not tried");
  if (cut != NULL) sf_text_append(out, "; cut short: %s", cut);
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

/* NULL, here and below: there was no memory for all of it. */
static json_t *text_json(struct sf_text *text) {
  json_t *json = text->failed ? NULL : sf_json_text(text->data != NULL ? text->data : "");
  sf_text_destroy(text);
  return json;
}

static json_t *values_json(const struct told *told, int32_t field, bool fails) {
  const struct sf_contrast_tries *tries = &told->contrast->at[field].tries;
  json_t *array = json_array();
  for (int32_t i = 0; i < tries->count; i++) {
    struct sf_text value = {0};
    if (tries->at[i].fails != fails) continue;
    append_value(&value, told->table, field, tries->at[i].value);
    if (json_array_append_new(array, text_json(&value)) == 0) continue;
    json_decref(array);
    return NULL;
  }
  return array;
}

static json_t *field_json(const struct told *told, int32_t field) {
  const struct sf_contrast_field *of = &told->contrast->at[field];
  struct sf_text path = {0}, condition = {0};
  append_path(&path, told->table, field, of->tries.at[0].value);
  append_condition(&condition, told->table, field, of);
  return json_pack("{s:o, s:s, s:o, s:o, s:o}", "field", text_json(&path), "state", states[of->state], "condition", text_json(&condition),
                   "failed", values_json(told, field, true), "passed", values_json(told, field, false));
}

static void write_json(char out[SF_CONTRAST_TEXT], json_t *object) {
  char *text = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;
  if (object != NULL && text == NULL) text = json_dumps(object, JSON_COMPACT); /* memory that lacked may be there now */
  *out = '\0';
  if (text != NULL && strlen(text) < SF_CONTRAST_TEXT) snprintf(out, SF_CONTRAST_TEXT, "%s", text);
  free(text);
  json_decref(object);
}

static json_t *contrast_json(struct sf_text *why, int32_t trials, int32_t budget, json_t *fields) {
  return json_pack("{s:o, s:i, s:i, s:o}", "why", text_json(why), "trials", trials, "budget", budget, "fields", fields);
}

static json_t *whole_json(const struct told *told, const char *cut) {
  struct sf_text why = {0};
  json_t *fields = json_array();
  bool has_all = fields != NULL;
  append_sentence(&why, told, cut);
  for (int32_t i = 0; i < told->contrast->count && has_all; i++)
    if (told->contrast->at[i].state != SF_CONTRAST_FIXED) has_all = json_array_append_new(fields, field_json(told, i)) == 0;
  if (has_all && !why.failed) return contrast_json(&why, told->contrast->trials, told->contrast->budget, fields);
  json_decref(fields);
  sf_text_destroy(&why);
  return NULL;
}

void sf_contrast_write(char out[SF_CONTRAST_TEXT], const struct sf_contrast *contrast, const struct sf_table *table, const char *cut) {
  const struct told told = {contrast, table};
  json_t *object = whole_json(&told, cut);
  write_json(out, object ? object : whole_json(&told, cut)); /* memory that lacked may be there now */
}

void sf_contrast_write_skipped(char out[SF_CONTRAST_TEXT], const char *reason) {
  struct sf_text why = {0};
  sf_text_append(&why, "not tried: %s", reason);
  write_json(out, contrast_json(&why, 0, 0, json_array()));
}

void sf_contrast_line(char out[SF_CONTRAST_LINE_TEXT], const char *json) {
  const bool has_text = json != NULL && *json;
  json_t *object = has_text ? sf_json_of(json) : NULL;
  const char *why = json_string_value(json_object_get(object, "why"));
  const json_int_t trials = json_integer_value(json_object_get(object, "trials"));
  *out = '\0';
  if (why != NULL && trials > 0)
    snprintf(out, SF_CONTRAST_LINE_TEXT, "%.1100s (%" PRId64 " trial%s)", why, (int64_t)trials, sf_plural(trials));
  else if (why != NULL)
    snprintf(out, SF_CONTRAST_LINE_TEXT, "%.1100s", why);
  json_decref(object);
}
