#include "harness/worker/described.h"

#include "harness/base/alloc.h"

struct sf_described {
  struct sf_rules rules;
  struct sf_space_field fields[SF_DESCRIPTION_FIELDS_MAX + SF_DESCRIPTION_LIMITS];
  struct sf_rule_condition *conditions;
  int32_t *values;                                  /* of all conditions */
  int32_t condition_count, value_count, axis_count; /* so far */
  int16_t axes[SF_RULE_FACTORS_MAX];
  int32_t *ranks[SF_RULE_FACTORS_MAX]; /* of each choice of an axis */
};
static const int32_t zero = 0;

/* Adds a value to an ascending list, unless it is there. */
static void insert(int32_t *values, int32_t *count, int32_t value) {
  int32_t at = *count;
  while (at > 0 && values[at - 1] > value) at--;
  if (at > 0 && values[at - 1] == value) return;
  for (int32_t i = (*count)++; i > at; i--) values[i] = values[i - 1];
  values[at] = value;
}

/* "The field has one of these values", or none of them. Values that it does not offer are left out. */
static void add_condition(struct sf_described *d, const struct sf_description *description, int32_t field, const json_t *values,
                          bool none) {
  struct sf_rule_condition *condition = &d->conditions[d->condition_count++];
  int32_t *places = d->values + d->value_count, count = 0;
  for (size_t i = 0; i < json_array_size(values); i++) {
    const int64_t choice = sf_description_find_choice(description, field, json_array_get(values, i));
    if (choice >= 0) insert(places, &count, (int32_t)choice);
  }
  *condition = (struct sf_rule_condition){field, count, places, none};
  d->value_count += count;
}

/* A case in which all conditions hold is refused. */
static void add_refusal(struct sf_described *d, const struct sf_description *description, const json_t *refusal) {
  const struct sf_rule_condition *first = d->conditions + d->condition_count;
  const char *path;
  json_t *values;
  json_object_foreach(json_object_get(refusal, "when"), path, values)
      add_condition(d, description, sf_description_find_field(description, path), values, true);
  const int32_t count = (int32_t)(d->conditions + d->condition_count - first);
  sf_rules_add_conditions(&d->rules, first, count, count, json_string_value(json_object_get(refusal, "reason")));
}

/* Where one of its needs does not hold, a field is plain, unless the limit says that this may be. */
static void add_needs(struct sf_described *d, const struct sf_description *description, int32_t field, const json_t *needs) {
  const char *path;
  json_t *values;
  json_object_foreach((json_t *)(uintptr_t)needs, path, values) {
    const struct sf_rule_condition *first = d->conditions + d->condition_count;
    d->conditions[d->condition_count++] = (struct sf_rule_condition){field, 1, &zero, false};
    add_condition(d, description, sf_description_find_field(description, path), values, false);
    d->conditions[d->condition_count++] =
        (struct sf_rule_condition){sf_description_limit(description, SF_DESCRIPTION_NEEDS), 1, &zero, false};
    sf_rules_add_conditions(&d->rules, first, 3, 1, NULL);
  }
}

static enum sf_status add_ranks(struct sf_described *d, const struct sf_description *description) {
  for (int32_t i = 0; i < sf_description_field_count(description); i++) {
    if (!sf_description_field_has_ranks(description, i)) continue;
    const int64_t count = sf_description_choice_count(description, i);
    int32_t *ranks = sf_alloc((size_t)count * sizeof *ranks);
    if (!ranks) return SF_ENOMEM;
    for (int64_t k = 0; k < count; k++) {
      json_t *choice = sf_description_choice(description, i, k);
      ranks[k] = (int32_t)json_integer_value(choice);
      json_decref(choice);
    }
    d->axes[d->axis_count] = (int16_t)i;
    d->ranks[d->axis_count++] = ranks;
  }
  sf_rules_add_product(&d->rules, d->axes, (const int32_t *const *)d->ranks, d->axis_count,
                       (int16_t)sf_description_limit(description, SF_DESCRIPTION_RANKS_LEAST),
                       (int16_t)sf_description_limit(description, SF_DESCRIPTION_RANKS_MOST));
  return SF_OK;
}

/* How many conditions and values the lists have. */
static void count_lists(int64_t *conditions, int64_t *values, const json_t *lists) {
  const char *path;
  json_t *list;
  json_object_foreach((json_t *)(uintptr_t)lists, path, list) {
    ++*conditions;
    *values += (int64_t)json_array_size(list);
  }
}

enum sf_status sf_described_create(struct sf_described **out, const struct sf_description *description, const json_t *refuses,
                                   const json_t *const *needs, struct sf_error *error) {
  static const char *const limits[SF_DESCRIPTION_LIMITS] = {"the case's seed", "least ranks", "most ranks", "needs"};
  const int32_t field_count = sf_description_field_count(description);
  int64_t conditions = 1, values = 1, rules = (int64_t)json_array_size(refuses) + 2;
  for (size_t i = 0; i < json_array_size(refuses); i++)
    count_lists(&conditions, &values, json_object_get(json_array_get(refuses, i), "when"));
  for (int32_t i = 0; i < field_count; i++) {
    count_lists(&conditions, &values, needs[i]);
    conditions += 2 * (int64_t)json_object_size(needs[i]);
    rules += (int64_t)json_object_size(needs[i]);
  }
  if (rules > SF_RULES_MAX)
    return sf_error_set(error, SF_EINPUT, "describe: refuses: with what fields need these are %lld rules, at most %d", (long long)rules,
                        SF_RULES_MAX);
  struct sf_described *d = sf_alloc(sizeof *d);
  if (!d) return SF_ENOMEM;
  d->conditions = sf_alloc((size_t)conditions * sizeof *d->conditions);
  d->values = sf_alloc((size_t)values * sizeof *d->values);
  enum sf_status status = d->conditions && d->values ? SF_OK : SF_ENOMEM;
  for (int32_t i = 0; i < field_count; i++) d->fields[i].path = sf_description_field_path(description, i);
  for (int32_t i = 0; i < SF_DESCRIPTION_LIMITS; i++) d->fields[field_count + i].path = limits[i];
  sf_rules_init(&d->rules, d->fields, field_count + SF_DESCRIPTION_LIMITS);
  for (size_t i = 0; status == SF_OK && i < json_array_size(refuses); i++) add_refusal(d, description, json_array_get(refuses, i));
  for (int32_t i = 0; status == SF_OK && i < field_count; i++) add_needs(d, description, i, needs[i]);
  if (status == SF_OK) status = add_ranks(d, description);
  if (status == SF_OK)
    *out = d;
  else
    sf_described_destroy(d);
  return status;
}

void sf_described_destroy(struct sf_described *d) {
  if (!d) return;
  for (int32_t i = 0; i < d->axis_count; i++) sf_free(d->ranks[i]);
  sf_free(d->values);
  sf_free(d->conditions);
  sf_free(d);
}

const struct sf_rules *sf_described_rules(const struct sf_described *described) { return &described->rules; }

int32_t sf_described_ranks(const struct sf_described *d, const int64_t *row) {
  int64_t ranks = 1;
  for (int32_t i = 0; i < d->axis_count && ranks <= SF_DESCRIPTION_RANKS_MAX; i++) ranks *= d->ranks[i][row[d->axes[i]]];
  return ranks <= SF_DESCRIPTION_RANKS_MAX ? (int32_t)ranks : SF_DESCRIPTION_RANKS_MAX + 1;
}
