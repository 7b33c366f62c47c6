#include "harness/spec/dtype.h"

#include "harness/base/assert.h"

/* In the order of enum sf_dtype. */
static const struct { const char *name, *file_name; size_t held_bytes, wire_bytes; double unit_roundoff, least_error; } DTYPES[] = {
    {"fp32", "F32", 4, 4, 0x1p-24, 0x1p-150},
    {"bf16", "BF16", 4, 2, 0x1p-8, 0x1p-134},
    {"fp16", "F16", 4, 2, 0x1p-11, 0x1p-25},
    {"fp64", "F64", 8, 8, 0x1p-53, 0},
    {"fp8_e4m3", "F8_E4M3", 4, 1, 0x1p-4, 0x1p-10},
    {"fp8_e5m2", "F8_E5M2", 4, 1, 0x1p-3, 0x1p-17},
};
SF_ASSERT_ENTRIES(DTYPES, SF_DTYPE_COUNT);

static enum sf_dtype checked(enum sf_dtype dtype) {
  SF_ASSERT_LT((unsigned)dtype, SF_DTYPE_COUNT);
  return dtype;
}

const char *sf_dtype_name(enum sf_dtype dtype) { return DTYPES[checked(dtype)].name; }
const char *sf_dtype_file_name(enum sf_dtype dtype) { return DTYPES[checked(dtype)].file_name; }
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
  if (sf_dtype_is_f8(dtype))
    for (int64_t i = 0; i < count; i++) values[i] = sf_f8_round(values[i], dtype);
}

/* E5M2 is the upper byte of fp16. E4M3's exponent has a bias of 7, fp32's one of 127. */
uint8_t sf_f8_bits(float value, enum sf_dtype dtype) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (dtype == SF_F8E5M2) return (uint8_t)(sf_f16_bits(value) >> 8);
  const uint32_t sign = bits >> 24 & 0x80u, size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return (uint8_t)(sign | 0x7fu);
  if (size < 0x3c800000u) return (uint8_t)(sign | (uint32_t)((value < 0 ? -value : value) * 0x1p9f));
  return (uint8_t)(sign | ((size >> 20) - (120u << 3)));
}

float sf_f8_value(uint8_t packed, enum sf_dtype dtype) {
  if (dtype == SF_F8E5M2) return sf_f16_value((uint16_t)(packed << 8));
  const uint32_t rest = packed & 0x7fu, sign = (uint32_t)(packed & 0x80u) << 24, nan = 0x7fc00000u;
  const float subnormal = (float)rest * 0x1p-9f;
  uint32_t bits = rest == 0x7fu ? nan : (rest << 20) + (120u << 23);
  if (rest < 8u) memcpy(&bits, &subnormal, sizeof bits);
  bits |= sign;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
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
