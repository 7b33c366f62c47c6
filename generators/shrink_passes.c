/* The passes of the shrinker: pure functions of (case, step). */
#include "generators/codec_internal.h"
#include "generators/shrink.h"

#include "harness/base/assert.h"

#include <stdio.h>
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

/* The fields with this manner. Those that are drawn last come first: a layout becomes plainer before the model that it lays out. */
static int32_t fields_of(enum sf_case_field *out, enum manner manner) {
  int32_t count = 0;
  for (int i = SF_CASE_DRAWN - 1; i >= 0; i--)
    if (manner_of((enum sf_case_field)i) == manner) out[count++] = (enum sf_case_field)i;
  return count;
}

static void assign(struct sf_edit *edit, enum sf_case_field field, int64_t value) {
  edit->kind[field] = SF_EDIT_ASSIGN;
  edit->value[field] = value;
}

static bool is_axis(enum sf_case_field field) {
  for (int i = 0; i < AXIS_COUNT; i++)
    if (axes[i] == field) return true;
  return false;
}

/* The second layout obeys the same rules as the first and has as many ranks, so any of its fields may have to follow any edit. Fields that
 * are equal in both layouts stay equal. Axis sizes are the exception: they follow from the number of ranks, and a bug may need them to
 * differ. */
static void let_second_follow(struct sf_edit *edit, const struct sf_case *c) {
  bool is_edited = false;
  for (int i = 0; i < SF_CASE_SCHEDULE; i++) is_edited = is_edited || edit->kind[i] != SF_EDIT_KEEP;
  for (int i = SF_CASE_RELOAD_AFTER; i <= SF_CASE_SECOND_OVERLAP && is_edited; i++) {
    const enum sf_case_field field = (enum sf_case_field)i, first = sf_layout_first(field);
    if (edit->kind[i] != SF_EDIT_KEEP) continue;
    edit->kind[i] = SF_EDIT_PREFER;
    if (!sf_layout_is_second(field) || c->reload.after_step == 0 || edit->kind[first] == SF_EDIT_KEEP) continue;
    if (is_axis(first) || sf_drawn_get(c, field) != sf_drawn_get(c, first)) continue;
    edit->kind[i] = edit->kind[first];
    edit->value[i] = edit->value[first];
  }
}

/* Lets fields follow an edited field if a rule ties them to it. Axes do not follow: their passes say which of them change. */
static void let_follow(struct sf_edit *edit, const struct sf_case *c) {
  const struct sf_rules *rules = sf_case_rules();
  let_second_follow(edit, c);
  const struct sf_edit before = *edit;
  for (int from = 0; from < SF_CASE_DRAWN; from++) {
    if (before.kind[from] == SF_EDIT_KEEP) continue;
    for (int to = 0; to < SF_CASE_DRAWN; to++)
      if (edit->kind[to] == SF_EDIT_KEEP && !is_axis((enum sf_case_field)to) && sf_rules_follow(rules, from, to))
        edit->kind[to] = SF_EDIT_PREFER;
  }
}

/* --- how simple ---------------------------------------------------------------------------------------------------- */

/* 0 for the simplest value of a field; larger for values that make a case harder to read. */
static int64_t complexity(const struct sf_case *c, enum sf_case_field field) {
  const int64_t value = sf_drawn_get(c, field);
  if (field == SF_CASE_KV_HEADS) return c->model.heads / c->model.kv_heads - 1;
  if (field == SF_CASE_VOCAB_PADDED) return c->model.vocab_padded - c->model.vocab;
  if (field == SF_CASE_FROZEN) return __builtin_popcountll((uint64_t)value) * (SF_FROZEN_ALL + 1) + value;
  if (field == SF_CASE_ORDER) return value;
  /* A second layout is the simpler, the more of it equals the first; without reloading it counts nothing. */
  if (sf_layout_is_second(field))
    return c->reload.after_step == 0 || value == sf_drawn_get(c, sf_layout_first(field)) ? 0
                                                                                         : 1 + (value > SECOND_MAX ? SECOND_MAX : value);
  if (manner_of(field) == BY_CHOICE) return sf_domain_rank(field, value);
  const int64_t least = sf_case_fields[field].smallest;
  return value >= least ? value - least : least - value;
}

bool sf_shrink_is_simpler(const struct sf_case *a, const struct sf_case *b) {
  int64_t plain_a = 0, plain_b = 0, sum_a = 0, sum_b = 0;
  int first_difference = 0;
  if (sf_case_ranks(a) != sf_case_ranks(b)) return sf_case_ranks(a) < sf_case_ranks(b);
  if (a->model.layers != b->model.layers) return a->model.layers < b->model.layers;
  for (int i = 0; i < SF_CASE_DRAWN; i++) {
    const enum sf_case_field field = (enum sf_case_field)i;
    const bool number = sf_field_is_number(field);
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

/* --- single fields ------------------------------------------------------------------------------------------------- */

/* Values of a field that are simpler than the case's, simplest first, if only the fields that follow it may change. */
static int32_t simpler_values(int64_t values[SF_DOMAIN_MAX], const struct sf_case *c, const struct sf_space *space,
                              enum sf_case_field field, bool is_size) {
  struct sf_edit edit = {0};
  struct sf_domain domain;
  struct sf_bounds bounds;
  const int64_t current = sf_drawn_get(c, field);
  edit.kind[field] = SF_EDIT_RESET;
  let_follow(&edit, c);
  sf_bounds_init_around(&bounds, space, c);
  for (int i = 0; i < SF_CASE_DRAWN; i++)
    if (edit.kind[i] == SF_EDIT_KEEP) bounds.at[i].lo = bounds.at[i].hi = sf_drawn_get(c, (enum sf_case_field)i);
  (void)sf_bounds_solve(&bounds);
  sf_domain_create(&domain, field, c, 0, &bounds, sf_space_asks(space, field));
  int32_t count = 0;
  for (int32_t i = 0; i < domain.count; i++) {
    if (domain.values[i] == current) break;
    if (!is_size || domain.values[i] < current) values[count++] = domain.values[i];
  }
  return count;
}

enum { LOWER_STEPS = 4 };

/* Steps 0 to 3 of a field: its simplest value, half way to it, one less, the second simplest (for a choice often "on", where the simplest
 * is "off"). */
static bool lower_place(struct sf_edit *edit, const struct sf_case *c, const struct sf_space *space, enum sf_case_field field, int64_t how,
                        bool is_size) {
  int64_t values[SF_DOMAIN_MAX];
  const int32_t count = simpler_values(values, c, space, field, is_size);
  const int32_t half = count / 2, last = count - 1;
  const int32_t at = how == 0 ? 0 : how == 1 ? half : how == 2 ? last : 1;
  if (count == 0 || (how == 1 && (half == 0 || half == last)) || (how == 2 && last == 0)) return false;
  if (how == 3 && (is_size || last <= 1 || half == 1)) return false;
  assign(edit, field, values[at]);
  return true;
}

/* --- passes -------------------------------------------------------------------------------------------------------- */

/* Each pass fills *edit with its step. *usable: false when this step does nothing. Returns false when there is no such step. */
typedef bool pass_function(struct sf_edit *edit, bool *usable, const struct sf_case *c, const struct sf_space *space, int64_t step);

static bool pass_schedule(struct sf_edit *edit, bool *usable, const struct sf_case *c, const struct sf_space *space, int64_t step) {
  (void)space;
  edit->kind[SF_CASE_SCHEDULE] = SF_EDIT_RESET;
  *usable = c->schedule != 0;
  return step == 0;
}

/* Step 0: drop the reload; 1: drop it, and make the second layout the only one; 2: make both layouts the same; 3..: set one field of the
 * second layout to the first one's value, whatever the other fields become. */
static bool pass_reload(struct sf_edit *edit, bool *usable, const struct sf_case *c, const struct sf_space *space, int64_t step) {
  (void)space;
  const int64_t count = SF_CASE_SECOND_OVERLAP - SF_CASE_SECOND_TP + 1;
  if (step >= 3 + count) return false;
  *usable = c->reload.after_step > 0;
  for (int64_t i = 0; i < count; i++) {
    const enum sf_case_field field = (enum sf_case_field)(SF_CASE_SECOND_TP + i), first = sf_layout_first(field);
    if (step <= 1) edit->kind[field] = SF_EDIT_RESET;
    if (step == 1) assign(edit, first, sf_drawn_get(c, field));
    if (step == 2 || step == 3 + i) assign(edit, field, sf_drawn_get(c, first));
  }
  if (step <= 1) edit->kind[SF_CASE_RELOAD_AFTER] = SF_EDIT_RESET;
  return true;
}

static bool pass_smallest(struct sf_edit *edit, bool *usable, const struct sf_case *c, const struct sf_space *space, int64_t step) {
  (void)c, (void)space;
  for (int i = 0; i < SF_CASE_DRAWN; i++)
    if (i != SF_CASE_SEED) edit->kind[i] = SF_EDIT_RESET;
  *usable = true;
  return step == 0;
}

/* All axes but one to 1 (steps 0-2), one axis to 1 (3-5), to half (6-8), to one less (9-11). */
static bool pass_axes(struct sf_edit *edit, bool *usable, const struct sf_case *c, const struct sf_space *space, int64_t step) {
  (void)space;
  const int64_t how = step / AXIS_COUNT;
  const enum sf_case_field axis = axes[step % AXIS_COUNT];
  const int64_t size = sf_drawn_get(c, axis);
  if (how > 3) return false;
  for (int i = 0; i < AXIS_COUNT && how == 0; i++)
    if (axes[i] != axis) assign(edit, axes[i], 1);
  if (how == 1) assign(edit, axis, 1);
  if (how == 2) assign(edit, axis, size / 2);
  if (how == 3) assign(edit, axis, size - 1);
  *usable = how == 0 || (how == 1 && size > 1) || (how == 2 && size > 3) || (how == 3 && size > 2);
  return true;
}

/* Lowers two fields that a bug may tie to each other (as many microbatches as ranks, fewer key/value heads than ranks), both to half (even
 * steps) or by one (odd steps). */
static bool pass_pairs(struct sf_edit *edit, bool *usable, const struct sf_case *c, const struct sf_space *space, int64_t step) {
  (void)space;
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
    const int64_t value = sf_drawn_get(c, field);
    assign(edit, field, step % 2 == 0 ? value / 2 : value - 1);
    if (value < 2) *usable = false;
  }
  return true;
}

static int64_t exchanged_order(const struct sf_case *c) {
  char order[SF_ORDER_TEXT];
  snprintf(order, sizeof order, "%s", c->layout.order);
  char *pp = strstr(order, "pp"), *dp = strstr(order, "dp");
  SF_ASSERT(pp != NULL && dp != NULL);
  *pp = 'd';
  *dp = 'p';
  return sf_order_number(order);
}

/* Turns stages into data-parallel ranks, which need no layers: a bug that needs a second axis may not care which one. Step 1 also exchanges
 * the two in the rank order. */
static bool pass_exchange(struct sf_edit *edit, bool *usable, const struct sf_case *c, const struct sf_space *space, int64_t step) {
  const int64_t ranks = c->layout.dp * c->layout.pp;
  (void)space;
  if (step > 1) return false;
  assign(edit, SF_CASE_PP, 1);
  assign(edit, SF_CASE_DP, ranks);
  assign(edit, SF_CASE_LAYERS, c->model.layers / c->layout.pp);
  assign(edit, SF_CASE_MICROBATCHES, c->train.microbatches > ranks ? c->train.microbatches : ranks);
  if (step == 1) assign(edit, SF_CASE_ORDER, exchanged_order(c));
  *usable = c->layout.pp > 1;
  return true;
}

/* Lowers ranks or layers, and changes data so that the bug may show again. A smaller world may need a token elsewhere; a smaller model may
 * need harder clipping, or smaller buckets to have as many. Other steps try other numbers, or another order of messages. */
static bool pass_other_data(struct sf_edit *edit, bool *usable, const struct sf_case *c, const struct sf_space *space, int64_t step) {
  (void)space;
  static const enum sf_case_field fields[] = {SF_CASE_TP, SF_CASE_DP, SF_CASE_CP, SF_CASE_PP, SF_CASE_LAYERS};
  enum { EDGE, CLIPPED, BUCKETS, SEEDS, SCHEDULES = SEEDS + 4, DATA_KINDS = SCHEDULES + 2 };
  if (step >= COUNT(fields) * DATA_KINDS) return false;
  const enum sf_case_field field = fields[step / DATA_KINDS];
  const int64_t size = sf_drawn_get(c, field), kind = step % DATA_KINDS;
  assign(edit, field, size - size / 2);
  if (kind == EDGE) assign(edit, SF_CASE_TOKENS, SF_TOKENS_EDGE);
  if (kind == CLIPPED) assign(edit, SF_CASE_CLIP, 1);
  if (kind == BUCKETS) assign(edit, SF_CASE_BUCKET, 16);
  if (kind >= SEEDS && kind < SCHEDULES) assign(edit, SF_CASE_SEED, c->seed + kind - SEEDS + 1);
  if (kind >= SCHEDULES) assign(edit, SF_CASE_SCHEDULE, c->schedule + kind - SCHEDULES + 1);
  const bool clips = kind != CLIPPED || c->train.clip_milli > 1, has_shards = kind != BUCKETS || c->layout.zero > 0;
  *usable = size > 1 && clips && has_shards && c->seed < INT64_MAX - DATA_KINDS && c->schedule < INT64_MAX - DATA_KINDS;
  return true;
}

/* Fields, apart from the axes, that are not at their simplest; those with the least weight come first. */
static int32_t list_complex(enum sf_case_field *list, const struct sf_case *c, const struct sf_space *space) {
  (void)space;
  static const enum manner lightest_first[] = {BY_CHOICE, BY_SIZE, BY_COUNT};
  enum sf_case_field fields[SF_CASE_DRAWN];
  int32_t count = 0;
  for (int m = 0; m < 3; m++) {
    const int32_t places_count = fields_of(fields, lightest_first[m]);
    for (int32_t i = 0; i < places_count; i++)
      if (complexity(c, fields[i]) > 0) list[count++] = fields[i];
  }
  return count;
}

/* Delta debugging: resets all complex fields (step 0), each half (1-2), each quarter (3-6), ... each single field. */
static bool pass_groups(struct sf_edit *edit, bool *usable, const struct sf_case *c, const struct sf_space *space, int64_t step) {
  enum sf_case_field list[SF_CASE_DRAWN];
  const int64_t count = list_complex(list, c, space);
  int64_t chunks = 1, first = 0;
  while (step >= first + chunks) {
    if (chunks >= count) return false;
    first += chunks;
    chunks *= 2;
  }
  const int64_t chunk = step - first, begin = chunk * count / chunks, end = (chunk + 1) * count / chunks;
  for (int64_t i = begin; i < end; i++) edit->kind[list[i]] = SF_EDIT_RESET;
  *usable = begin < end;
  return true;
}

static bool pass_places(struct sf_edit *edit, bool *usable, const struct sf_case *c, const struct sf_space *space, int64_t step,
                        enum manner manner) {
  enum sf_case_field fields[SF_CASE_DRAWN];
  if (step >= LOWER_STEPS * fields_of(fields, manner)) return false;
  *usable = lower_place(edit, c, space, fields[step / LOWER_STEPS], step % LOWER_STEPS, manner != BY_CHOICE);
  return true;
}

static bool pass_counts(struct sf_edit *edit, bool *usable, const struct sf_case *c, const struct sf_space *space, int64_t step) {
  return pass_places(edit, usable, c, space, step, BY_COUNT);
}

static bool pass_sizes(struct sf_edit *edit, bool *usable, const struct sf_case *c, const struct sf_space *space, int64_t step) {
  return pass_places(edit, usable, c, space, step, BY_SIZE);
}

static bool pass_features(struct sf_edit *edit, bool *usable, const struct sf_case *c, const struct sf_space *space, int64_t step) {
  return pass_places(edit, usable, c, space, step, BY_CHOICE);
}

static bool pass_seed(struct sf_edit *edit, bool *usable, const struct sf_case *c, const struct sf_space *space, int64_t step) {
  (void)space;
  edit->kind[SF_CASE_SEED] = SF_EDIT_RESET;
  *usable = c->seed != 0;
  return step == 0;
}

static pass_function *const passes[] = {pass_schedule, pass_reload,     pass_smallest, pass_axes,  pass_pairs,    pass_exchange,
                                        pass_groups,   pass_other_data, pass_counts,   pass_sizes, pass_features, pass_seed};

static bool candidate(const void *ctx, struct sf_case *out, bool *usable, const struct sf_case *in, int pass, int64_t step) {
  const struct sf_space *space = ctx;
  struct sf_edit edit = {0};
  struct sf_case edited;
  SF_ASSERT(pass >= 0 && pass < (int)COUNT(passes));
  SF_ASSERT_LE(0, step);
  bool useful = false;
  *usable = false;
  if (!passes[pass](&edit, &useful, in, space, step)) return false;
  if (!useful) return true;
  let_follow(&edit, in);
  if (!sf_codec_edit(&edited, in, space, &edit) || !sf_shrink_is_simpler(&edited, in)) return true;
  *out = edited;
  *usable = true;
  return true;
}

struct sf_shrink_passes sf_shrink_passes_of_layers(const struct sf_space *space) {
  return (struct sf_shrink_passes){.count = (int)COUNT(passes), .candidate = candidate, .ctx = space};
}
