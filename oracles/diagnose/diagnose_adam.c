/* What Adam makes of the reference's gradients when it counts steps, decays weights or keeps moments in a wrong way. */
#include "harness/tensor/consistent.h"
#include "harness/tensor/rounding_bits.h"
#include "oracles/diagnose/diagnose_related.h"
#include "oracles/noise/norms.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool is_skipped(const struct sf_collector *collector, int32_t step) {
  const struct sf_expected *overflow = sf_related_of_step(collector, SF_KIND_SCALAR, SF_SCALAR_OVERFLOW, step);
  return overflow != NULL && overflow->x[0] != 0;
}

/* Mistakes of a step. */
enum slip {
  NONE,
  COUPLED,          /* decay is added to the gradient */
  FORGETFUL,        /* moments begin with this step */
  FORGETFUL_FIRST,  /* .. the first moment does */
  FORGETFUL_SECOND, /* .. the second moment does */
  UNDER_ROOT,       /* epsilon is added under the root */
  EPSILON_EARLY,    /* .. or before the bias correction */
  BY_BETA1,         /* the second moment's bias is corrected as the first one's */
  FIRST_LATER,      /* the first moment's bias is corrected as in the next step */
  SECOND_LATER,     /* .. the second moment's */
  NO_FIRST_BIAS,    /* no bias correction of the first moment */
  NO_SECOND_BIAS,   /* .. or of the second one */
  BETAS_SWAPPED,
  BARE_DECAY,  /* decay is not multiplied by the learning rate */
  STALE_GRADS, /* gradients are those of the step before; in the first step zeros */
  UNCLIPPED,   /* gradients are not multiplied by the clip factor */
};

/* A way to compute a step's change. */
struct way {
  double count; /* number of steps in the bias corrections */
  double decay;
  double clip; /* gradients are multiplied by this many times the clip factor */
  enum slip slip;
  const char *cause; /* as in struct sf_diagnosis_related */
};

struct job {
  const struct sf_collector *collector;
  const struct sf_expected *own; /* the change */
  double *m, *v;                 /* one for each element */
  const float **weights;         /* what each step up to the change's begins with; isolated mode gives it */
};

/* Beta of the first or second moment. */
static double beta_of(const struct job *job, const struct way *way, bool second) {
  const struct sf_train *train = &job->collector->c.train;
  return (double)(second != (way->slip == BETAS_SWAPPED) ? train->beta2_milli : train->beta1_milli) / 1000.0;
}

/* Adds a step's gradients to the moments; forgotten: which of them are cleared before. False where a gradient is missing. */
static bool add_gradient(const struct job *job, const struct way *way, int32_t step) {
  const struct sf_collector *collector = job->collector;
  const struct sf_shape shape = job->own->spec.shape;
  const int32_t subject = job->own->id.subject, of = way->slip == STALE_GRADS ? step - 1 : step;
  const struct sf_expected *grad = of >= 0 ? sf_related_of_step(collector, SF_KIND_MAIN_GRAD, subject, of) : NULL,
                           *clip = sf_related_of_step(collector, SF_KIND_SCALAR, SF_SCALAR_CLIP, step);
  const float *weight = job->weights[step];
  const double beta1 = beta_of(job, way, false), beta2 = beta_of(job, way, true);
  const bool is_last = step == job->own->id.step, forgets = way->slip == FORGETFUL && is_last,
             forgets_m = forgets || (way->slip == FORGETFUL_FIRST && is_last),
             forgets_v = forgets || (way->slip == FORGETFUL_SECOND && is_last);
  if ((grad == NULL && of >= 0) || clip == NULL || weight == NULL) return false;
  const double factor = way->slip == UNCLIPPED ? 1 : way->clip * (double)clip->x[0];
  for (int64_t i = 0; i < shape.rows * shape.cols; i++) {
    const double g = factor * (grad != NULL ? (double)grad->x[i] : 0) + (way->slip == COUPLED ? way->decay * (double)weight[i] : 0);
    job->m[i] = beta1 * (forgets_m ? 0 : job->m[i]) + (1 - beta1) * g;
    job->v[i] = beta2 * (forgets_v ? 0 : job->v[i]) + (1 - beta2) * g * g;
  }
  return true;
}

/* In fp64. False where a gradient is missing. */
static bool moments(const struct job *job, const struct way *way) {
  const struct sf_shape shape = job->own->spec.shape;
  for (int64_t i = 0; i < shape.rows * shape.cols; i++) job->m[i] = job->v[i] = 0;
  for (int32_t s = 0; s <= job->own->id.step; s++)
    if (!is_skipped(job->collector, s) && !add_gradient(job, way, s)) return false;
  return true;
}

/* Adds sign times the change to out. */
static bool add_change(double *out, const struct job *job, const struct way *way, double sign) {
  static const double EPSILON = 1e-8; /* part of the logical function */
  const float *weight = job->weights[job->own->id.step];
  const int64_t count = job->own->spec.shape.rows * job->own->spec.shape.cols;
  const double lr = (double)job->collector->c.train.lr_micro * 1e-6, decay_rate = way->slip == BARE_DECAY ? 1 : lr;
  const double bias1 = way->slip == NO_FIRST_BIAS ? 1 : 1 - pow(beta_of(job, way, false), way->count + (way->slip == FIRST_LATER)),
               bias2 = way->slip == NO_SECOND_BIAS ? 1 : 1 - pow(beta_of(job, way, true), way->count + (way->slip == SECOND_LATER)),
               bias = way->slip == BY_BETA1 ? bias1 : bias2, epsilon = way->slip == EPSILON_EARLY ? EPSILON / sqrt(bias) : EPSILON;
  if (weight == NULL || !moments(job, way)) return false;
  for (int64_t i = 0; i < count; i++) {
    const double v = job->v[i] / bias, root = way->slip == UNDER_ROOT ? sqrt(v + epsilon) : sqrt(v) + epsilon;
    out[i] -= sign * (lr * (job->m[i] / bias1 / root) + (way->slip == COUPLED ? 0 : decay_rate * way->decay * (double)weight[i]));
  }
  return true;
}

/* Offers the reference's change plus the difference between this way and the right one, so that the rounding of both cancels. */
static void offer(struct sf_related_list *list, const struct job *job, const struct way *right, struct way way, enum sf_diagnosis_class cls,
                  const char *name) {
  const int64_t count = job->own->spec.shape.rows * job->own->spec.shape.cols;
  double *sum = sf_related_alloc(list, (size_t)count * sizeof *sum);
  float *x = sf_related_alloc(list, (size_t)count * sizeof *x);
  if (sum == NULL || x == NULL) return;
  for (int64_t i = 0; i < count; i++) sum[i] = (double)job->own->x[i];
  if (!add_change(sum, job, &way, 1) || !add_change(sum, job, right, -1)) return;
  for (int64_t i = 0; i < count; i++) x[i] = (float)sum[i];
  struct sf_diagnosis_related *r = sf_related_add(list, SF_RELATED_STALE, job->own->spec.shape, x, name);
  if (r == NULL) return;
  r->cls = cls;
  r->cause = way.cause;
}

/* --- another clip factor ------------------------------------------------------------------------------------------- */

/* The distance between the way's change and the candidate's; infinite if the change cannot be computed. */
static double distance(const struct job *job, const struct way *right, double clip, double *sum, const float *candidate) {
  const int64_t count = job->own->spec.shape.rows * job->own->spec.shape.cols;
  struct way way = *right;
  double squares = 0;
  way.clip = clip;
  for (int64_t i = 0; i < count; i++) sum[i] = (double)job->own->x[i] - (double)candidate[i];
  if (!add_change(sum, job, &way, 1) || !add_change(sum, job, right, -1)) return INFINITY;
  for (int64_t i = 0; i < count; i++) squares += sum[i] * sum[i];
  return squares;
}

/* The multiple of the clip factor that explains the candidate best. Adam almost divides the factor out again, so the distance is flat on
 * either side. This tries steps of a factor of 2, and then a golden section between the neighbours of the best. */
static double fitted_clip(const struct job *job, const struct way *right, double *sum, const float *candidate) {
  enum { POWERS = 20, SECTIONS = 60 };
  static const double GOLDEN = 0.6180339887498949;
  int best = 0;
  double least = INFINITY;
  for (int power = -POWERS; power <= POWERS; power++) {
    const double at = distance(job, right, exp2(power), sum, candidate);
    if (at < least) least = at, best = power;
  }
  double low = best - 1, high = best + 1;
  for (int i = 0; i < SECTIONS; i++) {
    const double left = high - GOLDEN * (high - low), right_of = low + GOLDEN * (high - low);
    if (distance(job, right, exp2(left), sum, candidate) < distance(job, right, exp2(right_of), sum, candidate))
      high = right_of;
    else
      low = left;
  }
  return exp2((low + high) / 2);
}

/* Says what the norm behind such a factor counted, if that is simple: ", as if the norm counted all squares 2 times". Returns the
 * cause. */
static const char *norm_text(char *out, size_t out_size, struct sf_related_list *list, int32_t step, double clip) {
  static const double ROUND = 2e-2;
  struct sf_norm_group groups[SF_NORM_GROUPS_MAX];
  const int32_t count = sf_norm_groups(groups, list, step, true);
  const double all = groups[0].squares, wanted = all / (clip * clip);
  *out = '\0';
  for (int32_t k = 0; k < count; k++) {
    const double own = groups[k].squares, times = own > 0 ? (wanted - (all - own)) / own : 1, whole = round(times);
    if (!(fabs(times - whole) <= ROUND) || whole < 0 || whole == 1 || whole > 1 << 20) continue;
    if (whole == 0)
      snprintf(out, out_size, ", as if the norm left out the squares of %.40s", groups[k].name);
    else
      snprintf(out, out_size, ", as if the norm counted the squares of %.40s %.0f times", groups[k].name, whole);
    return groups[k].clip_cause;
  }
  return "another clip factor";
}

static void offer_clips(struct sf_related_list *list, const struct job *job, const struct way *right, const struct sf_slot *slot) {
  const struct sf_expected *clip = sf_related_of_step(list->collector, SF_KIND_SCALAR, SF_SCALAR_CLIP, job->own->id.step);
  const int64_t count = job->own->spec.shape.rows * job->own->spec.shape.cols;
  double *sum = sf_related_alloc(list, (size_t)count * sizeof *sum);
  struct way way = *right;
  char name[128], norm[112];
  if (sum == NULL || clip == NULL || !sf_slot_is_whole(slot)) return;
  way.slip = UNCLIPPED;
  if (clip->x[0] != 1) offer(list, job, right, way, SF_DIAGNOSIS_SCALE, "Adam with gradients that are not clipped");
  way = *right, way.clip = fitted_clip(job, right, sum, slot->merged);
  way.cause = norm_text(norm, sizeof norm, list, job->own->id.step, way.clip);
  if (clip->x[0] >= 1) way.cause = "another clip factor", *norm = '\0';
  snprintf(name, sizeof name, "Adam with gradients times %.3g (clip factor %.3g%s)", way.clip * (double)clip->x[0], (double)clip->x[0],
           norm);
  offer(list, job, right, way, SF_DIAGNOSIS_SCALE, name);
}

/* --- other random bits -------------------------------------------------------------------------------------------- */

/* change: what the weights make after stochastic rounding with the bits of a step, of which each part has the first ones where parts are
 * several. next: the weights before it. False: no memory. */
static bool round_with_bits(float *change, struct sf_related_list *list, const struct job *job, const double *next, int64_t step,
                            int64_t parts) {
  const int64_t count = job->own->spec.shape.rows * job->own->spec.shape.cols;
  const uint64_t key = sf_rounding_key(list->collector->catalog, job->own->id.subject, step);
  const float *weight = job->weights[job->own->id.step];
  uint16_t *bits = sf_related_alloc(list, (size_t)count * sizeof *bits);
  if (bits == NULL) return false;
  sf_rounding_bits_range(bits, key, 0, count);
  for (int64_t i = 0; i < count; i++)
    change[i] = sf_bf16_round_stochastic((float)next[i], bits[i % ((count + parts - 1) / parts)]) - weight[i];
  return true;
}

/* With stochastic rounding: the bits of another step, or of the parameter's first elements on every rank of dp. */
static void offer_bits(struct sf_related_list *list, const struct job *job, const struct way *right) {
  const struct sf_case *c = &list->collector->c;
  const int64_t count = job->own->spec.shape.rows * job->own->spec.shape.cols, dp = list->of->c.layout.dp;
  const float *weight = job->weights[job->own->id.step];
  double *next = sf_related_alloc(list, (size_t)count * sizeof *next);
  float *change = sf_related_alloc(list, (size_t)count * sizeof *change);
  char name[96];
  if (!c->precision.stochastic || weight == NULL || next == NULL || change == NULL) return;
  for (int64_t i = 0; i < count; i++) next[i] = (double)weight[i];
  if (!add_change(next, job, right, 1) || !round_with_bits(change, list, job, next, job->own->id.step, 1)) return;
  if (memcmp(change, job->own->x, (size_t)count * sizeof *change) != 0) return; /* near a border of rounding */
  for (int64_t step = 0; step <= c->train.steps + 1; step++) {
    float *x = sf_related_alloc(list, (size_t)count * sizeof *x);
    const bool is_own = step > c->train.steps;
    if (x == NULL || (is_own ? dp == 1 : step == job->own->id.step)) continue;
    if (!round_with_bits(x, list, job, next, is_own ? job->own->id.step : step, is_own ? dp : 1)) return;
    if (is_own)
      snprintf(name, sizeof name, "stochastic rounding with the random bits of the first elements on every rank of dp");
    else
      snprintf(name, sizeof name, "stochastic rounding with the random bits of step %lld", (long long)step);
    struct sf_diagnosis_related *r = sf_related_add(list, SF_RELATED_STALE, job->own->spec.shape, x, name);
    if (r != NULL) r->cause = is_own ? "random bits of the first elements" : "random bits of another step";
  }
}

/* --- all ways ------------------------------------------------------------------------------------------------------ */

/* Another number of steps in the bias corrections. applied: steps that were not skipped; since_reload: those of them after a reload. */
static void offer_counts(struct sf_related_list *list, const struct job *job, const struct way *right, int32_t applied,
                         int32_t since_reload) {
  struct way way = *right;
  if (applied <= job->own->id.step) {
    way.count = job->own->id.step + 1;
    offer(list, job, right, way, SF_DIAGNOSIS_SCALE, "Adam's bias correction with the steps counted that were skipped");
  }
  if (since_reload > 0 && since_reload < applied) {
    way.count = since_reload;
    offer(list, job, right, way, SF_DIAGNOSIS_SCALE, "Adam's bias correction with steps counted from the reload");
  }
  way.count = applied + 1;
  offer(list, job, right, way, SF_DIAGNOSIS_SCALE, "Adam's bias correction of the next step");
  way.count = applied - 1;
  if (applied > 1) offer(list, job, right, way, SF_DIAGNOSIS_SCALE, "Adam's bias correction of the step before");
  way.count = INFINITY;
  offer(list, job, right, way, SF_DIAGNOSIS_SCALE, "Adam without bias correction");
}

/* is_reloaded: moments were loaded just before this step. */
static void offer_slips(struct sf_related_list *list, const struct job *job, const struct way *right, bool is_reloaded) {
  static const struct {
    enum slip slip;
    enum sf_diagnosis_class cls;
    const char *name, *reloaded; /* reloaded: behind a reload; NULL: the same */
  } slips[] = {
      {FORGETFUL, SF_DIAGNOSIS_STALE, "Adam with moments that begin anew", "Adam with moments that were not loaded"},
      {FORGETFUL_FIRST, SF_DIAGNOSIS_STALE, "Adam with a first moment that begins anew", "Adam with a first moment that was not loaded"},
      {FORGETFUL_SECOND, SF_DIAGNOSIS_STALE, "Adam with a second moment that begins anew", "Adam with a second moment that was not loaded"},
      {STALE_GRADS, SF_DIAGNOSIS_STALE, "Adam with the gradients of the step before", NULL},
      {UNDER_ROOT, SF_DIAGNOSIS_SCALE, "Adam with epsilon under the square root", NULL},
      {EPSILON_EARLY, SF_DIAGNOSIS_SCALE, "Adam with epsilon added before the bias correction", NULL},
      {BY_BETA1, SF_DIAGNOSIS_SCALE, "Adam with the second moment corrected by beta1", NULL},
      {FIRST_LATER, SF_DIAGNOSIS_SCALE, "Adam with the first moment's bias correction of the next step", NULL},
      {SECOND_LATER, SF_DIAGNOSIS_SCALE, "Adam with the second moment's bias correction of the next step", NULL},
      {NO_FIRST_BIAS, SF_DIAGNOSIS_SCALE, "Adam without bias correction of the first moment", NULL},
      {NO_SECOND_BIAS, SF_DIAGNOSIS_SCALE, "Adam without bias correction of the second moment", NULL},
      {BETAS_SWAPPED, SF_DIAGNOSIS_SCALE, "Adam with beta1 and beta2 exchanged", NULL},
      {BARE_DECAY, SF_DIAGNOSIS_SCALE, "a change whose weight decay is not multiplied by the learning rate", NULL},
      {COUPLED, SF_DIAGNOSIS_REPEATED_TERM, "Adam with weight decay added to the gradient, in place of AdamW", NULL},
  };
  for (size_t i = 0; i < sizeof slips / sizeof *slips; i++) {
    struct way way = *right;
    way.slip = slips[i].slip;
    offer(list, job, right, way, slips[i].cls, is_reloaded && slips[i].reloaded != NULL ? slips[i].reloaded : slips[i].name);
  }
}

static void offer_decays(struct sf_related_list *list, const struct job *job, const struct way *right, double decay) {
  struct way way = *right;
  const bool is_decayed = right->decay > 0;
  if (decay == 0) return;
  way.decay = is_decayed ? 0 : decay;
  offer(list, job, right, way, SF_DIAGNOSIS_REPEATED_TERM,
        is_decayed ? "a change without weight decay" : "a change with weight decay, which this parameter has none of");
  way.decay = 2 * decay;
  if (is_decayed) offer(list, job, right, way, SF_DIAGNOSIS_REPEATED_TERM, "a change with twice the weight decay");
}

void sf_related_collect_adam(struct sf_related_list *list, const struct sf_slot *slot) {
  const struct sf_collector *collector = list->collector;
  const struct sf_expected *own = slot->expected;
  if (own->id.kind != SF_KIND_PARAM_DELTA || slot->phase != SF_SLOT_FIRST || is_skipped(collector, own->id.step)) return;
  const int64_t count = own->spec.shape.rows * own->spec.shape.cols;
  const struct job job = {.collector = collector,
                          .own = own,
                          .m = sf_related_alloc(list, (size_t)count * sizeof(double)),
                          .v = sf_related_alloc(list, (size_t)count * sizeof(double)),
                          .weights = sf_related_alloc(list, (size_t)(own->id.step + 1) * sizeof(float *))};
  if (job.m == NULL || job.v == NULL || job.weights == NULL) return;
  for (int32_t step = 0; step <= own->id.step; step++) job.weights[step] = sf_related_weight(list, own->id.subject, step);
  const double decay = (double)collector->c.train.weight_decay_milli / 1000.0;
  const int64_t reload = collector->c.reload.after_step;
  int32_t applied = 0, since_reload = 0;
  for (int32_t s = 0; s <= own->id.step; s++) {
    applied += !is_skipped(collector, s);
    since_reload += reload > 0 && s >= reload && !is_skipped(collector, s);
  }
  const struct way right = {.count = applied, .decay = collector->catalog->params[own->id.subject].decayed ? decay : 0, .clip = 1};
  offer_counts(list, &job, &right, applied, since_reload);
  offer_slips(list, &job, &right, collector->c.reload.after_step == own->id.step);
  offer_clips(list, &job, &right, slot);
  offer_decays(list, &job, &right, decay);
  offer_bits(list, &job, &right);
}
