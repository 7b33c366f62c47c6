#include "targets/plugin/plugged_layer.h"

#include "harness/base/assert.h"
#include "targets/builtin/parallel/documents.h"
#include "targets/plugin/plugged_host.h"

#include <stdio.h>

enum { ATTRIBUTES = 6, SCALES = 3 };

struct sf_plugged *sf_plugged_create(struct sf_rank_run *run, enum sf_module_class cls, int32_t layer, bool is_mlp) {
  const struct sf_plugin_layers *layers = run->env->layers;
  const struct sf_plugin_layer *found = NULL;
  for (int32_t i = 0; layers != NULL && i < layers->count; i++)
    if (layers->at[i].cls == cls && layers->at[i].is_mlp == is_mlp) found = &layers->at[i];
  if (found == NULL) return NULL;
  struct sf_plugged *plugged = sf_rank_alloc(run->env, sizeof *plugged);
  const int64_t waiting = run->c->train.microbatches / run->parallel.dp.size;
  const int32_t module = sf_rank_module(run, cls, layer);
  *plugged = (struct sf_plugged){
      .layer = found, .first_module = module, .last_module = module, .in_dtype = run->dtype, .out_dtype = run->dtype};
  plugged->saved = sf_rank_alloc(run->env, (size_t)waiting * sizeof *plugged->saved);
  for (int64_t i = 0; i < waiting; i++) plugged->saved[i] = NULL;
  /* The name of a layer of several modules is their common part. */
  const char *name = run->env->catalog->modules[module].name, *own = strstr(name, found->declared->module);
  const size_t cut = own != NULL ? (size_t)(own - name) + strlen(found->declared->module) : strlen(name);
  snprintf(plugged->name, sizeof plugged->name, "%.*s", (int)cut, name);
  return plugged;
}

void sf_plugged_cast(struct sf_rank_run *run, struct sf_plugged *plugged, struct sf_fp8_linear *fp8, bool in_pieces, bool grad_in_pieces) {
  if (fp8 == NULL) return;
  plugged->fp8 = fp8, plugged->in_pieces = in_pieces, plugged->grad_in_pieces = grad_in_pieces;
  plugged->input_scales =
      sf_rank_alloc(run->env, (size_t)(run->c->train.microbatches / run->parallel.dp.size) * sizeof *plugged->input_scales);
}

void sf_plugged_add_parameter(struct sf_plugged *plugged, const char *name, struct sf_parameter *param, int call) {
  if (param == NULL) return;
  SF_ASSERT_LT(plugged->param_count, SF_PLUGGED_PARAMETERS_MAX);
  plugged->params[plugged->param_count].name = name;
  plugged->params[plugged->param_count].param = param;
  plugged->params[plugged->param_count++].call = call;
}

void sf_plugged_add_attribute(struct sf_plugged *plugged, const char *name, int64_t value) {
  SF_ASSERT_LT(plugged->attribute_count, SF_PLUGGED_ATTRIBUTES_MAX);
  plugged->attributes[plugged->attribute_count].name = name;
  plugged->attributes[plugged->attribute_count++].value = value;
}

/* --- what a call is made of ----------------------------------------------------------------------------------------- */

/* A tensor with the memory of its shape. */
struct dense {
  struct shardfuzz_tensor tensor;
  int64_t shape[2], strides[2];
};

struct dense_parameter {
  struct dense value, grad;
  struct shardfuzz_run rows[SF_RUNS_MAX], cols[SF_RUNS_MAX];
};

/* One call of the plugin's function. */
struct call {
  struct sf_plugged_host host; /* first */
  struct sf_rank_run *run;
  struct sf_plugged *plugged;
  bool backward;
  void *saved; /* the memory that `save` returned in it */
};

/* A call with everything that it passes; lives on the rank's stack. */
struct frame {
  struct call call;
  struct shardfuzz_layer_call given;
  struct dense input, output, output_grad, input_grad;
  struct dense_parameter dense_params[SF_PLUGGED_PARAMETERS_MAX];
  struct shardfuzz_parameter parameters[SF_PLUGGED_PARAMETERS_MAX];
  struct shardfuzz_attribute attributes[ATTRIBUTES + SCALES + SF_PLUGGED_ATTRIBUTES_MAX];
  struct shardfuzz_attribute scales[SCALES]; /* by enum sf_fp8_operand */
  struct shardfuzz_run rows[SF_RUNS_MAX];
};

static struct shardfuzz_type type_of(enum sf_dtype dtype) {
  if (dtype == SF_BF16) return (struct shardfuzz_type){SHARDFUZZ_CODE_BFLOAT, 16, 1};
  return (struct shardfuzz_type){SHARDFUZZ_CODE_FLOAT, dtype == SF_F16 ? 16 : 32, 1};
}

static const struct shardfuzz_tensor *dense_set(struct dense *dense, void *data, struct sf_shape shape, enum sf_dtype dtype) {
  dense->shape[0] = shape.rows, dense->shape[1] = shape.cols;
  dense->strides[0] = shape.cols, dense->strides[1] = 1;
  dense->tensor = (struct shardfuzz_tensor){
      .data = data, .device = {1, 0}, .ndim = 2, .dtype = type_of(dtype), .shape = dense->shape, .strides = dense->strides};
  return &dense->tensor;
}

static const struct shardfuzz_tensor *give_values(struct frame *f, struct dense *dense, const char *what, const float *values,
                                                  const struct sf_shard_map *map, enum sf_dtype dtype) {
  const struct sf_shape shape = sf_shard_map_local_shape(map);
  return dense_set(dense, sf_plugged_take_values(&f->call.host, what, values, shape.rows * shape.cols, dtype), shape, dtype);
}

static const struct shardfuzz_tensor *give_room(struct frame *f, struct dense *dense, const char *what, const struct sf_shard_map *map,
                                                enum sf_dtype dtype) {
  const struct sf_shape shape = sf_shard_map_local_shape(map);
  return dense_set(dense, sf_plugged_take(&f->call.host, what, sf_plugged_bytes(shape.rows * shape.cols, dtype)), shape, dtype);
}

static int32_t runs_of(struct shardfuzz_run *out, const struct sf_dim_map *dim) {
  for (int32_t i = 0; i < dim->count; i++) out[i] = (struct shardfuzz_run){.start = dim->runs[i].start, .length = dim->runs[i].len};
  return dim->count;
}

static void give_parameter(struct frame *f, int32_t index) {
  const struct sf_rank_run *run = f->call.run;
  const struct sf_parameter *param = f->call.plugged->params[index].param;
  const struct sf_shape logical = run->env->catalog->params[param->index].shape;
  struct dense_parameter *dense = &f->dense_params[index];
  struct shardfuzz_parameter *out = &f->parameters[index];
  *out = (struct shardfuzz_parameter){
      .name = f->call.plugged->params[index].name, .shape = {logical.rows, logical.cols}, .row_runs = dense->rows, .col_runs = dense->cols};
  out->row_run_count = runs_of(dense->rows, &param->map.rows);
  out->col_run_count = runs_of(dense->cols, &param->map.cols);
  out->value = *give_values(f, &dense->value, "parameters", param->model, &param->map, run->dtype);
  if (f->call.backward && param->trainable) out->grad = *give_room(f, &dense->grad, "parameters' gradients", &param->map, SF_F32);
  else out->grad = *dense_set(&dense->grad, NULL, sf_shard_map_local_shape(&param->map), SF_F32);
}

/* --- functions of the call -------------------------------------------------------------------------------------------- */

static void *save(const struct shardfuzz_layer_call *given, uint64_t size_bytes) {
  struct call *call = given->host;
  sf_plugged_enter(&call->host);
  if (call->backward) sf_plugged_fail(&call->host, SF_MANNER_ARGUMENT, "called save");
  if (call->saved != NULL) sf_plugged_fail(&call->host, SF_MANNER_ARGUMENT, "called save twice");
  call->saved = sf_plugged_take(&call->host, "saved memory", size_bytes);
  sf_plugged_leave(&call->host);
  return call->saved;
}

static void *scratch(const struct shardfuzz_layer_call *given, uint64_t size_bytes) {
  struct call *call = given->host;
  sf_plugged_enter(&call->host);
  void *memory = sf_plugged_take(&call->host, "scratch memory", size_bytes);
  sf_plugged_leave(&call->host);
  return memory;
}

static void trace_in_place(struct call *call, void *data, enum sf_dtype dtype, enum sf_kind kind, int32_t module,
                           const struct sf_shard_map *map) {
  const struct sf_shape shape = sf_shard_map_local_shape(map);
  const int64_t count = shape.rows * shape.cols;
  float *values = sf_buffers_take(&call->run->acts, count);
  sf_plugged_unpack(values, data, count, dtype);
  if (kind == SF_KIND_ACT) sf_trace_act(call->run, module, map, values);
  else sf_trace_act_grad(call->run, module, map, values);
  sf_plugged_pack(data, values, count, dtype);
  sf_buffers_give(&call->run->acts, values);
}

static void trace_inner(const struct shardfuzz_layer_call *given, uint32_t which, const char *module, void *data) {
  struct call *call = given->host;
  const struct sf_plugged_inner *inner = which == SHARDFUZZ_OUTPUT ? call->plugged->outputs : call->plugged->input_grads;
  sf_plugged_enter(&call->host);
  if (which > SHARDFUZZ_INPUT_GRAD || (which == SHARDFUZZ_INPUT_GRAD) != call->backward)
    sf_plugged_fail(&call->host, SF_MANNER_ARGUMENT, "called trace for tensors of the other pass");
  for (int i = 0; i < SF_PLUGGED_INNER_MAX; i++) {
    if (inner[i].name == NULL || strcmp(inner[i].name, module) != 0) continue;
    trace_in_place(call, data, call->run->dtype, call->backward ? SF_KIND_ACT_GRAD : SF_KIND_ACT, inner[i].module, inner[i].map);
    sf_plugged_leave(&call->host);
    return;
  }
  sf_plugged_fail(&call->host, SF_MANNER_ARGUMENT, "called trace for '%.40s', which is no module inside it", module);
}

/* --- the two passes ----------------------------------------------------------------------------------------------------- */

static void give_attributes(struct frame *f) {
  const struct sf_plugged *plugged = f->call.plugged;
  const struct sf_case *c = f->call.run->c;
  const bool sp = f->call.run->parallel.sp;
  const struct shardfuzz_attribute common[ATTRIBUTES] = {{"sequence_parallel", sp, sp},
                                                         {"activation", c->model.activation, (double)c->model.activation},
                                                         {"norm", c->model.norm, (double)c->model.norm},
                                                         {"epsilon", 0, 1e-5},
                                                         {"seq", c->model.seq, (double)c->model.seq},
                                                         {"microbatch_size", c->train.microbatch_size, (double)c->train.microbatch_size}};
  memcpy(f->attributes, common, sizeof common);
  memcpy(f->attributes + ATTRIBUTES, f->scales, sizeof f->scales);
  for (int32_t i = 0; i < plugged->attribute_count; i++)
    f->attributes[ATTRIBUTES + SCALES + i] =
        (struct shardfuzz_attribute){plugged->attributes[i].name, plugged->attributes[i].value, (double)plugged->attributes[i].value};
}

/* Gives the input's tokens and the starts of their documents; for experts the number of rows of each. */
static void give_rows(struct frame *f) {
  struct sf_rank_run *run = f->call.run;
  const struct sf_plugged *plugged = f->call.plugged;
  f->given.expert_count = plugged->expert_count;
  if (plugged->expert_count > 0) {
    f->given.expert_rows = sf_plugged_take_copy(&f->call.host, "counts of rows", plugged->expert_rows,
                                                (size_t)plugged->expert_count * sizeof *plugged->expert_rows);
    return;
  }
  f->given.row_runs = f->rows;
  f->given.row_run_count = runs_of(f->rows, &plugged->in_map->rows);
  const int32_t *documents = plugged->has_documents ? sf_documents(run) : NULL;
  if (documents == NULL) return;
  const int64_t tokens = run->c->model.seq * run->c->train.microbatch_size;
  f->given.documents = sf_plugged_take_copy(&f->call.host, "documents", documents, (size_t)tokens * sizeof *documents);
}

static void give_input(struct frame *f, const void *input) {
  const struct sf_plugged *plugged = f->call.plugged;
  const struct sf_shape shape = sf_shard_map_local_shape(plugged->in_map);
  if (!plugged->is_ids) {
    f->given.input = give_values(f, &f->input, "input", input, plugged->in_map, plugged->in_dtype);
    return;
  }
  const size_t size_bytes = (size_t)(shape.rows * shape.cols) * sizeof(int32_t);
  f->given.input = dense_set(&f->input, sf_plugged_take_copy(&f->call.host, "input", input, size_bytes), shape, SF_F32);
  f->input.tensor.dtype.code = SHARDFUZZ_CODE_INT;
}

static int64_t map_count(const struct sf_shard_map *map) {
  const struct sf_shape shape = sf_shard_map_local_shape(map);
  return shape.rows * shape.cols;
}

/* Measures the scales of the casts, with a collective over ranks. grad NULL: in the forward. */
static void measure_scales(struct frame *f, struct sf_rank_run *run, struct sf_plugged *plugged, const float *input, const float *grad) {
  static const char *const names[SCALES] = {
      [SF_FP8_INPUT] = "fp8_input_scale", [SF_FP8_WEIGHT] = "fp8_weight_scale", [SF_FP8_GRAD] = "fp8_grad_scale"};
  const bool on[SCALES] = {plugged->fp8 != NULL, plugged->fp8 != NULL, plugged->fp8 != NULL && grad != NULL};
  float scales[SCALES] = {0}, unit;
  if (plugged->fp8 != NULL) {
    float *kept = &plugged->input_scales[run->local_microbatch];
    if (grad == NULL) *kept = sf_fp8_scale(run, plugged->fp8, SF_FP8_INPUT, input, map_count(plugged->in_map), plugged->in_pieces);
    else scales[SF_FP8_GRAD] = sf_fp8_scale(run, plugged->fp8, SF_FP8_GRAD, grad, map_count(plugged->out_map), plugged->grad_in_pieces);
    (void)sf_fp8_weight(run, plugged->fp8, plugged->params[0].param, &unit);
    scales[SF_FP8_INPUT] = *kept;
    scales[SF_FP8_WEIGHT] = plugged->fp8->weight_scale;
  }
  for (int i = 0; i < SCALES; i++) f->scales[i] = (struct shardfuzz_attribute){names[i], on[i], (double)scales[i]};
}

static void frame_begin(struct frame *f, struct sf_rank_run *run, struct sf_plugged *plugged, bool backward, const void *input) {
  f->call = (struct call){.run = run, .plugged = plugged, .backward = backward};
  f->call.host = (struct sf_plugged_host){.env = run->env,
                                          .buffers = &run->acts,
                                          .pass = backward ? "backward" : "forward",
                                          .name = plugged->name,
                                          .labels = plugged->layer->places[backward].calls};
  sf_plugged_comm_fill(&f->call.host, &run->parallel);
  give_attributes(f);
  for (int32_t i = 0; i < plugged->param_count; i++) give_parameter(f, i);
  f->given = (struct shardfuzz_layer_call){.size_bytes = sizeof f->given,
                                           .dtype = (uint32_t)run->dtype,
                                           .module = plugged->name,
                                           .step = run->step,
                                           .microbatch = run->microbatch,
                                           .parameters = f->parameters,
                                           .attributes = f->attributes,
                                           .parameter_count = plugged->param_count,
                                           .attribute_count = ATTRIBUTES + SCALES + plugged->attribute_count,
                                           .comm = &f->call.host.comm,
                                           .save = save,
                                           .scratch = scratch,
                                           .trace = trace_inner,
                                           .host = &f->call};
  give_rows(f);
  give_input(f, input);
}

/* Runs the plugin. Its label tells where a rank died or stands still. */
static void frame_run(struct frame *f) {
  const struct sf_plugin_layer *layer = f->call.plugged->layer;
  const char *label = layer->places[f->call.backward].name;
  sf_comm_show_progress(f->call.run->env->comm, label);
  const int result = (f->call.backward ? layer->declared->backward : layer->declared->forward)(&f->given);
  sf_plugged_end(&f->call.host, label, result, &f->call.run->parallel.tp_cp);
}

static float *take_result(struct frame *f, const struct dense *dense, enum sf_dtype dtype) {
  const int64_t count = dense->shape[0] * dense->shape[1], capacity = f->call.plugged->capacity;
  float *out = sf_buffers_take(&f->call.run->acts, count > capacity ? count : capacity);
  sf_plugged_unpack(out, dense->tensor.data, count, dtype);
  return out;
}

float *sf_plugged_forward(struct sf_rank_run *run, struct sf_plugged *plugged, const void *input) {
  struct frame f;
  struct sf_plugged_piece **slot = &plugged->saved[run->local_microbatch];
  sf_plugged_give_kept(run->env, &run->acts, *slot); /* from the first run of a forward that is run again */
  *slot = NULL;
  measure_scales(&f, run, plugged, input, NULL);
  frame_begin(&f, run, plugged, false, input);
  f.given.output = give_room(&f, &f.output, "output", plugged->out_map, plugged->out_dtype);
  frame_run(&f);
  float *out = take_result(&f, &f.output, plugged->out_dtype);
  if (f.call.saved != NULL) *slot = sf_plugged_keep(&f.call.host, f.call.saved);
  sf_plugged_release(&f.call.host);
  if (plugged->last_module >= 0) sf_trace_act(run, plugged->last_module, plugged->out_map, out);
  return out;
}

float *sf_plugged_backward(struct sf_rank_run *run, struct sf_plugged *plugged, const float *grad, const void *input) {
  struct frame f;
  struct sf_plugged_piece **slot = &plugged->saved[run->local_microbatch];
  const struct sf_shard_map *in_grad_map = plugged->in_grad_map != NULL ? plugged->in_grad_map : plugged->in_map;
  const struct sf_shard_map *out_grad_map = plugged->out_grad_map != NULL ? plugged->out_grad_map : plugged->out_map;
  measure_scales(&f, run, plugged, input, grad);
  frame_begin(&f, run, plugged, true, input);
  if (*slot != NULL) f.given.saved = sf_plugged_return(&f.call.host, *slot);
  *slot = NULL;
  f.given.output_grad = give_values(&f, &f.output_grad, "output's gradient", grad, out_grad_map, plugged->out_dtype);
  if (plugged->is_ids) f.given.input_grad = dense_set(&f.input_grad, NULL, sf_shard_map_local_shape(in_grad_map), SF_F32);
  else f.given.input_grad = give_room(&f, &f.input_grad, "input's gradient", in_grad_map, plugged->in_dtype);
  frame_run(&f);
  float *out = plugged->is_ids ? NULL : take_result(&f, &f.input_grad, plugged->in_dtype);
  if (out != NULL && plugged->first_module >= 0) sf_trace_act_grad(run, plugged->first_module, in_grad_map, out);
  for (int32_t i = 0; i < plugged->param_count; i++)
    if (plugged->params[i].param->trainable)
      sf_parameter_accumulate(run, plugged->params[i].param, f.parameters[i].grad.data, plugged->params[i].call);
  sf_plugged_release(&f.call.host);
  return out;
}
