/* Inside the check: a culprit's tensor, loaded for the diagnosis. */
#ifndef SF_CHECK_CHECK_WINDOW_H
#define SF_CHECK_CHECK_WINDOW_H

#include "harness/check/check_internal.h"

/* Rows of a tensor that are looked at: elements [begin, end), counted row by row. Everything is the arena's. */
struct sf_window {
  struct sf_checking *checking;
  const struct sf_trace_tensor *reference, *tensor; /* the candidate's */
  int64_t begin, end;
  struct sf_arena *arena;
  struct sf_tensor_view view;
};

/* NULL on no memory. */
void *sf_window_alloc(struct sf_window *window, int64_t count, size_t size_bytes);
/* The window of a tensor of the same shape, merged, as floats. SF_EIO, SF_EINPUT, SF_ENOMEM with the error set. */
enum sf_status sf_window_load(float *out, struct sf_window *window, const struct sf_trace_set *set,
                              const struct sf_trace_tensor *tensor) SF_MUST_USE;
/* check_neighbours.c: fills in the other tensors of the reference that may stand in this one's place or are a part of it. SF_EIO,
 * SF_EINPUT, SF_ENOMEM. */
enum sf_status sf_window_relate(struct sf_window *window) SF_MUST_USE;

#endif
