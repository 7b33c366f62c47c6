#include "harness/check/piece.h"

#include "harness/base/assert.h"

#include <stdlib.h>
#include <string.h>

enum { DIMS_MAX = SF_ST_DIMS_MAX };

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* --- making a piece --------------------------------------------------------------------------------------------- */

static int compare_runs(const void *a, const void *b) {
  const struct sf_index_run *x = a, *y = b;
  if (x->start != y->start) return x->start < y->start ? -1 : 1;
  return x->local < y->local ? -1 : x->local > y->local;
}

/* Copies one dimension's runs, drops empty ones, joins neighbours, and sorts them. */
static enum sf_status dim_create(struct sf_index_dim *out, bool *overlaps, int64_t size, const struct sf_index_dim *source,
                                 struct sf_arena *arena, const char **reason) {
  const struct sf_index_run whole = {.len = size};
  const struct sf_index_run *runs = source == NULL ? &whole : source->runs;
  const int32_t count = source == NULL ? 1 : source->count;
  *out = (struct sf_index_dim){.size = size, .runs = sf_arena_alloc(arena, ((size_t)count + 1) * sizeof *out->runs)};
  if (out->runs == NULL) return SF_ENOMEM;
  for (int32_t i = 0; i < count; i++) {
    struct sf_index_run run = runs[i];
    if (run.start < 0 || run.len < 0 || run.sum < 0 || run.start > size || run.len > size - run.start) {
      *reason = "its index leaves the shape";
      return SF_EINPUT;
    }
    run.local = out->length;
    if (__builtin_add_overflow(out->length, run.len, &out->length)) {
      *reason = "its index has too many elements";
      return SF_EINPUT;
    }
    struct sf_index_run *last = out->count > 0 ? &out->runs[out->count - 1] : NULL;
    if (last != NULL && last->start + last->len == run.start && last->sum == run.sum)
      last->len += run.len;
    else if (run.len > 0)
      out->runs[out->count++] = run;
  }
  qsort(out->runs, (size_t)out->count, sizeof *out->runs, compare_runs);
  for (int32_t i = 1; i < out->count; i++) *overlaps |= out->runs[i].start < out->runs[i - 1].start + out->runs[i - 1].len;
  return SF_OK;
}

static bool is_whole(const struct sf_index_dim *dim) { return dim->count == 1 && dim->runs[0].start == 0 && dim->runs[0].len == dim->size; }

/* Joins outer and inner into one dimension; inner must be whole, or outer have a single index. */
static struct sf_index_dim join(const struct sf_index_dim *outer, const struct sf_index_dim *inner) {
  const struct sf_index_dim *many = is_whole(inner) ? outer : inner, *other = is_whole(inner) ? inner : outer;
  const int64_t times = is_whole(inner) ? inner->size : 1;
  struct sf_index_dim joined = *many;
  joined.size = outer->size * inner->size;
  joined.length = outer->length * inner->length;
  for (int32_t i = 0; i < joined.count; i++) {
    struct sf_index_run *run = &joined.runs[i];
    *run = (struct sf_index_run){run->start * times, run->len * times, run->local * times, larger(run->sum, other->runs[0].sum)};
  }
  return joined;
}

static void join_dims(struct sf_piece *piece) {
  int32_t kept = 0;
  for (int32_t d = 1; d < piece->dim_count; d++) {
    struct sf_index_dim *outer = &piece->dims[kept], *inner = &piece->dims[d];
    if (is_whole(inner) || (outer->size == 1 && is_whole(outer)))
      *outer = join(outer, inner);
    else
      piece->dims[++kept] = *inner;
  }
  piece->dim_count = kept + 1;
}

static enum sf_status sizes_fit(struct sf_piece *piece, const struct sf_piece_source *source, int64_t box_count, const char **reason) {
  const struct sf_st_entry *entry = source->entry;
  piece->count = source->flat ? source->count : box_count;
  if (source->flat && (source->first < 0 || source->count < 0 || source->first > box_count || source->count > box_count - source->first))
    *reason = "its flat range leaves the box of its index";
  else if (entry->count != piece->count || (source->flat && entry->dim_count != 1))
    *reason = "its index and its data differ in size";
  else
    return SF_OK;
  return SF_EINPUT;
}

enum sf_status sf_piece_create(struct sf_piece **out, const struct sf_piece_source *source, struct sf_arena *arena, const char **reason) {
  int64_t box_count = 1, all = 1;
  const int32_t dims = source->dim_count > 0 ? source->dim_count : 1; /* a lone number is a vector of one */
  struct sf_piece *piece = sf_arena_alloc(arena, sizeof *piece);
  if (piece == NULL) return SF_ENOMEM;
  *piece = (struct sf_piece){.rank = source->rank, .entry = source->entry, .dim_count = dims, .flat = source->flat, .first = source->first};
  piece->dims = sf_arena_alloc(arena, (size_t)dims * sizeof *piece->dims);
  if (piece->dims == NULL) return SF_ENOMEM;
  for (int32_t d = 0; d < dims; d++) {
    const int64_t size = source->dim_count > 0 ? source->shape[d] : 1;
    const bool has_list = source->dims != NULL && source->dim_count > 0;
    const enum sf_status status = dim_create(&piece->dims[d], &piece->overlaps, size, has_list ? &source->dims[d] : NULL, arena, reason);
    if (status != SF_OK) return status;
    const struct sf_index_dim *dim = &piece->dims[d];
    for (int32_t i = 0; i < dim->count; i++) piece->sum_max = larger(piece->sum_max, dim->runs[i].sum);
    if (__builtin_mul_overflow(box_count, dim->length, &box_count) || __builtin_mul_overflow(all, size, &all)) {
      *reason = "its shape has too many elements";
      return SF_EINPUT;
    }
    if (!source->flat && source->dim_count > 0 && (source->entry->dim_count != dims || source->entry->dims[d] != dim->length)) {
      *reason = "its index and its data differ in shape";
      return SF_EINPUT;
    }
  }
  const enum sf_status status = sizes_fit(piece, source, box_count, reason);
  if (status != SF_OK) return status;
  if (box_count > 0) join_dims(piece);
  *out = piece;
  return SF_OK;
}

/* --- its segments ------------------------------------------------------------------------------------------------ */

struct walk {
  struct sf_segment *out;
  int64_t found, sum, begin, end;
  const struct sf_piece *piece;
  int64_t logical_stride[DIMS_MAX], local_stride[DIMS_MAX];
};

/* Narrows [*from, *to) to the indices of a run that can reach the range of elements. at: element where index 0 begins. */
static void clip(int64_t *from, int64_t *to, int64_t at, int64_t stride, int64_t begin, int64_t end) {
  if (begin > at) *from = larger(*from, (begin - at) / stride);
  *to = end <= at ? *from : smaller(*to, (end - at + stride - 1) / stride);
}

static int32_t first_run_reaching(const struct sf_index_dim *dim, int64_t index) {
  int32_t low = 0, high = dim->count;
  while (low < high) {
    const int32_t middle = low + (high - low) / 2;
    if (dim->runs[middle].start + dim->runs[middle].len > index)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/* Walks dimension d from the given elements on; sum: the largest sum of the dimensions above. */
static void walk_dim(struct walk *w, int32_t d, int64_t logical, int64_t local, int64_t sum) {
  const struct sf_piece *piece = w->piece;
  const struct sf_index_dim *dim = &piece->dims[d];
  const int64_t logical_stride = w->logical_stride[d], local_stride = w->local_stride[d];
  const int64_t first_index = w->begin > logical ? (w->begin - logical) / logical_stride : 0;
  for (int32_t i = first_run_reaching(dim, first_index); i < dim->count; i++) {
    const struct sf_index_run *run = &dim->runs[i];
    const int64_t run_logical = logical + run->start * logical_stride, run_local = local + run->local * local_stride;
    const int64_t run_sum = larger(sum, run->sum);
    int64_t from = 0, to = run->len;
    if (run_logical >= w->end) break;
    clip(&from, &to, run_logical, logical_stride, w->begin, w->end);
    if (piece->flat) clip(&from, &to, run_local, local_stride, piece->first, piece->first + piece->count);
    if (from >= to) continue;
    if (d < piece->dim_count - 1) {
      for (int64_t k = from; k < to; k++) walk_dim(w, d + 1, run_logical + k * logical_stride, run_local + k * local_stride, run_sum);
    } else if (run_sum == w->sum) {
      w->out[w->found++] = (struct sf_segment){run_logical + from, run_local + from - (piece->flat ? piece->first : 0), to - from};
    }
  }
}

int64_t sf_piece_segments(struct sf_segment *out, const struct sf_piece *piece, int64_t sum, int64_t begin, int64_t end) {
  SF_ASSERT(!piece->overlaps);
  struct walk w = {.out = out, .sum = sum, .begin = begin, .end = end, .piece = piece};
  if (piece->count == 0 || sum > piece->sum_max || begin >= end) return 0;
  int64_t logical = 1, local = 1;
  for (int32_t d = piece->dim_count - 1; d >= 0; d--) {
    w.logical_stride[d] = logical;
    w.local_stride[d] = local;
    logical *= piece->dims[d].size;
    local *= piece->dims[d].length;
  }
  walk_dim(&w, 0, 0, 0, 0);
  return w.found;
}

void sf_piece_visit_sums(const struct sf_piece *piece, void (*visit)(void *ctx, int64_t sum), void *ctx) {
  if (piece->count == 0) return;
  visit(ctx, 0);
  if (piece->sum_max == 0) return;
  for (int32_t d = 0; d < piece->dim_count; d++)
    for (int32_t i = 0; i < piece->dims[d].count; i++)
      if (piece->dims[d].runs[i].sum > 0) visit(ctx, piece->dims[d].runs[i].sum);
}
