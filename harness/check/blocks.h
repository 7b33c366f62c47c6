/* The blocks in which a tensor streams by: whole rows, or parts of one row where a row is longer than a block. */
#ifndef SF_CHECK_BLOCKS_H
#define SF_CHECK_BLOCKS_H

#include "harness/check/merge.h"

struct sf_block {
  int64_t begin, end;         /* elements of the logical tensor, row-major */
  int64_t row;                /* in which it begins */
  int64_t row_length;         /* elements of each row that are in it */
  bool parts;                 /* it is a part of one row */
  bool first_part, last_part; /* of its rows: both true when they are whole */
};

/* The tensor's first block, and the one after *block; false when there is none. */
bool sf_block_first(struct sf_block *block, const struct sf_trace_tensor *tensor);
bool sf_block_next(struct sf_block *block, const struct sf_trace_tensor *tensor);
/* Rows, or parts of rows, in the block. */
static inline int64_t sf_block_rows(const struct sf_block *block) { return (block->end - block->begin) / block->row_length; }

enum { SF_INDICES_TEXT = 22 * SF_ST_DIMS_MAX + 2, SF_MISFIT_TEXT = 2 * SF_INDICES_TEXT + 80 };

/* A shape or the place of an element, as text: "[3, 17]". Returns out. */
const char *sf_indices_text(char out[SF_INDICES_TEXT], const int64_t *indices, int32_t count);
/* Whether the ranks' pieces can be merged and compared with the reference's tensor. False: reason is a text for the user; else it is "". */
bool sf_tensor_fits(char reason[SF_MISFIT_TEXT], const struct sf_trace_tensor *tensor, const struct sf_trace_tensor *reference);
/* First rank whose piece names elements twice; -1 when there is none. */
int32_t sf_tensor_overlap_rank(const struct sf_trace_tensor *tensor);

#endif
