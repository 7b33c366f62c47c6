/* Column- and row-parallel linears, the MLP between them and norms, with BUG. */
#include "tests/plugins/layer.h"

/* --- column-parallel: y = x W^T + b --- */

static void column_forward(layer_call call, float *y, const float *x, int64_t rows, const struct shardfuzz_parameter *weight,
                           const struct shardfuzz_parameter *bias) {
  const int64_t out = weight->value.shape[0], in = weight->value.shape[1];
  multiply(y, x, read_floats(call, &weight->value), rows, in, out);
  for (int64_t i = 0; bias && i < rows * out; i++) y[i] += get(&bias->value, 0, i % out);
}

static void column_input_grad(layer_call call, const float *g, int64_t rows, const struct shardfuzz_parameter *weight) {
  const int64_t out = weight->value.shape[0], in = weight->value.shape[1];
  float *dx = floats(call, rows * in);
  multiply_back(dx, g, read_floats(call, &weight->value), rows, in, out);
  if (BUG == NO_GRAD_SUM && !is_sp(call)) write_floats(call->input_grad, dx);
  else sum_over_tp(call, call->input_grad, dx, rows);
}

static int linear_column_forward(layer_call call) {
  int64_t rows;
  const float *x = gather_tokens(call, call->input, &rows);
  float *y = floats(call, rows * cols_of(call->output));
  column_forward(call, y, x, rows, parameter(call, "weight"), parameter(call, "bias"));
  write_floats(call->output, y);
  return SHARDFUZZ_OK;
}

static int linear_column_backward(layer_call call) {
  int64_t rows;
  const struct shardfuzz_parameter *weight = parameter(call, "weight");
  const float *x = gather_tokens(call, call->input, &rows), *g = read_floats(call, call->output_grad);
  column_input_grad(call, g, rows, weight);
  parameter_grads(weight, parameter(call, "bias"), g, x, rows, g, rows);
  return SHARDFUZZ_OK;
}

/* --- row-parallel: y = sum over tp of x W^T, then + b --- */

static void row_output(layer_call call, const float *x, int64_t rows, const struct shardfuzz_parameter *weight,
                       const struct shardfuzz_parameter *bias) {
  const int64_t out = weight->value.shape[0], in = weight->value.shape[1];
  float *partial = floats(call, rows * out);
  multiply(partial, x, read_floats(call, &weight->value), rows, in, out);
  sum_over_tp(call, call->output, partial, rows);
  for (int64_t i = 0; i < rows_of(call->output); i++)
    for (int64_t j = 0; bias && j < out; j++) put(call->output, i, j, get(call->output, i, j) + get(&bias->value, 0, j));
}

static int linear_row_forward(layer_call call) {
  row_output(call, read_floats(call, call->input), rows_of(call->input), parameter(call, "weight"), parameter(call, "bias"));
  return SHARDFUZZ_OK;
}

/* The gradient of what the linear reads, all tokens x its columns, and of its parameters. */
static float *row_grads(layer_call call, const float *x, const struct shardfuzz_parameter *weight, const struct shardfuzz_parameter *bias) {
  const int64_t out = weight->value.shape[0], in = weight->value.shape[1];
  int64_t rows;
  const float *own = read_floats(call, call->output_grad), *g = gather_tokens(call, call->output_grad, &rows);
  float *dx = floats(call, rows * in);
  multiply_back(dx, g, read_floats(call, &weight->value), rows, in, out);
  parameter_grads(weight, bias, g, x, rows, own, rows_of(call->output_grad));
  return dx;
}

static int linear_row_backward(layer_call call) {
  write_floats(call->input_grad, row_grads(call, read_floats(call, call->input), parameter(call, "weight"), parameter(call, "bias")));
  return SHARDFUZZ_OK;
}

/* --- activations --- */

enum { GELU, SWIGLU, RELU2 };

static float logistic(float x) { return 1 / (1 + expf(-x)); }
static float phi(float x) { return 0.5f * (1.0f + erff(x * 0.70710678f)); } /* as PyTorch has it */
static float density(float x) { return 0.39894228f * expf(-0.5f * x * x); }

static float activate(int64_t kind, const float *x, int64_t width, int64_t j) {
  const float a = x[j];
  if (kind == SWIGLU) return a * logistic(a) * x[width + j];
  return kind == GELU ? a * phi(a) : a > 0 ? a * a : 0;
}

static void activate_back(int64_t kind, float *dx, float g, const float *x, int64_t width, int64_t j) {
  const float a = x[j], s = logistic(a);
  if (kind == SWIGLU) {
    dx[j] = g * x[width + j] * s * (1 + a * (1 - s));
    dx[width + j] = g * a * s;
    return;
  }
  dx[j] = kind == GELU ? g * (phi(a) + a * density(a)) : a > 0 ? g * 2 * a : 0;
}

/* --- mlp --- */

/* Values in the case's format that may be rewritten: what then stands there goes on. */
static const float *hand_over(layer_call call, uint32_t which, const char *module, const float *values, int64_t rows, int64_t cols,
                              void *kept) {
  struct wire w;
  tensor t = wire_at(&w, call->input, kept ? kept : call->scratch(call, (uint64_t)(rows * cols) * element_bytes(call->dtype)), rows, cols);
  write_floats(t, values);
  if (BUG != NO_TRACE) call->trace(call, which, module, t->data);
  return read_floats(call, t);
}

/* What is kept: linear_fc1's output, then the activation's. */
static const float *kept_values(layer_call call, int64_t first, int64_t rows, int64_t cols) {
  struct wire w;
  return read_floats(call, wire_at(&w, call->input, (char *)call->saved + (size_t)first * element_bytes(call->dtype), rows, cols));
}

static int mlp_forward(layer_call call) {
  const struct shardfuzz_parameter *fc1 = parameter(call, "linear_fc1.weight"), *fc2 = parameter(call, "linear_fc2.weight");
  const int64_t wide = fc1->value.shape[0], width = fc2->value.shape[1], kind = layer_attribute(call, "activation");
  int64_t rows;
  const float *x = gather_tokens(call, call->input, &rows);
  float *y = floats(call, rows * wide), *a = floats(call, rows * width);
  char *kept = call->save(call, (uint64_t)(rows * (wide + width)) * element_bytes(call->dtype));
  column_forward(call, y, x, rows, fc1, parameter(call, "linear_fc1.bias"));
  const float *z = hand_over(call, SHARDFUZZ_OUTPUT, "linear_fc1", y, rows, wide, kept);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < width; j++) a[i * width + j] = activate(kind, z + i * wide, width, j);
  const float *b =
      hand_over(call, SHARDFUZZ_OUTPUT, "activation", a, rows, width, kept + (size_t)(rows * wide) * element_bytes(call->dtype));
  row_output(call, b, rows, fc2, parameter(call, "linear_fc2.bias"));
  return SHARDFUZZ_OK;
}

static int mlp_backward(layer_call call) {
  const struct shardfuzz_parameter *fc1 = parameter(call, "linear_fc1.weight"), *fc2 = parameter(call, "linear_fc2.weight");
  const int64_t wide = fc1->value.shape[0], width = fc2->value.shape[1], kind = layer_attribute(call, "activation");
  int64_t rows;
  const float *x = gather_tokens(call, call->input, &rows);
  const float *z = kept_values(call, 0, rows, wide), *b = kept_values(call, rows * wide, rows, width);
  const float *db =
      hand_over(call, SHARDFUZZ_INPUT_GRAD, "linear_fc2", row_grads(call, b, fc2, parameter(call, "linear_fc2.bias")), rows, width, NULL);
  float *dz = floats(call, rows * wide);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < width; j++) activate_back(kind, dz + i * wide, db[i * width + j], z + i * wide, width, j);
  const float *g = hand_over(call, SHARDFUZZ_INPUT_GRAD, "activation", dz, rows, wide, NULL);
  column_input_grad(call, g, rows, fc1);
  parameter_grads(fc1, parameter(call, "linear_fc1.bias"), g, x, rows, g, rows);
  return SHARDFUZZ_OK;
}

/* --- norms, in double: the rows are short --- */

struct row_stats {
  double mean, scale;
};
static struct row_stats stats_of(layer_call call, tensor x, int64_t row) {
  struct row_stats s = {0, 0};
  const int64_t width = cols_of(x);
  for (int64_t j = 0; layer_attribute(call, "norm") == 1 && j < width; j++) s.mean += get(x, row, j) / (double)width;
  for (int64_t j = 0; j < width; j++) s.scale += (get(x, row, j) - s.mean) * (get(x, row, j) - s.mean) / (double)width;
  s.scale = 1 / sqrt(s.scale + 1e-5);
  return s;
}

static int norm_forward(layer_call call) {
  const struct shardfuzz_parameter *weight = parameter(call, "weight"), *bias = parameter(call, "bias");
  for (int64_t i = 0; i < rows_of(call->input); i++) {
    const struct row_stats s = stats_of(call, call->input, i);
    for (int64_t j = 0; j < cols_of(call->input); j++) {
      const double y = (get(call->input, i, j) - s.mean) * s.scale * get(&weight->value, 0, j);
      put(call->output, i, j, (float)(y + (bias ? get(&bias->value, 0, j) : 0)));
    }
  }
  return SHARDFUZZ_OK;
}

static int norm_backward(layer_call call) {
  const struct shardfuzz_parameter *weight = parameter(call, "weight"), *bias = parameter(call, "bias");
  const int64_t width = cols_of(call->input);
  float *dw = weight->grad.data, *db = bias ? bias->grad.data : NULL;
  for (int64_t j = 0; j < width; j++) {
    if (dw) dw[j] = 0;
    if (db) db[j] = 0;
  }
  for (int64_t i = 0; i < rows_of(call->input); i++) {
    const struct row_stats s = stats_of(call, call->input, i);
    double mean = 0, product = 0;
    for (int64_t j = 0; j < width; j++) {
      const double g = get(call->output_grad, i, j), n = (get(call->input, i, j) - s.mean) * s.scale, gw = g * get(&weight->value, 0, j);
      if (layer_attribute(call, "norm") == 1) mean += gw / (double)width;
      product += gw * n / (double)width;
      if (dw) dw[j] += (float)(g * n);
      if (db) db[j] += (float)g;
    }
    for (int64_t j = 0; j < width; j++) {
      const double gw = (double)get(call->output_grad, i, j) * get(&weight->value, 0, j);
      put(call->input_grad, i, j, (float)(s.scale * (gw - mean - (get(call->input, i, j) - s.mean) * s.scale * product)));
    }
  }
  return SHARDFUZZ_OK;
}

#define LAYER(name, kind) \
  { .module = name, .dtypes = FORMATS, .takes = SHARDFUZZ_TAKES_SEQUENCE_PARALLEL, .forward = kind##_forward, .backward = kind##_backward }
/* Every sample uses some of them. */
static inline void use_all(void) {
  (void)linear_column_forward, (void)linear_column_backward, (void)linear_row_forward, (void)linear_row_backward, (void)mlp_forward,
      (void)mlp_backward, (void)norm_forward, (void)norm_backward;
}
