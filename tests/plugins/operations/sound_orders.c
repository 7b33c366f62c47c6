/* Products without a bug in the orders that kernels have: of the norm's backward the number of columns decides which. No finding may come
 * of them. */
#include "tests/plugins/kernel.h"

struct row {
  const struct shardfuzz_tensor *dy, *x, *w, *dx;
  int64_t r, cols;
  float mean, rstd;
  bool layer;
};

static float grad(const struct row *row, int64_t j) { return get(row->dy, row->r, j) * get(row->w, 0, j); }
static float distance(const struct row *row, int64_t j) { return get(row->x, row->r, j) - row->mean; }

/* dy w (x - mean), the deviation last; all of the row times its length before it is divided by it. */
static void deviation_last(const struct row *row) {
  const float cols = (float)row->cols;
  float sum = 0, dot = 0;
  for (int64_t j = 0; j < row->cols; j++) {
    sum += grad(row, j);
    dot += grad(row, j) * distance(row, j) * row->rstd;
  }
  if (!row->layer) sum = 0;
  for (int64_t j = 0; j < row->cols; j++)
    put(row->dx, row->r, j, (cols * grad(row, j) - distance(row, j) * row->rstd * dot - sum) * (row->rstd / cols));
}

/* dy (x - mean) w, then the deviation; both means in one subtraction. */
static void weight_third(const struct row *row) {
  float sum = 0, dot = 0;
  for (int64_t j = 0; j < row->cols; j++) {
    sum += grad(row, j);
    dot += get(row->dy, row->r, j) * distance(row, j) * get(row->w, 0, j) * row->rstd;
  }
  const float g_mean = row->layer ? sum / (float)row->cols : 0.0f, g_dot = dot / (float)row->cols;
  for (int64_t j = 0; j < row->cols; j++)
    put(row->dx, row->r, j, (grad(row, j) - (distance(row, j) * row->rstd * g_dot + g_mean)) * row->rstd);
}

/* The deviation outside of all sums, its third power in front of one. */
static void deviation_cubed(const struct row *row) {
  float sum = 0, dot = 0;
  for (int64_t j = 0; j < row->cols; j++) {
    sum += grad(row, j);
    dot += grad(row, j) * distance(row, j);
  }
  const float g_mean = row->layer ? sum / (float)row->cols : 0.0f, cube = row->rstd * row->rstd * row->rstd, g_dot = dot / (float)row->cols;
  for (int64_t j = 0; j < row->cols; j++) put(row->dx, row->r, j, row->rstd * (grad(row, j) - g_mean) - cube * distance(row, j) * g_dot);
}

/* One column's gradients of the weight and of the bias, dy (x - mean) first or last. */
static void weight_gradients(const struct shardfuzz_call *call, int64_t col) {
  const struct shardfuzz_tensor *dy = &call->tensors[0], *x = &call->tensors[1], *stats = &call->tensors[2], *dw = &call->tensors[5],
                                *db = &call->tensors[6];
  float weight = 0, bias = 0;
  for (int64_t r = 0; r < dy->shape[0]; r++) {
    const float d = get(x, r, col) - get(stats, r, 0), rstd = get(stats, r, 1), g = get(dy, r, col);
    weight += col % 2 ? g * d * rstd : g * rstd * d;
    bias += g;
  }
  if (dw->data) put(dw, 0, col, get(dw, 0, col) + weight);
  if (db->data) put(db, 0, col, get(db, 0, col) + bias);
}

static int norm_backward(const struct shardfuzz_call *call) {
  static void (*const orders[])(const struct row *row) = {deviation_last, weight_third, deviation_cubed};
  const struct shardfuzz_tensor *dy = &call->tensors[0], *stats = &call->tensors[2];
  struct row row = {.dy = dy,
                    .x = &call->tensors[1],
                    .w = &call->tensors[3],
                    .dx = &call->tensors[4],
                    .cols = dy->shape[1],
                    .layer = whole(call, "norm")};
  for (row.r = 0; row.r < dy->shape[0]; row.r++) {
    row.mean = get(stats, row.r, 0);
    row.rstd = get(stats, row.r, 1);
    orders[row.cols % 3](&row);
  }
  for (int64_t j = 0; j < row.cols; j++) weight_gradients(call, j);
  return SHARDFUZZ_OK;
}

static float logistic(float x) { return 1.0f / (1.0f + expf(-x)); }

/* gate up s, dy gate s: the logistic function last. */
static int swiglu_forward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *x = &call->tensors[0], *y = &call->tensors[1];
  const int64_t cols = y->shape[1];
  for (int64_t r = 0; r < y->shape[0]; r++)
    for (int64_t j = 0; j < cols; j++) put(y, r, j, get(x, r, j) * get(x, r, cols + j) * logistic(get(x, r, j)));
  return SHARDFUZZ_OK;
}
static int swiglu_backward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *dy = &call->tensors[0], *x = &call->tensors[1], *dx = &call->tensors[2];
  const int64_t cols = dy->shape[1];
  for (int64_t r = 0; r < dy->shape[0]; r++)
    for (int64_t j = 0; j < cols; j++) {
      const float g = get(dy, r, j), gate = get(x, r, j), up = get(x, r, cols + j), s = logistic(gate);
      put(dx, r, j, g * up * (s * (1.0f + gate * (1.0f - s))));
      put(dx, r, cols + j, g * gate * s);
    }
  return SHARDFUZZ_OK;
}

/* 2 dy max(x, 0), the factor first. */
static int relu2_backward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *dy = &call->tensors[0], *x = &call->tensors[1], *dx = &call->tensors[2];
  for (int64_t j = 0; j < dx->shape[1]; j++) put(dx, 0, j, 2.0f * get(dy, 0, j) * (get(x, 0, j) < 0 ? 0.0f : get(x, 0, j)));
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_operation operations[] = {
    {.name = "norm", .dtypes = FORMATS, .takes = TAKES_ALL, .backward = norm_backward},
    {.name = "swiglu", .dtypes = FORMATS, .takes = TAKES_ALL, .forward = swiglu_forward, .backward = swiglu_backward},
    {.name = "relu2", .dtypes = FORMATS, .takes = TAKES_ALL, .backward = relu2_backward}};
PLUGIN(operations)
