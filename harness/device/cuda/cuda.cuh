/* The CUDA device, seen from inside: its state, how operands come to where kernels can read them, and launches.
 *
 * Kernels multiply and add without fusing (but for the plain GEMM, which says so), divide and take roots as IEEE has it, keep subnormals,
 * and call no function of CUDA's mathematical library: their bits are those that the same text gives on a CPU. Sums have a fixed order;
 * nothing is added atomically. */
#ifndef SF_DEVICE_CUDA_CUDA_CUH
#define SF_DEVICE_CUDA_CUDA_CUH

extern "C" {
#include "harness/base/alloc.h"
#include "harness/device/device.h"
}
#include "harness/device/cuda/blas.cuh"

#include <cuda_runtime.h>

/* A test on a CPU brings launches of its own. */
#ifndef SF_CUDA_LAUNCH
#define SF_CUDA_LAUNCH(kernel, grid, block, stream, ...) kernel<<<grid, block, 0, stream>>>(__VA_ARGS__)
#endif

enum {
  SF_CUDA_THREADS = 256,       /* of a block that works element by element */
  SF_CUDA_ROW_THREADS = 128,   /* of a block that works on one row at a time: a power of two */
  SF_CUDA_BLOCKS_MAX = 1024,   /* blocks of one launch: what is left they take in turns */
  SF_CUDA_COLUMNS = 32, SF_CUDA_COLUMN_PARTS = 8, /* a block that sums over rows: columns side by side, and parts of the rows */
  SF_CUDA_OPERANDS_MAX = 8
};

struct sf_cuda_region { const char *from, *end; };
struct sf_cuda_room { void *memory; size_t size_bytes; }; /* of the GPU alone */

struct sf_cuda {
  struct sf_device device;
  struct sf_device_ops ops;
  struct sf_memory memory, scratch_memory; /* addressable from both sides; the first leaves some to the second */
  struct sf_cuda_region *regions;
  int32_t region_count, region_capacity;
  size_t managed_bytes; /* of all regions */
  int gpu;
  bool reads_all;             /* kernels reach any memory of the process by the host's own page tables */
  cudaStream_t stream;
  struct sf_arena *staging;   /* copies of operands that lie elsewhere, and scratch; empty between operations */
  struct sf_cuda_blas *blas;
  bool told_refusal;
  struct sf_cuda_room product_rooms[3]; /* operands of products of the host's matrices; they grow as needed */
  struct sf_cuda_room gemm_rooms[3];    /* copies of large operands, and a product before it is added to c */
  enum sf_dtype gemm_format;            /* of the last large product's operands: the next ones are likely to have it too */
};

/* One operation from its beginning to its end, where it waits for the kernels and puts results where they belong. Between a launch and the
 * next wait nothing is placed and no scratch is taken: both write memory that kernels may be using. */
struct sf_cuda_call {
  explicit sf_cuda_call(struct sf_device *dev);
  sf_cuda_call(const sf_cuda_call &) = delete;
  ~sf_cuda_call();
  struct sf_cuda *cuda;
  struct sf_arena_mark mark;
  struct sf_cuda_copy { void *to; const void *from; size_t size_bytes; } back[SF_CUDA_OPERANDS_MAX];
  int32_t back_count;
};

/* Waits for the kernels so far: scratch may be read. */
void sf_cuda_wait(struct sf_cuda_call *call);
/* Memory for the operation, not zeroed. */
void *sf_cuda_scratch(struct sf_cuda_call *call, size_t size_bytes);
/* The GPU's own memory, kept in *room for the next use, which ends this one. NULL: it has none of that size. */
void *sf_cuda_room_of(struct sf_cuda_room *room, size_t size_bytes);
/* The process cannot go on: one line, and it ends. */
void sf_cuda_fail(const char *what, const char *why);

enum sf_cuda_role { SF_CUDA_IN = 1, SF_CUDA_OUT = 2, SF_CUDA_INOUT = 3 };
/* Where kernels find these bytes: host itself where the GPU reaches it, else a copy in scratch, filled if it is IN and copied back
 * at the operation's end if it is OUT. */
void *sf_cuda_place(struct sf_cuda_call *call, const void *host, size_t size_bytes, enum sf_cuda_role role);

/* Where kernels find `count` elements from `host` on. NULL stays NULL; no elements are nowhere. out: all of them will be written. */
template <class T> static inline const T *sf_cuda_in(struct sf_cuda_call *call, const T *host, int64_t count) {
  return (const T *)sf_cuda_place(call, host, (size_t)count * sizeof(T), SF_CUDA_IN);
}
template <class T> static inline T *sf_cuda_out(struct sf_cuda_call *call, T *host, int64_t count) {
  return (T *)sf_cuda_place(call, host, (size_t)count * sizeof(T), SF_CUDA_OUT);
}
template <class T> static inline T *sf_cuda_inout(struct sf_cuda_call *call, T *host, int64_t count) {
  return (T *)sf_cuda_place(call, host, (size_t)count * sizeof(T), SF_CUDA_INOUT);
}
/* Elements from the first to the last of a matrix with a leading dimension. */
static inline int64_t sf_cuda_span(int64_t rows, int64_t cols, int64_t ld) { return rows > 0 && cols > 0 ? (rows - 1) * ld + cols : 0; }

/* Blocks for `count` pieces of work, `per_block` a block. */
static inline unsigned sf_cuda_blocks(int64_t count, int64_t per_block) {
  const int64_t blocks = (count + per_block - 1) / per_block;
  return (unsigned)(blocks < SF_CUDA_BLOCKS_MAX ? blocks : (int64_t)SF_CUDA_BLOCKS_MAX);
}

/* One thread per element (and more in turns), one block per row; nothing when there is nothing to do. */
#define SF_CUDA_EACH(call, kernel, count, ...)                                                                                             \
  do {                                                                                                                                     \
    if ((count) > 0) SF_CUDA_LAUNCH(kernel, sf_cuda_blocks(count, SF_CUDA_THREADS), SF_CUDA_THREADS, (call)->cuda->stream, __VA_ARGS__);   \
  } while (0)
#define SF_CUDA_ROWS(call, kernel, rows, ...)                                                                                              \
  do {                                                                                                                                     \
    if ((rows) > 0) SF_CUDA_LAUNCH(kernel, sf_cuda_blocks(rows, 1), SF_CUDA_ROW_THREADS, (call)->cuda->stream, __VA_ARGS__);               \
  } while (0)

/* Inside a kernel: this thread's first element, and how far it is to its next. */
#define SF_CUDA_FOR_EACH(i, count) \
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (count); i += (int64_t)gridDim.x * blockDim.x)
#define SF_CUDA_FOR_ROWS(row, rows) for (int64_t row = blockIdx.x; row < (rows); row += gridDim.x)
#define SF_CUDA_FOR_COLUMNS(j, first, end) for (int64_t j = (first) + threadIdx.x; j < (end); j += blockDim.x)

/* product.cu: the library's product, enqueued. false: it has none for this call, which is said once on stderr, as it costs time. */
bool sf_cuda_multiply(struct sf_cuda *cuda, const struct sf_cuda_product *product);
/* sf_device.product */
bool sf_cuda_product_run(struct sf_device *dev, const struct sf_product *product);

/* The functions of the table, sf_cuda_NAME. */
#define OP(member, name) __typeof__(*((struct sf_device_ops *)0)->member) sf_cuda_##name;
#include "harness/device/operations.def"
#undef OP

#endif
