/* Number formats and their rounding.
 *
 * On the host a tensor of format fp32, bf16, fp16 or fp8 is held as an array of `float`; a bf16, fp16 or fp8 tensor's values lie on
 * that format's grid. "Storing" a value means rounding it to the grid. Only fp64 is held as `double`. What moves bytes (MPI, files)
 * packs a bf16 or fp16 value into two, an fp8 value into one. The two fp8 formats are those of Micikevicius et al. 2022, arXiv
 * 2209.05433: E4M3 has no infinity, and both are cast with saturation, as Transformer Engine casts. fp8 does not travel. */
#ifndef SF_SPEC_DTYPE_H
#define SF_SPEC_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Rounding is compiled for GPUs too, from the same text. */
#ifdef __CUDACC__
#define SF_ANYWHERE __host__ __device__ static inline
#else
#define SF_ANYWHERE static inline
#endif

enum sf_dtype { SF_F32, SF_BF16, SF_F16, SF_F64, SF_F8E4M3, SF_F8E5M2, SF_DTYPE_COUNT, SF_WIRE_DTYPE_COUNT = SF_F8E4M3 };

const char *sf_dtype_name(enum sf_dtype dtype);          /* "fp32", "bf16", "fp16", "fp64", "fp8_e4m3", "fp8_e5m2" */
const char *sf_dtype_file_name(enum sf_dtype dtype);     /* in safetensors: "F32", "BF16", "F16", "F64", "F8_E4M3", "F8_E5M2" */
size_t sf_dtype_held_bytes(enum sf_dtype dtype);          /* of one element in host memory: 4, 4, 4, 8, 4, 4 */
size_t sf_dtype_wire_bytes(enum sf_dtype dtype);          /* of one element on a wire or in a file: 4, 2, 2, 8, 1, 1 */
double sf_dtype_unit_roundoff(enum sf_dtype dtype);       /* 2^-24, 2^-8, 2^-11, 2^-53, 2^-4, 2^-3 */
/* The most that rounding may move a value however small: half the distance of subnormals. 2^-150, 2^-134, 2^-25, 2^-1075 (as 0), 2^-10,
 * 2^-17. */
double sf_dtype_least_error(enum sf_dtype dtype);
static inline bool sf_dtype_is_packed(enum sf_dtype dtype) { return dtype == SF_BF16 || dtype == SF_F16; } /* two bytes on a wire */

/* Nearest bf16 value, ties to even; NaN stays a (quiet) NaN, overflow gives infinity, subnormals are kept. */
SF_ANYWHERE float sf_bf16_round(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  const uint32_t nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
  const uint32_t quiet = (bits | 0x00400000u) & 0xffff0000u;
  bits = nan ? quiet : rounded;
  memcpy(&x, &bits, sizeof bits);
  return x;
}

/* One of the two neighbours of x in bf16 (x itself, if it is one): the one away from zero where the lower 16 bits of x and `random` carry,
 * so with probability lower bits / 2^16 if random is uniform; x is then right on average. Beyond the largest bf16 number that neighbour is
 * infinity. Infinities stay, NaN stays a (quiet) NaN. */
SF_ANYWHERE float sf_bf16_round_stochastic(float x, uint16_t random) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  const uint32_t nan = (bits & 0x7fffffffu) > 0x7f800000u;
  bits = (nan ? bits | 0x00400000u : bits + random) & 0xffff0000u; /* an infinity has no lower bits to carry */
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* Nearest fp16 value, ties to even: 11 bits from 2^-14, multiples of 2^-24 below; from 65520 on infinity. NaN stays a (quiet) NaN. */
SF_ANYWHERE float sf_f16_round(float x) {
  uint32_t bits, small_bits;
  memcpy(&bits, &x, sizeof bits);
  const uint32_t sign = bits & 0x80000000u, size = bits & 0x7fffffffu;
  const uint32_t rounded = (size + 0xfffu + ((size >> 13) & 1u)) & 0xffffe000u;
  const uint32_t normal = size > 0x7f800000u ? (size | 0x00400000u) & 0xffffe000u : rounded > 0x477fe000u ? 0x7f800000u : rounded;
  float small;
  memcpy(&small, &size, sizeof small);
  small = (small + 0.5f) - 0.5f; /* fp32 numbers from 1/2 on are 2^-24 apart */
  memcpy(&small_bits, &small, sizeof small_bits);
  bits = sign | (size < 0x38800000u ? small_bits : normal);
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* Parts of the fp8 formats as fp32 bits: how many of the mantissa's go, where subnormals end, the largest number. */
struct sf_f8_grid {
  uint32_t cut_bits, normal_from, largest;
  float subnormal_anchor; /* fp32 numbers from here on are as far apart as the subnormals */
};
/* Here and below, dtype is one of the two fp8 formats. */
SF_ANYWHERE struct sf_f8_grid sf_f8_grid_of(enum sf_dtype dtype) {
  return dtype == SF_F8E4M3 ? (struct sf_f8_grid){20, 0x3c800000u, 0x43e00000u, 0x1p14f}
                            : (struct sf_f8_grid){21, 0x38800000u, 0x47600000u, 0x1p7f};
}
SF_ANYWHERE float sf_f8_largest(enum sf_dtype dtype) { return dtype == SF_F8E4M3 ? 448.0f : 57344.0f; } /* finite */

/* Nearest E4M3 or E5M2 value, ties to even. E4M3: 4 bits from 2^-6, multiples of 2^-9 below, at most 448; E5M2: 3 bits from 2^-14,
 * multiples of 2^-16 below, at most 57344. Larger numbers and infinity give the largest; NaN stays a (quiet) NaN. */
SF_ANYWHERE float sf_f8_round(float x, enum sf_dtype dtype) {
  const struct sf_f8_grid grid = sf_f8_grid_of(dtype);
  uint32_t bits, small_bits;
  memcpy(&bits, &x, sizeof bits);
  const uint32_t sign = bits & 0x80000000u, size = bits & 0x7fffffffu, unit = 1u << grid.cut_bits;
  const uint32_t rounded = (size + unit / 2 - 1 + (size >> grid.cut_bits & 1u)) & ~(unit - 1);
  const uint32_t normal = size > 0x7f800000u ? 0x7fc00000u : rounded > grid.largest ? grid.largest : rounded;
  float small;
  memcpy(&small, &size, sizeof small);
  small = (small + grid.subnormal_anchor) - grid.subnormal_anchor;
  memcpy(&small_bits, &small, sizeof small_bits);
  bits = sign | (size < grid.normal_from ? small_bits : normal);
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* Whether dtype is one of the two. */
SF_ANYWHERE bool sf_dtype_is_f8(enum sf_dtype dtype) { return dtype == SF_F8E4M3 || dtype == SF_F8E5M2; }

/* Stores a value: the nearest one of the format as the function of that format above gives it. fp32 and fp64 leave x as it is. */
SF_ANYWHERE float sf_round(float x, enum sf_dtype dtype) {
  return dtype == SF_BF16 ? sf_bf16_round(x) : dtype == SF_F16 ? sf_f16_round(x) : sf_dtype_is_f8(dtype) ? sf_f8_round(x, dtype) : x;
}

/* A value on the grid <-> its two bytes. A value off the grid is cut, not rounded. */
SF_ANYWHERE uint16_t sf_bf16_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)(bits >> 16);
}

/* The value of two bytes, exactly; any NaN keeps its bits. */
static inline float sf_bf16_value(uint16_t packed) {
  const uint32_t bits = (uint32_t)packed << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* As sf_bf16_bits. The exponent's bias is 127 in fp32 and 15 here. */
SF_ANYWHERE uint16_t sf_f16_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  const uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
  uint32_t rest = (size >> 13) - (112u << 10);
  if (size >= 0x7f800000u) rest = 0x7c00u | (size >> 13 & 0x3ffu);
  if (size < 0x38800000u) rest = (uint32_t)((value < 0 ? -value : value) * 0x1p24f);
  return (uint16_t)(sign | rest);
}

/* As sf_bf16_value, of fp16. */
static inline float sf_f16_value(uint16_t packed) {
  const uint32_t sign = (uint32_t)(packed & 0x8000u) << 16, rest = packed & 0x7fffu;
  const float subnormal = (float)rest * 0x1p-24f;
  uint32_t bits = rest < 0x7c00u ? (rest << 13) + (112u << 23) : 0x7f800000u | (rest & 0x3ffu) << 13;
  if (rest < 0x400u) memcpy(&bits, &subnormal, sizeof bits);
  bits |= sign;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* The same for fp8: a value's byte, and a byte's value. E4M3 has NaN at 7f and ff only, E5M2 infinity at 7c and fc and NaN above. */
uint8_t sf_f8_bits(float value, enum sf_dtype dtype);
float sf_f8_value(uint8_t packed, enum sf_dtype dtype);

/* sf_round of count floats, in place. */
void sf_round_array(float *values, int64_t count, enum sf_dtype dtype);
/* Two bytes for each of count values on the grid, and back. dtype: bf16 or fp16, else they assert. */
void sf_pack(uint16_t *out, const float *values, int64_t count, enum sf_dtype dtype);
void sf_unpack(float *out, const uint16_t *packed, int64_t count, enum sf_dtype dtype);

#endif
