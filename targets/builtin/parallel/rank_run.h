/* What the layers of one rank share while it runs a case: its groups, buffers, parameters, and where in the step it stands. */
#ifndef SF_TARGETS_RANK_RUN_H
#define SF_TARGETS_RANK_RUN_H

#include "targets/builtin/parallel/buffers.h"
#include "targets/builtin/parallel/fp8.h"
#include "targets/builtin/parallel/loss_scaler.h"
#include "targets/builtin/parallel/grad_buckets.h"
#include "targets/builtin/parallel/parallel_state.h"
#include "targets/builtin/parallel/parameter.h"

/* first: NULL without documents and padding; else those of microbatch (step, microbatch), if drawn. */
struct sf_rank_documents {
  int32_t *first;
  bool drawn;
  uint16_t step, microbatch;
};

struct sf_rank_run {
  const struct sf_rank_env *env;
  const struct sf_case *c;
  enum sf_dtype dtype;        /* compute format: what "round" means */
  enum sf_dtype stream_dtype; /* of the residual stream and its gradients */
  struct sf_parallel_state parallel;
  struct sf_buffers acts;            /* activations and their gradients */
  int64_t hidden;
  int64_t tokens;                    /* T = seq * microbatch_size, over cp: what this rank's tp group works on */
  int64_t tokens_local, token_first; /* this rank's part of them; all of them without sequence parallelism */
  struct sf_dim_map positions;       /* of a sequence, this cp rank's: all of them without context parallelism */
  struct sf_shard_map map_hidden;    /* [T x h], this rank's rows */
  struct sf_shard_map map_gathered;  /* [T x h], the cp rank's rows */
  struct sf_parameters params;
  struct sf_grad_buckets buckets;
  struct sf_loss_scaler scaler;
  int32_t *whole_ids;                /* [seq microbatch_size]: of a microbatch before this cp rank's are taken; */
  float *whole_mask;                 /* the same */
  struct sf_rank_documents documents; /* targets/builtin/parallel/documents.h */
  struct sf_fp8 fp8;
  /* Where the rank stands; goes into trace ids. */
  uint16_t step, microbatch; /* microbatch: global number */
  enum sf_pass pass;
  int64_t local_microbatch;
  bool last_microbatch; /* the backward that runs is this rank's last of the step */
};

/* Trace points (trace.c). ACT, ACT_GRAD: subject is a module of the catalogue. data is the live buffer, contiguous, as the map says. */
void sf_trace_act(const struct sf_rank_run *run, int32_t module, const struct sf_shard_map *map, float *data);
void sf_trace_act_grad(const struct sf_rank_run *run, int32_t module, const struct sf_shard_map *map, float *data);
/* The same tensor as it was received from the neighbouring pipeline stage: call 1. */
void sf_trace_received(const struct sf_rank_run *run, enum sf_kind kind, int32_t module, float *data);
/* WGRAD (pass BWD), PARAM, MAIN_GRAD, PARAM_DELTA (pass STEP). map: the parameter's declared one. With ZeRO the last two are the shard's
 * piece of the parameter, which may be empty. */
void sf_trace_param(const struct sf_rank_run *run, enum sf_kind kind, const struct sf_parameter *param, int call, float *data);
/* A number of the step, as this rank has it. */
void sf_trace_scalar(const struct sf_rank_run *run, enum sf_scalar scalar, float value);

/* Index of a module in the catalogue; the model must have it. */
int32_t sf_rank_module(const struct sf_rank_run *run, enum sf_module_class cls, int32_t layer);

#endif
