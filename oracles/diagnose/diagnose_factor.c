/* What a factor may be, in words: sizes of the axes that the tensor's ranks are spread over, counts, ratios of token counts. */
#include "oracles/diagnose/diagnose_fit.h"

#include "harness/tensor/consistent.h"
#include "oracles/noise/norms.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The names that fit so far; all of them are said, since nothing tells which it is. */
struct naming {
  double factor, within;
  int count;
  char text[160];
};

static bool is_near(double a, double b, double within) { return fabs(a - b) <= within * fabs(b); }

static void add_name(struct naming *n, const char *before, const char *name) {
  const size_t length = strlen(n->text);
  snprintf(n->text + length, sizeof n->text - length, "%s%s%s", n->count > 0 ? " or " : "", before, name);
  n->count++;
}

/* A value of the case's, or one over it. */
static void try(struct naming *n, double value, const char *name) {
  if (!(value > 0) || value == 1 || !isfinite(value)) return;
  if (is_near(n->factor, value, n->within))
    add_name(n, "", name);
  else if (is_near(n->factor, 1 / value, n->within))
    add_name(n, "1 / ", name);
}

static void try_product(struct naming *n, int64_t a, int64_t b, const char *name) {
  if (a > 1 && b > 1) try(n, (double)(a * b), name);
}

static void try_ratio(struct naming *n, int64_t over, int64_t under, const char *name, const char *inverse) {
  if (over == 1 || under == 1 || over == under) return; /* a size alone */
  const double value = (double)over / (double)under;
  if (is_near(n->factor, value, n->within)) add_name(n, "", name);
  if (is_near(n->factor, 1 / value, n->within)) add_name(n, "", inverse);
}

static int64_t edp_of(const struct sf_layout *l) { return l->tp * l->cp * l->dp / (l->etp * l->ep); }

static void try_axes(struct naming *n, const struct sf_diagnosis_problem *p) {
  const struct sf_layout *l = &p->c->layout;
  if (p->meshes & SF_MESH_EXPERTS) {
    try(n, (double)l->etp, "etp");
    try(n, (double)l->ep, "ep");
    try(n, (double)edp_of(l), "edp");
    try_product(n, l->etp, l->ep, "(etp x ep)");
    try_product(n, l->ep, edp_of(l), "(ep x edp)");
    try_product(n, l->etp, edp_of(l), "(etp x edp)");
  }
  if (p->meshes & SF_MESH_DENSE) {
    try(n, (double)l->tp, "tp");
    try(n, (double)l->cp, "cp");
    try(n, (double)l->dp, "dp");
    try_product(n, l->dp, l->cp, "(dp x cp)");
    try_product(n, l->tp, l->cp, "(tp x cp)");
    try_product(n, l->tp, l->dp, "(tp x dp)");
  }
  if (p->meshes & SF_MESH_STAGES) try(n, (double)l->pp, "pp");
}

/* Activations of the forward are no sums over microbatches or tokens. */
static bool is_summed_over_data(const struct sf_diagnosis_problem *p) { return p->id.kind != SF_KIND_ACT && p->id.kind != SF_KIND_PARAM; }

static void try_microbatches(struct naming *n, const struct sf_diagnosis_problem *p) {
  const int64_t all = p->c->train.microbatches, dp = p->c->layout.dp;
  if (!is_summed_over_data(p)) return;
  try(n, (double)all, "the number of microbatches");
  if (dp > 1) try(n, (double)all / (double)dp, "the number of microbatches of a rank");
}

static void try_ratios(struct naming *n, const struct sf_diagnosis_problem *p) {
  const struct sf_layout *l = &p->c->layout;
  if (!(p->meshes & SF_MESH_EXPERTS)) return;
  try_ratio(n, l->etp, l->tp, "etp / tp", "tp / etp");
  try_ratio(n, l->dp * l->cp, edp_of(l), "(dp x cp) / edp", "edp / (dp x cp)");
}

static void try_tokens(struct naming *n, const struct sf_diagnosis_problem *p) {
  const struct sf_case *c = p->c;
  const double step = (double)sf_data_step_tokens(c, p->id.step), own = p->kept, m = (double)c->train.microbatches;
  const double all = (double)(c->model.seq * c->train.microbatch_size);
  try(n, step / (own * m), "(the step's mean token count over the microbatch's own)");
  if (n->count == 0) try(n, step / own, "(the step's token count over the microbatch's own)");
  if (n->count == 0) try(n, step, "the step's token count");
  if (n->count == 0) try(n, own, "the microbatch's token count");
  if (n->count == 0) try(n, all, "the microbatch's tokens, masked ones too");
  if (n->count == 0) try(n, all / own, "(the microbatch's tokens over those that its mask keeps)");
  if (n->count == 0) try(n, all * m / step, "(the step's tokens over those that the masks keep)");
}

static void try_others(struct naming *n, const struct sf_diagnosis_problem *p) {
  const struct sf_case *c = p->c;
  if (p->of_attention) try(n, sqrt((double)c->model.head_dim), "the root of the head size");
  if (c->precision.loss_scale_log2 > 0) try(n, exp2((double)c->precision.loss_scale_log2), "the loss scale");
  try(n, (double)c->model.layers, "the number of layers");
}

static bool is_small_number(const struct naming *n) {
  bool is = false;
  for (double number = 2; number <= 4; number++) is |= is_near(n->factor, number, n->within) || is_near(n->factor, 1 / number, n->within);
  return is;
}

bool sf_factor_text(char *out, size_t out_size, const struct sf_diagnosis_problem *p, double factor, double accuracy) {
  static void (*const tries[])(struct naming *, const struct sf_diagnosis_problem *) = {try_axes, try_ratios, try_tokens, try_others};
  static const double SHARPEST = 1e-5; /* rounding of the factor itself */
  struct naming n = {.factor = factor, .within = sf_larger(accuracy, SHARPEST)};
  for (size_t k = 0; k < sizeof tries / sizeof *tries && n.count == 0; k++) {
    tries[k](&n, p);
    if (tries[k] == try_axes) try_microbatches(&n, p);
  }
  if (n.count > 0)
    snprintf(out, out_size, "%.6g = %s", factor, n.text);
  else if (is_near(factor, -1, n.within))
    snprintf(out, out_size, "-1: the sign is wrong");
  else
    snprintf(out, out_size, is_small_number(&n) ? "%.6g" : "%.6g, which is no ratio of the case's sizes", factor);
  return n.count > 0 || is_near(factor, -1, n.within) || is_small_number(&n);
}
