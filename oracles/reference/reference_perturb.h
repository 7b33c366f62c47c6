/* Template: how a perturbed run moves numbers. */
#ifndef SF_ORACLES_REFERENCE_PERTURB_H
#define SF_ORACLES_REFERENCE_PERTURB_H

#include "harness/spec/dtype.h"
#include "oracles/reference/reference_real.h"

/* Of the perturbation of values[i]. In streams with an even key each place has bits of its own. With an odd key equal numbers have equal
 * bits, as they have equal roundings: rows that are alike (few different tokens) move together, and a sum over them as far as each. */
static inline uint32_t noise_bits(uint64_t key, int64_t i, real value) {
  const uint32_t by_number = 0 - (uint32_t)(key & 1);
  uint32_t bits = (uint32_t)(key >> 32) + (((uint32_t)i & ~by_number) | (real_bits(value) & by_number)) * 0x9e3779b9U;
  bits = (bits ^ bits >> 16) * 0x85ebca6bU ^ (uint32_t)key;
  bits = (bits ^ bits >> 13) * 0xc2b2ae35U;
  return bits ^ bits >> 16;
}

/* x (1 + size v), v uniform in (-1, -least) and (least, 1). Subnormals move as the least normal number does, by the distance of two of
 * them; zeros stay. */
static inline void perturb(real *values, int64_t count, uint64_t key, double size, double least) {
  const real scale = (real)(size * (1 - least) / 8388608.0), step = (real)(size * least);
  for (int64_t i = 0; i < count; i++) {
    const int32_t bits = (int32_t)(noise_bits(key, i, values[i]) >> 8);
    const real v = ((real)bits - (real)8388607.5) * scale;
    const real magnitude = values[i] < 0 ? -values[i] : values[i], moved = magnitude < (real)0x1p-126 ? (real)0x1p-126 : magnitude;
    const real of = values[i] == 0 ? 0 : values[i] < 0 ? -moved : moved;
    values[i] += of * (v < 0 ? v - step : v + step);
  }
}

/* A number that is in fp32 already stays where it is when moved by less than half an ulp: draws of v near zero would show nothing at all,
 * and a tensor that hangs on one number would seem exact in all of them too often. */
static inline void perturb_f32(real *values, int64_t count, uint64_t key) { perturb(values, count, key, 0x1p-23, 0.5); }

/* fp16's subnormals are 2^-24 apart: what is stored there moves by half of that at least. Zeros stay, being rounded to even. */
static inline void perturb_f16(real *values, int64_t count, uint64_t key) {
  const real unit = (real)sf_dtype_unit_roundoff(SF_F16), least = (real)sf_dtype_least_error(SF_F16);
  for (int64_t i = 0; i < count; i++) {
    const int32_t bits = (int32_t)(noise_bits(key, i, values[i]) >> 8);
    const real v = ((real)bits - (real)8388607.5) * (real)0x1p-23, size = (values[i] < 0 ? -values[i] : values[i]) * unit;
    values[i] += v * (size > least ? size : least);
  }
}

/* x + size sizes[i] v, v uniform in (-1, 1). */
static inline void perturb_by(real *values, int64_t count, uint64_t key, const float *sizes, double size) {
  for (int64_t i = 0; i < count; i++) {
    const int32_t bits = (int32_t)(noise_bits(key, i, values[i]) >> 8);
    values[i] += ((real)bits - (real)8388607.5) * (real)(size * 0x1p-23) * (real)sizes[i];
  }
}

/* Before a value is rounded to its format; fp32 is what it is computed in. */
static inline void perturb_stored(real *values, int64_t count, uint64_t key, enum sf_dtype format) {
  if (format == SF_BF16)
    perturb(values, count, key, 0x1p-8, 0);
  else if (format == SF_F16)
    perturb_f16(values, count, key);
  else
    perturb_f32(values, count, key);
}

#endif
