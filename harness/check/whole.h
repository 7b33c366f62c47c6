/* A trace of many ranks as one of one rank: what an anchored reference is given (targets/worker.md). */
#ifndef SF_CHECK_WHOLE_H
#define SF_CHECK_WHOLE_H

#include "harness/check/trace_set.h"

/* Writes the set's logical tensors, merged, as the trace of one rank into a folder that is there. Left out are recomputed activations, and
 * tensors that cannot be merged or of which no rank has some elements: nothing can be made of them. Of replicas that differ the lowest
 * rank's counts; sums are written in F64. Streams: memory does not grow with the size of tensors. SF_EINPUT, SF_EIO, SF_ENOSPC, SF_ENOMEM;
 * then no file is there. */
enum sf_status sf_whole_write(const char *folder, const struct sf_trace_set *set, struct sf_error *error) SF_MUST_USE;

#endif
