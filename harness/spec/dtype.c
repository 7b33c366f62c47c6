#include "harness/spec/dtype.h"

#include "harness/base/assert.h"

static const struct { const char *name; size_t held_bytes, wire_bytes; double unit_roundoff; } DTYPES[SF_DTYPE_COUNT] = {
    [SF_F32] = {"fp32", 4, 4, 0x1p-24},
    [SF_BF16] = {"bf16", 4, 2, 0x1p-8},
    [SF_F64] = {"fp64", 8, 8, 0x1p-53},
};

static enum sf_dtype checked(enum sf_dtype dtype) {
  SF_ASSERT_LT((unsigned)dtype, SF_DTYPE_COUNT);
  return dtype;
}

const char *sf_dtype_name(enum sf_dtype dtype) { return DTYPES[checked(dtype)].name; }
size_t sf_dtype_held_bytes(enum sf_dtype dtype) { return DTYPES[checked(dtype)].held_bytes; }
size_t sf_dtype_wire_bytes(enum sf_dtype dtype) { return DTYPES[checked(dtype)].wire_bytes; }
double sf_dtype_unit_roundoff(enum sf_dtype dtype) { return DTYPES[checked(dtype)].unit_roundoff; }

void sf_round_array(float *values, int64_t count, enum sf_dtype dtype) {
  SF_ASSERT(dtype != SF_F64);
  if (dtype != SF_BF16) return;
  for (int64_t i = 0; i < count; i++) values[i] = sf_bf16_round(values[i]);
}

/* A value off the grid would be cut instead of rounded; the caller has stored it, so its low bits are zero. */
void sf_bf16_pack(uint16_t *out, const float *values, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    uint32_t bits;
    memcpy(&bits, &values[i], sizeof bits);
    out[i] = (uint16_t)(bits >> 16);
  }
}

void sf_bf16_unpack(float *out, const uint16_t *packed, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    const uint32_t bits = (uint32_t)packed[i] << 16;
    memcpy(&out[i], &bits, sizeof bits);
  }
}
