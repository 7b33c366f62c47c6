#include "targets/builtin/optimizer/distributed_optimizer.h"

#include "targets/builtin/parallel/fault.h"

void sf_distributed_optimizer_build(struct sf_rank_run *run) {
  for (int32_t i = 0; i < run->buckets.count; i++) {
    struct sf_grad_bucket *bucket = &run->buckets.at[i];
    float **const states[] = {&bucket->master, &bucket->adam_m, &bucket->adam_v};
    for (int k = 0; k < 3; k++) *states[k] = sf_rank_alloc_zeros(run->env, bucket->shard_count);
  }
  run->params.gathered = sf_rank_alloc_zeros(run->env, run->buckets.elements);
}

void sf_distributed_optimizer_load(struct sf_rank_run *run, const struct sf_parameter *param, const float *values) {
  const struct sf_param_piece piece = sf_grad_buckets_piece(run, param);
  memcpy(param->bucket->master + piece.at, values + piece.first, (size_t)piece.count * sizeof *values);
}

/* Makes this rank's part of a parameter from its master. */
static void publish_own(struct sf_rank_run *run, const struct sf_parameter *param) {
  struct sf_device *dev = run->env->device;
  const struct sf_grad_bucket *bucket = param->bucket;
  const struct sf_param_piece piece = sf_grad_buckets_piece(run, param);
  const int64_t left = bucket->count - bucket->shard_count * sf_grad_bucket_group(run, bucket)->index;
  const bool is_last = piece.at + piece.count == (left < bucket->shard_count ? left : bucket->shard_count);
  if (sf_fault(run->env, SF_FAULT_ZERO_PARAM_UPDATE_LOST) && is_last) return;
  if (piece.count > 0) dev->ops->round(dev, param->model + piece.first, bucket->master + piece.at, piece.count, run->dtype);
}

/* The place of a bucket's weights in the buffer that all buckets share. */
static float *gathered_at(const struct sf_rank_run *run, const struct sf_grad_bucket *bucket) {
  return run->params.gathered + (bucket->grads - run->params.main_grads);
}

/* Collects a bucket from all shards. received is free between steps, and holds what is sent. */
static void gather(struct sf_rank_run *run, const struct sf_grad_bucket *bucket) {
  for (int32_t i = 0; i < run->params.count; i++) {
    const struct sf_parameter *param = run->params.at[i];
    if (param->bucket != bucket) continue;
    const struct sf_param_piece piece = sf_grad_buckets_piece(run, param);
    memcpy(bucket->received + piece.at, param->model + piece.first, (size_t)piece.count * sizeof(float));
  }
  const struct sf_group *group = sf_grad_bucket_group(run, bucket);
  if (group->size == 1)
    memcpy(gathered_at(run, bucket), bucket->received, (size_t)bucket->shard_count * sizeof(float));
  else
    sf_all_gather(run->env->comm, group, gathered_at(run, bucket), bucket->received, bucket->shard_count, run->dtype,
                "distributed_optimizer.all_gather");
}

/* Copies a bucket's weights out of the shared buffer and clears its place there. */
static void scatter(struct sf_rank_run *run, const struct sf_grad_bucket *bucket) {
  float *gathered = gathered_at(run, bucket);
  for (int32_t i = 0; i < run->params.count; i++) {
    const struct sf_parameter *param = run->params.at[i];
    if (param->bucket == bucket) memcpy(param->model, gathered + param->bucket_first, (size_t)param->count * sizeof(float));
  }
  const bool all = sf_fault(run->env, SF_FAULT_SHARED_BUF_OVERZERO);
  memset(all ? run->params.gathered : gathered, 0, (size_t)(all ? run->buckets.elements : bucket->count) * sizeof *gathered);
}

void sf_distributed_optimizer_publish(struct sf_rank_run *run) {
  for (int32_t i = 0; i < run->params.count; i++)
    if (run->params.at[i]->trainable) publish_own(run, run->params.at[i]);
  const int32_t count = sf_fault(run->env, SF_FAULT_ZERO_PARAM_GATHER_SKIPPED) ? 0 : run->buckets.count;
  for (int32_t i = 0; i < count; i++) gather(run, &run->buckets.at[i]);
  for (int32_t i = 0; i < count; i++) scatter(run, &run->buckets.at[i]);
}
