#include "harness/run/framework/framework_table.h"

#include "harness/base/alloc.h"
#include "harness/base/hash.h"
#include "harness/base/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ALONE: of a field with many choices those beyond it count as one bin, as neighbours of a long range are much alike. SPREAD: of a range
 * with more choices than a domain holds, so many are offered. */
enum { ALONE = 8, SPREAD = 96, SEED_MAX = (1 << 24) - 1 };

static const struct sf_description *description_of(const struct sf_table *table) {
  const struct sf_choice_space *space = table->of;
  return space->description;
}

static int32_t limit_of(const struct sf_table *table, enum sf_description_limit limit) {
  return sf_description_limit(description_of(table), limit);
}

/* --- the space ---------------------------------------------------------------------------------------------------- */

enum sf_status sf_choice_space_set(struct sf_choice_space *space, const char *assignment, struct sf_error *error) {
  const struct sf_description *description = space->description;
  const char *equals = strchr(assignment, '=');
  char path[128];
  if (!equals || equals == assignment || equals - assignment >= (ptrdiff_t)sizeof path)
    return sf_error_set(error, SF_EINPUT, "\"%.100s\" is not KEY=VALUE", assignment);
  snprintf(path, sizeof path, "%.*s", (int)(equals - assignment), assignment);
  const int32_t field = sf_description_find_field(description, path);
  if (field < 0) return sf_description_unknown(description, path, error);
  json_t *value = json_loads(equals + 1, JSON_DECODE_ANY, NULL);
  if (!value) value = json_string(equals + 1);
  const int64_t choice = value ? sf_description_find_choice(description, field, value) : -1;
  json_decref(value);
  if (choice < 0) return sf_error_set(error, SF_EINPUT, "%s: %.100s is none of its choices", path, equals + 1);
  space->is_fixed[field] = true;
  space->fixed[field] = (int32_t)choice;
  return SF_OK;
}

/* --- values ----------------------------------------------------------------------------------------------------- */

/* Of a long range: its ends, what a case shrinks to next, and others that differ from case to case. */
static void spread(struct sf_domain *domain, struct sf_range range, int32_t field, const int64_t *row) {
  const int64_t span = range.hi - range.lo;
  uint64_t hash = sf_hash_u64(1, (uint64_t)field);
  for (int32_t i = 0; i < field; i++) hash = sf_hash_u64(hash, (uint64_t)row[i]);
  const int64_t more[] = {range.lo, range.lo + 1, range.hi, row[field] / 2, row[field] - 1, row[field]};
  for (size_t i = 0; i < sizeof more / sizeof more[0]; i++)
    if (more[i] >= range.lo && more[i] <= range.hi) sf_domain_insert(domain, more[i]);
  for (uint64_t i = 0; i < SPREAD; i++) sf_domain_insert(domain, range.lo + (int64_t)(sf_hash_u64(hash, i) % (uint64_t)(span + 1)));
}

static void domain(struct sf_domain *out, int32_t field, const int64_t *row, int64_t swarm, struct sf_bounds *bounds) {
  const struct sf_range range = bounds->at[field];
  (void)swarm;
  out->count = 0;
  if (range.hi - range.lo < SF_DOMAIN_MAX)
    for (int64_t value = range.lo; value <= range.hi; value++) out->values[out->count++] = value;
  else
    spread(out, range, field, row);
  for (int32_t i = 0; i < out->count; i++) out->weights[i] = 1;
  sf_domain_keep_feasible(out, field, bounds);
}

/* Most fields of a case are plain, so that bugs do not hide behind each other. */
static uint32_t wish_one_in(const struct sf_table *table, int32_t field, int64_t swarm) {
  static const uint32_t of_function[SF_SWARMS] = {5, 12, 3}, of_layout[SF_SWARMS] = {4, 8, 2};
  return sf_table_has(table, field, SF_TRAIT_LAYOUT) ? of_layout[swarm] : of_function[swarm];
}

/* Fields of the function that need each other, or the same one, are one group. */
static void find_groups(struct sf_table *table) {
  const struct sf_rules *rules = table->rules;
  for (int32_t i = 0; i < table->field_count; i++) table->group[i] = (int16_t)i;
  for (int32_t i = sf_description_rule_count(description_of(table)); i < rules->rule_count; i++) {
    const struct sf_rule_condition *need = rules->rule[i].condition;
    if (need == NULL || sf_table_has(table, need[0].field, SF_TRAIT_LAYOUT)) continue;
    const int16_t a = table->group[need[0].field], b = table->group[need[1].field], low = a < b ? a : b, high = a < b ? b : a;
    for (int32_t k = 0; k < table->field_count; k++)
      if (table->group[k] == high) table->group[k] = low;
  }
}

/* What is plain is no bin: pairs are of what a case switches on. */
static int32_t bins(struct sf_range out[SF_BINS_MAX], const struct sf_table *table, int32_t field) {
  const struct sf_range range = table->range[field];
  int32_t count = 0;
  if (sf_table_has(table, field, SF_TRAIT_NUMBER) || range.lo == range.hi) return 0;
  const int64_t alone = range.hi < SF_BINS_MAX ? SF_BINS_MAX : ALONE;
  for (int64_t value = 1; value < alone && value <= range.hi; value++) out[count++] = (struct sf_range){value, value};
  if (range.hi >= alone) out[count++] = (struct sf_range){alone, range.hi};
  return count;
}

static void append(struct sf_text *out, const struct sf_table *table, int32_t field, struct sf_range range) {
  const struct sf_description *description = description_of(table);
  if (sf_table_has(table, field, SF_TRAIT_NUMBER)) { /* the description has no field for the seed */
    sf_text_append(out, "seed=%" PRId64, range.lo);
    return;
  }
  char *first = sf_description_choice_text(description, field, range.lo), *last = sf_description_choice_text(description, field, range.hi);
  const bool is_one = range.lo == range.hi;
  sf_text_append(out, "%s=%s%s%s", sf_description_field_path(description, field), first ? first : "?", is_one ? "" : "..",
                 is_one ? ""
                 : last ? last
                        : "?");
  free(first);
  free(last);
}

/* A field is a number if all of its choices are; a long range is what its ends are. */
static bool number(int64_t *out, const struct sf_table *table, int32_t field, int64_t value) {
  const struct sf_description *description = description_of(table);
  const int64_t count = sf_description_choice_count(description, field), step = count < SF_DOMAIN_MAX ? 1 : count - 1;
  bool all = count > 1;
  for (int64_t i = 0; all && i < count; i += step) {
    json_t *choice = sf_description_choice(description, field, i);
    all = json_is_integer(choice);
    json_decref(choice);
  }
  json_t *own = all ? sf_description_choice(description, field, value) : NULL;
  if (own) *out = json_integer_value(own);
  json_decref(own);
  return own != NULL;
}

/* --- cases ------------------------------------------------------------------------------------------------------ */

static enum sf_status to_case(struct sf_case *out, const struct sf_table *table, const int64_t *row, struct sf_error *error) {
  const struct sf_description *description = description_of(table);
  json_t *object = sf_description_case(row, description, SF_DESCRIPTION_SET);
  char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
  sf_case_init(out);
  const bool fits = snprintf(out->target, sizeof out->target, "%s", sf_description_name(description)) < (int)sizeof out->target;
  out->seed = row[sf_description_limit(description, SF_DESCRIPTION_SEED)];
  enum sf_status status = text ? sf_case_set_framework(out, text, error) : SF_ENOMEM;
  if (!fits)
    status = sf_error_set(error, SF_EINPUT, "describe: name: at most %zu bytes, not '%.60s..'", sizeof out->target - 1,
                          sf_description_name(description));
  sf_free(text);
  json_decref(object);
  return status;
}

static bool of_case(int64_t *row, const struct sf_table *table, const struct sf_case *c) {
  json_t *object = sf_json_of(c->fields);
  const bool is_read = object && sf_description_row(row, description_of(table), object, NULL) == SF_OK;
  json_decref(object);
  if (is_read) row[limit_of(table, SF_DESCRIPTION_SEED)] = c->seed;
  return is_read;
}

static enum sf_status explain(const struct sf_table *table, struct sf_error *error) {
  const struct sf_choice_space *space = table->of;
  return sf_error_set(error, SF_EINPUT, "what is fixed does not go together: the worker supports no such case on at most %d ranks",
                      space->ranks_max);
}

/* A case from a file may have fields that do nothing. What is made of a case has no more ranks. */
static void widen(struct sf_range *ranges, const struct sf_table *table, const int64_t *row) {
  const int32_t needs = limit_of(table, SF_DESCRIPTION_NEEDS), refusals = sf_description_rule_count(description_of(table));
  int64_t with_needs[SF_SPACE_FIELDS_MAX];
  memcpy(with_needs, row, (size_t)table->rules->field_count * sizeof *row);
  with_needs[needs] = 1;
  for (int32_t i = refusals; i < table->rules->rule_count; i++)
    if (!sf_rule_holds(&table->rules->rule[i], with_needs)) ranges[needs] = (struct sf_range){0, 0};
  const int32_t ranks = sf_description_ranks_at(description_of(table), row);
  ranges[limit_of(table, SF_DESCRIPTION_RANKS_LEAST)] = (struct sf_range){1, 1};
  ranges[limit_of(table, SF_DESCRIPTION_RANKS_MOST)] = (struct sf_range){ranks, ranks};
}

/* --- shrinking -------------------------------------------------------------------------------------------------- */

enum { FUNCTION, OPEN, SEED };

/* Fields of the function; those that are not plain, of the layout first, since ranks cost most; the case's seed. */
static int32_t pass_fields(int32_t *out, const struct sf_table *table, const int64_t *row, int32_t which) {
  int32_t count = 0;
  for (int32_t i = table->field_count - 1; i >= 0; i--) {
    const int32_t field = table->order[i];
    const bool is_seed = sf_table_has(table, field, SF_TRAIT_NUMBER), is_function = !sf_table_has(table, field, SF_TRAIT_LAYOUT);
    if (is_seed == (which == SEED) && (which == FUNCTION ? is_function : row[field] > 0)) out[count++] = field;
  }
  return count;
}

static const struct sf_shrink_pass passes[] = {{SF_PASS_RESET, .fields = FUNCTION},
                                               {SF_PASS_GROUPS, .fields = OPEN},
                                               {SF_PASS_LOWER_SIZES, .fields = OPEN},
                                               {SF_PASS_RESET, .fields = SEED},
                                               {SF_PASS_END}};

/* --- the table -------------------------------------------------------------------------------------------------- */

static const int32_t row_sizes[] = {4, 6, 9, 13, 0};
static const struct sf_table_kind frameworks = {.domain = domain,
                                                .wish_one_in = wish_one_in,
                                                .bins = bins,
                                                .bins_least = 1,
                                                .row_sizes = row_sizes,
                                                .append = append,
                                                .number = number,
                                                .to_case = to_case,
                                                .of_case = of_case,
                                                .explain = explain,
                                                .widen = widen,
                                                .is_simpler = sf_table_goes_down,
                                                .passes = passes,
                                                .pass_fields = pass_fields};

static struct sf_range range_of(const struct sf_choice_space *space, int32_t field) {
  const struct sf_description *description = space->description;
  if (space->is_fixed[field]) return (struct sf_range){space->fixed[field], space->fixed[field]};
  /* The case's own seed goes there (framework_case.c). */
  if (strcmp(sf_description_field_path(description, field), "seed") == 0) return (struct sf_range){0, 0};
  return (struct sf_range){0, sf_description_choice_count(description, field) - 1};
}

static uint8_t traits_of(const struct sf_choice_space *space, int32_t field) {
  const bool layout = sf_description_field_is_layout(space->description, field);
  const bool turn = sf_description_field_has_ranks(space->description, field);
  return (uint8_t)((layout ? SF_TRAIT_LAYOUT : 0) | (turn ? SF_TRAIT_TURN : 0));
}

static void set_limit(struct sf_table *table, enum sf_description_limit limit, int64_t value) {
  table->range[limit_of(table, limit)] = (struct sf_range){value, value};
}

struct sf_table sf_framework_table(const struct sf_choice_space *space) {
  const struct sf_description *description = space->description;
  const int32_t count = sf_description_field_count(description), seed = sf_description_limit(description, SF_DESCRIPTION_SEED);
  struct sf_table table = {
      .kind = &frameworks, .of = space, .rules = sf_description_rules(description), .field_count = count + 1, .cost_unknown = true};
  struct sf_bounds bounds;
  int32_t drawn = 0;
  for (int32_t i = 0; i < count; i++) {
    table.range[i] = range_of(space, i);
    table.traits[i] = traits_of(space, i);
    table.one_in[i] = (uint8_t)sf_description_field_one_in(description, i);
  }
  table.range[seed] = (struct sf_range){0, SEED_MAX};
  table.traits[seed] = SF_TRAIT_NUMBER;
  for (int layout = 0; layout < 2; layout++)
    for (int32_t i = 0; i < table.field_count; i++)
      if (sf_table_has(&table, i, SF_TRAIT_LAYOUT) == (layout == 1)) table.order[drawn++] = (int16_t)i;
  find_groups(&table);
  set_limit(&table, SF_DESCRIPTION_NEEDS, 1);
  set_limit(&table, SF_DESCRIPTION_RANKS_MOST, space->ranks_max);
  set_limit(&table, SF_DESCRIPTION_RANKS_LEAST, 2);
  sf_bounds_init(&bounds, &table);
  if (!sf_bounds_solve(&bounds)) set_limit(&table, SF_DESCRIPTION_RANKS_LEAST, 1);
  return table;
}
