#include "harness/device/device.h"

#include "harness/device/cpu.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum sf_status sf_device_create(struct sf_device **out, enum sf_device_kind kind, enum sf_cpu_gemm gemm, struct sf_error *error) {
  if (kind == SF_DEVICE_CUDA) return sf_cuda_device_create(out, error);
  const enum sf_status status = sf_cpu_device_create(out, gemm);
  return status == SF_OK ? SF_OK : sf_error_set(error, status, "the CPU device: %s", sf_status_text(status));
}

void sf_device_destroy(struct sf_device *dev) {
  if (dev) dev->destroy(dev);
}

/* The answer of the process that looked for the device. */
struct probed {
  struct sf_error error;
  size_t memory_bytes;
};

enum sf_status sf_device_probe(size_t *memory_bytes, enum sf_device_kind kind, enum sf_cpu_gemm gemm, struct sf_error *error) {
  struct sf_device *device = NULL;
  if (memory_bytes) *memory_bytes = 0;
  enum sf_status status = sf_gemm_blas_reserve(error); /* references are computed on the CPU in any case */
  if (status != SF_OK) return status;
  if (kind == SF_DEVICE_CPU) {
    status = sf_device_create(&device, kind, gemm, error);
    sf_device_destroy(status == SF_OK ? device : NULL);
    return status;
  }
  struct probed *said = mmap(NULL, sizeof *said, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (said == MAP_FAILED) return SF_ENOMEM;
  sf_error_set(&said->error, SF_ENODEVICE, "the device ended the process that looked for it");
  const pid_t child = fork();
  if (child == 0) {
    if (sf_device_create(&device, kind, gemm, &said->error) == SF_OK) {
      said->memory_bytes = device->memory_bytes_max;
      sf_device_destroy(device);
      said->error.status = SF_OK;
    }
    _exit(0);
  }
  while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR) {}
  if (child < 0) sf_error_set(&said->error, SF_EIO, "a process: %s", strerror(errno));
  status = said->error.status;
  if (status != SF_OK && error) *error = said->error;
  if (status == SF_OK && memory_bytes) *memory_bytes = said->memory_bytes;
  munmap(said, sizeof *said);
  return status;
}
