/* What the emulated GPU saw of the device, for tests in C. */
#ifndef SF_TESTS_EMULATION_OBSERVED_H
#define SF_TESTS_EMULATION_OBSERVED_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the managed memory that holds `at` was advised to stay with the host and to be mapped by the GPU. */
bool sf_emulated_is_kept_with_host(const void *at);
/* All that is given at present, managed or the GPU's own, in whole pages. */
size_t sf_emulated_given_bytes(void);

#ifdef __cplusplus
}
#endif

#endif
