#include "harness/spec/dtype.h"

#include "harness/base/assert.h"

static const struct { const char *name; size_t held_bytes, wire_bytes; double unit_roundoff, least_error; } DTYPES[SF_DTYPE_COUNT] = {
    [SF_F32] = {"fp32", 4, 4, 0x1p-24, 0x1p-150},
    [SF_BF16] = {"bf16", 4, 2, 0x1p-8, 0x1p-134},
    [SF_F16] = {"fp16", 4, 2, 0x1p-11, 0x1p-25},
    [SF_F64] = {"fp64", 8, 8, 0x1p-53, 0},
};

static enum sf_dtype checked(enum sf_dtype dtype) {
  SF_ASSERT_LT((unsigned)dtype, SF_DTYPE_COUNT);
  return dtype;
}

const char *sf_dtype_name(enum sf_dtype dtype) { return DTYPES[checked(dtype)].name; }
size_t sf_dtype_held_bytes(enum sf_dtype dtype) { return DTYPES[checked(dtype)].held_bytes; }
size_t sf_dtype_wire_bytes(enum sf_dtype dtype) { return DTYPES[checked(dtype)].wire_bytes; }
double sf_dtype_unit_roundoff(enum sf_dtype dtype) { return DTYPES[checked(dtype)].unit_roundoff; }
double sf_dtype_least_error(enum sf_dtype dtype) { return DTYPES[checked(dtype)].least_error; }

void sf_round_array(float *values, int64_t count, enum sf_dtype dtype) {
  SF_ASSERT(dtype != SF_F64);
  if (dtype == SF_BF16)
    for (int64_t i = 0; i < count; i++) values[i] = sf_bf16_round(values[i]);
  if (dtype == SF_F16)
    for (int64_t i = 0; i < count; i++) values[i] = sf_f16_round(values[i]);
}

void sf_pack(uint16_t *out, const float *values, int64_t count, enum sf_dtype dtype) {
  SF_ASSERT(sf_dtype_is_packed(dtype));
  if (dtype == SF_BF16)
    for (int64_t i = 0; i < count; i++) out[i] = sf_bf16_bits(values[i]);
  else
    for (int64_t i = 0; i < count; i++) out[i] = sf_f16_bits(values[i]);
}

void sf_unpack(float *out, const uint16_t *packed, int64_t count, enum sf_dtype dtype) {
  SF_ASSERT(sf_dtype_is_packed(dtype));
  if (dtype == SF_BF16)
    for (int64_t i = 0; i < count; i++) out[i] = sf_bf16_value(packed[i]);
  else
    for (int64_t i = 0; i < count; i++) out[i] = sf_f16_value(packed[i]);
}
