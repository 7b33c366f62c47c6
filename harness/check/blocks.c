#include "harness/check/blocks.h"

#include <string.h>

static bool block_at(struct sf_block *block, const struct sf_trace_tensor *tensor, int64_t begin) {
  const int64_t cols = tensor->cols, left = tensor->count - begin;
  if (left <= 0) return false;
  *block = (struct sf_block){.begin = begin, .row = begin / cols, .parts = cols > SF_BLOCK_ELEMENTS};
  if (block->parts) {
    const int64_t of_row = cols - begin % cols;
    block->row_length = of_row < SF_BLOCK_ELEMENTS ? of_row : SF_BLOCK_ELEMENTS;
    block->end = begin + block->row_length;
    block->first_part = begin % cols == 0;
    block->last_part = block->row_length == of_row;
    return true;
  }
  const int64_t most = SF_BLOCK_ELEMENTS / cols * cols;
  block->row_length = cols;
  block->end = begin + (left < most ? left : most);
  block->first_part = block->last_part = true;
  return true;
}

bool sf_block_first(struct sf_block *block, const struct sf_trace_tensor *tensor) { return block_at(block, tensor, 0); }
bool sf_block_next(struct sf_block *block, const struct sf_trace_tensor *tensor) { return block_at(block, tensor, block->end); }

int32_t sf_tensor_overlap_rank(const struct sf_trace_tensor *tensor) {
  for (const struct sf_piece *piece = tensor->pieces; piece != NULL; piece = piece->next)
    if (piece->overlaps) return piece->rank;
  return -1;
}

const char *sf_tensor_misfit(const struct sf_trace_tensor *tensor, const struct sf_trace_tensor *reference) {
  const bool same = tensor->dim_count == reference->dim_count && memcmp(tensor->dims, reference->dims, sizeof tensor->dims) == 0;
  if (!same) return "its shape is not the reference's";
  if (tensor->odd_shape_rank >= 0) return "its ranks give it different shapes";
  return sf_tensor_overlap_rank(tensor) >= 0 ? "a rank's index names elements twice" : NULL;
}
