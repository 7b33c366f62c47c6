/* LayerNorm and RMSNorm, a block per row: the mean first, then squares of the distances from it. dw and db: a block per 32 columns. */
#include "harness/device/cuda/columns.cuh"
#include "harness/device/cuda/math.cuh"

static const float epsilon = 1e-5f;

struct norm_fwd_args {
  float *y, *stats;
  const float *x, *w, *b; /* b NULL: none */
  int64_t rows, cols;
  bool layer;
  float epsilon;
  enum sf_dtype store;
};

__global__ static void norm_fwd_kernel(struct norm_fwd_args a) {
  SF_CUDA_FOR_ROWS(r, a.rows) {
    const float *x = a.x + r * a.cols;
    float sum = 0.0f, squares = 0.0f;
    SF_CUDA_FOR_COLUMNS(j, 0, a.cols) sum += x[j];
    const float mean = a.layer ? sf_cuda_block_sum(sum) / (float)a.cols : 0.0f;
    SF_CUDA_FOR_COLUMNS(j, 0, a.cols) squares += (x[j] - mean) * (x[j] - mean);
    const float rstd = 1.0f / sqrtf(sf_cuda_block_sum(squares) / (float)a.cols + a.epsilon);
    if (threadIdx.x == 0) a.stats[2 * r] = mean, a.stats[2 * r + 1] = rstd;
    SF_CUDA_FOR_COLUMNS(j, 0, a.cols) {
      const float scaled = (x[j] - mean) * rstd * a.w[j];
      a.y[r * a.cols + j] = sf_round(a.b ? scaled + a.b[j] : scaled, a.store);
    }
  }
}

void sf_cuda_norm_fwd(struct sf_device *dev, float *y, float *stats, const float *x, const float *w, const float *b, int64_t rows,
                      int64_t cols, enum sf_norm norm, enum sf_dtype store) {
  struct norm_fwd_args a = {};
  if (rows == 0) return;
  struct sf_cuda_call call(dev);
  a.x = sf_cuda_in(&call, x, rows * cols);
  a.w = sf_cuda_in(&call, w, cols);
  a.layer = norm == SF_NORM_LAYER;
  a.b = a.layer ? sf_cuda_in(&call, b, cols) : NULL;
  a.y = sf_cuda_out(&call, y, rows * cols);
  a.stats = sf_cuda_out(&call, stats, 2 * rows);
  a.rows = rows, a.cols = cols, a.epsilon = epsilon, a.store = store;
  SF_CUDA_ROWS(&call, norm_fwd_kernel, rows, a);
}

struct norm_bwd_args {
  float *dx, *dw, *db; /* NULL: not wanted */
  const float *dy, *x, *stats, *w;
  int64_t rows, cols;
  bool layer;
  enum sf_dtype store;
};

__global__ static void norm_bwd_vectors_kernel(struct norm_bwd_args a) {
  for (int64_t from = (int64_t)blockIdx.x * SF_CUDA_COLUMNS; from < a.cols; from += (int64_t)gridDim.x * SF_CUDA_COLUMNS) {
    const int64_t j = from + threadIdx.x % SF_CUDA_COLUMNS;
    float dw = 0.0f, db = 0.0f;
    if (j < a.cols)
      for (int64_t r = threadIdx.x / SF_CUDA_COLUMNS; r < a.rows; r += SF_CUDA_COLUMN_PARTS) {
        const float grad = a.dy[r * a.cols + j];
        dw += grad * ((a.x[r * a.cols + j] - a.stats[2 * r]) * a.stats[2 * r + 1]);
        db += grad;
      }
    dw = sf_cuda_column_sum(dw);
    db = sf_cuda_column_sum(db);
    const bool writes = j < a.cols && threadIdx.x < SF_CUDA_COLUMNS;
    if (writes && a.dw) a.dw[j] += dw;
    if (writes && a.db) a.db[j] += db;
  }
}

__global__ static void norm_bwd_kernel(struct norm_bwd_args a) {
  SF_CUDA_FOR_ROWS(r, a.rows) {
    const float *dy = a.dy + r * a.cols, *x = a.x + r * a.cols;
    const float mean = a.stats[2 * r], rstd = a.stats[2 * r + 1];
    float sum = 0.0f, dot = 0.0f;
    SF_CUDA_FOR_COLUMNS(j, 0, a.cols) {
      const float g = dy[j] * a.w[j];
      sum += g;
      dot += g * ((x[j] - mean) * rstd);
    }
    const float g_mean = a.layer ? sf_cuda_block_sum(sum) / (float)a.cols : 0.0f, g_dot = sf_cuda_block_sum(dot) / (float)a.cols;
    SF_CUDA_FOR_COLUMNS(j, 0, a.cols) {
      const float g = dy[j] * a.w[j], x_hat = (x[j] - mean) * rstd;
      a.dx[r * a.cols + j] = sf_round((g - g_mean - x_hat * g_dot) * rstd, a.store);
    }
  }
}

void sf_cuda_norm_bwd(struct sf_device *dev, float *dx, float *dw, float *db, const float *dy, const float *x, const float *stats,
                      const float *w, int64_t rows, int64_t cols, enum sf_norm norm, enum sf_dtype store) {
  struct norm_bwd_args a = {};
  if (rows == 0) return;
  struct sf_cuda_call call(dev);
  a.dy = sf_cuda_in(&call, dy, rows * cols);
  a.x = sf_cuda_in(&call, x, rows * cols);
  a.stats = sf_cuda_in(&call, stats, 2 * rows);
  a.w = sf_cuda_in(&call, w, cols);
  a.dw = sf_cuda_inout(&call, dw, cols);
  a.db = sf_cuda_inout(&call, db, cols);
  a.dx = sf_cuda_out(&call, dx, rows * cols);
  a.rows = rows, a.cols = cols, a.layer = norm == SF_NORM_LAYER, a.store = store;
  if (dw || db) SF_CUDA_COLUMN_BLOCKS(&call, norm_bwd_vectors_kernel, cols, a);
  if (dx) SF_CUDA_ROWS(&call, norm_bwd_kernel, rows, a);
}
