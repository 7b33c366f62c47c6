/* Names a factor by the view's sizes that it is near to. */
#include "oracles/diagnose/diagnose_fit.h"

#include "oracles/noise/norms.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool is_near(double a, double b, double within) { return fabs(a - b) <= within * fabs(b); }

/* Names of the first tier that has any, joined by " or "; "" when no tier has. */
static void name_sizes(char *out, size_t out_size, const struct sf_tensor_view *view, double factor, double within) {
  int32_t tier = -1;
  *out = '\0';
  for (int32_t i = 0; i < view->size_count; i++) {
    const struct sf_view_size *size = &view->sizes[i];
    if (size->value == 1) continue;
    const bool is_it = is_near(factor, size->value, within), is_inverse = !is_it && is_near(factor, 1 / size->value, within);
    if ((*out != '\0' && size->tier != tier) || (!is_it && !is_inverse)) continue;
    const size_t length = strlen(out);
    tier = size->tier;
    snprintf(out + length, out_size - length, "%s%s%s", length > 0 ? " or " : "", is_inverse && size->inverse == NULL ? "1 / " : "",
             is_inverse && size->inverse != NULL ? size->inverse : size->name);
  }
}

static bool is_small_number(double factor, double within) {
  bool is = false;
  for (double number = 2; number <= 4; number++) is |= is_near(factor, number, within) || is_near(factor, 1 / number, within);
  return is;
}

void sf_factor_name(struct sf_factor *out, const struct sf_tensor_view *view, double factor, double accuracy) {
  static const double SHARPEST = 1e-5; /* rounding of the factor itself */
  const double within = sf_larger(accuracy, SHARPEST);
  const bool is_negated = is_near(factor, -1, within), is_small = is_small_number(factor, within);
  name_sizes(out->names, sizeof out->names, view, factor, within);
  out->cause = *out->names != '\0' ? out->names : is_negated ? "-1" : is_small ? "a small number" : NULL;
  if (*out->names != '\0')
    snprintf(out->text, sizeof out->text, "%.6g = %s", factor, out->names);
  else if (is_negated)
    snprintf(out->text, sizeof out->text, "-1: the sign is wrong");
  else
    snprintf(out->text, sizeof out->text, is_small ? "%.6g" : "%.6g, which is no ratio of the case's sizes", factor);
}
