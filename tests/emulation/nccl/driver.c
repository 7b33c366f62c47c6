/* The driver: streams are queues of work, events are work that sets a flag. */
#include "tests/emulation/nccl/emulated.h"

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct item {
  emulated_work work;
  void *argument;
  unsigned wait; /* rounds before it begins */
  struct item *next;
};
struct sf_cu_stream {
  struct item *first, *last;
  struct sf_cu_stream *next;
};
struct sf_cu_event {
  int records; /* under way */
};
struct copy {
  void *to;
  const void *from;
  size_t size_bytes;
  unsigned char value; /* from NULL: to fill with */
};
struct region {
  char *from;
  size_t size_bytes;
  struct region *next;
};

static struct sf_cu_stream *streams;
static struct region *regions;
static size_t given_bytes;
static unsigned enqueued;
static _Thread_local int current = -1;
static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

enum { OUT_OF_MEMORY = 2, NO_CONTEXT = 201, PAUSE_US = 1000, APART = 1000 };

#define EXPORT __attribute__((visibility("default")))

EXPORT void sf_emulated_lock(void) { pthread_mutex_lock(&mutex); }
EXPORT void sf_emulated_unlock(void) { pthread_mutex_unlock(&mutex); }
EXPORT void sf_emulated_pause(void) { usleep(PAUSE_US); }

EXPORT void sf_emulated_end(const char *what) {
  fprintf(stderr, "emulated GPU: %s\n", what);
  abort();
}

static void *get(size_t size_bytes) {
  void *memory = calloc(1, size_bytes);
  if (memory == NULL) sf_emulated_end("out of memory");
  return memory;
}

static int local_rank(void) {
  const char *text = getenv("OMPI_COMM_WORLD_LOCAL_RANK");
  return text != NULL ? atoi(text) : 0;
}

EXPORT bool sf_emulated_names_rank(const char *text) {
  const char *rank = getenv("OMPI_COMM_WORLD_RANK");
  return text != NULL && rank != NULL && atoi(text) == atoi(rank);
}

EXPORT void sf_emulated_log(const char *format, ...) {
  const char *path = getenv("SF_EMULATED_NCCL_LOG");
  FILE *file = path != NULL ? fopen(path, "a") : NULL;
  if (file == NULL) return;
  va_list args;
  va_start(args, format);
  vfprintf(file, format, args);
  va_end(args);
  fclose(file);
}

EXPORT void sf_emulated_enqueue(cu_stream stream, emulated_work work, void *argument) {
  struct item *item = get(sizeof *item);
  if (stream == NULL) sf_emulated_end("work for no stream");
  sf_emulated_lock();
  *item = (struct item){.work = work, .argument = argument, .wait = enqueued++ * 5 % 3};
  if (stream->last != NULL) stream->last->next = item;
  else stream->first = item;
  stream->last = item;
  sf_emulated_unlock();
}

EXPORT void sf_emulated_advance(void) {
  sf_emulated_lock();
  for (struct sf_cu_stream *stream = streams; stream != NULL; stream = stream->next) {
    struct item *item = stream->first;
    if (item == NULL) continue;
    if (item->wait > 0) {
      item->wait--;
      continue;
    }
    if (!item->work(item->argument)) continue;
    stream->first = item->next;
    if (stream->first == NULL) stream->last = NULL;
    free(item);
  }
  sf_emulated_unlock();
}

EXPORT bool sf_emulated_owns(const void *memory, size_t size_bytes) {
  const char *at = memory;
  bool owned = false;
  sf_emulated_lock();
  for (const struct region *region = regions; region != NULL; region = region->next)
    owned = owned || (at >= region->from && at + size_bytes <= region->from + region->size_bytes);
  sf_emulated_unlock();
  return owned;
}

static int identity(int device) {
  const char *apart = getenv("SF_EMULATED_APART");
  return apart != NULL && strcmp(apart, "1") == 0 ? device + APART * (1 + local_rank()) : device;
}

EXPORT int sf_emulated_device(void) { return current < 0 ? current : identity(current); }

/* --- devices --------------------------------------------------------------------------------------------------------- */

static int device_count(void) {
  const char *text = getenv("SF_EMULATED_DEVICES");
  return text != NULL ? atoi(text) : 1;
}

EXPORT int cuInit(unsigned flags) { return flags == 0 && device_count() > 0 ? CU_OK : 100; }
EXPORT int cuDeviceGetCount(int *count) {
  *count = device_count();
  return CU_OK;
}
EXPORT int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return ordinal >= 0 && ordinal < device_count() ? CU_OK : 101;
}
EXPORT int cuDeviceGetUuid_v2(struct cu_uuid *uuid, int device) {
  const int number = identity(device);
  memset(uuid, 0, sizeof *uuid);
  memcpy(uuid->bytes, &number, sizeof number);
  return CU_OK;
}
EXPORT int cuDevicePrimaryCtxRetain(cu_context *context, int device) {
  const char *connections = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  sf_emulated_log("context on %d with %s connections\n", device, connections != NULL ? connections : "8");
  *context = (cu_context)(uintptr_t)(device + 1);
  return CU_OK;
}
EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
  if (regions != NULL || streams != NULL) sf_emulated_end("a device is given back with memory or streams on it");
  return device >= 0 ? CU_OK : 101;
}
EXPORT int cuCtxSetCurrent(cu_context context) {
  current = (int)(uintptr_t)context - 1;
  return CU_OK;
}
EXPORT int cuGetErrorString(int error, const char **text) {
  *text = error == 100             ? "no CUDA-capable device is detected"
          : error == 101           ? "invalid device ordinal"
          : error == OUT_OF_MEMORY ? "out of memory"
                                   : "emulated error";
  return CU_OK;
}

/* --- memory ---------------------------------------------------------------------------------------------------------- */

/* CUDA lets several calls wait for everything that runs: memory given or taken, the first launch of a kernel. */
static void wait_for_all(void) {
  for (;;) {
    bool is_idle = true;
    sf_emulated_lock();
    sf_emulated_advance();
    for (const struct sf_cu_stream *stream = streams; stream != NULL; stream = stream->next) is_idle = is_idle && stream->first == NULL;
    sf_emulated_unlock();
    if (is_idle) return;
    sched_yield();
  }
}

EXPORT int cuCtxSynchronize(void) {
  if (current < 0) return NO_CONTEXT;
  wait_for_all();
  return CU_OK;
}

EXPORT int cuMemAlloc_v2(cu_pointer *memory, size_t size_bytes) {
  wait_for_all();
  const char *limit = getenv("SF_EMULATED_GPU_BYTES");
  if (current < 0) sf_emulated_end("memory without a current context");
  if (limit != NULL && given_bytes + size_bytes > strtoull(limit, NULL, 10)) return OUT_OF_MEMORY;
  struct region *region = get(sizeof *region);
  *region = (struct region){.from = get(size_bytes), .size_bytes = size_bytes};
  memset(region->from, 0x7f, size_bytes);
  sf_emulated_lock();
  region->next = regions;
  regions = region;
  given_bytes += size_bytes;
  sf_emulated_unlock();
  *memory = (cu_pointer)(uintptr_t)region->from;
  return CU_OK;
}

EXPORT int cuMemFree_v2(cu_pointer memory) {
  sf_emulated_lock();
  struct region **at = &regions;
  while (*at != NULL && (cu_pointer)(uintptr_t)(*at)->from != memory) at = &(*at)->next;
  struct region *region = *at;
  if (region == NULL) sf_emulated_end("memory is given back that is none of the GPU's");
  *at = region->next;
  given_bytes -= region->size_bytes;
  sf_emulated_unlock();
  free(region->from);
  free(region);
  return CU_OK;
}

static bool do_copy(void *argument) {
  struct copy *copy = argument;
  if (copy->from != NULL) memcpy(copy->to, copy->from, copy->size_bytes);
  else memset(copy->to, copy->value, copy->size_bytes);
  free(copy);
  return true;
}

static int enqueue_copy(cu_pointer to, const void *from, unsigned char value, size_t size_bytes, cu_stream stream) {
  struct copy *copy = get(sizeof *copy);
  *copy = (struct copy){.to = (void *)(uintptr_t)to, .from = from, .size_bytes = size_bytes, .value = value};
  sf_emulated_enqueue(stream, do_copy, copy);
  return CU_OK;
}

EXPORT int cuMemcpyAsync(cu_pointer to, cu_pointer from, size_t size_bytes, cu_stream stream) {
  return enqueue_copy(to, (const void *)(uintptr_t)from, 0, size_bytes, stream);
}

EXPORT int cuMemsetD8Async(cu_pointer to, unsigned char value, size_t size_bytes, cu_stream stream) {
  return enqueue_copy(to, NULL, value, size_bytes, stream);
}

/* --- streams and events ------------------------------------------------------------------------------------------------ */

EXPORT int cuStreamCreate(cu_stream *stream, unsigned flags) {
  if (flags != CU_STREAM_OF_ITS_OWN) sf_emulated_end("a stream that waits for the others");
  *stream = get(sizeof **stream);
  sf_emulated_lock();
  (*stream)->next = streams;
  streams = *stream;
  sf_emulated_unlock();
  return CU_OK;
}

EXPORT int cuStreamSynchronize(cu_stream stream) {
  if (current < 0) return NO_CONTEXT;
  for (;;) {
    sf_emulated_lock();
    sf_emulated_advance();
    const bool is_done = stream->first == NULL;
    sf_emulated_unlock();
    if (is_done) return CU_OK;
    sched_yield();
  }
}

EXPORT int cuStreamDestroy_v2(cu_stream stream) {
  const int result = cuStreamSynchronize(stream);
  if (result != CU_OK) return result;
  sf_emulated_lock();
  struct sf_cu_stream **at = &streams;
  while (*at != stream) at = &(*at)->next;
  *at = stream->next;
  sf_emulated_unlock();
  free(stream);
  return CU_OK;
}

static bool set_event(void *argument) {
  ((struct sf_cu_event *)argument)->records--;
  return true;
}

EXPORT int cuEventCreate(cu_event *event, unsigned flags) {
  (void)flags;
  *event = get(sizeof **event);
  return CU_OK;
}

EXPORT int cuEventRecord(cu_event event, cu_stream stream) {
  sf_emulated_lock();
  event->records++;
  sf_emulated_enqueue(stream, set_event, event);
  sf_emulated_unlock();
  return CU_OK;
}

EXPORT int cuEventQuery(cu_event event) {
  sf_emulated_lock();
  sf_emulated_advance();
  const int result = event->records == 0 ? CU_OK : CU_NOT_READY;
  sf_emulated_unlock();
  return result;
}

EXPORT int cuEventDestroy_v2(cu_event event) {
  while (cuEventQuery(event) != CU_OK) sf_emulated_pause();
  free(event);
  return CU_OK;
}
