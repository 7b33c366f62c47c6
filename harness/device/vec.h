/* As many floats at a time as a register of the machine holds: 16 with AVX-512, 8 with AVX2, else 4 (compilers take a vector that is wider
 * apart, through memory). GNU vector types, so that one text serves all. Each element is worked on alike wherever it stands, and sums run
 * in SF_SUM_LANES lanes whatever the width: every function here and every kernel built on it gives the same bits on every machine.
 *
 * A pointer's last, incomplete block is read and written with `left` < SF_LANES lanes; lanes past it read as zero and are not written. */
#ifndef SF_DEVICE_VEC_H
#define SF_DEVICE_VEC_H

#include "harness/spec/dtype.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#define SF_LANES 16
#define SF_LANE_NUMBERS 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
#elif defined(__AVX2__)
#define SF_LANES 8
#define SF_LANE_NUMBERS 0, 1, 2, 3, 4, 5, 6, 7
#else
#define SF_LANES 4
#define SF_LANE_NUMBERS 0, 1, 2, 3
#endif
#if SF_LANES > 4 || defined(__FMA__)
#include <immintrin.h>
#endif

typedef float sf_vec __attribute__((vector_size(SF_LANES * 4)));
typedef int32_t sf_ivec __attribute__((vector_size(SF_LANES * 4)));
typedef uint32_t sf_uvec __attribute__((vector_size(SF_LANES * 4)));
#define SF_VEC_INLINE static inline __attribute__((always_inline))

/* x in every lane. */
SF_VEC_INLINE sf_vec sf_vec_all(float x) { return x - (sf_vec){0}; }
SF_VEC_INLINE sf_ivec sf_vec_lane_numbers(void) { return (sf_ivec){SF_LANE_NUMBERS}; } /* 0, 1, 2, ... */

/* SF_LANES elements, at any alignment. */
SF_VEC_INLINE sf_vec sf_vec_load_whole(const float *at) {
  sf_vec v;
  memcpy(&v, at, sizeof v);
  return v;
}
SF_VEC_INLINE void sf_vec_store_whole(float *at, sf_vec v) { memcpy(at, &v, sizeof v); }

/* The first `left` lanes, 1..SF_LANES - 1. Masked where the machine can: a loop over lanes would cost more than the block itself. */
SF_VEC_INLINE sf_vec sf_vec_load_first(const float *at, int64_t left) {
#if SF_LANES == 16
  return (sf_vec)_mm512_maskz_loadu_ps((__mmask16)((1u << left) - 1u), at);
#elif SF_LANES == 8
  return (sf_vec)_mm256_maskload_ps(at, (__m256i)(sf_vec_lane_numbers() < (int32_t)left));
#else
  sf_vec v = {0};
  for (int64_t i = 0; i < SF_LANES - 1 && i < left; i++) v[i] = at[i];
  return v;
#endif
}
SF_VEC_INLINE void sf_vec_store_first(float *at, int64_t left, sf_vec v) {
#if SF_LANES == 16
  _mm512_mask_storeu_ps(at, (__mmask16)((1u << left) - 1u), (__m512)v);
#elif SF_LANES == 8
  _mm256_maskstore_ps(at, (__m256i)(sf_vec_lane_numbers() < (int32_t)left), (__m256)v);
#else
  for (int64_t i = 0; i < SF_LANES - 1 && i < left; i++) at[i] = v[i];
#endif
}

/* The next SF_LANES of `left` elements, or what is left of them: other lanes are 0, and nothing behind is read or written. left > 0. */
SF_VEC_INLINE sf_vec sf_vec_load(const float *at, int64_t left) {
  return left >= SF_LANES ? sf_vec_load_whole(at) : sf_vec_load_first(at, left);
}
SF_VEC_INLINE void sf_vec_store(float *at, int64_t left, sf_vec v) {
  if (left >= SF_LANES)
    sf_vec_store_whole(at, v);
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

/* a b + c, rounded once where the machine can, on all lanes alike. */
SF_VEC_INLINE sf_vec sf_vec_multiply_add(sf_vec a, sf_vec b, sf_vec c) {
#if SF_LANES == 16
  return (sf_vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif SF_LANES == 8 && defined(__FMA__)
  return (sf_vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__FMA__)
  return (sf_vec)_mm_fmadd_ps((__m128)a, (__m128)b, (__m128)c);
#else
  return a * b + c;
#endif
}

/* A NaN in either operand: the second one is given. */
SF_VEC_INLINE sf_vec sf_vec_max(sf_vec a, sf_vec b) { return sf_vec_select(a > b, a, b); }

/* Four floats, on which sums and maxima over lanes end. */
typedef float sf_quad __attribute__((vector_size(16)));
typedef int32_t sf_quad_mask __attribute__((vector_size(16)));

/* Lanes [4 which, 4 which + 4). */
SF_VEC_INLINE sf_quad sf_vec_quad(sf_vec v, int which) {
  sf_quad quad;
  memcpy(&quad, (const char *)&v + which * (int)sizeof quad, sizeof quad);
  return quad;
}

/* The largest lane. No lane may be NaN. */
SF_VEC_INLINE float sf_vec_max_lane(sf_vec v) {
  sf_quad most = sf_vec_quad(v, 0);
  for (int i = 1; i < SF_LANES / 4; i++) {
    const sf_quad next = sf_vec_quad(v, i);
    const sf_quad_mask above = most > next;
    most = (sf_quad)(((sf_quad_mask)most & above) | ((sf_quad_mask)next & ~above));
  }
  const float low = most[0] > most[2] ? most[0] : most[2], high = most[1] > most[3] ? most[1] : most[3];
  return low > high ? low : high;
}

/* Running sums of a row in sixteen lanes: element j goes to lane j % 16, which is in part p of the columns [j, j + SF_LANES). */
enum { SF_SUM_LANES = 16, SF_PARTS = SF_SUM_LANES / SF_LANES };
struct sf_sums {
  sf_vec part[SF_PARTS];
};
#define SF_EACH_PART(p, j, first, end)                                                                                                     \
  for (int64_t sf_block = (first); sf_block < (end); sf_block += SF_SUM_LANES)                                                             \
    _Pragma("GCC unroll 4") for (int64_t p = 0, j = sf_block; p < SF_PARTS && j < (end); p++, j += SF_LANES)

/* Adds sixteen elements. */
SF_VEC_INLINE void sf_sums_add_whole(struct sf_sums *sums, const float *at) {
  for (int p = 0; p < SF_PARTS; p++) sums->part[p] += sf_vec_load_whole(at + p * SF_LANES);
}

/* Adds lane by lane. */
SF_VEC_INLINE void sf_sums_merge(struct sf_sums *into, const struct sf_sums *other) {
  for (int p = 0; p < SF_PARTS; p++) into->part[p] += other->part[p];
}

/* Fixed order: halves, quarters, eighths, pairs. */
SF_VEC_INLINE float sf_sums_total(const struct sf_sums *sums) {
  sf_quad quad[SF_SUM_LANES / 4];
  memcpy(quad, sums, sizeof quad);
  const sf_quad sum = (quad[0] + quad[2]) + (quad[1] + quad[3]);
  return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

/* sf_f16_round of every lane: the same bits. */
SF_VEC_INLINE sf_vec sf_vec_round_f16(sf_vec v) {
  const sf_uvec bits = (sf_uvec)v, sign = bits & 0x80000000u, size = bits & 0x7fffffffu;
  const sf_uvec rounded = (size + 0xfffu + ((size >> 13) & 1u)) & 0xffffe000u, quiet = (size | 0x00400000u) & 0xffffe000u;
  const sf_vec finite = sf_vec_select(rounded > 0x477fe000u, sf_vec_all(__builtin_inff()), (sf_vec)rounded);
  const sf_vec normal = sf_vec_select(v != v, (sf_vec)quiet, finite);
  const sf_vec small = ((sf_vec)size + 0.5f) - 0.5f;
  return (sf_vec)((sf_uvec)sf_vec_select(size < 0x38800000u, small, normal) | sign);
}

/* sf_f8_round of every lane: the same bits. */
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

/* sf_round on each lane: the same bits as sf_bf16_round, sf_f16_round and sf_f8_round. */
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
