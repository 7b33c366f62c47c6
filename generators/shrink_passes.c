/* How cases of the built-in layers shrink. Passes are pure functions of (row, step). */
#include "generators/codec_internal.h"

#include "harness/base/assert.h"

#include <string.h>

enum { AXIS_COUNT = 4, SECOND_MAX = 1 << 20 };
static const enum sf_case_field axes[AXIS_COUNT] = {SF_CASE_PP, SF_CASE_DP, SF_CASE_CP, SF_CASE_TP};

#define COUNT(array) ((int64_t)(sizeof(array) / sizeof(array)[0]))

/* How a field becomes plainer: a size or a count by a smaller number, a choice by its plainest value. */
enum manner { BY_CHOICE, BY_SIZE, BY_COUNT, BY_PASS };
static enum manner manner_of(enum sf_case_field field) {
  static const enum manner manners[] = {
      [SF_KIND_OF_CHOICE] = BY_CHOICE, [SF_KIND_OF_FEATURE] = BY_CHOICE, [SF_KIND_OF_COUNT] = BY_COUNT, [SF_KIND_OF_RARE_COUNT] = BY_COUNT,
      [SF_KIND_OF_SIZE] = BY_SIZE,     [SF_KIND_OF_AXIS] = BY_PASS,      [SF_KIND_OF_NUMBER] = BY_PASS,
  };
  return sf_layout_is_second(field) ? BY_PASS : manners[sf_field_kind(field)];
}

/* The second layout obeys the same rules as the first and has as many ranks, so any of its fields may have to follow any edit. Fields that
 * are equal in both layouts stay equal. Axis sizes are the exception: they follow from the number of ranks, and a bug may need them to
 * differ. */
void sf_layers_follow(struct sf_edit *edit, const int64_t *row) {
  bool is_edited = false;
  for (int i = 0; i < SF_CASE_SCHEDULE; i++) is_edited = is_edited || edit->kind[i] != SF_EDIT_KEEP;
  for (int i = SF_CASE_RELOAD_AFTER; i <= SF_CASE_SECOND_OVERLAP && is_edited; i++) {
    const enum sf_case_field field = (enum sf_case_field)i, first = sf_layout_first(field);
    if (edit->kind[i] != SF_EDIT_KEEP) continue;
    edit->kind[i] = SF_EDIT_PREFER;
    if (!sf_layout_is_second(field) || row[SF_CASE_RELOAD_AFTER] == 0 || edit->kind[first] == SF_EDIT_KEEP) continue;
    if (sf_field_kind(first) == SF_KIND_OF_AXIS || row[field] != row[first]) continue;
    edit->kind[i] = edit->kind[first];
    edit->value[i] = edit->value[first];
  }
}

/* --- how simple ---------------------------------------------------------------------------------------------------- */

/* 0 for the simplest value of a field; larger for values that make a case harder to read. */
static int64_t complexity(const int64_t *row, enum sf_case_field field) {
  const int64_t value = row[field];
  if (field == SF_CASE_KV_HEADS) return row[SF_CASE_HEADS] / row[SF_CASE_KV_HEADS] - 1;
  if (field == SF_CASE_VOCAB_PADDED) return row[SF_CASE_VOCAB_PADDED] - row[SF_CASE_VOCAB];
  if (field == SF_CASE_FROZEN) return __builtin_popcountll((uint64_t)value) * (SF_FROZEN_ALL + 1) + value;
  if (field == SF_CASE_ORDER) return value;
  /* A second layout is the simpler, the more of it equals the first; without reloading it counts nothing. */
  if (sf_layout_is_second(field))
    return row[SF_CASE_RELOAD_AFTER] == 0 || value == row[sf_layout_first(field)] ? 0 : 1 + (value > SECOND_MAX ? SECOND_MAX : value);
  if (manner_of(field) == BY_CHOICE) return sf_domain_rank(field, value);
  const int64_t least = sf_case_fields[field].smallest;
  return value >= least ? value - least : least - value;
}

static int64_t ranks_of(const int64_t *row) { return row[SF_CASE_TP] * row[SF_CASE_CP] * row[SF_CASE_DP] * row[SF_CASE_PP]; }

bool sf_layers_is_simpler(const struct sf_table *table, const int64_t *a, const int64_t *b) {
  int64_t plain_a = 0, plain_b = 0, sum_a = 0, sum_b = 0;
  int first_difference = 0;
  if (ranks_of(a) != ranks_of(b)) return ranks_of(a) < ranks_of(b);
  if (a[SF_CASE_LAYERS] != b[SF_CASE_LAYERS]) return a[SF_CASE_LAYERS] < b[SF_CASE_LAYERS];
  for (int i = 0; i < SF_CASE_DRAWN; i++) {
    const enum sf_case_field field = (enum sf_case_field)i;
    const bool number = sf_table_has(table, field, SF_TRAIT_NUMBER);
    const int64_t x = complexity(a, field), y = complexity(b, field);
    plain_a += x > 0, plain_b += y > 0;
    /* A larger seed is not harder to read, and would outweigh the sizes. */
    sum_a += number ? 0 : x, sum_b += number ? 0 : y;
    if (first_difference == 0 && x != y) first_difference = x < y ? -1 : 1;
  }
  if (plain_a != plain_b) return plain_a < plain_b;
  if (sum_a != sum_b) return sum_a < sum_b;
  return first_difference < 0;
}

/* --- passes -------------------------------------------------------------------------------------------------------- */

/* Step 0: drop the reload; 1: drop it, and make the second layout the only one; 2: make both layouts the same; 3..: set one field of the
 * second layout to the first one's value, whatever the other fields become. */
static bool pass_reload(struct sf_edit *edit, bool *usable, const int64_t *row, int64_t step) {
  const int64_t count = SF_CASE_SECOND_OVERLAP - SF_CASE_SECOND_TP + 1;
  if (step >= 3 + count) return false;
  *usable = row[SF_CASE_RELOAD_AFTER] > 0;
  for (int64_t i = 0; i < count; i++) {
    const enum sf_case_field field = (enum sf_case_field)(SF_CASE_SECOND_TP + i), first = sf_layout_first(field);
    if (step <= 1) edit->kind[field] = SF_EDIT_RESET;
    if (step == 1) sf_edit_assign(edit, first, row[field]);
    if (step == 2 || step == 3 + i) sf_edit_assign(edit, field, row[first]);
  }
  if (step <= 1) edit->kind[SF_CASE_RELOAD_AFTER] = SF_EDIT_RESET;
  return true;
}

/* All axes but one to 1 (steps 0-2), one axis to 1 (3-5), to half (6-8), to one less (9-11). */
static bool pass_axes(struct sf_edit *edit, bool *usable, const int64_t *row, int64_t step) {
  const int64_t how = step / AXIS_COUNT;
  const enum sf_case_field axis = axes[step % AXIS_COUNT];
  const int64_t size = row[axis];
  if (how > 3) return false;
  for (int i = 0; i < AXIS_COUNT && how == 0; i++)
    if (axes[i] != axis) sf_edit_assign(edit, axes[i], 1);
  if (how == 1) sf_edit_assign(edit, axis, 1);
  if (how == 2) sf_edit_assign(edit, axis, size / 2);
  if (how == 3) sf_edit_assign(edit, axis, size - 1);
  *usable = how == 0 || (how == 1 && size > 1) || (how == 2 && size > 3) || (how == 3 && size > 2);
  return true;
}

/* Lowers two fields that a bug may tie to each other (as many microbatches as ranks, fewer key/value heads than ranks), both to half (even
 * steps) or by one (odd steps). */
static bool pass_pairs(struct sf_edit *edit, bool *usable, const int64_t *row, int64_t step) {
  static const enum sf_case_field pairs[][2] = {
      {SF_CASE_TP, SF_CASE_KV_HEADS},      {SF_CASE_TP, SF_CASE_HEADS},         {SF_CASE_DP, SF_CASE_MICROBATCHES},
      {SF_CASE_CP, SF_CASE_CP_COMM},       {SF_CASE_CP, SF_CASE_SEQ},           {SF_CASE_CP, SF_CASE_HEADS},
      {SF_CASE_CP, SF_CASE_KV_HEADS},      {SF_CASE_CP_COMM, SF_CASE_KV_HEADS}, {SF_CASE_PP, SF_CASE_LAYERS},
      {SF_CASE_LAYERS, SF_CASE_RECOMPUTE}, {SF_CASE_PP, SF_CASE_MICROBATCHES},
  };
  if (step >= 2 * COUNT(pairs)) return false;
  *usable = true;
  for (int i = 0; i < 2; i++) {
    const enum sf_case_field field = pairs[step / 2][i];
    const int64_t value = row[field];
    sf_edit_assign(edit, field, step % 2 == 0 ? value / 2 : value - 1);
    if (value < 2) *usable = false;
  }
  return true;
}

static int64_t exchanged_order(const int64_t *row) {
  char order[SF_ORDER_TEXT];
  sf_order_text(order, row[SF_CASE_ORDER]);
  char *pp = strstr(order, "pp"), *dp = strstr(order, "dp");
  SF_ASSERT(pp != NULL && dp != NULL);
  *pp = 'd';
  *dp = 'p';
  return sf_order_number(order);
}

/* Turns stages into data-parallel ranks, which need no layers: a bug that needs a second axis may not care which one. Step 1 also exchanges
 * the two in the rank order. */
static bool pass_exchange(struct sf_edit *edit, bool *usable, const int64_t *row, int64_t step) {
  const int64_t ranks = row[SF_CASE_DP] * row[SF_CASE_PP];
  if (step > 1) return false;
  sf_edit_assign(edit, SF_CASE_PP, 1);
  sf_edit_assign(edit, SF_CASE_DP, ranks);
  sf_edit_assign(edit, SF_CASE_LAYERS, row[SF_CASE_LAYERS] / row[SF_CASE_PP]);
  sf_edit_assign(edit, SF_CASE_MICROBATCHES, row[SF_CASE_MICROBATCHES] > ranks ? row[SF_CASE_MICROBATCHES] : ranks);
  if (step == 1) sf_edit_assign(edit, SF_CASE_ORDER, exchanged_order(row));
  *usable = row[SF_CASE_PP] > 1;
  return true;
}

/* Lowers ranks or layers, and changes data so that the bug may show again. A smaller world may need a token elsewhere; a smaller model may
 * need harder clipping, or smaller buckets to have as many. Other steps try other numbers, or another order of messages. */
static bool pass_other_data(struct sf_edit *edit, bool *usable, const int64_t *row, int64_t step) {
  static const enum sf_case_field fields[] = {SF_CASE_TP, SF_CASE_DP, SF_CASE_CP, SF_CASE_PP, SF_CASE_LAYERS};
  enum { EDGE, CLIPPED, BUCKETS, SEEDS, SCHEDULES = SEEDS + 4, DATA_KINDS = SCHEDULES + 2 };
  if (step >= COUNT(fields) * DATA_KINDS) return false;
  const enum sf_case_field field = fields[step / DATA_KINDS];
  const int64_t size = row[field], kind = step % DATA_KINDS;
  sf_edit_assign(edit, field, size - size / 2);
  if (kind == EDGE) sf_edit_assign(edit, SF_CASE_TOKENS, SF_TOKENS_EDGE);
  if (kind == CLIPPED) sf_edit_assign(edit, SF_CASE_CLIP, 1);
  if (kind == BUCKETS) sf_edit_assign(edit, SF_CASE_BUCKET, 16);
  if (kind >= SEEDS && kind < SCHEDULES) sf_edit_assign(edit, SF_CASE_SEED, row[SF_CASE_SEED] + kind - SEEDS + 1);
  if (kind >= SCHEDULES) sf_edit_assign(edit, SF_CASE_SCHEDULE, row[SF_CASE_SCHEDULE] + kind - SCHEDULES + 1);
  const bool clips = kind != CLIPPED || row[SF_CASE_CLIP] > 1, has_shards = kind != BUCKETS || row[SF_CASE_ZERO] > 0;
  *usable = size > 1 && clips && has_shards && row[SF_CASE_SEED] < INT64_MAX - DATA_KINDS && row[SF_CASE_SCHEDULE] < INT64_MAX - DATA_KINDS;
  return true;
}

/* --- fields of the common passes ---------------------------------------------------------------------------------- */

/* Those with this manner. Those that are drawn last come first: a layout becomes plainer before the model that it lays out. */
static int32_t fields_by(int32_t *out, enum manner manner) {
  int32_t count = 0;
  for (int32_t i = SF_CASE_DRAWN - 1; i >= 0; i--)
    if (manner_of((enum sf_case_field)i) == manner) out[count++] = i;
  return count;
}

/* Fields, apart from the axes, that are not at their simplest; those with the least weight come first. */
static int32_t complex_fields(int32_t *out, const int64_t *row) {
  int32_t all[SF_CASE_DRAWN], count = 0;
  int32_t listed = fields_by(all, BY_CHOICE);
  listed += fields_by(all + listed, BY_SIZE);
  listed += fields_by(all + listed, BY_COUNT);
  for (int32_t i = 0; i < listed; i++)
    if (complexity(row, (enum sf_case_field)all[i]) > 0) out[count++] = all[i];
  return count;
}

enum { COMPLEX = BY_PASS + 1, ALL_BUT_SEED, SCHEDULE, SEED };

int32_t sf_layers_pass_fields(int32_t *out, const struct sf_table *table, const int64_t *row, int32_t which) {
  (void)table;
  if (which == COMPLEX) return complex_fields(out, row);
  if (which < BY_PASS) return fields_by(out, (enum manner)which);
  int32_t count = 0;
  for (int32_t i = 0; i < SF_CASE_DRAWN; i++) {
    const bool is_single = i == (which == SCHEDULE ? SF_CASE_SCHEDULE : SF_CASE_SEED);
    if (which == ALL_BUT_SEED ? !is_single : is_single && row[i] != 0) out[count++] = i;
  }
  return count;
}

const struct sf_shrink_pass sf_layers_passes[] = {{SF_PASS_RESET, .fields = SCHEDULE},
                                                  {SF_PASS_OWN, .own = pass_reload},
                                                  {SF_PASS_RESET, .fields = ALL_BUT_SEED},
                                                  {SF_PASS_OWN, .own = pass_axes},
                                                  {SF_PASS_OWN, .own = pass_pairs},
                                                  {SF_PASS_OWN, .own = pass_exchange},
                                                  {SF_PASS_GROUPS, .fields = COMPLEX},
                                                  {SF_PASS_OWN, .own = pass_other_data},
                                                  {SF_PASS_LOWER_SIZES, .fields = BY_COUNT},
                                                  {SF_PASS_LOWER_SIZES, .fields = BY_SIZE},
                                                  {SF_PASS_LOWER_CHOICES, .fields = BY_CHOICE},
                                                  {SF_PASS_RESET, .fields = SEED},
                                                  {SF_PASS_END}};
