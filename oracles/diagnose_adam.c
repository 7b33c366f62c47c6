/* What Adam makes of the reference's gradients when it counts its steps, decays or keeps its moments otherwise than it should. */
#include "harness/tensor/consistent.h"
#include "oracles/diagnose_related.h"

#include <math.h>

static bool is_skipped(const struct sf_collector *collector, int32_t step) {
  const struct sf_expected *overflow = sf_related_of_step(collector, SF_KIND_SCALAR, SF_SCALAR_OVERFLOW, step);
  return overflow != NULL && overflow->x[0] != 0;
}

/* A way to make a step's change. */
struct way {
  double count;      /* of steps, in the bias corrections */
  double decay;
  bool is_coupled;   /* decay is added to the gradient */
  bool is_forgetful; /* moments begin with this step */
  bool root_outside; /* epsilon is added under the root */
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
    const struct sf_expected *grad = sf_related_of_step(collector, SF_KIND_MAIN_GRAD, job->own->id.subject, s), *clip = sf_related_of_step(collector, SF_KIND_SCALAR, SF_SCALAR_CLIP, s);
    const struct sf_expected *weight = sf_related_of_step(collector, SF_KIND_PARAM, job->own->id.subject, s);
    if (is_skipped(collector, s)) continue;
    if (grad == NULL || clip == NULL || weight == NULL) return false;
    for (int64_t i = 0; i < shape.rows * shape.cols; i++) {
      const double g = (double)clip->x[0] * (double)grad->x[i] + (way->is_coupled ? way->decay * (double)weight->x[i] : 0);
      job->m[i] = beta1 * job->m[i] + (1 - beta1) * g;
      job->v[i] = beta2 * job->v[i] + (1 - beta2) * g * g;
    }
  }
  return true;
}

/* sign times the change is added to out. */
static bool add_change(double *out, const struct job *job, const struct way *way, double sign) {
  static const double EPSILON = 1e-8; /* of the logical function */
  const struct sf_train *train = &job->collector->c.train;
  const struct sf_expected *weight = sf_related_of_step(job->collector, SF_KIND_PARAM, job->own->id.subject, job->own->id.step);
  const int64_t count = job->own->spec.shape.rows * job->own->spec.shape.cols;
  const double lr = (double)train->lr_micro * 1e-6;
  const double bias1 = 1 - pow((double)train->beta1_milli / 1000.0, way->count), bias2 = 1 - pow((double)train->beta2_milli / 1000.0, way->count);
  if (weight == NULL || !moments(job, way)) return false;
  for (int64_t i = 0; i < count; i++) {
    const double v = job->v[i] / bias2, root = way->root_outside ? sqrt(v + EPSILON) : sqrt(v) + EPSILON;
    out[i] -= sign * lr * (job->m[i] / bias1 / root + (way->is_coupled ? 0 : way->decay * (double)weight->x[i]));
  }
  return true;
}

/* The reference's change and what the way makes more of it than the right one: what both have of rounding cancels. */
static void offer(struct sf_related_list *list, const struct job *job, const struct way *right, struct way way, enum sf_diagnosis_class cls, const char *name) {
  const int64_t count = job->own->spec.shape.rows * job->own->spec.shape.cols;
  double *sum = sf_related_alloc(list, (size_t)count * sizeof *sum);
  float *x = sf_related_alloc(list, (size_t)count * sizeof *x);
  if (sum == NULL || x == NULL) return;
  for (int64_t i = 0; i < count; i++) sum[i] = (double)job->own->x[i];
  if (!add_change(sum, job, &way, 1) || !add_change(sum, job, right, -1)) return;
  for (int64_t i = 0; i < count; i++) x[i] = (float)sum[i];
  struct sf_diagnosis_related *r = sf_related_add(list, SF_RELATED_STALE, job->own->spec.shape, x, name);
  if (r != NULL) r->cls = cls;
}

void sf_related_collect_adam(struct sf_related_list *list, const struct sf_slot *slot) {
  const struct sf_collector *collector = list->collector;
  const struct sf_expected *own = slot->expected;
  if (own->id.kind != SF_KIND_PARAM_DELTA || slot->phase != SF_SLOT_FIRST || is_skipped(collector, own->id.step)) return;
  const int64_t count = own->spec.shape.rows * own->spec.shape.cols;
  const struct job job = {.collector = collector, .own = own, .m = sf_related_alloc(list, (size_t)count * sizeof(double)), .v = sf_related_alloc(list, (size_t)count * sizeof(double))};
  if (job.m == NULL || job.v == NULL) return;
  const double decay = (double)collector->c.train.weight_decay_milli / 1000.0;
  const bool is_decayed = collector->catalog->params[own->id.subject].decayed && decay > 0;
  int32_t applied = 0;
  for (int32_t s = 0; s <= own->id.step; s++) applied += !is_skipped(collector, s);
  const struct way right = {.count = applied, .decay = is_decayed ? decay : 0};
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
  way = right, way.is_forgetful = true;
  if (applied > 1)
    offer(list, &job, &right, way, SF_DIAGNOSIS_STALE, collector->c.reload.after_step == own->id.step ? "Adam with moments that were not loaded" : "Adam with moments that begin anew");
  if (decay == 0) return;
  way = right, way.decay = is_decayed ? 0 : decay;
  offer(list, &job, &right, way, SF_DIAGNOSIS_REPEATED_TERM, is_decayed ? "a change without weight decay" : "a change with weight decay, which this parameter has none of");
  way = right, way.decay = 2 * decay;
  if (is_decayed) offer(list, &job, &right, way, SF_DIAGNOSIS_REPEATED_TERM, "a change with twice the weight decay");
  way = right, way.is_coupled = true;
  if (is_decayed) offer(list, &job, &right, way, SF_DIAGNOSIS_REPEATED_TERM, "Adam with weight decay added to the gradient, in place of AdamW");
}
