/* Numbers that carry a bound of their own error: a value in fp64, and how far a computation of the same formula in fp32 may be from it.
 *
 * Each operation below adds the rounding of one fp32 operation to the errors that its operands bring along (running error analysis, Higham
 * 2002, section 3.3), so that a reference written in these numbers yields the bound of its own outputs; no bound is set by hand. Sums are
 * bounded for any order and any lanes, an exponential for two units in the last place.
 *
 * What fp32 makes of NaN and infinity follows IEEE arithmetic where it is certain. Where it is not (a finite value beyond fp32's range is
 * used further; infinity times what may have been rounded to zero; a sum whose partial sums may overflow) the error is infinite: not to be
 * judged. */
#ifndef SF_ORACLES_OPS_NUM_H
#define SF_ORACLES_OPS_NUM_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#define SF_NUM_U 0x1p-24          /* unit roundoff of fp32 */
#define SF_NUM_TINY 0x1p-149      /* at least what rounding moves a subnormal by */
#define SF_NUM_RANGE 0x1.ffffffp127 /* from here on fp32 rounds to infinity */

struct sf_num {
  double v, e; /* the value, and the bound of its error: at least 0, infinite where nothing is known */
};

/* The same operations where an operand is NaN, infinite, beyond fp32's range, or unknown; of exp also where it may overflow. */
struct sf_num sf_num_add_special(struct sf_num a, struct sf_num b);
struct sf_num sf_num_mul_special(struct sf_num a, struct sf_num b);
struct sf_num sf_num_div_special(struct sf_num a, struct sf_num b);
struct sf_num sf_num_sqrt_special(struct sf_num a);
struct sf_num sf_num_exp_special(struct sf_num a);

/* An exact number; v may be NaN or infinite. */
static inline struct sf_num sf_num(double v) { return (struct sf_num){v, 0}; }
static inline struct sf_num sf_num_unknown(void) { return (struct sf_num){0, INFINITY}; } /* not to be judged */
/* Finite, in range and known. */
static inline bool sf_num_plain(struct sf_num a) { return fabs(a.v) + a.e < SF_NUM_RANGE; }

/* One fp32 operation each; neg is exact. Error: what the operands' errors make, and one rounding of the result. */
static inline struct sf_num sf_num_add(struct sf_num a, struct sf_num b) {
  if (!sf_num_plain(a) || !sf_num_plain(b)) return sf_num_add_special(a, b);
  const double v = a.v + b.v, e = a.e + b.e;
  return (struct sf_num){v, e + SF_NUM_U * (fabs(v) + e)};
}
static inline struct sf_num sf_num_neg(struct sf_num a) { return (struct sf_num){-a.v, a.e}; }
static inline struct sf_num sf_num_sub(struct sf_num a, struct sf_num b) { return sf_num_add(a, sf_num_neg(b)); }

/* Error: the same, and one subnormal where the product may have become one. */
static inline struct sf_num sf_num_mul(struct sf_num a, struct sf_num b) {
  if (!sf_num_plain(a) || !sf_num_plain(b)) return sf_num_mul_special(a, b);
  const double v = a.v * b.v, e = fabs(a.v) * b.e + (fabs(b.v) + b.e) * a.e;
  return (struct sf_num){v, e + SF_NUM_U * (fabs(v) + e) + (v == 0 && e == 0 ? 0 : SF_NUM_TINY)};
}

/* Error: as sf_num_mul. */
static inline struct sf_num sf_num_div(struct sf_num a, struct sf_num b) {
  if (!sf_num_plain(a) || !sf_num_plain(b) || fabs(b.v) <= b.e) return sf_num_div_special(a, b);
  const double v = a.v / b.v, e = (a.e + fabs(v) * b.e) / (fabs(b.v) - b.e);
  return (struct sf_num){v, e + SF_NUM_U * (fabs(v) + e) + SF_NUM_TINY};
}

/* Error: what the operand's error makes towards zero, and one rounding. */
static inline struct sf_num sf_num_sqrt(struct sf_num a) {
  if (!sf_num_plain(a) || !(a.v >= a.e)) return sf_num_sqrt_special(a);
  const double v = sqrt(a.v), e = a.e > 0 ? v - sqrt(a.v - a.e) : 0;
  return (struct sf_num){v, e + SF_NUM_U * (v + e)};
}

/* Error: two units in the last place (4 u), one subnormal, and what the argument's error makes. */
static inline struct sf_num sf_num_exp(struct sf_num a) {
  if (!sf_num_plain(a) || a.v > 88 || a.e > 32) return sf_num_exp_special(a);
  const double v = exp(a.v), grown = a.e < 0.25 ? a.e * (1 + a.e) : expm1(a.e);
  return (struct sf_num){v, v * grown + 4 * SF_NUM_U * v * (1 + grown) + (a.v == 0 && a.e == 0 ? 0 : SF_NUM_TINY)};
}

/* A sum of any order: at most count roundings, each of a partial sum that is at most the sum of sizes. */
struct sf_num_sum {
  double v, size, e;
  int64_t count;
  struct sf_num special; /* sum of what is not plain */
};
/* Begins with a zeroed sum. */
static inline void sf_num_sum_add(struct sf_num_sum *sum, struct sf_num a) {
  if (!sf_num_plain(a)) {
    sum->special = sf_num_add_special(sum->special, a);
    return;
  }
  sum->v += a.v;
  sum->size += fabs(a.v) + a.e;
  sum->e += a.e;
  sum->count++;
}
/* The sum of what was added. Error: the terms' errors, and count - 1 roundings of the sum of their sizes. */
struct sf_num sf_num_sum_of(const struct sf_num_sum *sum);
/* The sum divided by count, which fp32 must hold exactly: one more rounding. */
static inline struct sf_num sf_num_mean_of(const struct sf_num_sum *sum, int64_t count) {
  return sf_num_div(sf_num_sum_of(sum), sf_num((double)count));
}

#endif
