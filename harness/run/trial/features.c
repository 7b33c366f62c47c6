#include "harness/run/trial/features.h"

#include <string.h>

enum { WIDE = 256 }; /* the blocks that products are computed in */

#define FEATURE(name, expression)                                                                                                          \
  static bool has_##name(const struct sf_case *c) { return (expression); }
#define FEATURE_ACTIVATION(constant, text, name, parts) FEATURE(name, c->model.activation == constant)

/* At most SF_FEATURES_MAX. The commonest value of a choice (RMSNorm, GELU, fp32, ring) has no row: a case without the other rows has it. */
#define FEATURES(X)                                                                                                                        \
  X(tp, c->layout.tp > 1)                                                                                                                  \
  X(sp, c->layout.sp)                                                                                                                      \
  X(tp_overlap, c->layout.tp_overlap)                                                                                                      \
  X(cp, c->layout.cp > 1)                                                                                                                  \
  X(cp_allgather, c->layout.cp_comm == SF_CP_ALLGATHER)                                                                                    \
  X(cp_a2a, c->layout.cp_comm == SF_CP_A2A)                                                                                                \
  X(dp, c->layout.dp > 1)                                                                                                                  \
  X(pp, c->layout.pp > 1)                                                                                                                  \
  X(two_axes, (c->layout.tp > 1) + (c->layout.cp > 1) + (c->layout.dp > 1) + (c->layout.pp > 1) >= 2)                                      \
  X(other_order, strcmp(c->layout.order, "tp-cp-ep-dp-pp") != 0)                                                                           \
  X(uneven_stages, c->layout.pp_first_layers > 0 || c->layout.pp_last_layers > 0)                                                          \
  X(zero1, c->layout.zero == 1)                                                                                                            \
  X(zero2, c->layout.zero == 2)                                                                                                            \
  X(interleaved, c->layout.vpp > 1)                                                                                                        \
  X(buckets, c->layout.bucket_elements > 0)                                                                                                \
  X(overlap, c->layout.overlap)                                                                                                            \
  X(isolated, c->mode == SF_MODE_ISOLATED)                                                                                                 \
  X(exact, c->data.exact)                                                                                                                  \
  X(given_overflow, c->data.overflow)                                                                                                      \
  X(bf16, c->precision.compute == SF_COMPUTE_BF16)                                                                                         \
  X(fp16, c->precision.compute == SF_COMPUTE_FP16)                                                                                         \
  X(fp8, c->precision.compute == SF_COMPUTE_FP8)                                                                                           \
  X(post_norm, c->model.post_norm)                                                                                                         \
  X(residual_fp32, c->precision.residual_fp32)                                                                                             \
  X(stochastic, c->precision.stochastic)                                                                                                   \
  X(loss_scale, c->precision.loss_scale_log2 > 0)                                                                                          \
  X(dynamic_loss_scale, c->precision.loss_scale_window > 0)                                                                                \
  X(layernorm, c->model.norm == SF_NORM_LAYER)                                                                                             \
  SF_OTHER_ACTIVATION_MAP(X##_ACTIVATION)                                                                                                  \
  X(parallel_residual, c->model.parallel_residual)                                                                                         \
  X(mtp, c->model.mtp_depth > 0)                                                                                                           \
  X(dropout, c->train.dropout_milli > 0)                                                                                                   \
  X(label_smoothing, c->train.label_smoothing_milli > 0)                                                                                   \
  X(sinks, c->model.sinks)                                                                                                                 \
  X(cross_attention, c->model.memory_seq > 0)                                                                                              \
  X(window, c->model.window > 0)                                                                                                           \
  X(latent_attention, c->model.kv_lora_rank > 0)                                                                                           \
  X(qk_norm, c->model.qk_norm)                                                                                                             \
  X(rotary, c->model.positions == SF_POS_ROTARY)                                                                                           \
  X(bias, c->model.bias)                                                                                                                   \
  X(tied, c->model.tied)                                                                                                                   \
  X(adapter, c->model.adapter)                                                                                                             \
  X(gqa, c->model.kv_heads<c->model.heads && c->model.kv_heads> 1)                                                                         \
  X(mqa, c->model.kv_heads == 1 && c->model.heads > 1)                                                                                     \
  X(kv_below_tp, c->model.kv_heads < c->layout.tp)                                                                                         \
  X(padded_vocab, c->model.vocab_padded > c->model.vocab)                                                                                  \
  X(moe, c->moe.experts > 0)                                                                                                               \
  X(shared_expert, c->moe.shared_ffn > 0)                                                                                                  \
  X(router_losses, c->moe.aux_micro > 0 || c->moe.z_micro > 0)                                                                             \
  X(ep, c->layout.ep > 1)                                                                                                                  \
  X(etp, c->layout.etp > 1)                                                                                                                \
  X(recompute, c->train.recompute_layers > 0)                                                                                              \
  X(recompute_sharded, c->layout.recompute_sharded)                                                                                        \
  X(clipping, c->train.clip_milli > 0)                                                                                                     \
  X(frozen, c->train.frozen != 0)                                                                                                          \
  X(microbatches, c->train.microbatches > 1)                                                                                               \
  X(reload, c->reload.after_step > 0)                                                                                                      \
  X(steps, c->train.steps > 1)                                                                                                             \
  X(per_microbatch_loss, c->train.loss_norm == SF_LOSS_PER_MICROBATCH)                                                                     \
  X(uneven_mask, c->data.mask == SF_MASK_UNEVEN)                                                                                           \
  X(documents, c->data.documents > 1 || c->data.padding > 0)                                                                               \
  X(sparse_mask, c->data.mask == SF_MASK_SPARSE)                                                                                           \
  X(edge_tokens, c->data.tokens == SF_TOKENS_EDGE)                                                                                         \
  X(other_weights, c->data.weights != SF_DIST_NORMAL)                                                                                      \
  X(other_values, c->data.acts != SF_DIST_NORMAL || c->data.grads != SF_DIST_NORMAL)                                                       \
  X(scales_overwritten, c->precision.fp8_recipe == SF_FP8_DELAYED && c->train.steps > c->precision.fp8_history + 1)                        \
  X(loss_scale_grows, c->precision.loss_scale_window > 0 && c->train.steps > c->precision.loss_scale_window)                               \
  X(late_reload, c->reload.after_step > 1)                                                                                                 \
  X(wide_ffn, c->model.ffn > WIDE)                                                                                                         \
  X(wide_vocab, c->model.vocab > WIDE)                                                                                                     \
  X(many_tokens, c->model.seq * c->train.microbatch_size > WIDE)                                                                           \
  X(more_microbatches_than_stages, c->layout.pp > 1 && c->train.microbatches / c->layout.dp > c->layout.pp)                                \
  X(tied_over_stages, c->model.tied && c->layout.pp > 1)                                                                                   \
  X(tied_padded_over_stages, c->model.tied && c->layout.pp > 1 && c->model.vocab_padded > c->model.vocab)

FEATURES(FEATURE)

#define ENTRY(name, expression) {#name, has_##name},
#define ENTRY_ACTIVATION(constant, text, name, parts) ENTRY(name, )
const struct sf_feature sf_features[] = {FEATURES(ENTRY)};
const int sf_feature_count = (int)(sizeof sf_features / sizeof sf_features[0]);
_Static_assert(sizeof sf_features / sizeof sf_features[0] <= SF_FEATURES_MAX, "a feature has a bit in the mask");

struct sf_feature_mask sf_features_of(const struct sf_case *c) {
  struct sf_feature_mask mask = {0};
  for (int i = 0; i < sf_feature_count; i++) {
    if (sf_features[i].present(c)) mask.words[i / 64] |= UINT64_C(1) << (i % 64);
  }
  return mask;
}
