/* Token dispatcher: rows go to the ranks that hold their experts and come back (Megatron-LM: core/transformer/moe/token_dispatcher.py
 * MoEAlltoAllTokenDispatcher; GShard, arXiv 2006.16668). All-to-all over ep; then, where experts are cut, every etp rank gets the rows of
 * all, padded to the longest, and a reduce-scatter sums what they made of them. */
#ifndef SF_TARGETS_TOKEN_DISPATCHER_H
#define SF_TARGETS_TOKEN_DISPATCHER_H

#include "targets/builtin/moe/router.h"

struct sf_token_dispatcher {
  struct sf_group ep, etp;
  int64_t experts_local, topk, slots; /* slots: tokens_local * topk */
  int64_t rows_max;                   /* that this rank may get by the all-to-all */
};

/* Of one microbatch: buffers alone. Rows arrive as [etp member][ep member][expert][token], each etp member's part padded to `padded` rows.
 */
struct sf_dispatch {
  struct sf_dispatch_sizes {
    int64_t sent, padded; /* rows */
  } * sizes;
  int32_t *slots;                     /* [sent]: slot of each row sent, by expert, then by token */
  int64_t *send_counts, *recv_counts; /* rows per ep member */
  int32_t *rows;                      /* [first[experts_local]]: arrived rows by expert */
  int32_t *first;                     /* [experts_local + 1] */
};

/* Sizes alone; nothing to be given back. */
void sf_token_dispatcher_create(struct sf_token_dispatcher *dispatcher, struct sf_rank_run *run);
/* Works out who sends what; sizes are exchanged over ep and etp. */
void sf_dispatch_create(struct sf_rank_run *run, const struct sf_token_dispatcher *dispatcher, struct sf_dispatch *dispatch,
                        const struct sf_routing *routing);
/* Shape: x [tokens_local x h], or with per_slot [slots x h] -> arrived rows [etp * padded x h] (the caller's). label: a constant. */
float *sf_dispatch_rows(struct sf_rank_run *run, const struct sf_token_dispatcher *dispatcher, const struct sf_dispatch *dispatch,
                        const float *x, bool per_slot, const char *label);
/* Shape: rows as arrived (taken); with etp > 1 summands -> slots [slots x h] (the caller's), zeros where a slot was dropped. */
float *sf_dispatch_return(struct sf_rank_run *run, const struct sf_token_dispatcher *dispatcher, const struct sf_dispatch *dispatch,
                          float *rows, const char *label);

#endif
