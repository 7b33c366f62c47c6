/* Kernels without a bug, as a kernel's author would write them: no finding may come of them. */
#include "tests/plugins/kernel.h"

static int add(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *a = &call->tensors[0], *b = &call->tensors[1], *out = &call->tensors[2];
  for (int64_t j = 0; j < out->shape[1]; j++) put(out, 0, j, get(a, 0, j) + get(b, 0, j));
  return SHARDFUZZ_OK;
}

static int norm_forward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *x = &call->tensors[0], *w = &call->tensors[1], *b = &call->tensors[2], *y = &call->tensors[3],
                                *stats = &call->tensors[4];
  const int64_t cols = x->shape[1];
  const bool layer = whole(call, "norm");
  for (int64_t r = 0; r < x->shape[0]; r++) {
    float sum = 0, squares = 0;
    for (int64_t j = 0; layer && j < cols; j++) sum += get(x, r, j);
    const float mean = sum / (float)cols;
    for (int64_t j = 0; j < cols; j++) squares += (get(x, r, j) - mean) * (get(x, r, j) - mean);
    const float rstd = 1.0f / sqrtf(squares / (float)cols + 1e-5f);
    put(stats, r, 0, mean);
    put(stats, r, 1, rstd);
    for (int64_t j = 0; j < cols; j++) put(y, r, j, (get(x, r, j) - mean) * rstd * get(w, 0, j) + (b->data ? get(b, 0, j) : 0.0f));
  }
  return SHARDFUZZ_OK;
}

/* One column's gradient of the weight, one of the bias. */
static void weight_gradients(const struct shardfuzz_call *call, int64_t col) {
  const struct shardfuzz_tensor *dy = &call->tensors[0], *x = &call->tensors[1], *stats = &call->tensors[2], *dw = &call->tensors[5],
                                *db = &call->tensors[6];
  float weight = 0, bias = 0;
  for (int64_t r = 0; r < dy->shape[0]; r++) {
    weight += get(dy, r, col) * ((get(x, r, col) - get(stats, r, 0)) * get(stats, r, 1));
    bias += get(dy, r, col);
  }
  if (dw->data) put(dw, 0, col, get(dw, 0, col) + weight);
  if (db->data) put(db, 0, col, get(db, 0, col) + bias);
}

static int norm_backward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *dy = &call->tensors[0], *x = &call->tensors[1], *stats = &call->tensors[2], *w = &call->tensors[3],
                                *dx = &call->tensors[4];
  const int64_t cols = dy->shape[1];
  for (int64_t r = 0; r < dy->shape[0]; r++) {
    const float mean = get(stats, r, 0), rstd = get(stats, r, 1);
    float sum = 0, dot = 0;
    for (int64_t j = 0; j < cols; j++) {
      const float g = get(dy, r, j) * get(w, 0, j);
      sum += g;
      dot += g * ((get(x, r, j) - mean) * rstd);
    }
    const float g_mean = whole(call, "norm") ? sum / (float)cols : 0.0f, g_dot = dot / (float)cols;
    for (int64_t j = 0; j < cols; j++) {
      const float g = get(dy, r, j) * get(w, 0, j), x_hat = (get(x, r, j) - mean) * rstd;
      put(dx, r, j, (g - g_mean - x_hat * g_dot) * rstd);
    }
  }
  for (int64_t j = 0; j < cols; j++) weight_gradients(call, j);
  return SHARDFUZZ_OK;
}

static int softmax_forward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *s = &call->tensors[0], *p = &call->tensors[1];
  const int64_t rows = s->shape[0], cols = s->shape[1];
  for (int64_t r = 0; r < rows; r++) {
    const int64_t end = whole(call, "causal") ? cols - rows + r + 1 : cols;
    float top = -INFINITY, sum = 0;
    for (int64_t j = 0; j < end; j++) top = get(s, r, j) > top || get(s, r, j) != get(s, r, j) ? get(s, r, j) : top;
    for (int64_t j = 0; j < end; j++) sum += expf(get(s, r, j) - top);
    for (int64_t j = 0; j < cols; j++) put(p, r, j, j < end ? expf(get(s, r, j) - top) / sum : 0.0f);
  }
  return SHARDFUZZ_OK;
}

static int softmax_backward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *dp = &call->tensors[0], *p = &call->tensors[1], *ds = &call->tensors[2];
  const int64_t rows = p->shape[0], cols = p->shape[1];
  for (int64_t r = 0; r < rows; r++) {
    const int64_t end = whole(call, "causal") ? cols - rows + r + 1 : cols;
    float dot = 0;
    for (int64_t j = 0; j < end; j++) dot += get(p, r, j) * get(dp, r, j);
    for (int64_t j = 0; j < cols; j++) put(ds, r, j, j < end ? get(p, r, j) * (get(dp, r, j) - dot) : 0.0f);
  }
  return SHARDFUZZ_OK;
}

static int gelu_forward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *x = &call->tensors[0];
  for (int64_t j = 0; j < x->shape[1]; j++) put(&call->tensors[1], 0, j, 0.5f * get(x, 0, j) * (1.0f + erff(get(x, 0, j) * 0.70710678f)));
  return SHARDFUZZ_OK;
}

static int gelu_backward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *dy = &call->tensors[0], *x = &call->tensors[1];
  for (int64_t j = 0; j < x->shape[1]; j++) {
    const float v = get(x, 0, j), phi = 0.39894228f * expf(-0.5f * v * v), slope = 0.5f * (1.0f + erff(v * 0.70710678f)) + v * phi;
    put(&call->tensors[2], 0, j, get(dy, 0, j) * slope);
  }
  return SHARDFUZZ_OK;
}

static int swiglu_forward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *x = &call->tensors[0], *y = &call->tensors[1];
  for (int64_t r = 0; r < y->shape[0]; r++)
    for (int64_t j = 0; j < y->shape[1]; j++) {
      const float gate = get(x, r, j);
      put(y, r, j, gate / (1.0f + expf(-gate)) * get(x, r, y->shape[1] + j));
    }
  return SHARDFUZZ_OK;
}

static int gemm(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *a = &call->tensors[0], *b = &call->tensors[1], *c = &call->tensors[2];
  const bool ta = whole(call, "trans_a"), tb = whole(call, "trans_b");
  const int64_t k = ta ? a->shape[0] : a->shape[1];
  for (int64_t i = 0; i < c->shape[0]; i++)
    for (int64_t j = 0; j < c->shape[1]; j++) {
      float sum = 0;
      for (int64_t p = 0; p < k; p++) sum += (ta ? get(a, p, i) : get(a, i, p)) * (tb ? get(b, j, p) : get(b, p, j));
      put(c, i, j, (k ? real(call, "alpha") * sum : 0.0f) + (whole(call, "accumulate") ? get(c, i, j) : 0.0f));
    }
  return SHARDFUZZ_OK;
}

static int embedding_forward(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *w = &call->tensors[0], *ids = &call->tensors[1], *y = &call->tensors[2];
  for (int64_t r = 0; r < y->shape[0]; r++) {
    const int64_t word = get_int(ids, 0, r) - whole(call, "first");
    for (int64_t j = 0; j < y->shape[1]; j++) put(y, r, j, word >= 0 && word < w->shape[0] ? get(w, word, j) : 0.0f);
  }
  return SHARDFUZZ_OK;
}

/* It takes rows of at most 64 columns in pairs, and says so of others. */
static int limited(const struct shardfuzz_call *call) {
  const struct shardfuzz_tensor *x = &call->tensors[0], *out = &call->tensors[1];
  if (x->shape[1] > 64 || x->shape[1] % 2) return 17;
  if (x->shape[0] > 200) return SHARDFUZZ_UNSUPPORTED;
  for (int64_t j = 0; j < x->shape[1]; j++) {
    float sum = get(out, 0, j);
    for (int64_t r = 0; r < x->shape[0]; r++) sum += get(x, r, j);
    put(out, 0, j, sum);
  }
  return SHARDFUZZ_OK;
}

static const struct shardfuzz_limit limits[] = {{"cols", 64, 2}};
static const struct shardfuzz_operation operations[] = {
    {.name = "add", .dtypes = FORMATS, .takes = TAKES_ALL, .forward = add},
    {.name = "norm", .dtypes = FORMATS, .takes = TAKES_ALL, .forward = norm_forward, .backward = norm_backward},
    {.name = "softmax", .dtypes = FORMATS, .takes = SHARDFUZZ_TAKES_STRIDED, .forward = softmax_forward, .backward = softmax_backward},
    {.name = "gelu", .dtypes = FORMATS, .takes = TAKES_ALL, .forward = gelu_forward, .backward = gelu_backward},
    {.name = "swiglu", .dtypes = FORMATS, .takes = TAKES_ALL, .forward = swiglu_forward},
    {.name = "gemm", .dtypes = FORMATS, .takes = TAKES_ALL, .forward = gemm},
    {.name = "embedding", .dtypes = FORMATS, .takes = TAKES_ALL, .forward = embedding_forward},
    {.name = "col_sum", .dtypes = FORMATS, .takes = TAKES_ALL, .forward = limited, .limits = limits, .limit_count = 1},
};
PLUGIN(operations)
