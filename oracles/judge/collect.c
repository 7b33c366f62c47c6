/* Collects parts of tensors from the ranks, puts them into the logical tensor, and compares replicas with the values that are there. */
#include "oracles/judge/collector.h"

#include "harness/base/assert.h"
#include "harness/tensor/same.h"
#include "oracles/noise/norms.h"

#include <math.h>
#include <string.h>

enum { KEPT_BLOCK_BYTES = 1 << 20, LAYOUT_BLOCK_BYTES = 1 << 16, JUDGEMENT_BLOCK_BYTES = 1 << 16, PLANS_MAX = 128, UNKNOWN_FIRST = 16 };

/* --- slots ---------------------------------------------------------------------------------------------------- */

struct sf_slot *sf_slot_find(const struct sf_collector *collector, struct sf_trace_id id) {
  enum sf_slot_phase phase = SF_SLOT_FIRST;
  if (id.kind == SF_KIND_ACT && id.pass == SF_PASS_RECOMPUTE) {
    phase = SF_SLOT_RECOMPUTED;
    id.pass = SF_PASS_FWD;
  } else if (id.call == 1 && (id.kind == SF_KIND_ACT || id.kind == SF_KIND_ACT_GRAD)) {
    phase = SF_SLOT_RECEIVED;
    id.call = 0;
  }
  const struct sf_expected *e = sf_expectations_find(collector->expectations, id);
  return e == NULL ? NULL : sf_slot_at(collector, e->ordinal, phase);
}

struct sf_trace_id sf_slot_id(const struct sf_slot *slot) {
  struct sf_trace_id id = slot->expected->id;
  if (slot->phase == SF_SLOT_RECOMPUTED) id.pass = SF_PASS_RECOMPUTE;
  if (slot->phase == SF_SLOT_RECEIVED) id.call = 1;
  return id;
}

const float *sf_collector_tensor(const struct sf_collector *collector, struct sf_trace_id id) {
  const struct sf_slot *slot = collector->status == SF_OK ? sf_slot_find(collector, id) : NULL;
  return slot != NULL && sf_slot_is_whole(slot) ? slot->merged : NULL;
}

void sf_collector_rounds_alike(struct sf_collector *collector, bool alike) { collector->rounds_alike = alike; }

static enum sf_status slots_create(struct sf_collector *collector) {
  const int64_t slot_count = (int64_t)collector->count * SF_SLOT_PHASES;
  collector->slots = sf_arena_alloc(collector->kept, (size_t)slot_count * sizeof *collector->slots);
  if (collector->slots == NULL) return SF_ENOMEM;
  for (int32_t i = 0; i < collector->count; i++)
    for (int phase = 0; phase < SF_SLOT_PHASES; phase++)
      *sf_slot_at(collector, i, (enum sf_slot_phase)phase) =
          (struct sf_slot){.expected = sf_expectations_at(collector->expectations, i), .phase = (enum sf_slot_phase)phase};
  return SF_OK;
}

enum sf_status sf_collector_create(struct sf_collector **out, const struct sf_case *c, struct sf_expectations *expectations) {
  struct sf_collector *collector = sf_alloc(sizeof *collector);
  if (collector == NULL) return SF_ENOMEM;
  collector->expectations = expectations;
  collector->catalog = sf_expectations_catalog(expectations);
  collector->count = sf_expectations_count(expectations);
  collector->kept = sf_arena_create(KEPT_BLOCK_BYTES, false);
  collector->of_layout = sf_arena_create(LAYOUT_BLOCK_BYTES, false);
  collector->of_judgement = sf_arena_create(JUDGEMENT_BLOCK_BYTES, false);
  enum sf_status status = SF_ENOMEM;
  if (collector->kept != NULL && collector->of_layout != NULL && collector->of_judgement != NULL) status = slots_create(collector);
  if (status == SF_OK) status = sf_collector_reset(collector, c);
  if (status != SF_OK) {
    sf_collector_destroy(collector);
    return status;
  }
  *out = collector;
  return SF_OK;
}

void sf_collector_destroy(struct sf_collector *collector) {
  if (collector == NULL) return;
  sf_expectations_destroy(collector->anchored);
  sf_arena_destroy(collector->kept);
  sf_arena_destroy(collector->of_layout);
  sf_arena_destroy(collector->of_judgement);
  sf_free(collector);
}

/* --- new layouts --------------------------------------------------------------------------------------------- */

static enum sf_status places_create(struct sf_collector *collector, struct sf_collected_layout *of) {
  const struct sf_mesh mesh = sf_mesh_from_layout(&of->c.layout);
  SF_ASSERT_EQ(mesh.world, collector->world);
  const size_t place_count = (size_t)(of->c.layout.dp * of->c.layout.pp);
  of->places = sf_arena_alloc(collector->of_layout, (size_t)mesh.world * sizeof *of->places);
  of->ranks = sf_arena_alloc(collector->of_layout, (size_t)mesh.world * sizeof *of->ranks);
  int32_t *numbered = sf_arena_alloc(collector->of_layout, place_count * sizeof *numbered); /* ranks so far, by dp and pp */
  if (of->places == NULL || of->ranks == NULL || numbered == NULL) return SF_ENOMEM;
  memset(numbered, 0, place_count * sizeof *numbered);
  for (int32_t rank = 0; rank < mesh.world; rank++) {
    const struct sf_coord coord = sf_mesh_coord(&mesh, rank);
    const struct sf_expert_place expert = sf_mesh_expert_place(&of->c.layout, rank);
    const int64_t place = coord.at[SF_AXIS_DP] * of->c.layout.pp + coord.at[SF_AXIS_PP];
    const int32_t number = numbered[place]++;
    of->ranks[place * of->c.layout.tp * of->c.layout.cp + number] = rank;
    of->places[rank] = (struct sf_place_of_rank){.tp = coord.at[SF_AXIS_TP],
                                                 .cp = coord.at[SF_AXIS_CP],
                                                 .dp = coord.at[SF_AXIS_DP],
                                                 .pp = coord.at[SF_AXIS_PP],
                                                 .expert = expert.ep * (int32_t)of->c.layout.etp + expert.etp,
                                                 .number = number};
  }
  return SF_OK;
}

/* Creates one layout, or two with the same number of ranks; each tensor belongs to the layout of its step. */
static enum sf_status layouts_create(struct sf_collector *collector) {
  const struct sf_case *c = &collector->c;
  collector->world = (int32_t)sf_case_ranks(c);
  collector->layout_count = c->reload.after_step > 0 ? 2 : 1;
  collector->layouts[0].c = *c;
  collector->layouts[0].c.reload.after_step = 0;
  if (collector->layout_count > 1) collector->layouts[1].c = sf_case_after_reload(c);
  for (int32_t i = 0; i < collector->layout_count; i++) {
    const enum sf_status status = places_create(collector, &collector->layouts[i]);
    if (status != SF_OK) return status;
  }
  for (int64_t i = 0; i < (int64_t)collector->count * SF_SLOT_PHASES; i++) {
    struct sf_slot *slot = &collector->slots[i];
    slot->of = &collector->layouts[sf_case_is_reloaded(c, slot->expected->id.step) ? 1 : 0];
  }
  return SF_OK;
}

/* Index of the plan of (cut, size); a model has few different ones. */
static enum sf_status plan_index(int32_t *out, struct sf_collector *collector, const struct sf_collected_layout *of, enum sf_cut cut,
                                 int64_t size) {
  for (int32_t i = 0; i < collector->plan_count; i++) {
    if (collector->plans[i].of != of || collector->plans[i].cut != cut || collector->plans[i].size != size) continue;
    *out = i;
    return SF_OK;
  }
  SF_ASSERT_LT(collector->plan_count, PLANS_MAX);
  struct sf_cut_plan *plan = &collector->plans[collector->plan_count];
  const enum sf_status status = sf_cut_plan_create(plan, &of->c, cut, size, collector->of_layout);
  plan->of = of;
  if (status == SF_OK) *out = collector->plan_count++;
  return status;
}

static enum sf_status plans_create(struct sf_collector *collector) {
  collector->plan_count = 0;
  collector->plans = sf_arena_alloc(collector->of_layout, PLANS_MAX * sizeof *collector->plans);
  if (collector->plans == NULL) return SF_ENOMEM;
  for (int32_t i = 0; i < collector->count; i++) {
    struct sf_slot *slots = sf_slot_at(collector, i, SF_SLOT_FIRST);
    const struct sf_trace_spec *spec = &slots->expected->spec;
    int32_t row_plan = 0, col_plan = 0;
    enum sf_status status = plan_index(&row_plan, collector, slots->of, spec->row_cut, spec->shape.rows);
    if (status == SF_OK) status = plan_index(&col_plan, collector, slots->of, spec->col_cut, spec->shape.cols);
    if (status != SF_OK) return status;
    for (int phase = 0; phase < SF_SLOT_PHASES; phase++) {
      slots[phase].row_plan = row_plan;
      slots[phase].col_plan = col_plan;
    }
  }
  return SF_OK;
}

static int32_t rank_words(const struct sf_collector *collector, const struct sf_slot *slot) {
  return slot->holders > 0 ? (sf_slot_rank_bits(collector, slot) + 63) / 64 : 0;
}

/* The slots' sets of ranks, empty, one after the other. */
static enum sf_status rank_sets_create(struct sf_collector *collector) {
  const int64_t slot_count = (int64_t)collector->count * SF_SLOT_PHASES;
  size_t words = 0;
  for (int64_t i = 0; i < slot_count; i++) words += (size_t)rank_words(collector, &collector->slots[i]);
  uint64_t *sets = sf_arena_alloc(collector->of_layout, words * sizeof *sets);
  if (sets == NULL) return SF_ENOMEM;
  memset(sets, 0, words * sizeof *sets);
  for (int64_t i = 0; i < slot_count; i++) {
    struct sf_slot *slot = &collector->slots[i];
    slot->ranks = slot->holders > 0 ? sets : NULL;
    sets += rank_words(collector, slot);
  }
  return SF_OK;
}

enum sf_status sf_collector_reset(struct sf_collector *collector, const struct sf_case *c) {
  SF_ASSERT(sf_case_logical_hash(c) == sf_case_logical_hash(&collector->catalog->logical));
  collector->status = SF_ENOMEM; /* until everything is made */
  collector->c = *c;
  sf_arena_reset(collector->of_layout);
  sf_arena_reset(collector->of_judgement);
  collector->spare_parts = NULL;
  collector->unknown = NULL;
  collector->unknown_count = collector->unknown_capacity = 0;
  for (int64_t i = 0; i < (int64_t)collector->count * SF_SLOT_PHASES; i++) {
    struct sf_slot *slot = &collector->slots[i];
    slot->arrived = 0;
    slot->parts = NULL;
    slot->part_rows = NULL;
    slot->part_sizes = NULL;
    slot->unusable = false;
    slot->flat_parts = NULL;
    slot->element_holders = NULL;
    slot->gap_rank = slot->overlap_rank = -1;
    slot->map_rank = slot->repeated_rank = slot->stranger_rank = slot->differing_rank = slot->replica_rank = -1;
    slot->differing = 0;
    slot->replica_error = 0;
  }
  enum sf_status status = layouts_create(collector);
  if (status == SF_OK) status = plans_create(collector);
  if (status == SF_OK) sf_structure_assign(collector);
  if (status == SF_OK) status = rank_sets_create(collector);
  collector->status = status;
  return status;
}

/* --- placing a part ------------------------------------------------------------------------------------------- */

struct block {
  float *logical;
  const float *local;
  int64_t logical_stride, local_stride, rows, cols;
};

static struct block block_make(float *logical, int64_t logical_cols, const float *local, int64_t local_cols,
                               const struct sf_cut_piece *rows, const struct sf_cut_piece *cols) {
  struct block b = {.logical = logical + rows->start * logical_cols + cols->start, .local = local + rows->local * local_cols + cols->local};
  b.logical_stride = logical_cols;
  b.local_stride = local_cols;
  b.rows = rows->len;
  b.cols = cols->len;
  if (b.cols == logical_cols && b.cols == local_cols) b.cols *= b.rows, b.rows = 1; /* contiguous on both sides */
  return b;
}

static void block_copy(const struct block *b) {
  for (int64_t r = 0; r < b->rows; r++)
    memcpy(b->logical + r * b->logical_stride, b->local + r * b->local_stride, (size_t)b->cols * sizeof *b->local);
}

static int64_t block_differing(const struct block *b) {
  int64_t differing = 0, first;
  for (int64_t r = 0; r < b->rows; r++)
    differing += sf_count_differing(b->logical + r * b->logical_stride, b->local + r * b->local_stride, b->cols, &first);
  return differing;
}

/* The difference of two replicas; equal infinities do not differ. */
static double difference(double a, double b) { return a == b ? 0 : a - b; }

static double row_distance_squares(const float *a, const float *b, int64_t count) {
  double total = sf_diff_squares(a, b, count);
  if (!isnan(total)) return total;
  total = 0;
  for (int64_t i = 0; i < count; i++) {
    const double d = difference((double)a[i], (double)b[i]);
    total += d * d;
  }
  return total;
}

static double block_distance_squares(const struct block *b) {
  double total = 0;
  for (int64_t r = 0; r < b->rows; r++)
    total += row_distance_squares(b->logical + r * b->logical_stride, b->local + r * b->local_stride, b->cols);
  return total;
}

static bool piece_is_of(const struct sf_cut_piece *piece, enum sf_cut cut, const struct sf_place_of_rank *place) {
  const int32_t tp = sf_cut_is_expert(cut) ? place->expert : place->tp;
  return tp >= piece->tp_first && tp <= piece->tp_last && place->cp >= piece->cp_first && place->cp <= piece->cp_last;
}

/* Lowest rank whose part arrived and holds a block; -1 when nobody's did. */
static int32_t holder_of_block(const struct sf_collector *collector, const struct sf_slot *slot, const struct sf_cut_piece *rows,
                               const struct sf_cut_piece *cols) {
  if (slot->arrived == 0) return -1;
  const enum sf_cut row_cut = collector->plans[slot->row_plan].cut, col_cut = collector->plans[slot->col_plan].cut;
  const int32_t words = rank_words(collector, slot);
  for (int32_t word = 0; word < words; word++) {
    for (uint64_t left = slot->ranks[word]; left != 0; left &= left - 1) {
      const int32_t rank = sf_slot_rank_of_bit(slot, word * 64 + __builtin_ctzll(left));
      const struct sf_place_of_rank *place = &slot->of->places[rank];
      if (piece_is_of(rows, row_cut, place) && piece_is_of(cols, col_cut, place)) return rank;
    }
  }
  return -1;
}

static void note_lowest(int32_t *lowest, int32_t rank) {
  if (*lowest < 0 || rank < *lowest) *lowest = rank;
}

/* Names the higher rank of two replicas that differ. The lowest rank's values are kept, whatever came first. So in any order of arrival the
 * rank that is named in the end is the lowest that differs from the lowest holder. */
void sf_slot_note_differing(struct sf_slot *slot, int32_t rank, int32_t holder, int64_t differing) {
  const int32_t named = rank > holder ? rank : holder;
  if (differing == 0 || (slot->differing_rank >= 0 && slot->differing_rank < named)) return;
  slot->differing = slot->differing_rank == named ? slot->differing + differing : differing;
  slot->differing_rank = named;
}

static void slot_merge(struct sf_collector *collector, struct sf_slot *slot, int32_t rank, const float *data) {
  const struct sf_cut_rank *rows = sf_cut_of_rank(collector, slot->row_plan, rank);
  const struct sf_cut_rank *cols = sf_cut_of_rank(collector, slot->col_plan, rank);
  const bool is_bit_equal = slot->expected->id.kind != SF_KIND_WGRAD;
  double distance_squares = 0;
  int32_t farthest = -1;
  for (int32_t i = 0; i < rows->count; i++) {
    for (int32_t j = 0; j < cols->count; j++) {
      const int32_t holder = holder_of_block(collector, slot, &rows->pieces[i], &cols->pieces[j]);
      const struct block b =
          block_make(slot->merged, slot->expected->spec.shape.cols, data, cols->length, &rows->pieces[i], &cols->pieces[j]);
      if (holder >= 0 && is_bit_equal) sf_slot_note_differing(slot, rank, holder, block_differing(&b));
      if (holder >= 0 && !is_bit_equal) distance_squares += block_distance_squares(&b), farthest = holder > rank ? holder : rank;
      if (holder < 0 || rank < holder) block_copy(&b);
    }
  }
  const double distance = sqrt(distance_squares);
  if (!(distance > slot->replica_error) && distance == distance) return; /* a NaN is kept */
  slot->replica_error = distance;
  slot->replica_rank = farthest;
}

/* A recomputed activation equals the first pass of the same rank bit for bit. That one has arrived already, in program order. */
static void slot_compare_recomputed(struct sf_collector *collector, struct sf_slot *slot, int32_t rank, const float *data) {
  const struct sf_slot *first = slot - SF_SLOT_RECOMPUTED + SF_SLOT_FIRST;
  if (first->merged == NULL || first->unusable || !sf_slot_has_rank(first, rank)) return;
  const struct sf_cut_rank *rows = sf_cut_of_rank(collector, slot->row_plan, rank);
  const struct sf_cut_rank *cols = sf_cut_of_rank(collector, slot->col_plan, rank);
  int64_t differing = 0;
  for (int32_t i = 0; i < rows->count; i++) {
    for (int32_t j = 0; j < cols->count; j++) {
      const struct block b =
          block_make(first->merged, first->expected->spec.shape.cols, data, cols->length, &rows->pieces[i], &cols->pieces[j]);
      differing += block_differing(&b);
    }
  }
  if (differing == 0 || (slot->differing_rank >= 0 && slot->differing_rank <= rank)) return;
  slot->differing_rank = rank;
  slot->differing = differing;
}

/* --- partial sums --------------------------------------------------------------------------------------------- */

static bool map_is_partial(const struct sf_shard_map *map) {
  for (int32_t i = 0; i < map->rows.count; i++)
    if (map->rows.runs[i].partial) return true;
  for (int32_t i = 0; i < map->cols.count; i++)
    if (map->cols.runs[i].partial) return true;
  return false;
}

/* Takes a spare part that is large enough and not much larger, or a new one. */
static struct sf_part *part_take(struct sf_collector *collector, int64_t count) {
  for (struct sf_part **at = &collector->spare_parts; *at != NULL; at = &(*at)->next) {
    struct sf_part *part = *at;
    if (part->capacity < count || part->capacity / 2 > count) continue;
    *at = part->next;
    return part;
  }
  struct sf_part *part = sf_arena_alloc(collector->of_layout, sizeof *part);
  float *data = sf_arena_alloc(collector->of_layout, (size_t)count * sizeof *data);
  if (part == NULL || data == NULL) return NULL;
  *part = (struct sf_part){.data = data, .capacity = count};
  return part;
}

static void parts_give(struct sf_collector *collector, struct sf_slot *slot) {
  while (slot->parts != NULL) {
    struct sf_part *part = slot->parts;
    slot->parts = part->next;
    part->next = collector->spare_parts;
    collector->spare_parts = part;
  }
}

static enum sf_status part_keep(struct sf_collector *collector, struct sf_slot *slot, int32_t rank, const struct sf_shard_map *map,
                                const float *data, int64_t count) {
  struct sf_part *part = part_take(collector, count);
  if (part == NULL) return SF_ENOMEM;
  part->rank = rank;
  part->map = *map;
  memcpy(part->data, data, (size_t)count * sizeof *data);
  struct sf_part **at = &slot->parts;
  while (*at != NULL && (*at)->rank < rank) at = &(*at)->next;
  part->next = *at;
  *at = part;
  return SF_OK;
}

/* Marks a dimension's indices with the axes over which they are partial, as every rank that holds them must say. False when two ranks
 * disagree. */
static bool marks_set(signed char *marks, const struct sf_dim_map *dim) {
  for (int32_t i = 0; i < dim->count; i++) {
    const struct sf_run run = dim->runs[i];
    for (int64_t k = run.start; k < run.start + run.len; k++) {
      if (marks[k] >= 0 && (uint32_t)marks[k] != run.partial) return false;
      marks[k] = (signed char)run.partial;
    }
  }
  return true;
}

/* A range of one row of a part: `len` elements from logical element `at` on, partial over these axes. */
struct stretch {
  int64_t at, len;
  const float *local;
  uint32_t partial;
};

static void part_visit(const struct sf_part *part, int64_t logical_cols, void (*visit)(void *ctx, const struct stretch *), void *ctx) {
  const float *local = part->data;
  for (int32_t i = 0; i < part->map.rows.count; i++) {
    const struct sf_run rows = part->map.rows.runs[i];
    for (int64_t r = rows.start; r < rows.start + rows.len; r++) {
      for (int32_t j = 0; j < part->map.cols.count; j++) {
        const struct sf_run cols = part->map.cols.runs[j];
        const struct stretch s = {
            .at = r * logical_cols + cols.start, .len = cols.len, .local = local, .partial = rows.partial | cols.partial};
        visit(ctx, &s);
        local += cols.len;
      }
    }
  }
}

/* Combines the logical tensor from its parts. owner: 1 + tp index of the lowest rank that holds an element; 0 = none yet. */
struct combining {
  double *sum, *magnitude; /* magnitude: the sum of the summands' absolute values */
  int32_t *owner;
  int32_t tp; /* of the part that is added */
  /* for replicas over tp: the sum of the ranks at another tp index */
  double *other;
  signed char *held;
};

/* Adds elements that are partial over tp. Of other elements the owner's tp index counts: its cp ranks' summands are added. */
static void sum_stretch(void *ctx, const struct stretch *s) {
  struct combining *combining = ctx;
  const bool over_tp = (s->partial & SF_AXES(SF_AXIS_TP)) != 0;
  for (int64_t k = 0; k < s->len; k++) {
    int32_t *owner = &combining->owner[s->at + k];
    if (over_tp || *owner == 0 || (s->partial != 0 && *owner == combining->tp + 1)) {
      combining->sum[s->at + k] += (double)s->local[k];
      combining->magnitude[s->at + k] += fabs((double)s->local[k]);
    }
    if (*owner == 0) *owner = combining->tp + 1;
  }
}

static void sum_replica(void *ctx, const struct stretch *s) {
  struct combining *combining = ctx;
  if ((s->partial & SF_AXES(SF_AXIS_TP)) != 0) return;
  for (int64_t k = 0; k < s->len; k++) {
    if (combining->owner[s->at + k] == combining->tp + 1) continue;
    combining->other[s->at + k] += (double)s->local[k];
    combining->held[s->at + k] = 1;
  }
}

/* Sums over cp that several tp ranks hold must agree, like replicas of a weight gradient that is not a sum. */
static void sums_compare_replicas(struct sf_slot *slot, struct combining *combining) {
  const struct sf_shape shape = slot->expected->spec.shape;
  const int64_t count = shape.rows * shape.cols;
  for (combining->tp = 0; combining->tp < (int32_t)slot->of->c.layout.tp; combining->tp++) {
    double squares = 0;
    int32_t rank = -1;
    memset(combining->other, 0, (size_t)count * sizeof *combining->other);
    memset(combining->held, 0, (size_t)count);
    for (const struct sf_part *part = slot->parts; part != NULL; part = part->next) {
      if (slot->of->places[part->rank].tp != combining->tp) continue;
      part_visit(part, shape.cols, sum_replica, combining);
      if (rank < 0) rank = part->rank;
    }
    for (int64_t i = 0; i < count; i++) {
      const double d = combining->held[i] ? difference(combining->sum[i], combining->other[i]) : 0;
      squares += d * d;
    }
    const double distance = sqrt(squares);
    if (!(distance > slot->replica_error) && distance == distance) continue;
    slot->replica_error = distance;
    slot->replica_rank = rank;
  }
}

/* Runs when all ranks are there: adds in rank order, in double, so that neither the order of arrival nor our own rounding shows. */
static enum sf_status parts_combine(struct sf_collector *collector, struct sf_slot *slot) {
  const struct sf_shape shape = slot->expected->spec.shape;
  const int64_t count = shape.rows * shape.cols;
  const bool keeps_sizes = collector->c.mode == SF_MODE_E2E && slot->expected->id.kind == SF_KIND_ACT_GRAD;
  slot->part_rows = sf_arena_alloc(collector->of_layout, (size_t)shape.rows * sizeof *slot->part_rows);
  if (keeps_sizes) slot->part_sizes = sf_arena_alloc(collector->of_layout, (size_t)count * sizeof *slot->part_sizes);
  if (slot->part_rows == NULL || (keeps_sizes && slot->part_sizes == NULL)) return SF_ENOMEM;
  const struct sf_arena_mark mark = sf_arena_mark(collector->of_layout);
  const bool has_replicas = slot->of->c.layout.cp > 1 && slot->of->c.layout.tp > 1;
  struct combining combining = {.sum = sf_arena_alloc(collector->of_layout, (size_t)count * sizeof *combining.sum),
                                .magnitude = sf_arena_alloc(collector->of_layout, (size_t)count * sizeof *combining.magnitude),
                                .owner = sf_arena_alloc(collector->of_layout, (size_t)count * sizeof *combining.owner)};
  if (has_replicas) {
    combining.other = sf_arena_alloc(collector->of_layout, (size_t)count * sizeof *combining.other);
    combining.held = sf_arena_alloc(collector->of_layout, (size_t)count);
    if (combining.other == NULL || combining.held == NULL) return SF_ENOMEM;
  }
  signed char *row_marks = sf_arena_alloc(collector->of_layout, (size_t)shape.rows);
  signed char *col_marks = sf_arena_alloc(collector->of_layout, (size_t)shape.cols);
  if (combining.sum == NULL || combining.magnitude == NULL || combining.owner == NULL || row_marks == NULL || col_marks == NULL)
    return SF_ENOMEM;
  memset(combining.sum, 0, (size_t)count * sizeof *combining.sum);
  memset(combining.magnitude, 0, (size_t)count * sizeof *combining.magnitude);
  memset(combining.owner, 0, (size_t)count * sizeof *combining.owner);
  memset(row_marks, -1, (size_t)shape.rows);
  memset(col_marks, -1, (size_t)shape.cols);
  int32_t part_count = 0;
  for (const struct sf_part *part = slot->parts; part != NULL; part = part->next, part_count++) {
    if (!marks_set(row_marks, &part->map.rows) || !marks_set(col_marks, &part->map.cols)) note_lowest(&slot->map_rank, part->rank);
    combining.tp = slot->of->places[part->rank].tp;
    part_visit(part, shape.cols, sum_stretch, &combining);
  }
  if (part_count != slot->holders) note_lowest(&slot->map_rank, slot->parts->rank); /* other ranks say that the tensor is complete */
  if (slot->map_rank >= 0) slot->unusable = true;
  for (int64_t i = 0; i < count; i++) slot->merged[i] = (float)combining.sum[i];
  for (int64_t i = 0; keeps_sizes && i < count; i++) slot->part_sizes[i] = (float)combining.magnitude[i];
  for (int64_t r = 0; r < shape.rows; r++) {
    double squares = 0;
    for (int64_t k = r * shape.cols; k < (r + 1) * shape.cols; k++) squares += combining.magnitude[k] * combining.magnitude[k];
    slot->part_rows[r] = sqrt(squares);
  }
  if (has_replicas && !slot->unusable) sums_compare_replicas(slot, &combining);
  sf_arena_rewind(collector->of_layout, mark);
  parts_give(collector, slot);
  return SF_OK;
}

/* --- arrival -------------------------------------------------------------------------------------------------- */

static enum sf_status unknown_add(struct sf_collector *collector, struct sf_trace_id id, int32_t rank) {
  if (collector->unknown_count == collector->unknown_capacity) {
    const int32_t capacity = collector->unknown_capacity > 0 ? 2 * collector->unknown_capacity : UNKNOWN_FIRST;
    struct sf_unknown *grown = sf_arena_alloc(collector->of_layout, (size_t)capacity * sizeof *grown);
    if (grown == NULL) return SF_ENOMEM;
    if (collector->unknown_count > 0) memcpy(grown, collector->unknown, (size_t)collector->unknown_count * sizeof *grown);
    collector->unknown = grown;
    collector->unknown_capacity = capacity;
  }
  collector->unknown[collector->unknown_count++] = (struct sf_unknown){.id = id, .rank = rank};
  return SF_OK;
}

static enum sf_status slot_take(struct sf_collector *collector, struct sf_slot *slot, int32_t rank, const struct sf_shard_map *map,
                                const float *data, int64_t count) {
  const struct sf_shape shape = slot->expected->spec.shape;
  if (slot->phase == SF_SLOT_RECOMPUTED) {
    slot_compare_recomputed(collector, slot, rank, data);
    return SF_OK;
  }
  if (slot->unusable) return SF_OK;
  if (slot->merged == NULL) slot->merged = sf_arena_alloc(collector->kept, (size_t)(shape.rows * shape.cols) * sizeof *slot->merged);
  if (slot->merged == NULL) return SF_ENOMEM;
  if (slot->is_flat) return sf_flat_take(collector, slot, rank, map, data);
  if (map_is_partial(map)) return part_keep(collector, slot, rank, map, data, count);
  slot_merge(collector, slot, rank, data);
  return SF_OK;
}

void sf_collector_add(struct sf_collector *collector, int32_t rank, struct sf_trace_id id, const struct sf_shard_map *map,
                      const float *data, int64_t rows, int64_t cols) {
  if (collector->status != SF_OK) return;
  SF_ASSERT(rank >= 0 && rank < collector->world);
  struct sf_slot *slot = sf_slot_find(collector, id);
  if (slot == NULL || slot->holders == 0) {
    collector->status = unknown_add(collector, id, rank);
    return;
  }
  if (!sf_slot_expects(slot, &slot->of->places[rank])) {
    note_lowest(&slot->stranger_rank, rank);
    return;
  }
  if (sf_slot_has_rank(slot, rank)) {
    note_lowest(&slot->repeated_rank, rank);
    return;
  }
  if (sf_structure_map_fits(collector, slot, rank, map, rows, cols)) {
    collector->status = slot_take(collector, slot, rank, map, data, rows * cols);
  } else {
    note_lowest(&slot->map_rank, rank);
    slot->unusable = true;
  }
  const int32_t bit = sf_slot_rank_bit(slot, rank);
  slot->ranks[bit / 64] |= UINT64_C(1) << (bit % 64);
  slot->arrived++;
  if (slot->arrived < slot->holders || slot->unusable || collector->status != SF_OK) return;
  if (slot->parts != NULL) collector->status = parts_combine(collector, slot);
  if (slot->is_flat) sf_flat_check(collector, slot);
}
