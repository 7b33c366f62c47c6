/* The built-in target: one rank's whole program of a case. */
#include "targets/builtin/attention/core_attention.h"
#include "targets/builtin/checkpoint/checkpoint.h"
#include "targets/builtin/optimizer/adam.h"
#include "targets/builtin/optimizer/distributed_optimizer.h"
#include "targets/builtin/parallel/documents.h"
#include "targets/builtin/parallel/finalize_grads.h"
#include "targets/builtin/pipeline/pipeline_schedule.h"

static void rank_run_init(struct sf_rank_run *run, struct sf_rank_env *env) {
  const struct sf_case *c = env->c;
  *run = (struct sf_rank_run){.env = env, .c = c, .dtype = sf_case_storage(c), .acts = sf_buffers_create(env), .hidden = c->model.hidden};
  run->stream_dtype = c->precision.residual_fp32 ? SF_F32 : run->dtype;
  run->parallel = sf_parallel_state_create(env);
  sf_loss_scaler_create(run);
  sf_documents_create(run);
  run->whole_ids = sf_rank_alloc(env, (size_t)(c->model.seq * c->train.microbatch_size) * sizeof *run->whole_ids);
  run->whole_mask = sf_rank_alloc(env, (size_t)(c->model.seq * c->train.microbatch_size) * sizeof *run->whole_mask);
  sf_fp8_create(run);
  run->positions = sf_context_parallel_positions(c->model.seq, run->parallel.cp.size, run->parallel.cp.index);
  struct sf_dim_map rows = {0};
  for (int32_t i = 0; i < run->positions.count; i++)
    sf_dim_map_append(&rows, run->positions.runs[i].start * c->train.microbatch_size, run->positions.runs[i].len * c->train.microbatch_size,
                      0);
  run->tokens = sf_dim_map_length(&rows);
  const int64_t parts = run->parallel.sp ? run->parallel.tp.size : 1, part = run->parallel.sp ? run->parallel.tp.index : 0;
  run->tokens_local = run->tokens / parts;
  run->token_first = run->tokens_local * part;
  const struct sf_dim_map features = sf_dim_map_whole(run->hidden), own = sf_dim_map_part(run->tokens, parts, part);
  run->map_hidden = (struct sf_shard_map){.rows = sf_dim_map_compose(&rows, &own), .cols = features};
  run->map_gathered = (struct sf_shard_map){.rows = rows, .cols = features};
}

/* Traces the state that a step begins with, or that the last step leaves. */
static void trace_state(struct sf_rank_run *run, int64_t step) {
  run->step = (uint16_t)step;
  for (int32_t i = 0; i < run->params.count; i++) sf_trace_param(run, SF_KIND_PARAM, run->params.at[i], 0, run->params.at[i]->model);
  if (run->scaler.on) sf_trace_scalar(run, SF_SCALAR_LOSS_SCALE, run->scaler.scale);
}

static void begin_step(struct sf_rank_run *run, struct sf_model_stage *last, int64_t step) {
  trace_state(run, step);
  if (run->c->mode == SF_MODE_ISOLATED && step > 0) sf_parameters_load(run, step);
  sf_grad_buckets_begin(run);
  last->loss_sum = last->token_sum = 0.0;
}

static void end_step(struct sf_rank_run *run, const struct sf_model_stage *last) {
  const bool per_token = run->c->train.loss_norm == SF_LOSS_PER_TOKEN;
  const struct sf_step_totals totals = sf_finalize_totals(run, last->loss_sum, last->token_sum);
  sf_finalize_grads(run, totals.tokens);
  sf_trace_scalar(run, SF_SCALAR_LOSS, (float)(per_token ? totals.loss_sum / totals.tokens : totals.loss_sum));
  sf_trace_scalar(run, SF_SCALAR_TOKENS, (float)totals.tokens);
  for (int32_t i = 0; i < run->params.count; i++)
    if (run->params.at[i]->trainable) {
      const struct sf_parameter *param = run->params.at[i];
      sf_trace_param(run, SF_KIND_MAIN_GRAD, param, 0, param->main_grad + sf_grad_buckets_piece(run, param).first);
    }
  const bool overflow = sf_loss_scaler_overflow(run);
  if (run->scaler.on) sf_trace_scalar(run, SF_SCALAR_OVERFLOW, overflow ? 1.0f : 0.0f);
  const double norm = overflow ? 0.0 : sf_grad_norm(run), clip = overflow ? 1.0 : sf_clip_factor(run->c, norm);
  sf_trace_scalar(run, SF_SCALAR_GRAD_NORM, (float)norm);
  sf_trace_scalar(run, SF_SCALAR_CLIP, (float)clip);
  if (overflow)
    sf_adam_skip(run);
  else
    sf_adam_step(run, clip);
  sf_loss_scaler_update(run, overflow);
  sf_fp8_end_step(run);
}

/* A rank's model on one layout. */
struct built {
  struct sf_rank_run *run;
  struct sf_pipeline *pipeline;
  struct sf_model_stage *last;
};

/* Builds the model with the parameters of step 0. */
static struct built build(struct sf_rank_env *env) {
  struct built model = {.run = sf_rank_alloc(env, sizeof *model.run), .pipeline = sf_rank_alloc(env, sizeof *model.pipeline)};
  rank_run_init(model.run, env);
  sf_pipeline_create(model.pipeline, model.run, env->c->train.microbatches / model.run->parallel.dp.size);
  model.last = sf_pipeline_last_chunk(model.pipeline);
  sf_parameters_build(model.run);
  sf_grad_buckets_build(model.run);
  if (env->c->layout.zero > 0) sf_distributed_optimizer_build(model.run);
  sf_parameters_load(model.run, 0);
  return model;
}

/* Saves the model, drops it (the trial owns its memory), and goes on with a model on the second layout. */
static struct built reload(const struct built *first) {
  const struct sf_rank_env *env = first->run->env;
  struct sf_checkpoint checkpoint;
  sf_checkpoint_save(&checkpoint, first->run);
  struct sf_case *c = sf_rank_alloc(env, sizeof *c);
  struct sf_rank_env *second = sf_rank_alloc(env, sizeof *second);
  *c = sf_case_after_reload(env->c);
  *second = *env;
  second->c = c;
  second->mesh = sf_mesh_from_layout(&c->layout);
  second->default_mesh = sf_mesh_default_order(&c->layout);
  const struct built model = build(second);
  sf_checkpoint_load(model.run, &checkpoint);
  return model;
}

static void run_rank(struct sf_rank_env *env) {
  const int64_t steps = env->c->train.steps, after_step = env->c->reload.after_step;
  struct built model = build(env);
  for (int64_t step = 0; step < steps; step++) {
    if (after_step > 0 && step == after_step) model = reload(&model);
    begin_step(model.run, model.last, step);
    sf_pipeline_run(model.run, model.pipeline);
    end_step(model.run, model.last);
  }
  trace_state(model.run, steps);
}

const struct sf_target sf_target_builtin = {.name = "builtin", .run = run_rank};
