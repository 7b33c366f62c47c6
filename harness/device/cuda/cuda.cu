/* The CUDA device: its life, memory that both sides address, and operands that lie elsewhere. */
#include "harness/device/cuda/cuda.cuh"

extern "C" {
#include "harness/base/system/launched.h"
}

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  STAGING_BLOCK_BYTES = 1 << 20,
  SCRATCH_PART = 8, /* leaves one byte in eight to scratch: an operation cannot report that it has none */
  KEPT_BYTES_MAX = 32 << 20,
  ROOM_STEP_BYTES = 1 << 20
};

void sf_cuda_fail(const char *what, const char *why) {
  fprintf(stderr, "shardfuzz: the GPU failed: %s: %s\n", what, why);
  fflush(NULL);
  abort();
}

static void check(cudaError_t error, const char *what) {
  if (error != cudaSuccess) sf_cuda_fail(what, cudaGetErrorString(error));
}

/* --- memory ------------------------------------------------------------------------------------------------------ */

static bool remember(struct sf_cuda *cuda, void *memory, size_t size_bytes) {
  if (cuda->region_count == cuda->region_capacity) {
    const int32_t capacity = 2 * cuda->region_capacity + 16;
    void *regions = sf_realloc(cuda->regions, (size_t)capacity * sizeof *cuda->regions);
    if (regions == NULL) return false;
    cuda->regions = (struct sf_cuda_region *)regions;
    cuda->region_capacity = capacity;
  }
  cuda->regions[cuda->region_count++] = {(const char *)memory, (const char *)memory + size_bytes};
  cuda->managed_bytes += size_bytes;
  return true;
}

/* The driver would give more memory than the GPU has, and then move pages back and forth without end. */
static bool has_room(const struct sf_cuda *cuda, size_t size_bytes, size_t all_bytes_max) {
  size_t free_bytes = 0, total_bytes = 0;
  if (cuda->managed_bytes > all_bytes_max || size_bytes > all_bytes_max - cuda->managed_bytes) return false;
  return cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess && size_bytes <= free_bytes;
}

/* Host and GPU touch small tensors in turns, and the host's own structs in the same pages: moving those pages each time costs more than
 * reading them over the bus. Larger blocks hold one tensor each, which moves to where it is used. A driver that takes no advice moves pages
 * as it likes. */
static void keep_with_host(const struct sf_cuda *cuda, void *memory, size_t size_bytes) {
  if (size_bytes > KEPT_BYTES_MAX) return;
  const cudaMemLocation host = {cudaMemLocationTypeHost, 0}, gpu = {cudaMemLocationTypeDevice, cuda->gpu};
  (void)cudaMemAdvise(memory, size_bytes, cudaMemAdviseSetPreferredLocation, host);
  (void)cudaMemAdvise(memory, size_bytes, cudaMemAdviseSetAccessedBy, gpu);
  (void)cudaGetLastError(); /* a refusal must not count as an error of the next launch */
}

static void *alloc_managed(struct sf_cuda *cuda, size_t size_bytes, size_t all_bytes_max) {
  void *memory = NULL;
  if (!has_room(cuda, size_bytes, all_bytes_max) ||
      cudaMallocManaged(&memory, size_bytes > 0 ? size_bytes : 1, cudaMemAttachGlobal) != cudaSuccess) {
    (void)cudaGetLastError(); /* said by returning NULL */
    return NULL;
  }
  if (!remember(cuda, memory, size_bytes)) {
    (void)cudaFree(memory);
    return NULL;
  }
  keep_with_host(cuda, memory, size_bytes > 0 ? size_bytes : 1);
  return memory;
}

static void *memory_alloc(void *context, size_t size_bytes) {
  struct sf_cuda *cuda = (struct sf_cuda *)context;
  return alloc_managed(cuda, size_bytes, cuda->device.memory_bytes_max - cuda->device.memory_bytes_max / SCRATCH_PART);
}

static void *scratch_alloc(void *context, size_t size_bytes) {
  struct sf_cuda *cuda = (struct sf_cuda *)context;
  return alloc_managed(cuda, size_bytes, cuda->device.memory_bytes_max);
}

static void memory_release(void *context, void *memory) {
  struct sf_cuda *cuda = (struct sf_cuda *)context;
  for (int32_t i = 0; i < cuda->region_count; i++)
    if (cuda->regions[i].from == memory) {
      cuda->managed_bytes -= (size_t)(cuda->regions[i].end - cuda->regions[i].from);
      cuda->regions[i] = cuda->regions[--cuda->region_count];
      break;
    }
  (void)cudaFree(memory);
}

static bool is_ours(const struct sf_cuda *cuda, const char *at, size_t size_bytes) {
  for (int32_t i = 0; i < cuda->region_count; i++)
    if (at >= cuda->regions[i].from && at + size_bytes <= cuda->regions[i].end) return true;
  return false;
}

void *sf_cuda_room_of(struct sf_cuda_room *room, size_t size_bytes) {
  if (room->size_bytes >= size_bytes) return room->memory;
  if (room->memory) (void)cudaFree(room->memory);
  *room = {NULL, (size_bytes + ROOM_STEP_BYTES - 1) / ROOM_STEP_BYTES * ROOM_STEP_BYTES};
  if (cudaMalloc(&room->memory, room->size_bytes) == cudaSuccess) return room->memory;
  (void)cudaGetLastError(); /* said by returning NULL */
  *room = {NULL, 0};
  return NULL;
}

/* --- one operation ------------------------------------------------------------------------------------------------ */

sf_cuda_call::sf_cuda_call(struct sf_device *dev) : cuda((struct sf_cuda *)dev->impl), mark(sf_arena_mark(cuda->staging)), back_count(0) {}

sf_cuda_call::~sf_cuda_call() {
  sf_cuda_wait(this);
  for (int32_t i = 0; i < back_count; i++) memcpy(back[i].to, back[i].from, back[i].size_bytes);
  sf_arena_rewind(cuda->staging, mark);
}

void *sf_cuda_scratch(struct sf_cuda_call *call, size_t size_bytes) {
  void *memory = sf_arena_alloc(call->cuda->staging, size_bytes);
  if (memory == NULL) sf_cuda_fail("scratch memory", "out of memory");
  return memory;
}

void *sf_cuda_place(struct sf_cuda_call *call, const void *host, size_t size_bytes, enum sf_cuda_role role) {
  if (host == NULL || size_bytes == 0 || call->cuda->reads_all || is_ours(call->cuda, (const char *)host, size_bytes))
    return (void *)(uintptr_t)host;
  void *copy = sf_cuda_scratch(call, size_bytes);
  if (role & SF_CUDA_IN) memcpy(copy, host, size_bytes);
  if (role & SF_CUDA_OUT) {
    if (call->back_count == SF_CUDA_OPERANDS_MAX) sf_cuda_fail("operands", "more than there is room for");
    call->back[call->back_count++] = {(void *)(uintptr_t)host, copy, size_bytes};
  }
  return copy;
}

void sf_cuda_wait(struct sf_cuda_call *call) {
  check(cudaGetLastError(), "launch of a kernel");
  check(cudaStreamSynchronize(call->cuda->stream), "a kernel");
}

/* --- life ----------------------------------------------------------------------------------------------------------- */

static void fill_table(struct sf_device_ops *ops) {
  ops->name = "cuda";
#define OP(member, name) ops->member = sf_cuda_##name;
#include "harness/device/operations.def"
#undef OP
}

static void destroy(struct sf_device *dev) {
  struct sf_cuda *cuda = (struct sf_cuda *)dev->impl;
  sf_arena_destroy(cuda->staging);
  for (const struct sf_cuda_room &room : cuda->product_rooms) (void)cudaFree(room.memory);
  for (const struct sf_cuda_room &room : cuda->gemm_rooms) (void)cudaFree(room.memory);
  if (cuda->blas) cuda->blas->destroy(cuda->blas);
  if (cuda->stream) (void)cudaStreamDestroy(cuda->stream);
  sf_free(cuda->regions);
  sf_free(cuda);
}

/* Asks about one kernel: the build has code for all of its kernels, or for none. */
__global__ static void any_kernel(int *out) { *out = 1; }

/* Requires memory that both sides may touch at any time: the host keeps its own structs in blocks that kernels use. Pageable memory counts
 * only if the GPU uses the host's page tables; if the driver moves each page after a fault (HMM), copies are faster and safer. */
static enum sf_status look_at_gpu(struct sf_cuda *cuda, struct sf_error *error) {
  int managed = 0, concurrent = 0, host_tables = 0;
  cudaError_t result = cudaDeviceGetAttribute(&managed, cudaDevAttrManagedMemory, cuda->gpu);
  if (result == cudaSuccess) result = cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, cuda->gpu);
  if (result == cudaSuccess) result = cudaDeviceGetAttribute(&host_tables, cudaDevAttrPageableMemoryAccessUsesHostPageTables, cuda->gpu);
  if (result != cudaSuccess) return sf_error_set(error, SF_ENODEVICE, "%s", cudaGetErrorString(result));
  if (!managed) return sf_error_set(error, SF_ENODEVICE, "this GPU has no managed memory");
  if (!concurrent)
    return sf_error_set(error, SF_ENODEVICE,
                        "this GPU's managed memory is closed to the host while kernels run (concurrentManagedAccess is 0)");
  cuda->reads_all = host_tables;
  cudaFuncAttributes attributes;
  result = cudaFuncGetAttributes(&attributes, any_kernel);
  return result == cudaSuccess ? SF_OK
                               : sf_error_set(error, SF_ENODEVICE, "this build has no kernels for this GPU (CMAKE_CUDA_ARCHITECTURES): %s",
                                              cudaGetErrorString(result));
}

/* Chooses the process's GPU. Ranks of a machine take its GPUs in turns. */
static enum sf_status open_gpu(struct sf_cuda *cuda, struct sf_error *error) {
  int driver = 0, count = 0;
  size_t total_bytes = 0;
  cudaError_t result = cudaDriverGetVersion(&driver);
  if (result == cudaSuccess && driver == 0) return sf_error_set(error, SF_ENODEVICE, "there is no CUDA driver on this machine");
  if (result == cudaSuccess) result = cudaGetDeviceCount(&count);
  if (result == cudaSuccess && count == 0) result = cudaErrorNoDevice;
  cuda->gpu = count > 0 ? sf_local_rank() % count : 0;
  if (result == cudaSuccess) result = cudaSetDevice(cuda->gpu);
  if (result == cudaSuccess) result = cudaStreamCreate(&cuda->stream);
  if (result == cudaSuccess) result = cudaMemGetInfo(&cuda->device.memory_bytes_max, &total_bytes);
  if (result != cudaSuccess) return sf_error_set(error, SF_ENODEVICE, "%s", cudaGetErrorString(result));
  return look_at_gpu(cuda, error);
}

enum sf_status sf_cuda_device_create(struct sf_device **out, struct sf_error *error) {
  struct sf_cuda *cuda = (struct sf_cuda *)sf_alloc(sizeof *cuda);
  if (cuda == NULL) return sf_error_set(error, SF_ENOMEM, "%s", sf_status_text(SF_ENOMEM));
  cuda->device = {&cuda->ops, cuda, &cuda->memory, sf_cuda_product_run, destroy, 0};
  cuda->memory = {memory_alloc, memory_release, cuda};
  cuda->scratch_memory = {scratch_alloc, memory_release, cuda};
  cuda->gemm_format = SF_BF16;
  fill_table(&cuda->ops);
  enum sf_status status = open_gpu(cuda, error);
  if (status == SF_OK) status = sf_cuda_blas_create(&cuda->blas, error);
  if (status == SF_OK && (cuda->staging = sf_arena_create_in(&cuda->scratch_memory, STAGING_BLOCK_BYTES, false)) == NULL)
    status = sf_error_set(error, SF_ENOMEM, "memory of the GPU: %s", sf_status_text(SF_ENOMEM));
  if (status == SF_OK)
    *out = &cuda->device;
  else
    destroy(&cuda->device);
  return status;
}
