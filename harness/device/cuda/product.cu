/* Products of the host's matrices: copied to the GPU's own memory, multiplied there, copied back. Rows are packed on the way, so that a piece of a wide
 * matrix costs what it holds. The rooms for the operands stay; nothing else does: whose numbers change between two calls is not known here. */
#include "harness/device/cuda/cuda.cuh"

enum { TILE = 16, PACK = 16 /* numbers: rows begin where the library's wide loads may */ };

struct operand {
  void *on_gpu;
  int64_t rows, cols, ld; /* packed */
};

/* NULL: the GPU has no memory for it. */
static void *room_of(struct sf_cuda_room *room, size_t size_bytes) {
  if (room->size_bytes >= size_bytes) return room->memory;
  if (room->memory) (void)cudaFree(room->memory);
  *room = {NULL, 0};
  if (cudaMalloc(&room->memory, size_bytes) != cudaSuccess) {
    (void)cudaGetLastError(); /* said by returning NULL */
    room->memory = NULL;
    return NULL;
  }
  room->size_bytes = size_bytes;
  return room->memory;
}

static bool place(struct sf_cuda_room *room, struct operand *out, int64_t rows, int64_t cols, size_t number) {
  *out = {NULL, rows, cols, (cols + PACK - 1) / PACK * PACK};
  out->on_gpu = room_of(room, (size_t)(rows * out->ld) * number);
  return out->on_gpu != NULL;
}

static void check_copy(cudaError_t error) {
  if (error != cudaSuccess) sf_cuda_fail("copying a matrix", cudaGetErrorString(error));
}

static void bring(const struct sf_cuda *cuda, const struct operand *to, const void *from, int64_t ld, size_t number) {
  check_copy(cudaMemcpy2DAsync(to->on_gpu, (size_t)to->ld * number, from, (size_t)ld * number, (size_t)to->cols * number, (size_t)to->rows,
                               cudaMemcpyHostToDevice, cuda->stream));
}

static void fetch(const struct sf_cuda *cuda, void *to, int64_t ld, const struct operand *from, size_t number) {
  check_copy(cudaMemcpy2DAsync(to, (size_t)ld * number, from->on_gpu, (size_t)from->ld * number, (size_t)from->cols * number, (size_t)from->rows,
                               cudaMemcpyDeviceToHost, cuda->stream));
  check_copy(cudaStreamSynchronize(cuda->stream));
}

/* Chains in order, one thread per element of a tile: the bits of the same loop on a CPU. */
template <class T> __global__ static void chain_kernel(struct sf_cuda_product g) {
  __shared__ T a_tile[TILE][TILE], b_tile[TILE][TILE];
  const T *a = (const T *)g.a, *b = (const T *)g.b;
  const int64_t tiles_across = (g.n + TILE - 1) / TILE, tiles = (g.m + TILE - 1) / TILE * tiles_across;
  const int x = threadIdx.x % TILE, y = threadIdx.x / TILE;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t i = tile / tiles_across * TILE + y, j = tile % tiles_across * TILE + x;
    T sum = 0;
    for (int64_t from = 0; from < g.k; from += TILE) {
      const int64_t pa = from + x, pb = from + y;
      a_tile[y][x] = i < g.m && pa < g.k ? (g.trans_a ? a[pa * g.lda + i] : a[i * g.lda + pa]) : (T)0;
      b_tile[y][x] = j < g.n && pb < g.k ? (g.trans_b ? b[j * g.ldb + pb] : b[pb * g.ldb + j]) : (T)0;
      __syncthreads();
      const int64_t count = g.k - from < TILE ? g.k - from : (int64_t)TILE;
      for (int p = 0; p < count; p++) sum += a_tile[y][p] * b_tile[p][x];
      __syncthreads();
    }
    if (i < g.m && j < g.n) ((T *)g.c)[i * g.ldc + j] = sum;
  }
}

static void run_chains(const struct sf_cuda *cuda, const struct sf_cuda_product *g) {
  const unsigned blocks = sf_cuda_blocks((g->m + TILE - 1) / TILE * ((g->n + TILE - 1) / TILE), 1);
  if (g->format == SF_F64)
    SF_CUDA_LAUNCH(chain_kernel<double>, blocks, TILE * TILE, cuda->stream, *g);
  else
    SF_CUDA_LAUNCH(chain_kernel<float>, blocks, TILE * TILE, cuda->stream, *g);
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) sf_cuda_fail("launch of a kernel", cudaGetErrorString(error));
}

bool sf_cuda_product_run(struct sf_device *dev, const struct sf_product *p) {
  struct sf_cuda *cuda = (struct sf_cuda *)dev->impl;
  const size_t number = p->fp64 ? sizeof(double) : sizeof(float);
  struct operand a, b, c;
  if (!place(&cuda->product_rooms[0], &a, p->trans_a ? p->k : p->m, p->trans_a ? p->m : p->k, number)) return false;
  if (!place(&cuda->product_rooms[1], &b, p->trans_b ? p->n : p->k, p->trans_b ? p->k : p->n, number)) return false;
  if (!place(&cuda->product_rooms[2], &c, p->m, p->n, number)) return false;
  const struct sf_cuda_product product = {p->trans_a, p->trans_b, p->m, p->n, p->k, a.on_gpu, b.on_gpu, a.ld, b.ld, p->fp64 ? SF_F64 : SF_F32, c.on_gpu, c.ld};
  bring(cuda, &a, p->a, p->lda, number);
  bring(cuda, &b, p->b, p->ldb, number);
  if (p->in_order)
    run_chains(cuda, &product);
  else if (!cuda->blas->multiply(cuda->blas, &product, cuda->stream))
    return false;
  fetch(cuda, p->c, p->ldc, &c, number);
  return true;
}

void sf_cuda_product_release(struct sf_cuda *cuda) {
  for (struct sf_cuda_room &room : cuda->product_rooms)
    if (room.memory) (void)cudaFree(room.memory);
}
