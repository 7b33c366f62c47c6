/* The runtime's calls: the stream's work, memory of the GPU that is closed to the host when it may not look, and what the GPU says of itself. */
#include "tests/emulation/cuda_runtime.h"
#include "tests/emulation/observed.h"

extern "C" {
#include "harness/base/alloc.h"
}

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static bool is_set(const char *name, const char *value) {
  const char *at = getenv(name);
  return at != NULL && strcmp(at, value) == 0;
}

static cudaError_t last_error;

static cudaError_t said(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t cudaGetLastError(void) {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

/* --- memory ------------------------------------------------------------------------------------------------------ */

enum { ALIGN = 64 /* as little as the device relies on: an operand's end is then the page's end */ };

/* Whole pages and one behind them that nobody may touch. */
struct piece {
  struct piece *next;
  char *pages, *memory;
  size_t pages_bytes;
  bool own; /* the GPU's alone */
  bool prefers_host, is_mapped; /* by advice */
};

static struct piece *pieces;

static size_t round_up(size_t size_bytes, size_t to) { return (size_bytes + to - 1) / to * to; }

static void set_open(struct piece *piece, bool open) {
  if (mprotect(piece->pages, piece->pages_bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE) != 0) sf_emulated_end("memory cannot be opened or closed");
}

static void set_all_open(bool own, bool open) {
  for (struct piece *piece = pieces; piece != NULL; piece = piece->next)
    if (piece->own == own) set_open(piece, open);
}

static bool map(struct piece *piece, size_t size_bytes) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  if (size_bytes > PTRDIFF_MAX / 2) return false;
  piece->pages_bytes = round_up(size_bytes, page);
  void *pages = mmap(NULL, piece->pages_bytes + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return false;
  piece->pages = (char *)pages;
  piece->memory = piece->pages + piece->pages_bytes - round_up(size_bytes, ALIGN);
  return true;
}

/* --- the stream ---------------------------------------------------------------------------------------------------- */

static struct {
  struct {
    void (*run)(void *argument);
    alignas(16) unsigned char argument[SF_EMULATED_ARGUMENT_BYTES];
  } work[64];
  unsigned count;
} waiting;

void sf_emulated_enqueue(void (*run)(void *argument), const void *argument, size_t argument_bytes) {
  if (waiting.count == sizeof waiting.work / sizeof *waiting.work) sf_emulated_end("more work than there is room for");
  if (waiting.count == 0) set_all_open(false, false);
  waiting.work[waiting.count].run = run;
  memcpy(waiting.work[waiting.count++].argument, argument, argument_bytes);
}

static void finish(void) {
  if (waiting.count == 0) return;
  set_all_open(false, true);
  set_all_open(true, true);
  for (unsigned i = 0; i < waiting.count; i++) waiting.work[i].run(waiting.work[i].argument);
  set_all_open(true, false);
  waiting.count = 0;
}

cudaError_t cudaStreamCreate(cudaStream_t *out) {
  *out = NULL;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  finish();
  return stream == NULL ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) { return cudaStreamSynchronize(stream); }

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  (void)kind, (void)stream;
  if (width > to_pitch || width > from_pitch) sf_emulated_end("a copy of rows that overlap");
  sf_emulated_enqueue_of([=]() {
    for (size_t row = 0; row < height; row++) memcpy((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width);
  });
  return cudaSuccess;
}

/* --- memory, given and taken back ----------------------------------------------------------------------------------- */

static cudaError_t give(void **out, size_t size_bytes, bool own) {
  struct piece *piece = (struct piece *)sf_alloc(sizeof *piece); /* by which tests let this call fail */
  if (piece == NULL || !map(piece, size_bytes)) {
    sf_free(piece);
    return said(cudaErrorMemoryAllocation);
  }
  set_open(piece, true);
  memset(piece->pages, 0x7f, piece->pages_bytes);
  set_open(piece, !own && waiting.count == 0);
  piece->own = own;
  piece->next = pieces;
  pieces = piece;
  *out = piece->memory;
  return cudaSuccess;
}

cudaError_t cudaMallocManaged(void **out, size_t size_bytes, unsigned flags) {
  (void)flags;
  return give(out, size_bytes, false);
}

static struct piece *piece_of(const void *memory) {
  struct piece *piece = pieces;
  while (piece != NULL && ((const char *)memory < piece->pages || (const char *)memory >= piece->pages + piece->pages_bytes)) piece = piece->next;
  return piece;
}

cudaError_t cudaMemAdvise(const void *memory, size_t size_bytes, cudaMemoryAdvise advice, cudaMemLocation location) {
  struct piece *piece = piece_of(memory);
  if (is_set("SF_EMULATED_ADVICE", "0")) return said(cudaErrorInvalidValue);
  if (piece == NULL || piece->own || memory != piece->memory || size_bytes == 0 || size_bytes > piece->pages_bytes) sf_emulated_end("advice on memory that is none");
  if (advice == cudaMemAdviseSetPreferredLocation) piece->prefers_host = location.type == cudaMemLocationTypeHost;
  if (advice == cudaMemAdviseSetAccessedBy) piece->is_mapped = location.type == cudaMemLocationTypeDevice && location.id == 0;
  return cudaSuccess;
}

bool sf_emulated_is_kept_with_host(const void *at) {
  const struct piece *piece = piece_of(at);
  return piece != NULL && piece->prefers_host && piece->is_mapped;
}

size_t sf_emulated_given_bytes(void) {
  size_t given = 0;
  for (const struct piece *piece = pieces; piece != NULL; piece = piece->next) given += piece->pages_bytes;
  return given;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
  const char *limit = getenv("SF_EMULATED_FREE_BYTES");
  const size_t given = sf_emulated_given_bytes();
  *total_bytes = limit != NULL ? (size_t)strtoull(limit, NULL, 10) : (size_t)PTRDIFF_MAX;
  *free_bytes = given < *total_bytes ? *total_bytes - given : 0;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t size_bytes) {
  size_t free_bytes, total_bytes;
  (void)cudaMemGetInfo(&free_bytes, &total_bytes);
  return is_set("SF_EMULATED_OWN_MEMORY", "0") || size_bytes > free_bytes ? said(cudaErrorMemoryAllocation) : give(out, size_bytes, true);
}

cudaError_t cudaFree(void *memory) {
  struct piece **at = &pieces;
  if (memory == NULL) return cudaSuccess;
  finish();
  while (*at != NULL && (*at)->memory != memory) at = &(*at)->next;
  if (*at == NULL) sf_emulated_end("memory is given back that was not given");
  struct piece *piece = *at;
  *at = piece->next;
  (void)munmap(piece->pages, piece->pages_bytes + (size_t)sysconf(_SC_PAGESIZE));
  sf_free(piece);
  return cudaSuccess;
}

/* --- what it is ------------------------------------------------------------------------------------------------------ */

cudaError_t cudaGetDeviceCount(int *out) {
  *out = is_set("SF_EMULATED_DEVICES", "0") ? 0 : 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *out, cudaDeviceAttr attribute, int device) {
  (void)device;
  const bool by_host_tables = is_set("SF_EMULATED_READS_ALL", "1");
  switch (attribute) {
  case cudaDevAttrManagedMemory: *out = 1; break;
  case cudaDevAttrConcurrentManagedAccess: *out = !is_set("SF_EMULATED_CONCURRENT", "0"); break;
  case cudaDevAttrPageableMemoryAccess: *out = by_host_tables || is_set("SF_EMULATED_READS_ALL", "hmm"); break;
  case cudaDevAttrPageableMemoryAccessUsesHostPageTables: *out = by_host_tables; break;
  }
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *out) {
  *out = 13000;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorNoDevice; }
cudaError_t sf_emulated_kernels(void) { return is_set("SF_EMULATED_KERNELS", "0") ? said(cudaErrorNoKernelImageForDevice) : cudaSuccess; }

const char *cudaGetErrorString(cudaError_t error) {
  switch (error) {
  case cudaSuccess: return "no error";
  case cudaErrorInvalidValue: return "invalid argument";
  case cudaErrorMemoryAllocation: return "out of memory";
  case cudaErrorNoDevice: return "no CUDA-capable device is detected";
  case cudaErrorNoKernelImageForDevice: return "no kernel image is available for execution on the device";
  }
  return "unrecognized error code";
}
