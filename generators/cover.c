#include "generators/cover.h"

#include "harness/base/alloc.h"
#include "harness/base/assert.h"
#include "harness/base/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- bins --------------------------------------------------------------------------------------------------------- */

enum { BINS_MAX = 512, FACTORS_MAX = SF_SPACE_FIELDS_MAX };

struct bin {
  int32_t factor;
  struct sf_range range;
};
struct factor {
  int32_t field;
  bool layout; /* may differ within a block */
  int32_t first, count;
};
struct bins {
  struct sf_table table;
  struct sf_bounds bounds;
  int32_t factor_count, count;
  struct factor factors[FACTORS_MAX];
  struct bin at[BINS_MAX];
};

static int32_t field_of(const struct bins *bins, int32_t bin) { return bins->factors[bins->at[bin].factor].field; }

/* Where a framework has too many, the last fields have none. */
static void bins_init(struct bins *bins, const struct sf_table *table) {
  memset(bins, 0, sizeof *bins);
  bins->table = *table;
  sf_bounds_init(&bins->bounds, &bins->table);
  (void)sf_bounds_solve(&bins->bounds);
  for (int32_t field = 0; field < table->field_count && bins->count + SF_BINS_MAX <= BINS_MAX; field++) {
    struct sf_range ranges[SF_BINS_MAX];
    const int32_t count = table->kind->bins(ranges, table, field), first = bins->count;
    const int32_t factor = bins->factor_count;
    bins->factors[factor] = (struct factor){.field = field, .layout = sf_table_has(table, field, SF_TRAIT_LAYOUT), .first = first};
    for (int32_t k = 0; k < count; k++) {
      bins->at[bins->count] = (struct bin){factor, ranges[k]};
      if (sf_bounds_allow(&bins->bounds, field, ranges[k])) bins->count++;
    }
    if (bins->count < first + table->kind->bins_least) bins->count = first;
    bins->factors[factor].count = bins->count - first;
    bins->factor_count += bins->count > first;
  }
}

/* The bin that the row has at a factor; -1 for a value that is in no class. */
static int32_t bin_of(const struct bins *bins, const struct factor *factor, const int64_t *row) {
  const int64_t value = row[factor->field];
  for (int32_t i = factor->first; i < factor->first + factor->count; i++)
    if (value >= bins->at[i].range.lo && value <= bins->at[i].range.hi) return i;
  return -1;
}

/* --- pairs ------------------------------------------------------------------------------------------------------------ */

enum pair { IMPOSSIBLE, OPEN, RUN };
struct pairs {
  int64_t open, run;
  int32_t open_of[BINS_MAX]; /* open pairs of a bin */
  unsigned char at[BINS_MAX][BINS_MAX];
};

/* alone: a bin is a pair with itself, so that it is met where it has no other one. */
static void pairs_init(struct pairs *pairs, const struct bins *bins, bool alone) {
  memset(pairs, 0, sizeof *pairs);
  for (int32_t a = 0; a < bins->count; a++) {
    struct sf_bounds with_a = bins->bounds;
    (void)sf_bounds_narrow(&with_a, field_of(bins, a), bins->at[a].range);
    for (int32_t b = a; b < bins->count; b++) {
      if (bins->at[a].factor == bins->at[b].factor && !(alone && a == b)) continue;
      if (!sf_bounds_allow(&with_a, field_of(bins, b), bins->at[b].range)) continue;
      pairs->at[a][b] = pairs->at[b][a] = OPEN;
      pairs->open++;
      pairs->open_of[a]++;
      pairs->open_of[b]++;
    }
  }
}

static void pairs_note(struct pairs *pairs, int32_t a, int32_t b) {
  if (pairs->at[a][b] != OPEN) return;
  pairs->at[a][b] = pairs->at[b][a] = RUN;
  pairs->open--;
  pairs->run++;
  pairs->open_of[a]--;
  pairs->open_of[b]--;
}

static int32_t bins_of_row(int32_t out[FACTORS_MAX], const struct bins *bins, const int64_t *row) {
  int32_t count = 0;
  for (int32_t i = 0; i < bins->factor_count; i++) {
    const int32_t bin = bin_of(bins, &bins->factors[i], row);
    if (bin >= 0) out[count++] = bin;
  }
  return count;
}

static void pairs_add_row(struct pairs *pairs, const struct bins *bins, const int64_t *row) {
  int32_t has[FACTORS_MAX];
  const int32_t count = bins_of_row(has, bins, row);
  for (int32_t i = 0; i < count; i++)
    for (int32_t k = i; k < count; k++) pairs_note(pairs, has[i], has[k]);
}

/* --- drawing ---------------------------------------------------------------------------------------------------------- */

enum { ROWS_MAX = 2048 };
struct row {
  int16_t bin[FACTORS_MAX]; /* of each factor; -1 = free */
};
struct sf_cover {
  struct bins bins;
  struct pairs pairs;
  uint64_t seed;
  int64_t layouts;
  int32_t row_count;
  struct row rows[ROWS_MAX];
};

static const struct sf_range *limits_of_row(struct sf_range *limits, const struct sf_cover *cover, int64_t index, bool layout_only) {
  if (cover == NULL || index >= cover->row_count) return NULL;
  const struct row *row = &cover->rows[index];
  for (int32_t i = 0; i < cover->bins.table.field_count; i++) limits[i] = (struct sf_range){INT64_MIN, INT64_MAX};
  for (int32_t i = 0; i < cover->bins.factor_count; i++) {
    const struct factor *factor = &cover->bins.factors[i];
    if (row->bin[i] >= 0 && (factor->layout || !layout_only)) limits[factor->field] = cover->bins.at[row->bin[i]].range;
  }
  return limits;
}

/* Fixes the fields of the logical function to the values of the block's first case. */
static void fix_logical(struct sf_table *table, const int64_t *first) {
  for (int32_t i = 0; i < table->field_count; i++)
    if (!sf_table_has(table, i, SF_TRAIT_LAYOUT)) table->range[i] = (struct sf_range){first[i], first[i]};
}

static enum sf_status draw_row(int64_t *row, const struct sf_cover *cover, const struct sf_table *table, uint64_t seed, int64_t layouts,
                               int64_t index, uint64_t relayout, struct sf_error *error) {
  struct sf_draw source;
  struct sf_range limits[SF_SPACE_FIELDS_MAX];
  const uint64_t block = (uint64_t)(index / layouts), layout = (uint64_t)(index % layouts) + relayout * (uint64_t)layouts;
  const int64_t turn = (int64_t)(sf_hash_u64(seed, block) >> 40), place = index % layouts + (int64_t)relayout;
  sf_draw_from_pcg(&source, seed, block);
  const enum sf_status status =
      sf_table_draw(row, &source, table, limits_of_row(limits, cover, index - index % layouts, false), turn, error);
  if (status != SF_OK || layout == 0) return status;
  struct sf_table fixed = *table;
  fix_logical(&fixed, row);
  sf_draw_from_pcg(&source, sf_hash_u64(seed, layout), block);
  return sf_table_draw(row, &source, &fixed, relayout != 0 ? NULL : limits_of_row(limits, cover, index, true), turn + place, error);
}

enum sf_status sf_cover_draw(struct sf_case *out, const struct sf_cover *cover, const struct sf_table *table, uint64_t seed,
                             int64_t layouts, int64_t index, uint64_t relayout, struct sf_error *error) {
  int64_t row[SF_SPACE_FIELDS_MAX];
  const enum sf_status status = draw_row(row, cover, table, seed, layouts, index, relayout, error);
  return status == SF_OK ? table->kind->to_case(out, table, row, error) : status;
}

/* --- the rows --------------------------------------------------------------------------------------------------------- */

/* A row in the making. */
struct making {
  struct row *row;
  struct sf_bounds bounds;
  int32_t chosen_count, size_max; /* of all chosen bins, the first case's included */
  int32_t chosen[FACTORS_MAX];
};

static bool choose_bin(struct sf_cover *cover, struct making *m, int32_t bin) {
  const struct bin *l = &cover->bins.at[bin];
  const int32_t field = cover->bins.factors[l->factor].field;
  if (!sf_bounds_allow(&m->bounds, field, l->range)) return false;
  (void)sf_bounds_narrow(&m->bounds, field, l->range);
  m->row->bin[l->factor] = (int16_t)bin;
  m->chosen[m->chosen_count++] = bin;
  return true;
}

/* The gain of a bin: first the open pairs with bins that are chosen already, then all open pairs. */
static int64_t gain_of(const struct sf_cover *cover, const struct making *m, int32_t bin) {
  int64_t gain = 0;
  for (int32_t i = 0; i < m->chosen_count; i++) gain += cover->pairs.at[bin][m->chosen[i]] == OPEN;
  return gain * BINS_MAX + cover->pairs.open_of[bin];
}

/* Chooses the most useful bin that still fits. Chooses none if no pair is open, so that a covered field stays a free draw; where rows are
 * small, none without an open pair in this row. */
static void choose_for_factor(struct sf_cover *cover, struct making *m, int32_t number) {
  const struct factor *factor = &cover->bins.factors[number];
  int64_t below = INT64_MAX; /* tries gains from the largest down, and equal gains in order */
  int32_t tried = -1;
  for (int32_t k = 0; k < factor->count; k++) {
    int64_t best = m->size_max < FACTORS_MAX && m->chosen_count > 0 ? BINS_MAX - 1 : 0;
    int32_t bin = -1;
    for (int32_t i = factor->first; i < factor->first + factor->count; i++) {
      const int64_t gain = gain_of(cover, m, i);
      const bool later = gain < below || (gain == below && i > tried);
      if (later && gain > best) best = gain, bin = i;
    }
    if (bin < 0 || choose_bin(cover, m, bin)) return;
    below = best;
    tried = bin;
  }
}

/* Begins a row with the open pair whose bins have the most open pairs. */
static void choose_first_pair(struct sf_cover *cover, struct making *m) {
  int32_t best_a = -1, best_b = -1, best = -1;
  for (int32_t a = 0; a < cover->bins.count; a++) {
    if (cover->pairs.open_of[a] == 0) continue;
    for (int32_t b = a; b < cover->bins.count; b++) {
      const int32_t open = cover->pairs.open_of[a] + cover->pairs.open_of[b];
      if (cover->pairs.at[a][b] == OPEN && open > best) best = open, best_a = a, best_b = b;
    }
  }
  if (best_a < 0) return;
  (void)choose_bin(cover, m, best_a);
  if (best_b != best_a) (void)choose_bin(cover, m, best_b);
}

static void shuffle_factors(int32_t out[FACTORS_MAX], const struct sf_cover *cover, int64_t index) {
  for (int32_t i = 0; i < cover->bins.factor_count; i++) {
    const int32_t at = (int32_t)(sf_hash_u64(sf_hash_u64(cover->seed, (uint64_t)index), (uint64_t)i) % (uint64_t)(i + 1));
    out[i] = out[at];
    out[at] = i;
  }
}

/* How many bins a row chooses. Where rows are full, their cases hide bugs behind each other. */
static int32_t row_size(const struct sf_table *table, int64_t index) {
  const int32_t *sizes = table->kind->row_sizes;
  int64_t count = 0;
  if (sizes == NULL) return FACTORS_MAX;
  while (sizes[count] != 0) count++;
  return sizes[index % count];
}

/* Fills row `index`. first: the block's first row, NULL for that row itself. */
static void make_row(struct sf_cover *cover, int64_t index, const struct sf_table *table, const int64_t *first) {
  struct making m = {.row = &cover->rows[index]};
  int32_t order[FACTORS_MAX];
  memset(m.row->bin, -1, sizeof m.row->bin);
  sf_bounds_init(&m.bounds, table);
  (void)sf_bounds_solve(&m.bounds);
  for (int32_t i = 0; first != NULL && i < cover->bins.factor_count; i++) {
    const struct factor *factor = &cover->bins.factors[i];
    const int32_t bin = factor->layout ? -1 : bin_of(&cover->bins, factor, first);
    if (bin >= 0) m.chosen[m.chosen_count++] = bin;
  }
  const int32_t size = row_size(table, index / cover->layouts);
  m.size_max = size == FACTORS_MAX ? FACTORS_MAX : m.chosen_count + size;
  if (first == NULL) choose_first_pair(cover, &m);
  shuffle_factors(order, cover, index);
  for (int32_t i = 0; i < cover->bins.factor_count && m.chosen_count < m.size_max; i++) {
    const struct factor *factor = &cover->bins.factors[order[i]];
    if ((first == NULL || factor->layout) && m.row->bin[order[i]] < 0) choose_for_factor(cover, &m, order[i]);
  }
}

/* Makes a block: its first case, then layouts for the logical function that this case has. */
static enum sf_status make_block(struct sf_cover *cover, int64_t block, struct sf_error *error) {
  struct sf_table table = cover->bins.table;
  int64_t first[SF_SPACE_FIELDS_MAX], row[SF_SPACE_FIELDS_MAX];
  for (int64_t layout = 0; layout < cover->layouts && cover->pairs.open > 0; layout++) {
    const int64_t index = block * cover->layouts + layout;
    make_row(cover, index, &table, layout > 0 ? first : NULL);
    cover->row_count++;
    const enum sf_status status = draw_row(row, cover, &cover->bins.table, cover->seed, cover->layouts, index, 0, error);
    if (status != SF_OK) return status;
    pairs_add_row(&cover->pairs, &cover->bins, row);
    if (layout > 0) continue;
    memcpy(first, row, sizeof first);
    fix_logical(&table, first);
  }
  return SF_OK;
}

enum sf_status sf_cover_create(struct sf_cover **out, const struct sf_table *table, uint64_t seed, int64_t layouts,
                               struct sf_error *error) {
  struct sf_cover *cover = sf_alloc(sizeof *cover);
  if (cover == NULL) return SF_ENOMEM;
  cover->seed = seed;
  cover->layouts = layouts;
  bins_init(&cover->bins, table);
  pairs_init(&cover->pairs, &cover->bins, table->kind->bins_least == 1);
  enum sf_status status = SF_OK;
  for (int64_t block = 0; status == SF_OK && cover->pairs.open > 0 && (block + 1) * layouts <= ROWS_MAX; block++)
    status = make_block(cover, block, error);
  if (status != SF_OK) {
    sf_cover_destroy(cover);
    return status;
  }
  *out = cover;
  return SF_OK;
}

void sf_cover_destroy(struct sf_cover *cover) { sf_free(cover); }

int64_t sf_cover_rows(const struct sf_cover *cover) { return cover->row_count; }

/* --- counting --------------------------------------------------------------------------------------------------------- */

struct sf_cover_count {
  struct bins bins;
  struct pairs pairs;
  uint64_t *triples; /* bits, (a * n + b) * n + c of ascending bins */
};

enum sf_status sf_cover_count_create(struct sf_cover_count **out, const struct sf_table *table) {
  struct sf_cover_count *count = sf_alloc(sizeof *count);
  if (count == NULL) return SF_ENOMEM;
  bins_init(&count->bins, table);
  pairs_init(&count->pairs, &count->bins, false);
  const size_t n = (size_t)count->bins.count;
  count->triples = sf_alloc((n * n * n / 64 + 1) * sizeof *count->triples);
  if (count->triples == NULL) {
    sf_cover_count_destroy(count);
    return SF_ENOMEM;
  }
  *out = count;
  return SF_OK;
}

void sf_cover_count_destroy(struct sf_cover_count *count) {
  if (count == NULL) return;
  sf_free(count->triples);
  sf_free(count);
}

void sf_cover_count_add(struct sf_cover_count *count, const struct sf_case *c) {
  int32_t has[FACTORS_MAX];
  int64_t row[SF_SPACE_FIELDS_MAX];
  if (!count->bins.table.kind->of_case(row, &count->bins.table, c)) return;
  const int32_t n = bins_of_row(has, &count->bins, row);
  const uint64_t size = (uint64_t)count->bins.count;
  for (int32_t i = 0; i < n; i++)
    for (int32_t j = i + 1; j < n; j++) {
      pairs_note(&count->pairs, has[i], has[j]);
      const uint64_t base = ((uint64_t)has[i] * size + (uint64_t)has[j]) * size;
      for (int32_t k = j + 1; k < n; k++) count->triples[(base + (uint64_t)has[k]) / 64] |= UINT64_C(1) << (base + (uint64_t)has[k]) % 64;
    }
}

int32_t sf_cover_count_numbers(const struct sf_cover_count *count) { return count->bins.count * (count->bins.count - 1) / 2; }

void sf_cover_count_each(const struct sf_cover_count *count, const struct sf_case *c, void (*pair)(void *ctx, int32_t number), void *ctx) {
  int32_t has[FACTORS_MAX];
  int64_t row[SF_SPACE_FIELDS_MAX];
  if (!count->bins.table.kind->of_case(row, &count->bins.table, c)) return;
  const int32_t n = bins_of_row(has, &count->bins, row);
  for (int32_t i = 1; i < n; i++)
    for (int32_t k = 0; k < i; k++) pair(ctx, has[i] * (has[i] - 1) / 2 + has[k]);
}

static bool has_pair(const struct sf_cover_count *count, int32_t a, int32_t b) { return count->pairs.at[a][b] != IMPOSSIBLE; }

void sf_cover_count_pairs(const struct sf_cover_count *count, int64_t *pairs, int64_t *pairs_run) {
  *pairs = count->pairs.open + count->pairs.run;
  *pairs_run = count->pairs.run;
}

struct sf_cover_shares sf_cover_count_shares(const struct sf_cover_count *count) {
  struct sf_cover_shares shares = {.pairs = count->pairs.open + count->pairs.run, .pairs_run = count->pairs.run};
  const uint64_t n = (uint64_t)count->bins.count;
  for (int32_t a = 0; a < count->bins.count; a++)
    for (int32_t b = a + 1; b < count->bins.count; b++)
      for (int32_t c = b + 1; c < count->bins.count && has_pair(count, a, b); c++) {
        const uint64_t bit = ((uint64_t)a * n + (uint64_t)b) * n + (uint64_t)c;
        shares.triples += has_pair(count, a, c) && has_pair(count, b, c);
        shares.triples_run += count->triples[bit / 64] >> bit % 64 & 1;
      }
  return shares;
}

static void append_bin(struct sf_text *out, const struct bins *bins, int32_t bin) {
  bins->table.kind->append(out, &bins->table, field_of(bins, bin), bins->at[bin].range);
}

void sf_cover_count_append(const struct sf_cover_count *count, struct sf_text *out) {
  static const char letters[] = {[IMPOSSIBLE] = '.', [OPEN] = 'o', [RUN] = 'x'};
  for (int32_t a = 0; a < count->bins.count; a++) {
    if (a == 0) sf_text_append(out, "-");
    for (int32_t b = 0; b < a; b++) sf_text_append(out, "%c", letters[count->pairs.at[a][b]]);
    sf_text_append(out, " ");
    append_bin(out, &count->bins, a);
    sf_text_append(out, "\n");
  }
}

void sf_cover_count_missing(const struct sf_cover_count *count, struct sf_text *out) {
  for (int32_t a = 0; a < count->bins.count; a++)
    for (int32_t b = a + 1; b < count->bins.count; b++) {
      if (count->pairs.at[a][b] != OPEN) continue;
      append_bin(out, &count->bins, a);
      sf_text_append(out, " with ");
      append_bin(out, &count->bins, b);
      return;
    }
}
