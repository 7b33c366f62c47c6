/* Packed documents and padding: which tokens of a sequence belong together (Megatron-LM: packed sequences, --reset-attention-mask and
 * --reset-position-ids). */
#ifndef SF_TARGETS_DOCUMENTS_H
#define SF_TARGETS_DOCUMENTS_H

#include "targets/builtin/parallel/rank_run.h"

/* Allocates room for one microbatch's positions where the case has documents. Leaves the rank with SF_ENOMEM. */
void sf_documents_create(struct sf_rank_run *run);

/* [microbatch_size][seq]: first position of each position's document, in the microbatch at hand; NULL where every sequence is one. Stays as
 * it is until another microbatch asks. */
const int32_t *sf_documents(struct sf_rank_run *run);

/* How many of the `left` positions from `position` on are of the same document. documents: of the sequence, or NULL. */
int64_t sf_documents_span(const int32_t *documents, int64_t position, int64_t left);

#endif
