#include "targets/builtin/checkpoint/checkpoint.h"

#include "targets/builtin/parallel/fault.h"
#include "targets/builtin/optimizer/distributed_optimizer.h"

enum { SCALER_COUNT = 3, FP8_PER_OPERAND = SF_FP8_HISTORY_MAX + 1, FP8_COUNT = FP8_PER_OPERAND * SF_FP8_OPERAND_COUNT };

/* The name of a parameter's state in the checkpoint. */
static int32_t name_of(const struct sf_rank_run *run, const struct sf_parameter *param) {
  return sf_fault(run->env, SF_FAULT_CKPT_LOCAL_LAYER_NAMES) ? sf_fault_name_in_stage(run, param) : param->index;
}

/* stale-master-after-load: loads weights as the model has them; the values that the optimizer updates stay. */
static bool keeps_master(const struct sf_rank_run *run, const struct sf_parameter *param) {
  const bool is_mixed = run->dtype != SF_F32 && !run->c->precision.stochastic;
  return sf_fault(run->env, SF_FAULT_STALE_MASTER_AFTER_LOAD) && is_mixed && param->model != param->master;
}

/* --- saving ------------------------------------------------------------------------------------------------------- */

static void contribute(struct sf_checkpoint *out, struct sf_rank_run *run, struct sf_checkpoint_shard shard) {
  if (shard.map.count == 0) return;
  float *copy = sf_rank_alloc(run->env, (size_t)shard.map.count * sizeof *copy);
  memcpy(copy, shard.data, (size_t)shard.map.count * sizeof *copy);
  shard.data = copy;
  out->shards[out->count++] = shard;
  out->element_count += shard.map.count;
}

static void contribute_values(struct sf_checkpoint *out, struct sf_rank_run *run, enum sf_checkpoint_state state, int32_t name,
                              const float *values, int64_t count) {
  const struct sf_shard_map box = sf_shard_map_whole((struct sf_shape){1, count});
  contribute(out, run, (struct sf_checkpoint_shard){name, state, sf_shard_map_flat(&box, 0, count), values});
}

/* Whether this rank is the first of those that hold the same part of the parameter; heads that tp ranks share do not count. */
static bool is_first_replica(const struct sf_rank_run *run, const struct sf_parameter *param) {
  const struct sf_parallel_state *p = &run->parallel;
  const bool is_shard = param->trainable && run->buckets.zero > 0; /* ranks of dp x cp (edp) hold different elements */
  if (param->expert) return is_shard || p->edp.index == 0;
  if (!is_shard && p->dp_cp.index > 0) return false;
  return !(param->replicated && p->tp.index > 0) && (!param->shared_embedding || p->first_stage);
}

static void save_param(struct sf_checkpoint *out, struct sf_rank_run *run, const struct sf_parameter *param) {
  if (!is_first_replica(run, param)) return;
  const struct sf_param_state state = sf_grad_buckets_state(run, param);
  const float *const states[] = {state.master, state.adam_m, state.adam_v};
  struct sf_param_piece piece = state.piece;
  const bool is_shard = param->trainable && run->buckets.zero > 0;
  if (param->kv_count > 0 && run->parallel.kv_rep.index > 0) {
    const int64_t own = param->kv_first - piece.first;
    piece.count = own < 0 ? 0 : own < piece.count ? own : piece.count;
  }
  /* ckpt-bucket-overwrite: each bucket gets a new dictionary of states, so only the last one's remains. */
  const bool is_overwritten =
      is_shard && sf_fault(run->env, SF_FAULT_CKPT_BUCKET_OVERWRITE) && param->bucket != &run->buckets.at[run->buckets.count - 1];
  const int state_count = param->trainable && !is_overwritten ? 3 : 1;
  const struct sf_shard_map map = sf_shard_map_flat(&param->map, piece.first, piece.count);
  for (int i = 0; i < state_count; i++)
    contribute(out, run, (struct sf_checkpoint_shard){param->index, (enum sf_checkpoint_state)i, map, states[i]});
}

static void save_fp8(struct sf_checkpoint *out, struct sf_rank_run *run) {
  if (!run->fp8.delayed || run->parallel.tp_cp_dp.index > 0) return;
  for (const struct sf_fp8_linear *fp8 = run->fp8.linears; fp8 != NULL; fp8 = fp8->next) {
    float values[FP8_COUNT];
    for (int i = 0; i < SF_FP8_OPERAND_COUNT; i++) {
      const struct sf_fp8_amaxes *amaxes = &fp8->amaxes[i];
      memcpy(values + i * FP8_PER_OPERAND, amaxes->history, sizeof amaxes->history);
      values[i * FP8_PER_OPERAND + SF_FP8_HISTORY_MAX] = (float)amaxes->steps_kept;
    }
    contribute_values(out, run, SF_CHECKPOINT_FP8, sf_rank_module(run, fp8->cls, fp8->layer), values, FP8_COUNT);
  }
}

static void save_scaler(struct sf_checkpoint *out, struct sf_rank_run *run) {
  const struct sf_loss_scaler *scaler = &run->scaler;
  const float values[SCALER_COUNT] = {scaler->scale, (float)scaler->good_steps, (float)scaler->steps_applied};
  if (run->parallel.world.index == 0) contribute_values(out, run, SF_CHECKPOINT_SCALER, 0, values, SCALER_COUNT);
}

void sf_checkpoint_save(struct sf_checkpoint *out, struct sf_rank_run *run) {
  const int32_t most = 3 * run->params.count + run->fp8.linear_count + 1;
  *out = (struct sf_checkpoint){.shards = sf_rank_alloc(run->env, (size_t)most * sizeof *out->shards)};
  for (int32_t i = 0; i < run->params.count; i++) save_param(out, run, run->params.at[i]);
  save_fp8(out, run);
  save_scaler(out, run);
}

/* --- on the wire -------------------------------------------------------------------------------------------------- */

/* A shard's description in doubles: name, state, first, count, runs of rows, of columns; then start and length of each run. */
enum { HEAD_COUNT = 6, DESCRIPTION_MAX = HEAD_COUNT + 4 * SF_RUNS_MAX };

static int64_t describe_dim(double *out, const struct sf_dim_map *dim) {
  for (int32_t i = 0; i < dim->count; i++) {
    out[2 * i] = (double)dim->runs[i].start;
    out[2 * i + 1] = (double)dim->runs[i].len;
  }
  return 2 * dim->count;
}

static int64_t describe(double *out, const struct sf_checkpoint_shard *shard) {
  const struct sf_shard_map *map = &shard->map;
  const double head[HEAD_COUNT] = {shard->name,        (double)shard->state, (double)map->first,
                                   (double)map->count, map->rows.count,      map->cols.count};
  memcpy(out, head, sizeof head);
  const int64_t rows = HEAD_COUNT + describe_dim(out + HEAD_COUNT, &map->rows);
  return rows + describe_dim(out + rows, &map->cols);
}

static bool to_number(int64_t *out, double value, double most) {
  if (!(value >= 0 && value <= most)) return false;
  *out = (int64_t)value;
  return true;
}

/* Reads `count` runs; false when these are not runs. */
static bool read_dim(struct sf_dim_map *out, const double *in, int64_t count, int64_t size) {
  *out = (struct sf_dim_map){.count = (int32_t)count};
  for (int64_t i = 0; i < count; i++)
    if (!to_number(&out->runs[i].start, in[2 * i], (double)size) || !to_number(&out->runs[i].len, in[2 * i + 1], (double)size))
      return false;
  return true;
}

static struct sf_shape shape_of(const struct sf_rank_run *run, enum sf_checkpoint_state state, int64_t name) {
  if (state == SF_CHECKPOINT_FP8) return (struct sf_shape){1, FP8_COUNT};
  if (state == SF_CHECKPOINT_SCALER) return (struct sf_shape){1, SCALER_COUNT};
  return run->env->catalog->params[name].shape;
}

static int32_t name_count(const struct sf_rank_run *run, enum sf_checkpoint_state state) {
  const struct sf_catalog *catalog = run->env->catalog;
  return state == SF_CHECKPOINT_SCALER ? 1 : state == SF_CHECKPOINT_FP8 ? catalog->module_count : catalog->param_count;
}

/* Reads a shard from at most `left` doubles; returns how many it took, 0 if these are not a shard. elements: how many are left. */
static int64_t read_shard(struct sf_checkpoint_shard *out, const struct sf_rank_run *run, const double *in, int64_t left,
                          int64_t elements) {
  int64_t number[HEAD_COUNT];
  if (left < HEAD_COUNT) return 0;
  for (int i = 0; i < HEAD_COUNT; i++)
    if (!to_number(&number[i], in[i], 0x1p53)) return 0;
  const int64_t rows = number[4], cols = number[5], taken = HEAD_COUNT + 2 * (rows + cols);
  if (number[1] >= SF_CHECKPOINT_STATE_COUNT || rows > SF_RUNS_MAX || cols > SF_RUNS_MAX || taken > left) return 0;
  *out = (struct sf_checkpoint_shard){.state = (enum sf_checkpoint_state)number[1],
                                      .map = {.flat = true, .first = number[2], .count = number[3]}};
  if (number[0] >= name_count(run, out->state) || number[3] > elements) return 0;
  out->name = (int32_t)number[0];
  const struct sf_shape shape = shape_of(run, out->state, number[0]);
  if (!read_dim(&out->map.rows, in + HEAD_COUNT, rows, shape.rows)) return 0;
  if (!read_dim(&out->map.cols, in + HEAD_COUNT + 2 * rows, cols, shape.cols)) return 0;
  return sf_shard_map_valid(&out->map, shape) ? taken : 0;
}

/* --- loading ------------------------------------------------------------------------------------------------------ */

/* The destination of a logical tensor's elements on a rank: of the box [rows x cols] the elements [first, first + count), row by row. */
struct destination {
  float *out;
  int64_t first, count;
  const struct sf_shard_map *map;
};

/* Local places of a dimension's logical indices; -1: not held. */
static void invert(int64_t *local, const struct sf_dim_map *dim, int64_t size) {
  for (int64_t i = 0; i < size; i++) local[i] = -1;
  for (int64_t i = 0, n = 0; i < dim->count; i++)
    for (int64_t k = 0; k < dim->runs[i].len; k++, n++) local[dim->runs[i].start + k] = n;
}

/* Copies a shard's elements to the destination. row_of, col_of: the destination's inverted map. */
static void place(const struct destination *to, const struct sf_checkpoint_shard *shard, const int64_t *row_of, const int64_t *col_of) {
  const struct sf_dim_map *rows = &shard->map.rows, *cols = &shard->map.cols;
  const int64_t width = sf_dim_map_length(&to->map->cols), end = shard->map.first + shard->map.count;
  int64_t at = 0; /* in the shard's box */
  for (int32_t i = 0; i < rows->count; i++)
    for (int64_t r = rows->runs[i].start; r < rows->runs[i].start + rows->runs[i].len; r++)
      for (int32_t j = 0; j < cols->count; j++)
        for (int64_t c = cols->runs[j].start; c < cols->runs[j].start + cols->runs[j].len; c++, at++) {
          if (at < shard->map.first || at >= end || row_of[r] < 0 || col_of[c] < 0) continue;
          const int64_t local = row_of[r] * width + col_of[c] - to->first;
          if (local >= 0 && local < to->count) to->out[local] = shard->data[at - shard->map.first];
        }
}

static struct destination destination_of(const struct sf_rank_run *run, const struct sf_parameter *param, enum sf_checkpoint_state state) {
  const bool is_shard = param->trainable && run->buckets.zero > 0;
  struct destination to = {.map = &param->map, .count = param->count};
  if (state == SF_CHECKPOINT_MASTER) {
    to.out = is_shard || keeps_master(run, param) ? param->model : param->master; /* whole: publish makes the model's weights from it */
    return to;
  }
  const struct sf_param_state held = sf_grad_buckets_state(run, param);
  to.first = held.piece.first;
  to.count = held.piece.count;
  to.out = state == SF_CHECKPOINT_ADAM_M ? held.adam_m : held.adam_v;
  return to;
}

static void load_fp8(struct sf_rank_run *run, const struct sf_checkpoint_shard *shard) {
  for (struct sf_fp8_linear *fp8 = run->fp8.linears; fp8 != NULL; fp8 = fp8->next) {
    if (sf_rank_module(run, fp8->cls, fp8->layer) != shard->name) continue;
    for (int i = 0; i < SF_FP8_OPERAND_COUNT; i++) {
      struct sf_fp8_amaxes *amaxes = &fp8->amaxes[i];
      const float *values = shard->data + i * FP8_PER_OPERAND, kept = values[SF_FP8_HISTORY_MAX];
      memcpy(amaxes->history, values, sizeof amaxes->history);
      amaxes->steps_kept = kept >= 0.0f && kept <= (float)SF_FP8_HISTORY_MAX ? (int32_t)kept : 0;
    }
  }
}

static int64_t whole_number(float value) { return value >= 0.0f && value <= 0x1p24f ? (int64_t)value : 0; }

static void load_scaler(struct sf_rank_run *run, const struct sf_checkpoint_shard *shard) {
  run->scaler.scale = shard->data[0];
  run->scaler.good_steps = whole_number(shard->data[1]);
  run->scaler.steps_applied = whole_number(shard->data[2]);
}

/* Inverted maps of the largest dimensions. */
struct loading {
  int64_t *row_of, *col_of;
};

static void load_shard(struct sf_rank_run *run, const struct loading *loading, const struct sf_checkpoint_shard *shard) {
  const bool is_whole = shard->map.count == sf_shard_map_box_count(&shard->map);
  if (shard->state == SF_CHECKPOINT_FP8 && is_whole) load_fp8(run, shard);
  if (shard->state == SF_CHECKPOINT_SCALER && is_whole) load_scaler(run, shard);
  if (shard->state == SF_CHECKPOINT_FP8 || shard->state == SF_CHECKPOINT_SCALER) return;
  for (int32_t i = 0; i < run->params.count; i++) {
    const struct sf_parameter *param = run->params.at[i];
    const struct sf_shape shape = run->env->catalog->params[param->index].shape;
    if (name_of(run, param) != shard->name || (shard->state != SF_CHECKPOINT_MASTER && !param->trainable)) continue;
    const struct destination to = destination_of(run, param, shard->state);
    invert(loading->row_of, &param->map.rows, shape.rows);
    invert(loading->col_of, &param->map.cols, shape.cols);
    place(&to, shard, loading->row_of, loading->col_of);
  }
}

/* Makes the model's weights from the loaded values; with ZeRO the shard's masters too. */
static void publish(struct sf_rank_run *run, struct sf_parameter *param) {
  struct sf_device *dev = run->env->device;
  const bool is_stale = keeps_master(run, param);
  if (param->master != NULL && !is_stale) {
    sf_parameter_publish(run, param);
    return;
  }
  if (!is_stale) sf_distributed_optimizer_load(run, param, param->model);
  dev->ops->round(dev, param->model, param->model, param->count, run->dtype);
}

/* Sends one rank's shards to all ranks, which load them. */
static void load_from(struct sf_rank_run *run, const struct loading *loading, double *descriptions, int64_t description_count, float *data,
                      int64_t element_count, int32_t root) {
  const struct sf_group *world = &run->parallel.world;
  sf_broadcast(run->env->comm, world, descriptions, description_count, root, SF_F64, "checkpoint.shard_maps");
  sf_broadcast(run->env->comm, world, data, element_count, root, SF_F32, "checkpoint.shards");
  int64_t at = 0, element = 0;
  while (at < description_count) {
    struct sf_checkpoint_shard shard;
    const int64_t taken = read_shard(&shard, run, descriptions + at, description_count - at, element_count - element);
    if (taken == 0) sf_comm_fail(run->env->comm, SF_EINPUT, "checkpoint: rank %d's description of a shard cannot be", root);
    shard.data = data + element;
    load_shard(run, loading, &shard);
    element += shard.map.count;
    at += taken;
  }
}

static int64_t largest(const struct sf_rank_run *run, bool of_rows) {
  int64_t most = 1;
  for (int32_t i = 0; i < run->params.count; i++) {
    const struct sf_shape shape = run->env->catalog->params[run->params.at[i]->index].shape;
    const int64_t size = of_rows ? shape.rows : shape.cols;
    if (size > most) most = size;
  }
  return most;
}

/* Packs this rank's own descriptions and elements for sending. Sizes: [descriptions, elements]. */
static void pack(double sizes[2], double *descriptions, float *data, const struct sf_checkpoint *own) {
  int64_t at = 0, element = 0;
  for (int32_t i = 0; i < own->count; i++) {
    const struct sf_checkpoint_shard *shard = &own->shards[i];
    double scratch[DESCRIPTION_MAX];
    const int64_t taken = describe(scratch, shard);
    if (descriptions != NULL) memcpy(descriptions + at, scratch, (size_t)taken * sizeof *scratch);
    if (data != NULL) memcpy(data + element, shard->data, (size_t)shard->map.count * sizeof *data);
    at += taken;
    element += shard->map.count;
  }
  sizes[0] = (double)at;
  sizes[1] = (double)element;
}

/* The most that a rank can contribute. Sizes: [descriptions, elements]. */
static void largest_sizes(double most[2], const struct sf_rank_run *run) {
  const struct sf_catalog *catalog = run->env->catalog;
  most[0] = DESCRIPTION_MAX * (3.0 * catalog->param_count + catalog->module_count + 1);
  most[1] = (double)FP8_COUNT * catalog->module_count + SCALER_COUNT;
  for (int32_t i = 0; i < catalog->param_count; i++)
    most[1] += 3.0 * (double)catalog->params[i].shape.rows * (double)catalog->params[i].shape.cols;
}

/* most: largest of all ranks. Impossible sizes end the run, since they would become buffers. */
static void read_sizes(int64_t most[2], struct sf_rank_run *run, const double *sizes, const double own_sizes[2]) {
  const struct sf_group *world = &run->parallel.world;
  double limits[2];
  largest_sizes(limits, run);
  most[0] = most[1] = 1;
  for (int32_t i = 0; i < 2 * world->size; i++) {
    int64_t size;
    const bool is_own = i / 2 == world->index;
    if (!to_number(&size, sizes[i], limits[i % 2]) || (is_own && size != (int64_t)own_sizes[i % 2]))
      sf_comm_fail(run->env->comm, SF_EINPUT, "checkpoint: rank %d's size cannot be", i / 2);
    if (size > most[i % 2]) most[i % 2] = size;
  }
}

void sf_checkpoint_load(struct sf_rank_run *run, const struct sf_checkpoint *own) {
  const struct sf_rank_env *env = run->env;
  const struct sf_group *world = &run->parallel.world;
  double own_sizes[2], *sizes = sf_rank_alloc(env, 2 * (size_t)world->size * sizeof *sizes);
  pack(own_sizes, NULL, NULL, own);
  sf_all_gather(env->comm, world, sizes, own_sizes, 2, SF_F64, "checkpoint.sizes");
  int64_t most[2];
  read_sizes(most, run, sizes, own_sizes);
  double *descriptions = sf_rank_alloc(env, (size_t)most[0] * sizeof *descriptions);
  float *data = sf_rank_alloc(env, (size_t)most[1] * sizeof *data);
  const struct loading loading = {.row_of = sf_rank_alloc(env, (size_t)largest(run, true) * sizeof(int64_t)),
                                  .col_of = sf_rank_alloc(env, (size_t)largest(run, false) * sizeof(int64_t))};
  for (int32_t root = 0; root < world->size; root++) {
    if (root == world->index) pack(own_sizes, descriptions, data, own);
    load_from(run, &loading, descriptions, (int64_t)sizes[2 * root], data, (int64_t)sizes[2 * root + 1], root);
  }
  for (int32_t i = 0; i < run->params.count; i++) publish(run, run->params.at[i]);
}
