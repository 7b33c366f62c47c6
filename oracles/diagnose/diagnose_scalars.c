/* What scalars of the step may be: norms that count squares of groups of parameters, of a module's or of one in a way of their own, other
 * formulas of the clip factor, and other loss scales. */
#include "oracles/diagnose/diagnose_related.h"
#include "oracles/noise/norms.h"

#include <math.h>
#include <stdio.h>

static bool is_any(const struct sf_catalog *catalog, const struct sf_param *p) {
  (void)catalog, (void)p;
  return true;
}
static bool is_of_experts(const struct sf_catalog *catalog, const struct sf_param *p) {
  (void)catalog;
  return sf_cut_is_expert(p->row_cut) || sf_cut_is_expert(p->col_cut);
}
static bool is_dense(const struct sf_catalog *catalog, const struct sf_param *p) { return !is_of_experts(catalog, p); }
static bool is_vector(const struct sf_catalog *catalog, const struct sf_param *p) {
  return !is_of_experts(catalog, p) && p->shape.rows == 1;
}
static bool is_of_embedding(const struct sf_catalog *catalog, const struct sf_param *p) {
  return catalog->modules[p->module].cls == SF_MODULE_WORD_EMBEDDINGS;
}
static bool is_whole_on_tp(const struct sf_catalog *catalog, const struct sf_param *p) {
  (void)catalog;
  return p->row_cut == SF_CUT_NONE && p->col_cut == SF_CUT_NONE;
}

struct adding {
  struct sf_norm_group *groups;
  int32_t count;
  const struct sf_collector *collector;
  int32_t step;
};

/* Adds a parameter's squares to the last group. */
static void add_param(const struct adding *adding, int32_t param) {
  const struct sf_expected *grad = sf_related_of_step(adding->collector, SF_KIND_MAIN_GRAD, param, adding->step);
  if (grad != NULL) adding->groups[adding->count - 1].squares += sf_sum_squares(grad->x, grad->spec.shape.rows * grad->spec.shape.cols);
}

static bool begin_group(struct adding *adding, const char *name, const char *clip_cause) {
  if (adding->count == SF_NORM_GROUPS_MAX) return false;
  struct sf_norm_group *group = &adding->groups[adding->count++];
  *group = (struct sf_norm_group){.clip_cause = clip_cause};
  snprintf(group->name, sizeof group->name, "%s", name);
  return true;
}

static void add_coarse(struct adding *adding, bool has_tp) {
  static const struct {
    bool (*is)(const struct sf_catalog *, const struct sf_param *);
    const char *name, *clip_cause;
    bool needs_tp;
  } coarse[] = {
      {is_any, "all parameters", "a clip factor by another number of all squares", false},
      {is_of_experts, "the experts", "a clip factor by another number of the experts' squares", false},
      {is_dense, "all but the experts", "a clip factor by another number of all but the experts' squares", false},
      {is_vector, "the vectors", "a clip factor by another number of the vectors' squares", false},
      {is_of_embedding, "the word embedding", "a clip factor by another number of the word embedding's squares", false},
      {is_whole_on_tp, "what every rank of tp holds", "a clip factor by another number of replicated squares", true},
  };
  const struct sf_catalog *catalog = adding->collector->catalog;
  for (size_t k = 0; k < sizeof coarse / sizeof *coarse; k++) {
    if ((coarse[k].needs_tp && !has_tp) || !begin_group(adding, coarse[k].name, coarse[k].clip_cause)) continue;
    for (int32_t i = 0; i < catalog->param_count; i++)
      if (coarse[k].is(catalog, &catalog->params[i])) add_param(adding, i);
  }
}

int32_t sf_norm_groups(struct sf_norm_group out[SF_NORM_GROUPS_MAX], struct sf_related_list *list, int32_t step, bool is_coarse) {
  const struct sf_catalog *catalog = list->collector->catalog;
  struct adding adding = {.groups = out, .collector = list->collector, .step = step};
  add_coarse(&adding, list->of->c.layout.tp > 1);
  for (int cls = 0; cls < SF_MODULE_CLASS_COUNT && !is_coarse; cls++) {
    bool is_begun = false;
    for (int32_t i = 0; i < catalog->param_count; i++) {
      if (catalog->modules[catalog->params[i].module].cls != (enum sf_module_class)cls) continue;
      if (!is_begun && !begin_group(&adding, sf_modules[cls].name, NULL)) break;
      is_begun = true;
      add_param(&adding, i);
    }
  }
  for (int32_t i = 0; i < catalog->param_count && !is_coarse; i++)
    if (begin_group(&adding, catalog->params[i].name, NULL)) add_param(&adding, i);
  return adding.count;
}

/* A number that the scalar may be. */
static void add_number(struct sf_related_list *list, enum sf_diagnosis_class cls, double number, const char *name, const char *cause) {
  float *x = sf_related_alloc(list, sizeof *x);
  if (x == NULL) return;
  *x = (float)number;
  struct sf_diagnosis_related *r = sf_related_add(list, SF_RELATED_STALE, (struct sf_shape){1, 1}, x, name);
  if (r == NULL) return;
  r->cls = cls;
  r->cause = cause;
}

/* Numbers that often stand in place of the root of the sum of squares; squared, as the norm's view is. */
static void add_other_norms(struct sf_related_list *list, const struct sf_expected *own) {
  static const char CAUSE[] = "the norm's formula";
  double sum = 0, most = 0, absolute = 0, of_experts = 0, of_others = 0;
  for (int32_t i = 0; i < list->collector->catalog->param_count; i++) {
    const struct sf_expected *grad = sf_related_of_step(list->collector, SF_KIND_MAIN_GRAD, i, own->id.step);
    if (grad == NULL) continue;
    const struct sf_param *param = &list->collector->catalog->params[i];
    sum += grad->norm;
    of_experts += is_of_experts(list->collector->catalog, param) ? grad->norm * grad->norm : 0;
    of_others += is_of_experts(list->collector->catalog, param) ? 0 : grad->norm * grad->norm;
    for (int64_t k = 0; k < grad->spec.shape.rows * grad->spec.shape.cols; k++) {
      most = sf_larger(most, fabs((double)grad->x[k]));
      absolute += fabs((double)grad->x[k]);
    }
  }
  add_number(list, SF_DIAGNOSIS_OTHER_FORMULA, sum * sum, "the sum of all parameters' norms, not of their squares", CAUSE);
  const double both = sqrt(of_experts) + sqrt(of_others);
  add_number(list, SF_DIAGNOSIS_OTHER_FORMULA, both * both, "the norm of the experts plus that of all others, not of their squares", CAUSE);
  add_number(list, SF_DIAGNOSIS_OTHER_FORMULA, most * most, "the largest gradient, not the root of all squares", CAUSE);
  add_number(list, SF_DIAGNOSIS_OTHER_FORMULA, absolute * absolute, "the sum of all magnitudes, not the root of all squares", CAUSE);
}

static void add_squares(struct sf_related_list *list, const struct sf_expected *own) {
  struct sf_norm_group groups[SF_NORM_GROUPS_MAX];
  const int32_t count = sf_norm_groups(groups, list, own->id.step, false);
  for (int32_t k = 1; k < count; k++) { /* all: a factor */
    float *squares = sf_related_alloc(list, sizeof *squares);
    char name[128];
    if (squares == NULL || groups[k].squares == 0) continue;
    *squares = (float)groups[k].squares;
    snprintf(name, sizeof name, "the share of %s (as squares)", groups[k].name);
    sf_related_add(list, SF_RELATED_TERM, (struct sf_shape){1, 1}, squares, name);
  }
}

/* --- scalars that follow from others ------------------------------------------------------------------------------- */

/* What often stands in place of the smaller one of 1 and limit / norm. */
static void add_clips(struct sf_related_list *list, const struct sf_expected *own) {
  static const char CAUSE[] = "the clip factor's formula";
  const struct sf_expected *norm = sf_related_of_step(list->collector, SF_KIND_SCALAR, SF_SCALAR_GRAD_NORM, own->id.step);
  const double limit = (double)list->collector->c.train.clip_milli / 1000, n = norm != NULL ? (double)norm->x[0] : 0;
  if (limit == 0 || !(n > 0)) return;
  add_number(list, SF_DIAGNOSIS_OTHER_FORMULA, limit / (n + 1e-6), "a factor that is not limited to 1: gradients below the limit grow",
             CAUSE);
  add_number(list, SF_DIAGNOSIS_OTHER_FORMULA, 1, "no clipping", CAUSE);
  add_number(list, SF_DIAGNOSIS_OTHER_FORMULA, limit / (n * n), "the limit over the squared norm", CAUSE);
  add_number(list, SF_DIAGNOSIS_OTHER_FORMULA, n / limit, "the norm over the limit", CAUSE);
  add_number(list, SF_DIAGNOSIS_OTHER_FORMULA, 1 / (n + 1e-6), "1 over the norm, whatever the limit is", CAUSE);
  add_number(list, SF_DIAGNOSIS_OTHER_FORMULA, limit, "the limit itself", CAUSE);
}

void sf_related_collect_scalar(struct sf_related_list *list, const struct sf_expected *own) {
  if (own->id.subject == SF_SCALAR_GRAD_NORM) add_squares(list, own), add_other_norms(list, own);
  if (own->id.subject == SF_SCALAR_CLIP) add_clips(list, own);
  if (own->id.subject != SF_SCALAR_LOSS_SCALE) return;
  add_number(list, SF_DIAGNOSIS_STALE, 2 * (double)own->x[0], "a loss scale that has grown once too often, or was not halved",
             "a loss scale that is too large");
  add_number(list, SF_DIAGNOSIS_STALE, (double)own->x[0] / 2, "a loss scale that has not grown, or was halved once too often",
             "a loss scale that is too small");
}
