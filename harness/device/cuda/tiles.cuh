/* Matrix products by plain tiles: each number is one chain of additions over ascending k, one thread for each of a 16 x 16 tile. Chain says
 * the number type and how a term joins the sum. */
#ifndef SF_DEVICE_CUDA_TILES_CUH
#define SF_DEVICE_CUDA_TILES_CUH

#include "harness/device/cuda/cuda.cuh"

enum { SF_CUDA_TILE = 16 };

struct sf_cuda_fused_chain { /* one rounding a term: fewer than a loop on a CPU has */
  typedef float number;
  __device__ static float next(float sum, float a, float b) { return fmaf(a, b, sum); }
};
template <class T> struct sf_cuda_plain_chain { /* products and sums rounded one by one (-fmad=false): the bits of the same loop on a CPU */
  typedef T number;
  __device__ static T next(T sum, T a, T b) { return sum + a * b; }
};

/* c = op(a) op(b) of g, each number by one thread of a block of SF_CUDA_TILE^2. c is not read. */
template <class Chain> __global__ static void sf_cuda_tiles_kernel(struct sf_cuda_product g) {
  typedef typename Chain::number number;
  enum { TILE = SF_CUDA_TILE };
  __shared__ number a_tile[TILE][TILE], b_tile[TILE][TILE];
  const number *a = (const number *)g.a, *b = (const number *)g.b;
  const int64_t tiles_across = (g.n + TILE - 1) / TILE, tiles = (g.m + TILE - 1) / TILE * tiles_across;
  const int x = threadIdx.x % TILE, y = threadIdx.x / TILE;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t i = tile / tiles_across * TILE + y, j = tile % tiles_across * TILE + x;
    number sum = 0;
    for (int64_t from = 0; from < g.k; from += TILE) {
      const int64_t pa = from + x, pb = from + y;
      a_tile[y][x] = i < g.m && pa < g.k ? (g.trans_a ? a[pa * g.lda + i] : a[i * g.lda + pa]) : (number)0;
      b_tile[y][x] = j < g.n && pb < g.k ? (g.trans_b ? b[j * g.ldb + pb] : b[pb * g.ldb + j]) : (number)0;
      __syncthreads();
      const int64_t count = g.k - from < TILE ? g.k - from : (int64_t)TILE;
      for (int p = 0; p < count; p++) sum = Chain::next(sum, a_tile[y][p], b_tile[p][x]);
      __syncthreads();
    }
    if (i < g.m && j < g.n) ((number *)g.c)[i * g.ldc + j] = sum;
  }
}

/* Launches it on the stream and does not wait. */
template <class Chain> static void sf_cuda_tiles_run(const struct sf_cuda_product *g, cudaStream_t stream) {
  const int64_t tiles = (g->m + SF_CUDA_TILE - 1) / SF_CUDA_TILE * ((g->n + SF_CUDA_TILE - 1) / SF_CUDA_TILE);
  SF_CUDA_LAUNCH(sf_cuda_tiles_kernel<Chain>, sf_cuda_blocks(tiles, 1), SF_CUDA_TILE * SF_CUDA_TILE, stream, *g);
}

#endif
