#include "harness/run/trial/device_choice.h"

#include "harness/base/assert.h"
#include "harness/base/system/launched.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

const char *const sf_device_names[] = {"cpu", "cuda", NULL}; /* in the order of enum sf_device_kind */
const char *const sf_gemm_names[] = {"default", "xsmm", "blas", "loops", NULL};
SF_ASSERT_ENTRIES(sf_device_names, SF_DEVICE_COUNT + 1); /* one more: NULL ends them */

/* Each process on a GPU holds some hundred megabytes of it. */
enum { GPU_WORKERS_DEFAULT = 12 };

enum sf_status sf_device_choose(enum sf_cpu_gemm *gemm, size_t *memory_bytes, int32_t device, int32_t choice, struct sf_error *error) {
  static const enum sf_cpu_gemm gemms[] = {SF_CPU_GEMM_XSMM, SF_CPU_GEMM_XSMM, SF_CPU_GEMM_BLAS, SF_CPU_GEMM_LOOPS};
  SF_ASSERT_ENTRIES(gemms, sizeof sf_gemm_names / sizeof *sf_gemm_names - 1);
  struct sf_error reason = {SF_OK, ""};
  if (device != SF_DEVICE_CPU && choice != 0) return sf_error_set(error, SF_EUSAGE, "--gemm is of --device cpu");
  *gemm = choice ? gemms[choice] : sf_cpu_gemm_default();
  const enum sf_status status = sf_device_probe(memory_bytes, (enum sf_device_kind)device, *gemm, &reason);
  if (status == SF_OK) return SF_OK;
  if (device != SF_DEVICE_CPU) return sf_error_set(error, status, "--device %s: %.400s", sf_device_names[device], reason.text);
  if (status != SF_ENOTSUP) return sf_error_set(error, status, "%.400s", reason.text);
  return sf_error_set(error, status, "--gemm %s: %s in this build", sf_gemm_names[choice], sf_status_text(status));
}

/* CUDA's Multi-Process Service runs: processes compute on one GPU at the same time. */
static bool gpu_is_shared(void) {
  const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
  char path[PATH_MAX];
  const int length = snprintf(path, sizeof path, "%s/control", folder ? folder : "/tmp/nvidia-mps");
  return length < (int)sizeof path && access(path, F_OK) == 0;
}

int32_t sf_process_count(int64_t jobs, int32_t device) {
  const long cores = sysconf(_SC_NPROCESSORS_ONLN) / sf_local_size();
  const long most = device == SF_DEVICE_CPU ? INT32_MAX : gpu_is_shared() ? GPU_WORKERS_DEFAULT : 1;
  return jobs ? (int32_t)jobs : cores < 1 ? 1 : cores < most ? (int32_t)cores : (int32_t)most;
}
