#include "oracles/ops/num.h"

static bool certain_nan(struct sf_num a) { return isnan(a.v) && a.e == 0; }
static bool certain_infinity(struct sf_num a) { return isinf(a.v) && a.e == 0; }
/* Whether the number is certain enough for IEEE arithmetic to define the result. */
static bool settled(struct sf_num a) { return sf_num_plain(a) || certain_infinity(a); }
static bool may_be_zero(struct sf_num a) { return fabs(a.v) <= a.e; }

struct sf_num sf_num_add_special(struct sf_num a, struct sf_num b) {
  if (certain_nan(a) || certain_nan(b)) return sf_num(NAN);
  if (!settled(a) || !settled(b)) return sf_num_unknown();
  return sf_num(a.v + b.v);
}

struct sf_num sf_num_mul_special(struct sf_num a, struct sf_num b) {
  if (certain_nan(a) || certain_nan(b)) return sf_num(NAN);
  if (!settled(a) || !settled(b)) return sf_num_unknown();
  const struct sf_num other = certain_infinity(a) ? b : a;
  if (sf_num_plain(other) && other.e > 0 && may_be_zero(other)) return sf_num_unknown();
  return sf_num(a.v * b.v);
}

struct sf_num sf_num_div_special(struct sf_num a, struct sf_num b) {
  if (certain_nan(a) || certain_nan(b)) return sf_num(NAN);
  if (!settled(a) || !settled(b)) return sf_num_unknown();
  if (certain_infinity(b)) return sf_num(a.v / b.v);
  if (may_be_zero(b) && (b.e > 0 || a.e > 0)) return sf_num_unknown();
  return sf_num(a.v / b.v);
}

struct sf_num sf_num_sqrt_special(struct sf_num a) {
  if (certain_nan(a)) return sf_num(NAN);
  if (!settled(a) || (a.e > 0 && a.v >= -a.e)) return sf_num_unknown();
  return sf_num(sqrt(a.v));
}

struct sf_num sf_num_exp_special(struct sf_num a) {
  if (certain_nan(a)) return sf_num(NAN);
  if (certain_infinity(a)) return sf_num(exp(a.v));
  /* From 89 on the exponential overflows; below -104 it is less than half of the smallest number. */
  if (a.v - a.e > 89) return sf_num(INFINITY);
  if (a.v + a.e < -104) return (struct sf_num){0, SF_NUM_TINY};
  if (a.v + a.e < 88) return (struct sf_num){exp(a.v), exp(a.v) * expm1(a.e) + 4 * SF_NUM_U * exp(a.v + a.e) + SF_NUM_TINY};
  return sf_num_unknown();
}

struct sf_num sf_num_sum_of(const struct sf_num_sum *sum) {
  if (certain_nan(sum->special)) return sf_num(NAN);
  if (!settled(sum->special) || !(sum->size < SF_NUM_RANGE)) return sf_num_unknown();
  if (certain_infinity(sum->special)) return sum->special;
  const double roundings = (double)(sum->count < 2 ? 0 : sum->count - 1) * SF_NUM_U;
  return (struct sf_num){sum->v, sum->e + roundings / (1 - roundings) * sum->size * (1 + SF_NUM_U)};
}
