/* Explanations by value: a factor, a term too many, another tensor's value, fewer bits. */
#include "oracles/diagnose/diagnose_fit.h"

#include "oracles/noise/norms.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool is_near(double a, double b, double accuracy) { return fabs(a - b) <= accuracy * fabs(b); }

/* --- scale ----------------------------------------------------------------------------------------------------- */

static void predict_scaled(struct sf_fit *fit, int32_t i, float *local, const void *ctx) {
  const double factor = *(const double *)ctx;
  const struct sf_fit_shard *s = &fit->shards[i];
  for (int64_t k = 0; k < s->rows * s->cols; k++) local[k] = (float)(factor * (double)s->x[k]);
}

/* <error or value, direction> / <direction, direction> over all shards; direction(i) fills fit->predicted. */
static double projection(struct sf_fit *fit, sf_fit_predict direction, const void *ctx, bool of_error) {
  double dot = 0, squares = 0;
  for (int32_t i = 0; i < fit->v->shard_count; i++) {
    const struct sf_fit_shard *s = &fit->shards[i];
    direction(fit, i, fit->predicted, ctx);
    for (int64_t k = 0; k < s->rows * s->cols; k++) {
      const double d = (double)fit->predicted[k], v = (double)s->shard->data[k] - (of_error ? (double)s->x[k] : 0.0);
      dot += d * v;
      squares += d * d;
    }
  }
  return squares > 0 ? dot / squares : 0;
}

static void predict_x(struct sf_fit *fit, int32_t i, float *local, const void *ctx) {
  (void)ctx;
  memcpy(local, fit->shards[i].x, (size_t)(fit->shards[i].rows * fit->shards[i].cols) * sizeof *local);
}

int64_t sf_fit_count_nonzero(const float *x, int64_t count) {
  int64_t nonzero = 0;
  for (int64_t i = 0; i < count; i++) nonzero += x[i] != 0;
  return nonzero;
}

/* What is related, without numbers. */
static const char *cause_of(const struct sf_diagnosis_related *related) { return related->cause != NULL ? related->cause : related->name; }

static void explain_scale(struct sf_fit *fit) {
  struct sf_factor by;
  const int64_t nonzero = sf_fit_count_nonzero(fit->v->x, fit->v->shape.rows * fit->v->shape.cols);
  const double factor = projection(fit, predict_x, NULL, false);
  if (factor == 0 || factor == 1) return;
  sf_factor_name(&by, fit->v, factor, 3 * fit->v->noise / fit->norm);
  if (by.cause == NULL && nonzero < 4) return; /* some factor fits any scalar */
  const double left = sf_fit_left(fit, predict_scaled, &factor);
  const enum sf_kind kind = fit->v->kind;
  const bool inside = kind == SF_KIND_ACT || kind == SF_KIND_ACT_GRAD || kind == SF_KIND_WGRAD;
  const char *axis = fit->v->tp_name;
  const int64_t size = fit->v->tp_size;
  /* No true factor inside a pass is the size of tp: the ranks' equal values were added, whichever rank holds the sum. */
  if (inside && size > 1 && is_near(factor, (double)size, 3 * fit->v->noise / fit->norm) && strcmp(by.names, axis) == 0)
    sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_EXTRA_REDUCTION, "equal values summed", axis}, left,
                 "the value is %s times what it should be: equal values of the ranks of %s are summed once too often", by.text, axis);
  sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_SCALE, by.cause != NULL ? "scaled" : NULL, by.cause}, left, "scaled by %s", by.text);
}

/* Each logical row has a factor of its own. */
static void predict_row_scale(struct sf_fit *fit, int32_t i, float *local, const void *ctx) {
  const double *factors = ctx;
  const struct sf_fit_shard *s = &fit->shards[i];
  for (int64_t k = 0; k < s->rows * s->cols; k++) local[k] = (float)(factors[s->shard->at[k] / fit->v->shape.cols] * (double)s->x[k]);
}

/* Explains activations of which each token was multiplied by a number of its own, such as a router's weight, or of which that was
 * forgotten. It needs rows of some length, since a factor fits a short row by chance. Where most rows are right it says nothing: the list
 * of wrong rows tells more. */
static void explain_row_scales(struct sf_fit *fit) {
  enum { COLUMNS_MIN = 4 };
  const struct sf_shape shape = fit->v->shape;
  const bool of_tokens = fit->v->kind == SF_KIND_ACT || fit->v->kind == SF_KIND_ACT_GRAD;
  if (!of_tokens || shape.rows < 2 || shape.cols < COLUMNS_MIN || fit->replicas_differ) return;
  double *factors = sf_fit_alloc(fit, (size_t)shape.rows * sizeof *factors),
         *squares = sf_fit_alloc(fit, (size_t)shape.rows * sizeof *squares);
  if (factors == NULL || squares == NULL) return;
  int64_t off = 0, farthest = 0;
  bool all_equal = true;
  for (int64_t r = 0; r < shape.rows; r++) factors[r] = squares[r] = 0;
  for (int32_t i = 0; i < fit->v->shard_count; i++) {
    const struct sf_fit_shard *s = &fit->shards[i];
    for (int64_t k = 0; k < s->rows * s->cols; k++) {
      const int64_t row = s->shard->at[k] / shape.cols;
      factors[row] += (double)s->shard->data[k] * (double)s->x[k];
      squares[row] += (double)s->x[k] * (double)s->x[k];
    }
  }
  for (int64_t r = 0; r < shape.rows; r++) {
    factors[r] = squares[r] > 0 ? factors[r] / squares[r] : 1;
    off += !is_near(factors[r], 1, 3 * fit->v->noise / fit->norm);
    all_equal &= is_near(factors[r], factors[0], 3 * fit->v->noise / fit->norm);
    if (fabs(factors[r] - 1) > fabs(factors[farthest] - 1)) farthest = r;
  }
  if (all_equal || 2 * off <= shape.rows || factors[farthest] == 0) return;
  sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_SCALE, NULL, NULL}, sf_fit_left(fit, predict_row_scale, factors),
               "each row is scaled by a factor of its own: row %lld by %.6g", (long long)farthest, factors[farthest]);
}

/* --- a constant -------------------------------------------------------------------------------------------------- */

static void predict_offset(struct sf_fit *fit, int32_t i, float *local, const void *ctx) {
  const double *offset = ctx;
  const struct sf_fit_shard *s = &fit->shards[i];
  for (int64_t k = 0; k < s->rows * s->cols; k++) local[k] = (float)((double)s->x[k] + *offset);
}

/* One number added to every element: a softmax over too many or too few columns moves each loss by the log of their ratio. */
static void explain_offset(struct sf_fit *fit) {
  enum { ELEMENTS_MIN = 4 }; /* some number is right for few */
  double sum = 0, count = 0;
  for (int32_t i = 0; i < fit->v->shard_count; i++) {
    const struct sf_fit_shard *s = &fit->shards[i];
    for (int64_t k = 0; k < s->rows * s->cols; k++) sum += (double)s->shard->data[k] - (double)s->x[k];
    count += (double)(s->rows * s->cols);
  }
  const double offset = count > 0 ? sum / count : 0;
  if (count < ELEMENTS_MIN || offset == 0 || !isfinite(offset)) return;
  const bool is_few = fit->v->shape.rows * fit->v->shape.cols < ELEMENTS_MIN; /* held by several ranks */
  struct sf_factor by;
  sf_factor_name(&by, fit->v, exp(fabs(offset)), 3 * fit->v->noise / sqrt(count));
  const double left = sf_fit_left(fit, predict_offset, &offset);
  if (*by.names != '\0')
    sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_OFFSET, "the log of a size is added", by.names}, left,
                 "%.6g is %s every element, the log of %s", fabs(offset), offset > 0 ? "added to" : "taken from", by.names);
  else if (!is_few)
    sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_OFFSET, NULL, NULL}, left, "%.6g is added to every element", offset);
}

/* --- terms ----------------------------------------------------------------------------------------------------- */

struct added_term {
  const struct sf_diagnosis_related *term;
  double times;
};

static void gather_term(struct sf_fit *fit, int32_t i, float *local, const void *ctx) {
  sf_fit_gather_term(fit, i, local, ((const struct added_term *)ctx)->term);
}

static void predict_term(struct sf_fit *fit, int32_t i, float *local, const void *ctx) {
  const struct added_term *added = ctx;
  const struct sf_fit_shard *s = &fit->shards[i];
  gather_term(fit, i, local, ctx);
  for (int64_t k = 0; k < s->rows * s->cols; k++) local[k] = (float)((double)s->x[k] + added->times * (double)local[k]);
}

/* Of a scalar: a share that counts once in some number of times. */
static void explain_divided_term(struct sf_fit *fit, const struct sf_diagnosis_related *term, double fitted) {
  const double parts = fitted > -1 && fitted < 0 ? round(1 / (fitted + 1)) : 0;
  const struct added_term divided = {term, parts >= 2 ? 1 / parts - 1 : 0};
  struct sf_factor by;
  sf_factor_name(&by, fit->v, parts, 0);
  if (parts < 2 || *by.names == '\0') return;
  const double left = sf_fit_left(fit, predict_term, &divided);
  if (sf_fit_is_exact(left))
    sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_MISSING_TERM, "added in part", cause_of(term)}, left,
                 "%s is divided by %s before it is added", term->name, by.text);
}

static void explain_term(struct sf_fit *fit, const struct sf_diagnosis_related *term) {
  struct added_term added = {term, 0};
  const double fitted = projection(fit, gather_term, &added, true);
  const bool is_scalar = fit->v->shape.rows * fit->v->shape.cols == 1;
  if (is_scalar) explain_divided_term(fit, term, fitted);
  added.times = round(fitted);
  if (added.times == 0 || !(fabs(added.times) < 1 << 20)) return;
  const double left = sf_fit_left(fit, predict_term, &added);
  if (is_scalar) { /* for any scalar there is a term and a number of times that come near it */
    struct sf_factor by;
    sf_factor_name(&by, fit->v, added.times + 1, 0);
    if (!sf_fit_is_exact(left) || (added.times != -1 && added.times != 1 && *by.names == '\0')) return;
  }
  if (added.times == -1)
    sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_MISSING_TERM, "not added", cause_of(term)}, left, "%s is not added", term->name);
  else if (added.times + 1 == (double)fit->v->tp_size)
    sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_REPEATED_TERM, "added by each rank", cause_of(term)}, left,
                 "%s is added %.0f times, once by each rank of %s", term->name, added.times + 1, fit->v->tp_name);
  else
    sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_REPEATED_TERM, "added several times", cause_of(term)}, left, "%s is added %.0f times",
                 term->name, added.times + 1);
}

/* --- other tensors' values ------------------------------------------------------------------------------------- */

void sf_fit_predict_stale(struct sf_fit *fit, int32_t i, float *local, const void *ctx) {
  const struct sf_diagnosis_related *stale = ctx;
  const struct sf_fit_shard *s = &fit->shards[i];
  const int64_t count = s->rows * s->cols;
  if (stale != NULL)
    sf_fit_gather(fit, i, local, stale->x);
  else
    memset(local, 0, (size_t)count * sizeof *local);
  if (sf_diff_squares(local, s->shard->data, count) > sf_diff_squares(s->x, s->shard->data, count))
    memcpy(local, s->x, (size_t)count * sizeof *local);
}

/* Explains a buffer that was not cleared: it held another value, perhaps scaled since, when this value was added. */
static void explain_added_to(struct sf_fit *fit, const struct sf_diagnosis_related *r) {
  enum { NONZERO_MIN = 8 }; /* a factor may fit fewer by chance */
  struct added_term added = {r, 0};
  if (fit->replicas_differ || sf_fit_count_nonzero(r->x, fit->v->shape.rows * fit->v->shape.cols) < NONZERO_MIN) return;
  added.times = projection(fit, gather_term, &added, true);
  if (!(added.times > 0)) return;
  const bool is_once = is_near(added.times, 1, 1e-3);
  char times[32] = "";
  if (!is_once) snprintf(times, sizeof times, "%.4g times ", added.times);
  sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_STALE, "added to another value", cause_of(r)}, sf_fit_left(fit, predict_term, &added),
               "%sthe value of %s is added to it: a buffer that was not cleared", times, r->name);
}

/* Whether a shard is all zeros, but for rounding. Where a level is large, small numbers are as near to the candidate's as zeros are. */
static bool holds_zeros(const struct sf_fit *fit) {
  static const double ZERO = 1e-6;
  for (int32_t i = 0; i < fit->v->shard_count; i++) {
    const struct sf_fit_shard *s = &fit->shards[i];
    if (sqrt(sf_sum_squares(s->shard->data, s->shard->count)) <= ZERO * sqrt(sf_sum_squares(s->x, s->shard->count))) return true;
  }
  return false;
}

static void explain_stale(struct sf_fit *fit) {
  const struct sf_tensor_view *v = fit->v;
  if (holds_zeros(fit))
    sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_STALE, "zeros", NULL}, sf_fit_left(fit, sf_fit_predict_stale, NULL),
                 "zeros stand in place of the value: left out, never written, or cleared too early");
  for (int32_t k = 0; k < v->related_count; k++) {
    const struct sf_diagnosis_related *r = &v->related[k];
    if (r->relation == SF_RELATED_STALE)
      sf_fit_offer(fit, (struct sf_cause){r->cls, "another value", cause_of(r)}, sf_fit_left(fit, sf_fit_predict_stale, r),
                   "the value is that of %s", r->name);
    if (r->relation == SF_RELATED_STALE && (v->kind == SF_KIND_MAIN_GRAD || v->kind == SF_KIND_WGRAD || v->kind == SF_KIND_ACT_GRAD))
      explain_added_to(fit, r);
  }
}

/* --- known mistakes -------------------------------------------------------------------------------------------- */

/* The variant's value for the shard's rank; NULL: the variant changes nothing there. */
static const struct sf_diagnosis_related *variant_of(const struct sf_fit *fit, int32_t variant, int32_t rank) {
  const struct sf_diagnosis_related *of_all = NULL;
  for (int32_t k = 0; k < fit->v->related_count; k++) {
    const struct sf_diagnosis_related *r = &fit->v->related[k];
    if (r->relation != SF_RELATED_VARIANT || r->variant != variant) continue;
    if (r->rank == rank) return r;
    if (r->rank < 0) of_all = r;
  }
  return of_all;
}

static void predict_variant(struct sf_fit *fit, int32_t i, float *local, const void *ctx) {
  const struct sf_fit_shard *s = &fit->shards[i];
  const struct sf_diagnosis_related *r = variant_of(fit, *(const int32_t *)ctx, s->shard->rank);
  if (r != NULL)
    sf_fit_gather(fit, i, local, r->x);
  else
    memcpy(local, s->x, (size_t)(s->rows * s->cols) * sizeof *local);
}

static void explain_variants(struct sf_fit *fit) {
  const struct sf_tensor_view *v = fit->v;
  for (int32_t k = 0; k < v->related_count; k++) {
    const struct sf_diagnosis_related *r = &v->related[k];
    bool is_first = r->relation == SF_RELATED_VARIANT;
    for (int32_t j = 0; j < k && is_first; j++)
      is_first = v->related[j].relation != SF_RELATED_VARIANT || v->related[j].variant != r->variant;
    if (!is_first) continue;
    const double left = sf_fit_left(fit, predict_variant, &r->variant);
    if (r->names_rank)
      sf_fit_offer(fit, (struct sf_cause){r->cls, cause_of(r), NULL}, left, "rank %d %s", sf_fit_wrong_rank(fit), r->name);
    else
      sf_fit_offer(fit, (struct sf_cause){r->cls, cause_of(r), NULL}, left, "%s", r->name);
  }
}

/* --- precision ------------------------------------------------------------------------------------------------- */

/* For a tensor that is promised in fp32, and whose error has the size of bf16's rounding and fits no factor of the reference. A few
 * elements may have such an error for any reason, so many are needed; only a few lie on the grid of bf16 by chance. */
static void explain_precision(struct sf_fit *fit) {
  enum { ON_GRID_MIN = 8, OFF_GRID_MIN = 32 };
  const struct sf_tensor_view *v = fit->v;
  if (v->promised != SF_F32 || fit->norm == 0 || fit->replicas_differ) return;
  const double unit = sf_dtype_unit_roundoff(SF_BF16);
  double error = 0; /* largest error of a shard, relative to the tensor */
  const double typical = fit->norm / sqrt((double)(v->shape.rows * v->shape.cols));
  int64_t count = 0, off = 0, on_grid = 0, far = 0;
  for (int32_t i = 0; i < v->shard_count; i++) {
    const struct sf_fit_shard *s = &fit->shards[i];
    error = sf_larger(error, sqrt(sf_diff_squares(s->shard->data, s->x, s->rows * s->cols)) / fit->norm);
    for (int64_t k = 0; k < s->rows * s->cols; k++) {
      const double value = (double)s->shard->data[k], x = (double)s->x[k];
      if (x == 0) continue;
      count++;
      off += fabs(value - x) > unit / 64 * typical;
      on_grid += sf_bf16_round((float)value) == (float)value;
      far += !(fabs(value - x) <= unit * (fabs(x) + typical));
    }
  }
  if (far > 0 || !(error < unit) || !(error > unit / 16)) return;
  const bool grid = 10 * on_grid > 9 * count;
  if (count < (grid ? ON_GRID_MIN : OFF_GRID_MIN) || (!grid && 2 * off < count)) return;
  if (!grid && v->kind == SF_KIND_PARAM_DELTA) return; /* a missing term may be as small, such as weight decay's */
  sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_LOW_PRECISION, grid ? "rounded to bf16" : "summed in bf16", NULL}, error / unit,
               grid ? "the values lie on the bf16 grid, one rounding of bf16 from the reference: promised in fp32"
                    : "the error is what sums stored in bf16 have, %.2g of the value: promised in fp32",
               error);
}

void sf_explain_values(struct sf_fit *fit) {
  const struct sf_tensor_view *v = fit->v;
  explain_stale(fit);
  for (int32_t k = 0; k < v->related_count; k++)
    if (v->related[k].relation == SF_RELATED_TERM) explain_term(fit, &v->related[k]);
  explain_scale(fit);
  explain_offset(fit);
  sf_explain_own_scales(fit);
  explain_row_scales(fit);
  explain_variants(fit);
  explain_precision(fit);
}
