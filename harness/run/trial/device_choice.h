/* Which device computes the layers and operations under test, by the words of the command line. */
#ifndef SF_RUN_DEVICE_CHOICE_H
#define SF_RUN_DEVICE_CHOICE_H

#include "harness/device/device.h"

/* The words of --device and --gemm; NULL ends each list. */
extern const char *const sf_device_names[], *const sf_gemm_names[];

/* Sees that the device can be had. device, choice: indices of sf_device_names and sf_gemm_names. *gemm receives the library of its matrix
 * products, *memory_bytes (may be NULL) the memory that a GPU has free. SF_EUSAGE, SF_ENOTSUP, SF_ENODEVICE. */
enum sf_status sf_device_choose(enum sf_cpu_gemm *gemm, size_t *memory_bytes, int32_t device, int32_t choice,
                                struct sf_error *error) SF_MUST_USE;
/* How many processes run cases side by side: `jobs`; for 0 one per core. On a GPU then at most 12, and one unless CUDA's Multi-Process
 * Service runs (its pipe lies in CUDA_MPS_PIPE_DIRECTORY): without it processes use the GPU in turns, and several are slower than one. */
int32_t sf_process_count(int64_t jobs, int32_t device);

#endif
