/* Consistent tensors: values that are a function of (key, logical index) with random access, so that every rank fills
 * only its shard and every layout sees the same logical tensor. Integers and exact scaling only: no libm, the same bits
 * on every machine. */
#ifndef SF_TENSOR_CONSISTENT_H
#define SF_TENSOR_CONSISTENT_H

#include "harness/tensor/shard_map.h"

struct sf_fill {
  uint64_t key; /* sf_fill_key */
  enum sf_value_dist dist;
  float scale, offset; /* value = round(offset + round(scale * draw)); draws have mean 0 and variance about 1 */
  enum sf_dtype dtype; /* the result is rounded to this grid */
  /* Exact mode: value = scale * t, t in {-1, 0, 1} (one in four is 0) in place of the above. Where lattice > 1 all elements are zero but
   * those of a matrix of `cols` columns with (row + col) % lattice == 0: so few in each row and column that their sums are exact. */
  bool exact;
  int64_t cols, lattice;
  /* Large logits: every element of a row of `cols` columns has an amount of its row added, of 128 to 255 and either sign; in one row of
   * four one column has 256 more. Not with exact. */
  bool shifted_rows;
  /* Overflow: element `infinite` of the logical tensor is infinite in place of the above. */
  bool has_infinite;
  int64_t infinite;
};

/* Key of a stream: seed of the case, what the tensor is, and a salt that tells uses apart. */
uint64_t sf_fill_key(int64_t seed, uint64_t tensor, uint64_t salt);

/* Draw `index` of the stream, before scaling. Variances follow from the integer definition in consistent.c.
 * NORMAL sum of four 16-bit uniforms, at most 3.47 (variance 1.0027); UNIFORM 17 bits, at most 1.74 (1.0027); HEAVY normal times
 * 2^k, k geometric up to 6, rescaled (1.0056); OUTLIERS normal, one in 256 times 32 (the bulk has 1, the whole 5.0); OFFSET
 * normal plus 8; SPARSE nine of ten zero, the others normal times 2.995 (0.897). Exact in fp32 but for OFFSET's addition, which
 * rounds once. */
float sf_draw_value(uint64_t key, enum sf_value_dist dist, uint64_t index);

/* local: rows x cols as the map says; element = f(row * shape.cols + col) of the logical indices. What is partial over one of
 * zero_axes gets zeros (another rank carries the value), all else the value. */
void sf_fill_shard(float *local, const struct sf_fill *fill, struct sf_shape shape, const struct sf_shard_map *map, uint32_t zero_axes);
void sf_fill_range(float *out, const struct sf_fill *fill, int64_t first, int64_t count); /* row-major range of the logical tensor */

/* How the tensors of a case are filled. Parameters: the catalogue's scale and offset, data.weights, always fp32 (the master weight;
 * the model's weight is its rounding). step: isolated mode draws fresh parameters for each step; end to end passes 0. */
struct sf_fill sf_fill_for_param(const struct sf_catalog *catalog, int32_t param, int64_t step);
/* What isolated mode writes into a trace point of kind ACT, ACT_GRAD or WGRAD: key from (step, microbatch, kind, subject, call of a
 * WGRAD), data.acts or data.grads, rounded to the tensor's promised format. scale: 1 for ACT, 2^-6 for gradients. What attention reads
 * (ACT of LINEAR_QKV, QK_NORM and ROTARY, of CROSS_LINEAR_Q and CROSS_LINEAR_KV) has an offset of one spread where data.acts is OFFSET, and
 * so has what attention and norms begin their backward with (ACT_GRAD of the linears in front of them and of MTP_HNORM) where data.grads
 * is. What the loss reads (ACT of OUTPUT_LAYER and MTP_OUTPUT_LAYER) is then normal with shifted rows. With data.overflow one number is
 * infinite: of a drawn trained parameter's WGRAD in a drawn step (not the last of several) and microbatch, or of COMBINE's ACT_GRAD, which
 * one expert reads, where an expert's weight was drawn. */
struct sf_fill sf_fill_for_trace(const struct sf_catalog *catalog, struct sf_trace_id id);
/* The memory that cross-attention reads, [memory_seq * microbatch_size x hidden], the same in every layer: isolated data.acts as it is, end
 * to end normal, as an encoder's last norm would leave it; scale 1, rounded to the compute format; exact mode: integers. The model must
 * have one. */
struct sf_fill sf_fill_for_memory(const struct sf_catalog *catalog, int64_t step, int64_t microbatch);

/* Whether every rounding behind a tensor of an exact case (data.exact) is exact, in any order of sums and in the wire's format, so that it
 * must equal the reference. What is written into the trace and what parameters hold is chosen for it: see harness/docs/model.md, Exact. */
bool sf_trace_is_exact(const struct sf_catalog *catalog, struct sf_trace_id id);

/* Dropout of one module's branch in one microbatch. An element's fate is a function of (seed, step, microbatch, module, logical index). */
struct sf_dropout {
  uint64_t key;
  int64_t milli; /* an element is dropped with probability milli / 1000 */
  float factor;  /* of what is kept: 1000 / (1000 - milli), rounded to fp32 once */
};
/* module: index into the catalogue's modules. The same on every rank. */
struct sf_dropout sf_dropout_for_module(const struct sf_catalog *catalog, int32_t module, int64_t step, int64_t microbatch);
/* kept[i] = 1 where element first + i (row * hidden + column of the logical tensor) is kept, 0 where it is dropped. */
void sf_dropout_mask(float *kept, const struct sf_dropout *dropout, int64_t first, int64_t count);

/* The data of a step: seq * microbatch_size entries in row order (position * microbatch_size + sequence). Each may be NULL.
 * Labels are drawn apart from tokens (no shift). FEW: three ids of the case. A microbatch's mask always keeps at least one token and no
 * padding; UNEVEN: shares of 1/8 to 1 that differ by 1/4 at least between neighbouring microbatches; SPARSE: one to three tokens. */
void sf_data_microbatch(int32_t *tokens, int32_t *labels, float *mask, const struct sf_case *c, int64_t step, int64_t microbatch);
/* Packed documents and padding. Tokens of a sequence before its padding: 1..seq. A token is padding iff its position is not below this. */
int64_t sf_data_sequence_length(const struct sf_case *c, int64_t step, int64_t microbatch, int64_t sequence);
/* first[sequence * seq + position]: position of the first token of the token's document. A padding token is a document of its own. */
void sf_data_documents(int32_t *first, const struct sf_case *c, int64_t step, int64_t microbatch);
bool sf_data_has_documents(const struct sf_case *c); /* false: every sequence is one document */

/* Multi-token prediction at depth k looks k + 1 tokens ahead: what sf_data_microbatch gives for the token that far ahead in the sequence,
 * of the same document; where there is none token and label 0 and mask 0. */
void sf_data_ahead(int32_t *tokens, int32_t *labels, float *mask, const struct sf_case *c, int64_t step, int64_t microbatch, int64_t depth);

/* Number of tokens that the masks of all microbatches of a step keep. */
int64_t sf_data_step_tokens(const struct sf_case *c, int64_t step);
int64_t sf_data_step_tokens_ahead(const struct sf_case *c, int64_t step, int64_t depth); /* of the masks of sf_data_ahead */

#endif
