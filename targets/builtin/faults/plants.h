/* Planted bugs: one id each, off unless named. The table says, before any run, where each must show and how small its trigger is. */
#ifndef SF_TARGETS_PLANTS_H
#define SF_TARGETS_PLANTS_H

#include "harness/spec/catalog.h"

#define SF_FAULT_MAP(X)                                              \
  X(TP_EMBED_MASK, "tp-embed-mask")                                  \
  X(RECOMPUTE_CHUNK_STALE_INPUT, "recompute-chunk-stale-input")      \
  X(SP_FINAL_LN_NOSYNC, "sp-final-ln-nosync")                        \
  X(SP_ROUTER_NOSYNC, "sp-router-nosync")                            \
  X(ROUTER_PARTIAL_AS_REPLICATED, "router-partial-as-replicated")    \
  X(EP_GRAD_NO_DIVIDE, "ep-grad-no-divide")                          \
  X(NORM_EP_UNDERCOUNT, "norm-ep-undercount")                        \
  X(ETP_EP1_WRONG_DP_GROUP, "etp-ep1-wrong-dp-group")                \
  X(ATTN_DQ_WRONG, "attn-dq-wrong")                                  \
  X(PP_UNEVEN_OFFSET, "pp-uneven-offset")                            \
  X(MEAN_OF_MEANS_ACCUM, "mean-of-means-accum")                      \
  X(GATHER_BWD_INFLATES, "gather-bwd-inflates")                      \
  X(LINEAR_FROZEN_DGRAD_NOAR, "linear-frozen-dgrad-noar")            \
  X(MQA_KV_GRAD_NOAR, "mqa-kv-grad-noar")                            \
  X(GROUP_ORDER_CROSSTALK, "group-order-crosstalk")                  \
  X(REDUCE_BEFORE_WGRAD, "reduce-before-wgrad")                      \
  X(P2P_FREE_BEFORE_SENT, "p2p-free-before-sent")                    \
  X(NORM_REPLICA_OVERCOUNT, "norm-replica-overcount")                \
  X(CLIP_NOT_ON_ALL_REPLICAS, "clip-not-on-all-replicas")            \
  X(ACCUM_FIRST_MB_ONLY, "accum-first-mb-only")                      \
  X(ROWPARALLEL_BIAS_XTP, "rowparallel-bias-xtp")                    \
  X(FUSED_PROJ_CONTIGUOUS_SPLIT, "fused-proj-contiguous-split")      \
  X(NONAUTOGRAD_ALLREDUCE, "nonautograd-allreduce")                  \
  X(ADAM_SYNTHETIC_STEP, "adam-synthetic-step")                      \
  X(EMBED_SCATTER_WRONG_TP_GROUP, "embed-scatter-wrong-tp-group")    \
  X(XATTN_QKV_WRONG_TP_GROUP, "xattn-qkv-wrong-tp-group")            \
  X(LS_LOCAL_VOCAB, "ls-local-vocab")                                \
  X(VPP_GRADSYNC_WRONG_MB, "vpp-gradsync-wrong-mb")                  \
  X(ZERO_TIED_UNTIE, "zero-tied-untie")                              \
  X(ZERO_PARAM_GATHER_SKIPPED, "zero-param-gather-skipped")          \
  X(ZERO_PARAM_UPDATE_LOST, "zero-param-update-lost")                \
  X(FSDP_SCALE_WRONG_BUFFER, "fsdp-scale-wrong-buffer")              \
  X(ZERO_BOUNDARY_DROPS_ACCUM, "zero-boundary-drops-accum")          \
  X(SHARED_BUF_OVERZERO, "shared-buf-overzero")                      \
  X(WGRAD_RS_LOW_PRECISION, "wgrad-rs-low-precision")                \
  X(MLA_KPOS_GRAD_NOAR, "mla-kpos-grad-noar")                        \
  X(CP_LOCAL_LOSS_MEAN, "cp-local-loss-mean")                        \
  X(CP_ATTN_BWD_WRONG, "cp-attn-bwd-wrong")                          \
  X(CP_LOSS_SCALE, "cp-loss-scale")                                  \
  X(DP_SCALE_EXCL_CP, "dp-scale-excl-cp")                            \
  X(DDP_GROUP_EXCLUDES_CP, "ddp-group-excludes-cp")                  \
  X(ROPE_CP_WRONG_DIM, "rope-cp-wrong-dim")                          \
  X(MTP_LOCAL_TOKEN_NORM, "mtp-local-token-norm")                    \
  X(RNG_SP_SAME_SEED, "rng-sp-same-seed")                            \
  X(RNG_REPLICA_DESYNC, "rng-replica-desync")                        \
  X(RECOMPUTE_WRONG_TP_GROUP, "recompute-wrong-tp-group")            \
  X(TP_OVERLAP_WGRAD_WRONG, "tp-overlap-wgrad-wrong")                \
  X(FP8_AMAX_WRONG_GROUP, "fp8-amax-wrong-group")                    \
  X(FP8_LAYER_EXEMPT_LOCAL_INDEX, "fp8-layer-exempt-local-index")    \
  X(FP8_WEIGHT_CACHE_STALE, "fp8-weight-cache-stale")                \
  X(FP8_WRONG_CAST, "fp8-wrong-cast")                                \
  X(AUX_LOSS_NO_CP, "aux-loss-no-cp")                                \
  X(AUX_LOSS_TP_MULTIPLE, "aux-loss-tp-multiple")                    \
  X(AUX_PER_TOKEN_EXTRA_DIV, "aux-per-token-extra-div")              \
  X(PADMASK_WRONG_TP_GROUP, "padmask-wrong-tp-group")                \
  X(CKPT_LOCAL_LAYER_NAMES, "ckpt-local-layer-names")                \
  X(CKPT_BUCKET_OVERWRITE, "ckpt-bucket-overwrite")                  \
  X(STALE_MASTER_AFTER_LOAD, "stale-master-after-load")              \
  X(CANARY_CRASH, "canary-crash")                                    \
  X(CANARY_HANG, "canary-hang")                                      \
  X(CANARY_DEADLOCK, "canary-deadlock")                              \
  X(CANARY_MISMATCH, "canary-mismatch")

enum sf_fault {
  SF_FAULT_NONE,
#define X(name, text) SF_FAULT_##name,
  SF_FAULT_MAP(X)
#undef X
  SF_FAULT_COUNT
};

/* What shrinking must reach: world size, layers, and fields as "layout.tp=2 layout.sp=true". Fields not named must be as small as those
 * allow. ranks 0: nothing. */
struct sf_plant_minimal {
  int64_t ranks, layers;
  const char *fields;
  const char *key; /* NULL, or a part of the shrink keys that it holds for, as "conflict/" or "/act/" */
};

struct sf_plant {
  enum sf_fault fault;
  const char *id;
  const char *what;             /* one sentence */
  const char *source;           /* where a real framework had it, "" for canaries */
  unsigned kinds;               /* bits of enum sf_kind: where the first divergence may show; 0 for canaries */
  uint64_t modules;             /* bits of enum sf_module_class: modules that may be blamed, */
  uint32_t traits;              /* and bits of enum sf_trait: all that have one of these */
  const char *diagnosis; /* class of diagnosis that its shrunk case must get, as the oracle names it. NULL: not declared; "" for canaries.
                            Two, with a space between, where the smallest case does not tell them apart */
  const char *label;            /* canaries: the communication label at which it must be reported; else "" */
  struct sf_plant_minimal minimal;
  struct sf_plant_minimal also;  /* the smallest case of other shrink keys, which shrinking keeps, where that is another one */
  bool (*triggers)(const struct sf_case *c); /* whether a case can show it at all; of a case that reloads: before that, or by reloading */
};
/* Whether a module of this class may be blamed for it. */
bool sf_plant_may_blame(const struct sf_plant *plant, enum sf_module_class cls);
/* Whether a case can show it in the steps of either layout. */
bool sf_plant_is_triggered(const struct sf_plant *plant, const struct sf_case *c);
extern const struct sf_plant sf_plants[]; /* SF_FAULT_COUNT - 1 entries, in order of the enum */
/* SF_FAULT_NONE's entry does not exist: NULL for it and for unknown ids. */
const struct sf_plant *sf_plant_find(const char *id);
const struct sf_plant *sf_plant_of(enum sf_fault fault); /* NULL for SF_FAULT_NONE */

/* Whether the tp groups of the default rank order lie within pipeline stages of the case's layout. */
bool sf_plant_default_tp_in_stages(const struct sf_case *c);

#endif
