/* What Adam makes of the reference's gradients when it counts steps, decays weights or keeps moments in a wrong way. */
#include "harness/tensor/consistent.h"
#include "oracles/diagnose/diagnose_related.h"
#include "oracles/noise/norms.h"

#include <math.h>
#include <stdio.h>

static bool is_skipped(const struct sf_collector *collector, int32_t step) {
  const struct sf_expected *overflow = sf_related_of_step(collector, SF_KIND_SCALAR, SF_SCALAR_OVERFLOW, step);
  return overflow != NULL && overflow->x[0] != 0;
}

/* A way to compute a step's change. */
struct way {
  double count; /* number of steps in the bias corrections */
  double decay;
  bool is_coupled;   /* decay is added to the gradient */
  bool is_forgetful; /* moments begin with this step */
  bool root_outside; /* epsilon is added under the root */
  bool is_eps_early; /* .. or before the bias correction */
  bool by_beta1;     /* the second moment's bias is corrected as the first one's */
  double clip;       /* gradients are multiplied by this many times the clip factor .. */
  bool is_unclipped; /* .. or by 1 instead */
  const char *cause; /* as in struct sf_diagnosis_related */
};

struct job {
  const struct sf_collector *collector;
  const struct sf_expected *own; /* the change */
  double *m, *v;                 /* one for each element */
};

/* In fp64. False where a gradient is missing. */
static bool moments(const struct job *job, const struct way *way) {
  const struct sf_collector *collector = job->collector;
  const struct sf_train *train = &collector->c.train;
  const struct sf_shape shape = job->own->spec.shape;
  const double beta1 = (double)train->beta1_milli / 1000.0, beta2 = (double)train->beta2_milli / 1000.0;
  for (int64_t i = 0; i < shape.rows * shape.cols; i++) job->m[i] = job->v[i] = 0;
  for (int32_t s = way->is_forgetful ? job->own->id.step : 0; s <= job->own->id.step; s++) {
    const struct sf_expected *grad = sf_related_of_step(collector, SF_KIND_MAIN_GRAD, job->own->id.subject, s),
                             *clip = sf_related_of_step(collector, SF_KIND_SCALAR, SF_SCALAR_CLIP, s);
    const struct sf_expected *weight = sf_related_of_step(collector, SF_KIND_PARAM, job->own->id.subject, s);
    if (is_skipped(collector, s)) continue;
    if (grad == NULL || clip == NULL || weight == NULL) return false;
    const double factor = way->is_unclipped ? 1 : way->clip * (double)clip->x[0];
    for (int64_t i = 0; i < shape.rows * shape.cols; i++) {
      const double g = factor * (double)grad->x[i] + (way->is_coupled ? way->decay * (double)weight->x[i] : 0);
      job->m[i] = beta1 * job->m[i] + (1 - beta1) * g;
      job->v[i] = beta2 * job->v[i] + (1 - beta2) * g * g;
    }
  }
  return true;
}

/* Adds sign times the change to out. */
static bool add_change(double *out, const struct job *job, const struct way *way, double sign) {
  static const double EPSILON = 1e-8; /* part of the logical function */
  const struct sf_train *train = &job->collector->c.train;
  const struct sf_expected *weight = sf_related_of_step(job->collector, SF_KIND_PARAM, job->own->id.subject, job->own->id.step);
  const int64_t count = job->own->spec.shape.rows * job->own->spec.shape.cols;
  const double lr = (double)train->lr_micro * 1e-6;
  const double bias1 = 1 - pow((double)train->beta1_milli / 1000.0, way->count),
               bias2 = 1 - pow((double)train->beta2_milli / 1000.0, way->count);
  if (weight == NULL || !moments(job, way)) return false;
  for (int64_t i = 0; i < count; i++) {
    const double bias = way->by_beta1 ? bias1 : bias2, v = job->v[i] / bias, epsilon = way->is_eps_early ? EPSILON / sqrt(bias) : EPSILON;
    const double root = way->root_outside ? sqrt(v + epsilon) : sqrt(v) + epsilon;
    out[i] -= sign * lr * (job->m[i] / bias1 / root + (way->is_coupled ? 0 : way->decay * (double)weight->x[i]));
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

/* Groups of parameters whose squares a norm may count in a way of their own. */
static bool is_expert(const struct sf_catalog *catalog, const struct sf_param *p) {
  (void)catalog;
  return sf_cut_is_expert(p->row_cut) || sf_cut_is_expert(p->col_cut);
}
static bool is_vector(const struct sf_catalog *catalog, const struct sf_param *p) { return !is_expert(catalog, p) && p->shape.rows == 1; }
static bool is_embedding(const struct sf_catalog *catalog, const struct sf_param *p) {
  return catalog->modules[p->module].cls == SF_MODULE_WORD_EMBEDDINGS;
}
static bool is_any(const struct sf_catalog *catalog, const struct sf_param *p) {
  (void)catalog, (void)p;
  return true;
}

static double squares_of(const struct sf_collector *collector, int32_t step,
                         bool (*is)(const struct sf_catalog *, const struct sf_param *)) {
  double squares = 0;
  for (int32_t i = 0; i < collector->catalog->param_count; i++) {
    const struct sf_param *param = &collector->catalog->params[i];
    const struct sf_expected *grad = is(collector->catalog, param) ? sf_related_of_step(collector, SF_KIND_MAIN_GRAD, i, step) : NULL;
    if (grad != NULL) squares += sf_sum_squares(grad->x, grad->spec.shape.rows * grad->spec.shape.cols);
  }
  return squares;
}

/* Says what the norm behind such a factor counted, if that is simple: ", as if the norm counted all squares 2 times". Returns the
 * cause. */
static const char *norm_text(char *out, size_t out_size, const struct sf_collector *collector, int32_t step, double clip) {
  static const struct {
    bool (*is)(const struct sf_catalog *, const struct sf_param *);
    const char *name, *cause;
  } groups[] = {{is_any, "all squares", "a clip factor by another number of all squares"},
                {is_expert, "the experts' squares", "a clip factor by another number of the experts' squares"},
                {is_vector, "the vectors' squares", "a clip factor by another number of the vectors' squares"},
                {is_embedding, "the word embedding's squares", "a clip factor by another number of the word embedding's squares"}};
  static const double ROUND = 2e-2;
  const double all = squares_of(collector, step, is_any), wanted = all / (clip * clip);
  *out = '\0';
  for (size_t k = 0; k < sizeof groups / sizeof *groups; k++) {
    const double own = squares_of(collector, step, groups[k].is), times = own > 0 ? (wanted - (all - own)) / own : 1, whole = round(times);
    if (!(fabs(times - whole) <= ROUND) || whole < 0 || whole == 1 || whole > 1 << 20) continue;
    if (whole == 0)
      snprintf(out, out_size, ", as if the norm left out %s", groups[k].name);
    else
      snprintf(out, out_size, ", as if the norm counted %s %.0f times", groups[k].name, whole);
    return groups[k].cause;
  }
  return "another clip factor";
}

static void offer_clips(struct sf_related_list *list, const struct job *job, const struct way *right, const struct sf_slot *slot) {
  const struct sf_expected *clip = sf_related_of_step(list->collector, SF_KIND_SCALAR, SF_SCALAR_CLIP, job->own->id.step);
  const int64_t count = job->own->spec.shape.rows * job->own->spec.shape.cols;
  double *sum = sf_related_alloc(list, (size_t)count * sizeof *sum);
  struct way way = *right;
  char name[128], norm[96];
  if (sum == NULL || clip == NULL || !sf_slot_is_whole(slot)) return;
  way.is_unclipped = true;
  if (clip->x[0] != 1) offer(list, job, right, way, SF_DIAGNOSIS_SCALE, "Adam with gradients that are not clipped");
  way = *right, way.clip = fitted_clip(job, right, sum, slot->merged);
  way.cause = norm_text(norm, sizeof norm, list->collector, job->own->id.step, way.clip);
  if (clip->x[0] >= 1) way.cause = "another clip factor", *norm = '\0';
  snprintf(name, sizeof name, "Adam with gradients times %.3g (clip factor %.3g%s)", way.clip * (double)clip->x[0], (double)clip->x[0],
           norm);
  offer(list, job, right, way, SF_DIAGNOSIS_SCALE, name);
}

/* --- all ways ------------------------------------------------------------------------------------------------------ */

void sf_related_collect_adam(struct sf_related_list *list, const struct sf_slot *slot) {
  const struct sf_collector *collector = list->collector;
  const struct sf_expected *own = slot->expected;
  if (own->id.kind != SF_KIND_PARAM_DELTA || slot->phase != SF_SLOT_FIRST || is_skipped(collector, own->id.step)) return;
  const int64_t count = own->spec.shape.rows * own->spec.shape.cols;
  const struct job job = {.collector = collector,
                          .own = own,
                          .m = sf_related_alloc(list, (size_t)count * sizeof(double)),
                          .v = sf_related_alloc(list, (size_t)count * sizeof(double))};
  if (job.m == NULL || job.v == NULL) return;
  const double decay = (double)collector->c.train.weight_decay_milli / 1000.0;
  const bool is_decayed = collector->catalog->params[own->id.subject].decayed && decay > 0;
  int32_t applied = 0;
  for (int32_t s = 0; s <= own->id.step; s++) applied += !is_skipped(collector, s);
  const struct way right = {.count = applied, .decay = is_decayed ? decay : 0, .clip = 1};
  struct way way = right;
  if (applied <= own->id.step) {
    way.count = own->id.step + 1;
    offer(list, &job, &right, way, SF_DIAGNOSIS_SCALE, "Adam's bias correction with the steps counted that were skipped");
  }
  way.count = applied + 1;
  offer(list, &job, &right, way, SF_DIAGNOSIS_SCALE, "Adam's bias correction of the next step");
  way.count = applied - 1;
  if (applied > 1) offer(list, &job, &right, way, SF_DIAGNOSIS_SCALE, "Adam's bias correction of the step before");
  way.count = INFINITY;
  offer(list, &job, &right, way, SF_DIAGNOSIS_SCALE, "Adam without bias correction");
  way = right, way.root_outside = true;
  offer(list, &job, &right, way, SF_DIAGNOSIS_SCALE, "Adam with epsilon under the square root");
  way = right, way.is_eps_early = true;
  offer(list, &job, &right, way, SF_DIAGNOSIS_SCALE, "Adam with epsilon added before the bias correction");
  way = right, way.by_beta1 = true;
  offer(list, &job, &right, way, SF_DIAGNOSIS_SCALE, "Adam with the second moment corrected by beta1");
  way = right, way.is_forgetful = true;
  if (applied > 1)
    offer(list, &job, &right, way, SF_DIAGNOSIS_STALE,
          collector->c.reload.after_step == own->id.step ? "Adam with moments that were not loaded" : "Adam with moments that begin anew");
  offer_clips(list, &job, &right, slot);
  if (decay == 0) return;
  way = right, way.decay = is_decayed ? 0 : decay;
  offer(list, &job, &right, way, SF_DIAGNOSIS_REPEATED_TERM,
        is_decayed ? "a change without weight decay" : "a change with weight decay, which this parameter has none of");
  way = right, way.decay = 2 * decay;
  if (is_decayed) offer(list, &job, &right, way, SF_DIAGNOSIS_REPEATED_TERM, "a change with twice the weight decay");
  way = right, way.is_coupled = true;
  if (is_decayed)
    offer(list, &job, &right, way, SF_DIAGNOSIS_REPEATED_TERM, "Adam with weight decay added to the gradient, in place of AdamW");
}
