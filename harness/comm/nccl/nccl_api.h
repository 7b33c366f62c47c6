/* What the backend calls of NCCL and of the CUDA driver: both are opened when they are asked for, so that the program starts without them.
 *
 * The declarations are ours, since the headers' own need a CUDA toolkit even to compile C that only passes pointers on. They are the binary
 * interface of libnccl.so.2 and libcuda.so.1; tests/contract/nccl_declarations.c compares them with nccl.h and cuda.h where those are
 * found. */
#ifndef SF_COMM_NCCL_API_H
#define SF_COMM_NCCL_API_H

#include "harness/base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct sf_nccl_comm *nccl_comm;
typedef struct sf_cu_stream *cu_stream;
typedef struct sf_cu_event *cu_event;
typedef struct sf_cu_context *cu_context;
typedef unsigned long long cu_pointer;

enum { NCCL_OK = 0, NCCL_CUDA_ERROR = 1, NCCL_SYSTEM_ERROR = 2, NCCL_IN_PROGRESS = 7 };
enum { NCCL_INT32 = 2, NCCL_INT64 = 4, NCCL_FLOAT16 = 6, NCCL_FLOAT32 = 7, NCCL_FLOAT64 = 8, NCCL_BFLOAT16 = 9 };
enum { NCCL_SUM = 0, NCCL_MAX = 2 };
enum { NCCL_UNDEFINED = INT32_MIN, NCCL_MAGIC = (int)0xcafebeef, NCCL_CONFIG_VERSION = 21800, NCCL_SHARES_GPUS_SINCE = 23004 };
enum { CU_OK = 0, CU_OUT_OF_MEMORY = 2, CU_NOT_READY = 600, CU_STREAM_OF_ITS_OWN = 1, CU_EVENT_WITHOUT_TIME = 2 };

struct nccl_id {
  char bytes[128];
};
struct cu_uuid {
  char bytes[16];
};
/* As of 2.18; the library takes shorter ones than its own. */
struct nccl_config {
  size_t size;
  unsigned magic, version;
  int blocking, cga_cluster_size, min_ctas, max_ctas;
  const char *net_name;
  int split_share;
};

/* X(result, name, arguments): the symbol is "nccl" and the name. */
#define NCCL_FUNCTIONS(X)                                                                                                             \
  X(int, GetVersion, (int *version))                                                                                                  \
  X(int, GetUniqueId, (struct nccl_id *id))                                                                                           \
  X(int, CommInitRankConfig, (nccl_comm *comm, int size, struct nccl_id id, int rank, struct nccl_config *config))                    \
  X(int, CommFinalize, (nccl_comm comm))                                                                                              \
  X(int, CommDestroy, (nccl_comm comm))                                                                                               \
  X(int, CommAbort, (nccl_comm comm))                                                                                                 \
  X(int, CommGetAsyncError, (nccl_comm comm, int *error))                                                                             \
  X(const char *, GetErrorString, (int error))                                                                                        \
  X(const char *, GetLastError, (nccl_comm comm))                                                                                     \
  X(int, AllReduce, (const void *send, void *recv, size_t count, int type, int op, nccl_comm comm, cu_stream stream))                 \
  X(int, ReduceScatter, (const void *send, void *recv, size_t recv_count, int type, int op, nccl_comm comm, cu_stream stream))        \
  X(int, AllGather, (const void *send, void *recv, size_t send_count, int type, nccl_comm comm, cu_stream stream))                    \
  X(int, Broadcast, (const void *send, void *recv, size_t count, int type, int root, nccl_comm comm, cu_stream stream))               \
  X(int, Send, (const void *send, size_t count, int type, int peer, nccl_comm comm, cu_stream stream))                                \
  X(int, Recv, (void *recv, size_t count, int type, int peer, nccl_comm comm, cu_stream stream))                                      \
  X(int, GroupStart, (void))                                                                                                          \
  X(int, GroupEnd, (void))

/* X(name, symbol, arguments) */
#define CU_FUNCTIONS(X)                                                                        \
  X(Init, "cuInit", (unsigned flags))                                                          \
  X(DeviceGetCount, "cuDeviceGetCount", (int *count))                                          \
  X(DeviceGet, "cuDeviceGet", (int *device, int ordinal))                                      \
  X(DeviceGetUuid, "cuDeviceGetUuid_v2", (struct cu_uuid * uuid, int device))                  \
  X(PrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (cu_context * context, int device))          \
  X(PrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (int device))                           \
  X(CtxSetCurrent, "cuCtxSetCurrent", (cu_context context))                                    \
  X(MemAlloc, "cuMemAlloc_v2", (cu_pointer * memory, size_t size_bytes))                       \
  X(MemFree, "cuMemFree_v2", (cu_pointer memory))                                              \
  X(MemcpyAsync, "cuMemcpyAsync", (cu_pointer to, cu_pointer from, size_t size_bytes, cu_stream stream)) \
  X(MemsetAsync, "cuMemsetD8Async", (cu_pointer to, unsigned char value, size_t size_bytes, cu_stream stream)) \
  X(StreamCreate, "cuStreamCreate", (cu_stream * stream, unsigned flags))                      \
  X(StreamDestroy, "cuStreamDestroy_v2", (cu_stream stream))                                   \
  X(StreamSynchronize, "cuStreamSynchronize", (cu_stream stream))                              \
  X(EventCreate, "cuEventCreate", (cu_event * event, unsigned flags))                          \
  X(EventRecord, "cuEventRecord", (cu_event event, cu_stream stream))                          \
  X(EventQuery, "cuEventQuery", (cu_event event))                                              \
  X(EventDestroy, "cuEventDestroy_v2", (cu_event event))                                       \
  X(GetErrorString, "cuGetErrorString", (int error, const char **text))

struct nccl_api {
  void *nccl_library, *cuda_library;
  struct {
#define X(result, name, arguments) result(*name) arguments;
    NCCL_FUNCTIONS(X)
#undef X
  } nccl;
  struct {
#define X(name, symbol, arguments) int(*name) arguments;
    CU_FUNCTIONS(X)
#undef X
  } cuda;
  int version; /* of NCCL, as it counts: 23004 */
};

/* SF_ENODEVICE with a line. Nothing is started; close it however it went. */
enum sf_status nccl_api_open(struct nccl_api *api, struct sf_error *error) SF_MUST_USE;
void nccl_api_close(struct nccl_api *api); /* takes one that failed to open; zeroes it */
/* "2.30.4" */
void nccl_version_text(char text[24], int version);

#endif
