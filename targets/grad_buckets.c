#include "targets/grad_buckets.h"

#include "targets/fault.h"
#include "targets/rank_run.h"

/* Whether a parameter goes into a new bucket after this one. */
static bool closes(const struct sf_rank_run *run, const struct sf_grad_bucket *bucket, const struct sf_parameter *next) {
  return next->chunk != bucket->chunk || (run->c->layout.bucket_elements > 0 && bucket->count >= run->c->layout.bucket_elements);
}

void sf_grad_buckets_build(struct sf_rank_run *run) {
  struct sf_grad_buckets *buckets = &run->buckets;
  buckets->dp = sf_fault(run->env, SF_FAULT_DDP_GROUP_EXCLUDES_CP) ? run->parallel.dp : run->parallel.dp_cp;
  buckets->overlap = run->c->layout.overlap;
  buckets->at = sf_rank_alloc(run->env, (size_t)(run->params.count + 1) * sizeof *buckets->at);
  for (int32_t i = run->params.count; i-- > 0;) {
    struct sf_parameter *param = run->params.at[i];
    if (!param->trainable) continue;
    if (buckets->count == 0 || closes(run, &buckets->at[buckets->count - 1], param))
      buckets->at[buckets->count++] = (struct sf_grad_bucket){.grads = param->main_grad, .chunk = param->chunk};
    param->bucket = &buckets->at[buckets->count - 1];
    param->bucket->count += param->count;
    param->bucket->param_count++;
  }
}

void sf_grad_buckets_begin(struct sf_rank_run *run) {
  memset(run->params.main_grads, 0, (size_t)run->params.main_grad_count * sizeof(float));
  for (int32_t i = 0; i < run->params.count; i++) run->params.at[i]->uses_left = run->params.at[i]->uses;
  for (int32_t i = 0; i < run->buckets.count; i++) {
    struct sf_grad_bucket *bucket = &run->buckets.at[i];
    bucket->params_left = bucket->param_count;
    bucket->launched = false;
    bucket->request = 0;
  }
}

static void launch(struct sf_rank_run *run, struct sf_grad_bucket *bucket) {
  struct sf_device *dev = run->env->device;
  bucket->launched = true;
  if (sf_fault(run->env, SF_FAULT_DP_SCALE_EXCL_CP) && run->c->train.loss_norm == SF_LOSS_PER_MICROBATCH)
    dev->ops->scale(dev, bucket->grads, (float)run->parallel.cp.size, bucket->count);
  bucket->request =
      sf_iall_reduce(run->env->comm, &run->buckets.dp, bucket->grads, bucket->count, SF_F32, SF_REDUCE_SUM, "grad_buckets.all_reduce");
}

void sf_grad_buckets_ready(struct sf_rank_run *run, struct sf_parameter *param) {
  struct sf_grad_bucket *bucket = param->bucket;
  if (!run->last_microbatch || !run->buckets.overlap || run->buckets.dp.size == 1) return;
  if (--param->uses_left > 0 || --bucket->params_left > 0) return;
  launch(run, bucket);
  /* reduce-before-wgrad: launched before the last gradient is written. The unlucky timing is made certain, so that every schedule and
   * backend has it. */
  if (sf_fault(run->env, SF_FAULT_REDUCE_BEFORE_WGRAD)) {
    sf_wait(run->env->comm, bucket->request);
    bucket->request = 0;
  }
}

void sf_grad_buckets_finish(struct sf_rank_run *run) {
  if (run->buckets.dp.size == 1) return;
  for (int32_t i = 0; i < run->buckets.count; i++)
    if (!run->buckets.at[i].launched) launch(run, &run->buckets.at[i]);
  for (int32_t i = 0; i < run->buckets.count; i++) sf_wait(run->env->comm, run->buckets.at[i].request);
}
