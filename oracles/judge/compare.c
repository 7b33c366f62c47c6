/* The tolerance rule: distance to the reference over a noise level, for the whole tensor and for its worst row. */
#include "oracles/judge/collector.h"

#include "harness/base/assert.h"
#include "harness/base/hash.h"
#include "oracles/noise/norms.h"

#include <math.h>
#include <string.h>

/* Factors of the recipe (harness/docs/tolerance.md). They must stay clear of the largest ratios of clean runs on the real layers, which
 * tests/bench/RESULTS.md records with the script that measures them; measure again before changing one. */
const struct sf_factors sf_factors = {
    .fro = 3,
    .row_e2e = 4,
    .row_isolated = 6,
    .ill_conditioned = 0.3,
    .norm_rel = 1e-5,
    .loss_rel = 1e-5,
    .adam_rel = 1e-4,
    .along = 6,
    .along_draws = 24,
    .sum_ulps = 4,
    .rounding_row = 0.05,
    .rounding_rows = 0.5,
    .rounding_rows_min = 10,
};

double sf_tensor_share(const struct sf_tensor_result *result) {
  const double by_tensor = result->fro_ratio / sf_factors.fro, by_row = result->row_ratio / sf_factors.row_isolated;
  return by_row <= by_tensor ? by_tensor : by_row;
}

double sf_draws_widening(int64_t draws) {
  static const double by_draws[] = {[1] = 16, 4, 1.75, 1.5, 1.35, 1.25, 1.15, 1.05};
  SF_ASSERT(draws > 0);
  return draws < (int64_t)(sizeof by_draws / sizeof by_draws[0]) ? by_draws[draws] : 1;
}

enum { BITS_ELEMENTS_MIN = 512, MANTISSAS_FEW = 128, MANTISSAS_MOST = 1024 };

/* 0 / 0 counts as no distance; anything over a noise level of zero is infinite. */
static double ratio_of(double error, double noise) { return error == 0 ? 0 : error / noise; }

/* Rows whose p - onehot has cancelled to less than an eighth of the token's weight (floor = 2 u weight) have an error that their own norm
 * does not explain. A tensor that consists mostly of such rows gets their floors as its own. */
static double cancelled_floor(const struct sf_expected *e, double unit) {
  if (e->row_floor == NULL) return 0;
  double squares = 0;
  for (int64_t r = 0; r < e->spec.shape.rows; r++) {
    const double row_floor = (double)e->row_floor[r];
    if (row_floor > 16 * unit * e->row_norm[r]) squares += row_floor * row_floor;
  }
  return sqrt(squares);
}

double sf_tensor_noise(const struct sf_expected *e, enum sf_level level) {
  const double unit = sf_dtype_unit_roundoff(e->spec.promised);
  return sf_larger(sf_larger(sf_larger(e->noise[level], unit * e->norm), cancelled_floor(e, unit)), e->parts_noise);
}

/* The ingredients of the noise levels e_r of a tensor's rows. A row's own perturbed runs may differ too little by chance, so the noise of
 * the other rows is added. It is scaled by the row's norm if that is less; otherwise one row a thousand times larger than the rest would
 * hide all of them. */
struct row_levels {
  const struct sf_expected *e;
  const double *noise;
  double unit;
  double rms;      /* of the rows' noise */
  double relative; /* rms of noise / ||x_r|| over the rows that are not zero */
  double least;    /* a row of average norm, rounded once */
};

static double row_width(const struct row_levels *levels, int64_t r) {
  return sf_larger(levels->noise[r], levels->unit * levels->e->row_norm[r]);
}

static struct row_levels row_levels_of(const struct sf_expected *e, enum sf_level level) {
  const int64_t rows = e->spec.shape.rows;
  struct row_levels levels = {.e = e, .noise = e->row_noise[level], .unit = sf_dtype_unit_roundoff(e->spec.promised)};
  double squares = 0, relative_squares = 0;
  int64_t nonzero = 0;
  for (int64_t r = 0; r < rows; r++) {
    const double width = row_width(&levels, r), norm = e->row_norm[r];
    squares += width * width;
    if (norm > 0) relative_squares += (width / norm) * (width / norm), nonzero++;
  }
  levels.rms = sqrt(squares / (double)rows);
  levels.relative = nonzero > 0 ? sqrt(relative_squares / (double)nonzero) : 0;
  levels.least = levels.unit * e->norm / sqrt((double)rows);
  return levels;
}

static double row_level(const struct row_levels *levels, int64_t r) {
  const double norm = levels->e->row_norm[r], scaled = norm > 0 ? levels->relative * norm : INFINITY;
  const double others = levels->rms < scaled ? levels->rms : scaled, least = levels->least < scaled ? levels->least : scaled;
  const double level = sf_larger(row_width(levels, r) + 0.5 * others, least);
  const double parts = levels->e->parts_row_noise != NULL ? levels->e->parts_row_noise[r] : 0;
  return sf_larger(levels->e->row_floor != NULL ? sf_larger(level, (double)levels->e->row_floor[r]) : level, parts);
}

void sf_row_noise(double *out, const struct sf_expected *e, enum sf_level level) {
  const struct row_levels levels = row_levels_of(e, level);
  for (int64_t r = 0; r < e->spec.shape.rows; r++) out[r] = row_level(&levels, r);
}

static void find_worst_row(struct sf_comparison *out, const struct sf_expected *e, enum sf_level level, const double *row_errors) {
  const struct row_levels levels = row_levels_of(e, level);
  out->row = 0;
  for (int64_t r = 0; r < e->spec.shape.rows; r++) {
    const double noise = row_level(&levels, r), ratio = ratio_of(row_errors[r], noise);
    if (ratio <= out->row_ratio) continue;
    *out = (struct sf_comparison){out->error, out->noise, out->fro_ratio, row_errors[r], noise, ratio, r, false, NULL};
    if (ratio != ratio) return;
  }
}

/* Whether x would pass with its rows (elements of a vector) rolled by one. If so, a pass says nothing about where values are. */
static bool rolled_passes(const struct sf_expected *e, double noise, enum sf_level level) {
  if (e->rolled > sf_factors.fro * noise) return false;
  const int64_t rows = e->spec.shape.rows, cols = e->spec.shape.cols;
  if (rows == 1) return true;
  const struct row_levels levels = row_levels_of(e, level);
  for (int64_t r = 0; r < rows; r++) {
    const int64_t other = r > 0 ? r - 1 : rows - 1;
    const double distance = sqrt(sf_diff_squares(e->x + other * cols, e->x + r * cols, cols));
    if (distance > sf_factors.row_isolated * row_level(&levels, r)) return false;
  }
  return true;
}

void sf_compare(struct sf_comparison *out, const struct sf_expected *e, const float *candidate, enum sf_level level, double *scratch) {
  *out = (struct sf_comparison){.row = -1};
  out->error = sf_row_diff_norms(scratch, candidate, e->x, e->spec.shape.rows, e->spec.shape.cols);
  out->noise = sf_tensor_noise(e, level);
  out->fro_ratio = ratio_of(out->error, out->noise);
  if (e->spec.shape.rows > 1) find_worst_row(out, e, level, scratch);
  const bool passes = out->fro_ratio <= sf_factors.fro && out->row_ratio <= sf_factors.row_isolated;
  if (!(out->noise <= sf_factors.ill_conditioned * e->norm))
    out->why_not = "ill-conditioned";
  else if (!passes)
    out->flagged = true;
  else if (e->norm == 0)
    out->why_not = "zero";
  else if (rolled_passes(e, out->noise, level))
    out->why_not = "values alike";
}

/* --- values --------------------------------------------------------------------------------------------------- */

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static bool is_finite(float value) { return (bits_of(value) & 0x7f800000u) != 0x7f800000u; }

int64_t sf_first_nonfinite(const float *candidate, const float *x, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    if (!is_finite(candidate[i]) && (x == NULL || is_finite(x[i]))) return i;
  return -1;
}

/* Whether at most 1 / part of the non-zero values lie off the format's grid. Stops as soon as too many do. */
static bool is_mostly_on_grid(const float *values, int64_t count, int64_t part, enum sf_dtype format) {
  int64_t nonzero = 0, off_grid = 0;
  for (int64_t i = 0; i < count; i++) {
    const uint32_t bits = bits_of(values[i]);
    nonzero += (bits & 0x7fffffffu) != 0;
    off_grid += format == SF_BF16 ? (bits & 0xffffu) != 0 : bits_of(sf_f16_round(values[i])) != bits;
    if (part * off_grid >= count) return false;
  }
  return nonzero > 0 && part * off_grid < nonzero;
}

/* Whether the non-zero values share few mantissas, as products of two short numbers and one common factor do, or sums of two such products:
 * at most MANTISSAS_FEW, or a third of as many as there are values. */
static bool has_few_mantissas(const float *values, int64_t count) {
  uint32_t known[4 * MANTISSAS_MOST] = {0}; /* open addressing; 0 is free, so the leading one is kept */
  int64_t nonzero = 0, different = 0;
  for (int64_t i = 0; i < count; i++) nonzero += values[i] != 0;
  const int64_t third = nonzero / 3 < MANTISSAS_MOST ? nonzero / 3 : MANTISSAS_MOST, few = third > MANTISSAS_FEW ? third : MANTISSAS_FEW;
  for (int64_t i = 0; i < count; i++) {
    if (values[i] == 0) continue;
    const uint32_t mantissa = (bits_of(values[i]) & 0x7fffffu) | 0x800000u;
    uint64_t at = sf_mix64(mantissa) % (4 * MANTISSAS_MOST);
    while (known[at] != 0 && known[at] != mantissa) at = (at + 1) % (4 * MANTISSAS_MOST);
    if (known[at] == mantissa) continue;
    if (++different > few) return false;
    known[at] = mantissa;
  }
  return true;
}

/* Whether more than 90 % of the candidate's values lie on the format's grid, and less than half of the reference's. Sums of few such values
 * (rare tokens in the embedding's gradient) lie on the grid by themselves, and with one limit for both, rounding would decide on which side
 * a share near it falls. The grid says nothing about products of two fp8 numbers either (the weight gradient of one token or two): a
 * quotient of scales in front of them may be a short number by chance. */
bool sf_has_bits_of(enum sf_dtype format, const struct sf_expected *e, const float *candidate) {
  const int64_t count = e->spec.shape.rows * e->spec.shape.cols;
  if (e->spec.promised != SF_F32 || count < BITS_ELEMENTS_MIN) return false;
  return is_mostly_on_grid(candidate, count, 10, format) && !is_mostly_on_grid(e->x, count, 2, format) && !has_few_mantissas(e->x, count);
}
