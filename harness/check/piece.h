/* What one rank holds of one logical tensor: index lists in up to eight dimensions, and where the elements lie in the rank's file. */
#ifndef SF_CHECK_PIECE_H
#define SF_CHECK_PIECE_H

#include "harness/base/alloc.h"
#include "harness/tensor/safetensors.h"

/* `len` logical indices from `start` on, at local index `local`. sum: 0, or the number of the sum that they are summands of. */
struct sf_index_run {
  int64_t start, len, local, sum;
};

/* Runs in the order of their starts; they do not overlap unless the piece says so. */
struct sf_index_dim {
  int64_t size, length; /* of the logical dimension; of the local one */
  int32_t count;
  struct sf_index_run *runs;
};

struct sf_piece {
  struct sf_piece *next; /* of the same tensor, of a higher rank */
  int32_t rank;
  const struct sf_st_entry *entry;
  int32_t dim_count;         /* at least 1 */
  struct sf_index_dim *dims; /* outermost first; dimensions that are contiguous on both sides are one */
  bool flat;                 /* of the box's elements, counted row by row, only [first, first + count) are held */
  int64_t first, count;      /* count: elements held */
  int64_t sum_max;           /* 0: nothing is a summand */
  double apart_squares;      /* scratch of the merger: how far its replica is from what was there */
  bool overlaps;             /* some element stands in it twice; then it can only be counted */
};

/* What the metadata says of a tensor, before it is checked. */
struct sf_piece_source {
  int32_t rank, dim_count;
  const int64_t *shape;
  const struct sf_index_dim *dims; /* size is not looked at; runs in local order, local not filled in; NULL: all whole */
  bool flat;
  int64_t first, count;
  const struct sf_st_entry *entry;
};

/* Makes the piece; its memory is the arena's. SF_EINPUT, with *reason a text for the user, when the lists leave the shape, or do not have
 * the entry's size; SF_ENOMEM. */
enum sf_status sf_piece_create(struct sf_piece **out, const struct sf_piece_source *source, struct sf_arena *arena,
                               const char **reason) SF_MUST_USE;

/* Elements next to each other both in the logical tensor (row-major) and in the piece's data. */
struct sf_segment {
  int64_t logical, local, count;
};

/* The segments of logical elements [begin, end) that are summands of sum `sum` (0: no summands), in the order of logical elements; at most
 * end - begin. The piece must not overlap. Returns their number. */
int64_t sf_piece_segments(struct sf_segment *out, const struct sf_piece *piece, int64_t sum, int64_t begin, int64_t end);
/* Calls visit with each sum that occurs in the piece, and with 0, unless the piece is empty. It may call several times with one sum. */
void sf_piece_visit_sums(const struct sf_piece *piece, void (*visit)(void *ctx, int64_t sum), void *ctx);

#endif
