/* Factors that another tensor's scale makes of an fp8 product: amaxes of other steps and microbatches over the right one. */
#include "oracles/diagnose/diagnose_related.h"
#include "oracles/noise/norms.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { RATIOS_MAX = 48, NAME_SIZE = 112, MOMENTS_MAX = 8 };

struct ratios {
  struct sf_related_list *list;
  struct sf_view_size *at;
  int32_t count;
};

static double amax_of(const float *x, struct sf_shape shape) {
  double amax = 0;
  for (int64_t i = 0; i < shape.rows * shape.cols; i++) amax = sf_larger(amax, fabs((double)x[i]));
  return amax;
}

/* The amax of a module's tensor in a step and microbatch; 0 where there is none. */
static double amax_at(const struct ratios *ratios, enum sf_kind kind, enum sf_module_class cls, int32_t layer, int64_t step,
                      int64_t microbatch) {
  const struct sf_catalog *catalog = ratios->list->collector->catalog;
  const struct sf_trace_id like = {.step = (uint16_t)step,
                                   .microbatch = (uint16_t)microbatch,
                                   .pass = kind == SF_KIND_ACT ? SF_PASS_FWD : SF_PASS_BWD,
                                   .kind = (uint8_t)kind,
                                   .subject = sf_catalog_module(catalog, cls, layer)};
  const float *x = sf_related_value(ratios->list, kind, like, cls, layer);
  const struct sf_expected *e = sf_expectations_find(ratios->list->collector->expectations, like);
  return x != NULL && e != NULL ? amax_of(x, e->spec.shape) : 0;
}

static void add_ratio(struct ratios *ratios, double other, double own, const char *of, const char *when, int64_t number) {
  char *name = sf_related_alloc(ratios->list, 2 * NAME_SIZE);
  if (name == NULL || ratios->count == RATIOS_MAX || !(other > 0) || !(own > 0) || other == own) return;
  snprintf(name, NAME_SIZE, "(the %s's largest value in %s %lld over its own)", of, when, (long long)number);
  snprintf(name + NAME_SIZE, NAME_SIZE, "(the %s's largest value over that in %s %lld)", of, when, (long long)number);
  ratios->at[ratios->count++] = (struct sf_view_size){8, other / own, name, name + NAME_SIZE};
}

/* The scale that a tensor is multiplied with before its cast, which a product has to be divided by. */
static void add_scale(struct ratios *ratios, double amax, enum sf_dtype format, const char *of) {
  char *name = sf_related_alloc(ratios->list, NAME_SIZE);
  if (name == NULL || ratios->count == RATIOS_MAX || !(amax > 0)) return;
  snprintf(name, NAME_SIZE, "the scale of the %s's cast", of);
  ratios->at[ratios->count++] = (struct sf_view_size){8, (double)sf_f8_largest(format) / amax, name, NULL};
}

/* Of a tensor that the linear reads. */
static void add_ratios(struct ratios *ratios, enum sf_kind kind, enum sf_module_class cls, int32_t layer, struct sf_trace_id id,
                       const char *of) {
  const struct sf_train *train = &ratios->list->collector->c.train;
  const double own = amax_at(ratios, kind, cls, layer, id.step, id.microbatch);
  add_scale(ratios, own, kind == SF_KIND_ACT ? SF_F8E4M3 : SF_F8E5M2, of);
  for (int64_t m = 0; m < train->microbatches && m < MOMENTS_MAX; m++)
    if (m != id.microbatch) add_ratio(ratios, amax_at(ratios, kind, cls, layer, id.step, m), own, of, "microbatch", m);
  for (int64_t step = 0; step < train->steps && step < MOMENTS_MAX; step++)
    if (step != id.step) add_ratio(ratios, amax_at(ratios, kind, cls, layer, step, id.microbatch), own, of, "step", step);
}

const struct sf_view_size *sf_amax_ratios(int32_t *count, struct sf_related_list *list, const struct sf_expected *own) {
  const struct sf_module *module = &list->collector->catalog->modules[own->spec.module];
  const struct sf_module_row *row = &sf_modules[module->cls];
  struct ratios ratios = {.list = list};
  *count = 0;
  if (list->collector->c.precision.compute != SF_COMPUTE_FP8 || !sf_module_is(module->cls, SF_TRAIT_FP8)) return NULL;
  ratios.at = sf_related_alloc(list, RATIOS_MAX * sizeof *ratios.at);
  if (ratios.at == NULL) return NULL;
  if (own->id.kind != SF_KIND_ACT_GRAD) add_ratios(&ratios, SF_KIND_ACT, row->input, module->layer, own->id, "input");
  if (own->id.kind != SF_KIND_ACT) add_ratios(&ratios, SF_KIND_ACT_GRAD, row->reader, module->layer, own->id, "gradient");
  const int32_t param = sf_catalog_param(list->collector->catalog, module->cls, module->layer, 0);
  const float *weight = sf_related_weight(list, param, own->id.step);
  if (weight != NULL && own->id.kind != SF_KIND_WGRAD)
    add_scale(&ratios, amax_of(weight, list->collector->catalog->params[param].shape), SF_F8E4M3, "weight");
  *count = ratios.count;
  return ratios.at;
}
