/* For tests: safetensors files in memory, how to make one and what it holds. */
#ifndef SF_TESTS_ST_VALUES_H
#define SF_TESTS_ST_VALUES_H

#include "harness/base/bytes.h"
#include "harness/tensor/safetensors.h"

#include <string.h>

/* A file of this header and so many data bytes (0, 1, 2, ...). */
static inline size_t st_make_file(unsigned char *out, const char *header, size_t data_bytes) {
  const size_t length = strlen(header);
  sf_store_u64_le(out, length);
  memcpy(out + 8, header, length);
  for (size_t i = 0; i < data_bytes; i++) out[8 + length + i] = (unsigned char)i;
  return 8 + length + data_bytes;
}

static inline uint64_t st_load_le(const unsigned char *at, size_t size_bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < size_bytes; i++) value |= (uint64_t)at[i] << (8 * i);
  return value;
}

/* Values as doubles, any dtype; out holds entry->count. */
static inline void st_load_f64(double *out, const struct sf_st_entry *entry) {
  const size_t size_bytes = sf_dtype_wire_bytes(entry->dtype);
  for (int64_t i = 0; i < entry->count; i++) {
    const uint64_t bits = st_load_le(entry->bytes + (size_t)i * size_bytes, size_bytes);
    if (entry->dtype == SF_F64) {
      memcpy(&out[i], &bits, sizeof out[i]);
    } else if (sf_dtype_is_f8(entry->dtype)) {
      out[i] = (double)sf_f8_value((uint8_t)bits, entry->dtype);
    } else if (sf_dtype_is_packed(entry->dtype)) {
      out[i] = (double)(entry->dtype == SF_BF16 ? sf_bf16_value((uint16_t)bits) : sf_f16_value((uint16_t)bits));
    } else {
      const uint32_t single = (uint32_t)bits;
      float value;
      memcpy(&value, &single, sizeof value);
      out[i] = (double)value;
    }
  }
}

#endif
