/* A rank's parameters: fp32 master weight, the model's weight in the compute format, Adam's moments, the fp32 main gradient. */
#ifndef SF_TARGETS_PARAMETER_H
#define SF_TARGETS_PARAMETER_H

#include "targets/target.h"

struct sf_rank_run;
struct sf_grad_bucket;

struct sf_parameter {
  int32_t index; /* in the catalogue */
  enum sf_module_class cls;
  struct sf_shard_map map;       /* what this rank holds, declared by the layer */
  struct sf_shard_map wgrad_map; /* the same, with what is a partial sum over tp or cp marked; over cp by sf_parameters_build */
  int64_t count;                 /* elements held */
  int32_t chunk;                 /* model chunk of the rank */
  bool trainable;
  /* Told by the layer when it makes the parameter; */
  bool replicated;            /* every tp rank holds the same elements */
  bool sum_over_tp;           /* gradient is partial over tp: a sequence shard's tokens, or the rank's heads, only */
  bool expert;                /* cut over etp and ep; no gradient of one microbatch is traced */
  bool fused;                 /* rows are [q, k, v] groups or [gate; up] */
  int64_t kv_first, kv_count; /* elements replicated over kv_rep whose gradient is partial over it; count 0 = none */
  bool shared_embedding;      /* tied, and held by the first and the last stage */
  int32_t uses;               /* gradients that one microbatch brings */
  /* filled by sf_parameters_build. */
  /* The same memory in fp32, and with stochastic rounding, where both are bf16; but not with ZeRO, where the bucket has masters and
   * moments. */
  float *master, *model;
  float *adam_m, *adam_v, *main_grad; /* NULL when frozen */
  struct sf_grad_bucket *bucket;
  int64_t bucket_first; /* its place there */
  int32_t uses_left;    /* of the last microbatch */
};

struct sf_parameters {
  int32_t count, capacity;
  int32_t chunk;            /* whose parameters are being made */
  struct sf_parameter **at; /* in the catalogue's order of this stage's modules */
  float *main_grads;        /* all main gradients, bucket by bucket */
  float *gathered;          /* ZeRO: updated weights on their way from all shards, laid out as main_grads */
  float *scratch;           /* the largest parameter: weight gradient of a microbatch, change made by the step */
  float *updated;           /* stochastic rounding: the largest parameter's sum before it is rounded; */
  uint16_t *random;         /* its random bits */
};

/* How a layer cuts a parameter: maps of its two dimensions. */
struct sf_parameter_cut {
  struct sf_dim_map rows, cols;
};

/* Makes the parameter of a module (which: 0 weight, 1 bias) known; NULL when the model has none. The caller sets what it tells above.
 * Leaves the rank with SF_ENOMEM. */
struct sf_parameter *sf_parameter_create(struct sf_rank_run *run, enum sf_module_class cls, int32_t layer, int which,
                                         const struct sf_parameter_cut *cut);

/* The same of a parameter that every tp rank holds whole. is_partial: a rank's gradients are those of its own tokens or heads, which are
 * summed over tp at the end of the step. */
struct sf_parameter *sf_parameter_create_whole(struct sf_rank_run *run, enum sf_module_class cls, int32_t layer, int which,
                                               bool is_partial);

/* Allocates every parameter that was made; after this, none can be made. */
void sf_parameters_build(struct sf_rank_run *run);

/* Fills master and model of all parameters with the values of `step`, by each parameter's declared map (load.c). */
void sf_parameters_load(struct sf_rank_run *run, int64_t step);

/* model = round(master) */
void sf_parameter_publish(struct sf_rank_run *run, struct sf_parameter *param);

/* Hands one microbatch's gradient (fp32, shape of the shard) to the sink, adds what then stands in it to the main gradient and tells the
 * bucket. call: 0, or 1 for the tied embedding's use as output layer. */
void sf_parameter_accumulate(struct sf_rank_run *run, struct sf_parameter *param, float *grad, int call);

#endif
