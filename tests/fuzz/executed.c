/* Counts what an entry is given, which libFuzzer does not: the linker puts this function in front of each entry (--wrap). */
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

int __real_LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int __wrap_LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t executed_bytes;

int __wrap_LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  executed_bytes += size;
  return __real_LLVMFuzzerTestOneInput(data, size);
}

__attribute__((destructor)) static void say(void) { fprintf(stderr, "stat::executed_bytes: %" PRIu64 "\n", executed_bytes); }
