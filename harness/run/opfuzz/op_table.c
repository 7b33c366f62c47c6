#include "harness/run/opfuzz/op_table.h"

#include <inttypes.h>

/* A shape may fail only for some values, so smaller ones are tried with several seeds. */
enum { TRIES = 12, CHOICES_MAX = 32 };

static bool of_case(int64_t *row, const struct sf_table *table, const struct sf_case *c) {
  const struct sf_op_table *of = table->of;
  struct sf_op_case read;
  if (sf_op_case_of(&read, c, of->target, NULL) != SF_OK || &of->target->entries[read.entry] != of->entry) return false;
  for (int32_t i = 0; i < SF_OP_FIELDS; i++) {
    const struct sf_op_range range = sf_op_field_range(of->entry, i);
    row[i] = range.most < range.least ? 0 : (read.field[i] - range.least) / range.step;
  }
  return true;
}

static enum sf_status to_case(struct sf_case *out, const struct sf_table *table, const int64_t *row, struct sf_error *error) {
  const struct sf_op_table *of = table->of;
  struct sf_op_case made = {.entry = (int32_t)(of->entry - of->target->entries)};
  for (int32_t i = 0; i < SF_OP_FIELDS; i++) {
    const struct sf_op_range range = sf_op_field_range(of->entry, i);
    if (range.most >= range.least) made.field[i] = range.least + row[i] * range.step;
  }
  if (!sf_op_case_valid(of->target, &made, NULL, error)) return SF_EINPUT;
  sf_op_case_put(out, of->target, &made);
  return SF_OK;
}

/* Sizes, attributes, places in memory; the other fields are choices. */
static bool number(int64_t *out, const struct sf_table *table, int32_t field, int64_t value) {
  const struct sf_op_table *of = table->of;
  const struct sf_op_range range = sf_op_field_range(of->entry, field);
  *out = range.least + value * range.step;
  return ((field >= SF_OP_DIM && field < SF_OP_VALUES) || field >= SF_OP_START) && sf_op_value_name(field, *out) == NULL;
}

static void append(struct sf_text *out, const struct sf_table *table, int32_t field, struct sf_range range) {
  const struct sf_op_table *of = table->of;
  char name[64];
  if (!sf_op_field_name(name, sizeof name, of->entry->op, field)) return;
  sf_text_append(out, "%s=", name);
  for (int end = 0; end < (range.lo == range.hi ? 1 : 2); end++) {
    const struct sf_op_range values = sf_op_field_range(of->entry, field);
    const int64_t value = values.least + (end == 0 ? range.lo : range.hi) * values.step;
    const char *word = sf_op_value_name(field, value);
    sf_text_append(out, "%s", end == 0 ? "" : "..");
    if (word != NULL)
      sf_text_append(out, "%s", word);
    else
      sf_text_append(out, "%" PRId64, value);
  }
}

/* For contrast.h: numbers that tell tails of vectors, tiles and blocks apart, and all choices. */
enum { REACH = 128 };
static void add_larger(struct sf_domain *out, int32_t field, const int64_t *row, const struct sf_table *table) {
  static const int16_t numbers[] = {2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 96, REACH};
  const struct sf_op_table *of = table->of;
  const struct sf_op_range range = sf_op_field_range(of->entry, field);
  int64_t own;
  if (number(&own, table, field, row[field])) {
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
      if (numbers[i] > own && (numbers[i] - own) % range.step == 0) sf_domain_insert(out, row[field] + (numbers[i] - own) / range.step);
  } else {
    for (int64_t value = row[field] + 1; value <= table->range[field].hi && value < CHOICES_MAX; value++) sf_domain_insert(out, value);
  }
}

/* What a value shrinks to, and larger ones. */
static void domain(struct sf_domain *out, int32_t field, const int64_t *row, int64_t swarm, struct sf_bounds *bounds) {
  const int64_t values[] = {0, 1, row[field] / 2, row[field] - 1, row[field]};
  (void)swarm;
  out->count = 0;
  for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
    if (values[i] >= 0) sf_domain_insert(out, values[i]);
  add_larger(out, field, row, bounds->table);
  sf_domain_keep_feasible(out, field, bounds);
}

enum { DIMS, ATTRS, MEMORY, VALUES, SEED };
static const struct sf_shrink_pass passes[] = {{SF_PASS_LOWER_CHOICES, .fields = DIMS, .reseeds = true},
                                               {SF_PASS_COMBINATIONS, .fields = DIMS, .reseeds = true},
                                               {SF_PASS_LOWER_CHOICES, .fields = ATTRS, .reseeds = true},
                                               {SF_PASS_LOWER_CHOICES, .fields = MEMORY},
                                               {SF_PASS_LOWER_CHOICES, .fields = VALUES, .reseeds = true},
                                               {SF_PASS_LOWER_CHOICES, .fields = SEED},
                                               {SF_PASS_END}};

/* Of a plugin, which has one format, the formats stay. */
static int32_t pass_fields(int32_t *out, const struct sf_table *table, const int64_t *row, int32_t which) {
  static const int32_t sets[][4][2] = {
      [DIMS] = {{SF_OP_DIM, SF_OP_ATTR}},
      [ATTRS] = {{SF_OP_ATTR, SF_OP_VALUES}},
      [MEMORY] = {{SF_OP_START, SF_OP_FIELDS}, {SF_OP_IN_PLACE, SF_OP_IN_PLACE + 1}},
      [VALUES] = {{SF_OP_SPECIAL, SF_OP_SPECIAL + 1}, {SF_OP_VALUES, SF_OP_START}, {SF_OP_STORE, SF_OP_SPECIAL}},
      [SEED] = {{SF_OP_SEED, SF_OP_SEED + 1}}};
  const struct sf_op_table *of = table->of;
  int32_t count = 0;
  for (int32_t part = 0; part < 4; part++)
    for (int32_t i = sets[which][part][0]; i < sets[which][part][1]; i++)
      if (row[i] > 0 && !(of->entry->declared >= 0 && (i == SF_OP_STORE || i == SF_OP_INPUTS))) out[count++] = i;
  return count;
}

/* No rules: what a target takes beyond the ranges, sf_op_case_valid says. */
static const struct sf_rules *no_rules(void) {
  static const struct sf_space_field fields[SF_OP_FIELDS];
  static const struct sf_rules rules = {.fields = fields, .field_count = SF_OP_FIELDS};
  return &rules;
}

struct sf_table sf_op_table(const struct sf_op_table *of, bool is_slow) {
  static const struct sf_table_kind operations = {.domain = domain,
                                                  .append = append,
                                                  .number = number,
                                                  .to_case = to_case,
                                                  .of_case = of_case,
                                                  .is_simpler = sf_table_goes_down,
                                                  .passes = passes,
                                                  .pass_fields = pass_fields};
  struct sf_table table = {
      .kind = &operations, .of = of, .rules = no_rules(), .field_count = SF_OP_FIELDS, .seed = SF_OP_SEED, .reach = REACH};
  table.tries = is_slow ? 1 : TRIES;
  for (int32_t i = 0; i < SF_OP_FIELDS; i++) {
    const struct sf_op_range range = sf_op_field_range(of->entry, i);
    table.order[i] = (int16_t)i;
    if (range.most > range.least) table.range[i].hi = (range.most - range.least) / range.step;
  }
  table.traits[SF_OP_SEED] = SF_TRAIT_NUMBER;
  return table;
}
