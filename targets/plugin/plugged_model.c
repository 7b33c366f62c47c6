#include "targets/plugin/plugged_host.h"
#include "targets/plugin/plugin_model.h"

/* A rank's run, in its arena. */
struct rank {
  struct sf_plugged_host host; /* first */
  struct sf_plugin_model *model;
  struct sf_parallel_state parallel;
  struct sf_buffers buffers;
  enum sf_dtype dtype;
  struct shardfuzz_model_call given;
  struct shardfuzz_attribute fields[SF_PLUGIN_FIELDS_MAX];
};

static struct rank *rank_of(const struct shardfuzz_model_call *given) { return given->host; }

/* --- memory and data ------------------------------------------------------------------------------------------------------ */

static void *take(const struct shardfuzz_model_call *given, uint64_t size_bytes) {
  struct sf_plugged_host *host = &rank_of(given)->host;
  sf_plugged_enter(host);
  void *memory = sf_plugged_take(host, "memory", size_bytes);
  sf_plugged_leave(host);
  return memory;
}

static void give(const struct shardfuzz_model_call *given, void *memory) {
  struct rank *rank = rank_of(given);
  if (memory == NULL) return;
  sf_plugged_enter(&rank->host);
  sf_plugged_check_piece(&rank->host, memory);
  sf_plugged_give(&rank->host, memory);
  sf_plugged_leave(&rank->host);
}

static void check_step(const struct rank *rank, const char *what, int64_t step, int64_t microbatch) {
  const struct sf_train *train = &rank->host.env->c->train;
  if (step < 0 || step >= train->steps)
    sf_plugged_fail(&rank->host, SF_MANNER_ARGUMENT, "asked for %s of step %lld of %lld", what, (long long)step, (long long)train->steps);
  if (microbatch < 0 || microbatch >= train->microbatches)
    sf_plugged_fail(&rank->host, SF_MANNER_ARGUMENT, "asked for %s of microbatch %lld of %lld", what, (long long)microbatch,
                    (long long)train->microbatches);
}

static void data(const struct shardfuzz_model_call *given, int64_t step, int64_t microbatch, int32_t *tokens, int32_t *labels,
                 float *mask) {
  struct rank *rank = rank_of(given);
  sf_plugged_enter(&rank->host);
  check_step(rank, "data", step, microbatch);
  sf_data_microbatch(tokens, labels, mask, rank->host.env->c, step, microbatch);
  sf_plugged_leave(&rank->host);
}

static int documents(const struct shardfuzz_model_call *given, int64_t step, int64_t microbatch, int32_t *first) {
  struct rank *rank = rank_of(given);
  const struct sf_case *c = rank->host.env->c;
  const bool any = sf_data_has_documents(c);
  sf_plugged_enter(&rank->host);
  check_step(rank, "documents", step, microbatch);
  if (any) sf_data_documents(first, c, step, microbatch);
  sf_plugged_leave(&rank->host);
  return any;
}

/* --- tensors -------------------------------------------------------------------------------------------------------------- */

static int32_t module_named(const struct sf_catalog *catalog, const char *name) {
  for (int32_t i = 0; i < catalog->module_count; i++)
    if (strcmp(catalog->modules[i].name, name) == 0) return i;
  return -1;
}
static int32_t param_named(const struct sf_catalog *catalog, const char *name) {
  for (int32_t i = 0; i < catalog->param_count; i++)
    if (strcmp(catalog->params[i].name, name) == 0) return i;
  return -1;
}
static int32_t scalar_named(const char *name) {
  for (int32_t i = 0; i < SF_SCALAR_COUNT; i++)
    if (strcmp(sf_scalar_name((enum sf_scalar)i), name) == 0) return i;
  return -1;
}

static void dropout(const struct shardfuzz_model_call *given, const char *module, int64_t step, int64_t microbatch, int64_t first,
                    int64_t count, float *kept) {
  struct rank *rank = rank_of(given);
  const struct sf_catalog *catalog = rank->host.env->catalog;
  const int32_t index = module_named(catalog, module);
  sf_plugged_enter(&rank->host);
  check_step(rank, "dropout", step, microbatch);
  if (index < 0) sf_plugged_fail(&rank->host, SF_MANNER_ARGUMENT, "asked for the dropout of '%.60s', which is no module", module);
  const struct sf_dropout mask = sf_dropout_for_module(catalog, index, step, microbatch);
  sf_dropout_mask(kept, &mask, first, count);
  sf_plugged_leave(&rank->host);
}

/* Reads runs from the plugin; false: too many of them, or an impossible one. */
static bool read_dim(struct sf_dim_map *out, const struct shardfuzz_run *runs, int32_t count) {
  *out = (struct sf_dim_map){0};
  if (count < 0 || count > SF_RUNS_MAX || (count > 0 && runs == NULL)) return false;
  for (int32_t i = 0; i < count; i++) {
    const uint32_t partial = (runs[i].partial & SHARDFUZZ_PARTIAL_TP ? SF_AXES(SF_AXIS_TP) : 0) |
                             (runs[i].partial & SHARDFUZZ_PARTIAL_CP ? SF_AXES(SF_AXIS_CP) : 0);
    if (runs[i].length < 0 || runs[i].partial > (SHARDFUZZ_PARTIAL_TP | SHARDFUZZ_PARTIAL_CP)) return false;
    if (runs[i].length > 0) sf_dim_map_append(out, runs[i].start, runs[i].length, partial);
  }
  return true;
}

static struct sf_shard_map read_map(const struct rank *rank, const char *subject, struct sf_shape shape, const struct shardfuzz_run *rows,
                                    int32_t row_count, const struct shardfuzz_run *cols, int32_t col_count) {
  struct sf_shard_map map = {.flat = false};
  if (!read_dim(&map.rows, rows, row_count) || !read_dim(&map.cols, cols, col_count) || !sf_shard_map_valid(&map, shape))
    sf_plugged_fail(&rank->host, SF_MANNER_ARGUMENT, "told rows and columns of %.80s that are not those of a %lld x %lld tensor", subject,
                    (long long)shape.rows, (long long)shape.cols);
  return map;
}

static int parameter(const struct shardfuzz_model_call *given, int32_t index, int64_t step, const struct shardfuzz_run *rows,
                     int32_t row_count, const struct shardfuzz_run *cols, int32_t col_count, float *out) {
  struct rank *rank = rank_of(given);
  const struct sf_catalog *catalog = rank->host.env->catalog;
  const bool given_values = step == 0 || rank->host.env->c->mode == SF_MODE_ISOLATED;
  sf_plugged_enter(&rank->host);
  check_step(rank, "parameters", step, 0);
  if (index < 0 || index >= catalog->param_count)
    sf_plugged_fail(&rank->host, SF_MANNER_ARGUMENT, "asked for parameter %d of %d", index, catalog->param_count);
  if (given_values) {
    const struct sf_param *param = &catalog->params[index];
    const struct sf_shard_map map = read_map(rank, param->name, param->shape, rows, row_count, cols, col_count);
    const struct sf_fill fill = sf_fill_for_param(catalog, index, step);
    sf_fill_shard(out, &fill, param->shape, &map, 0);
  }
  sf_plugged_leave(&rank->host);
  return given_values;
}

static struct sf_trace_id id_of(const struct rank *rank, const struct shardfuzz_point *point) {
  const struct sf_catalog *catalog = rank->host.env->catalog;
  const bool of_module = point->traced == SF_KIND_ACT || point->traced == SF_KIND_ACT_GRAD,
             of_microbatch = of_module || point->traced == SF_KIND_WGRAD;
  if (point->traced >= SF_KIND_COUNT || point->pass > SF_PASS_BWD)
    sf_plugged_fail(&rank->host, SF_MANNER_ARGUMENT, "handed over a tensor of kind %u, pass %u", point->traced, point->pass);
  struct sf_trace_id id = {.step = (uint16_t)point->step, .kind = (uint8_t)point->traced, .pass = SF_PASS_STEP};
  id.subject = of_module                   ? module_named(catalog, point->subject)
               : id.kind == SF_KIND_SCALAR ? scalar_named(point->subject)
                                           : param_named(catalog, point->subject);
  if (of_microbatch) id.microbatch = (uint16_t)point->microbatch, id.pass = (uint8_t)point->pass, id.call = (uint8_t)point->call;
  return id;
}

static void hand_over(struct rank *rank, const struct shardfuzz_point *point, void *memory) {
  static const struct shardfuzz_run one = {0, 1, 0, 0};
  const struct sf_rank_env *env = rank->host.env;
  const struct sf_trace_id id = id_of(rank, point);
  struct sf_trace_spec spec;
  if (id.subject < 0 || !sf_trace_spec(&spec, env->catalog, id))
    sf_plugged_fail(&rank->host, SF_MANNER_ARGUMENT, "handed over %s of %.80s, which the case does not have",
                    sf_kind_name((enum sf_kind)id.kind), point->subject);
  if (point->dtype != SHARDFUZZ_F32 && point->dtype != (uint32_t)rank->dtype)
    sf_plugged_fail(&rank->host, SF_MANNER_ARGUMENT, "handed over %.80s in format %u", point->subject, point->dtype);
  const bool whole = point->rows == NULL && id.kind == SF_KIND_SCALAR;
  const struct sf_shard_map map = read_map(rank, point->subject, spec.shape, whole ? &one : point->rows, whole ? 1 : point->row_count,
                                           whole ? &one : point->cols, whole ? 1 : point->col_count);
  const struct sf_shape local = sf_shard_map_local_shape(&map);
  const int64_t count = local.rows * local.cols;
  float *values = point->dtype == SHARDFUZZ_F32 ? memory : sf_plugged_take(&rank->host, "values", (size_t)count * sizeof *values);
  if (values != memory) sf_plugged_unpack(values, memory, count, rank->dtype);
  if (env->sink != NULL && env->sink->point != NULL)
    env->sink->point(env->sink->ctx, env->comm->rank, id, &map, values, local.rows, local.cols);
  if (values == memory) return;
  sf_plugged_pack(memory, values, count, rank->dtype);
  sf_plugged_give(&rank->host, values);
}

static void trace(const struct shardfuzz_model_call *given, const struct shardfuzz_point *point, void *memory) {
  struct sf_plugged_host *host = &rank_of(given)->host;
  sf_plugged_enter(host);
  hand_over(rank_of(given), point, memory);
  sf_plugged_leave(host);
}

static void place(const struct shardfuzz_model_call *given, const char *name) {
  struct rank *rank = rank_of(given);
  sf_plugged_enter(&rank->host);
  const struct sf_plugin_place *found = sf_plugin_model_place(rank->model, name);
  if (found == NULL) sf_plugged_fail(&rank->host, SF_MANNER_ARGUMENT, "named more than %d places", SF_PLUGIN_PLACES_MAX - 1);
  rank->host.labels = found->calls;
  sf_comm_show_progress(rank->host.env->comm, found->name);
  sf_plugged_leave(&rank->host);
}

/* --- the run -------------------------------------------------------------------------------------------------------------- */

static struct shardfuzz_model_parameter *describe_parameters(const struct sf_rank_env *env) {
  const struct sf_catalog *catalog = env->catalog;
  struct shardfuzz_model_parameter *out = sf_rank_alloc(env, (size_t)catalog->param_count * sizeof *out);
  for (int32_t i = 0; i < catalog->param_count; i++) {
    const struct sf_param *param = &catalog->params[i];
    out[i] = (struct shardfuzz_model_parameter){.name = param->name, .shape = {param->shape.rows, param->shape.cols}};
    out[i].flags = (param->frozen ? 0u : SHARDFUZZ_TRAINABLE) | (param->decayed ? SHARDFUZZ_DECAYED : 0u);
  }
  return out;
}

void sf_plugged_model_run(struct sf_rank_env *env) {
  struct rank *rank = sf_rank_alloc(env, sizeof *rank);
  const struct sf_plugin_place *start = &env->model->places[0];
  memset(rank, 0, sizeof *rank);
  rank->model = env->model;
  rank->buffers = sf_buffers_create(env);
  rank->dtype = sf_case_storage(env->c);
  rank->parallel = sf_parallel_state_create(env);
  rank->host = (struct sf_plugged_host){.env = env, .buffers = &rank->buffers, .pass = "model", .labels = start->calls};
  sf_plugged_comm_fill(&rank->host, &rank->parallel);
  rank->given = (struct shardfuzz_model_call){.size_bytes = sizeof rank->given,
                                              .dtype = (uint32_t)rank->dtype,
                                              .fields = rank->fields,
                                              .parameters = describe_parameters(env),
                                              .field_count = sf_plugin_model_fields(rank->fields, env->c),
                                              .parameter_count = env->catalog->param_count,
                                              .comm = &rank->host.comm,
                                              .take = take,
                                              .give = give,
                                              .parameter = parameter,
                                              .data = data,
                                              .documents = documents,
                                              .dropout = dropout,
                                              .trace = trace,
                                              .place = place,
                                              .host = rank};
  sf_comm_show_progress(env->comm, start->name);
  const int result = env->model->declared->run(&rank->given);
  sf_plugged_end(&rank->host, start->name, result, &rank->parallel.world);
}
