/* A logical tensor out of its ranks' pieces, block by block: replicas are compared bit for bit, summands added, holes counted. */
#ifndef SF_CHECK_MERGE_H
#define SF_CHECK_MERGE_H

#include "harness/check/trace_set.h"

enum { SF_BLOCK_ELEMENTS = 1 << 15 };

/* What the blocks so far showed. First elements are the lowest, in row-major order; -1 = none. */
struct sf_merge_report {
  int64_t gap_first, gap_count;           /* elements that no rank holds */
  int64_t conflict_first, conflict_count; /* elements in which replicas differ */
  int32_t conflict_rank, conflict_holder; /* of the first: the higher rank, and the lowest one that holds it too */
  double replica_squares;                 /* the largest squared distance of a rank's replica to the merged tensor */
};

struct sf_merger;
/* With room for blocks of any type; used for many tensors. SF_ENOMEM. */
enum sf_status sf_merger_create(struct sf_merger **out) SF_MUST_USE;
void sf_merger_destroy(struct sf_merger *merger); /* takes NULL */

/* Turns to another tensor; set and tensor are borrowed until the next one. No piece may overlap (sf_piece). SF_ENOMEM. */
enum sf_status sf_merger_begin(struct sf_merger *merger, const struct sf_trace_set *set, const struct sf_trace_tensor *tensor,
                               struct sf_error *error) SF_MUST_USE;
/* The type of blocks: the tensor's; F64 when something has to be added, or the ranks' types differ. */
enum sf_dtype sf_merger_dtype(const struct sf_merger *merger);
/* Merges elements [begin, end), at most SF_BLOCK_ELEMENTS, into *data, which is valid until the next block. Blocks may come in any order,
 * but only once where the report counts. An element that no rank holds is zero. Sums are added in fp64, in rank order; of replicas the
 * lowest rank's counts. */
enum sf_status sf_merger_block(struct sf_merger *merger, const void **data, int64_t begin, int64_t end, struct sf_error *error) SF_MUST_USE;
/* Of the blocks that were merged since sf_merger_begin. */
struct sf_merge_report sf_merger_report(const struct sf_merger *merger);

#endif
