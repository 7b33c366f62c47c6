/* The driver: streams are queues of work, events are work that sets a flag. */
#include "tests/emulation/nccl/emulated.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
static unsigned enqueued;
static int current = -1;

#define EXPORT __attribute__((visibility("default")))

EXPORT void sf_emulated_end(const char *what) {
  fprintf(stderr, "emulated GPU: %s\n", what);
  abort();
}

static void *get(size_t size_bytes) {
  void *memory = calloc(1, size_bytes);
  if (memory == NULL) sf_emulated_end("out of memory");
  return memory;
}

EXPORT void sf_emulated_enqueue(cu_stream stream, emulated_work work, void *argument) {
  struct item *item = get(sizeof *item);
  *item = (struct item){.work = work, .argument = argument, .wait = enqueued++ * 5 % 3};
  if (stream == NULL) sf_emulated_end("work for no stream");
  if (stream->last != NULL) stream->last->next = item;
  else stream->first = item;
  stream->last = item;
}

EXPORT void sf_emulated_advance(void) {
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
}

EXPORT bool sf_emulated_owns(const void *memory, size_t size_bytes) {
  const char *at = memory;
  for (const struct region *region = regions; region != NULL; region = region->next)
    if (at >= region->from && at + size_bytes <= region->from + region->size_bytes) return true;
  return false;
}

EXPORT int sf_emulated_device(void) { return current; }

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
EXPORT int cuDevicePrimaryCtxRetain(cu_context *context, int device) {
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
  *text = error == 100 ? "no CUDA-capable device is detected" : error == 101 ? "invalid device ordinal" : "emulated error";
  return CU_OK;
}

/* --- memory ---------------------------------------------------------------------------------------------------------- */

EXPORT int cuMemAlloc_v2(cu_pointer *memory, size_t size_bytes) {
  if (current < 0) sf_emulated_end("memory without a current context");
  struct region *region = get(sizeof *region);
  *region = (struct region){.from = get(size_bytes), .size_bytes = size_bytes, .next = regions};
  memset(region->from, 0x7f, size_bytes);
  regions = region;
  *memory = (cu_pointer)(uintptr_t)region->from;
  return CU_OK;
}

EXPORT int cuMemFree_v2(cu_pointer memory) {
  for (struct region **at = &regions; *at != NULL; at = &(*at)->next) {
    struct region *region = *at;
    if ((cu_pointer)(uintptr_t)region->from != memory) continue;
    *at = region->next;
    free(region->from);
    free(region);
    return CU_OK;
  }
  sf_emulated_end("memory is given back that is none of the GPU's");
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
  (*stream)->next = streams;
  streams = *stream;
  return CU_OK;
}

EXPORT int cuStreamSynchronize(cu_stream stream) {
  while (stream->first != NULL) sf_emulated_advance();
  return CU_OK;
}

EXPORT int cuStreamDestroy_v2(cu_stream stream) {
  struct sf_cu_stream **at = &streams;
  while (*at != stream) at = &(*at)->next;
  (void)cuStreamSynchronize(stream);
  *at = stream->next;
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
  event->records++;
  sf_emulated_enqueue(stream, set_event, event);
  return CU_OK;
}

EXPORT int cuEventQuery(cu_event event) {
  sf_emulated_advance();
  return event->records == 0 ? CU_OK : CU_NOT_READY;
}

EXPORT int cuEventDestroy_v2(cu_event event) {
  while (event->records > 0) sf_emulated_advance();
  free(event);
  return CU_OK;
}
