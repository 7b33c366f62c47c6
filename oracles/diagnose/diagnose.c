/* Fits explanations: measures how much of the error each leaves, and chooses one of those that leave little. */
#include "oracles/diagnose/diagnose_fit.h"

#include "harness/base/assert.h"
#include "oracles/noise/norms.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { FIT_BLOCK_BYTES = 1 << 18 };

/* A prediction may leave as much as a clean tensor may have. If the error is millions of levels, rounding inside the mistake (a partial sum
 * stored before it is added) may leave more than that. And an explanation must explain most of the error. */
static const double FITS = 4, SHARE_OF_ERROR = 2e-3, MOST = 0.34;
/* An explanation that leaves more than this share of the error is no hint: on small tensors many leave less than half by chance. */
static const double NEAR = 0.1;

const char *sf_diagnosis_class_name(enum sf_diagnosis_class cls) {
  static const char *const names[SF_DIAGNOSIS_COUNT] = {
#define X(name, text, meaning) [SF_DIAGNOSIS_##name] = text,
      SF_DIAGNOSIS_MAP(X)
#undef X
  };
  SF_ASSERT_LT((unsigned)cls, SF_DIAGNOSIS_COUNT);
  return names[cls];
}

void *sf_fit_alloc(struct sf_fit *fit, size_t size_bytes) {
  void *memory = sf_arena_alloc(fit->arena, size_bytes);
  if (memory == NULL) fit->status = SF_ENOMEM;
  return memory;
}

/* --- what is left ---------------------------------------------------------------------------------------------- */

void sf_fit_gather_term(struct sf_fit *fit, int32_t i, float *local, const struct sf_diagnosis_related *term) {
  const struct sf_view_shard *s = &fit->v->shards[i];
  const bool is_row = term->shape.rows != fit->v->shape.rows;
  for (int64_t k = 0; k < s->count; k++) local[k] = term->x[is_row ? s->at[k] % fit->v->shape.cols : s->at[k]];
}

/* A level at least as large as the rounding of what is predicted, which may be far from what the level was measured of: of zeros. In fp32
 * the numbers on the way to it are rounded too. */
static double level_of(const struct sf_fit *fit, double level, const float *predicted, int64_t count) {
  const double roundings = fit->v->promised == SF_F32 ? 4 : 1;
  return sf_larger(level, roundings * sf_dtype_unit_roundoff(fit->v->promised) * sqrt(sf_sum_squares(predicted, count)));
}

static double rows_left(const struct sf_fit *fit, int32_t i, const float *predicted) {
  const struct sf_fit_shard *s = &fit->shards[i];
  double worst = 0;
  for (int64_t first = 0; first < s->rows * s->cols; first += s->cols) {
    const double error = sqrt(sf_diff_squares(s->shard->data + first, predicted + first, s->cols));
    const double level = level_of(fit, fit->v->row_noise[s->shard->at[first] / fit->v->shape.cols], predicted + first, s->cols);
    if (error > 0) worst = sf_larger(worst, error / level);
  }
  return worst;
}

double sf_fit_left_of(const struct sf_fit *fit, int32_t i, const float *predicted) {
  const struct sf_fit_shard *s = &fit->shards[i];
  const int64_t count = s->rows * s->cols;
  double left = sqrt(sf_diff_squares(s->shard->data, predicted, count)) / level_of(fit, fit->v->noise, predicted, count);
  if (fit->v->row_noise != NULL) left = sf_larger(left, rows_left(fit, i, predicted));
  return left == left ? left : INFINITY;
}

double sf_fit_left(struct sf_fit *fit, sf_fit_predict predict, const void *ctx) {
  double left = 0;
  for (int32_t i = 0; i < fit->v->shard_count; i++) {
    predict(fit, i, fit->predicted, ctx);
    left = sf_larger(left, sf_fit_left_of(fit, i, fit->predicted));
  }
  return left;
}

static void predict_nothing(struct sf_fit *fit, int32_t i, float *local, const void *ctx) {
  (void)ctx;
  memcpy(local, fit->shards[i].x, (size_t)(fit->shards[i].rows * fit->shards[i].cols) * sizeof *local);
}

/* --- offers ---------------------------------------------------------------------------------------------------- */

bool sf_fit_is_exact(double left) { return left <= FITS; }

bool sf_fit_accepts(const struct sf_fit *fit, double left) {
  if (!isfinite(fit->baseline)) return left <= FITS; /* a share of infinity bounds nothing */
  const double share = SHARE_OF_ERROR * fit->baseline, most = MOST * fit->baseline;
  const double bound = share > FITS ? share : FITS;
  return fit->baseline > 0 && isfinite(left) && left <= (bound < most ? bound : most);
}

/* Classes stand in the order of preference, for when several fit; within a class what names a mistake goes before what does not. */
static bool is_better(const struct sf_diagnosis *best, const struct sf_cause *cause, double left) {
  if (best->cls == SF_DIAGNOSIS_UNKNOWN) return true;
  const double was = sf_larger(best->left, FITS), now = sf_larger(left, FITS);
  return now < was || (now == was && (cause->cls < best->cls || (cause->cls == best->cls && cause->what != NULL && *best->cause == '\0')));
}

void sf_fit_offer(struct sf_fit *fit, struct sf_cause cause, double left, const char *format, ...) {
  const bool fits = sf_fit_accepts(fit, left) && is_better(&fit->best, &cause, left);
  const bool is_nearest = left < fit->nearest.left;
  if (!fits && !is_nearest) return;
  struct sf_diagnosis offered = {.cls = cause.cls, .left = left};
  if (cause.what != NULL)
    snprintf(offered.cause, sizeof offered.cause, "%s%s%s", cause.what, cause.of != NULL ? ": " : "", cause.of != NULL ? cause.of : "");
  va_list args;
  va_start(args, format);
  vsnprintf(offered.text, sizeof offered.text, format, args);
  va_end(args);
  if (fits) fit->best = offered;
  if (is_nearest) fit->nearest = offered;
}

int32_t sf_fit_wrong_rank(const struct sf_fit *fit) {
  for (int32_t i = 0; i < fit->v->shard_count; i++)
    if (sf_fit_left_of(fit, i, fit->shards[i].x) > 0.5 * fit->baseline) return fit->v->shards[i].rank;
  return fit->v->shards[0].rank;
}

/* --- what is said ------------------------------------------------------------------------------------------------- */

bool sf_diagnosis_says_the_same(const struct sf_diagnosis *a, const struct sf_diagnosis *b) {
  return a->text[0] != '\0' && a->cls != SF_DIAGNOSIS_UNKNOWN && a->cls == b->cls && strcmp(a->cause, b->cause) == 0;
}

bool sf_diagnosis_says_why(const struct sf_diagnosis *diagnosis) {
  return diagnosis->cause[0] != '\0' && diagnosis->cls != SF_DIAGNOSIS_PART;
}

/* --- one problem ----------------------------------------------------------------------------------------------- */

void sf_fit_gather(const struct sf_fit *fit, int32_t i, float *local, const float *logical) {
  const struct sf_view_shard *s = &fit->v->shards[i];
  for (int64_t k = 0; k < s->count; k++) local[k] = logical[s->at[k]];
}

/* Whether two shards hold different values of the same element. */
static bool replicas_differ(struct sf_fit *fit) {
  const struct sf_shape shape = fit->v->shape;
  const int64_t count = shape.rows * shape.cols;
  for (int64_t k = 0; k < count; k++) fit->logical[k] = NAN; /* not held by a shard before */
  for (int32_t i = 0; i < fit->v->shard_count; i++) {
    const struct sf_fit_shard *s = &fit->shards[i];
    for (int64_t k = 0; k < s->rows * s->cols; k++) {
      float *known = &fit->logical[s->shard->at[k]];
      if (*known == *known && *known != s->shard->data[k]) return true;
      *known = s->shard->data[k];
    }
  }
  return false;
}

static bool same_place(const struct sf_fit_shard *a, const struct sf_fit_shard *b) {
  return a->shard->count == b->shard->count && memcmp(a->shard->at, b->shard->at, (size_t)a->shard->count * sizeof *a->shard->at) == 0;
}

/* The columns of a shard whose rows are equally long parts of logical rows; else 1. */
static int64_t columns_of(const struct sf_view_shard *s, int64_t logical_cols) {
  int64_t cols = 1;
  while (cols < s->count && s->at[cols] / logical_cols == s->at[0] / logical_cols) cols++;
  for (int64_t k = 1; k < s->count; k++)
    if ((k % cols == 0) != (s->at[k] / logical_cols != s->at[k - 1] / logical_cols)) return 1;
  return cols;
}

/* Fills in a view of the squares of a norm, which add up. */
static void square(struct sf_tensor_view *squared, struct sf_fit *fit) {
  const struct sf_tensor_view *v = fit->v;
  float *numbers = sf_fit_alloc(fit, (size_t)(v->shard_count + 1) * sizeof *numbers);
  struct sf_view_shard *shards = sf_fit_alloc(fit, (size_t)(v->shard_count + 1) * sizeof *shards);
  if (numbers == NULL || shards == NULL) return;
  *squared = *v;
  for (int32_t i = 0; i < v->shard_count; i++) {
    numbers[i] = v->shards[i].data[0] * v->shards[i].data[0];
    shards[i] = v->shards[i];
    shards[i].data = &numbers[i];
  }
  numbers[v->shard_count] = v->x[0] * v->x[0];
  squared->x = &numbers[v->shard_count];
  squared->shards = shards;
  squared->noise = sf_larger(v->noise * 2 * (double)v->x[0], (double)FLT_MIN);
  fit->v = squared;
}

static void prepare(struct sf_fit *fit) {
  const struct sf_tensor_view *v = fit->v;
  const struct sf_shape shape = v->shape;
  SF_ASSERT(v->noise > 0);
  fit->shards = sf_fit_alloc(fit, (size_t)(v->shard_count + 1) * sizeof *fit->shards);
  for (int32_t i = 0; i < v->shard_count && fit->status == SF_OK; i++) {
    struct sf_fit_shard *s = &fit->shards[i];
    *s = (struct sf_fit_shard){.shard = &v->shards[i]};
    s->cols = columns_of(s->shard, shape.cols);
    s->rows = s->shard->count / s->cols;
    s->x = sf_fit_alloc(fit, (size_t)(s->rows * s->cols) * sizeof *s->x);
    if (s->x != NULL) sf_fit_gather(fit, i, s->x, v->x);
    while (!same_place(&fit->shards[s->place], s)) s->place++;
    if (s->rows * s->cols > fit->local_max) fit->local_max = s->rows * s->cols;
  }
  fit->predicted = sf_fit_alloc(fit, (size_t)(fit->local_max + 1) * sizeof *fit->predicted);
  fit->term = sf_fit_alloc(fit, (size_t)(fit->local_max + 1) * sizeof *fit->term);
  fit->logical = sf_fit_alloc(fit, (size_t)(shape.rows * shape.cols) * sizeof *fit->logical);
  if (fit->status != SF_OK) return;
  fit->norm = sqrt(sf_sum_squares(v->x, shape.rows * shape.cols));
  fit->baseline = sf_fit_left(fit, predict_nothing, NULL);
  fit->replicas_differ = replicas_differ(fit);
  fit->nearest.left = fit->baseline;
}

enum { EXPLAINED_TEXT = 64 };

/* The share of the error that the best explanation covers; nothing after one that says where the error is, and not why. */
static const char *explained_text(char out[EXPLAINED_TEXT], const struct sf_fit *fit) {
  if (fit->best.cls == SF_DIAGNOSIS_PART) return "";
  if (fit->best.left <= FITS) return "; this explains the whole error up to rounding";
  snprintf(out, EXPLAINED_TEXT, "; this explains %.1f %% of the error", 100 - 100 * fit->best.left / fit->baseline);
  return out;
}

static void conclude(struct sf_diagnosis *out, const struct sf_fit *fit) {
  char sentence[sizeof out->text], explained[EXPLAINED_TEXT];
  if (fit->best.cls != SF_DIAGNOSIS_UNKNOWN) {
    *out = fit->best;
    snprintf(sentence, sizeof sentence, "%.240s%s", fit->best.text, explained_text(explained, fit));
  } else {
    *out = (struct sf_diagnosis){.cls = SF_DIAGNOSIS_UNKNOWN, .left = fit->baseline};
    const bool near = fit->nearest.cls != SF_DIAGNOSIS_UNKNOWN && fit->nearest.left < NEAR * fit->baseline;
    if (near)
      snprintf(sentence, sizeof sentence, "no simple cause explains the error; the nearest one leaves %.2g %% of it: %.190s",
               100 * fit->nearest.left / fit->baseline, fit->nearest.text);
    else
      snprintf(sentence, sizeof sentence, "no simple cause explains the error");
  }
  out->whole = fit->baseline;
  memcpy(out->text, sentence, sizeof out->text);
}

void sf_fit_explain(struct sf_fit *fit) {
  static void (*const explanations[])(struct sf_fit *) = {sf_explain_sums, sf_explain_microbatches, sf_explain_values, sf_explain_places,
                                                          sf_explain_part, sf_explain_supposed,     sf_explain_inside};
  prepare(fit);
  for (size_t k = 0; k < sizeof explanations / sizeof *explanations && fit->status == SF_OK; k++) explanations[k](fit);
}

enum sf_status sf_diagnose(struct sf_diagnosis *out, const struct sf_tensor_view *view) {
  *out = (struct sf_diagnosis){.cls = SF_DIAGNOSIS_UNKNOWN};
  if (view->shard_count == 0) return SF_OK;
  struct sf_fit fit = {.v = view, .arena = sf_arena_create(FIT_BLOCK_BYTES, false)};
  if (fit.arena == NULL) return SF_ENOMEM;
  struct sf_tensor_view squared;
  if (view->is_norm) square(&squared, &fit);
  if (fit.status == SF_OK) sf_fit_explain(&fit);
  if (fit.status == SF_OK) conclude(out, &fit);
  if (fit.status == SF_OK) fit.status = sf_numbers_of(&out->numbers, view);
  sf_arena_destroy(fit.arena);
  return fit.status;
}
