#include "targets/builtin/parallel/grad_buckets.h"

#include "targets/builtin/parallel/fault.h"
#include "targets/builtin/parallel/rank_run.h"

/* --- building --------------------------------------------------------------------------------------------------- */

/* Whether a parameter goes into a new bucket after this one. */
static bool closes(const struct sf_rank_run *run, const struct sf_grad_bucket *bucket, const struct sf_parameter *next) {
  if (run->buckets.zero > 0 && (bucket->is_embedding || next->shared_embedding)) return true;
  if (next->expert != bucket->expert) return true;
  return next->chunk != bucket->chunk || (run->c->layout.bucket_elements > 0 && bucket->count >= run->c->layout.bucket_elements);
}

static void assign_buckets(struct sf_rank_run *run) {
  struct sf_grad_buckets *buckets = &run->buckets;
  buckets->at = sf_rank_alloc(run->env, (size_t)(run->params.count + 1) * sizeof *buckets->at);
  for (int32_t i = run->params.count; i-- > 0;) {
    struct sf_parameter *param = run->params.at[i];
    if (!param->trainable) continue;
    if (buckets->count == 0 || closes(run, &buckets->at[buckets->count - 1], param))
      buckets->at[buckets->count++] =
          (struct sf_grad_bucket){.chunk = param->chunk, .expert = param->expert, .is_embedding = param->shared_embedding};
    param->bucket = &buckets->at[buckets->count - 1];
    param->bucket_first = param->bucket->count;
    param->bucket->count += param->count;
    param->bucket->param_count++;
  }
}

const struct sf_group *sf_grad_bucket_group(const struct sf_rank_run *run, const struct sf_grad_bucket *bucket) {
  /* With ZeRO the fault would be a hole in the states, not another sum. */
  const bool as_dense = sf_fault(run->env, SF_FAULT_ETP_EP1_WRONG_DP_GROUP) && run->parallel.ep.size == 1 && run->buckets.zero == 0;
  return bucket->expert && !as_dense ? &run->buckets.edp : &run->buckets.group;
}

static int64_t shards_of(const struct sf_rank_run *run, const struct sf_grad_bucket *bucket) {
  return run->buckets.zero > 0 ? sf_grad_bucket_group(run, bucket)->size : 1;
}

void sf_grad_buckets_build(struct sf_rank_run *run) {
  struct sf_grad_buckets *buckets = &run->buckets;
  /* With ZeRO the fault would be a hole in the states, not a missing sum. */
  const bool excludes_cp = sf_fault(run->env, SF_FAULT_DDP_GROUP_EXCLUDES_CP) && run->c->layout.zero == 0;
  buckets->group = excludes_cp ? run->parallel.dp : run->parallel.dp_cp;
  buckets->edp = run->parallel.edp;
  buckets->zero = run->c->layout.zero;
  buckets->overlap = run->c->layout.overlap;
  assign_buckets(run);
  for (int32_t i = 0; i < buckets->count; i++) {
    const int64_t parts = shards_of(run, &buckets->at[i]);
    buckets->at[i].shard_count = (buckets->at[i].count + parts - 1) / parts;
    buckets->elements += buckets->at[i].shard_count * parts;
  }
  run->params.main_grads = sf_rank_alloc(run->env, (size_t)buckets->elements * sizeof(float));
  float *next = run->params.main_grads;
  for (int32_t i = 0; i < buckets->count; i++) {
    struct sf_grad_bucket *bucket = &buckets->at[i];
    bucket->grads = next;
    next += bucket->shard_count * shards_of(run, bucket);
    if (buckets->zero > 0) bucket->received = sf_rank_alloc_zeros(run->env, bucket->shard_count);
    if (buckets->zero == 2) bucket->shard_grads = sf_rank_alloc_zeros(run->env, bucket->shard_count);
  }
  for (int32_t i = 0; i < run->params.count; i++) {
    struct sf_parameter *param = run->params.at[i];
    if (param->trainable) param->main_grad = param->bucket->grads + param->bucket_first;
  }
}

struct sf_param_piece sf_grad_buckets_piece(const struct sf_rank_run *run, const struct sf_parameter *param) {
  if (run->buckets.zero == 0 || !param->trainable) return (struct sf_param_piece){.count = param->count};
  const int64_t shard = param->bucket->shard_count, shard_first = shard * sf_grad_bucket_group(run, param->bucket)->index,
                shard_end = shard_first + shard;
  const int64_t param_end = param->bucket_first + param->count;
  const int64_t begin = shard_first > param->bucket_first ? shard_first : param->bucket_first;
  const int64_t end = shard_end < param_end ? shard_end : param_end;
  if (begin >= end) return (struct sf_param_piece){0};
  return (struct sf_param_piece){.first = begin - param->bucket_first, .count = end - begin, .at = begin - shard_first};
}

struct sf_param_state sf_grad_buckets_state(const struct sf_rank_run *run, const struct sf_parameter *param) {
  const struct sf_param_piece piece = sf_grad_buckets_piece(run, param);
  const struct sf_grad_bucket *bucket = param->bucket;
  if (run->buckets.zero == 0 || !param->trainable) return (struct sf_param_state){param->master, param->adam_m, param->adam_v, piece};
  return (struct sf_param_state){bucket->master + piece.at, bucket->adam_m + piece.at, bucket->adam_v + piece.at, piece};
}

const struct sf_group *sf_grad_buckets_model_group(const struct sf_rank_run *run, bool expert) {
  if (run->buckets.zero > 0 && (!expert || run->c->moe.experts > 0)) return &run->parallel.world;
  return expert ? &run->parallel.expert_model : &run->parallel.tp_pp;
}

/* --- a step ----------------------------------------------------------------------------------------------------- */

static void count_from_start(struct sf_rank_run *run, struct sf_grad_bucket *bucket) {
  bucket->params_left = bucket->param_count;
  for (int32_t i = 0; i < run->params.count; i++)
    if (run->params.at[i]->bucket == bucket) run->params.at[i]->uses_left = run->params.at[i]->uses;
}

void sf_grad_buckets_begin(struct sf_rank_run *run) {
  memset(run->params.main_grads, 0, (size_t)run->buckets.elements * sizeof(float));
  for (int32_t i = 0; i < run->params.count; i++) run->params.at[i]->uses_left = run->params.at[i]->uses;
  for (int32_t i = 0; i < run->buckets.count; i++) {
    struct sf_grad_bucket *bucket = &run->buckets.at[i];
    bucket->params_left = bucket->param_count;
    bucket->launched = false;
    bucket->request = 0;
    if (run->buckets.zero == 2) memset(bucket->shard_grads, 0, (size_t)bucket->shard_count * sizeof(float));
  }
}

/* ZeRO-2's factor before the reduction; taking it back is exact. */
static float scale_down(const struct sf_group *group) {
  float scale = 1.0f;
  for (int32_t size = 1; size < group->size; size *= 2) scale *= 0.5f;
  return scale;
}

static void launch(struct sf_rank_run *run, struct sf_grad_bucket *bucket) {
  struct sf_device *dev = run->env->device;
  const struct sf_grad_buckets *buckets = &run->buckets;
  const struct sf_group *group = sf_grad_bucket_group(run, bucket);
  bucket->launched = true;
  if (sf_fault(run->env, SF_FAULT_DP_SCALE_EXCL_CP) && run->c->train.loss_norm == SF_LOSS_PER_MICROBATCH)
    dev->ops->scale(dev, bucket->grads, (float)run->parallel.cp.size, bucket->count);
  if (buckets->zero == 0) {
    bucket->request =
        sf_iall_reduce(run->env->comm, group, bucket->grads, bucket->count, SF_F32, SF_REDUCE_SUM, "grad_buckets.all_reduce");
    return;
  }
  if (buckets->zero == 2) {
    const bool wrong_buffer = sf_fault(run->env, SF_FAULT_FSDP_SCALE_WRONG_BUFFER);
    float *scaled = wrong_buffer ? bucket->shard_grads : bucket->grads;
    dev->ops->scale(dev, scaled, scale_down(group), wrong_buffer ? bucket->shard_count : bucket->count);
  }
  if (group->size == 1) { /* no other rank holds these experts: the shard is all of them */
    memcpy(bucket->received, bucket->grads, (size_t)bucket->shard_count * sizeof *bucket->received);
    return;
  }
  const enum sf_dtype wire = sf_fault(run->env, SF_FAULT_WGRAD_RS_LOW_PRECISION) ? run->dtype : SF_F32;
  bucket->request = sf_ireduce_scatter(run->env->comm, group, bucket->received, bucket->grads, bucket->shard_count, wire,
                                       SF_REDUCE_SUM, "grad_buckets.reduce_scatter");
}

static bool is_reduced(const struct sf_rank_run *run, const struct sf_grad_bucket *bucket) {
  return run->buckets.zero > 0 || sf_grad_bucket_group(run, bucket)->size > 1;
}

/* Completes the bucket's reduction. ZeRO-2: the microbatch's gradients are added to the shard and dropped. */
static void settle(struct sf_rank_run *run, struct sf_grad_bucket *bucket) {
  struct sf_device *dev = run->env->device;
  sf_wait(run->env->comm, bucket->request);
  bucket->request = 0;
  if (run->buckets.zero != 2) return;
  if (sf_fault(run->env, SF_FAULT_ZERO_BOUNDARY_DROPS_ACCUM)) memset(bucket->shard_grads, 0, (size_t)bucket->shard_count * sizeof(float));
  dev->ops->axpy(dev, bucket->shard_grads, bucket->received, 1.0f, bucket->shard_count);
  memset(bucket->grads, 0, (size_t)bucket->count * sizeof(float));
  bucket->launched = false;
}

void sf_grad_buckets_enter(struct sf_rank_run *run, const struct sf_parameter *param) {
  if (run->buckets.zero == 2 && param->bucket->launched) settle(run, param->bucket);
}

void sf_grad_buckets_ready(struct sf_rank_run *run, struct sf_parameter *param) {
  struct sf_grad_buckets *buckets = &run->buckets;
  struct sf_grad_bucket *bucket = param->bucket;
  const bool counts = buckets->zero == 2 || (run->last_microbatch && buckets->overlap);
  if (!counts || !is_reduced(run, bucket) || (buckets->zero < 2 && bucket->launched)) return;
  if (--param->uses_left > 0 || --bucket->params_left > 0) return;
  launch(run, bucket);
  if (buckets->zero == 2) count_from_start(run, bucket);
  /* reduce-before-wgrad, vpp-gradsync-wrong-mb: the reduction starts before the last gradient is written. This makes the unlucky timing
   * certain, so that every schedule and backend shows it. */
  const bool unlucky = sf_fault(run->env, SF_FAULT_REDUCE_BEFORE_WGRAD) || sf_fault(run->env, SF_FAULT_VPP_GRADSYNC_WRONG_MB);
  if (unlucky || !buckets->overlap) settle(run, bucket);
}

/* Copies the shard back to its place among the main gradients, where later steps look for it. */
static void place_shard(struct sf_rank_run *run, const struct sf_grad_bucket *bucket) {
  struct sf_device *dev = run->env->device;
  const struct sf_group *group = sf_grad_bucket_group(run, bucket);
  float *place = bucket->grads + bucket->shard_count * group->index;
  const float *shard = run->buckets.zero == 2 ? bucket->shard_grads : bucket->received;
  memcpy(place, shard, (size_t)bucket->shard_count * sizeof *place);
  if (run->buckets.zero == 2) dev->ops->scale(dev, place, 1.0f / scale_down(group), bucket->shard_count);
}

void sf_grad_buckets_finish(struct sf_rank_run *run) {
  struct sf_grad_buckets *buckets = &run->buckets;
  for (int32_t i = 0; i < buckets->count; i++)
    if (buckets->zero != 2 && !buckets->at[i].launched && is_reduced(run, &buckets->at[i])) launch(run, &buckets->at[i]);
  for (int32_t i = 0; i < buckets->count; i++) {
    if (buckets->zero != 2 || buckets->at[i].launched) settle(run, &buckets->at[i]);
    if (buckets->zero > 0) place_shard(run, &buckets->at[i]);
  }
}
