/* Gradient norms, computed again from the candidate's own main gradients. */
#include "harness/check/check_internal.h"

#include "harness/check/kernel.h"

#include <math.h>
#include <string.h>

struct sf_step_norm *sf_check_find_norm(const struct sf_checking *checking, int64_t step) {
  for (int32_t i = 0; i < checking->step_count; i++)
    if (checking->steps[i].step == step) return &checking->steps[i];
  return NULL;
}

static bool is_uncut(const struct sf_trace_tensor *tensor) {
  bool is = true;
  for (const struct sf_piece *piece = tensor->pieces; piece != NULL; piece = piece->next) is = is && piece->count == tensor->count;
  return is;
}

static enum sf_status add_share(struct sf_step_norm *of, const struct sf_trace_tensor *tensor, double squares) {
  char name[sizeof of->shares->name];
  int32_t k = 0;
  if (sf_trace_name_module(name, sizeof name, &tensor->name) != SF_OK) return SF_ENOMEM;
  while (k < of->share_count && strcmp(of->shares[k].name, name) != 0) k++;
  if (k == of->share_count) {
    struct sf_norm_share *shares = sf_grown(of->shares, of->share_count, sizeof *shares);
    if (shares == NULL) return SF_ENOMEM;
    of->shares = shares;
    of->shares[of->share_count++] = (struct sf_norm_share){0};
    memcpy(of->shares[k].name, name, sizeof name);
  }
  of->shares[k].squares += squares;
  return SF_OK;
}

enum sf_status sf_check_add_squares(struct sf_checking *checking, int64_t step, const struct sf_trace_tensor *tensor, double squares,
                                    bool incomplete) {
  struct sf_step_norm *of = sf_check_find_norm(checking, step);
  if (of == NULL) {
    struct sf_step_norm *steps = sf_grown(checking->steps, checking->step_count, sizeof *steps);
    if (steps == NULL) return sf_error_set(checking->error, SF_ENOMEM, "%s: out of memory", checking->candidate->path);
    checking->steps = steps;
    of = &steps[checking->step_count++];
    *of = (struct sf_step_norm){.step = step};
  }
  of->squares += squares;
  if (tensor != NULL && is_uncut(tensor)) of->uncut_squares += squares;
  if (tensor != NULL && strstr(tensor->text, ".experts.") != NULL) of->expert_squares += squares;
  of->incomplete |= incomplete;
  if (tensor != NULL && add_share(of, tensor, squares) != SF_OK)
    return sf_error_set(checking->error, SF_ENOMEM, "%s: out of memory", checking->candidate->path);
  return SF_OK;
}

bool sf_check_is_grad_norm(const struct sf_trace_tensor *tensor) {
  return tensor->name.kind == SF_KIND_SCALAR && tensor->count == 1 && sf_trace_name_is_subject(&tensor->name, "grad_norm");
}

static enum sf_status load_scalar(double *out, struct sf_checking *checking, const struct sf_trace_tensor *tensor) {
  const void *value;
  enum sf_status status = sf_merger_begin(checking->of_candidate, checking->candidate, tensor, checking->error);
  if (status == SF_OK) status = sf_merger_block(checking->of_candidate, &value, 0, 1, checking->error);
  if (status == SF_OK) sf_widen(out, value, 1, sf_merger_dtype(checking->of_candidate));
  return status;
}

/* Replaces the result of the comparison with the reference, but keeps findings about structure. format: in which the norm is promised;
 * below fp32 each rounding on the way to it is larger than what the fp32 sums leave. */
static void judge_norm(struct sf_check_result *result, double norm, double value, enum sf_dtype format) {
  const double roundings = sf_factors.fro * sf_dtype_unit_roundoff(format);
  *result = (struct sf_check_result){.tensor = result->tensor, .judged = true, .rank = -1, .row = -1, .norm = norm};
  result->tensor_error = result->error = fabs(value - norm);
  result->tensor_noise = result->noise = (roundings > sf_factors.norm_rel ? roundings : sf_factors.norm_rel) * norm;
  result->tensor_ratio = result->ratio = sf_check_ratio(result->error, result->noise);
  if (!isfinite(norm)) {
    result->judged = false;
    result->why_not = "main gradients not finite";
  } else if (!isfinite(value)) {
    sf_check_flag(result, SF_CLASS_NONFINITE, -1, "is not finite, the norm of the main gradients is %.9g", norm);
  } else if (!(result->ratio <= 1)) {
    sf_check_flag(result, SF_CLASS_TOLERANCE, -1, "is %.9g, the norm of the main gradients is %.9g", value, norm);
  }
}

enum sf_status sf_check_grad_norms(struct sf_checking *checking) {
  for (int32_t i = 0; i < checking->report.result_count; i++) {
    struct sf_check_result *result = &checking->report.results[i];
    const struct sf_trace_tensor *tensor = sf_trace_set_find(checking->candidate, result->tensor->text);
    if (tensor == NULL || !sf_check_is_grad_norm(tensor)) continue;
    const struct sf_step_norm *of = sf_check_find_norm(checking, tensor->name.step);
    const bool structural = result->flagged && result->cls != SF_CLASS_TOLERANCE && result->cls != SF_CLASS_NONFINITE;
    if (of == NULL || of->incomplete || structural) continue;
    double value;
    const enum sf_status status = load_scalar(&value, checking, tensor);
    if (status != SF_OK) return status;
    judge_norm(result, sqrt(of->squares), value, result->tensor->dtype);
  }
  return SF_OK;
}
