/* What the files of the codec and the shrinker share. */
#ifndef SF_GENERATORS_CODEC_INTERNAL_H
#define SF_GENERATORS_CODEC_INTERNAL_H

#include "generators/codec.h"
#include "harness/base/bytes.h"
#include "harness/space/solver.h"
#include "harness/spec/case_rules.h"

/* The walk: every choice of a case, in the order in which it is drawn. What is computed comes before who computes it, features
 * before sizes; SWARM only tilts the weights of the features, so that rare ones meet. */
#define SF_WALK_MAP(X)                                                                                                                     \
  X(SWARM, "")                                                                                                                             \
  X(MODE, "mode")                                                                                                                          \
  X(COMPUTE, "precision.compute")                                                                                                          \
  X(NORM, "model.norm")                                                                                                                    \
  X(ACTIVATION, "model.activation")                                                                                                        \
  X(KV_LORA, "model.kv_lora_rank")                                                                                                         \
  X(POSITIONS, "model.positions")                                                                                                          \
  X(Q_LORA, "model.q_lora_rank")                                                                                                           \
  X(ROPE_DIM, "model.qk_rope_dim")                                                                                                         \
  X(BIAS, "model.bias")                                                                                                                    \
  X(TIED, "model.tied")                                                                                                                    \
  X(ADAPTER, "model.adapter")                                                                                                              \
  X(EXPERTS, "moe.experts")                                                                                                                \
  X(ROUTER, "moe.router")                                                                                                                  \
  X(MOE_SCOPE, "moe.scope")                                                                                                                \
  X(CAPACITY, "moe.capacity_milli")                                                                                                        \
  X(TOPK, "moe.topk")                                                                                                                      \
  X(EXPERT_FFN, "moe.ffn")                                                                                                                 \
  X(SHARED_FFN, "moe.shared_ffn")                                                                                                          \
  X(AUX, "moe.aux_micro")                                                                                                                  \
  X(Z_LOSS, "moe.z_micro")                                                                                                                 \
  X(QK_NORM, "model.qk_norm")                                                                                                              \
  X(SINKS, "model.sinks")                                                                                                                  \
  X(PARALLEL_RESIDUAL, "model.parallel_residual")                                                                                          \
  X(POST_NORM, "model.post_norm")                                                                                                          \
  X(MTP_DEPTH, "model.mtp_depth")                                                                                                          \
  X(MTP_WEIGHT, "train.mtp_weight_milli")                                                                                                  \
  X(RESIDUAL_FP32, "precision.residual_fp32")                                                                                              \
  X(STOCHASTIC, "precision.stochastic")                                                                                                    \
  X(LOSS_SCALE, "precision.loss_scale_log2")                                                                                               \
  X(LOSS_SCALE_WINDOW, "precision.loss_scale_window")                                                                                      \
  X(DROPOUT, "train.dropout_milli")                                                                                                        \
  X(FP8_RECIPE, "precision.fp8_recipe")                                                                                                    \
  X(FP8_HISTORY, "precision.fp8_history")                                                                                                  \
  X(SMOOTHING, "train.label_smoothing_milli")                                                                                              \
  X(EXACT, "data.exact")                                                                                                                   \
  X(OVERFLOW, "data.overflow")                                                                                                             \
  X(DOCUMENTS, "data.documents")                                                                                                           \
  X(PADDING, "data.padding")                                                                                                               \
  X(LOSS_NORM, "train.loss_norm")                                                                                                          \
  X(CLIP, "train.clip_milli")                                                                                                              \
  X(WEIGHT_DECAY, "train.weight_decay_milli")                                                                                              \
  X(FROZEN, "train.frozen")                                                                                                                \
  X(TOKENS, "data.tokens")                                                                                                                 \
  X(MASK, "data.mask")                                                                                                                     \
  X(WEIGHTS, "data.weights")                                                                                                               \
  X(ACTS, "data.acts")                                                                                                                     \
  X(GRADS, "data.grads")                                                                                                                   \
  X(LAYERS, "model.layers")                                                                                                                \
  X(FP8_FIRST, "precision.fp8_bf16_first")                                                                                                 \
  X(FP8_LAST, "precision.fp8_bf16_last")                                                                                                   \
  X(HEADS, "model.heads")                                                                                                                  \
  X(KV_HEADS, "model.kv_heads")                                                                                                            \
  X(HEAD_DIM, "model.head_dim")                                                                                                            \
  X(HIDDEN, "model.hidden")                                                                                                                \
  X(FFN, "model.ffn")                                                                                                                      \
  X(VOCAB, "model.vocab")                                                                                                                  \
  X(VOCAB_PADDED, "model.vocab_padded")                                                                                                    \
  X(SEQ, "model.seq")                                                                                                                      \
  X(MEMORY_SEQ, "model.memory_seq")                                                                                                        \
  X(WINDOW, "model.window")                                                                                                                \
  X(STEPS, "train.steps")                                                                                                                  \
  X(MICROBATCHES, "train.microbatches")                                                                                                    \
  X(MICROBATCH_SIZE, "train.microbatch_size")                                                                                              \
  X(RECOMPUTE, "train.recompute_layers")                                                                                                   \
  X(LR, "train.lr_micro")                                                                                                                  \
  X(BETA1, "train.beta1_milli")                                                                                                            \
  X(BETA2, "train.beta2_milli")                                                                                                            \
  X(TP, "layout.tp")                                                                                                                       \
  X(SP, "layout.sp")                                                                                                                       \
  X(TP_OVERLAP, "layout.tp_overlap")                                                                                                       \
  X(RECOMPUTE_SHARDED, "layout.recompute_sharded")                                                                                         \
  X(PP, "layout.pp")                                                                                                                       \
  X(VPP, "layout.vpp")                                                                                                                     \
  X(PP_FIRST, "layout.pp_first_layers")                                                                                                    \
  X(PP_LAST, "layout.pp_last_layers")                                                                                                      \
  X(DP, "layout.dp")                                                                                                                       \
  X(CP, "layout.cp")                                                                                                                       \
  X(CP_COMM, "layout.cp_comm")                                                                                                             \
  X(EP, "layout.ep")                                                                                                                       \
  X(ETP, "layout.etp")                                                                                                                     \
  X(ZERO, "layout.zero")                                                                                                                   \
  X(ORDER, "layout.order")                                                                                                                 \
  X(BUCKET, "layout.bucket_elements")                                                                                                      \
  X(OVERLAP, "layout.overlap")                                                                                                             \
  X(RELOAD_AFTER, "reload.after_step")                                                                                                     \
  X(SECOND_TP, "reload.tp")                                                                                                                \
  X(SECOND_SP, "reload.sp")                                                                                                                \
  X(SECOND_TP_OVERLAP, "reload.tp_overlap")                                                                                                \
  X(SECOND_RECOMPUTE_SHARDED, "reload.recompute_sharded")                                                                                  \
  X(SECOND_PP, "reload.pp")                                                                                                                \
  X(SECOND_VPP, "reload.vpp")                                                                                                              \
  X(SECOND_PP_FIRST, "reload.pp_first_layers")                                                                                             \
  X(SECOND_PP_LAST, "reload.pp_last_layers")                                                                                               \
  X(SECOND_DP, "reload.dp")                                                                                                                \
  X(SECOND_CP, "reload.cp")                                                                                                                \
  X(SECOND_CP_COMM, "reload.cp_comm")                                                                                                      \
  X(SECOND_EP, "reload.ep")                                                                                                                \
  X(SECOND_ETP, "reload.etp")                                                                                                              \
  X(SECOND_ZERO, "reload.zero")                                                                                                            \
  X(SECOND_ORDER, "reload.order")                                                                                                          \
  X(SECOND_BUCKET, "reload.bucket_elements")                                                                                               \
  X(SECOND_OVERLAP, "reload.overlap")                                                                                                      \
  X(SCHEDULE, "schedule")                                                                                                                  \
  X(SEED, "seed")

enum sf_walk {
#define X(name, path) SF_WALK_##name,
  SF_WALK_MAP(X)
#undef X
      SF_WALK_COUNT
};
_Static_assert(SF_WALK_SECOND_OVERLAP - SF_WALK_SECOND_TP == SF_WALK_OVERLAP - SF_WALK_TP, "the second layout is walked as the first");
_Static_assert((int)SF_WALK_COUNT <= (int)SF_STREAM_MAX, "every place of the walk has a place in the stream");

/* Places of the layout that reloading goes on with, and the first layout's place of the same field. */
static inline bool sf_walk_is_second(enum sf_walk place) { return place >= SF_WALK_SECOND_TP && place <= SF_WALK_SECOND_OVERLAP; }
static inline enum sf_walk sf_walk_first(enum sf_walk place) {
  return sf_walk_is_second(place) ? (enum sf_walk)(place - SF_WALK_SECOND_TP + SF_WALK_TP) : place;
}

const char *sf_walk_path(enum sf_walk place); /* "swarm" for SF_WALK_SWARM */

/* The value of a place in a case; the order's is its number among the permutations of the axes (0: the default). */
int64_t sf_walk_get(const struct sf_case *c, const struct sf_space *space, enum sf_walk place);
void sf_walk_put(struct sf_case *c, const struct sf_space *space, enum sf_walk place, int64_t value);

/* Permutations of the axes in lexicographic order of sf_axis; -1 for a text that is none. */
enum { SF_ORDER_COUNT = 120 };
void sf_order_text(char out[SF_ORDER_TEXT], int64_t number);
/* Appends a setting as --set takes it: "layout.tp=2..8", "layout.cp_comm=ring". */
void sf_walk_append(struct sf_text *out, enum sf_walk place, struct sf_range range);
int64_t sf_order_number(const char *text);

/* What each place may still become: decided places are single values. */
struct sf_bounds {
  const struct sf_space *space; /* borrowed */
  struct sf_range at[SF_WALK_COUNT];
  int64_t max_ranks;
  bool may_train_nothing; /* a case where every parameter is frozen was asked for, field by field */
  struct sf_solver solver; /* of what stands above, once solved */
};
void sf_bounds_init(struct sf_bounds *bounds, const struct sf_space *space);
/* Whether a valid case, with something to train, lies within the bounds. Prepares them for the questions below. */
bool sf_bounds_solve(struct sf_bounds *bounds);
/* Whether one of them has the place within this range; and makes it so. */
bool sf_bounds_allow(struct sf_bounds *bounds, enum sf_walk place, struct sf_range range);
bool sf_bounds_narrow(struct sf_bounds *bounds, enum sf_walk place, struct sf_range range);

/* The values of a place that are feasible within the bounds, simplest first, with the weights of random draws. */
enum { SF_DOMAIN_MAX = 192 };
struct sf_domain {
  int32_t count;
  int64_t values[SF_DOMAIN_MAX];
  uint32_t weights[SF_DOMAIN_MAX];
};
/* c holds what was decided before; swarm is the choice at SF_WALK_SWARM. Empty when nothing is feasible. */
void sf_domain_create(struct sf_domain *out, enum sf_walk place, const struct sf_case *c, int64_t swarm, struct sf_bounds *bounds,
                      bool is_asked);
/* Place of a value among those that the generator draws at a feature's place; SF_DOMAIN_MAX when it never does. */
int32_t sf_domain_rank(enum sf_walk place, int64_t value);
int32_t sf_domain_find(const struct sf_domain *domain, int64_t value); /* -1 when absent */

/* The classes of a place's values for covering, within range: each value of a place that has few, the small ones and the rest of a number.
 * Ascending and disjoint; none for places whose values have no classes. */
enum { SF_LEVELS_MAX = 16 };
int32_t sf_domain_levels(struct sf_range out[SF_LEVELS_MAX], enum sf_walk place, struct sf_range range, int64_t max_ranks);

/* sf_codec_decode, with every place within limits[place] too. */
enum sf_status sf_codec_decode_within(struct sf_case *out, struct sf_draw *draw, const struct sf_space *space,
                                      const struct sf_range limits[SF_WALK_COUNT], struct sf_error *error) SF_MUST_USE;

/* SCHEDULE and SEED are numbers of 63 bits rather than an index into a domain. */
static inline bool sf_walk_is_number(enum sf_walk place) { return place == SF_WALK_SCHEDULE || place == SF_WALK_SEED; }

/* How an edit treats a place: keep its value; keep it if the other edits allow, else take the next smaller value that they allow,
 * so that a feature stays on if it can; take the simplest; or take `value`. */
enum sf_edit_kind { SF_EDIT_KEEP, SF_EDIT_PREFER, SF_EDIT_RESET, SF_EDIT_ASSIGN };
struct sf_edit {
  enum sf_edit_kind kind[SF_WALK_COUNT];
  int64_t value[SF_WALK_COUNT];
};
/* The case that an edit makes of c, in the space; false when there is none. */
bool sf_codec_edit(struct sf_case *out, const struct sf_case *c, const struct sf_space *space, const struct sf_edit *edit);

/* Whether values outside of the generator's own were asked for. */
static inline bool sf_space_asks(const struct sf_space *space, enum sf_walk place) { return space->is_set[place] && !space->is_limited[place]; }

#endif
