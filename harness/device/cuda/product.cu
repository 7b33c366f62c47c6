/* Products of the host's matrices: copied to the GPU's own memory, multiplied there, copied back. Rows are packed on the way, so that a
 * piece of a wide matrix costs what it holds. The rooms for the operands stay; nothing else does: whose numbers change between two calls is
 * not known here. */
#include "harness/device/cuda/tiles.cuh"

#include <inttypes.h>
#include <stdio.h>

enum { PACK = 16 /* numbers: rows begin where the library's wide loads may */ };

static void tell_refusal(struct sf_cuda *cuda, const struct sf_cuda_product *g) {
  if (cuda->told_refusal) return;
  cuda->told_refusal = true;
  fprintf(stderr,
          "shardfuzz: cuBLASLt has no way to multiply %" PRId64 " x %" PRId64 " by %" PRId64 " x %" PRId64
          " in %s; such products are computed without it\n",
          g->m, g->k, g->k, g->n, sf_dtype_name(g->format));
}

bool sf_cuda_multiply(struct sf_cuda *cuda, const struct sf_cuda_product *product) {
  const bool enqueued = cuda->blas->multiply(cuda->blas, product, cuda->stream);
  if (!enqueued) tell_refusal(cuda, product);
  return enqueued;
}

struct operand {
  void *on_gpu;
  int64_t rows, cols, ld; /* packed */
};

static bool place(struct sf_cuda_room *room, struct operand *out, int64_t rows, int64_t cols, size_t number) {
  *out = {NULL, rows, cols, (cols + PACK - 1) / PACK * PACK};
  out->on_gpu = sf_cuda_room_of(room, (size_t)(rows * out->ld) * number);
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
  check_copy(cudaMemcpy2DAsync(to, (size_t)ld * number, from->on_gpu, (size_t)from->ld * number, (size_t)from->cols * number,
                               (size_t)from->rows, cudaMemcpyDeviceToHost, cuda->stream));
}

static void run_chains(const struct sf_cuda *cuda, const struct sf_cuda_product *g) {
  if (g->format == SF_F64)
    sf_cuda_tiles_run<struct sf_cuda_plain_chain<double>>(g, cuda->stream);
  else
    sf_cuda_tiles_run<struct sf_cuda_plain_chain<float>>(g, cuda->stream);
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
  const struct sf_cuda_product product = {
      p->trans_a, p->trans_b, p->m, p->n, p->k, a.on_gpu, b.on_gpu, a.ld, b.ld, p->fp64 ? SF_F64 : SF_F32, c.on_gpu, c.ld};
  bring(cuda, &a, p->a, p->lda, number);
  bring(cuda, &b, p->b, p->ldb, number);
  if (p->in_order) run_chains(cuda, &product);
  const bool computed = p->in_order || sf_cuda_multiply(cuda, &product);
  if (computed) fetch(cuda, p->c, p->ldc, &c, number);
  check_copy(cudaStreamSynchronize(cuda->stream)); /* if nothing was computed too: a and b are still being copied */
  return computed;
}
