/* Stands in for CUDA's header, so that kernels compile as C++ and run on a CPU: one fiber per thread of a block, block after block, and the
 * few calls of the runtime that the device makes. For tests.
 *
 * Threads meet at barriers and run one after the other in between, in an order that changes from launch to launch; blocks too. Shared
 * memory is NaN when a block begins. A barrier that not all threads of a block reach ends the program.
 *
 * Work of the stream is late: nothing of it happens before the host waits for it. Until then no memory of the GPU can be touched, as on
 * GPUs whose managed memory belongs to one side at a time; the GPU's own memory never can. A host that tries dies of SIGSEGV. */
#ifndef SF_TESTS_EMULATION_CUDA_RUNTIME_H
#define SF_TESTS_EMULATION_CUDA_RUNTIME_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __shared__ static __attribute__((section("sf_emulated_shared")))

struct sf_emulated_index { unsigned x; };
struct sf_emulated_place { sf_emulated_index thread, block, threads, blocks; };
extern sf_emulated_place sf_emulated_now;
#define threadIdx (sf_emulated_now.thread)
#define blockIdx (sf_emulated_now.block)
#define blockDim (sf_emulated_now.threads)
#define gridDim (sf_emulated_now.blocks)

void __syncthreads(void);

static inline uint32_t __float_as_uint(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
static inline float __uint_as_float(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* Runs body(argument) in each thread of each block, at once. */
void sf_emulated_run(unsigned blocks, unsigned threads, void (*body)(void *argument), void *argument);
/* Adds to the stream: run(a copy of the argument), when the host waits for the stream. */
enum { SF_EMULATED_ARGUMENT_BYTES = 256 };
void sf_emulated_enqueue(void (*run)(void *argument), const void *argument, size_t argument_bytes);
/* Prints one line and aborts. */
void sf_emulated_end(const char *what);

template <class F> static inline void sf_emulated_call(void *f) { (*(F *)f)(); }
template <class F> static inline void sf_emulated_enqueue_of(F f) {
  static_assert(std::is_trivially_copyable<F>::value && sizeof f <= SF_EMULATED_ARGUMENT_BYTES, "work is copied byte for byte");
  sf_emulated_enqueue(sf_emulated_call<F>, &f, sizeof f);
}

/* Arguments take the types of the kernel's parameters when it is launched; what they point to is read when it runs. */
template <class T> struct sf_emulated_parameter { typedef T type; };
template <class... T>
static inline void sf_emulated_launch(unsigned blocks, unsigned threads, void (*kernel)(T...),
                                      typename sf_emulated_parameter<T>::type... arguments) {
  auto body = [=]() { kernel(arguments...); };
  sf_emulated_enqueue_of([=]() mutable { sf_emulated_run(blocks, threads, sf_emulated_call<decltype(body)>, &body); });
}
#define SF_CUDA_LAUNCH(kernel, grid, block, stream, ...)                                                                                   \
  ((void)(stream), sf_emulated_launch((unsigned)(grid), (unsigned)(block), kernel, __VA_ARGS__))

enum cudaError_t {
  cudaSuccess,
  cudaErrorInvalidValue,
  cudaErrorMemoryAllocation,
  cudaErrorNoDevice = 100,
  cudaErrorNoKernelImageForDevice = 209
};
enum cudaDeviceAttr {
  cudaDevAttrManagedMemory,
  cudaDevAttrConcurrentManagedAccess,
  cudaDevAttrPageableMemoryAccess,
  cudaDevAttrPageableMemoryAccessUsesHostPageTables
};
enum cudaMemLocationType { cudaMemLocationTypeDevice = 1, cudaMemLocationTypeHost };
struct cudaMemLocation { cudaMemLocationType type; int id; };
enum cudaMemoryAdvise { cudaMemAdviseSetPreferredLocation = 3, cudaMemAdviseSetAccessedBy = 5 };
enum { cudaMemAttachGlobal = 1 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2 };
typedef struct sf_emulated_stream *cudaStream_t;

cudaError_t cudaMallocManaged(void **out, size_t size_bytes, unsigned flags);
/* Of memory that cudaMallocManaged gave; refused with the environment's SF_EMULATED_ADVICE=0. */
cudaError_t cudaMemAdvise(const void *memory, size_t size_bytes, cudaMemoryAdvise advice, cudaMemLocation location);
cudaError_t cudaMalloc(void **out, size_t size_bytes); /* the GPU's own memory; out of it with the environment's SF_EMULATED_OWN_MEMORY=0 */
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaFree(void *memory);
/* free_bytes: of SF_EMULATED_FREE_BYTES, or as much as nobody asks for, what has not been given. Managed memory is given beyond that, as
 * real drivers do. */
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
cudaError_t cudaGetDeviceCount(int *out); /* 0 with the environment's SF_EMULATED_DEVICES=0 */
cudaError_t cudaDriverGetVersion(int *out);
cudaError_t cudaSetDevice(int device);
/* Environment: SF_EMULATED_READS_ALL=1, pageable memory is reached by the host's page tables; =hmm, by the driver's, page by page.
 * SF_EMULATED_CONCURRENT=0: managed memory is closed to the host while kernels run, as the GPU itself says. */
cudaError_t cudaDeviceGetAttribute(int *out, cudaDeviceAttr attribute, int device);
struct cudaFuncAttributes {};
/* With the environment's SF_EMULATED_KERNELS=0: as if kernels had been compiled for other GPUs. */
cudaError_t sf_emulated_kernels(void);
template <class T> static inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *out, T *kernel) {
  return (void)out, (void)kernel, sf_emulated_kernels();
}
cudaError_t cudaStreamCreate(cudaStream_t *out);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaGetLastError(void); /* of the calls above since it was asked last */
const char *cudaGetErrorString(cudaError_t error);

#endif
