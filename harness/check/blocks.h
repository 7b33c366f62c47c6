/* The blocks in which a tensor streams by: whole rows, or parts of one row where a row is longer than a block. */
#ifndef SF_CHECK_BLOCKS_H
#define SF_CHECK_BLOCKS_H

#include "harness/check/merge.h"

struct sf_block {
  int64_t begin, end;    /* elements of the logical tensor, row-major */
  int64_t row;           /* in which it begins */
  int64_t row_length;    /* elements of each row that are in it */
  bool parts;            /* it is a part of one row */
  bool first_part, last_part; /* of its rows: both true when they are whole */
};

/* False when there is none (any more). */
bool sf_block_first(struct sf_block *block, const struct sf_trace_tensor *tensor);
bool sf_block_next(struct sf_block *block, const struct sf_trace_tensor *tensor);
static inline int64_t sf_block_rows(const struct sf_block *block) { return (block->end - block->begin) / block->row_length; }

/* Why the ranks' pieces cannot be merged, or not be compared with the reference's tensor: a text for the user; NULL when they can. */
const char *sf_tensor_misfit(const struct sf_trace_tensor *tensor, const struct sf_trace_tensor *reference);
/* First rank whose piece names elements twice; -1 when there is none. */
int32_t sf_tensor_overlap_rank(const struct sf_trace_tensor *tensor);

#endif
