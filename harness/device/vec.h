/* Sixteen floats at a time. GNU vector types, so that one text gives AVX-512, AVX2 or SSE code with the same bits: every function here
 * and every kernel built on it does the same operations in the same order on every machine.
 *
 * A pointer's last, incomplete block is read and written with `left` < 16 lanes; lanes past it read as zero and are not written. */
#ifndef SF_DEVICE_VEC_H
#define SF_DEVICE_VEC_H

#include "harness/spec/dtype.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#ifdef __AVX__
#include <immintrin.h>
#endif

enum { SF_LANES = 16 };
typedef float sf_vec __attribute__((vector_size(64)));
typedef int32_t sf_ivec __attribute__((vector_size(64)));
typedef uint32_t sf_uvec __attribute__((vector_size(64)));
#define SF_VEC_INLINE static inline __attribute__((always_inline))

SF_VEC_INLINE sf_vec sf_vec_all(float x) { return (sf_vec){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }
SF_VEC_INLINE sf_ivec sf_vec_lane_numbers(void) { return (sf_ivec){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}; }

SF_VEC_INLINE sf_vec sf_vec_load16(const float *at) {
  sf_vec v;
  memcpy(&v, at, sizeof v);
  return v;
}
SF_VEC_INLINE void sf_vec_store16(float *at, sf_vec v) { memcpy(at, &v, sizeof v); }

#ifdef __AVX__
union sf_vec_halves { /* a block as AVX's masked loads and stores take it */
  sf_vec vec;
  sf_ivec mask;
  __m256 floats[2];
  __m256i ints[2];
};
#endif

/* The first `left` lanes, 1..15. Masked where the machine can: a loop over lanes would cost more than the block itself. */
SF_VEC_INLINE sf_vec sf_vec_load_first(const float *at, int64_t left) {
#ifdef __AVX512F__
  return (sf_vec)_mm512_maskz_loadu_ps((__mmask16)((1u << left) - 1u), at);
#elif defined(__AVX__)
  const union sf_vec_halves mask = {.mask = sf_vec_lane_numbers() < (int32_t)left};
  const union sf_vec_halves halves = {.floats = {_mm256_maskload_ps(at, mask.ints[0]), _mm256_maskload_ps(at + 8, mask.ints[1])}};
  return halves.vec;
#else
  sf_vec v = {0};
  for (int64_t i = 0; i < SF_LANES - 1 && i < left; i++) v[i] = at[i];
  return v;
#endif
}
SF_VEC_INLINE void sf_vec_store_first(float *at, int64_t left, sf_vec v) {
#ifdef __AVX512F__
  _mm512_mask_storeu_ps(at, (__mmask16)((1u << left) - 1u), (__m512)v);
#elif defined(__AVX__)
  const union sf_vec_halves mask = {.mask = sf_vec_lane_numbers() < (int32_t)left}, halves = {.vec = v};
  _mm256_maskstore_ps(at, mask.ints[0], halves.floats[0]);
  _mm256_maskstore_ps(at + 8, mask.ints[1], halves.floats[1]);
#else
  for (int64_t i = 0; i < SF_LANES - 1 && i < left; i++) at[i] = v[i];
#endif
}

SF_VEC_INLINE sf_vec sf_vec_load(const float *at, int64_t left) {
  return left >= SF_LANES ? sf_vec_load16(at) : sf_vec_load_first(at, left);
}
SF_VEC_INLINE void sf_vec_store(float *at, int64_t left, sf_vec v) {
  if (left >= SF_LANES)
    sf_vec_store16(at, v);
  else
    sf_vec_store_first(at, left, v);
}

/* mask lanes are 0 or -1, as comparisons give them. */
SF_VEC_INLINE sf_vec sf_vec_select(sf_ivec mask, sf_vec yes, sf_vec no) { return (sf_vec)(((sf_ivec)yes & mask) | ((sf_ivec)no & ~mask)); }

/* The first `left` lanes of v, `rest` in the others. */
SF_VEC_INLINE sf_vec sf_vec_keep_first(sf_vec v, int64_t left, float rest) {
  const int32_t count = left < SF_LANES ? (int32_t)left : SF_LANES;
  return sf_vec_select(sf_vec_lane_numbers() < count, v, sf_vec_all(rest));
}

/* A NaN in either operand: the second one is given. */
SF_VEC_INLINE sf_vec sf_vec_max(sf_vec a, sf_vec b) { return sf_vec_select(a > b, a, b); }

/* Fixed order: halves, quarters, eighths, pairs. */
SF_VEC_INLINE float sf_vec_sum(sf_vec v) {
  v += __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
  v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3);
  return (v[0] + v[2]) + (v[1] + v[3]);
}
SF_VEC_INLINE float sf_vec_max_lane(sf_vec v) {
  v = sf_vec_max(v, __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  v = sf_vec_max(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3));
  const float low = v[0] > v[2] ? v[0] : v[2], high = v[1] > v[3] ? v[1] : v[3];
  return low > high ? low : high;
}

SF_VEC_INLINE sf_vec sf_vec_round_f16(sf_vec v) {
  const sf_uvec bits = (sf_uvec)v, sign = bits & 0x80000000u, size = bits & 0x7fffffffu;
  const sf_uvec rounded = (size + 0xfffu + ((size >> 13) & 1u)) & 0xffffe000u, quiet = (size | 0x00400000u) & 0xffffe000u;
  const sf_vec finite = sf_vec_select(rounded > 0x477fe000u, sf_vec_all(__builtin_inff()), (sf_vec)rounded);
  const sf_vec normal = sf_vec_select(v != v, (sf_vec)quiet, finite);
  const sf_vec small = ((sf_vec)size + 0.5f) - 0.5f;
  return (sf_vec)((sf_uvec)sf_vec_select(size < 0x38800000u, small, normal) | sign);
}

SF_VEC_INLINE sf_vec sf_vec_round_f8(sf_vec v, enum sf_dtype store) {
  const struct sf_f8_grid grid = sf_f8_grid_of(store);
  const sf_uvec bits = (sf_uvec)v, sign = bits & 0x80000000u, size = bits & 0x7fffffffu;
  const uint32_t unit = 1u << grid.cut_bits;
  const sf_uvec rounded = (size + (unit / 2 - 1) + (size >> grid.cut_bits & 1u)) & ~(unit - 1);
  const sf_vec largest = sf_vec_all(sf_f8_largest(store));
  const sf_vec finite = sf_vec_select(rounded > grid.largest, largest, (sf_vec)rounded);
  const sf_vec normal = sf_vec_select(v != v, sf_vec_all(__builtin_nanf("")), finite);
  const sf_vec small = ((sf_vec)size + grid.subnormal_anchor) - grid.subnormal_anchor;
  return (sf_vec)((sf_uvec)sf_vec_select(size < grid.normal_from, small, normal) | sign);
}

/* sf_round on sixteen lanes: the same bits as sf_bf16_round, sf_f16_round and sf_f8_round. */
SF_VEC_INLINE sf_vec sf_vec_round(sf_vec v, enum sf_dtype store) {
  if (store == SF_F32) return v;
  if (store == SF_F16) return sf_vec_round_f16(v);
  if (sf_dtype_is_f8(store)) return sf_vec_round_f8(v, store);
  const sf_uvec bits = (sf_uvec)v;
  const sf_uvec rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
  const sf_uvec quiet = (bits | 0x00400000u) & 0xffff0000u;
  return sf_vec_select(v != v, (sf_vec)quiet, (sf_vec)rounded);
}

#endif
