#include "generators/table.h"

#include "harness/base/assert.h"

#include <string.h>

/* --- bounds ------------------------------------------------------------------------------------------------------- */

void sf_bounds_init(struct sf_bounds *bounds, const struct sf_table *table) {
  bounds->table = table;
  bounds->solver.feasible = false;
  memcpy(bounds->at, table->range, (size_t)table->rules->field_count * sizeof *bounds->at);
}

bool sf_bounds_solve(struct sf_bounds *bounds) {
  sf_solver_init(&bounds->solver, bounds->table->rules, bounds->at);
  return bounds->solver.feasible;
}

bool sf_bounds_allow(struct sf_bounds *bounds, int32_t field, struct sf_range range) {
  return sf_solver_allows(&bounds->solver, field, range);
}

bool sf_bounds_narrow(struct sf_bounds *bounds, int32_t field, struct sf_range range) {
  bounds->at[field] = range;
  return sf_solver_narrow(&bounds->solver, field, range);
}

void sf_domain_insert(struct sf_domain *domain, int64_t value) {
  int32_t at = domain->count;
  while (at > 0 && domain->values[at - 1] > value) at--;
  if (at > 0 && domain->values[at - 1] == value) return;
  memmove(&domain->values[at + 1], &domain->values[at], (size_t)(domain->count++ - at) * sizeof *domain->values);
  domain->values[at] = value;
}

void sf_domain_keep_feasible(struct sf_domain *domain, int32_t field, struct sf_bounds *bounds) {
  const struct sf_range range = bounds->at[field];
  int32_t kept = 0;
  for (int32_t i = 0; i < domain->count; i++) {
    const int64_t value = domain->values[i];
    if (value < range.lo || value > range.hi || !sf_bounds_allow(bounds, field, (struct sf_range){value, value})) continue;
    domain->values[kept] = value;
    domain->weights[kept++] = domain->weights[i];
  }
  domain->count = kept;
}

bool sf_table_goes_down(const struct sf_table *table, const int64_t *a, const int64_t *b) {
  bool is_less = false, is_less_number = false;
  for (int32_t i = 0; i < table->field_count; i++) {
    const bool is_number = sf_table_has(table, i, SF_TRAIT_NUMBER);
    if (!is_number && a[i] > b[i]) return false;
    is_less |= !is_number && a[i] < b[i];
    is_less_number |= is_number && a[i] < b[i];
  }
  return is_less || is_less_number;
}

/* --- walking ------------------------------------------------------------------------------------------------------ */

/* One walk over the fields with two ways to choose: at random, or by an edit of a row. */
struct walk {
  struct sf_draw *draw; /* NULL: an edit */
  const int64_t *from;  /* the row that an edit changes */
  const struct sf_edit *edit;
  struct sf_bounds bounds;
  int64_t *row; /* what was decided so far */
  int64_t swarm;
  int32_t stuck; /* the field at which the walk failed */
};

static bool choose_number(struct walk *walk, int64_t *value, int32_t field) {
  const struct sf_range range = walk->bounds.at[field];
  const uint64_t bound = (uint64_t)(range.hi - range.lo) + 1, likely = UINT64_C(1) << 31;
  const uint32_t zero_percent = sf_table_has(walk->bounds.table, field, SF_TRAIT_OFTEN_ZERO) ? 20 : 0;
  if (walk->draw != NULL) {
    *value = range.lo + (int64_t)sf_draw_number(walk->draw, bound, likely, zero_percent);
    return true;
  }
  *value = walk->from[field];
  if (walk->edit->kind[field] == SF_EDIT_RESET) *value = range.lo;
  if (walk->edit->kind[field] == SF_EDIT_ASSIGN) *value = walk->edit->value[field];
  return *value >= range.lo && *value <= range.hi;
}

/* The value that an edit wants for a field, if the bounds allow it; false: take the simplest one. */
static bool wanted_value(struct walk *walk, int64_t *value, int32_t field) {
  const enum sf_edit_kind kind = (enum sf_edit_kind)walk->edit->kind[field];
  if (kind == SF_EDIT_RESET) return false;
  *value = kind == SF_EDIT_ASSIGN ? walk->edit->value[field] : walk->from[field];
  if (kind != SF_EDIT_PREFER) return true; /* the bounds hold nothing else */
  if (*value < walk->bounds.at[field].lo || *value > walk->bounds.at[field].hi) return false;
  return sf_bounds_allow(&walk->bounds, field, (struct sf_range){*value, *value});
}

/* The index of the largest value below `value`; of the simplest one if there is none. */
static int32_t next_smaller(const struct sf_domain *domain, int64_t value) {
  int32_t best = -1;
  for (int32_t i = 0; i < domain->count; i++)
    if (domain->values[i] < value && (best < 0 || domain->values[i] > domain->values[best])) best = i;
  return best < 0 ? 0 : best;
}

static bool choose(struct walk *walk, int64_t *value, int32_t field) {
  const struct sf_table *table = walk->bounds.table;
  struct sf_domain domain;
  if (sf_table_has(table, field, SF_TRAIT_NUMBER)) return choose_number(walk, value, field);
  if (walk->edit != NULL && wanted_value(walk, value, field)) return true;
  table->kind->domain(&domain, field, walk->row, walk->swarm, &walk->bounds);
  if (domain.count == 0) return false;
  const bool is_unwished = table->kind->wish_one_in != NULL && domain.values[0] == table->rules->fields[field].plain;
  int32_t at = 0;
  if (walk->draw != NULL && !is_unwished) at = (int32_t)sf_draw_choice(walk->draw, (uint64_t)domain.count, domain.weights);
  if (walk->draw == NULL && walk->edit->kind[field] == SF_EDIT_PREFER) at = next_smaller(&domain, *value);
  *value = domain.values[at];
  return true;
}

/* Prepares the walk; false when no row lies within the bounds. */
static bool begin(struct walk *walk) {
  const struct sf_table *table = walk->bounds.table;
  for (int32_t i = 0; i < table->field_count; i++) walk->row[i] = table->rules->fields[i].plain;
  for (int32_t i = table->field_count; i < table->rules->field_count; i++) walk->row[i] = walk->bounds.at[i].lo;
  return sf_bounds_solve(&walk->bounds);
}

static bool decide_fields(struct walk *walk) {
  const struct sf_table *table = walk->bounds.table;
  for (int32_t i = 0; i < table->field_count; i++) {
    const int32_t field = table->order[i];
    int64_t value = 0;
    walk->stuck = field;
    if (!choose(walk, &value, field)) return false;
    if (!sf_bounds_narrow(&walk->bounds, field, (struct sf_range){value, value})) return false;
    walk->row[field] = value;
  }
  return true;
}

/* --- drawing ------------------------------------------------------------------------------------------------------ */

static bool is_feasible(const struct sf_table *table) {
  struct sf_bounds bounds;
  sf_bounds_init(&bounds, table);
  return sf_bounds_solve(&bounds);
}

/* Has the field whose turn it is, or the next one that can be, above 0. */
static void give_turn(struct sf_bounds *bounds, int64_t turn) {
  const struct sf_table *table = bounds->table;
  int16_t fields[SF_SPACE_FIELDS_MAX];
  int32_t count = 0;
  for (int32_t i = 0; i < table->field_count; i++)
    if (sf_table_has(table, i, SF_TRAIT_TURN)) fields[count++] = (int16_t)i;
  for (int32_t i = 0; i < count; i++) {
    const int32_t field = fields[(turn + i) % count];
    const struct sf_range above = {1, bounds->at[field].hi};
    if (above.hi < above.lo || !sf_bounds_allow(bounds, field, above)) continue;
    (void)sf_bounds_narrow(bounds, field, above);
    return;
  }
}

/* Draws which groups of fields have wishes, and how many. */
static void draw_groups(int64_t *wishes, const struct walk *walk) {
  enum { WISHES_MAX = 6 };
  const struct sf_table *table = walk->bounds.table;
  for (int32_t i = 0; i < table->field_count; i++) {
    const uint64_t one_in = table->kind->wish_one_in(table, i, walk->swarm);
    const bool has_some = table->group[i] == i && sf_draw_choice(walk->draw, one_in, NULL) == one_in - 1;
    wishes[i] = has_some ? 1 + (int64_t)sf_draw_choice(walk->draw, WISHES_MAX, NULL) : 0;
  }
}

/* Fields of a group are wished for in an order that is drawn too; what is wished for is not plain. */
static void draw_wishes(struct walk *walk) {
  const struct sf_table *table = walk->bounds.table;
  int64_t wishes[SF_SPACE_FIELDS_MAX];
  int16_t fields[SF_SPACE_FIELDS_MAX];
  if (table->kind->wish_one_in == NULL) return;
  draw_groups(wishes, walk);
  memcpy(fields, table->order, (size_t)table->field_count * sizeof *fields);
  for (int32_t i = 0; i < table->field_count; i++) {
    const int32_t at = i + (int32_t)sf_draw_choice(walk->draw, (uint64_t)(table->field_count - i), NULL), field = fields[at];
    fields[at] = fields[i];
    if (sf_table_has(table, field, SF_TRAIT_NUMBER)) continue;
    const bool is_wished =
        table->one_in[field] ? sf_draw_choice(walk->draw, table->one_in[field], NULL) == 0 : wishes[table->group[field]]-- > 0;
    if (!is_wished) continue;
    struct sf_domain domain;
    table->kind->domain(&domain, field, walk->row, walk->swarm, &walk->bounds);
    const int32_t first = domain.count > 0 && domain.values[0] == table->rules->fields[field].plain;
    if (domain.count == first) continue;
    const int64_t value = domain.values[first + (int32_t)sf_draw_choice(walk->draw, (uint64_t)(domain.count - first), NULL)];
    (void)sf_bounds_narrow(&walk->bounds, field, (struct sf_range){value, value});
  }
}

enum sf_status sf_table_draw(int64_t *row, struct sf_draw *draw, const struct sf_table *table, const struct sf_range *limits, int64_t turn,
                             struct sf_error *error) {
  static const uint32_t alike[SF_SWARMS] = {1, 1, 1};
  const struct sf_space_field *fields = table->rules->fields;
  struct walk walk = {.draw = draw, .row = row};
  sf_bounds_init(&walk.bounds, table);
  for (int32_t i = 0; limits != NULL && i < table->field_count; i++) {
    struct sf_range *range = &walk.bounds.at[i];
    if (limits[i].lo > range->lo) range->lo = limits[i].lo;
    if (limits[i].hi < range->hi) range->hi = limits[i].hi;
    if (range->lo > range->hi) return sf_error_set(error, SF_EINPUT, "%s: the limits leave no value", fields[i].path);
  }
  if (!begin(&walk)) {
    return is_feasible(table) ? sf_error_set(error, SF_EINPUT, "no case fits the limits of this draw: they were made for another space")
                              : table->kind->explain(table, error);
  }
  walk.swarm = (int64_t)sf_draw_choice(draw, SF_SWARMS, alike);
  give_turn(&walk.bounds, turn);
  draw_wishes(&walk);
  if (decide_fields(&walk)) return SF_OK;
  return sf_error_set(error, SF_EINPUT, "%s: no value fits the fields that are set", fields[walk.stuck].path);
}

/* Appends the choice that gives a field its value in the row; false when no choice does. */
static bool append_choice(unsigned char *bytes, size_t *count, const int64_t *row, int32_t field, struct sf_bounds *bounds) {
  const struct sf_range range = bounds->at[field];
  struct sf_domain domain;
  uint64_t bound = (uint64_t)(range.hi - range.lo) + 1, choice = (uint64_t)(row[field] - range.lo);
  if (!sf_table_has(bounds->table, field, SF_TRAIT_NUMBER)) {
    bounds->table->kind->domain(&domain, field, row, 0, bounds);
    bound = (uint64_t)domain.count;
    for (choice = 0; choice < bound && domain.values[choice] != row[field];) choice++;
  }
  if (choice >= bound) return false;
  *count += sf_draw_to_bytes(bytes + *count, bound, choice);
  return sf_bounds_narrow(bounds, field, (struct sf_range){row[field], row[field]});
}

size_t sf_table_choices(unsigned char bytes[SF_CHOICE_BYTES_MAX], const int64_t *row, const struct sf_table *table) {
  int64_t decided[SF_SPACE_FIELDS_MAX];
  struct walk walk = {.row = decided};
  size_t count = sf_draw_to_bytes(bytes, SF_SWARMS, 0);
  SF_ASSERT(table->kind->wish_one_in == NULL);
  sf_bounds_init(&walk.bounds, table);
  if (!begin(&walk)) return 0;
  for (int32_t i = 0; i < table->field_count; i++) {
    const int32_t field = table->order[i];
    decided[field] = row[field];
    if (!append_choice(bytes, &count, decided, field, &walk.bounds)) return 0;
  }
  return count;
}

/* --- editing ------------------------------------------------------------------------------------------------------ */

void sf_edit_follow(struct sf_edit *edit, const int64_t *row, const struct sf_table *table) {
  if (table->kind->follow != NULL) table->kind->follow(edit, row);
  const struct sf_edit before = *edit;
  for (int32_t from = 0; from < table->field_count; from++) {
    if (before.kind[from] == SF_EDIT_KEEP) continue;
    for (int32_t to = 0; to < table->field_count; to++)
      if (edit->kind[to] == SF_EDIT_KEEP && !sf_table_has(table, to, SF_TRAIT_STAYS) && sf_rules_follow(table->rules, from, to))
        edit->kind[to] = SF_EDIT_PREFER;
  }
}

bool sf_table_edit(int64_t *row, const int64_t *from, const struct sf_table *table, const struct sf_edit *edit) {
  struct walk walk = {.from = from, .edit = edit, .row = row};
  sf_bounds_init(&walk.bounds, table);
  if (table->kind->widen != NULL) table->kind->widen(walk.bounds.at, table, from);
  for (int32_t i = 0; i < table->field_count; i++) {
    struct sf_range *range = &walk.bounds.at[i];
    if (edit->kind[i] == SF_EDIT_KEEP) {
      range->lo = range->hi = from[i];
    } else if (edit->kind[i] == SF_EDIT_ASSIGN) {
      if (edit->value[i] < range->lo || edit->value[i] > range->hi) return false;
      range->lo = range->hi = edit->value[i];
    }
  }
  return begin(&walk) && decide_fields(&walk);
}

void sf_table_values(struct sf_domain *out, const int64_t *row, const struct sf_table *table, int32_t field) {
  struct sf_edit edit = {{0}, {0}};
  struct sf_bounds bounds;
  edit.kind[field] = SF_EDIT_RESET;
  sf_edit_follow(&edit, row, table);
  sf_bounds_init(&bounds, table);
  if (table->kind->widen != NULL) table->kind->widen(bounds.at, table, row);
  for (int32_t i = 0; i < table->field_count; i++)
    if (edit.kind[i] == SF_EDIT_KEEP) bounds.at[i].lo = bounds.at[i].hi = row[i];
  (void)sf_bounds_solve(&bounds);
  table->kind->domain(out, field, row, 0, &bounds);
}

bool sf_table_case(struct sf_case *out, const struct sf_table *table, const int64_t *row, const struct sf_case *like) {
  enum { ATTEMPTS = 3 }; /* while memory lacks */
  struct sf_case made;
  enum sf_status status = SF_ENOMEM;
  for (int attempt = 0; status == SF_ENOMEM && attempt < ATTEMPTS; attempt++) status = table->kind->to_case(&made, table, row, NULL);
  if (status != SF_OK) return false;
  memcpy(made.target, like->target, sizeof made.target);
  memcpy(made.plant, like->plant, sizeof made.plant);
  made.expect = like->expect;
  *out = made;
  return true;
}
