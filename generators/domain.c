/* The values that each field of the walk may take, simplest first, and how often a random case takes them. */
#include "generators/codec_internal.h"

#include "harness/base/assert.h"

struct choice {
  int64_t value;
  uint32_t weight;
};

enum { STEPS_USUAL = 3, RELOAD_USUAL = 2, FFN_USUAL = 128, VOCAB_USUAL = 128, SEQ_USUAL = 32 };

/* The rows of the table, each with an empty entry in front, so that no array is empty. */
#define FIELD(name, path, member, type, kind, meaning, ...) static const struct choice name##_CHOICES[] = {{0, 0}, __VA_ARGS__};
#include "harness/spec/fields.def"

static const struct {
  const struct choice *choices;
  int32_t count;
} tables[SF_CASE_DRAWN] = {
#define FIELD(name, ...) {name##_CHOICES + 1, (int32_t)(sizeof name##_CHOICES / sizeof name##_CHOICES[0]) - 1},
#include "harness/spec/fields.def"
};

/* For formats that need no loss scale: how much likelier no scale is than a scale. A scale must change nothing there. The exception is a
 * gradient that is given and overflows: only isolated cases have one, and it takes a scale to skip it. */
enum { UNSCALED_SHARE_E2E = 30, UNSCALED_SHARE_ISOLATED = 10 };

/* Weight, in fifths, of all values but the simplest one of a feature, by the swarm choice. */
static const uint32_t tilts[SF_SWARMS] = {5, 2, 12};

static void add(struct sf_domain *domain, int64_t value, uint32_t weight) {
  SF_ASSERT_LT(domain->count, SF_DOMAIN_MAX);
  domain->values[domain->count] = value;
  domain->weights[domain->count++] = weight;
}

static void tilt_features(struct sf_domain *domain, int64_t swarm) {
  for (int32_t i = 0; i < domain->count; i++) domain->weights[i] *= i == 0 ? 5 : tilts[swarm];
}

/* --- fields whose values are computed -------------------------------------------------------------------------------- */

/* Sizes that suit hardware are drawn most; the others exercise the rules of divisibility. */
static uint32_t size_weight(int64_t value, int64_t common_step) {
  if (value % (2 * common_step) == 0) return value <= 32 ? 24 : 8;
  return value % common_step == 0 ? 8 : 1;
}

static void add_kv_heads(struct sf_domain *domain, int64_t heads) {
  for (int64_t ratio = 1; ratio <= heads && domain->count < SF_DOMAIN_MAX; ratio++)
    if (heads % ratio == 0) add(domain, heads / ratio, ratio == 1 ? 40 : ratio == heads ? 28 : 16);
}

static void add_vocab_padded(struct sf_domain *domain, int64_t vocab) {
  for (int64_t rows = vocab; rows <= (vocab + 63) / 64 * 64; rows++) {
    uint32_t weight = rows == vocab ? (vocab % 8 == 0 ? 40 : 4) : 0;
    for (int64_t multiple = 8; rows > vocab && multiple <= 64; multiple *= 2)
      if (rows == (vocab + multiple - 1) / multiple * multiple) weight += 12;
    add(domain, rows, weight);
  }
}

static int bit_count(int64_t bits) { return __builtin_popcountll((uint64_t)bits); }

static void add_frozen(struct sf_domain *domain) {
  static const uint32_t by_count[7] = {300, 25, 3, 1, 1, 2, 10};
  for (int frozen = 0; frozen <= 6; frozen++)
    for (int64_t bits = 0; bits <= SF_FROZEN_ALL; bits++)
      if (bit_count(bits) == frozen) add(domain, bits, by_count[frozen]);
}

static void add_axis(struct sf_domain *domain, const uint32_t weights[9], const struct sf_bounds *bounds) {
  const int64_t ranks_max = bounds->at[sf_case_row_limit(SF_LIMIT_RANKS)].hi;
  for (int64_t size = 1; size <= ranks_max && domain->count < SF_DOMAIN_MAX; size += size < 64 ? 1 : 8)
    add(domain, size, size <= 8 ? weights[size] : size % 4 == 0 ? 4 : 1);
}

static void add_up_to(struct sf_domain *domain, int64_t last, uint32_t zero_weight, uint32_t weight) {
  add(domain, 0, zero_weight);
  for (int64_t value = 1; value <= last && value < SF_DOMAIN_MAX; value++) add(domain, value, weight);
}

/* Values of computed fields. The second layout's fields have the values of the first one's: `field` is the first one's. */
static void add_computed(struct sf_domain *domain, enum sf_case_field field, const int64_t *row, const struct sf_bounds *bounds) {
  static const uint32_t tp[9] = {0, 30, 36, 6, 26, 1, 3, 1, 8}, pp[9] = {0, 38, 42, 10, 14, 1, 1, 1, 1},
                        dp[9] = {0, 25, 50, 6, 24, 1, 3, 1, 4}, cp[9] = {0, 50, 36, 3, 8, 1, 1, 1, 1};
  switch (field) {
  case SF_CASE_KV_HEADS:
    add_kv_heads(domain, row[SF_CASE_HEADS]);
    break;
  case SF_CASE_VOCAB_PADDED:
    add_vocab_padded(domain, row[SF_CASE_VOCAB]);
    break;
  case SF_CASE_FROZEN:
    add_frozen(domain);
    break;
  case SF_CASE_TP:
    add_axis(domain, tp, bounds);
    break;
  case SF_CASE_PP:
    add_axis(domain, pp, bounds);
    break;
  case SF_CASE_DP:
    add_axis(domain, dp, bounds);
    break;
  case SF_CASE_CP:
    add_axis(domain, cp, bounds);
    break;
  case SF_CASE_RECOMPUTE:
    add_up_to(domain, row[SF_CASE_LAYERS], 45, 20);
    break;
  case SF_CASE_FP8_FIRST:
  case SF_CASE_FP8_LAST:
    add_up_to(domain, row[SF_CASE_LAYERS] - 1, 60, 20);
    break;
  case SF_CASE_PP_FIRST:
  case SF_CASE_PP_LAST:
    add_up_to(domain, row[SF_CASE_LAYERS] - 1, 20, 20);
    break;
  case SF_CASE_ORDER:
    add_up_to(domain, SF_ORDER_COUNT - 1, SF_ORDER_COUNT, 1);
    break;
  case SF_CASE_HIDDEN:
    for (int64_t hidden = 8; hidden <= 64; hidden += 4) add(domain, hidden, size_weight(hidden, 8));
    break;
  case SF_CASE_FFN:
    for (int64_t ffn = 8; ffn <= FFN_USUAL; ffn += 4) add(domain, ffn, size_weight(ffn, 8));
    break;
  case SF_CASE_VOCAB:
    for (int64_t vocab = 8; vocab <= VOCAB_USUAL; vocab++) add(domain, vocab, (vocab % 8 == 0 ? 12 : 1) * (vocab <= 64 ? 2 : 1));
    break;
  case SF_CASE_SEQ:
    for (int64_t seq = 4; seq <= SEQ_USUAL; seq++) add(domain, seq, size_weight(seq, 4));
    break;
  default:
    SF_ASSERT(!"a field of the walk that has no values");
  }
}

/* --- narrowing ------------------------------------------------------------------------------------------------------- */

/* Adds values above those that the generator draws by itself: at most `count`, spread evenly over the range that was asked for. */
static void add_asked_for(struct sf_domain *domain, struct sf_range range, int32_t count) {
  int64_t from = range.lo;
  for (int32_t i = 0; i < domain->count; i++)
    if (domain->values[i] >= from) from = domain->values[i] + 1;
  if (from > range.hi) return;
  const int64_t span = range.hi - from, step = span / (count - 1) > 0 ? span / (count - 1) : 1;
  for (int64_t i = 0; i < count && i <= span / step; i++) add(domain, from + i * step, 4);
}

/* For a field with no usual value that fits: adds the smallest values that do, each with half the weight of the one before. */
static void add_smallest_feasible(struct sf_domain *domain, enum sf_case_field field, struct sf_bounds *bounds) {
  enum { TRIES = 70000, WANTED = 4 };
  const struct sf_range range = bounds->at[field];
  for (int64_t i = 0; i < TRIES && i <= range.hi - range.lo && domain->count < WANTED; i++)
    if (sf_bounds_allow(bounds, field, (struct sf_range){range.lo + i, range.lo + i}))
      add(domain, range.lo + i, UINT32_C(8) >> domain->count);
}

/* Isolated mode gives gradients, which overflow only if the case asks for that. */
static bool may_overflow(const int64_t *row) {
  return row[SF_CASE_OVERFLOW] ||
         (row[SF_CASE_MODE] == SF_MODE_E2E && row[SF_CASE_COMPUTE] == SF_COMPUTE_FP16 && row[SF_CASE_LOSS_SCALE] >= 14);
}

/* --- rare values ----------------------------------------------------------------------------------------------------- */

/* These are not in the table, so no class that has to be covered contains them. Each costs as much as several plain cases, so the rest of
 * such a model is small. */

/* The steps for which something is kept that later steps use: a ring of fp8's amaxes, the count of steps without an overflow; 0: nothing is
 * kept. */
static int64_t steps_kept(const int64_t *row) {
  const int64_t history = row[SF_CASE_FP8_RECIPE] == SF_FP8_DELAYED ? row[SF_CASE_FP8_HISTORY] : 0, window = row[SF_CASE_LOSS_SCALE_WINDOW];
  const int64_t grown_again = window > 0 && may_overflow(row) ? window + 1 : window; /* after a step that overflowed */
  return history > grown_again ? history : grown_again;
}

/* One step more overwrites what is kept for the first time, and the step after that reads it; twice as many do so a second time. */
static void add_many_steps(struct sf_domain *out, const int64_t *row) {
  enum { FIRST = 24, BETWEEN = 1, LAST = 8, COST_MAX = 10240 };
  const int64_t kept = steps_kept(row), first = kept + 2, twice = 2 * (kept + 1), last = twice < SF_STEPS_MAX ? twice : SF_STEPS_MAX;
  const int64_t cost = row[SF_CASE_LAYERS] * row[SF_CASE_HIDDEN] * row[SF_CASE_SEQ];
  if (kept == 0 || row[SF_CASE_MTP_DEPTH] > 0) return;
  for (int64_t steps = first > STEPS_USUAL ? first : STEPS_USUAL + 1; steps <= last && steps * cost <= COST_MAX; steps++)
    add(out, steps, steps == first ? FIRST : steps == twice ? LAST : BETWEEN);
}

static void add_choices(struct sf_domain *out, const struct choice *choices, size_t count) {
  for (size_t i = 0; i < count; i++) add(out, choices[i].value, choices[i].weight);
}

/* Sizes beyond the blocks of 256 that products are computed in: the whole of a dimension, a half of it, or the tokens of a microbatch. */
static void add_wide(struct sf_domain *out, enum sf_case_field field, const int64_t *row) {
  static const struct choice ffn[] = {{264, 5}, {272, 5}, {320, 3}, {520, 3}, {528, 3}},
                             vocab[] = {{257, 4}, {264, 5}, {300, 5}, {320, 5}, {512, 5}, {520, 5}, {523, 4}},
                             seq[] = {{64, 2}, {96, 2}, {130, 4}, {160, 4}, {264, 4}, {288, 4}};
  if (row[SF_CASE_LAYERS] > 2 || row[SF_CASE_HIDDEN] > 16 || row[SF_CASE_MTP_DEPTH] > 0) return;
  if (field == SF_CASE_FFN)
    add_choices(out, ffn, sizeof ffn / sizeof ffn[0]);
  else if (field == SF_CASE_VOCAB && row[SF_CASE_FFN] <= FFN_USUAL)
    add_choices(out, vocab, sizeof vocab / sizeof vocab[0]);
  else if (field == SF_CASE_SEQ && row[SF_CASE_FFN] <= FFN_USUAL && row[SF_CASE_VOCAB] <= VOCAB_USUAL)
    add_choices(out, seq, sizeof seq / sizeof seq[0]);
}

static void add_rare(struct sf_domain *out, enum sf_case_field field, const int64_t *row) {
  if (field == SF_CASE_STEPS) add_many_steps(out, row);
  if (field == SF_CASE_FFN || field == SF_CASE_VOCAB || field == SF_CASE_SEQ) add_wide(out, field, row);
  if (field == SF_CASE_RELOAD_AFTER)
    for (int64_t step = RELOAD_USUAL + 1; step < row[SF_CASE_STEPS]; step++) add(out, step, 4);
}

/* --- leaning --------------------------------------------------------------------------------------------------------- */

/* A long run or sequence has few microbatches. */
static void prefer_few(struct sf_domain *out, const int64_t *row) {
  if (row[SF_CASE_STEPS] <= STEPS_USUAL && row[SF_CASE_SEQ] <= SEQ_USUAL) return;
  for (int32_t i = 0; i < out->count; i++) out->weights[i] = out->values[i] <= 2 ? out->weights[i] : 1;
}

/* What saving may lose is the state that steps have left: scales once they have overwritten each other, a count of steps half way. */
static void prefer_reloads(struct sf_domain *out, const int64_t *row) {
  const int64_t kept = steps_kept(row), window = row[SF_CASE_LOSS_SCALE_WINDOW];
  if (kept > 0 || row[SF_CASE_STOCHASTIC]) out->weights[0] /= 8;
  for (int32_t i = 1; i < out->count; i++) {
    if (row[SF_CASE_FP8_RECIPE] == SF_FP8_DELAYED && out->values[i] > kept) out->weights[i] *= 3;
    if (out->values[i] < window) out->weights[i] *= 3;
  }
}

/* Changes the weights of values according to the fields that were drawn before. */
static void lean(struct sf_domain *out, enum sf_case_field field, const int64_t *row) {
  const bool rotates_batch = row[SF_CASE_POSITIONS] == SF_POS_ROTARY && row[SF_CASE_DOCUMENTS] == 1 && row[SF_CASE_PADDING] == 0;
  const bool has_router_loss = row[SF_CASE_AUX] > 0 || row[SF_CASE_Z_LOSS] > 0,
             cuts_mask = has_router_loss && row[SF_CASE_PADDING] > 0 && row[SF_CASE_SP];
  const bool asks_for_group = row[SF_CASE_RECOMPUTE_SHARDED] || cuts_mask || (row[SF_CASE_MEMORY_SEQ] > 0 && row[SF_CASE_TP] > 1);
  if (field == SF_CASE_LOSS_SCALE && row[SF_CASE_COMPUTE] != SF_COMPUTE_FP16)
    out->weights[0] *= row[SF_CASE_MODE] == SF_MODE_E2E ? UNSCALED_SHARE_E2E : UNSCALED_SHARE_ISOLATED;
  /* Experts share an overflow in a collective of their own. */
  if (field == SF_CASE_OVERFLOW && row[SF_CASE_EXPERTS] > 0) out->weights[out->count - 1] *= 2;
  /* The scale after an overflow shows only in the next step. */
  if ((field == SF_CASE_LOSS_SCALE_WINDOW || field == SF_CASE_STEPS) && may_overflow(row)) out->weights[0] /= 10;
  if (field == SF_CASE_RESIDUAL_FP32 && row[SF_CASE_COMPUTE] == SF_COMPUTE_FP32) out->weights[1] = 0; /* no effect in fp32 */
  /* A history of scales begins to matter with the second step, and most where weights are drawn anew for each step. */
  if (field == SF_CASE_FP8_RECIPE && row[SF_CASE_MODE] == SF_MODE_ISOLATED) out->weights[SF_FP8_DELAYED] *= 3;
  if (field == SF_CASE_STEPS && row[SF_CASE_COMPUTE] == SF_COMPUTE_FP8 && row[SF_CASE_FP8_RECIPE] == SF_FP8_DELAYED) out->weights[0] /= 5;
  if (field == SF_CASE_MICROBATCHES || field == SF_CASE_MICROBATCH_SIZE) prefer_few(out, row);
  if (field == SF_CASE_RELOAD_AFTER) prefer_reloads(out, row);
  /* A batch that 2 cp divides could be cut instead of the sequence. */
  if (field == SF_CASE_MICROBATCH_SIZE && rotates_batch) out->weights[3] *= 3;
  if (field == SF_CASE_CP && rotates_batch && row[SF_CASE_MICROBATCH_SIZE] == 4) out->weights[0] /= 4;
  /* Routers' losses leave padding out, so it should be there. */
  if (field == SF_CASE_PADDING && has_router_loss) out->weights[0] /= 4;
  /* If modules get their tp group from outside, only another order than the default shows a wrong group. */
  if (field == SF_CASE_ORDER && asks_for_group) out->weights[0] /= 8;
}

void sf_layers_domain(struct sf_domain *out, int32_t at, const int64_t *row, int64_t swarm, struct sf_bounds *bounds) {
  const enum sf_case_field field = (enum sf_case_field)at;
  const struct sf_range range = bounds->at[field];
  const bool unused = sf_layout_is_second(field) && bounds->at[SF_CASE_RELOAD_AFTER].hi == 0;
  out->count = 0;
  if (unused || range.lo == range.hi) {
    add(out, range.lo, 1);
    if (!unused) sf_domain_keep_feasible(out, field, bounds);
    return;
  }
  for (int32_t i = 0; i < tables[field].count; i++) add(out, tables[field].choices[i].value, tables[field].choices[i].weight);
  if (tables[field].count == 0) add_computed(out, sf_layout_first(field), row, bounds);
  add_rare(out, field, row);
  lean(out, field, row);
  const enum sf_field_kind kind = sf_field_kind(field);
  if (kind == SF_KIND_OF_FEATURE || kind == SF_KIND_OF_RARE_COUNT) tilt_features(out, swarm);
  if (sf_space_asks(bounds->table->of, field)) add_asked_for(out, range, SF_DOMAIN_MAX - out->count < 32 ? SF_DOMAIN_MAX - out->count : 32);
  sf_domain_keep_feasible(out, field, bounds);
  if (out->count == 0) add_smallest_feasible(out, field, bounds);
}

int32_t sf_domain_rank(enum sf_case_field field, int64_t value) {
  SF_ASSERT(tables[field].count > 0);
  for (int32_t i = 0; i < tables[field].count; i++)
    if (tables[field].choices[i].value == value) return i;
  return SF_DOMAIN_MAX;
}

/* --- classes for covering --------------------------------------------------------------------------------------------- */

static void add_bin(struct sf_range out[SF_BINS_MAX], int32_t *count, struct sf_range range, int64_t lo, int64_t hi) {
  if (lo < range.lo) lo = range.lo;
  if (hi > range.hi) hi = range.hi;
  if (lo > hi) return;
  SF_ASSERT_LT(*count, SF_BINS_MAX);
  out[(*count)++] = (struct sf_range){lo, hi};
}

/* Puts each of the first `alone` of the ascending values into a class of its own, and the rest into one class. */
static int32_t bins_of_values(struct sf_range out[SF_BINS_MAX], struct sf_range range, const int64_t *values, int32_t count,
                              int32_t alone) {
  int32_t bins = 0;
  for (int32_t i = 0; i < count && i < alone; i++) add_bin(out, &bins, range, values[i], values[i]);
  if (alone < count) add_bin(out, &bins, range, values[alone - 1] + 1, values[count - 1]);
  return bins;
}

/* Texts, switches and numbers with few values have a class for each value. Other numbers have one for zero and one for the rest, or one
 * each for the two smallest and one for the rest. */
static int32_t bins_of_table(struct sf_range out[SF_BINS_MAX], enum sf_case_field field, struct sf_range range) {
  enum { FEW = 3 };
  int64_t values[SF_DOMAIN_MAX];
  int32_t count = 0;
  for (int32_t i = 0; i < tables[field].count; i++) {
    int32_t at = count++;
    for (; at > 0 && values[at - 1] > tables[field].choices[i].value; at--) values[at] = values[at - 1];
    values[at] = tables[field].choices[i].value;
  }
  const bool is_number = sf_case_field_find(sf_case_fields[field].path)->type == SF_FIELD_INT;
  return bins_of_values(out, range, values, count, !is_number || count <= FEW ? count : values[0] == 0 ? 1 : 2);
}

int32_t sf_layers_bins(struct sf_range out[SF_BINS_MAX], const struct sf_table *table, int32_t at) {
  const enum sf_case_field field = (enum sf_case_field)at;
  const struct sf_range range = table->range[field];
  const int64_t max_ranks = table->range[sf_case_row_limit(SF_LIMIT_RANKS)].hi;
  const int64_t axis[3] = {1, 2, max_ranks > 2 ? max_ranks : 3}, heads[3] = {1, 2, 8}, chunks[3] = {0, 1, 8};
  const int64_t orders[2] = {0, SF_ORDER_COUNT - 1}, frozen[2] = {0, SF_FROZEN_ALL}, amounts[2] = {range.lo, INT64_MAX};
  if (sf_layout_is_second(field)) return 0;
  switch (field) {
  case SF_CASE_HIDDEN:
  case SF_CASE_FFN:
  case SF_CASE_VOCAB:
  case SF_CASE_VOCAB_PADDED:
  case SF_CASE_SEQ:
  case SF_CASE_HEAD_DIM:
  case SF_CASE_SCHEDULE:
  case SF_CASE_SEED:
    return 0;
  case SF_CASE_TP:
  case SF_CASE_CP:
  case SF_CASE_PP:
  case SF_CASE_DP:
    return bins_of_values(out, range, axis, 3, 2);
  case SF_CASE_KV_HEADS:
    return bins_of_values(out, range, heads, 3, 2);
  case SF_CASE_RECOMPUTE:
    return bins_of_values(out, range, chunks, 3, 2);
  case SF_CASE_ORDER:
    return bins_of_values(out, range, orders, 2, 1);
  case SF_CASE_FROZEN:
    return bins_of_values(out, range, frozen, 2, 1);
  default: /* computed values: one class for the smallest, one for the rest */
    return tables[field].count > 0 ? bins_of_table(out, field, range) : bins_of_values(out, range, amounts, 2, 1);
  }
}
