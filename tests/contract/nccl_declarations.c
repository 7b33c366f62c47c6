/* The NCCL backend's own declarations against the libraries' headers, where the build has them: nothing runs. */
#include "harness/comm/nccl/nccl_api.h"

#include <cuda.h>
#include <nccl.h>

/* name: as the header has it, behind its macros; symbol: what is looked for in the library. */
#define TEXT_OF(name) #name
#define SAME(result, name, symbol, ...)                                                               \
  _Static_assert(__builtin_types_compatible_p(__typeof__(&(name)), result(*)(__VA_ARGS__)), #name);   \
  _Static_assert(__builtin_strcmp(TEXT_OF(name), symbol) == 0, #name)

SAME(ncclResult_t, ncclGetVersion, "ncclGetVersion", int *);
SAME(ncclResult_t, ncclGetUniqueId, "ncclGetUniqueId", ncclUniqueId *);
SAME(ncclResult_t, ncclCommInitRankConfig, "ncclCommInitRankConfig", ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *);
SAME(ncclResult_t, ncclCommFinalize, "ncclCommFinalize", ncclComm_t);
SAME(ncclResult_t, ncclCommDestroy, "ncclCommDestroy", ncclComm_t);
SAME(ncclResult_t, ncclCommAbort, "ncclCommAbort", ncclComm_t);
SAME(ncclResult_t, ncclCommGetAsyncError, "ncclCommGetAsyncError", ncclComm_t, ncclResult_t *);
SAME(const char *, ncclGetErrorString, "ncclGetErrorString", ncclResult_t);
SAME(const char *, ncclGetLastError, "ncclGetLastError", ncclComm_t);
SAME(ncclResult_t, ncclAllReduce, "ncclAllReduce", const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t);
SAME(ncclResult_t, ncclReduceScatter, "ncclReduceScatter", const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
     cudaStream_t);
SAME(ncclResult_t, ncclAllGather, "ncclAllGather", const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t);
SAME(ncclResult_t, ncclBroadcast, "ncclBroadcast", const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
SAME(ncclResult_t, ncclSend, "ncclSend", const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
SAME(ncclResult_t, ncclRecv, "ncclRecv", void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
SAME(ncclResult_t, ncclGroupStart, "ncclGroupStart", void);
SAME(ncclResult_t, ncclGroupEnd, "ncclGroupEnd", void);

/* The header's names are macros of the symbols. */
#define CUDA_SAME(name, symbol, ...) SAME(CUresult, name, symbol, __VA_ARGS__)
CUDA_SAME(cuInit, "cuInit", unsigned);
CUDA_SAME(cuDeviceGetCount, "cuDeviceGetCount", int *);
CUDA_SAME(cuDeviceGet, "cuDeviceGet", CUdevice *, int);
CUDA_SAME(cuDeviceGetUuid_v2, "cuDeviceGetUuid_v2", CUuuid *, CUdevice);
CUDA_SAME(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", CUcontext *, CUdevice);
CUDA_SAME(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", CUdevice);
CUDA_SAME(cuCtxSetCurrent, "cuCtxSetCurrent", CUcontext);
CUDA_SAME(cuMemAlloc, "cuMemAlloc_v2", CUdeviceptr *, size_t);
CUDA_SAME(cuMemFree, "cuMemFree_v2", CUdeviceptr);
CUDA_SAME(cuMemcpyAsync, "cuMemcpyAsync", CUdeviceptr, CUdeviceptr, size_t, CUstream);
CUDA_SAME(cuMemsetD8Async, "cuMemsetD8Async", CUdeviceptr, unsigned char, size_t, CUstream);
CUDA_SAME(cuStreamCreate, "cuStreamCreate", CUstream *, unsigned);
CUDA_SAME(cuStreamDestroy, "cuStreamDestroy_v2", CUstream);
CUDA_SAME(cuStreamSynchronize, "cuStreamSynchronize", CUstream);
CUDA_SAME(cuEventCreate, "cuEventCreate", CUevent *, unsigned);
CUDA_SAME(cuEventRecord, "cuEventRecord", CUevent, CUstream);
CUDA_SAME(cuEventQuery, "cuEventQuery", CUevent);
CUDA_SAME(cuEventDestroy, "cuEventDestroy_v2", CUevent);
CUDA_SAME(cuGetErrorString, "cuGetErrorString", CUresult, const char **);

_Static_assert((int)NCCL_OK == ncclSuccess && (int)NCCL_IN_PROGRESS == ncclInProgress, "results");
_Static_assert((int)NCCL_CUDA_ERROR == ncclUnhandledCudaError && (int)NCCL_SYSTEM_ERROR == ncclSystemError, "results");
_Static_assert((int)NCCL_INT32 == ncclInt32 && (int)NCCL_INT64 == ncclInt64 && (int)NCCL_FLOAT16 == ncclFloat16, "types");
_Static_assert((int)NCCL_FLOAT32 == ncclFloat32 && (int)NCCL_FLOAT64 == ncclFloat64 && (int)NCCL_BFLOAT16 == ncclBfloat16, "types");
_Static_assert((int)NCCL_SUM == ncclSum && (int)NCCL_MAX == ncclMax, "operations");
_Static_assert(NCCL_UNDEFINED == NCCL_CONFIG_UNDEF_INT && (unsigned)NCCL_MAGIC == NCCL_API_MAGIC, "configuration");
_Static_assert(NCCL_CONFIG_VERSION == NCCL_VERSION(2, 18, 0) && NCCL_SHARES_GPUS_SINCE == NCCL_VERSION(2, 30, 4), "versions");
_Static_assert((int)CU_OK == CUDA_SUCCESS && (int)CU_NOT_READY == CUDA_ERROR_NOT_READY && (int)CU_OUT_OF_MEMORY == CUDA_ERROR_OUT_OF_MEMORY,
               "results of the driver");
_Static_assert((int)CU_STREAM_OF_ITS_OWN == CU_STREAM_NON_BLOCKING && (int)CU_EVENT_WITHOUT_TIME == CU_EVENT_DISABLE_TIMING, "flags");
_Static_assert(sizeof(struct nccl_id) == sizeof(ncclUniqueId) && sizeof(cu_pointer) == sizeof(CUdeviceptr) &&
                   sizeof(struct cu_uuid) == sizeof(CUuuid),
               "sizes");
_Static_assert(sizeof(int) == sizeof(ncclResult_t) && sizeof(int) == sizeof(ncclDataType_t) && sizeof(int) == sizeof(ncclRedOp_t), "sizes");
#define SAME_PLACE(ours, theirs) _Static_assert(offsetof(struct nccl_config, ours) == offsetof(ncclConfig_t, theirs), #theirs)
SAME_PLACE(size, size);
SAME_PLACE(magic, magic);
SAME_PLACE(version, version);
SAME_PLACE(blocking, blocking);
SAME_PLACE(cga_cluster_size, cgaClusterSize);
SAME_PLACE(min_ctas, minCTAs);
SAME_PLACE(max_ctas, maxCTAs);
SAME_PLACE(net_name, netName);
SAME_PLACE(split_share, splitShare);
