/* A build without CUDA. */
#include "harness/device/device.h"

enum sf_status sf_cuda_device_create(struct sf_device **out, struct sf_error *error) {
  (void)out;
  return sf_error_set(error, SF_ENODEVICE, "this build has no CUDA (SF_CUDA)");
}
