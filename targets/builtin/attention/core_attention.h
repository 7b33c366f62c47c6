/* Core attention of a rank's heads, with the sequence cut over cp (Megatron-LM: core/extensions/transformer_engine.py
 * TEDotProductAttention; Transformer Engine: context_parallel.py AttnFuncWithCPAndKVP2P, ..AndKVAllGather, ..AndQKVOA2A; Liu et al. 2023,
 * arXiv 2310.01889; Jacobs et al. 2023, arXiv 2309.14509).
 *
 * Without context parallelism a rank has all keys and values of its heads: one block. A cp rank holds chunks cp_index and 2 cp - 1 -
 * cp_index of 2 cp equal chunks of each sequence, so that causal work is even. layout.cp_comm: ring       keys, then values, pass round the
 * cp group block by block, by a send to the next and a receive from the previous rank that are in flight while the block at hand is
 * computed; in the backward the values, then the keys, each followed by the sum of its gradient in fp32, which comes home with the last
 * step; allgather  all keys and values are gathered (again in the backward); their gradients are reduce-scattered in fp32; a2a        heads
 * are traded for sequence: each rank gets all positions of 1/cp of its heads, and gives contexts back. Keys, values, contexts and a2a's
 * gradients travel in the compute format. Each result is rounded once. */
#ifndef SF_TARGETS_CORE_ATTENTION_H
#define SF_TARGETS_CORE_ATTENTION_H

#include "targets/builtin/attention/parallel_attention.h"

/* The positions of a sequence that a cp rank holds: chunks `index` and 2 cp - 1 - index; all of them when cp is 1. */
struct sf_dim_map sf_context_parallel_positions(int64_t seq, int64_t cp, int64_t index);

/* Copies the rows of cp rank `owner`, `cols` wide, between the whole microbatch and a packed piece. */
void sf_context_parallel_copy_rows(const struct sf_rank_run *run, float *whole, float *piece, int32_t owner, int64_t cols, bool to_whole);

/* Shape: acts->qkv [T/cp x qkv] (with a2a it becomes [T x qkv/cp], as the backward needs it) -> acts->probs, acts->context [T/cp x heads
 * d]. */
void sf_core_attention_forward(struct sf_rank_run *run, const struct sf_parallel_attention *attention, struct sf_attention_acts *acts);

/* g: gradient of the context, taken. Returns the gradient of acts->qkv as the forward was given it, [T/cp x qkv], the caller's; the sinks'
 * stands in the scratch afterwards: of this rank's queries, with a2a of its 1/cp of the heads and zero elsewhere. */
float *sf_core_attention_backward(struct sf_rank_run *run, const struct sf_parallel_attention *attention,
                                  const struct sf_attention_acts *acts, float *g);

#endif
