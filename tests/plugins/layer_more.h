/* Linears that each tp rank has whole, linears behind a gather, norms of heads; with BUG. */
#include "tests/plugins/layer_parts.h"

/* --- y = x W^T of this rank's tokens --- */

static int linear_whole_forward(layer_call call) {
  const tensor weight = &parameter(call, "weight")->value;
  float *y = floats(call, rows_of(call->output) * cols_of(call->output));
  multiply(y, read_floats(call, call->input), read_floats(call, weight), rows_of(call->input), cols_of(call->input), cols_of(call->output));
  write_floats(call->output, y);
  return SHARDFUZZ_OK;
}

static int linear_whole_backward(layer_call call) {
  const struct shardfuzz_parameter *weight = parameter(call, "weight");
  const int64_t rows = rows_of(call->input), in = cols_of(call->input);
  const float *g = read_floats(call, call->output_grad);
  float *dx = floats(call, rows * in);
  multiply_back(dx, g, read_floats(call, &weight->value), rows, in, cols_of(call->output_grad));
  write_floats(call->input_grad, dx);
  parameter_grads(weight, NULL, g, read_floats(call, call->input), rows, g, rows);
  return SHARDFUZZ_OK;
}

/* The first of this rank's rows among those of its tp group. */
static int64_t first_own(layer_call call, tensor own) { return is_sp(call) ? tp_of(call).index * rows_of(own) : 0; }

/* --- adapter: y = x W^T of all tokens --- */

static int linear_adapter_forward(layer_call call) {
  int64_t rows;
  const float *x = gather_tokens(call, call->input, &rows);
  float *y = floats(call, rows * cols_of(call->output));
  multiply(y, x, read_floats(call, &parameter(call, "weight")->value), rows, cols_of(call->input), cols_of(call->output));
  write_floats(call->output, y);
  return SHARDFUZZ_OK;
}

static int linear_adapter_backward(layer_call call) {
  const struct shardfuzz_parameter *weight = parameter(call, "weight");
  const int64_t in = cols_of(call->input);
  int64_t rows;
  const float *g = gather_tokens(call, call->output_grad, &rows), *x = gather_tokens(call, call->input, &rows);
  float *dx = floats(call, rows * in);
  multiply_back(dx, g, read_floats(call, &weight->value), rows, in, cols_of(call->output_grad));
  write_floats(call->input_grad, dx + first_own(call, call->input_grad) * in);
  parameter_grads(weight, NULL, g, x, rows, g, rows);
  return SHARDFUZZ_OK;
}

/* --- eh_proj: each rank's columns of y, gathered --- */

static void copy_columns(float *to, int64_t to_ld, const float *from, int64_t from_ld, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; i++) memcpy(to + i * to_ld, from + i * from_ld, (size_t)cols * sizeof(float));
}

static int linear_gathered_forward(layer_call call) {
  const tensor weight = &parameter(call, "weight")->value;
  const int64_t part = rows_of(weight), h = cols_of(call->output), own = rows_of(call->output);
  struct wire one, all;
  int64_t rows;
  const float *x = gather_tokens(call, call->input, &rows);
  float *y = floats(call, rows * part), *whole = floats(call, own * h);
  multiply(y, x, read_floats(call, weight), rows, cols_of(call->input), part);
  tensor mine = wire_at(&one, call->output, call->scratch(call, (uint64_t)(rows * part) * element_bytes(call->dtype)), rows, part);
  tensor parts =
      wire_at(&all, call->output, call->scratch(call, (uint64_t)(rows * h) * element_bytes(call->dtype)), rows * tp_of(call).size, part);
  write_floats(mine, y);
  call->comm->all_gather(call->comm, SHARDFUZZ_GROUP_TP, parts->data, mine->data, rows * part, call->dtype);
  const float *gathered = read_floats(call, parts);
  for (int32_t i = 0; i < tp_of(call).size; i++)
    copy_columns(whole + i * part, h, gathered + (i * rows + first_own(call, call->output)) * part, part, own, part);
  write_floats(call->output, whole);
  return SHARDFUZZ_OK;
}

static int linear_gathered_backward(layer_call call) {
  const struct shardfuzz_parameter *weight = parameter(call, "weight");
  const int64_t part = rows_of(&weight->value), in = cols_of(call->input), h = cols_of(call->output_grad);
  int64_t rows;
  const float *g = gather_tokens(call, call->output_grad, &rows), *x = gather_tokens(call, call->input, &rows);
  float *own = floats(call, rows * part), *dx = floats(call, rows * in);
  copy_columns(own, part, g + tp_of(call).index * part, h, rows, part);
  multiply_back(dx, own, read_floats(call, &weight->value), rows, in, part);
  sum_over_tp(call, call->input_grad, dx, rows);
  parameter_grads(weight, NULL, own, x, rows, own, rows);
  return SHARDFUZZ_OK;
}

/* --- qk_layernorm --- */

/* Of head `head` of a row: queries, then the key, then the value of each key/value head. */
static const char *head_kind(layer_call call, int64_t head) {
  const int64_t queries = layer_attribute(call, "query_heads") / layer_attribute(call, "kv_heads"), place = head % (queries + 2);
  return place < queries ? "q" : place == queries ? "k" : NULL;
}
static const struct shardfuzz_parameter *head_parameter(layer_call call, const char *kind, const char *what) {
  char name[16] = {kind[0], '.'};
  strcpy(name + 2, what);
  return parameter(call, name);
}

static struct row_stats head_stats(layer_call call, int64_t row, int64_t first, int64_t d) {
  int64_t shape[2] = {1, d};
  struct shardfuzz_tensor head = *call->input;
  head.data = at(call->input, row, first);
  head.shape = shape;
  return stats_of(call, &head, 0);
}

static int heads_forward(layer_call call) {
  const int64_t d = layer_attribute(call, "head_dim");
  for (int64_t i = 0; i < rows_of(call->input) * (cols_of(call->input) / d); i++) {
    const int64_t row = i / (cols_of(call->input) / d), head = i % (cols_of(call->input) / d), first = head * d;
    const char *kind = head_kind(call, head);
    const struct row_stats s = head_stats(call, row, first, d);
    const struct shardfuzz_parameter *weight = kind ? head_parameter(call, kind, "weight") : NULL,
                                     *bias = kind ? head_parameter(call, kind, "bias") : NULL;
    for (int64_t j = 0; j < d; j++) {
      const double x = get(call->input, row, first + j);
      put(call->output, row, first + j,
          (float)(kind ? (x - s.mean) * s.scale * get(&weight->value, 0, j) + (bias ? get(&bias->value, 0, j) : 0) : x));
    }
  }
  return SHARDFUZZ_OK;
}

/* One head that has a norm. */
static void head_backward(layer_call call, int64_t row, int64_t first, int64_t d, const struct shardfuzz_parameter *weight,
                          const struct shardfuzz_parameter *bias) {
  const struct row_stats s = head_stats(call, row, first, d);
  float *dw = weight->grad.data, *db = bias ? bias->grad.data : NULL;
  double mean = 0, product = 0;
  for (int64_t j = 0; j < d; j++) {
    const double g = get(call->output_grad, row, first + j), n = (get(call->input, row, first + j) - s.mean) * s.scale,
                 gw = g * get(&weight->value, 0, j);
    if (layer_attribute(call, "norm") == 1) mean += gw / (double)d;
    product += gw * n / (double)d;
    if (dw) dw[j] += (float)(g * n);
    if (db) db[j] += (float)g;
  }
  for (int64_t j = 0; j < d; j++) {
    const double gw = (double)get(call->output_grad, row, first + j) * get(&weight->value, 0, j);
    put(call->input_grad, row, first + j, (float)(s.scale * (gw - mean - (get(call->input, row, first + j) - s.mean) * s.scale * product)));
  }
}

static int heads_backward(layer_call call) {
  const int64_t d = layer_attribute(call, "head_dim"), heads = cols_of(call->input) / d;
  for (int32_t i = 0; i < call->parameter_count; i++)
    if (call->parameters[i].grad.data) memset(call->parameters[i].grad.data, 0, (size_t)d * sizeof(float));
  for (int64_t i = 0; i < rows_of(call->input) * heads; i++) {
    const char *kind = head_kind(call, i % heads);
    const int64_t row = i / heads, first = i % heads * d;
    if (kind) head_backward(call, row, first, d, head_parameter(call, kind, "weight"), head_parameter(call, kind, "bias"));
    for (int64_t j = 0; !kind && j < d; j++) put(call->input_grad, row, first + j, get(call->output_grad, row, first + j));
  }
  return SHARDFUZZ_OK;
}

/* Every sample uses some of them. */
static inline void use_more(void) {
  (void)linear_whole_forward, (void)linear_whole_backward, (void)linear_adapter_forward, (void)linear_adapter_backward,
      (void)linear_gathered_forward, (void)linear_gathered_backward, (void)heads_forward, (void)heads_backward;
}
