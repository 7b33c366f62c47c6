#include "harness/worker/description.h"

#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/base/nearest.h"
#include "harness/base/reals.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  FIELDS_MAX = SF_DESCRIPTION_FIELDS_MAX,
  PATH_TEXT = 128,
  DRAWS_DEFAULT = 9,
  DRAWS_MAX = 64,
  RANKS_MAX = SF_DESCRIPTION_RANKS_MAX,
  ONE_IN_MAX = 255
};

struct field {
  const char *path;      /* key of the description's object */
  const json_t *choices; /* an array, or NULL: a whole number */
  json_int_t min, max, step;
  bool layout, has_ranks;
  uint8_t one_in;      /* 0: not said */
  const json_t *needs; /* an object, or NULL */
};

struct sf_description {
  json_t *value; /* keeps texts and choices alive */
  int32_t draws, field_count;
  struct field *fields;
  const json_t *rules;   /* an array, or NULL */
  const json_t *ranks;   /* an array of paths, or NULL: the field "ranks" */
  const json_t *devices; /* an array of names, or NULL: cpu alone */
  bool scripts, operations, anchored, simulates;
  struct sf_rules *rows;  /* refusals, needs and limits of ranks, over rows */
  struct sf_arena *arena; /* of what they borrow */
  int32_t axis_count;
  int16_t axes[SF_RULE_FACTORS_MAX];          /* fields whose product is the number of ranks */
  const int32_t *counts[SF_RULE_FACTORS_MAX]; /* of each choice of an axis */
};

/* --- paths ------------------------------------------------------------------------------------------------------ */

/* Puts a value where its path says, in objects that are made where they lack. Takes the value, which may be NULL; false on no memory. */
static bool set_path(json_t *object, const char *path, json_t *value) {
  char part[PATH_TEXT];
  for (const char *dot; (dot = strchr(path, '.')) != NULL; path = dot + 1) {
    snprintf(part, sizeof part, "%.*s", (int)(dot - path), path);
    json_t *inner = json_object_get(object, part);
    if (!inner) json_object_set_new(object, part, inner = json_object());
    object = inner;
  }
  return json_object_set_new(object, path, value) == 0;
}

static const struct field *find_field(const struct sf_description *description, const char *path) {
  for (int32_t i = 0; i < description->field_count; i++) {
    if (strcmp(description->fields[i].path, path) == 0) return &description->fields[i];
  }
  return NULL;
}

/* --- reading ---------------------------------------------------------------------------------------------------- */

static bool knows_keys(const json_t *object, const char *const *known, char *unknown, size_t size) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)object, key, value) {
    bool found = false;
    for (int32_t i = 0; known[i]; i++) found |= strcmp(known[i], key) == 0;
    if (found) continue;
    snprintf(unknown, size, "%s", key);
    return false;
  }
  return true;
}

static enum sf_status read_field(struct field *out, const char *path, const json_t *value, struct sf_error *error) {
  static const char *const known[] = {"choices", "min", "max", "step", "layout", "needs", "one_in", NULL};
  char unknown[64];
  json_int_t min = 0, max = -1, step = 1, one_in = 0;
  int layout = 0;
  json_t *choices = NULL, *needs = NULL;
  if (strlen(path) >= PATH_TEXT || path[0] == '.' || strstr(path, "..") || !*path || path[strlen(path) - 1] == '.') {
    return sf_error_set(error, SF_EINPUT, "describe: fields.%.100s: not a path of at most %d characters", path, PATH_TEXT - 1);
  }
  if (json_is_object(value) && !knows_keys(value, known, unknown, sizeof unknown))
    return sf_error_set(error, SF_EINPUT, "describe: fields.%s.%s: no such key", path, unknown);
  if (json_unpack((json_t *)(uintptr_t)value, "{s?o, s?I, s?I, s?I, s?b, s?o, s?I}", "choices", &choices, "min", &min, "max", &max, "step",
                  &step, "layout", &layout, "needs", &needs, "one_in", &one_in) != 0) {
    return sf_error_set(
        error, SF_EINPUT,
        "describe: fields.%s: expected {\"choices\": [..]} or {\"min\": 1, \"max\": 8, \"step\": 1}, perhaps with \"layout\": true, "
        "\"needs\": {..}, \"one_in\": 2",
        path);
  }
  const bool whole = !choices && min <= max && step >= 1;
  if (choices ? !json_is_array(choices) || json_array_size(choices) == 0 : !whole) {
    return sf_error_set(error, SF_EINPUT, "describe: fields.%s: nothing to choose from", path);
  }
  if (whole && ((uint64_t)max - (uint64_t)min) / (uint64_t)step > INT32_MAX)
    return sf_error_set(error, SF_EINPUT, "describe: fields.%s: more than 2^31 numbers to choose from", path);
  for (size_t i = 0; i < json_array_size(choices); i++) {
    if (json_is_object(json_array_get(choices, i)))
      return sf_error_set(error, SF_EINPUT, "describe: fields.%s: a choice is an object", path);
  }
  if (json_object_get(value, "one_in") && (one_in < 1 || one_in > ONE_IN_MAX))
    return sf_error_set(error, SF_EINPUT, "describe: fields.%s.one_in: %lld is not between 1 and %d", path, (long long)one_in, ONE_IN_MAX);
  *out = (struct field){path, choices, min, max, step, layout != 0, false, (uint8_t)one_in, needs};
  return SF_OK;
}

/* Checks that no field is a member of another one. */
static enum sf_status check_paths(const struct sf_description *description, struct sf_error *error) {
  for (int32_t i = 0; i < description->field_count; i++) {
    for (int32_t k = 0; k < description->field_count; k++) {
      const char *outer = description->fields[i].path, *inner = description->fields[k].path;
      const size_t length = strlen(outer);
      if (strncmp(outer, inner, length) == 0 && inner[length] == '.') {
        return sf_error_set(error, SF_EINPUT, "describe: fields.%s lies within the field %s", inner, outer);
      }
    }
  }
  return SF_OK;
}

static bool is_rank_count(const json_t *value) {
  return json_is_integer(value) && json_integer_value(value) >= 1 && json_integer_value(value) <= RANKS_MAX;
}

/* Checks that every field of the product belongs to the layout and is a number. */
static enum sf_status check_ranks_product(const struct sf_description *description, struct sf_error *error) {
  for (size_t i = 0; i < json_array_size(description->ranks); i++) {
    const char *path = json_string_value(json_array_get(description->ranks, i));
    const struct field *field = path ? find_field(description, path) : NULL;
    bool good = field && field->layout && (field->choices || (field->min >= 1 && field->max <= RANKS_MAX));
    for (size_t k = 0; good && k < json_array_size(field->choices); k++) good = is_rank_count(json_array_get(field->choices, k));
    if (!good)
      return sf_error_set(error, SF_EINPUT,
                          "describe: ranks[%zu]: expected the path of a field with \"layout\": true and numbers from 1 to %d", i,
                          RANKS_MAX);
  }
  const size_t count = json_is_array(description->ranks) ? json_array_size(description->ranks) : 0;
  if (count > 0 && count <= SF_RULE_FACTORS_MAX && !find_field(description, "ranks")) return SF_OK;
  return sf_error_set(error, SF_EINPUT, "describe: ranks: expected an array of 1 to %d paths, and no field \"ranks\" beside it",
                      SF_RULE_FACTORS_MAX);
}

static enum sf_status check_ranks_field(const struct sf_description *description, struct sf_error *error) {
  if (description->ranks) return check_ranks_product(description, error);
  const struct field *ranks = find_field(description, "ranks");
  bool good = ranks && ranks->layout && (ranks->choices || (ranks->min >= 1 && ranks->max <= RANKS_MAX));
  for (size_t i = 0; good && i < json_array_size(ranks->choices); i++) good = is_rank_count(json_array_get(ranks->choices, i));
  if (good) return SF_OK;
  return sf_error_set(
      error, SF_EINPUT,
      "describe: fields.ranks: every worker needs it, with \"layout\": true and numbers from 1 to %d, or ranks as a list of fields",
      RANKS_MAX);
}

/* Checks {FIELD: [VALUE, ..]}. where: its place, for the message. */
static enum sf_status check_conditions(const struct sf_description *description, json_t *conditions, const char *where,
                                       struct sf_error *error) {
  const char *path;
  json_t *values;
  json_object_foreach(conditions, path, values) {
    if (!find_field(description, path)) return sf_error_set(error, SF_EINPUT, "describe: %s.%.100s: no such field", where, path);
    if (!json_is_array(values)) return sf_error_set(error, SF_EINPUT, "describe: %s.%.100s: expected an array", where, path);
  }
  return SF_OK;
}

/* A function may not need a field of the layout: it would then depend on who computes it. */
static enum sf_status check_needs(const struct sf_description *description, struct sf_error *error) {
  for (int32_t i = 0; i < description->field_count; i++) {
    const struct field *field = &description->fields[i];
    char where[PATH_TEXT + 16];
    const char *path;
    json_t *values;
    if (!field->needs) continue;
    snprintf(where, sizeof where, "fields.%s.needs", field->path);
    if (!json_is_object(field->needs)) return sf_error_set(error, SF_EINPUT, "describe: %s: expected {FIELD: [VALUE, ..]}", where);
    const enum sf_status status = check_conditions(description, (json_t *)(uintptr_t)field->needs, where, error);
    if (status != SF_OK) return status;
    json_object_foreach((json_t *)(uintptr_t)field->needs, path, values) {
      const struct field *needed = find_field(description, path);
      if (needed == field || (needed->layout && !field->layout))
        return sf_error_set(error, SF_EINPUT, "describe: %s.%s: a field needs others, and one without \"layout\" only such", where, path);
    }
  }
  return SF_OK;
}

static enum sf_status check_rules(const struct sf_description *description, struct sf_error *error) {
  for (size_t i = 0; i < json_array_size(description->rules); i++) {
    static const char *const known[] = {"when", "reason", NULL};
    const char *reason = NULL;
    char unknown[64], where[40];
    json_t *rule = json_array_get(description->rules, i), *when = NULL;
    if (json_unpack(rule, "{s:o, s:s}", "when", &when, "reason", &reason) != 0 || !*reason || !json_is_object(when) ||
        !knows_keys(rule, known, unknown, sizeof unknown)) {
      return sf_error_set(error, SF_EINPUT, "describe: refuses[%zu]: expected {\"when\": {FIELD: [VALUE, ..]}, \"reason\": TEXT}", i);
    }
    snprintf(where, sizeof where, "refuses[%zu].when", i);
    const enum sf_status status = check_conditions(description, when, where, error);
    if (status != SF_OK) return status;
  }
  return SF_OK;
}

/* --- rules ------------------------------------------------------------------------------------------------------ */

static int64_t index_in(const json_t *array, const json_t *value) {
  for (size_t i = 0; i < json_array_size(array); i++) {
    if (json_equal(json_array_get(array, i), value)) return (int64_t)i;
  }
  return -1;
}

/* The place of a value among the field's choices; -1: it is not one of them. */
static int64_t find_choice(const struct field *field, const json_t *value) {
  const json_int_t number = json_integer_value(value);
  if (field->choices) return index_in(field->choices, value);
  const bool in_range = json_is_integer(value) && number >= field->min && number <= field->max;
  return in_range && (number - field->min) % field->step == 0 ? (number - field->min) / field->step : -1;
}

/* Adds a value to an ascending list, unless it is there. */
static void insert(int32_t *values, int32_t *count, int32_t value) {
  int32_t at = *count;
  while (at > 0 && values[at - 1] > value) at--;
  if (at > 0 && values[at - 1] == value) return;
  for (int32_t i = (*count)++; i > at; i--) values[i] = values[i - 1];
  values[at] = value;
}

/* "The field has one of these values", or none of them. Values that it does not offer are left out. False on no memory. */
static bool make_condition(struct sf_rule_condition *out, const struct sf_description *description, const char *path, const json_t *values,
                           bool none) {
  const struct field *field = find_field(description, path);
  int32_t *places = sf_arena_alloc(description->arena, (json_array_size(values) + 1) * sizeof *places), count = 0;
  for (size_t i = 0; places && i < json_array_size(values); i++) {
    const int64_t choice = find_choice(field, json_array_get(values, i));
    if (choice >= 0) insert(places, &count, (int32_t)choice);
  }
  *out = (struct sf_rule_condition){(int32_t)(field - description->fields), count, places, none};
  return places != NULL;
}

/* A case in which all conditions hold is refused. */
static bool add_refusal(struct sf_description *description, const json_t *refusal) {
  json_t *when = json_object_get(refusal, "when"), *values;
  struct sf_rule_condition *conditions = sf_arena_alloc(description->arena, (json_object_size(when) + 1) * sizeof *conditions);
  const char *path;
  int32_t count = 0;
  if (!conditions) return false;
  json_object_foreach(when, path, values) if (!make_condition(&conditions[count++], description, path, values, true)) return false;
  sf_rules_add_conditions(description->rows, conditions, count, count, json_string_value(json_object_get(refusal, "reason")));
  return true;
}

/* Where one of its needs does not hold, a field is plain, unless the limit says that this may be. */
static bool add_needs(struct sf_description *description, int32_t field) {
  static const int32_t zero = 0;
  const int32_t limit = sf_description_limit(description, SF_DESCRIPTION_NEEDS);
  const char *path;
  json_t *values;
  json_object_foreach((json_t *)(uintptr_t)description->fields[field].needs, path, values) {
    struct sf_rule_condition *conditions = sf_arena_alloc(description->arena, 3 * sizeof *conditions);
    if (!conditions || !make_condition(&conditions[1], description, path, values, false)) return false;
    conditions[0] = (struct sf_rule_condition){field, 1, &zero, false};
    conditions[2] = (struct sf_rule_condition){limit, 1, &zero, false};
    sf_rules_add_conditions(description->rows, conditions, 3, 1, NULL);
  }
  return true;
}

/* Adds the field to those whose product is the number of ranks. */
static bool add_axis(struct sf_description *description, int32_t field) {
  const int64_t count = sf_description_choice_count(description, field);
  int32_t *ranks = sf_arena_alloc(description->arena, (size_t)count * sizeof *ranks);
  for (int64_t k = 0; ranks && k < count; k++) {
    json_t *choice = sf_description_choice(description, field, k);
    ranks[k] = (int32_t)json_integer_value(choice);
    json_decref(choice);
  }
  description->axes[description->axis_count] = (int16_t)field;
  description->counts[description->axis_count++] = ranks;
  return ranks != NULL;
}

static bool names_ranks(const struct sf_description *description, const char *path) {
  for (size_t i = 0; i < json_array_size(description->ranks); i++)
    if (strcmp(json_string_value(json_array_get(description->ranks, i)), path) == 0) return true;
  return !description->ranks && strcmp(path, "ranks") == 0;
}

static enum sf_status make_rules(struct sf_description *description, struct sf_error *error) {
  static const char *const limits[SF_DESCRIPTION_LIMITS] = {"the case's seed", "least ranks", "most ranks", "needs"};
  const int32_t count = description->field_count;
  struct sf_space_field *fields = sf_arena_alloc(description->arena, (size_t)(count + SF_DESCRIPTION_LIMITS) * sizeof *fields);
  size_t rules = json_array_size(description->rules) + 2;
  bool made = fields != NULL;
  for (int32_t i = 0; i < count; i++) rules += json_object_size(description->fields[i].needs);
  if (rules > SF_RULES_MAX)
    return sf_error_set(error, SF_EINPUT, "describe: refuses: with what fields need these are %zu rules, at most %d", rules, SF_RULES_MAX);
  for (int32_t i = 0; made && i < count + SF_DESCRIPTION_LIMITS; i++)
    fields[i] = (struct sf_space_field){i < count ? description->fields[i].path : limits[i - count], 0, NULL};
  if (made) sf_rules_init(description->rows, fields, count + SF_DESCRIPTION_LIMITS);
  for (size_t i = 0; made && i < json_array_size(description->rules); i++)
    made = add_refusal(description, json_array_get(description->rules, i));
  for (int32_t i = 0; made && i < count; i++) {
    description->fields[i].has_ranks = names_ranks(description, description->fields[i].path);
    made = add_needs(description, i) && (!description->fields[i].has_ranks || add_axis(description, i));
  }
  if (!made) return SF_ENOMEM;
  sf_rules_add_product(description->rows, description->axes, description->counts, description->axis_count,
                       (int16_t)sf_description_limit(description, SF_DESCRIPTION_RANKS_LEAST),
                       (int16_t)sf_description_limit(description, SF_DESCRIPTION_RANKS_MOST));
  return SF_OK;
}

static bool is_list_of_texts(const json_t *value) {
  bool is_one = json_is_array(value);
  for (size_t i = 0; is_one && i < json_array_size(value); i++) is_one = json_is_string(json_array_get(value, i));
  return is_one;
}

static enum sf_status read_description(struct sf_description *description, struct sf_error *error) {
  static const char *const known[] = {"name",       "draws",    "fields",    "refuses", "ranks", "scripts",
                                      "operations", "anchored", "simulates", "devices", "note",  NULL};
  const char *name = NULL, *note = NULL, *path;
  char unknown[64];
  json_int_t draws = DRAWS_DEFAULT;
  int scripts = 0, operations = 0, anchored = 0, simulates = 0;
  json_t *fields = NULL, *rules = NULL, *ranks = NULL, *devices = NULL, *value;
  if (json_unpack(description->value, "{s:s, s?I, s:o, s?o, s?o, s?b, s?b, s?b, s?b, s?o, s?s}", "name", &name, "draws", &draws, "fields",
                  &fields, "refuses", &rules, "ranks", &ranks, "scripts", &scripts, "operations", &operations, "anchored", &anchored,
                  "simulates", &simulates, "devices", &devices, "note", &note) != 0 ||
      !*name) {
    return sf_error_set(
        error, SF_EINPUT,
        "describe: expected {\"name\": TEXT, \"fields\": {..}}, perhaps with \"draws\", \"refuses\", \"ranks\", \"scripts\", "
        "\"operations\", \"anchored\", \"simulates\", \"devices\", \"note\"");
  }
  if (!knows_keys(description->value, known, unknown, sizeof unknown))
    return sf_error_set(error, SF_EINPUT, "describe: %s: no such key", unknown);
  if (draws < 1 || draws > DRAWS_MAX)
    return sf_error_set(error, SF_EINPUT, "describe: draws: %lld is not between 1 and %d", (long long)draws, DRAWS_MAX);
  if (!json_is_object(fields) || json_object_size(fields) > FIELDS_MAX)
    return sf_error_set(error, SF_EINPUT, "describe: fields: expected an object of at most %d", FIELDS_MAX);
  if (rules && !json_is_array(rules)) return sf_error_set(error, SF_EINPUT, "describe: refuses: expected an array");
  if (devices && !is_list_of_texts(devices)) return sf_error_set(error, SF_EINPUT, "describe: devices: expected an array of names");
  description->draws = (int32_t)draws;
  description->rules = rules;
  description->devices = devices;
  description->ranks = ranks;
  description->scripts = scripts != 0;
  description->operations = operations != 0;
  description->anchored = anchored != 0;
  description->simulates = simulates != 0;
  description->fields = sf_alloc((json_object_size(fields) + 1) * sizeof *description->fields);
  if (!description->fields) return SF_ENOMEM;
  json_object_foreach(fields, path, value) {
    const enum sf_status status = read_field(&description->fields[description->field_count++], path, value, error);
    if (status != SF_OK) return status;
  }
  enum sf_status status = check_paths(description, error);
  if (status == SF_OK) status = check_ranks_field(description, error);
  if (status == SF_OK) status = check_rules(description, error);
  if (status == SF_OK) status = check_needs(description, error);
  return status == SF_OK ? make_rules(description, error) : status;
}

enum sf_status sf_description_create(struct sf_description **out, const json_t *value, struct sf_error *error) {
  struct sf_description *description = sf_alloc(sizeof *description);
  if (!description) return SF_ENOMEM;
  description->value = json_deep_copy(value);
  description->rows = sf_alloc(sizeof *description->rows);
  description->arena = sf_arena_create(1 << 14, false);
  const enum sf_status status =
      description->value && description->rows && description->arena ? read_description(description, error) : SF_ENOMEM;
  if (status == SF_OK)
    *out = description;
  else
    sf_description_destroy(description);
  return status;
}

void sf_description_destroy(struct sf_description *description) {
  if (!description) return;
  json_decref(description->value);
  sf_free(description->fields);
  sf_arena_destroy(description->arena);
  sf_free(description->rows);
  sf_free(description);
}

const char *sf_description_name(const struct sf_description *description) {
  return json_string_value(json_object_get(description->value, "name"));
}

const char *sf_description_note(const struct sf_description *description) {
  return json_string_value(json_object_get(description->value, "note"));
}

int32_t sf_description_draws(const struct sf_description *description) { return description->draws; }
bool sf_description_has_scripts(const struct sf_description *description) { return description->scripts; }
bool sf_description_has_operations(const struct sf_description *description) { return description->operations; }
bool sf_description_is_anchored(const struct sf_description *description) { return description->anchored; }
int32_t sf_description_field_one_in(const struct sf_description *description, int32_t field) { return description->fields[field].one_in; }
bool sf_description_simulates(const struct sf_description *description) { return description->simulates; }

bool sf_description_has_device(const struct sf_description *description, const char *name) {
  for (size_t i = 0; i < json_array_size(description->devices); i++)
    if (strcmp(json_string_value(json_array_get(description->devices, i)), name) == 0) return true;
  return !description->devices && strcmp(name, "cpu") == 0;
}

/* --- fields ----------------------------------------------------------------------------------------------------- */

enum sf_status sf_description_unknown(const struct sf_description *description, const char *path, struct sf_error *error) {
  struct sf_nearest nearest = sf_nearest_to(path);
  for (int32_t i = 0; i < description->field_count; i++) sf_nearest_offer(&nearest, description->fields[i].path);
  return sf_error_set(error, SF_EINPUT, "%.200s: no such field of %s%s", path, sf_description_name(description), sf_nearest_text(&nearest));
}

int32_t sf_description_field_count(const struct sf_description *description) { return description->field_count; }
const char *sf_description_field_path(const struct sf_description *description, int32_t field) { return description->fields[field].path; }
bool sf_description_field_is_layout(const struct sf_description *description, int32_t field) { return description->fields[field].layout; }

bool sf_description_field_has_ranks(const struct sf_description *description, int32_t field) {
  return description->fields[field].has_ranks;
}

int64_t sf_description_choice_count(const struct sf_description *description, int32_t at) {
  const struct field *field = &description->fields[at];
  return field->choices ? (int64_t)json_array_size(field->choices) : (field->max - field->min) / field->step + 1;
}

json_t *sf_description_choice(const struct sf_description *description, int32_t at, int64_t choice) {
  const struct field *field = &description->fields[at];
  return field->choices ? json_incref(json_array_get(field->choices, (size_t)choice)) : json_integer(field->min + choice * field->step);
}

static char *text_of(const json_t *value) {
  char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
  if (text) sf_reals_shorten(text);
  return text;
}

char *sf_description_choice_text(const struct sf_description *description, int32_t field, int64_t choice) {
  json_t *value = sf_description_choice(description, field, choice);
  char *text = text_of(value);
  json_decref(value);
  return text;
}

int32_t sf_description_rule_count(const struct sf_description *description) { return (int32_t)json_array_size(description->rules); }

const char *sf_description_rule_reason(const struct sf_description *description, int32_t rule) {
  return json_string_value(json_object_get(json_array_get(description->rules, (size_t)rule), "reason"));
}

int32_t sf_description_find_field(const struct sf_description *description, const char *path) {
  const struct field *field = find_field(description, path);
  return field ? (int32_t)(field - description->fields) : -1;
}

int64_t sf_description_find_choice(const struct sf_description *description, int32_t at, const json_t *value) {
  return find_choice(&description->fields[at], value);
}

/* --- cases ------------------------------------------------------------------------------------------------------ */

static enum sf_status refuse_value(const struct field *field, const json_t *value, struct sf_error *error) {
  char *text = text_of(value), *choices = text_of(field->choices);
  if (choices)
    sf_error_set(error, SF_EINPUT, "%s: %.100s is none of %.200s", field->path, text ? text : "?", choices);
  else
    sf_error_set(error, SF_EINPUT, "%s: %.100s is not one of %lld, %lld, .. %lld", field->path, text ? text : "?", (long long)field->min,
                 (long long)(field->min + field->step), (long long)field->max);
  free(text);
  free(choices);
  return SF_EINPUT;
}

/* Reads every member, at any depth: a field, or an object of fields. prefix: path of the object, followed by a dot. */
static enum sf_status read_members(int64_t *row, const struct sf_description *description, const json_t *object, const char *prefix,
                                   struct sf_error *error) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)object, key, value) {
    char path[2 * PATH_TEXT];
    const int length = snprintf(path, sizeof path, "%s%s", prefix, key);
    const struct field *field = find_field(description, path);
    enum sf_status status = SF_OK;
    if (strchr(key, '.') || length >= PATH_TEXT || (!field && !json_is_object(value))) {
      return sf_description_unknown(description, path, error);
    }
    if (field) {
      const int64_t choice = find_choice(field, value);
      row[field - description->fields] = choice;
      if (choice < 0) status = refuse_value(field, value, error);
    } else {
      snprintf(path, sizeof path, "%s%s.", prefix, key);
      status = read_members(row, description, value, path, error);
    }
    if (status != SF_OK) return status;
  }
  return SF_OK;
}

enum sf_status sf_description_row(int64_t *row, const struct sf_description *description, const json_t *c, struct sf_error *error) {
  if (!json_is_object(c)) return sf_error_set(error, SF_EINPUT, "a case is a JSON object");
  memset(row, 0, (size_t)(description->field_count + SF_DESCRIPTION_LIMITS) * sizeof *row);
  row[sf_description_limit(description, SF_DESCRIPTION_RANKS_LEAST)] = 1;
  row[sf_description_limit(description, SF_DESCRIPTION_RANKS_MOST)] = RANKS_MAX;
  return read_members(row, description, c, "", error);
}

json_t *sf_description_case(const int64_t *row, const struct sf_description *description, enum sf_description_part part) {
  json_t *c = json_object();
  for (int32_t i = 0; c && i < description->field_count; i++) {
    if (part == SF_DESCRIPTION_SET ? row[i] == 0 : part == SF_DESCRIPTION_FUNCTION && description->fields[i].layout) continue;
    if (set_path(c, description->fields[i].path, sf_description_choice(description, i, row[i]))) continue;
    json_decref(c);
    return NULL;
  }
  return c;
}

enum sf_status sf_description_complete(json_t **out, const struct sf_description *description, const json_t *c, struct sf_error *error) {
  int64_t row[SF_SPACE_FIELDS_MAX];
  const enum sf_status status = sf_description_row(row, description, c, error);
  if (status != SF_OK) return status;
  json_t *complete = sf_description_case(row, description, SF_DESCRIPTION_ALL);
  if (complete) *out = complete;
  return complete ? SF_OK : SF_ENOMEM;
}

const struct sf_rules *sf_description_rules(const struct sf_description *description) { return description->rows; }

int32_t sf_description_limit(const struct sf_description *description, enum sf_description_limit limit) {
  return description->field_count + (int32_t)limit;
}

int32_t sf_description_ranks_at(const struct sf_description *description, const int64_t *row) {
  int64_t ranks = 1;
  for (int32_t i = 0; i < description->axis_count && ranks <= RANKS_MAX; i++) ranks *= description->counts[i][row[description->axes[i]]];
  return ranks <= RANKS_MAX ? (int32_t)ranks : RANKS_MAX + 1;
}

/* The row of a complete case. */
static void row_of(int64_t *row, const struct sf_description *description, const json_t *complete) {
  const enum sf_status status = sf_description_row(row, description, complete, NULL);
  SF_ASSERT_EQ(status, SF_OK);
}

int32_t sf_description_ranks(const struct sf_description *description, const json_t *complete) {
  int64_t row[SF_SPACE_FIELDS_MAX];
  row_of(row, description, complete);
  return sf_description_ranks_at(description, row);
}

const char *sf_description_refusal(const struct sf_description *description, const json_t *complete) {
  const struct sf_rules *rules = sf_description_rules(description);
  int64_t row[SF_SPACE_FIELDS_MAX];
  row_of(row, description, complete);
  for (int32_t i = 0; i < sf_description_rule_count(description); i++)
    if (!sf_rule_holds(&rules->rule[i], row)) return rules->rule[i].why;
  return NULL;
}

char *sf_description_function_text(const struct sf_description *description, const json_t *complete) {
  int64_t row[SF_SPACE_FIELDS_MAX];
  row_of(row, description, complete);
  json_t *function = sf_description_case(row, description, SF_DESCRIPTION_FUNCTION);
  char *text = function ? json_dumps(function, JSON_COMPACT) : NULL;
  json_decref(function);
  return text;
}
