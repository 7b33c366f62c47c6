/* The linears of the MLP, one column-parallel, one row-parallel, which multiply casts to fp8 where they are told to; the second with BUG.
 */
#include "tests/plugins/layer.h"

enum { INPUT, WEIGHT, GRAD, OPERANDS };
struct operand {
  float *values; /* the casts, or what they were made of */
  float unit;    /* 1 / scale */
};

/* The nearest number with `bits` bits of fraction, exponents from least on, at most largest. */
static float nearest(float x, int bits, int least, float largest) {
  if (x != x || x == 0) return x;
  if (fabsf(x) > largest) return copysignf(largest, x);
  const int exponent = ilogbf(x) < least ? least : ilogbf(x);
  const float step = ldexpf(1, exponent - bits), rounded = nearbyintf(x / step) * step;
  return fabsf(rounded) > largest ? copysignf(largest, x) : rounded;
}
static float e4m3(float x) { return nearest(x, 3, -6, 448); }
static float e5m2(float x) { return nearest(x, 2, -14, 57344); }

static struct operand cast(layer_call call, float *values, int64_t count, int which) {
  static const char *const names[OPERANDS] = {"fp8_input_scale", "fp8_weight_scale", "fp8_grad_scale"};
  struct operand out = {values, 1};
  for (int32_t i = 0; i < call->attribute_count; i++) {
    if (strcmp(call->attributes[i].name, names[which]) != 0 || call->attributes[i].integer == 0) continue;
    const float scale = (float)call->attributes[i].real;
    out.unit = 1 / scale;
    for (int64_t k = 0; k < count; k++)
      values[k] = which == GRAD && BUG != GRAD_IN_E4M3 ? e5m2(values[k] * scale) : e4m3(values[k] * scale);
  }
  return out;
}

static void scale_all(float *values, int64_t count, float unit) {
  for (int64_t i = 0; i < count; i++) values[i] *= unit;
}

static int column_forward(layer_call call) {
  const struct shardfuzz_parameter *weight = parameter(call, "weight"), *bias = parameter(call, "bias");
  const int64_t in = cols_of(call->input), out = cols_of(call->output);
  int64_t rows;
  float *all = gather_tokens(call, call->input, &rows), *y = floats(call, rows * out);
  const struct operand x = cast(call, all, rows * in, INPUT), w = cast(call, read_floats(call, &weight->value), in * out, WEIGHT);
  multiply(y, x.values, w.values, rows, in, out);
  scale_all(y, rows * out, x.unit * w.unit);
  for (int64_t i = 0; bias && i < rows * out; i++) y[i] += get(&bias->value, 0, i % out);
  write_floats(call->output, y);
  return SHARDFUZZ_OK;
}

static int column_backward(layer_call call) {
  const struct shardfuzz_parameter *weight = parameter(call, "weight"), *bias = parameter(call, "bias");
  const int64_t in = cols_of(call->input), out = cols_of(call->output_grad), own_rows = rows_of(call->output_grad);
  int64_t rows;
  float *all = gather_tokens(call, call->input, &rows), *dx = floats(call, rows * in);
  const float *own = read_floats(call, call->output_grad);
  const struct operand g = cast(call, read_floats(call, call->output_grad), own_rows * out, GRAD), x = cast(call, all, rows * in, INPUT),
                       w = cast(call, read_floats(call, &weight->value), in * out, WEIGHT);
  multiply_back(dx, g.values, w.values, rows, in, out);
  scale_all(dx, rows * in, g.unit * w.unit);
  sum_over_tp(call, call->input_grad, dx, rows);
  parameter_grads(weight, bias, g.values, x.values, rows, own, own_rows);
  if (weight->grad.data) scale_all(weight->grad.data, in * out, g.unit * x.unit);
  return SHARDFUZZ_OK;
}

static int row_forward(layer_call call) {
  const struct shardfuzz_parameter *weight = parameter(call, "weight"), *bias = parameter(call, "bias");
  const int64_t rows = rows_of(call->input), in = cols_of(call->input), out = cols_of(call->output);
  float *partial = floats(call, rows * out);
  const struct operand x = cast(call, read_floats(call, call->input), rows * in, INPUT),
                       w = cast(call, read_floats(call, &weight->value), in * out, WEIGHT);
  multiply(partial, x.values, w.values, rows, in, out);
  scale_all(partial, rows * out, BUG == UNIT_FORGOTTEN ? x.unit : x.unit * w.unit);
  sum_over_tp(call, call->output, partial, rows);
  for (int64_t i = 0; i < rows_of(call->output); i++)
    for (int64_t j = 0; bias && j < out; j++) put(call->output, i, j, get(call->output, i, j) + get(&bias->value, 0, j));
  return SHARDFUZZ_OK;
}

static int row_backward(layer_call call) {
  const struct shardfuzz_parameter *weight = parameter(call, "weight"), *bias = parameter(call, "bias");
  const int64_t in = cols_of(call->input), out = cols_of(call->output_grad), own_rows = rows_of(call->output_grad);
  int64_t rows;
  float *all = gather_tokens(call, call->output_grad, &rows), *dx = floats(call, rows * in);
  const float *own = read_floats(call, call->output_grad);
  const struct operand g = cast(call, all, rows * out, GRAD), x = cast(call, read_floats(call, call->input), rows * in, INPUT),
                       w = cast(call, read_floats(call, &weight->value), in * out, WEIGHT);
  multiply_back(dx, g.values, w.values, rows, in, out);
  scale_all(dx, rows * in, g.unit * w.unit);
  write_floats(call->input_grad, dx);
  parameter_grads(weight, bias, g.values, x.values, rows, own, own_rows);
  if (weight->grad.data) scale_all(weight->grad.data, in * out, g.unit * x.unit);
  return SHARDFUZZ_OK;
}

enum { TAKES = SHARDFUZZ_TAKES_SEQUENCE_PARALLEL | SHARDFUZZ_TAKES_FP8 };
static const struct shardfuzz_layer layers[] = {
    {.module = "mlp.linear_fc1", .dtypes = FORMATS, .takes = TAKES, .forward = column_forward, .backward = column_backward},
    {.module = "mlp.linear_fc2", .dtypes = FORMATS, .takes = TAKES, .forward = row_forward, .backward = row_backward}};
LAYERS(layers)
