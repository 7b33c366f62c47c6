/* Cut plans: which ranks hold which piece of a dimension, so that replicas can be compared where they overlap. */
#include "oracles/judge/collector.h"

#include "harness/base/assert.h"

#include <stdlib.h>

static int compare_i64(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* Collects the places where a rank's run begins or ends, sorted. */
static int32_t boundaries_collect(int64_t *out, const struct sf_cut_rank *ranks, int64_t rank_count) {
  int32_t count = 0;
  for (int64_t t = 0; t < rank_count; t++) {
    for (int32_t i = 0; i < ranks[t].canonical.count; i++) {
      out[count++] = ranks[t].canonical.runs[i].start;
      out[count++] = ranks[t].canonical.runs[i].start + ranks[t].canonical.runs[i].len;
    }
  }
  qsort(out, (size_t)count, sizeof *out, compare_i64);
  int32_t kept = 0;
  for (int32_t i = 0; i < count; i++)
    if (kept == 0 || out[kept - 1] != out[i]) out[kept++] = out[i];
  return kept;
}

static bool dim_holds(const struct sf_dim_map *dim, int64_t index) {
  for (int32_t i = 0; i < dim->count; i++)
    if (index >= dim->runs[i].start && index < dim->runs[i].start + dim->runs[i].len) return true;
  return false;
}

/* In every cut of the table, the ranks that hold a piece are neighbours in tp and, unless all cp ranks hold it, neighbours in cp. */
static void piece_holders(struct sf_cut_piece *piece, const struct sf_cut_plan *plan) {
  int32_t holders = 0, last = 0;
  for (int32_t at = 0; at < plan->tp * plan->cp; at++) {
    if (!dim_holds(&plan->ranks[at].canonical, piece->start)) continue;
    if (holders++ == 0) piece->tp_first = at % plan->tp, piece->cp_first = at / plan->tp;
    last = at;
  }
  piece->tp_last = last % plan->tp;
  piece->cp_last = last / plan->tp;
  SF_ASSERT_EQ((piece->tp_last - piece->tp_first + 1) * (piece->cp_last - piece->cp_first + 1), holders);
  if (plan->cp == 1) piece->cp_last = INT32_MAX; /* cut alike on all cp ranks, however many */
}

/* Splits a rank's runs at the boundaries; pieces NULL only counts. */
static int32_t pieces_split(struct sf_cut_piece *pieces, const struct sf_dim_map *dim, const int64_t *boundaries, int32_t boundary_count) {
  int32_t count = 0;
  int64_t local = 0;
  for (int32_t i = 0; i < dim->count; i++) {
    const int64_t end = dim->runs[i].start + dim->runs[i].len;
    int64_t start = dim->runs[i].start;
    for (int32_t b = 0; b < boundary_count && start < end; b++) {
      if (boundaries[b] <= start) continue;
      const int64_t stop = boundaries[b] < end ? boundaries[b] : end;
      if (pieces != NULL) pieces[count] = (struct sf_cut_piece){.start = start, .local = local, .len = stop - start};
      count++;
      local += stop - start;
      start = stop;
    }
  }
  return count;
}

enum sf_status sf_cut_plan_create(struct sf_cut_plan *out, const struct sf_case *c, enum sf_cut cut, int64_t size, struct sf_arena *arena) {
  const bool by_cp = cut == SF_CUT_TOKENS || cut == SF_CUT_SEQUENCE;
  const int64_t tp = sf_cut_is_expert(cut) ? c->layout.ep * c->layout.etp : c->layout.tp, count = by_cp ? tp * c->layout.cp : tp;
  struct sf_cut_rank *ranks = sf_arena_alloc(arena, (size_t)count * sizeof *ranks);
  int64_t *boundaries = sf_arena_alloc(arena, (size_t)count * 2 * SF_RUNS_MAX * sizeof *boundaries);
  if (ranks == NULL || boundaries == NULL) return SF_ENOMEM;
  const struct sf_cut_plan plan = {.cut = cut, .size = size, .tp = (int32_t)tp, .cp = (int32_t)(count / tp), .ranks = ranks};
  for (int64_t t = 0; t < count; t++) {
    ranks[t].canonical = sf_canonical_dim(c, cut, size, t % tp, t / tp);
    sf_dim_map_set_partial(&ranks[t].canonical, 0);
    ranks[t].length = sf_dim_map_length(&ranks[t].canonical);
  }
  const int32_t boundary_count = boundaries_collect(boundaries, ranks, count);
  for (int64_t t = 0; t < count; t++) {
    ranks[t].count = pieces_split(NULL, &ranks[t].canonical, boundaries, boundary_count);
    ranks[t].pieces = sf_arena_alloc(arena, (size_t)ranks[t].count * sizeof *ranks[t].pieces);
    if (ranks[t].pieces == NULL) return SF_ENOMEM;
    pieces_split(ranks[t].pieces, &ranks[t].canonical, boundaries, boundary_count);
    for (int32_t i = 0; i < ranks[t].count; i++) piece_holders(&ranks[t].pieces[i], &plan);
  }
  *out = plan;
  return SF_OK;
}

bool sf_cut_rank_matches(const struct sf_cut_rank *cut, const struct sf_dim_map *declared) {
  const struct sf_dim_map *canonical = &cut->canonical;
  int32_t run = 0;
  int64_t into = 0; /* how much of the canonical run the declared runs have covered */
  for (int32_t i = 0; i < declared->count; i++) {
    int64_t start = declared->runs[i].start, left = declared->runs[i].len;
    while (left > 0) {
      if (run == canonical->count || canonical->runs[run].start + into != start) return false;
      const int64_t take = left < canonical->runs[run].len - into ? left : canonical->runs[run].len - into;
      start += take;
      left -= take;
      into += take;
      if (into == canonical->runs[run].len) run++, into = 0;
    }
  }
  return run == canonical->count;
}
