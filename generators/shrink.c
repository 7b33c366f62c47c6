#include "generators/shrink.h"

#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/base/hash.h"

#include <string.h>

/* --- steps -------------------------------------------------------------------------------------------------------- */

static bool reset_groups(struct sf_edit *edit, bool *usable, const int32_t *fields, int32_t count, int64_t step) {
  int64_t chunks = 1, first = 0;
  while (step >= first + chunks) {
    if (chunks >= count) return false;
    first += chunks;
    chunks *= 2;
  }
  const int64_t chunk = step - first, begin = chunk * count / chunks, end = (chunk + 1) * count / chunks;
  for (int64_t i = begin; i < end; i++) edit->kind[fields[i]] = SF_EDIT_RESET;
  *usable = begin < end;
  return true;
}

/* Values of a field that are simpler than the row's, simplest first, if only the fields that follow it may change. */
static int32_t simpler_values(int64_t values[SF_DOMAIN_MAX], const int64_t *row, const struct sf_table *table, int32_t field,
                              bool is_size) {
  struct sf_domain domain;
  int32_t count = 0;
  sf_table_values(&domain, row, table, field);
  for (int32_t i = 0; i < domain.count; i++) {
    if (domain.values[i] == row[field]) break;
    if (!is_size || domain.values[i] < row[field]) values[count++] = domain.values[i];
  }
  return count;
}

static bool lower(struct sf_edit *edit, bool *usable, const int64_t *row, const struct sf_table *table, const int32_t *fields,
                  int32_t count, int64_t step, bool are_sizes) {
  enum { SIMPLEST, HALF, LESS, SECOND, HOWS };
  int64_t values[SF_DOMAIN_MAX];
  if (step >= HOWS * (int64_t)count) return false;
  const int32_t field = fields[step / HOWS], how = (int32_t)(step % HOWS);
  const int32_t value_count = simpler_values(values, row, table, field, are_sizes), half = value_count / 2, last = value_count - 1;
  *usable = value_count > 0 && !(how == HALF && (half == 0 || half == last)) && !(how == LESS && last == 0) &&
            !(how == SECOND && (are_sizes || last <= 1 || half == 1));
  if (*usable) sf_edit_assign(edit, field, values[how == SIMPLEST ? 0 : how == HALF ? half : how == LESS ? last : 1]);
  return true;
}

/* Combination number k of values that are no larger; returns their sum. */
static int64_t combination_at(struct sf_edit *edit, const int64_t *row, const int32_t *fields, int32_t count, int64_t k) {
  int64_t sum = 0;
  for (int32_t i = 0; i < count; i++) {
    const int64_t value = k % (row[fields[i]] + 1);
    sf_edit_assign(edit, fields[i], value);
    sum += value;
    k /= row[fields[i]] + 1;
  }
  return sum;
}

static bool combine(struct sf_edit *edit, bool *usable, const int64_t *row, const int32_t *fields, int32_t count, int64_t step) {
  enum { COMBINATIONS_MAX = 400 };
  int64_t of_sum[COMBINATIONS_MAX] = {0}, combinations = 1, sum = 0;
  for (int32_t i = 0; i < count && combinations <= COMBINATIONS_MAX; i++) combinations *= row[fields[i]] + 1;
  if (combinations > COMBINATIONS_MAX || step >= combinations - 1) return false; /* the last one is the row itself */
  for (int64_t k = 0; k < combinations; k++) of_sum[combination_at(edit, row, fields, count, k)]++;
  while (step >= of_sum[sum]) step -= of_sum[sum++];
  for (int64_t k = 0; step >= 0; k++) step -= combination_at(edit, row, fields, count, k) == sum;
  *usable = true;
  return true;
}

/* Fills the edit of a pass's step; returns as `own` does. */
static bool fill_edit(struct sf_edit *edit, bool *usable, const int64_t *row, const struct sf_table *table, int pass, int64_t step) {
  const struct sf_shrink_pass *at = &table->kind->passes[pass];
  int32_t fields[SF_SPACE_FIELDS_MAX];
  if (at->kind == SF_PASS_OWN) return at->own(edit, usable, row, step);
  const int32_t count = table->kind->pass_fields(fields, table, row, at->fields);
  if (at->kind == SF_PASS_GROUPS) return reset_groups(edit, usable, fields, count, step);
  if (at->kind == SF_PASS_COMBINATIONS) return combine(edit, usable, row, fields, count, step);
  if (at->kind != SF_PASS_RESET) return lower(edit, usable, row, table, fields, count, step, at->kind == SF_PASS_LOWER_SIZES);
  for (int32_t i = 0; i < count; i++) edit->kind[fields[i]] = SF_EDIT_RESET;
  *usable = count > 0;
  return step == 0;
}

/* The case that an edit makes of `in`; false when there is none, or it is no simpler. */
static bool apply(const struct sf_table *table, struct sf_case *out, const struct sf_case *in, const int64_t *row, struct sf_edit *edit) {
  int64_t edited[SF_SPACE_FIELDS_MAX];
  sf_edit_follow(edit, row, table);
  if (!sf_table_edit(edited, row, table, edit) || !table->kind->is_simpler(table, edited, row)) return false;
  return sf_table_case(out, table, edited, in);
}

bool sf_shrink_without(const struct sf_table *table, struct sf_case *out, const struct sf_case *c, const struct sf_case *trigger) {
  struct sf_edit edit = {{0}, {0}};
  int64_t row[SF_SPACE_FIELDS_MAX], needed[SF_SPACE_FIELDS_MAX];
  if (!table->kind->of_case(row, table, c) || !table->kind->of_case(needed, table, trigger)) return false;
  for (int32_t i = 0; i < table->field_count; i++)
    if (needed[i] > 0 && !sf_table_has(table, i, SF_TRAIT_NUMBER)) edit.kind[i] = SF_EDIT_RESET;
  return apply(table, out, c, row, &edit);
}

bool sf_shrink_candidate(const struct sf_table *table, struct sf_case *out, bool *usable, const struct sf_case *in, int pass,
                         int64_t step) {
  struct sf_edit edit = {{0}, {0}};
  int64_t row[SF_SPACE_FIELDS_MAX];
  bool is_useful = false;
  SF_ASSERT_LE(0, step);
  *usable = false;
  const int64_t tries = table->kind->passes[pass].reseeds ? table->tries : 1, again = step % tries;
  if (!table->kind->of_case(row, table, in) || !fill_edit(&edit, &is_useful, row, table, pass, step / tries)) return false;
  if (!is_useful) return true;
  if (again > 0) sf_edit_assign(&edit, table->seed, again - 1);
  *usable = apply(table, out, in, row, &edit);
  return true;
}

/* --- the loop ----------------------------------------------------------------------------------------------------- */

struct shrinking {
  const struct sf_table *table;
  bool (*still_fails)(void *ctx, const struct sf_case *c);
  void *ctx;
  int64_t budget;
  struct sf_case current; /* the smallest failing case so far */
  struct sf_shrink_report report;
  uint64_t *tried; /* open addressing, 0 = free; keys of every case that was given */
  size_t slot_count, tried_count;
};

static uint64_t case_key(const struct sf_case *c) {
  uint64_t hash = sf_hash_string(sf_hash_string(1, c->operation), c->fields);
  for (int i = 0; i < sf_case_field_count; i++) {
    const struct sf_field *field = &sf_case_fields[i];
    if (field->type == SF_FIELD_TEXT)
      hash = sf_hash_string(hash, (const char *)c + field->offset);
    else
      hash = sf_hash_u64(hash, (uint64_t)sf_case_field_get(c, field));
  }
  return hash == 0 ? 1 : hash;
}

/* The slot that holds key, or the free one where it belongs. */
static uint64_t *find_slot(uint64_t *slots, size_t slot_count, uint64_t key) {
  size_t at = (size_t)key & (slot_count - 1);
  while (slots[at] != 0 && slots[at] != key) at = (at + 1) & (slot_count - 1);
  return &slots[at];
}

static bool grow(struct shrinking *s) {
  const size_t slot_count = s->slot_count == 0 ? 256 : 2 * s->slot_count;
  uint64_t *slots = sf_alloc(slot_count * sizeof *slots);
  if (slots == NULL) return false;
  for (size_t i = 0; i < s->slot_count; i++)
    if (s->tried[i] != 0) *find_slot(slots, slot_count, s->tried[i]) = s->tried[i];
  sf_free(s->tried);
  s->tried = slots;
  s->slot_count = slot_count;
  return true;
}

/* Notes the case. *is_new: it was not noted before. Where there is no memory for more slots, those at hand are filled but for one. */
static enum sf_status note_tried(struct shrinking *s, bool *is_new, const struct sf_case *c) {
  const uint64_t key = case_key(c);
  if (2 * (s->tried_count + 1) > s->slot_count && !grow(s) && s->tried_count + 1 >= s->slot_count) return SF_ENOMEM;
  uint64_t *slot = find_slot(s->tried, s->slot_count, key);
  *is_new = *slot != key;
  s->tried_count += *is_new;
  *slot = key;
  return SF_OK;
}

/* Tries the steps of a pass, one after the other. SF_ECANCELLED: the budget is spent, and there is more to try. */
static enum sf_status run_pass(struct shrinking *s, int pass) {
  struct sf_case candidate;
  bool usable;
  for (int64_t step = 0; sf_shrink_candidate(s->table, &candidate, &usable, &s->current, pass, step);) {
    bool is_new = false;
    const enum sf_status status = usable ? note_tried(s, &is_new, &candidate) : SF_OK;
    if (status != SF_OK) return status;
    if (is_new && s->report.evaluations == s->budget) return SF_ECANCELLED;
    s->report.evaluations += is_new;
    if (is_new && s->still_fails(s->ctx, &candidate)) {
      /* Tries the same step again, which may go further on the smaller case. */
      s->current = candidate;
      s->report.accepted++;
    } else {
      step++;
    }
  }
  return SF_OK;
}

enum sf_status sf_shrink_run(struct sf_case *out, const struct sf_case *in, const struct sf_table *table,
                             bool (*still_fails)(void *ctx, const struct sf_case *c), void *ctx, int64_t budget,
                             struct sf_shrink_report *report) {
  struct shrinking s = {.table = table, .still_fails = still_fails, .ctx = ctx, .budget = budget, .current = *in};
  bool is_new;
  int64_t before = -1;
  enum sf_status status = sf_case_validate(in, NULL);
  if (status == SF_OK) status = note_tried(&s, &is_new, in);
  while (status == SF_OK && s.report.accepted > before) {
    before = s.report.accepted;
    for (int pass = 0; status == SF_OK && table->kind->passes[pass].kind != SF_PASS_END; pass++) status = run_pass(&s, pass);
  }
  s.report.minimal = status == SF_OK;
  sf_free(s.tried);
  if (status != SF_OK && status != SF_ECANCELLED) return status;
  *out = s.current;
  if (report != NULL) *report = s.report;
  return SF_OK;
}
