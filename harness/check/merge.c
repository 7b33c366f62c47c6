#include "harness/check/merge.h"

#include "harness/base/assert.h"
#include "harness/check/kernel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = SF_BLOCK_ELEMENTS / 64, WIDEST = sizeof(double), SKIP_ELEMENTS_MAX = 1024, STAGE_ELEMENTS = 2 * SF_BLOCK_ELEMENTS };

/* One reading of the tensor: the plain elements of all ranks, or one sum. */
struct version {
  int64_t sum;
  int32_t rank; /* lowest rank that holds an element of it */
  double squares;
};

struct sheet {
  unsigned char *values;
  uint64_t held[WORDS]; /* a bit for each element that is there */
};

struct sf_merger {
  const struct sf_trace_set *set;
  const struct sf_trace_tensor *tensor;
  enum sf_dtype dtype;
  struct sheet merged, sum; /* sum: one version, if it is not the first */
  unsigned char *stage;     /* values read from a file */
  double *wide;             /* the same in fp64 */
  struct sf_segment *segments;
  struct version *versions;
  int32_t version_count;
  bool no_memory;
  int64_t begin, end;
  struct sf_merge_report report;
  struct sf_error *error;
};

enum sf_status sf_merger_create(struct sf_merger **out) {
  struct sf_merger *m = sf_alloc(sizeof *m);
  if (m == NULL) return SF_ENOMEM;
  m->merged.values = sf_alloc((size_t)SF_BLOCK_ELEMENTS * WIDEST);
  m->sum.values = sf_alloc((size_t)SF_BLOCK_ELEMENTS * WIDEST);
  m->stage = sf_alloc((size_t)STAGE_ELEMENTS * WIDEST);
  m->wide = sf_alloc((size_t)STAGE_ELEMENTS * sizeof *m->wide);
  m->segments = sf_alloc((size_t)SF_BLOCK_ELEMENTS * sizeof *m->segments);
  if (m->merged.values == NULL || m->sum.values == NULL || m->stage == NULL || m->wide == NULL || m->segments == NULL) {
    sf_merger_destroy(m);
    return SF_ENOMEM;
  }
  *out = m;
  return SF_OK;
}

void sf_merger_destroy(struct sf_merger *m) {
  if (m == NULL) return;
  sf_free(m->merged.values);
  sf_free(m->sum.values);
  sf_free(m->stage);
  sf_free(m->wide);
  sf_free(m->segments);
  sf_free(m->versions);
  sf_free(m);
}

/* --- versions ---------------------------------------------------------------------------------------------------- */

struct noting {
  struct sf_merger *m;
  int32_t rank;
};

static int32_t version_place(const struct sf_merger *m, int64_t sum) {
  int32_t low = 0, high = m->version_count;
  while (low < high) {
    const int32_t middle = low + (high - low) / 2;
    if (m->versions[middle].sum >= sum)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

static void note_sum(void *ctx, int64_t sum) {
  const struct noting *noting = ctx;
  struct sf_merger *m = noting->m;
  const int32_t at = version_place(m, sum);
  if (at < m->version_count && m->versions[at].sum == sum) return;
  struct version *versions = sf_grown(m->versions, m->version_count, sizeof *versions);
  if (versions == NULL) {
    m->no_memory = true;
    return;
  }
  m->versions = versions;
  memmove(&m->versions[at + 1], &m->versions[at], (size_t)(m->version_count - at) * sizeof *m->versions);
  m->versions[at] = (struct version){.sum = sum, .rank = noting->rank};
  m->version_count++;
}

enum sf_status sf_merger_begin(struct sf_merger *m, const struct sf_trace_set *set, const struct sf_trace_tensor *tensor,
                               struct sf_error *error) {
  bool wide = tensor->mixed;
  m->set = set;
  m->tensor = tensor;
  m->version_count = 0;
  m->no_memory = false;
  m->report = (struct sf_merge_report){.gap_first = -1, .conflict_first = -1, .conflict_rank = -1, .conflict_holder = -1};
  for (struct sf_piece *piece = tensor->pieces; piece != NULL; piece = piece->next) {
    struct noting noting = {m, piece->rank};
    wide |= piece->sum_max > 0;
    piece->apart_squares = 0;
    sf_piece_visit_sums(piece, note_sum, &noting);
  }
  m->dtype = wide ? SF_F64 : tensor->dtype;
  return m->no_memory ? sf_error_set(error, SF_ENOMEM, "%s: out of memory", set->path) : SF_OK;
}

enum sf_dtype sf_merger_dtype(const struct sf_merger *m) { return m->dtype; }

struct sf_merge_report sf_merger_report(const struct sf_merger *m) {
  struct sf_merge_report report = m->report;
  for (const struct sf_piece *piece = m->tensor->pieces; piece != NULL; piece = piece->next)
    if (!(piece->apart_squares <= report.replica_squares)) report.replica_squares = piece->apart_squares;
  for (int32_t i = 0; i < m->version_count; i++)
    if (!(m->versions[i].squares <= report.replica_squares)) report.replica_squares = m->versions[i].squares;
  return report;
}

/* --- which elements are there ------------------------------------------------------------------------------------ */

static bool is_held(const struct sheet *sheet, int64_t at) { return (sheet->held[at / 64] >> (at % 64)) & 1; }

/* The bits of word w that lie in [at, at + count). */
static uint64_t word_mask(int64_t w, int64_t at, int64_t count) {
  const int64_t from = at > 64 * w ? at - 64 * w : 0, to = at + count < 64 * w + 64 ? at + count - 64 * w : 64;
  return (to == 64 ? ~UINT64_C(0) : (UINT64_C(1) << to) - 1) & ~((UINT64_C(1) << from) - 1);
}

static void hold(struct sheet *sheet, int64_t at, int64_t count) {
  for (int64_t w = at / 64; 64 * w < at + count; w++) sheet->held[w] |= word_mask(w, at, count);
}

enum presence { ABSENT, PARTLY, PRESENT };
static enum presence presence_of(const struct sheet *sheet, int64_t at, int64_t count) {
  bool any = false, all = true;
  for (int64_t w = at / 64; 64 * w < at + count; w++) {
    const uint64_t mask = word_mask(w, at, count), bits = sheet->held[w] & mask;
    any |= bits != 0;
    all &= bits == mask;
  }
  return all ? PRESENT : any ? PARTLY : ABSENT;
}

/* --- replicas ---------------------------------------------------------------------------------------------------- */

/* Lowest rank that holds the element in some version up to `version`. */
static int32_t holder_of(const struct sf_merger *m, int32_t version, int64_t element) {
  struct sf_segment one;
  for (const struct sf_piece *piece = m->tensor->pieces; piece != NULL; piece = piece->next)
    for (int32_t v = 0; v <= version; v++)
      if (sf_piece_segments(&one, piece, m->versions[v].sum, element, element + 1) > 0) return piece->rank;
  return -1;
}

/* Compares elements of a later replica (on rank, in the version) with those that are there. Adds squared distances to *squares. */
static void compare_replica(struct sf_merger *m, double *squares, int64_t at, const unsigned char *values, int64_t count, int32_t rank,
                            int32_t version) {
  const size_t width = sf_dtype_wire_bytes(m->dtype);
  const unsigned char *known = m->merged.values + (size_t)at * width;
  if (memcmp(known, values, (size_t)count * width) == 0) return;
  for (int64_t i = 0; i < count; i++) {
    double left, right;
    const unsigned char *a = known + (size_t)i * width, *b = values + (size_t)i * width;
    if (memcmp(a, b, width) == 0) continue;
    sf_widen(&left, a, 1, m->dtype);
    sf_widen(&right, b, 1, m->dtype);
    if (isnan(left) && isnan(right)) continue; /* no one promises its sign and payload */
    *squares += (left - right) * (left - right);
    m->report.conflict_count++;
    const int64_t element = m->begin + at + i;
    if (m->report.conflict_first >= 0 && m->report.conflict_first <= element) continue;
    m->report.conflict_first = element;
    m->report.conflict_rank = rank;
    m->report.conflict_holder = holder_of(m, version, element);
  }
}

/* Puts plain elements into the merged block: copies new ones, compares the others. */
static void place_plain(struct sf_merger *m, struct sf_piece *piece, int64_t at, const unsigned char *values, int64_t count) {
  const size_t width = sf_dtype_wire_bytes(m->dtype);
  const enum presence presence = presence_of(&m->merged, at, count);
  if (presence == PARTLY) {
    const int64_t half = count / 2;
    place_plain(m, piece, at, values, half);
    place_plain(m, piece, at + half, values + (size_t)half * width, count - half);
  } else if (presence == PRESENT) {
    compare_replica(m, &piece->apart_squares, at, values, count, piece->rank, 0);
  } else {
    memcpy(m->merged.values + (size_t)at * width, values, (size_t)count * width);
    hold(&m->merged, at, count);
  }
}

static void place_summands(struct sheet *sheet, int64_t at, const double *values, int64_t count) {
  double *sums = (double *)(void *)sheet->values + at;
  for (int64_t i = 0; i < count; i++) sums[i] = is_held(sheet, at + i) ? sums[i] + values[i] : values[i];
  hold(sheet, at, count);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* Finds the segments [from, *to) that lie close enough in the file to be read at once; returns their length. */
static int64_t read_together(int64_t *to, const struct sf_segment *segments, int64_t from, int64_t count) {
  int64_t end = segments[from].local + segments[from].count;
  for (*to = from + 1; *to < count; (*to)++) {
    const struct sf_segment *next = &segments[*to];
    if (next->local < end || next->local - end > SKIP_ELEMENTS_MAX || next->local + next->count - segments[from].local > STAGE_ELEMENTS)
      break;
    end = next->local + next->count;
  }
  return end - segments[from].local;
}

/* Reads the piece's elements of the block that belong to `sum` into the sheet. */
static enum sf_status read_piece(struct sf_merger *m, struct sheet *sheet, struct sf_piece *piece, int64_t sum) {
  const struct sf_st_open *file = &m->set->files[piece->rank];
  const bool wide = m->dtype != piece->entry->dtype, adds = sum > 0;
  const size_t width = sf_dtype_wire_bytes(m->dtype);
  const int64_t count = sf_piece_segments(m->segments, piece, sum, m->begin, m->end);
  for (int64_t i = 0, next = 0; i < count; i = next) {
    const int64_t length = read_together(&next, m->segments, i, count), at = m->segments[i].logical - m->begin;
    if (next == i + 1 && !adds && !wide && presence_of(sheet, at, length) == ABSENT) { /* read it into its place */
      const enum sf_status status =
          sf_st_load(sheet->values + (size_t)at * width, file, piece->entry, m->segments[i].local, length, m->error);
      if (status != SF_OK) return status;
      hold(sheet, at, length);
      continue;
    }
    const enum sf_status status = sf_st_load(m->stage, file, piece->entry, m->segments[i].local, length, m->error);
    if (status != SF_OK) return status;
    if (wide || adds) sf_widen(m->wide, m->stage, length, piece->entry->dtype);
    const unsigned char *values = wide || adds ? (const unsigned char *)m->wide : m->stage;
    for (int64_t k = i; k < next; k++) {
      const struct sf_segment *segment = &m->segments[k];
      const unsigned char *from = values + (size_t)(segment->local - m->segments[i].local) * width;
      if (adds)
        place_summands(sheet, segment->logical - m->begin, (const double *)(const void *)from, segment->count);
      else
        place_plain(m, piece, segment->logical - m->begin, from, segment->count);
    }
  }
  return SF_OK;
}

/* When a shard is present both as a partial sum and as a finished sum, the two are replicas. */
static void merge_sum(struct sf_merger *m, int32_t version) {
  const double *sums = (const double *)(const void *)m->sum.values;
  double *merged = (double *)(void *)m->merged.values;
  for (int64_t i = 0; i < m->end - m->begin; i++) {
    if (!is_held(&m->sum, i)) continue;
    if (is_held(&m->merged, i))
      compare_replica(m, &m->versions[version].squares, i, (const unsigned char *)&sums[i], 1, m->versions[version].rank, version - 1);
    else
      merged[i] = sums[i];
    hold(&m->merged, i, 1);
  }
}

static void count_gaps(struct sf_merger *m) {
  const int64_t count = m->end - m->begin;
  if (presence_of(&m->merged, 0, count) == PRESENT) return;
  const size_t width = sf_dtype_wire_bytes(m->dtype);
  for (int64_t i = 0; i < count; i++) {
    if (is_held(&m->merged, i)) continue;
    memset(m->merged.values + (size_t)i * width, 0, width);
    if (m->report.gap_first < 0 || m->begin + i < m->report.gap_first) m->report.gap_first = m->begin + i;
    m->report.gap_count++;
  }
}

enum sf_status sf_merger_block(struct sf_merger *m, const void **data, int64_t begin, int64_t end, struct sf_error *error) {
  SF_ASSERT_LT(begin, end);
  SF_ASSERT_LE(end - begin, SF_BLOCK_ELEMENTS);
  SF_ASSERT_LE(end, m->tensor->count);
  m->begin = begin;
  m->end = end;
  m->error = error;
  memset(m->merged.held, 0, sizeof m->merged.held);
  for (int32_t v = 0; v < m->version_count; v++) {
    const int64_t sum = m->versions[v].sum;
    const bool apart = sum > 0;
    struct sheet *sheet = apart ? &m->sum : &m->merged;
    if (apart) memset(m->sum.held, 0, sizeof m->sum.held);
    for (struct sf_piece *piece = m->tensor->pieces; piece != NULL; piece = piece->next) {
      if (piece->sum_max < sum || piece->count == 0) continue;
      const enum sf_status status = read_piece(m, sheet, piece, sum);
      if (status != SF_OK) return status;
    }
    if (apart) merge_sum(m, v);
  }
  count_gaps(m);
  *data = m->merged.values;
  return SF_OK;
}
