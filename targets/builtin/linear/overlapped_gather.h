/* layout.tp_overlap: the rows of a column-parallel linear's input that the other tp ranks hold come to the weight's gradient one chunk at a
 * time, round the tp group, by a send to the next and a receive from the previous rank that are in flight while the chunk at hand is
 * multiplied (Transformer Engine: the ring exchange of its user buffers; Wang et al. 2023, "Overlap Communication with Dependent
 * Computation via Decomposition", ASPLOS). */
#ifndef SF_TARGETS_OVERLAPPED_GATHER_H
#define SF_TARGETS_OVERLAPPED_GATHER_H

#include "targets/builtin/parallel/mappings.h"

struct sf_overlapped_gather {
  const struct sf_group *tp;
  int64_t rows;           /* of a chunk */
  int64_t in;             /* features of the input */
  float *own;             /* this rank's chunk */
  float *at_hand, *spare; /* chunk of this step; what arrives for the next one */
  struct sf_ring ring;
};

/* Starts the exchange, so that it runs beside what comes before the weight's gradient. own [rows x in]: borrowed, and
 * overwritten on the way. */
void sf_overlapped_gather_begin(struct sf_overlapped_gather *gather, struct sf_rank_run *run, const struct sf_group *tp, float *own,
                                int64_t rows, int64_t in);

/* Shape: grad [tp rows x out], the chunks [rows x in] each -> dw [out x in], fp32.
 * Computes unit grad^T a as the sum of tp products, this rank's rows first, then those of the ranks before it, in fp32: equal to the
 * product over all tokens but for the order of its sum. Ends the exchange. */
void sf_overlapped_weight_grad(struct sf_overlapped_gather *gather, struct sf_rank_run *run, float *dw, const float *grad, float unit,
                               int64_t out);

#endif
