/* Flat parts: ranges of a tensor-parallel shard's elements, as ZeRO's ranks hold them. The target decides who holds which range (bucket
 * layout). Together the ranks of one tensor-parallel and pipeline place (for experts: of one place on the expert mesh) must hold each
 * element once. */
#include "oracles/judge/collector.h"

#include "harness/base/assert.h"
#include "harness/tensor/same.h"

#include <string.h>

static enum sf_status holders_create(struct sf_collector *collector, struct sf_slot *slot) {
  const struct sf_shape shape = slot->expected->spec.shape;
  const int64_t count = shape.rows * shape.cols;
  slot->element_holders = sf_arena_alloc(collector->of_layout, (size_t)count * sizeof *slot->element_holders);
  if (slot->element_holders == NULL) return SF_ENOMEM;
  for (int64_t i = 0; i < count; i++) slot->element_holders[i] = -1;
  return SF_OK;
}

/* Merges elements that are contiguous on the rank and in the logical tensor, where they begin at `at`. */
static void segment_merge(struct sf_slot *slot, int32_t rank, int64_t at, const float *local, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    float *merged = &slot->merged[at + i];
    int32_t *holder = &slot->element_holders[at + i];
    if (*holder >= 0) sf_slot_note_differing(slot, rank, *holder, sf_count_differing(merged, &local[i], 1, &(int64_t){0}));
    if (*holder >= 0 && *holder < rank) continue;
    *merged = local[i];
    *holder = rank;
  }
}

/* Local columns [from, to) of one logical row. */
static const float *row_merge(struct sf_slot *slot, int32_t rank, const struct sf_dim_map *cols, int64_t row, int64_t from, int64_t to,
                              const float *local) {
  int64_t begin = 0;
  for (int32_t i = 0; i < cols->count; i++) {
    const struct sf_run run = cols->runs[i];
    const int64_t first = from > begin ? from : begin, end = to < begin + run.len ? to : begin + run.len;
    if (first < end) {
      segment_merge(slot, rank, row * slot->expected->spec.shape.cols + run.start + (first - begin), local, end - first);
      local += end - first;
    }
    begin += run.len;
  }
  return local;
}

static void part_merge(struct sf_slot *slot, int32_t rank, const struct sf_shard_map *map, const float *local) {
  const int64_t width = sf_dim_map_length(&map->cols), end = map->first + map->count;
  int64_t begin = 0; /* the row's first element in the box */
  for (int32_t i = 0; i < map->rows.count; i++) {
    const struct sf_run run = map->rows.runs[i];
    for (int64_t row = run.start; row < run.start + run.len; row++, begin += width) {
      const int64_t from = map->first > begin ? map->first - begin : 0, to = end - begin < width ? end - begin : width;
      if (from < to) local = row_merge(slot, rank, &map->cols, row, from, to, local);
    }
  }
}

/* --- who holds which range ---------------------------------------------------------------------------------------- */

/* The number of the shard that the rank's range belongs to, among the shards of its stage. */
static int32_t shard_of(const struct sf_slot *slot, int32_t rank) {
  const struct sf_trace_spec *spec = &slot->expected->spec;
  const bool expert = sf_cut_is_expert(spec->row_cut) || sf_cut_is_expert(spec->col_cut);
  return expert ? slot->of->places[rank].expert : slot->of->places[rank].tp;
}

bool sf_flat_same_place(const struct sf_slot *slot, int32_t a, int32_t b) {
  return slot->of->places[a].pp == slot->of->places[b].pp && shard_of(slot, a) == shard_of(slot, b);
}

/* Order of the list: place, first element, rank. */
static bool goes_before(const struct sf_slot *slot, const struct sf_flat_part *a, const struct sf_flat_part *b) {
  const struct sf_place_of_rank *x = &slot->of->places[a->rank], *y = &slot->of->places[b->rank];
  const int32_t shard_a = shard_of(slot, a->rank), shard_b = shard_of(slot, b->rank);
  if (x->pp != y->pp) return x->pp < y->pp;
  if (shard_a != shard_b) return shard_a < shard_b;
  return a->first != b->first ? a->first < b->first : a->rank < b->rank;
}

static void note_lowest(int32_t *lowest, int32_t rank) {
  if (*lowest < 0 || rank < *lowest) *lowest = rank;
}

enum sf_status sf_flat_take(struct sf_collector *collector, struct sf_slot *slot, int32_t rank, const struct sf_shard_map *map,
                            const float *data) {
  if (slot->element_holders == NULL && holders_create(collector, slot) != SF_OK) return SF_ENOMEM;
  struct sf_flat_part *part = sf_arena_alloc(collector->of_layout, sizeof *part);
  if (part == NULL) return SF_ENOMEM;
  *part = (struct sf_flat_part){.rank = rank, .first = map->first, .count = map->count};
  struct sf_flat_part **at = &slot->flat_parts;
  while (*at != NULL && goes_before(slot, *at, part)) at = &(*at)->next;
  part->next = *at;
  *at = part;
  part_merge(slot, rank, map, data);
  return SF_OK;
}

/* Checks the parts of one place, from `part` on; returns the first part of the next place. */
static const struct sf_flat_part *place_check(const struct sf_collector *collector, struct sf_slot *slot, const struct sf_flat_part *part) {
  const int32_t first_rank = part->rank;
  const struct sf_cut_rank *rows = sf_cut_of_rank(collector, slot->row_plan, first_rank);
  const struct sf_cut_rank *cols = sf_cut_of_rank(collector, slot->col_plan, first_rank);
  const int64_t total = rows->length * cols->length;
  int64_t held = 0;
  int32_t last = first_rank;
  for (; part != NULL && sf_flat_same_place(slot, part->rank, first_rank); part = part->next) {
    if (part->count == 0) continue;
    if (part->first > held) note_lowest(&slot->gap_rank, part->rank);
    if (part->first < held) note_lowest(&slot->overlap_rank, part->rank);
    if (part->first + part->count > held) held = part->first + part->count;
    last = part->rank;
  }
  if (held < total) note_lowest(&slot->gap_rank, last);
  return part;
}

void sf_flat_check(const struct sf_collector *collector, struct sf_slot *slot) {
  for (const struct sf_flat_part *part = slot->flat_parts; part != NULL;) part = place_check(collector, slot, part);
  if (slot->gap_rank >= 0) slot->unusable = true;
}
