/* Explanations by shares: ranks that hold a multiple of a value, or of a term of it, each by a factor of its own or all by one; and what
 * the reference makes with a supposed mistake. */
#include "oracles/diagnose/diagnose_fit.h"
#include "oracles/noise/norms.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Of the value x each shard holds base + factor (x - base). */
struct shares {
  const float *base; /* the logical tensor without the term; NULL: zeros, so that the term is all of it */
  double *factors;   /* one for each shard */
  double *accuracy;  /* of a factor */
  double farthest;   /* the factor that is farthest from 1 .. */
  int32_t rank;      /* .. and the rank that has it */
  bool all_equal;
};

static double base_at(const struct shares *shares, int64_t at) { return shares->base != NULL ? (double)shares->base[at] : 0; }

static void predict_shares(struct sf_fit *fit, int32_t i, float *local, const void *ctx) {
  const struct shares *shares = ctx;
  const struct sf_fit_shard *s = &fit->shards[i];
  for (int64_t k = 0; k < s->rows * s->cols; k++) {
    const double base = base_at(shares, s->shard->at[k]);
    local[k] = (float)(base + shares->factors[i] * ((double)s->x[k] - base));
  }
}

/* Fits a factor for each shard; false where one has too few elements for that: a factor may fit a few by chance. */
static bool fit_shares(struct shares *shares, struct sf_fit *fit) {
  enum { NONZERO_MIN = 8 };
  const int32_t count = fit->v->shard_count;
  shares->factors = sf_fit_alloc(fit, (size_t)(count + 1) * sizeof *shares->factors);
  shares->accuracy = sf_fit_alloc(fit, (size_t)(count + 1) * sizeof *shares->accuracy);
  if (shares->factors == NULL || shares->accuracy == NULL || fit->replicas_differ) return false;
  shares->all_equal = true;
  shares->farthest = 1;
  for (int32_t i = 0; i < count; i++) {
    const struct sf_fit_shard *s = &fit->shards[i];
    double dot = 0, squares = 0;
    int64_t nonzero = 0;
    for (int64_t k = 0; k < s->rows * s->cols; k++) {
      const double base = base_at(shares, s->shard->at[k]), term = (double)s->x[k] - base;
      dot += term * ((double)s->shard->data[k] - base);
      squares += term * term;
      nonzero += term != 0;
    }
    if (nonzero < NONZERO_MIN) return false;
    shares->factors[i] = dot / squares;
    shares->accuracy[i] = 3 * fit->v->noise / sqrt(squares);
    const double apart = fabs(shares->factors[i] - shares->factors[0]);
    shares->all_equal = shares->all_equal && apart <= shares->accuracy[i] + shares->accuracy[0];
    if (fabs(shares->factors[i] - 1) > fabs(shares->farthest - 1)) shares->farthest = shares->factors[i], shares->rank = s->shard->rank;
  }
  return true;
}

/* Whether the factors' inverses are 1 on average in each of the group's sets of ranks: then each rank divided by a number of its own, and
 * the mean of these would be right. */
static bool are_means(const struct sf_fit *fit, const struct shares *shares, const struct sf_view_group *group) {
  for (int32_t i = 0; i < fit->v->shard_count; i++) {
    double sum = 0, within = 1e-5;
    int32_t members = 0;
    for (int32_t j = 0; j < fit->v->shard_count; j++) {
      if (!sf_fit_same_group(fit, group, i, j)) continue;
      const double factor = shares->factors[j];
      sum += 1 / factor;
      within = fmax(within, shares->accuracy[j] / (factor * factor));
      members++;
    }
    if (members < 2 || !(fabs(sum / members - 1) <= within)) return false;
  }
  return true;
}

/* Ranks that hold different parts, each with a factor of its own. of: what is scaled, as a subject. */
static void offer_own(struct sf_fit *fit, const struct shares *shares, const char *of) {
  const double left = sf_fit_left(fit, predict_shares, shares);
  for (int32_t g = 0; g < fit->v->group_count; g++) {
    const struct sf_view_group *group = &fit->v->groups[g];
    if (!are_means(fit, shares, group)) continue;
    sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_SCALE, "mean of means", group->name}, left,
                 "%s is a mean of means over %s: each rank divides by a count of its own; rank %d's is scaled by %.6g", of, group->name,
                 shares->rank, shares->farthest);
    return;
  }
  sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_SCALE, NULL, NULL}, left,
               "%s is scaled by a factor of each rank's own: rank %d's by %.6g", of, shares->rank, shares->farthest);
}

void sf_explain_own_scales(struct sf_fit *fit) {
  struct shares shares = {0};
  if (fit_shares(&shares, fit) && !shares.all_equal) offer_own(fit, &shares, "the value");
}

/* --- suppositions ---------------------------------------------------------------------------------------------- */

static const char *cause_of(const struct sf_diagnosis_related *related) { return related->cause != NULL ? related->cause : related->name; }

/* Ranks hold a multiple of what r leaves out. */
static void explain_term_share(struct sf_fit *fit, const struct sf_diagnosis_related *r) {
  struct shares shares = {.base = r->x};
  struct sf_factor by;
  char of[sizeof r->without + 16], cause[SF_CAUSE_TEXT];
  const int64_t count = fit->v->shape.rows * fit->v->shape.cols;
  if (*r->without == '\0' || sf_fit_count_nonzero(r->x, count) == 0 || !fit_shares(&shares, fit)) return;
  snprintf(of, sizeof of, "what %s adds", r->without);
  if (!shares.all_equal) {
    offer_own(fit, &shares, of);
    return;
  }
  sf_factor_name(&by, fit->v, shares.farthest, shares.accuracy[0]);
  snprintf(cause, sizeof cause, "%s: %s", r->without, by.cause != NULL ? by.cause : "");
  sf_fit_offer(fit, (struct sf_cause){SF_DIAGNOSIS_SCALE, by.cause != NULL ? "a term is scaled" : NULL, cause},
               sf_fit_left(fit, predict_shares, &shares), "%s is scaled by %s", of, by.text);
}

/* Of a factor that is fitted through a whole module. */
static const double FACTOR_ACCURACY = 2e-3;

/* Of suppositions the one that leaves least is offered; with it the next one that makes the very same tensor. */
static void explain_replaced(struct sf_fit *fit, bool is_named) {
  const size_t size_bytes = (size_t)(fit->v->shape.rows * fit->v->shape.cols) * sizeof *fit->v->x;
  const struct sf_diagnosis_related *best = NULL, *same = NULL;
  double least = INFINITY;
  for (int32_t k = 0; k < fit->v->related_count; k++) {
    const struct sf_diagnosis_related *r = &fit->v->related[k];
    if (r->relation != SF_RELATED_SUPPOSED) continue;
    const double left = sf_fit_left(fit, sf_fit_predict_stale, r);
    if (left < least)
      best = r, same = NULL, least = left;
    else if (best != NULL && same == NULL && r->weight == 0 && left == least && strcmp(cause_of(r), cause_of(best)) != 0 &&
             memcmp(r->x, best->x, size_bytes) == 0)
      same = r;
  }
  if (best == NULL) return;
  if (!is_named && sf_fit_is_exact(least) && sf_fit_accepts(fit, least)) fit->best.cls = SF_DIAGNOSIS_UNKNOWN; /* tells only where */
  struct sf_factor by = {.text = ""};
  if (best->weight != 0) sf_factor_name(&by, fit->v, best->weight, FACTOR_ACCURACY);
  sf_fit_offer(fit, (struct sf_cause){best->cls, "as if", cause_of(best)}, least, "the value is as if %s%s%s%s%s", best->name,
               *by.text != '\0' ? " " : "", by.text, same != NULL ? ", or as if " : "", same != NULL ? same->name : "");
}

/* What follows from the numbers alone goes before what another run of the reference shows, since some of that comes to the same. */
void sf_explain_supposed(struct sf_fit *fit) {
  const bool is_named = sf_diagnosis_says_why(&fit->best);
  if (is_named && sf_fit_is_exact(fit->best.left)) return;
  explain_replaced(fit, is_named);
  if (sf_diagnosis_says_why(&fit->best) && sf_fit_is_exact(fit->best.left)) return;
  for (int32_t k = 0; k < fit->v->related_count; k++)
    if (fit->v->related[k].relation == SF_RELATED_SUPPOSED) explain_term_share(fit, &fit->v->related[k]);
}
