#include "harness/check/blocks.h"

#include <inttypes.h>
#include <stdio.h>

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

const char *sf_indices_text(char out[SF_INDICES_TEXT], const int64_t *indices, int32_t count) {
  int length = snprintf(out, SF_INDICES_TEXT, "[");
  for (int32_t d = 0; d < count; d++)
    length += snprintf(out + length, SF_INDICES_TEXT - (size_t)length, "%s%" PRId64, d > 0 ? ", " : "", indices[d]);
  snprintf(out + length, SF_INDICES_TEXT - (size_t)length, "]");
  return out;
}

bool sf_tensor_fits(char reason[SF_MISFIT_TEXT], const struct sf_trace_tensor *tensor, const struct sf_trace_tensor *reference) {
  char got[SF_INDICES_TEXT], want[SF_INDICES_TEXT];
  const int32_t overlap = sf_tensor_overlap_rank(tensor);
  *reason = '\0';
  sf_indices_text(got, tensor->dims, tensor->dim_count);
  if (!sf_tensor_same_shape(tensor, reference))
    snprintf(reason, SF_MISFIT_TEXT, "its shape is %s, and should be %s", got,
             sf_indices_text(want, reference->dims, reference->dim_count));
  else if (tensor->odd_shape_rank >= 0)
    snprintf(reason, SF_MISFIT_TEXT, "ranks give it different shapes: rank %d %s, rank %d %s", tensor->pieces->rank, got,
             tensor->odd_shape_rank, sf_indices_text(want, tensor->odd_dims, tensor->odd_dim_count));
  else if (overlap >= 0)
    snprintf(reason, SF_MISFIT_TEXT, "the index of rank %d names elements twice", overlap);
  return *reason == '\0';
}
