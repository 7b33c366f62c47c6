/* exp and the normal distribution on all lanes, without libm and without FMA.
 *
 * Errors are the worst seen over one in eight of all fp32 arguments, against fp64; u = 2^-24, one ulp is up to 2 u. */
#ifndef SF_DEVICE_VEC_MATH_H
#define SF_DEVICE_VEC_MATH_H

#include "harness/device/polynomials.h"
#include "harness/device/vec.h"

/* exp(high + low), |low| <= 0.06 and small against 1. n ln 2 is taken off in two parts, the rest (below 0.42) goes into a minimax
 * polynomial of degree 6, and 2^n is put back as two factors, so that subnormal results are rounded once. */
SF_VEC_INLINE sf_vec sf_vec_exp2part(sf_vec high, sf_vec low) {
  const float shift = 12582912.0f;                                 /* 1.5 * 2^23: adding it rounds to an integer, found in the low bits */
  high = sf_vec_select(high > 89.0f, sf_vec_all(89.0f), high);     /* overflows all the same */
  high = sf_vec_select(high < -104.0f, sf_vec_all(-104.0f), high); /* gives zero all the same */
  const sf_vec shifted = high * 1.44269504f + shift;
  const sf_vec n = shifted - shift;
  const sf_vec r = ((high - n * 0.693359375f) + n * 2.12194440e-4f) + low;
  const sf_vec p = (r * r) * SF_EXP_POLYNOMIAL(r) + r;
  const sf_uvec exponent = (sf_uvec)shifted - 0x4b400000u;
  const sf_ivec half = (sf_ivec)exponent >> 1, rest = (sf_ivec)exponent - half;
  return ((p + 1.0f) * (sf_vec)((half + 127) << 23)) * (sf_vec)((rest + 127) << 23);
}

/* exp(x). Error: 1.02 ulp where the result is normal, 0.77 of the smallest subnormal below. exp(0) = 1 exactly; exp(-inf) = 0; NaN stays.
 */
SF_VEC_INLINE sf_vec sf_vec_exp(sf_vec x) { return sf_vec_exp2part(x, sf_vec_all(0.0f)); }

/* Phi(x), the probability of at most x, and phi(x), the density.
 * Computes: with a = |x|, exp(-a^2 / 2) from a = head + tail, where head^2 is exact; the tail probability is that times a smooth
 * function of (a - 4) / (a + 4), a minimax polynomial of degree 9. So the left tail has a small relative error too.
 * Error: 6.7 u relative on both sides, while the result is normal (x > -12.9); x Phi(x) 7.3 u; Phi + x phi 7.2 u of (Phi + |x phi|).
 * NaN stays. */
SF_VEC_INLINE void sf_vec_normal(sf_vec *cumulative, sf_vec *density, sf_vec x) {
  sf_vec a = (sf_vec)((sf_ivec)x & 0x7fffffff);
  a = sf_vec_select(a > 15.0f, sf_vec_all(15.0f), a); /* exp(-112.5) is zero */
  const sf_vec head = (sf_vec)((sf_ivec)a & (int32_t)0xfffff000u);
  const sf_vec e = sf_vec_exp2part(head * head * -0.5f, (a - head) * (a + head) * -0.5f);
  const sf_vec inverse = 1.0f / (a + 4.0f);
  const sf_vec t = (a - 4.0f) * inverse;
  const sf_vec outside = e * SF_NORMAL_POLYNOMIAL(t) * inverse;
  *cumulative = sf_vec_select(x < 0.0f, outside, 1.0f - outside);
  *density = e * 0.398942280f;
}

/* The logistic function and one minus it, both with a small relative error and no overflow. */
SF_VEC_INLINE void sf_vec_logistic(sf_vec *value, sf_vec *complement, sf_vec x) {
  const sf_vec e = sf_vec_exp((sf_vec)((sf_ivec)x | INT32_MIN)); /* exp(-|x|) */
  const sf_vec near_one = 1.0f / (1.0f + e), near_zero = e * near_one;
  *value = sf_vec_select(x < 0.0f, near_zero, near_one);
  *complement = sf_vec_select(x < 0.0f, near_one, near_zero);
}

#endif
